//! A mean over the tokens of an epoch.

use burn::train::metric::{NumericEntry, SerializedEntry, format_float};

/// Digits after the decimal point of a value that is shown.
const DIGITS: usize = 2;

/// A function of the mean over tokens: of the last batch, and of all tokens since the last [`reset`](Self::reset).
#[derive(Debug, Clone)]
pub(super) struct TokenMean {
    /// From the mean to the value.
    value: fn(f64) -> f64,
    unit: Option<&'static str>,
    batch: Sums,
    epoch: Sums,
}

#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    sum: f64,
    tokens: usize,
}

impl TokenMean {
    pub(super) fn new(value: fn(f64) -> f64, unit: Option<&'static str>) -> Self {
        Self { value, unit, batch: Sums::default(), epoch: Sums::default() }
    }

    /// Adds a batch of `tokens` tokens with this sum. A batch without tokens adds nothing, whatever its sum.
    pub(super) fn update(&mut self, sum: f64, tokens: usize) -> SerializedEntry {
        self.batch = if tokens == 0 { Sums::default() } else { Sums { sum, tokens } };
        self.epoch.sum += self.batch.sum;
        self.epoch.tokens += self.batch.tokens;
        self.entry(self.batch_value())
    }

    /// The entry that closes an epoch.
    pub(super) fn close(&self) -> SerializedEntry {
        self.entry((self.epoch.tokens > 0).then(|| self.final_value()))
    }

    pub(super) fn reset(&mut self) {
        (self.batch, self.epoch) = Default::default();
    }

    /// The value of the last batch, if it had tokens.
    pub(super) fn batch_value(&self) -> Option<NumericEntry> {
        self.aggregated(self.batch)
    }

    /// The value of the epoch so far, if it had tokens.
    pub(super) fn epoch_value(&self) -> Option<NumericEntry> {
        self.aggregated(self.epoch)
    }

    /// The value of the epoch, NaN without tokens.
    pub(super) fn final_value(&self) -> NumericEntry {
        NumericEntry::Final(self.of(self.epoch))
    }

    fn aggregated(&self, sums: Sums) -> Option<NumericEntry> {
        let entry = NumericEntry::Aggregated { aggregated_value: self.of(sums), count: sums.tokens };
        (sums.tokens > 0).then_some(entry)
    }

    fn of(&self, sums: Sums) -> f64 {
        (self.value)(sums.sum / sums.tokens as f64)
    }

    /// What is shown and what is logged, in the form of Burn's own metrics.
    fn entry(&self, logged: Option<NumericEntry>) -> SerializedEntry {
        let Some(logged) = logged else { return SerializedEntry::not_available(self.unit) };
        let unit = self.unit.map(|unit| format!(" {unit}")).unwrap_or_default();
        let shown = |sums| match self.aggregated(sums) {
            Some(entry) => format_float(entry.current(), DIGITS) + &unit,
            None => SerializedEntry::NOT_AVAILABLE.to_string() + &unit,
        };
        let formatted = format!("epoch {} - batch {}", shown(self.epoch), shown(self.batch));
        SerializedEntry::new(formatted, logged.serialize())
    }
}
