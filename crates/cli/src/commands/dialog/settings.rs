//! Settings of a model of dialogues that replace a preset's or a run's.

use awd_lstm::HeadKind;
use program::args::{Form, Knob, Knobs, Setting, checked};
use seq2seq::Preset;
use seq2seq::data::DialogConfig;

/// The settings of a model of dialogues.
#[derive(Debug, Clone, Copy, Default)]
pub struct DialogKnobs;

impl Knobs for DialogKnobs {
    const HEADING: &'static str = "Settings, instead of those of the preset or the run";
    const SET: &'static str = "A setting by its place in config.json, such as train.lr=0.001; may be given several times. It has the last word";
    #[rustfmt::skip]
    const ALL: &'static [Knob] = &[
        Knob::new("vocab-size", "text.vocab_size", Form::Plain, "N", "The most words, with the 5 special ones; others are read as <unk> [default: 10002]"),
        Knob::new("max-words", "text.max_words", Form::Plain, "N", "Words of an utterance that are read: the first ones [default: 38]").rare(),
        Knob::new("d-embedding", "model.d_embedding", Form::Plain, "D", "Width of the embedding"),
        Knob::new("d-utterance", "model.d_utterance", Form::Plain, "D", "Hidden size of the encoder of utterances, in each direction"),
        Knob::new("d-context", "model.d_context", Form::Plain, "D", "Hidden size of the encoder of contexts"),
        Knob::new("d-decoder", "model.d_decoder", Form::Plain, "D", "Hidden size of the decoder"),
        Knob::new("window", "model.window", Form::Plain, "N", "Utterances of a context").rare(),
        Knob::new("components", "model.components", Form::Plain, "K", "Components of a mixture. Its width follows: the head is never larger than a softmax"),
        Knob::new("knots", "model.knots", Form::Plain, "N", "Pieces of a PLIF"),
        Knob::new("plif-bound", "model.plif_bound", Form::Plain, "T", "T of a PLIF, which bends on [-T, T]").rare(),
        Knob::new("dropout", "model.dropout", Form::Plain, "P", "Dropout on embedded words, on encoded utterances and on the decoder's output"),
        Knob::new("init", "model.init", Form::Plain, "W", "All weights are uniform in ± this at the start").rare(),
        Knob::new("epochs", "train.epochs", Form::Plain, "N", "The most epochs"),
        Knob::new("updates", "train.updates", Form::Plain, "N", "Training steps of an epoch, after which the validation text is scored"),
        Knob::new("batch", "train.batch", Form::Plain, "N", "Pairs of context and response of a training step, a multiple of --run-length"),
        Knob::new("run-length", "train.run", Form::Plain, "N", "Consecutive pairs of a dialogue that stay together in a training step").rare(),
        Knob::new("lr", "train.lr", Form::Plain, "LR", "Learning rate of Adam"),
        Knob::new("clip", "train.clip", Form::Plain, "NORM", "Largest gradient norm, over all parameters together; larger gradients are scaled down to it"),
        Knob::new("patience", "train.stop.patience", Form::Plain, "EPOCH", "The first epoch after which training may end early"),
        Knob::new("improvement", "train.stop.improvement", Form::Plain, "PART", "Improvement means a validation loss of at most this part of the last one that was one").rare(),
        Knob::new("increase", "train.stop.increase", Form::Plain, "N", "After an improvement in epoch n, training goes on to epoch N · n at least").rare(),
        Knob::new("seed", "train.seed", Form::Plain, "SEED", "Seed of everything random"),
    ];

    fn check(setting: &Setting) -> Result<(), String> {
        let (model, train) = (Preset::Small.model(HeadKind::Mos, 50), Preset::Small.train());
        checked(setting, &model, &train, &DialogConfig::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args, Command, FromArgMatches};
    use program::args::Given;
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
