//! The memory that a corpus in shards takes, and predictions, measured by an allocator that counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use awd_lstm::data::Batches;
use awd_lstm::{HeadKind, ModelConfig};
use burn::tensor::{Device, Distribution, Int, Tensor, TensorData};
use highrank::{HeadConfig, LossOptions, Sampling};
use rand::SeedableRng;
use rand_pcg::Pcg64;
use runs::data::{Corpus, TextConfig};
use runs::{load_weights, save_weights};

/// Counts the bytes in use and their largest number.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is handed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let in_use = IN_USE.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(in_use, Relaxed);
        // SAFETY: the caller's promises about `layout` are handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promises about `pointer` and `layout` are handed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The largest number of bytes in use during `work` beyond those before it.
fn peak<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = IN_USE.load(Relaxed);
    PEAK.store(before, Relaxed);
    let result = work();
    (result, PEAK.load(Relaxed) - before)
}

/// The peak of `work` without idle memory that it could take. Each thread makes its room for products in the first one that
/// it has part in, and keeps it: the smallest peak of several counts.
fn once_warm(mut work: impl FnMut()) -> usize {
    let peaks = (0..8).map(|_| {
        highrank_kernels::cpu::clear();
        peak(&mut work).1
    });
    peaks.min().expect("several")
}

/// Held while a test measures: the allocator counts for all of them.
static MEASURING: Mutex<()> = Mutex::new(());

#[test]
fn a_corpus_on_the_disk_takes_memory_for_its_vocabulary_and_a_window_alone() {
    let _alone = MEASURING.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let shards = folder.path().join("train");
    fs::create_dir(&shards).unwrap();
    let mut tokens = 0;
    for shard in 0..8 {
        let mut file = BufWriter::new(File::create(shards.join(format!("{shard:05}"))).unwrap());
        for line in 0..12_500 {
            // A coprime stride visits all of 1,000 words.
            let words = (0..20).map(|n| format!("word{}", (line * 20 + n) * 617 % 1000));
            writeln!(file, "{}", words.collect::<Vec<_>>().join(" ")).unwrap();
            tokens += 21;
        }
    }
    fs::write(folder.path().join("valid.txt"), "word1\n").unwrap();
    fs::write(folder.path().join("test.txt"), "word1\n").unwrap();

    let text = TextConfig { vocab_size: Some(500), ..TextConfig::default() };
    let (corpus, loading) = peak(|| Corpus::load(folder.path(), &text).unwrap());
    assert_eq!(corpus.train().len(), tokens);
    let batches = Batches::of("the training text", corpus.train(), 60, 3).unwrap();
    let device = Device::flex();
    let (_, reading) = peak(|| {
        let windows = batches.windows(35, &device);
        assert_eq!(windows.map(|window| window.targets.dims()[0]).sum::<usize>(), batches.rows() - 1);
    });
    // In memory the ids alone would be 8.4 MB, and 8.4 MB again in columns; the text is 17 MB.
    assert!(loading < 1_000_000 && reading < 200_000, "{loading} bytes to load, {reading} to read");
    println!("{tokens} tokens: {loading} bytes to load, {reading} to read");
}

#[test]
fn predictions_take_memory_for_a_chunk_of_logits_whatever_the_components() {
    const TOKENS: usize = 200;
    const VOCAB: usize = 1200;
    const BUDGET: usize = 1 << 17;
    let _alone = MEASURING.lock().unwrap_or_else(PoisonError::into_inner);
    let device = Device::flex();
    for components in [1, 8] {
        let config = HeadConfig::mos(12, 8, VOCAB, components).with_memory_budget(Some(BUDGET));
        let head = config.init(&device);
        let hidden = Tensor::<2>::random([TOKENS, 12], Distribution::Default, &device);
        let targets = Tensor::<1, Int>::zeros([TOKENS], &device);
        let drawn = |sampling: Sampling| {
            let mut rng = Pcg64::seed_from_u64(1);
            once_warm(|| drop(head.sample::<2, 1>(hidden.clone(), &sampling, &mut rng).unwrap()))
        };
        let peaks = [
            drawn(Sampling::new()),
            drawn(Sampling::new().with_temperature(0.0)),
            drawn(Sampling::new().with_top_k(Some(5))),
            once_warm(|| drop(head.top_k(hidden.clone(), 5))),
            once_warm(|| drop(head.nll(hidden.clone(), targets.clone()))),
        ];
        // One row of each token alone would be 960 kB, all of eight components 7.7 MB.
        println!("{components} components: {peaks:?} bytes");
        assert!(peaks.iter().all(|peak| *peak < 4 * BUDGET), "{components} components: {peaks:?} bytes");
        let written = once_warm(|| assert_eq!(head.forward(hidden.clone()).dims(), [TOKENS, VOCAB]));
        let rows = TOKENS * VOCAB * size_of::<f32>();
        assert!((rows..rows + 4 * BUDGET).contains(&written), "{components} components: {written} bytes");
    }
}

#[test]
fn ten_thousand_padded_sequences_take_a_chunk_of_logits_and_their_gradient() {
    const SEQUENCES: usize = 10_000;
    const LENGTH: usize = 3;
    const WIDTH: usize = 4;
    const VOCAB: usize = 20;
    const COMPONENTS: usize = 2;
    const PADDING: i64 = -100;
    let _alone = MEASURING.lock().unwrap_or_else(PoisonError::into_inner);
    let device = Device::flex().autodiff();
    let config = HeadConfig::mos(WIDTH, 3, VOCAB, COMPONENTS).with_memory_budget(Some(1 << 16));
    let head = config.init(&device);
    // Of [time, sequence]: from one word to all that there is room for.
    let is_word = |index: usize| index / SEQUENCES <= (index % SEQUENCES * 7) % LENGTH;
    let words: Vec<usize> = (0..LENGTH * SEQUENCES).filter(|index| is_word(*index)).collect();
    assert!((LENGTH * SEQUENCES / 3..LENGTH * SEQUENCES).contains(&words.len()));
    let target = |index: usize| if is_word(index) { (index * 617 % VOCAB) as i64 } else { PADDING };
    let integers = |values: Vec<i64>, on: &Device| {
        let count = values.len();
        Tensor::<1, Int>::from_data(TensorData::new(values, [count]), on)
    };
    let targets = integers((0..LENGTH * SEQUENCES).map(target).collect(), &device);
    let targets = targets.reshape([LENGTH, SEQUENCES]);
    let shape = [LENGTH, SEQUENCES, WIDTH];
    let hidden = Tensor::<3>::random(shape, Distribution::Default, &device).require_grad();
    let options = LossOptions::new().with_ignore_index(PADDING);

    let step = || {
        let loss = head.loss_with(hidden.clone(), targets.clone(), &options).value;
        let gradient = hidden.grad(&loss.clone().backward()).unwrap();
        (loss.into_scalar::<f32>(), gradient)
    };
    let (loss, gradient) = step();
    let taken = (0..2).map(|_| peak(step).1).min().expect("two");
    let (own, logits) = (LENGTH * SEQUENCES * WIDTH * 4, LENGTH * SEQUENCES * COMPONENTS * VOCAB * 4);
    println!("{taken} bytes for {own} of hidden states and {logits} of logits");
    // The gradient, and what counts without the padding, its targets and its gradient.
    assert!(taken < 5 * own && taken < logits / 2, "{taken} bytes beside {own} and {logits}");

    // The same words without padding.
    let places = integers(words.iter().map(|index| *index as i64).collect(), &device);
    let flat = hidden.clone().detach().reshape([LENGTH * SEQUENCES, WIDTH]);
    let packed = flat.select(0, places.clone()).detach().require_grad();
    let of_words = integers(words.iter().map(|index| target(*index)).collect(), &device);
    let packed_loss = head.loss(packed.clone(), of_words);
    let want = packed.grad(&packed_loss.clone().backward()).unwrap();
    let packed_loss = packed_loss.into_scalar::<f32>();
    assert!((loss / packed_loss - 1.0).abs() < 1e-5, "{loss} against {packed_loss}");
    let rows = gradient.reshape([LENGTH * SEQUENCES, WIDTH]);
    let all: f32 = rows.clone().abs().sum().into_scalar();
    let kept = rows.select(0, places.inner());
    let of_kept: f32 = kept.clone().abs().sum().into_scalar();
    assert!((all / of_kept - 1.0).abs() < 1e-5, "padding has a gradient: {all} against {of_kept}");
    let (apart, largest): (f32, f32) =
        ((kept - want.clone()).abs().max().into_scalar(), want.abs().max().into_scalar());
    assert!(apart < 1e-5 * largest, "{apart} of {largest}");
}

#[test]
fn weights_that_are_loaded_again_and_again_leave_no_memory_behind() {
    let _alone = MEASURING.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.safetensors");
    for device in [Device::flex(), Device::flex().autodiff()] {
        let mut model = ModelConfig::tiny(HeadKind::Mos, 30).try_init(&device).unwrap();
        save_weights(&model, &file).unwrap();
        let mut in_use_after = |loads: usize| {
            for _ in 0..loads {
                model = load_weights(model.clone(), &file).unwrap();
            }
            // Burn forgets parameters that are gone after the next backward pass.
            if device.is_autodiff() {
                drop(Tensor::<1>::ones([1], &device).require_grad().sum().backward());
            }
            IN_USE.load(Relaxed)
        };
        let before = in_use_after(20);
        let after = in_use_after(100);
        println!("{} bytes more after 100 loads", after.saturating_sub(before));
        assert!(after < before + 20_000, "{} bytes more after 100 loads", after - before);
    }
}
