//! From hidden states to the inputs of the likelihood.

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::Tensor;
use highrank_kernels::Floats;

use super::output::OutputHead;
use crate::checks::TensorChecks;
use crate::context::{ContextPath, Contexts, Tokens};
use crate::error::{HeadError, expect_shape};
use crate::likelihood::{self, default_memory_budget, memory_budget, portable};
use crate::loss::{check_hidden, is_cpu};
use crate::ops::{LikelihoodInput, MASKING_BIAS, Prediction};

impl OutputHead {
    /// Checks that parameters, settings and hidden states fit each other.
    pub(crate) fn check<const D: usize>(&self, hidden: &Tensor<D>) -> Result<TensorChecks, HeadError> {
        let checks = self.decoder.checks()?;
        self.decoder.check(&checks)?;
        self.context.check(self.decoder.d_embedding, &checks)?;
        self.logit_map.check(&checks)?;
        if let Some(clusters) = &self.clusters {
            clusters.check(self.d_hidden(), &checks)?;
        }
        checks.scale("temperature", self.temperature)?;
        if let Some(mask) = &self.latent_mask {
            checks.floats("the latent mask", mask)?;
        }
        check_hidden(hidden, self.d_hidden(), &checks)?;
        if let Some(mask) = self.latent_mask.as_ref().filter(|_| self.context.latent_dropout().is_some()) {
            let (dims, [_, features]) = (hidden.dims(), mask.dims());
            let sequences = self.context.sequences(&dims[..D - 1]);
            let because = format!("a row for each sequence of hidden states {dims:?}");
            expect_shape("the latent mask", &mask.dims(), &[sequences, features], &because)?;
        }
        Ok(checks)
    }

    /// The likelihood's inputs for checked tokens, and `log π` of their latent contexts, `[N, K]`, where there are any.
    pub(crate) fn likelihood_input(
        &self,
        tokens: Tokens,
        path: ContextPath,
    ) -> Result<(LikelihoodInput, Option<Tensor<2>>), HeadError> {
        let weight = self.decoder.matrix()?;
        let default_budget = match path {
            ContextPath::Composed => default_memory_budget(&weight),
            ContextPath::Native => memory_budget(&weight),
        };
        let tokens = tokens.with_latent_mask(self.latent_mask.clone());
        let Contexts { contexts, log_prior, component_log_prior } =
            self.context.of_tokens(tokens, self.precision, path);
        let input = LikelihoodInput {
            contexts,
            log_prior,
            bias: self.decoder.masked_bias()?.map(Floats::from),
            weight: weight.into(),
            map: self.logit_map.function(),
            map_params: self.logit_map.packed_params().map(Floats::from),
            temperature: self.temperature,
            chunk_bytes: self.memory_budget.unwrap_or(default_budget),
            precision: self.precision,
        };
        Ok((input, component_log_prior.map(Floats::tensor)))
    }

    /// The bias with −∞ for masked rows.
    pub(crate) fn bias(&self) -> Result<Option<Tensor<1>>, HeadError> {
        self.decoder.masked_bias()
    }

    /// The rows of `W` whose words have probability 0, in ascending order: masked words, by the head's mask or a bias of −∞,
    /// and the padding. Reads the bias back from the device.
    pub(crate) fn masked_rows(&self) -> Result<Vec<usize>, HeadError> {
        let Some(bias) = self.bias()? else { return Ok(vec![]) };
        let bias = bias.detach().into_data();
        let rows = bias.iter::<f64>().enumerate();
        Ok(rows.filter(|(_, bias)| *bias <= MASKING_BIAS).map(|(row, _)| row).collect())
    }

    /// `H`.
    fn d_hidden(&self) -> usize {
        self.context.d_hidden().unwrap_or(self.decoder.d_embedding)
    }

    /// Whether the hidden states or anything that the head reads is tracked by autodiff.
    fn is_tracked<const D: usize>(&self, hidden: &Tensor<D>) -> bool {
        struct Tracked(bool);
        impl ModuleVisitor for Tracked {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                self.0 |= param.val().is_tracked();
            }
        }
        let mut tracked = Tracked(hidden.is_tracked());
        self.visit(&mut tracked);
        tracked.0
    }

    /// The inputs of predictions that are differentiable where a tensor is tracked: then they are composed of Burn's operations.
    /// So they are on a GPU, which has no others for predictions.
    pub(super) fn differentiable<const D: usize>(&self, hidden: Tensor<D>) -> Result<Inputs, HeadError> {
        self.inputs(hidden, true)
    }

    /// The inputs of predictions that are constants.
    pub(super) fn constant<const D: usize>(&self, hidden: Tensor<D>) -> Result<Inputs, HeadError> {
        self.inputs(hidden, false)
    }

    fn inputs<const D: usize>(&self, hidden: Tensor<D>, differentiable: bool) -> Result<Inputs, HeadError> {
        self.check(&hidden)?;
        let native = is_cpu(&hidden.device()) && !(differentiable && self.is_tracked(&hidden));
        let path = if native { ContextPath::Native } else { ContextPath::Composed };
        let (input, _) = self.likelihood_input(Tokens::all(hidden), path)?;
        Ok(Inputs { input, native })
    }
}

const TENSOR: &str = "a tensor was asked for";

/// The likelihood's inputs for a prediction.
pub(crate) struct Inputs {
    pub(super) input: LikelihoodInput,
    /// Whether the device's own operations predict, through which no gradient flows.
    pub(super) native: bool,
}

impl Inputs {
    /// Of a likelihood's inputs, by the device's own operations where it has any.
    pub(crate) fn of(input: LikelihoodInput) -> Self {
        Self { input, native: true }
    }

    /// The same tokens in runs that fit the memory budget.
    pub(super) fn into_chunks(self) -> impl Iterator<Item = Self> {
        let native = self.native;
        self.input.into_chunks().map(move |input| Self { input, native })
    }

    /// `[N, V]`
    pub(super) fn log_probs(self) -> Floats {
        self.predict(Prediction::LogProbs).expect(TENSOR)
    }

    /// `[N·K, V]`
    pub(super) fn logits(self) -> Floats {
        self.predict(Prediction::Logits).expect(TENSOR)
    }

    /// What is predicted of every token; a tensor, if one was asked for.
    pub(super) fn predict(self, prediction: Prediction<'_>) -> Option<Floats> {
        match self.native {
            true => likelihood::predict(self.input, prediction),
            false => portable::predict(&self.input, prediction),
        }
    }
}

pub(super) fn with_last<const D: usize>(mut dims: [usize; D], last: usize) -> [usize; D] {
    dims[D - 1] = last;
    dims
}
