//! Throughput of the AWD-LSTM's three LSTM layers, forward and backward, at the Penn Treebank sizes of the papers.
//!
//! ```text
//! cargo bench --bench lstm
//! ```
//!
//! Before it is timed, the native kernel's first steps are compared with the portable operation's.

use awd_lstm::lstm::{Lstm, LstmArgs, LstmConfig, portable};
use burn::backend::{Autodiff, Flex};
use burn::tensor::{Distribution, Tensor, TensorPrimitive};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

type B = Autodiff<Flex>;

/// Width of the input, then units of each layer.
const SIZES: [usize; 4] = [280, 960, 960, 620];
const STEPS: usize = 70;
const BATCH: usize = 12;
/// Probability of dropping a recurrent weight, in the bench that does.
const WEIGHT_DROPOUT: f64 = 0.5;

struct Case {
    layers: Vec<Lstm<B>>,
    x: Tensor<B, 3>,
}

impl Case {
    fn new() -> Self {
        let device = Default::default();
        let layers: Vec<Lstm<B>> =
            SIZES.windows(2).map(|pair| LstmConfig::new(pair[0], pair[1]).init(&device)).collect();
        let x = Tensor::random([STEPS, BATCH, SIZES[0]], Distribution::Normal(0.0, 1.0), &device);
        let case = Self { layers, x: x.require_grad() };
        case.verify();
        case
    }

    /// Forward and backward of the sum of all outputs.
    fn step(&self, weight_dropout: f64) -> f32 {
        let mut y = self.x.clone();
        for layer in &self.layers {
            let state = layer.zero_state(BATCH);
            (y, _) = layer.forward(y, state, weight_dropout);
        }
        let sum = y.sum();
        drop(sum.backward());
        sum.into_scalar()
    }

    fn verify(&self) {
        let layer = &self.layers[0];
        let x = self.x.clone().narrow(0, 0, 3);
        let (got, _) = layer.forward(x.clone(), layer.zero_state(BATCH), 0.0);
        fn primitive<const D: usize>(tensor: Tensor<B, D>) -> burn::backend::flex::FlexTensor {
            tensor.inner().into_primitive().tensor()
        }
        let state = layer.zero_state(BATCH);
        let packed = portable::forward::<Flex>(LstmArgs {
            x: primitive(x),
            h0: primitive(state.hidden),
            c0: primitive(state.cell),
            w_ih: primitive(layer.w_ih.val()),
            w_hh: primitive(layer.w_hh.val()),
            b_ih: primitive(layer.b_ih.val()),
            b_hh: primitive(layer.b_hh.val()),
            hh_mask: None,
        });
        let want = Tensor::<Flex, 3>::from_primitive(TensorPrimitive::Float(packed)).narrow(0, 0, 3);
        let worst: f32 = (got.inner() - want).abs().max().into_scalar();
        assert!(worst < 1e-5, "the kernel and the portable operation differ by {worst}");
    }
}

fn lstm(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("lstm");
    group.sample_size(10).throughput(Throughput::Elements((STEPS * BATCH) as u64));
    let case = Case::new();
    for (name, dropout) in [("no-dropout", 0.0), ("drop-connect", WEIGHT_DROPOUT)] {
        group.bench_function(BenchmarkId::new("forward+backward", name), |bencher| {
            bencher.iter(|| case.step(dropout));
        });
    }
}

criterion_group!(benches, lstm);
criterion_main!(benches);
