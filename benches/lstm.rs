//! Throughput of the AWD-LSTM's three LSTM layers, forward and backward, at the Penn Treebank sizes of the papers.
//!
//! ```text
//! cargo bench --bench lstm
//! ```
//!
//! Before it is timed, the native kernel's first steps are compared with the portable operation's.

use awd_lstm::lstm::{LstmArgs, portable};
use burn::backend::flex::FlexTensor;
use burn::backend::{Autodiff, Flex};
use burn::tensor::{Tensor, TensorPrimitive};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use highrank_workspace::workload::LstmStack;

type B = Autodiff<Flex>;

/// Width of the input, then units of each layer.
const SIZES: [usize; 4] = [280, 960, 960, 620];
const STEPS: usize = 70;
const BATCH: usize = 12;
/// Probability of dropping a recurrent weight, in the bench that does.
const WEIGHT_DROPOUT: f64 = 0.5;

/// The native kernel's first steps against the portable operation's.
fn verify(stack: &LstmStack<B>) {
    fn primitive<const D: usize>(tensor: Tensor<B, D>) -> FlexTensor {
        tensor.inner().into_primitive().tensor()
    }
    let layer = stack.layer();
    let x = stack.x().narrow(0, 0, 3);
    let (got, _) = layer.forward(x.clone(), layer.zero_state(BATCH), 0.0);
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
        precision: highrank::Precision::Full,
    });
    let want = Tensor::<Flex, 3>::from_primitive(TensorPrimitive::Float(packed)).narrow(0, 0, 3);
    let worst: f32 = (got.inner() - want).abs().max().into_scalar();
    assert!(worst < 1e-5, "the kernel and the portable operation differ by {worst}");
}

fn lstm(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("lstm");
    group.sample_size(10).throughput(Throughput::Elements((STEPS * BATCH) as u64));
    let stack = LstmStack::<B>::new(&SIZES, STEPS, BATCH, highrank::Precision::Full, &Default::default());
    verify(&stack);
    for (name, dropout) in [("no-dropout", 0.0), ("drop-connect", WEIGHT_DROPOUT)] {
        group.bench_function(BenchmarkId::new("forward+backward", name), |bencher| {
            bencher.iter(|| stack.step(dropout));
        });
    }
}

criterion_group!(benches, lstm);
criterion_main!(benches);
