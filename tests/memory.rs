//! The memory that a corpus in shards takes, and predictions, measured by an allocator that counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use awd_lstm::data::{Corpus, TextConfig};
use burn::tensor::{Device, Distribution, Int, Tensor};
use highrank::{HeadConfig, Sampling};
use rand::SeedableRng;
use rand_pcg::Pcg64;

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
    let batches = corpus.train().batches("the training text", 60, 3).unwrap();
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
            once_warm(|| drop(head.sample::<2, 1>(hidden.clone(), &sampling, &mut rng)))
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
        let written = once_warm(|| assert_eq!(head.log_probs(hidden.clone()).dims(), [TOKENS, VOCAB]));
        let rows = TOKENS * VOCAB * size_of::<f32>();
        assert!((rows..rows + 4 * BUDGET).contains(&written), "{components} components: {written} bytes");
    }
}
