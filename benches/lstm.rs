//! Throughput of the AWD-LSTM's three LSTM layers, forward and backward, at the Penn Treebank sizes of the papers, in full precision
//! and in bfloat16.
//!
//! ```text
//! cargo bench --bench lstm
//! ```
//!
//! Before it is timed, the native kernel's first steps are compared with the portable operation's.

use awd_lstm::lstm::{LstmArgs, portable};
use burn::tensor::{Device, Tensor};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use highrank::Precision;
use highrank_benches::workload::LstmStack;
use highrank_kernels::Floats;

/// Width of the input, then units of each layer.
const SIZES: [usize; 4] = [280, 960, 960, 620];
const STEPS: usize = 70;
const BATCH: usize = 12;
/// Probability of dropping a recurrent weight, in the bench that does.
const WEIGHT_DROPOUT: f64 = 0.5;

/// The native kernel's first steps against the portable operation's.
fn verify(stack: &LstmStack, precision: Precision) {
    fn plain<const D: usize>(tensor: Tensor<D>) -> Floats {
        tensor.inner().into()
    }
    let layer = &stack.layers[0];
    let x = stack.x.clone().narrow(0, 0, 3);
    let (got, _) = layer.forward(x.clone(), layer.zero_state(BATCH), 0.0);
    let state = layer.zero_state(BATCH);
    let packed = portable::forward(LstmArgs {
        x: plain(x),
        h0: plain(state.hidden),
        c0: plain(state.cell),
        w_ih: plain(layer.w_ih.val()),
        w_hh: plain(layer.w_hh.val()),
        b_ih: plain(layer.b_ih.val()),
        b_hh: plain(layer.b_hh.val()),
        hh_mask: None,
        precision,
    });
    let want = packed.tensor::<3>().narrow(0, 0, 3);
    let worst: f32 = (got.inner() - want).abs().max().into_scalar();
    // A sum made in another order may round a hidden state to the other neighbour.
    assert!(
        worst < if precision == Precision::Full { 1e-5 } else { 1e-3 },
        "the kernel and the portable operation differ by {worst}"
    );
}

fn lstm(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("lstm");
    group.sample_size(10).throughput(Throughput::Elements((STEPS * BATCH) as u64));
    for precision in [Precision::Full, Precision::Bf16] {
        let stack = LstmStack::new(&SIZES, STEPS, BATCH, precision, &Device::flex());
        verify(&stack, precision);
        for (name, dropout) in [("no-dropout", 0.0), ("drop-connect", WEIGHT_DROPOUT)] {
            group.bench_function(
                BenchmarkId::new(format!("forward+backward, {precision}"), name),
                |bencher| {
                    bencher.iter(|| stack.step(dropout));
                },
            );
        }
    }
}

criterion_group!(benches, lstm);
criterion_main!(benches);
