//! Perplexity and accuracy, from sums over an epoch's tokens.

use std::sync::Arc;

use burn::tensor::TensorReadError;
use burn::train::metric::{
    Metric, MetricAttributes, MetricMetadata, MetricName, Numeric, NumericAttributes, NumericEntry,
    SerializedEntry, format_float,
};

use super::output::HeadOutput;

/// Digits after the decimal point of a value that is shown.
const DIGITS: usize = 2;

/// The perplexity or the accuracy of the counted tokens: of the last batch, and of an epoch.
///
/// Over all counted tokens of an epoch alike. The mean of the batches' perplexities would be larger. For an output type other than
/// [`HeadOutput`], implement `Adaptor<HeadOutput>`.
#[derive(Debug, Clone)]
pub struct TokenMetric {
    kind: Kind,
    batch: Sums,
    epoch: Sums,
}

#[derive(Debug, Clone, Copy, PartialEq)]
// The names are those of the metrics.
enum Kind {
    Perplexity,
    Accuracy,
}

#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    sum: f64,
    tokens: usize,
}

impl TokenMetric {
    /// `ppl = exp( Σ_n nll_n / N )` over the N counted tokens.
    pub fn perplexity() -> Self {
        Self { kind: Kind::Perplexity, batch: Sums::default(), epoch: Sums::default() }
    }

    /// The share of counted tokens whose target is the most probable word, in percent.
    pub fn accuracy() -> Self {
        Self { kind: Kind::Accuracy, ..Self::perplexity() }
    }

    fn unit(&self) -> Option<String> {
        (self.kind == Kind::Accuracy).then(|| "%".into())
    }

    /// NaN without tokens.
    fn of(&self, sums: Sums) -> f64 {
        let mean = sums.sum / sums.tokens as f64;
        match self.kind {
            Kind::Perplexity => mean.exp(),
            Kind::Accuracy => 100.0 * mean,
        }
    }

    /// None without tokens.
    fn aggregated(&self, sums: Sums) -> Option<NumericEntry> {
        let entry = NumericEntry::Aggregated { aggregated_value: self.of(sums), count: sums.tokens };
        (sums.tokens > 0).then_some(entry)
    }

    /// What is shown and what is logged, in the form of Burn's own metrics.
    fn entry(&self, logged: Option<NumericEntry>) -> SerializedEntry {
        let unit = self.unit();
        let Some(logged) = logged else { return SerializedEntry::not_available(unit.as_deref()) };
        let unit = unit.map(|unit| format!(" {unit}")).unwrap_or_default();
        let shown = |sums| match self.aggregated(sums) {
            Some(entry) => format_float(entry.current(), DIGITS) + &unit,
            None => SerializedEntry::NOT_AVAILABLE.to_string() + &unit,
        };
        let formatted = format!("epoch {} - batch {}", shown(self.epoch), shown(self.batch));
        SerializedEntry::new(formatted, logged.serialize())
    }
}

impl Metric for TokenMetric {
    type Input = HeadOutput;

    fn name(&self) -> MetricName {
        Arc::new(format!("{:?}", self.kind))
    }

    fn attributes(&self) -> MetricAttributes {
        let higher_is_better = self.kind == Kind::Accuracy;
        NumericAttributes { unit: self.unit(), higher_is_better }.into()
    }

    /// A batch without tokens adds nothing, whatever its sum.
    fn update(
        &mut self,
        output: &HeadOutput,
        _: &MetricMetadata,
    ) -> Result<SerializedEntry, TensorReadError> {
        let sum = match self.kind {
            Kind::Perplexity => output.nll.clone().try_into_scalar()?,
            Kind::Accuracy => output.correct.clone().try_into_scalar::<i64>()? as f64,
        };
        let tokens = output.tokens.clone().try_into_scalar::<i64>()? as usize;
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

impl Numeric for TokenMetric {
    fn value(&self) -> Option<NumericEntry> {
        self.aggregated(self.batch)
    }

    fn running_value(&self) -> Option<NumericEntry> {
        self.aggregated(self.epoch)
    }

    fn final_value(&self) -> NumericEntry {
        NumericEntry::Final(self.of(self.epoch))
    }
}
