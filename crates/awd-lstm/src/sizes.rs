//! Models of equal numbers of parameters.

use runs::error::{Error, check};

use crate::ModelConfig;

/// Whether the size of the last LSTM is solved for with the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastLstm {
    /// It goes with the size that is solved for, as far as it depends on it.
    Free,
    /// It stays as it is.
    Given,
}

/// `base` with the embedding size that brings its number of parameters nearest to `budget`.
///
/// The embedding bounds the rank of a head without mixture, so it is what such a head would spend its share on. The last LSTM of
/// such a head goes with it, unless it is given, which only an untied head allows. A mixture of more components, or of a wider
/// last LSTM, gets a narrower embedding: the papers' trade of d for K.
///
/// # Errors
/// If even an embedding of size 1 is too much, or the budget is more than [`ModelConfig::MAX_PARAMETERS`].
pub fn matching(base: &ModelConfig, budget: usize, last_lstm: LastLstm) -> Result<ModelConfig, Error> {
    let of_size = |size: usize| {
        let mut model = ModelConfig { d_embedding: size, ..base.clone() };
        let goes_along = !model.head.has_contexts() && last_lstm == LastLstm::Free;
        if let (true, Some(last)) = (goes_along, model.lstm_sizes.last_mut()) {
            *last = size;
        }
        model
    };
    nearest(budget, "an embedding", of_size)
}

/// `base` with the LSTM sizes that bring its number of parameters nearest to `budget`, for a given embedding.
///
/// The sizes keep the proportions that they have in `base`, as nearly as whole numbers allow. The last LSTM stays if it is given,
/// and that of a head without mixture does anyway: it is as wide as the embedding, unless the head is untied.
///
/// # Errors
/// If the head has no LSTM besides that one, if even a first LSTM of size 1 is too much, or the budget is more than
/// [`ModelConfig::MAX_PARAMETERS`].
pub fn matching_lstm(base: &ModelConfig, budget: usize, last_lstm: LastLstm) -> Result<ModelConfig, Error> {
    let (head, layers) = (base.head, base.lstm_sizes.len());
    let all = head.has_contexts() && last_lstm == LastLstm::Free;
    let free = if all { layers } else { layers.saturating_sub(1) };
    if free == 0 {
        let why = if head.has_contexts() { "given" } else { "as wide as the embedding" };
        let reason = format!(
            "the {head} head has no size left to solve for: its only LSTM is {why}; leave the width of the embedding or of the \
             last LSTM out, or give more LSTM layers"
        );
        return Err(Error::Size { parameters: budget, reason });
    }
    let sizes = &base.lstm_sizes;
    check(!sizes.contains(&0), "lstm_sizes", format!("{sizes:?}"), "without zeros")?;
    let of_size = |size: usize| {
        let mut model = base.clone();
        let first = sizes[0] as u128;
        for (layer, base) in model.lstm_sizes[..free].iter_mut().zip(sizes) {
            let scaled = (*base as u128 * size as u128 + first / 2) / first;
            *layer = usize::try_from(scaled.max(1)).unwrap_or(usize::MAX);
        }
        model
    };
    nearest(budget, "a first LSTM", of_size)
}

/// The model of the size that brings its number of parameters, which grows with it, nearest to `budget`. `what` has that size.
fn nearest(budget: usize, what: &str, of_size: impl Fn(usize) -> ModelConfig) -> Result<ModelConfig, Error> {
    check(budget <= ModelConfig::MAX_PARAMETERS, "parameters", budget, "at most 2^40")?;
    let parameters = |size| of_size(size).num_params();
    if parameters(1) > budget {
        let (head, least) = (of_size(1).head, parameters(1));
        let reason = format!(
            "the {head} head has {least} with {what} of size 1 already; give more, or fewer knots, components or LSTM units"
        );
        return Err(Error::Size { parameters: budget, reason });
    }
    // The largest size within the budget.
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
    use crate::{HeadKind, Preset};

    #[test]
    fn every_head_meets_the_papers_budgets_to_within_half_a_percent() {
        for preset in Preset::ALL {
            let budget = preset.model(HeadKind::Mos, 10_000).num_params();
            for &head in HeadKind::ALL {
                let base = preset.model(head, 10_000);
                // A million knots are more than the small model has left.
                let model = matching(&base, budget, LastLstm::Free).unwrap();
                model.validate().unwrap();
                let off = model.num_params() as f64 / budget as f64 - 1.0;
                assert!(off.abs() < 0.005, "{preset} {head}: {off}");
                let inner = base.lstm_sizes.len() - 1;
                assert_eq!(model.lstm_sizes[..inner], base.lstm_sizes[..inner]);
            }
            let mos = matching(&preset.model(HeadKind::Mos, 10_000), budget, LastLstm::Free).unwrap();
            assert_eq!(mos, preset.model(HeadKind::Mos, 10_000));
        }
    }

    #[test]
    fn the_nearest_size_is_taken() {
        let base = Preset::Small.model(HeadKind::Softmax, 500);
        for budget in [300_000, 301_234, 777_777] {
            let model = matching(&base, budget, LastLstm::Free).unwrap();
            let off = |model: &ModelConfig| model.num_params().abs_diff(budget);
            for size in [model.d_embedding - 1, model.d_embedding + 1] {
                let other = ModelConfig { d_embedding: size, lstm_sizes: vec![256, size], ..base.clone() };
                assert!(off(&model) <= off(&other), "{budget}: {} against {size}", model.d_embedding);
            }
        }
        matching(&base, ModelConfig::MAX_PARAMETERS, LastLstm::Free).unwrap();
        for budget in [ModelConfig::MAX_PARAMETERS + 1, usize::MAX] {
            let message = matching(&base, budget, LastLstm::Free).unwrap_err().to_string();
            assert!(message.ends_with("but must be at most 2^40"), "{message}");
        }
        let message = matching(&base, 1000, LastLstm::Free).unwrap_err().to_string();
        assert!(message.contains("parameters is 1000, but the softmax head has"), "{message}");
    }

    #[test]
    fn a_given_last_lstm_stays() {
        let base = |head| ModelConfig { lstm_sizes: vec![40, 30, 50], ..Preset::Small.model(head, 500) };
        let off = |model: &ModelConfig| (model.num_params() as f64 / 100_000.0 - 1.0).abs();
        let wide = matching(&base(HeadKind::Mos), 100_000, LastLstm::Given).unwrap();
        let narrow = ModelConfig { lstm_sizes: vec![40, 30, 20], ..base(HeadKind::Mos) };
        let narrow = matching(&narrow, 100_000, LastLstm::Given).unwrap();
        assert!(off(&wide) < 0.005 && off(&narrow) < 0.005 && wide.d_embedding < narrow.d_embedding);
        assert_eq!((wide.lstm_sizes, narrow.lstm_sizes), (vec![40, 30, 50], vec![40, 30, 20]));
        let untied = ModelConfig { tied: false, ..base(HeadKind::Softmax) };
        let untied = matching(&untied, 100_000, LastLstm::Given).unwrap();
        assert!(off(&untied) < 0.01 && untied.lstm_sizes == [40, 30, 50] && untied.d_embedding != 50);

        let given = ModelConfig { d_embedding: 10, ..base(HeadKind::Mos) };
        let inner = matching_lstm(&given, 100_000, LastLstm::Given).unwrap();
        assert!(off(&inner) < 0.01 && inner.lstm_sizes[2] == 50 && inner.lstm_sizes[0] > 40);
        assert_eq!(inner.lstm_sizes[1], (inner.lstm_sizes[0] * 3 + 2) / 4);
        let one = ModelConfig { lstm_sizes: vec![50], ..given };
        let message = matching_lstm(&one, 100_000, LastLstm::Given).unwrap_err().to_string();
        assert!(message.contains("its only LSTM is given"), "{message}");
    }

    #[test]
    fn lstms_are_solved_for_where_the_embedding_is_given() {
        for head in [HeadKind::Softmax, HeadKind::Mos] {
            let mut base = Preset::Paper.model(head, 1000);
            for d in [16, 64, 256] {
                base.d_embedding = d;
                if head == HeadKind::Softmax {
                    base.lstm_sizes[2] = d;
                }
                let model = matching_lstm(&base, 5_000_000, LastLstm::Free).unwrap();
                model.validate().unwrap();
                let off = model.num_params() as f64 / 5e6 - 1.0;
                assert!(off.abs() < 0.005, "{head}, d {d}: {off}");
                assert_eq!((model.d_embedding, model.lstm_sizes[0]), (d, model.lstm_sizes[1]));
                let last = if head == HeadKind::Mos { model.lstm_sizes[0] * 620 / 960 } else { d };
                assert!(model.lstm_sizes[2].abs_diff(last) <= 1, "{:?}", model.lstm_sizes);
            }
        }
        let one = ModelConfig {
            lstm_sizes: vec![64],
            d_embedding: 64,
            ..Preset::Small.model(HeadKind::Softmax, 500)
        };
        let message = matching_lstm(&one, 100_000, LastLstm::Free).unwrap_err().to_string();
        assert!(message.contains("but the softmax head has no size left to solve for"), "{message}");
        let zero = ModelConfig { lstm_sizes: vec![0, 64], ..one.clone() };
        assert!(
            matching_lstm(&zero, 100_000, LastLstm::Free).unwrap_err().to_string().contains("without zeros")
        );
        let wide = ModelConfig { lstm_sizes: vec![8, 64], ..one };
        let message = matching_lstm(&wide, 1000, LastLstm::Free).unwrap_err().to_string();
        assert!(message.contains("with a first LSTM of size 1 already"), "{message}");
    }
}
