//! Log-probabilities of given words and entropies of an adaptive head, by its losses and predictions.

use burn::tensor::{Bool, Int, Tensor, TensorData};

use super::parts::{AdaptiveHead, in_a_row};
use crate::error::HeadError;
use crate::loss::LossOptions;

impl AdaptiveHead<'_> {
    /// Log-probabilities `[N, m]` and, if asked for, entropies `[N, 1]`.
    pub(in crate::head) fn log_probs_of_words<const D: usize>(
        &self,
        hidden: Tensor<D>,
        words: Tensor<2, Int>,
        ignored: &[i64],
        entropy: bool,
    ) -> Result<(Tensor<2>, Option<Tensor<2>>), HeadError> {
        let [tokens, width] = words.dims();
        let unmasked = self.unmasked()?;
        let (device, of_all) = (words.device(), words.to_data().iter::<i64>().collect::<Vec<_>>());
        let is_ignored: Vec<bool> = of_all.iter().map(|word| ignored.contains(word)).collect();
        let is_masked =
            |word: &i64| usize::try_from(*word).is_ok_and(|word| unmasked.get(word) == Some(&false));
        let masked = of_all
            .iter()
            .zip(&is_ignored)
            .map(|(word, ignored)| !ignored && is_masked(word))
            .collect::<Vec<_>>();
        // Neither asks the losses for anything.
        const NOTHING: i64 = i32::MIN as i64;
        let asked = of_all.iter().zip(is_ignored.iter().zip(&masked));
        let asked: Vec<_> = asked
            .map(|(word, (ignored, masked))| if *ignored || *masked { NOTHING } else { *word })
            .collect();
        let of_column = LossOptions::new().with_ignore_index(NOTHING).with_per_token(true);
        let mut columns = vec![];
        for column in 0..width {
            let words: Vec<_> = asked.iter().skip(column).step_by(width).copied().collect();
            let words = Tensor::<1, Int>::from_data(words.as_slice(), &device);
            let made = self.loss_with(hidden.clone(), words, &of_column)?;
            columns.push(-made.per_token.expect("values of tokens are asked for").reshape([tokens, 1]));
        }
        let masked = Tensor::<2, Bool>::from_data(TensorData::new(masked, [tokens, width]), &device);
        let log_probs = Tensor::cat(columns, 1).mask_fill(masked, f64::NEG_INFINITY);
        let entropy = entropy.then(|| {
            let blank: Vec<bool> =
                is_ignored.chunks(width).map(|places| places.iter().all(|blank| *blank)).collect();
            let blank = Tensor::<2, Bool>::from_data(TensorData::new(blank, [tokens, 1]), &device);
            let rows = in_a_row(hidden.clone());
            let rows = rows.clone().mask_fill(blank.clone().expand(rows.dims()), 0.0);
            let log_probs =
                self.log_probs(rows.reshape(hidden.dims()))?.reshape([tokens, self.clusters.vocab()]);
            let counted = log_probs.clone().mask_fill(log_probs.is_inf(), 0.0);
            let terms = counted.clone() * counted.clone().exp();
            // e^0 times 0 of a masked word is 0.
            Ok::<_, HeadError>((-terms.sum_dim(1)).mask_fill(blank, 0.0))
        });
        Ok((log_probs, entropy.transpose()?))
    }
}
