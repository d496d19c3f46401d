//! Throughput of every output head at the sizes of the papers' data sets: the mean loss forward and backward in full precision
//! and in bfloat16, and what a head predicts: the nll of every token, all log-probabilities, the ten most probable words, a word
//! drawn at random.
//!
//! ```text
//! cargo bench --bench heads                 everything; the 1B-Word sizes take minutes a head
//! cargo bench --bench heads -- ptb/mos      one data set, one head
//! ```
//!
//! Before it is timed, every head's loss is compared with its log-probabilities, which are composed of Burn's own operations
//! where they are differentiated, so that a wrong kernel cannot win.

use burn::module::Module;
use burn::tensor::{Device, Distribution, Int, Tensor};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use highrank::{AdaptiveConfig, HeadConfig, OutputHead, Precision, Sampling};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// Sizes of a data set's published model.
struct Workload {
    name: &'static str,
    tokens: usize,
    d_hidden: usize,
    d_embedding: usize,
    vocab: usize,
    components: usize,
}

const WORKLOADS: [Workload; 3] = [
    Workload { name: "ptb", tokens: 840, d_hidden: 620, d_embedding: 280, vocab: 10_000, components: 15 },
    Workload { name: "wt2", tokens: 1050, d_hidden: 650, d_embedding: 300, vocab: 33_278, components: 15 },
    Workload {
        name: "1b-word",
        tokens: 2100,
        d_hidden: 1024,
        d_embedding: 900,
        vocab: 100_000,
        components: 7,
    },
];

impl Workload {
    fn heads(&self) -> Vec<(&'static str, HeadConfig)> {
        let &Self { d_hidden: h, d_embedding: d, vocab: v, components: k, .. } = self;
        vec![
            ("softmax", HeadConfig::softmax(d, v)),
            ("sigsoftmax", HeadConfig::sigsoftmax(d, v)),
            ("gss", HeadConfig::generalised_sigsoftmax(d, v)),
            ("soft-cap", HeadConfig::soft_cap(d, v, 30.0)),
            ("plif", HeadConfig::plif(d, v, 100_000)),
            ("monotonic-net", HeadConfig::monotonic_net(d, v, 16)),
            ("moc", HeadConfig::moc(h, d, v, k)),
            ("mos", HeadConfig::mos(h, d, v, k)),
            ("mixtape", HeadConfig::mixtape(h, d, v)),
            ("doc", HeadConfig::direct_output_connection(&[(h, k.div_ceil(3)), (h, k)], d, v)),
            ("adaptive", HeadConfig::softmax(d, v).with_adaptive(AdaptiveConfig::for_vocab(v))),
            ("mos-plif", HeadConfig::mos_plif(h, d, v, k, 1_000_000)),
        ]
    }
}

fn heads(criterion: &mut Criterion) {
    const FULL: [Mode; 5] = [
        ("forward+backward", Case::step),
        ("nll", Case::nll),
        ("log-probs", Case::log_probs),
        ("top-k", Case::top_k),
        ("sample", Case::sample),
    ];
    const BF16: [Mode; 1] = [("forward+backward, bf16", Case::step)];
    for workload in &WORKLOADS {
        let mut group = criterion.benchmark_group(workload.name);
        group.sample_size(10).throughput(Throughput::Elements(workload.tokens as u64));
        for (name, config) in workload.heads() {
            for (precision, timed) in [(Precision::Full, &FULL[..]), (Precision::Bf16, &BF16[..])] {
                let config = config.clone().with_precision(precision);
                // Prepared when first timed: a filter must not pay for what it leaves out.
                let mut prepared = None;
                for (what, run) in timed {
                    group.bench_function(BenchmarkId::new(name, what), |bencher| {
                        let case = prepared.get_or_insert_with(|| Case::new(&config, workload.tokens));
                        bencher.iter(|| run(case));
                    });
                }
            }
        }
    }
}

/// A head with its inputs.
struct Case {
    head: OutputHead,
    untracked: OutputHead,
    hidden: Tensor<2>,
    targets: Tensor<1, Int>,
}

/// The name of what is measured, and one run of it.
type Mode = (&'static str, fn(&Case));

impl Case {
    fn new(config: &HeadConfig, tokens: usize) -> Self {
        let device = Device::flex().autodiff();
        let head = config.init(&device);
        let hidden = Tensor::random([tokens, config.d_hidden], Distribution::Normal(0.0, 1.0), &device);
        let mut rng = Pcg64::seed_from_u64(0);
        // Words by frequency, as in language, where the head makes a difference of it: a word's rank has an even logarithm.
        let words: Vec<i64> = (0..tokens)
            .map(|_| match config.adaptive {
                Some(_) => (config.vocab as f64).powf(rng.random()) as i64 - 1,
                None => rng.random_range(0..config.vocab as i64),
            })
            .collect();
        let targets = Tensor::from_data(words.as_slice(), &device);
        let case = Self { untracked: head.valid(), head, hidden: hidden.require_grad(), targets };
        case.verify();
        case
    }

    fn step(&self) {
        drop(self.head.loss(self.hidden.clone(), self.targets.clone()).backward());
    }

    fn nll(&self) {
        drop(self.untracked.nll(self.hidden.clone().inner(), self.targets.clone().inner()));
    }

    fn log_probs(&self) {
        drop(self.untracked.forward(self.hidden.clone().inner()));
    }

    fn top_k(&self) {
        drop(self.untracked.top_k(self.hidden.clone().inner(), 10));
    }

    fn sample(&self) {
        let mut rng = Pcg64::seed_from_u64(0);
        drop::<Tensor<1, Int>>(self.untracked.sample(
            self.hidden.clone().inner(),
            &Sampling::new(),
            &mut rng,
        ));
    }

    /// The loss of the first tokens, which the kernel computes, against what the composed log-probabilities say.
    fn verify(&self) {
        let few = 20.min(self.targets.dims()[0]);
        let (hidden, targets) = (self.hidden.clone().slice(0..few), self.targets.clone().slice(0..few));
        let log_probs = self.head.forward(hidden.clone());
        let want: f32 = log_probs.gather(1, targets.clone().unsqueeze_dim(1)).neg().mean().into_scalar();
        let got: f32 = self.untracked.loss(hidden.inner(), targets.inner()).into_scalar();
        // A sum made in another order may round a context to the other neighbour.
        let within = if self.head.precision == Precision::Full { 1e-4 } else { 1e-3 };
        assert!((got - want).abs() < within * want.abs(), "loss {got}, the log-probabilities say {want}");
    }
}

criterion_group!(benches, heads);
criterion_main!(benches);
