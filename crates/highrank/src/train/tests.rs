//! Sums of a batch against its definition, and metrics over batches of different sizes.

use burn::data::dataloader::Progress;
use burn::tensor::{Device, Distribution, Int, Tensor};
use burn::train::metric::{
    Adaptor, ItemLazy, LossInput, LossMetric, Metric, MetricAttributes, MetricMetadata, Numeric, NumericEntry,
};

use super::{HeadOutput, TokenMetric};
use crate::{AdaptiveConfig, HeadConfig, LossOptions, OutputHead};

const VOCAB: usize = 7;

/// Whichever of the CPU's backends was built.
#[allow(deprecated)]
fn cpu() -> Device {
    #[cfg(feature = "flex")]
    return Device::flex();
    #[cfg(not(feature = "flex"))]
    return Device::ndarray();
}

fn metadata() -> MetricMetadata {
    MetricMetadata { progress: Progress::new(1, 1, None), iteration: None, lr: None }
}

fn head(device: &Device) -> OutputHead {
    HeadConfig::mos(5, 4, VOCAB, 2).init(device)
}

fn hidden(device: &Device) -> Tensor<3> {
    Tensor::random([2, 4, 5], Distribution::Normal(0.0, 3.0), device)
}

/// Half of them ignored.
fn targets(device: &Device) -> Tensor<2, Int> {
    Tensor::from_data([[3, -100, 0, -100], [-100, 6, -100, 1]], device)
}

fn options() -> LossOptions {
    LossOptions::new().with_ignore_index(-100).with_statistics(true)
}

fn output(nll: f32, correct: i32, tokens: i32) -> HeadOutput {
    let (device, counts) = (cpu(), |count: i32| Tensor::from_ints([count], &cpu()));
    let nll = Tensor::from_floats([nll], &device);
    HeadOutput { loss: nll.clone(), nll, correct: counts(correct), tokens: counts(tokens) }
}

fn perplexity(nll: f32, tokens: i32) -> HeadOutput {
    output(nll, 0, tokens)
}

fn accuracy(correct: i32, tokens: i32) -> HeadOutput {
    output(0.0, correct, tokens)
}

#[track_caller]
fn close(value: f64, expected: f64) {
    assert!((value - expected).abs() < 1e-5 * expected.abs(), "{value}, expected {expected}");
}

#[test]
fn the_sums_are_those_of_the_counted_tokens() {
    let device = cpu().autodiff();
    device.seed(3);
    let adaptive = HeadConfig::mos(5, 4, VOCAB, 2).with_adaptive(AdaptiveConfig::new(vec![2, 4]));
    the_sums_of(head(&device), &device);
    the_sums_of(adaptive.init(&device), &device);
}

fn the_sums_of(head: OutputHead, device: &Device) {
    let (hidden, targets) = (hidden(device), targets(device));
    // The words that are not ignored, from the rows of log-probabilities.
    let rows: Vec<f64> = head.forward(hidden.clone()).into_data().iter().collect();
    let words: Vec<i64> = targets.to_data().iter().collect();
    let counted: Vec<(&[f64], usize)> = rows
        .chunks(VOCAB)
        .zip(words)
        .filter(|(_, word)| *word >= 0)
        .map(|(row, word)| (row, word as usize))
        .collect();
    let nll: f64 = counted.iter().map(|(row, word)| -row[*word]).sum();
    let is_best = |(row, word): &&(&[f64], usize)| row.iter().all(|other| *other <= row[*word]);
    let correct = counted.iter().filter(is_best).count();

    let smooth = options().with_label_smoothing(0.3);
    for options in [options(), smooth] {
        let output =
            HeadOutput::new(head.loss_with(hidden.clone(), targets.clone(), &options), targets.clone());
        close(output.nll.clone().into_scalar(), nll);
        assert_eq!(output.tokens.clone().into_scalar::<i64>(), 4);
        assert_eq!(output.correct.clone().into_scalar::<i64>(), correct as i64);
        // The loss is still there to be differentiated; what metrics read is outside of autodiff.
        drop(output.loss.backward());
        let output = output.sync().unwrap();
        assert!(!output.loss.is_autodiff() && !output.nll.is_autodiff() && !output.tokens.is_autodiff());
    }
}

#[test]
fn a_target_that_is_the_likeliest_word_is_correct() {
    let device = cpu();
    device.seed(4);
    let (head, hidden) = (head(&device), hidden(&device));
    let best = head.top_k(hidden.clone(), 1).words.squeeze_dim::<2>(2);
    let output = HeadOutput::new(head.loss_with(hidden.clone(), best.clone(), &options()), best.clone());
    assert_eq!(output.correct.into_scalar::<i64>(), 8);
    let others = best.add_scalar(1).remainder_scalar(VOCAB as i64);
    let output = HeadOutput::new(head.loss_with(hidden, others.clone(), &options()), others);
    assert_eq!(output.correct.into_scalar::<i64>(), 0);
}

#[test]
fn a_batch_without_counted_tokens_has_sums_of_zero() {
    let device = cpu();
    let (head, none) = (head(&device), Tensor::<2, Int>::full([2, 4], -100, &device));
    let output = HeadOutput::new(head.loss_with(hidden(&device), none.clone(), &options()), none);
    assert_eq!((output.nll.into_scalar::<f64>(), output.correct.into_scalar::<i64>()), (0.0, 0));
    assert_eq!(output.tokens.into_scalar::<i64>(), 0);
}

#[test]
#[should_panic(expected = "HeadOutput::new: targets has shape [4, 2], expected [2, 4]")]
fn a_loss_that_does_not_fit_is_refused() {
    let device = cpu();
    let (head, targets) = (head(&device), targets(&device));
    HeadOutput::new(head.loss_with(hidden(&device), targets.clone(), &options()), targets.transpose());
}

#[test]
#[should_panic(expected = "HeadOutput::new: the loss needs `LossOptions::with_statistics(true)`")]
fn a_loss_without_statistics_panics() {
    let device = cpu();
    let targets = targets(&device);
    let options = LossOptions::new().with_ignore_index(-100);
    HeadOutput::new(head(&device).loss_with(hidden(&device), targets.clone(), &options), targets);
}

#[test]
fn the_perplexity_of_an_epoch_weighs_tokens_alike() {
    let mut metric = TokenMetric::perplexity();
    // Means of 1 and of 3 nats.
    metric.update(&perplexity(6.0, 6), &metadata()).unwrap();
    let entry = metric.update(&perplexity(6.0, 2), &metadata()).unwrap();
    close(metric.value().unwrap().current(), 3f64.exp());
    close(metric.running_value().unwrap().current(), 1.5f64.exp());
    let Some(NumericEntry::Aggregated { count, .. }) = metric.running_value() else { panic!() };
    assert_eq!(count, 8);
    assert_eq!(entry.formatted, "epoch 4.48 - batch 20.09");
    let logged = NumericEntry::deserialize(&entry.serialized).unwrap();
    assert!(matches!(logged, NumericEntry::Aggregated { count: 2, .. }), "{logged:?}");

    let entry = metric.compute().unwrap();
    let logged = NumericEntry::deserialize(&entry.serialized).unwrap();
    assert!(matches!(logged, NumericEntry::Final(_)), "{logged:?}");
    close(logged.current(), 1.5f64.exp());
    close(metric.final_value().current(), 1.5f64.exp());

    metric.clear();
    assert!(metric.value().is_none() && metric.running_value().is_none());
    metric.update(&perplexity(2.0, 1), &metadata()).unwrap();
    close(metric.final_value().current(), 2f64.exp());
}

#[test]
fn the_accuracy_of_an_epoch_weighs_tokens_alike() {
    let mut metric = TokenMetric::accuracy();
    metric.update(&accuracy(3, 4), &metadata()).unwrap();
    let entry = metric.update(&accuracy(0, 1), &metadata()).unwrap();
    assert_eq!(entry.formatted, "epoch 60.00 % - batch 0.00e0 %");
    close(metric.running_value().unwrap().current(), 60.0);
    close(metric.final_value().current(), 60.0);
    let MetricAttributes::Numeric(attributes) = metric.attributes() else { panic!() };
    assert!(attributes.higher_is_better && attributes.unit.as_deref() == Some("%"));
}

#[test]
fn a_batch_without_counted_tokens_changes_nothing() {
    let mut metric = TokenMetric::perplexity();
    assert!(metric.compute().unwrap().is_not_available());
    // 0/0 must not reach the epoch's sums, nor a NaN that nothing counts.
    assert!(metric.update(&perplexity(f32::NAN, 0), &metadata()).unwrap().is_not_available());
    metric.update(&perplexity(2.0, 2), &metadata()).unwrap();
    assert!(metric.update(&perplexity(0.0, 0), &metadata()).unwrap().is_not_available());
    assert!(metric.value().is_none());
    close(metric.final_value().current(), 1f64.exp());
}

#[test]
fn burns_own_loss_metric_reads_the_loss() {
    let device = cpu();
    device.seed(5);
    let (head, targets) = (head(&device), targets(&device));
    let output = HeadOutput::new(head.loss_with(hidden(&device), targets.clone(), &options()), targets);
    let mut metric = LossMetric::new();
    let input: LossInput = output.adapt();
    metric.update(&input, &metadata()).unwrap();
    // The mean of four tokens.
    close(metric.value().unwrap().current(), output.nll.into_scalar::<f64>() / 4.0);
}
