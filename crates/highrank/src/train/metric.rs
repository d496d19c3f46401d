//! A metric of Burn over sums of tokens.

use std::marker::PhantomData;
use std::sync::Arc;

use burn::tensor::TensorReadError;
use burn::train::metric::{
    Metric, MetricAttributes, MetricMetadata, MetricName, Numeric, NumericAttributes, NumericEntry,
    SerializedEntry,
};

use super::token_mean::TokenMean;

/// A function of the mean of something over an epoch's tokens; the input type says of what.
#[derive(Debug, Clone)]
pub struct TokenMetric<I> {
    mean: TokenMean,
    input: PhantomData<fn(&I)>,
}

/// What a [`TokenMetric`] is a metric of.
pub trait TokenSums: 'static {
    /// The metric's name.
    const NAME: &'static str;
    /// The unit of its values.
    const UNIT: Option<&'static str>;
    /// Whether larger values are better.
    const HIGHER_IS_BETTER: bool;

    /// The metric's value from the mean over the tokens.
    fn value(mean: f64) -> f64;

    /// The sum over a batch's tokens, and their number.
    ///
    /// # Errors
    /// A tensor that cannot be read.
    fn read(&self) -> Result<(f64, usize), TensorReadError>;
}

impl<I: TokenSums> TokenMetric<I> {
    /// Creates the metric.
    pub fn new() -> Self {
        Self { mean: TokenMean::new(I::value, I::UNIT), input: PhantomData }
    }
}

impl<I: TokenSums> Default for TokenMetric<I> {
    fn default() -> Self {
        Self::new()
    }
}

impl<I: TokenSums + Clone> Metric for TokenMetric<I> {
    type Input = I;

    fn name(&self) -> MetricName {
        Arc::new(I::NAME.into())
    }

    fn attributes(&self) -> MetricAttributes {
        NumericAttributes { unit: I::UNIT.map(str::to_string), higher_is_better: I::HIGHER_IS_BETTER }.into()
    }

    fn update(&mut self, input: &I, _metadata: &MetricMetadata) -> Result<SerializedEntry, TensorReadError> {
        let (sum, tokens) = input.read()?;
        Ok(self.mean.update(sum, tokens))
    }

    fn compute(&mut self) -> Result<SerializedEntry, TensorReadError> {
        Ok(self.mean.close())
    }

    fn clear(&mut self) {
        self.mean.reset();
    }
}

impl<I> Numeric for TokenMetric<I> {
    fn value(&self) -> Option<NumericEntry> {
        self.mean.batch_value()
    }

    fn running_value(&self) -> Option<NumericEntry> {
        self.mean.epoch_value()
    }

    fn final_value(&self) -> NumericEntry {
        self.mean.final_value()
    }
}
