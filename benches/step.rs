//! A whole training step (forward, backward, clipping, update) of the `paper` preset under every head.
//!
//! ```text
//! cargo bench --bench step
//! cargo bench --bench step -- mos
//! ```
//!
//! Before it is timed, the loss of the untrained model is compared with the entropy of the uniform distribution, which
//! weights that small cannot be far from.

use awd_lstm::optim::{NtAsgd, NtAsgdConfig, clip_global_norm};
use awd_lstm::{HeadKind, LanguageModel, LmState, ModelConfig, Preset};
use burn::backend::{Autodiff, Flex};
use burn::optim::{GradientsParams, Optimizer};
use burn::tensor::{Int, Tensor};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

type B = Autodiff<Flex>;

const VOCAB: usize = 10_000;

struct Training {
    model: Option<LanguageModel<B>>,
    optimiser: NtAsgd<LanguageModel<B>, B>,
    state: LmState<B>,
    tokens: Tensor<B, 2, Int>,
    targets: Tensor<B, 2, Int>,
}

impl Training {
    fn new(head: HeadKind) -> Self {
        let device = Default::default();
        let train = Preset::Paper.train();
        let config: ModelConfig = Preset::Paper.model(head, VOCAB);
        let model = config.try_init::<B>(&device).expect("a valid preset");
        let mut rng = Pcg64::seed_from_u64(0);
        let mut draw = || {
            let count = train.bptt * train.batch;
            let words: Vec<i64> = (0..count).map(|_| rng.random_range(0..VOCAB as i64)).collect();
            Tensor::<B, 1, Int>::from_data(words.as_slice(), &device).reshape([train.bptt, train.batch])
        };
        let (tokens, targets) = (draw(), draw());
        let optimiser = NtAsgdConfig::new().with_weight_decay(train.weight_decay).init();
        let state = model.zero_state(train.batch);
        Self { model: Some(model), optimiser, state, tokens, targets }
    }

    /// One step; the mean nll before it.
    fn step(&mut self) -> f32 {
        let train = Preset::Paper.train();
        let model = self.model.take().expect("put back after every step");
        let (tokens, targets) = (self.tokens.clone(), self.targets.clone());
        let loss = model.loss(tokens, targets, self.state.clone(), train.alpha, train.beta);
        self.state = loss.state.detach();
        let nll = loss.nll.inner();
        let grads = GradientsParams::from_grads(loss.total.backward(), &model);
        let grads = clip_global_norm(&model, grads, train.clip);
        self.model = Some(self.optimiser.step(train.lr, model, grads));
        nll.into_scalar()
    }
}

fn step(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("step");
    let train = Preset::Paper.train();
    group.sample_size(10).throughput(Throughput::Elements((train.bptt * train.batch) as u64));
    for head in HeadKind::ALL {
        // Prepared when first timed: a filter must not pay for what it leaves out.
        let mut prepared = None;
        group.bench_function(head.name(), |bencher| {
            let training = prepared.get_or_insert_with(|| {
                let mut training = Training::new(*head);
                let (nll, uniform) = (training.step(), (VOCAB as f32).ln());
                assert!(
                    (nll - uniform).abs() < 0.1,
                    "{head}: {nll} nats, the uniform distribution has {uniform}"
                );
                training
            });
            bencher.iter(|| training.step());
        });
    }
}

criterion_group!(benches, step);
criterion_main!(benches);
