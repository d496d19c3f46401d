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
use highrank::{HeadConfig, OutputHead, Precision};
use highrank_benches::workload::{LossOption, Mode, OutputLayer, OutputPrediction, OutputStep, TargetWords};
use program::args::{Head, HeadSizes};

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
    fn head(&self, head: Head) -> HeadConfig {
        let &Self { d_hidden, d_embedding, vocab, components, .. } = self;
        let knots = if head.is_mixture() { 1_000_000 } else { 100_000 };
        let lower = (d_hidden, components.div_ceil(3));
        let (cap, units) = (HeadSizes::CAP, HeadSizes::UNITS);
        head.config(&HeadSizes { d_hidden, d_embedding, vocab, components, lower, knots, cap, units })
    }
}

fn heads(criterion: &mut Criterion) {
    const FULL: [(&str, Mode); 5] = [
        ("forward+backward", Mode::Step),
        ("nll", Mode::Nll),
        ("log-probs", Mode::LogProbs),
        ("top-k", Mode::TopK),
        ("sample", Mode::Sample),
    ];
    const BF16: [(&str, Mode); 1] = [("forward+backward, bf16", Mode::Step)];
    for workload in &WORKLOADS {
        let mut group = criterion.benchmark_group(workload.name);
        group.sample_size(10).throughput(Throughput::Elements(workload.tokens as u64));
        for head in Head::all() {
            for (precision, timed) in [(Precision::Full, &FULL[..]), (Precision::Bf16, &BF16[..])] {
                let config = workload.head(head).with_precision(precision);
                // Prepared when first timed: a filter must not pay for what it leaves out.
                let mut prepared = None;
                for (what, mode) in timed {
                    group.bench_function(BenchmarkId::new(head.name(), what), |bencher| {
                        let case = prepared.get_or_insert_with(|| Case::new(&config, workload.tokens));
                        match mode {
                            Mode::Step => {
                                let step = case.step();
                                bencher.iter(|| step.run());
                            }
                            mode => {
                                let mut prediction = case.prediction(*mode);
                                bencher.iter(|| prediction.run());
                            }
                        }
                    });
                }
            }
        }
    }
}

/// A head, which tracks gradients, with the target words of all tokens.
struct Case {
    head: OutputHead,
    d_hidden: usize,
    words: Vec<i64>,
    device: Device,
}

impl Case {
    fn new(config: &HeadConfig, tokens: usize) -> Self {
        // Words by frequency, as in language, where the head makes a difference of it.
        let words = if config.adaptive.is_some() { TargetWords::Zipf } else { TargetWords::Even };
        let words = words.draw(tokens, config.vocab);
        let device = Device::flex().autodiff();
        let case = Self { head: config.init(&device), d_hidden: config.d_hidden, words, device };
        case.verify();
        case
    }

    fn step(&self) -> OutputStep {
        let layer = OutputLayer::Head(self.head.clone());
        OutputStep::new(layer, self.words.clone(), self.d_hidden, LossOption::Plain, &self.device)
    }

    fn prediction(&self, mode: Mode) -> OutputPrediction {
        let device = self.device.clone().inner();
        OutputPrediction::new(self.head.valid(), &self.words, self.d_hidden, mode, 10, &device)
    }

    /// The loss of the first tokens, which the kernel computes, against what the composed log-probabilities say.
    fn verify(&self) {
        let words = &self.words[..20.min(self.words.len())];
        let targets = Tensor::<1, Int>::from_data(words, &self.device);
        let normal = Distribution::Normal(0.0, 1.0);
        let hidden = Tensor::<2>::random([words.len(), self.d_hidden], normal, &self.device).require_grad();
        let log_probs = self.head.forward(hidden.clone());
        let want: f32 = log_probs.gather(1, targets.clone().unsqueeze_dim(1)).neg().mean().into_scalar();
        let got: f32 = self.head.valid().loss(hidden.inner(), targets.inner()).into_scalar();
        // A sum made in another order may round a context to the other neighbour.
        let within = if self.head.precision == Precision::Full { 1e-4 } else { 1e-3 };
        assert!((got - want).abs() < within * want.abs(), "loss {got}, the log-probabilities say {want}");
    }
}

criterion_group!(benches, heads);
criterion_main!(benches);
