//! A whole training step (forward, backward, clipping, update) of the `paper` preset under every head, in full precision and in
//! bfloat16.
//!
//! ```text
//! cargo bench --bench step
//! cargo bench --bench step -- mos
//! ```
//!
//! The first loss of each model is checked before it is timed.

use awd_lstm::{HeadKind, Preset};
use burn::tensor::Device;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use highrank::Precision;
use highrank_benches::workload::Training;

const VOCAB: usize = 10_000;

fn step(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("step");
    let train = Preset::Paper.train();
    group.sample_size(10).throughput(Throughput::Elements((train.bptt * train.batch) as u64));
    for head in HeadKind::ALL {
        for precision in [Precision::Full, Precision::Bf16] {
            // Prepared when first timed: a filter must not pay for what it leaves out.
            let mut prepared = None;
            group.bench_function(BenchmarkId::new(head.name(), precision), |bencher| {
                let training = prepared.get_or_insert_with(|| {
                    let mut model = Preset::Paper.model(*head, VOCAB);
                    model.precision = precision;
                    Training::new(&model, Preset::Paper.train(), &Device::flex()).expect("a sound model")
                });
                bencher.iter(|| training.step());
            });
        }
    }
}

criterion_group!(benches, step);
criterion_main!(benches);
