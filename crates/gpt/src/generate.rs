//! Text from a model: one token after the other, each drawn from the model's distribution of the next token.

use burn::tensor::{Int, Tensor, TensorData};
use highrank::Sampling;
use rand::Rng;
use runs::data::check_prompt;
use runs::error::Result;

use crate::model::Gpt;

impl Gpt {
    /// Draws the tokens that follow `prompt`, one after the other without end. A token is drawn when it is asked for, and
    /// sees as many tokens before it as the model's context holds.
    ///
    /// The same `rng` gives the same tokens on the same device. Dropout acts if the model is on an autodiff device: use
    /// `model.valid()`.
    ///
    /// # Errors
    /// [`InvalidSetting`](runs::Error::InvalidSetting) if the prompt is empty or holds an id outside of the vocabulary; [`Head`](runs::Error::Head) if a sampling option
    /// is out of range.
    ///
    /// # Panics
    /// If ranks share the vocabulary.
    pub fn draws<'a, R: Rng>(
        &'a self,
        prompt: &[u32],
        sampling: &'a Sampling,
        mut rng: R,
    ) -> Result<impl Iterator<Item = u32> + use<'a, R>> {
        assert!(self.words.share().is_none(), "draws: no rank has all words");
        sampling.validate()?;
        let head = self.head();
        check_prompt(prompt, head.vocab())?;
        let [context, _] = self.positions.weight.dims();
        let device = self.positions.weight.device();
        let mut tokens = prompt.to_vec();
        Ok(std::iter::from_fn(move || {
            let read = &tokens[tokens.len().saturating_sub(context)..];
            let ids: Vec<i32> = read.iter().map(|&id| id as i32).collect();
            let ids = Tensor::<2, Int>::from_data(TensorData::new(ids, [1, read.len()]), &device);
            let last = self.hidden(ids).narrow(1, read.len() - 1, 1);
            let word = head.sample::<3, 2>(last, sampling, &mut rng);
            let word = word.unwrap_or_else(|error| panic!("sample: {error}"));
            let word = word.into_data().iter::<i64>().next().expect("one token gives one word") as u32;
            tokens.push(word);
            Some(word)
        }))
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::GptConfig;
    use burn::tensor::Device;
    use highrank::HeadConfig;
    use highrank::shard::on_threads;
    use rand::SeedableRng;
    use rand_pcg::Pcg64Mcg;
    use runs::testing::alone;

    #[test]
    fn text_grows_beyond_the_context_and_the_seed_fixes_it() {
        alone(module_path!(), "text_grows_beyond_the_context_and_the_seed_fixes_it", || {
            let device = Device::flex();
            device.seed(5);
            let head = HeadConfig::mos(16, 12, 13, 2).with_tied(true);
            let mut model =
                GptConfig::new(16, head).with_layers(1).with_context(4).try_init(&device).unwrap();
            // With its first weights, a model gives all words about the same probability.
            model.embedding.weight = model.embedding.weight.map(|weight| weight * 40.0);
            let sampling = Sampling::new();
            let text = |seed| -> Vec<u32> {
                model.draws(&[1, 2], &sampling, Pcg64Mcg::seed_from_u64(seed)).unwrap().take(20).collect()
            };
            assert_eq!((text(3).len(), text(3)), (20, text(3)));
            assert_ne!(text(3), text(4));
            assert!(text(3).iter().all(|&word| word < 13));
            let refused = |prompt: &[u32]| {
                let refused = model.draws(prompt, &sampling, Pcg64Mcg::seed_from_u64(1)).err();
                refused.unwrap().to_string()
            };
            assert!(refused(&[]).contains("prompt is empty"));
            assert!(refused(&[13]).contains("token 13"));
        });
    }

    #[test]
    fn a_vocabulary_that_ranks_share_is_refused() {
        let config = GptConfig::new(8, HeadConfig::softmax(8, 13).with_tied(true)).with_layers(1);
        on_threads(2, |group| {
            let model = config.try_init_shared(group, &Device::flex()).unwrap();
            let refused = catch_unwind(AssertUnwindSafe(|| {
                drop(model.draws(&[1], &Sampling::new(), Pcg64Mcg::seed_from_u64(1)));
            }));
            assert_eq!(*refused.unwrap_err().downcast::<&str>().unwrap(), "draws: no rank has all words");
        });
    }
}
