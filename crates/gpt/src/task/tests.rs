//! A model learns a language in which each word determines the next.

use burn::module::Module;
use highrank::HeadConfig;
use runs::data::Vocabulary;
use runs::{Fitted, Notes};

use super::*;
use crate::evaluate::evaluate;

mod among;

const VOCAB: u32 = 12;

fn corpus() -> Corpus {
    let words = (0..VOCAB).map(|word| format!("w{word}")).collect::<Vec<_>>();
    let text = |start, tokens| -> Vec<u32> {
        std::iter::successors(Some(start), |word| Some((word * 5 + 3) % VOCAB)).take(tokens).collect()
    };
    Corpus::from_ids(Vocabulary::from(words), text(1, 200), text(2, 43), text(0, 30)).unwrap()
}

fn model() -> GptConfig {
    let head = HeadConfig::mos(16, 12, VOCAB as usize, 2).with_tied(true);
    GptConfig::new(16, head).with_layers(1).with_context(8).with_dropout(0.0)
}

#[test]
fn a_model_learns_and_its_metrics_are_right() {
    let (corpus, mut notes) = (corpus(), Notes::default());
    let config = TrainConfig::new(60).with_rounds(2).with_batch(4).with_lr(0.01).with_warmup(5);
    let task = GptTask::new(&model(), &config, &corpus, &Device::flex()).unwrap();
    let before = evaluate(&task.model().valid(), corpus.valid(), 4, |_| ()).unwrap();
    assert_eq!(before.tokens, 42);
    let mut trainer = Trainer::new(task);
    let Fitted::Finished(last) = trainer.fit(None, &mut notes).unwrap() else { panic!("nobody stops it") };

    let mut shares = vec![];
    let after = evaluate(&trainer.model().valid(), corpus.valid(), 4, |share| shares.push(share)).unwrap();
    assert!(
        after.perplexity() < before.perplexity() / 2.0,
        "{} then {}",
        before.perplexity(),
        after.perplexity()
    );
    assert!(shares.is_sorted() && shares.last() == Some(&1.0), "{shares:?}");
    assert_eq!(notes.epochs.len(), 2);
    let round = &notes.epochs[1];
    assert_eq!((round.valid_ppl, round.valid_accuracy), (after.perplexity(), after.accuracy()));
    assert!(round.train_accuracy.unwrap() > 50.0, "{round:?}");
    let test = evaluate(trainer.best().unwrap(), corpus.test(), 4, |_| ()).unwrap();
    assert_eq!((last.test_ppl, last.test_accuracy), (Some(test.perplexity()), test.accuracy()));
}

#[test]
fn a_text_that_is_too_short_is_refused() {
    let vocabulary = || Vocabulary::from(vec!["a".to_string(), "b".into()]);
    let cases = [
        (vec![0; 8], vec![0; 5], "context is 8, but must be less than"),
        (vec![0; 9], vec![0], "the validation text is too short: at least 2 tokens are needed, but it has 1"),
    ];
    for (text, held_out, expected) in cases {
        let corpus = Corpus::from_ids(vocabulary(), text, held_out, vec![0; 5]).unwrap();
        let head = HeadConfig::softmax(4, 2).with_tied(true);
        let model = GptConfig::new(4, head).with_context(8);
        let refused = GptTask::new(&model, &TrainConfig::new(60), &corpus, &Device::flex());
        let message = refused.err().unwrap().to_string();
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn a_model_of_other_words_is_refused() {
    for vocab in [VOCAB as usize - 1, VOCAB as usize + 1] {
        let model = GptConfig::new(16, HeadConfig::softmax(16, vocab).with_tied(true)).with_context(8);
        let refused = GptTask::new(&model, &TrainConfig::new(60), &corpus(), &Device::flex());
        let expected = format!("vocab is {vocab}, but must be the number of words of the corpus");
        assert_eq!(refused.err().unwrap().to_string(), expected);
    }
}

#[test]
fn the_learning_rate_rises_and_falls() {
    let config = TrainConfig::new(20).with_warmup(4).with_lr(0.4);
    let rates: Vec<f64> = (0..20).map(|done| learning_rate(&config, done)).collect();
    assert!(rates[..4].is_sorted() && (rates[0] - 0.1).abs() < 1e-9, "{rates:?}");
    assert!(
        (rates[4] - 0.4).abs() < 1e-9 && rates[4..].is_sorted_by(|a, b| a > b) && rates[19] < 0.01,
        "{rates:?}"
    );
}
