//! Models of equal numbers of parameters.

use awd_lstm::ModelConfig;
use awd_lstm::error::check;

use crate::failure::Failure;

/// `base` with the embedding size that brings its number of parameters nearest to `budget`.
///
/// The embedding bounds the rank of a head without mixture, so it is what such a head would spend its share on. The last LSTM of
/// such a head goes with it.
///
/// # Errors
/// If even an embedding of size 1 is too much, or the budget is more than [`ModelConfig::MAX_PARAMETERS`].
pub fn matching(base: &ModelConfig, budget: usize) -> Result<ModelConfig, Failure> {
    check(budget <= ModelConfig::MAX_PARAMETERS, "parameters", budget, "at most 2^40")?;
    let of_size = |size: usize| {
        let mut model = ModelConfig { d_embedding: size, ..base.clone() };
        if let (false, Some(last)) = (model.head.is_mixture(), model.lstm_sizes.last_mut()) {
            *last = size;
        }
        model
    };
    let parameters = |size| of_size(size).num_params();
    if parameters(1) > budget {
        let (head, least) = (base.head, parameters(1));
        return Err(format!(
            "parameters is {budget}, but the {head} head has {least} with an embedding of size 1 already; \
             give more, or fewer knots, components or LSTM units"
        )
        .into());
    }
    // The largest size within the budget, of sizes whose numbers of parameters grow.
    let (mut within, mut beyond) = (1, 2);
    while parameters(beyond) <= budget {
        (within, beyond) = (beyond, beyond * 2);
    }
    while beyond - within > 1 {
        let middle = within + (beyond - within) / 2;
        if parameters(middle) <= budget { within = middle } else { beyond = middle }
    }
    let nearest = if parameters(beyond) - budget < budget - parameters(within) { beyond } else { within };
    Ok(of_size(nearest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use awd_lstm::{HeadKind, Preset};

    #[test]
    fn every_head_meets_the_papers_budgets_to_within_half_a_percent() {
        for preset in Preset::ALL {
            let budget = preset.model(HeadKind::Mos, 10_000).num_params();
            for &head in HeadKind::ALL {
                let base = preset.model(head, 10_000);
                // A million knots are more than the small model has left.
                let model = matching(&base, budget).unwrap();
                model.validate().unwrap();
                let off = model.num_params() as f64 / budget as f64 - 1.0;
                assert!(off.abs() < 0.005, "{preset} {head}: {off}");
                let inner = base.lstm_sizes.len() - 1;
                assert_eq!(model.lstm_sizes[..inner], base.lstm_sizes[..inner]);
            }
            let mos = matching(&preset.model(HeadKind::Mos, 10_000), budget).unwrap();
            assert_eq!(mos, preset.model(HeadKind::Mos, 10_000));
        }
    }

    #[test]
    fn the_nearest_size_is_taken() {
        let base = Preset::Small.model(HeadKind::Softmax, 500);
        for budget in [300_000, 301_234, 777_777] {
            let model = matching(&base, budget).unwrap();
            let off = |model: &ModelConfig| model.num_params().abs_diff(budget);
            for size in [model.d_embedding - 1, model.d_embedding + 1] {
                let other = ModelConfig { d_embedding: size, lstm_sizes: vec![256, size], ..base.clone() };
                assert!(off(&model) <= off(&other), "{budget}: {} against {size}", model.d_embedding);
            }
        }
        matching(&base, ModelConfig::MAX_PARAMETERS).unwrap();
        for budget in [ModelConfig::MAX_PARAMETERS + 1, usize::MAX] {
            let message = matching(&base, budget).unwrap_err().to_string();
            assert!(message.ends_with("but must be at most 2^40"), "{message}");
        }
        let message = matching(&base, 1000).unwrap_err().to_string();
        assert!(message.contains("parameters is 1000, but the softmax head has"), "{message}");
    }
}
