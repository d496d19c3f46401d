//! Settings of a model of dialogues that replace a preset's or a run's.

use awd_lstm::HeadKind;
use seq2seq::Preset;
use seq2seq::data::DialogConfig;

use crate::args::{Knob, Knobs, Setting, checked};

/// The settings of a model of dialogues.
#[derive(Debug, Clone, Copy, Default)]
pub struct DialogKnobs;

impl Knobs for DialogKnobs {
    const HEADING: &'static str = "Settings, instead of those of the preset or the run";
    const SET: &'static str = "A setting by its place in config.json, such as train.lr=0.001; may be given several times. It has the last word";
    #[rustfmt::skip]
    const ALL: &'static [Knob] = &[
        Knob::plain("vocab-size", "text.vocab_size", "N", "The most words, with the 5 special ones; others are read as <unk> [default: 10002]"),
        Knob::plain("max-words", "text.max_words", "N", "Words of an utterance that are read: the first ones [default: 38]"),
        Knob::plain("d-embedding", "model.d_embedding", "D", "Width of the embedding"),
        Knob::plain("d-utterance", "model.d_utterance", "D", "Hidden size of the encoder of utterances, in each direction"),
        Knob::plain("d-context", "model.d_context", "D", "Hidden size of the encoder of contexts"),
        Knob::plain("d-decoder", "model.d_decoder", "D", "Hidden size of the decoder"),
        Knob::plain("window", "model.window", "N", "Utterances of a context"),
        Knob::plain("components", "model.components", "K", "Components of a mixture. Its width follows: the head is never larger than a softmax"),
        Knob::plain("knots", "model.knots", "N", "Pieces of a PLIF"),
        Knob::plain("plif-bound", "model.plif_bound", "T", "T of a PLIF, which bends on [-T, T]"),
        Knob::plain("dropout", "model.dropout", "P", "Dropout on embedded words, on encoded utterances and on the decoder's output"),
        Knob::plain("init", "model.init", "W", "All weights are uniform in ± this at the start"),
        Knob::plain("epochs", "train.epochs", "N", "The most epochs"),
        Knob::plain("updates", "train.updates", "N", "Training steps of an epoch, after which the validation text is scored"),
        Knob::plain("batch", "train.batch", "N", "Pairs of context and response of a training step, a multiple of --run-length"),
        Knob::plain("run-length", "train.run", "N", "Consecutive pairs of a dialogue that stay together in a training step"),
        Knob::plain("lr", "train.lr", "LR", "Learning rate of Adam"),
        Knob::plain("clip", "train.clip", "NORM", "Largest gradient norm, over all parameters together; larger gradients are scaled down to it"),
        Knob::plain("patience", "train.stop.patience", "EPOCH", "The first epoch after which training may end early"),
        Knob::plain("improvement", "train.stop.improvement", "PART", "Improvement means a validation loss of at most this part of the last one that was one"),
        Knob::plain("increase", "train.stop.increase", "N", "After an improvement in epoch n, training goes on to epoch N · n at least"),
        Knob::plain("seed", "train.seed", "SEED", "Seed of everything random"),
    ];

    fn check(setting: &Setting) -> Result<(), String> {
        let (model, train) = (Preset::Small.model(HeadKind::Mos, 50), Preset::Small.train());
        checked(setting, &model, &train, &DialogConfig::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Given;
    use clap::{Args, Command, FromArgMatches};
    use serde_json::{Value, json};

    #[test]
    fn every_option_is_a_setting() {
        let words = DialogKnobs::ALL
            .iter()
            .enumerate()
            .map(|(index, knob)| format!("--{}={}", knob.name, index + 11));
        let command = Given::<DialogKnobs>::augment_args(Command::new("train").no_binary_name(true));
        let matches = command.try_get_matches_from(words).unwrap();
        let given = Given::<DialogKnobs>::from_arg_matches(&matches).unwrap();
        let all = json!({
            "text": given.apply("text", &DialogConfig::default()),
            "model": given.apply("model", &Preset::Small.model(HeadKind::Mos, 50)),
            "train": given.apply("train", &Preset::Small.train()),
        });
        for (index, knob) in DialogKnobs::ALL.iter().enumerate() {
            let value = knob.place.split('.').fold(&all, |value: &Value, name| &value[name]);
            assert_eq!(value.as_f64(), Some(index as f64 + 11.0), "{}", knob.name);
        }
    }
}
