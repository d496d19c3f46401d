//! Perplexity and accuracy, from sums over an epoch's tokens.

use std::marker::PhantomData;
use std::sync::Arc;

use burn::tensor::TensorReadError;
use burn::train::metric::{
    Metric, MetricAttributes, MetricMetadata, MetricName, Numeric, NumericAttributes, NumericEntry,
    SerializedEntry, format_float,
};

use super::output::HeadOutput;

/// Digits after the decimal point of a value that is shown.
const DIGITS: usize = 2;

/// The perplexity of the counted tokens.
///
/// ```text
/// ppl = exp( Σ_n nll_n / N )
/// ```
///
/// over all N counted tokens of an epoch, not the mean of the batches' perplexities, which is larger. For an output type other
/// than [`HeadOutput`], implement `Adaptor<HeadOutput>`.
pub type PerplexityMetric = TokenMetric<Perplexity>;

/// The share of counted tokens whose target is the most probable word, in percent.
///
/// Over all counted tokens of an epoch. For an output type other than [`HeadOutput`], implement `Adaptor<HeadOutput>`.
pub type AccuracyMetric = TokenMetric<Accuracy>;

/// A function of the mean of something over tokens, `K` says of what: of the last batch, and of an epoch.
#[derive(Debug, Clone)]
pub struct TokenMetric<K> {
    batch: Sums,
    epoch: Sums,
    kind: PhantomData<fn(&K)>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    sum: f64,
    tokens: usize,
}

/// What a [`TokenMetric`] is a metric of.
pub trait MeanOfTokens: 'static {
    /// The metric's name.
    const NAME: &'static str;
    /// The unit of its values.
    const UNIT: Option<&'static str>;
    /// Whether larger values are better.
    const HIGHER_IS_BETTER: bool;

    /// The metric's value from the mean over the tokens.
    fn value(mean: f64) -> f64;

    /// The sum over a batch's tokens.
    ///
    /// # Errors
    /// A tensor that cannot be read.
    fn sum(output: &HeadOutput) -> Result<f64, TensorReadError>;
}

/// Of a [`PerplexityMetric`]: the tokens' nll.
#[derive(Debug, Clone)]
pub struct Perplexity;

impl MeanOfTokens for Perplexity {
    const NAME: &'static str = "Perplexity";
    const UNIT: Option<&'static str> = None;
    const HIGHER_IS_BETTER: bool = false;

    fn value(mean: f64) -> f64 {
        mean.exp()
    }

    fn sum(output: &HeadOutput) -> Result<f64, TensorReadError> {
        output.nll.clone().try_into_scalar()
    }
}

/// Of an [`AccuracyMetric`]: whether the target is the most probable word.
#[derive(Debug, Clone)]
pub struct Accuracy;

impl MeanOfTokens for Accuracy {
    const NAME: &'static str = "Accuracy";
    const UNIT: Option<&'static str> = Some("%");
    const HIGHER_IS_BETTER: bool = true;

    fn value(mean: f64) -> f64 {
        100.0 * mean
    }

    fn sum(output: &HeadOutput) -> Result<f64, TensorReadError> {
        Ok(output.correct.clone().try_into_scalar::<i64>()? as f64)
    }
}

impl<K: MeanOfTokens> TokenMetric<K> {
    /// Creates the metric.
    pub fn new() -> Self {
        Self { batch: Sums::default(), epoch: Sums::default(), kind: PhantomData }
    }

    /// NaN without tokens.
    fn of(sums: Sums) -> f64 {
        K::value(sums.sum / sums.tokens as f64)
    }

    /// None without tokens.
    fn aggregated(sums: Sums) -> Option<NumericEntry> {
        let entry = NumericEntry::Aggregated { aggregated_value: Self::of(sums), count: sums.tokens };
        (sums.tokens > 0).then_some(entry)
    }

    /// What is shown and what is logged, in the form of Burn's own metrics.
    fn entry(&self, logged: Option<NumericEntry>) -> SerializedEntry {
        let Some(logged) = logged else { return SerializedEntry::not_available(K::UNIT) };
        let unit = K::UNIT.map(|unit| format!(" {unit}")).unwrap_or_default();
        let shown = |sums| match Self::aggregated(sums) {
            Some(entry) => format_float(entry.current(), DIGITS) + &unit,
            None => SerializedEntry::NOT_AVAILABLE.to_string() + &unit,
        };
        let formatted = format!("epoch {} - batch {}", shown(self.epoch), shown(self.batch));
        SerializedEntry::new(formatted, logged.serialize())
    }
}

impl<K: MeanOfTokens> Default for TokenMetric<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: MeanOfTokens + Clone> Metric for TokenMetric<K> {
    type Input = HeadOutput;

    fn name(&self) -> MetricName {
        Arc::new(K::NAME.into())
    }

    fn attributes(&self) -> MetricAttributes {
        NumericAttributes { unit: K::UNIT.map(str::to_string), higher_is_better: K::HIGHER_IS_BETTER }.into()
    }

    /// A batch without tokens adds nothing, whatever its sum.
    fn update(
        &mut self,
        output: &HeadOutput,
        _: &MetricMetadata,
    ) -> Result<SerializedEntry, TensorReadError> {
        let (sum, tokens) = (K::sum(output)?, output.tokens.clone().try_into_scalar::<i64>()? as usize);
        self.batch = if tokens == 0 { Sums::default() } else { Sums { sum, tokens } };
        self.epoch.sum += self.batch.sum;
        self.epoch.tokens += self.batch.tokens;
        Ok(self.entry(self.value()))
    }

    fn compute(&mut self) -> Result<SerializedEntry, TensorReadError> {
        Ok(self.entry((self.epoch.tokens > 0).then(|| self.final_value())))
    }

    fn clear(&mut self) {
        (self.batch, self.epoch) = Default::default();
    }
}

impl<K: MeanOfTokens> Numeric for TokenMetric<K> {
    fn value(&self) -> Option<NumericEntry> {
        Self::aggregated(self.batch)
    }

    fn running_value(&self) -> Option<NumericEntry> {
        Self::aggregated(self.epoch)
    }

    fn final_value(&self) -> NumericEntry {
        NumericEntry::Final(Self::of(self.epoch))
    }
}
