//! Throughput of every output head at the sizes of the papers' data sets: forward, forward with backward in full precision and
//! in bfloat16, and the ten most probable words.
//!
//! ```text
//! cargo bench --bench heads                 everything; the 1B-Word sizes take minutes a head
//! cargo bench --bench heads -- ptb/mos      one data set, one head
//! ```
//!
//! Before it is timed, every head's loss is compared with the portable likelihood's, so that a wrong kernel cannot win.

use burn::module::Module;
use burn::tensor::{Device, Distribution, Int, Tensor};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use highrank::likelihood::portable;
use highrank::ops::{Likelihood, Objective, Targets};
use highrank::{AdaptiveConfig, HeadConfig, OutputHead, Precision};
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
            ("gss", HeadConfig::gss(d, v)),
            ("soft-cap", HeadConfig::soft_cap(d, v, 30.0)),
            ("plif", HeadConfig::plif(d, v, 100_000)),
            ("monotonic-net", HeadConfig::monotonic_net(d, v, 16)),
            ("moc", HeadConfig::moc(h, d, v, k)),
            ("mos", HeadConfig::mos(h, d, v, k)),
            ("mixtape", HeadConfig::mixtape(h, d, v)),
            ("doc", HeadConfig::doc(&[(h, k.div_ceil(3)), (h, k)], d, v)),
            ("adaptive", HeadConfig::softmax(d, v).with_adaptive(AdaptiveConfig::for_vocab(v))),
            ("mos-plif", HeadConfig::mos_plif(h, d, v, k, 1_000_000)),
        ]
    }
}

fn heads(criterion: &mut Criterion) {
    for workload in &WORKLOADS {
        let mut group = criterion.benchmark_group(workload.name);
        group.sample_size(10).throughput(Throughput::Elements(workload.tokens as u64));
        for (name, config) in workload.heads() {
            // Prepared when first timed: a filter must not pay for what it leaves out.
            let mut prepared = None;
            group.bench_function(BenchmarkId::new(name, "forward"), |bencher| {
                let case = prepared.get_or_insert_with(|| Case::new(&config, workload.tokens));
                bencher.iter(|| case.forward());
            });
            group.bench_function(BenchmarkId::new(name, "forward+backward"), |bencher| {
                let case = prepared.get_or_insert_with(|| Case::new(&config, workload.tokens));
                bencher.iter(|| case.step());
            });
            group.bench_function(BenchmarkId::new(name, "top-k"), |bencher| {
                let case = prepared.get_or_insert_with(|| Case::new(&config, workload.tokens));
                bencher.iter(|| case.top_k());
            });
            let (config, mut prepared) = (config.clone().with_precision(Precision::Bf16), None);
            group.bench_function(BenchmarkId::new(name, "forward+backward, bf16"), |bencher| {
                let case = prepared.get_or_insert_with(|| Case::new(&config, workload.tokens));
                bencher.iter(|| case.step());
            });
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

    fn forward(&self) -> f32 {
        let (hidden, targets) = (self.hidden.clone().inner(), self.targets.clone().inner());
        self.untracked.loss(hidden, targets, None).into_scalar()
    }

    fn step(&self) -> f32 {
        let loss = self.head.loss(self.hidden.clone(), self.targets.clone(), None);
        drop(loss.backward());
        loss.into_scalar()
    }

    fn top_k(&self) {
        drop(self.untracked.top_k(self.hidden.clone().inner(), 10));
    }

    /// The portable likelihood of the first tokens against the kernel's.
    fn verify(&self) {
        let few = 20.min(self.targets.dims()[0]);
        let hidden = self.hidden.clone().inner().slice(0..few);
        let targets = self.targets.clone().inner().slice(0..few);
        if self.untracked.clusters.is_some() {
            let picked = self.untracked.log_probs(hidden.clone()).gather(1, targets.clone().unsqueeze_dim(1));
            let want: f32 = picked.neg().mean().into_scalar();
            let got: f32 = self.untracked.loss(hidden, targets, None).into_scalar();
            assert!((got - want).abs() < 1e-3 * want.abs(), "loss {got}, the log-probabilities say {want}");
            return;
        }
        let contexts = self.untracked.context.forward(hidden.clone());
        let decoder = &self.untracked.decoder;
        let input = Likelihood {
            contexts: contexts.contexts,
            log_prior: contexts.log_prior,
            weight: decoder.weight.as_ref().expect("an owned decoder").val().into(),
            bias: decoder.bias.as_ref().map(|bias| bias.val().into()),
            map: self.untracked.logit_map.function(),
            map_params: self.untracked.logit_map.packed_params().map(Into::into),
            temperature: 1.0,
            chunk_bytes: 1 << 24,
            precision: self.untracked.precision,
        };
        let objective = Objective::new(Targets::Words(targets.clone().into()));
        let want = portable::score(&input, &objective).loss;
        let want: f32 = want.tensor::<1>().mean().into_scalar();
        let got: f32 = self.untracked.loss(hidden, targets, None).into_scalar();
        // A sum made in another order may round a context to the other neighbour.
        let within = if self.untracked.precision == Precision::Full { 1e-4 } else { 1e-3 };
        assert!((got - want).abs() < within * want.abs(), "loss {got}, the portable likelihood says {want}");
    }
}

criterion_group!(benches, heads);
criterion_main!(benches);
