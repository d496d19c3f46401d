//! Text from a model: one token after the other, each drawn from the model's distribution of the next token.

use burn::tensor::{Int, Tensor, TensorData};
use highrank::Sampling;
use rand::Rng;

use crate::model::LanguageModel;
use runs::data::check_prompt;
use runs::error::Result;

impl LanguageModel {
    /// Draws the tokens that follow `prompt`, one after the other without end. Those of the prompt are read first and not returned. A
    /// token is drawn when it is asked for.
    ///
    /// The same `rng` gives the same tokens on the same device. Dropout acts if the model is on an autodiff device: use
    /// `model.valid()`.
    ///
    /// # Errors
    /// [`InvalidSetting`](runs::Error::InvalidSetting) if the prompt is empty or holds an id outside of the vocabulary;
    /// [`Head`](runs::Error::Head) if a sampling option is out of range.
    ///
    /// # Panics
    /// If ranks share the vocabulary.
    pub fn draws<'a, R: Rng>(
        &'a self,
        prompt: &[u32],
        sampling: &'a Sampling,
        mut rng: R,
    ) -> Result<impl Iterator<Item = u32> + use<'a, R>> {
        assert!(self.vocabulary.share().is_none(), "draws: no rank has all words");
        sampling.validate()?;
        check_prompt(prompt, self.vocab())?;
        // What is read before the next draw, and the state before it.
        let (head, mut input, mut state) = (self.head(), prompt.to_vec(), self.zero_state(1));
        Ok(std::iter::from_fn(move || {
            let length = input.len();
            let ids: Vec<i32> = input.iter().map(|&id| id as i32).collect();
            let ids = Tensor::<2, Int>::from_data(TensorData::new(ids, [length, 1]), &self.device());
            let (hidden, after) = self.hidden(ids, state.clone());
            let word = head.sample::<3, 2>(hidden.narrow(0, length - 1, 1), sampling, &mut rng);
            let word = word.unwrap_or_else(|error| panic!("sample: {error}"));
            let word = word.into_data().iter::<i64>().next().expect("one token gives one word") as u32;
            (state, input) = (after, vec![word]);
            Some(word)
        }))
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::config::{HeadKind, ModelConfig};
    use burn::tensor::Device;
    use highrank::shard::on_threads;
    use rand::SeedableRng;
    use rand_pcg::Pcg64Mcg;

    fn model() -> LanguageModel {
        let config = ModelConfig { d_embedding: 6, components: 3, ..ModelConfig::tiny(HeadKind::Mos, 13) };
        Device::flex().seed(5);
        let mut model = config.try_init(&Device::flex()).unwrap();
        // With its first weights, a model gives all words about the same probability.
        model.embedding = model.embedding.map(|weight| weight * 40.0);
        model
    }

    fn draws<'a>(
        model: &'a LanguageModel,
        prompt: &[u32],
        sampling: &'a Sampling,
        seed: u64,
    ) -> Result<impl Iterator<Item = u32> + use<'a>> {
        model.draws(prompt, sampling, Pcg64Mcg::seed_from_u64(seed))
    }

    #[test]
    fn the_seed_fixes_the_text() {
        let (model, sampling) = (model(), Sampling::new());
        let text = |seed| draws(&model, &[1, 2], &sampling, seed).unwrap().take(30).collect::<Vec<u32>>();
        // Drawn when they are asked for: there is no end of them.
        assert_eq!(text(3).len(), 30);
        assert_eq!(text(3), text(3));
        assert_ne!(text(3), text(4));
        assert!(text(3).iter().all(|&word| word < 13));
    }

    #[test]
    fn every_word_is_the_best_one_given_all_before_if_only_one_is_kept() {
        let model = model();
        let sampling = Sampling::new().with_top_k(Some(1));
        let prompt = [4, 9, 2];
        let drawn: Vec<u32> = draws(&model, &prompt, &sampling, 1).unwrap().take(12).collect();
        let text = [prompt.as_slice(), &drawn].concat();
        // The state carried from word to word is that of the text read at once.
        let ids: Vec<i32> = text.iter().map(|&id| id as i32).collect();
        let ids = Tensor::<2, Int>::from_data(TensorData::new(ids, [text.len(), 1]), &Device::flex());
        let (log_probs, _) = model.log_probs(ids, model.zero_state(1));
        let best: Vec<i64> = log_probs.argmax(2).into_data().iter::<i64>().collect();
        let expected: Vec<u32> = best[2..14].iter().map(|&word| word as u32).collect();
        assert_eq!(drawn, expected);
    }

    #[test]
    fn a_vocabulary_that_ranks_share_is_refused() {
        let config = ModelConfig { d_embedding: 6, components: 3, ..ModelConfig::tiny(HeadKind::Mos, 13) };
        on_threads(2, |group| {
            let model = config.try_init_shared(group, &Device::flex()).unwrap();
            let refused = catch_unwind(AssertUnwindSafe(|| {
                drop(draws(&model, &[1], &Sampling::new(), 1));
            }));
            assert_eq!(*refused.unwrap_err().downcast::<&str>().unwrap(), "draws: no rank has all words");
        });
    }

    #[test]
    fn bad_options_and_prompts_are_refused() {
        let model = model();
        let refused = |prompt: &[u32], sampling: Sampling| {
            draws(&model, prompt, &sampling, 1).err().unwrap().to_string()
        };
        assert!(refused(&[], Sampling::new()).contains("prompt is empty"));
        assert!(refused(&[1, 13], Sampling::new()).contains("prompt is token 13"));
        assert!(refused(&[1], Sampling::new().with_top_k(Some(0))).contains("top_k"));
        assert!(refused(&[1], Sampling::new().with_top_p(Some(1.5))).contains("top_p"));
    }
}
