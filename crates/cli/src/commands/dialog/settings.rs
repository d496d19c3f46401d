//! Settings that replace a preset's or a run's.

use clap::Args;
use seq2seq::data::DialogConfig;
use seq2seq::{ModelConfig, TrainConfig};

/// Settings of the text.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Text")]
pub struct TextArgs {
    /// The most words, with the 5 special ones; others are read as <unk> [default: 10002].
    #[arg(long, value_name = "N")]
    pub vocab_size: Option<usize>,
    /// Words of an utterance that are read: the first ones [default: 38].
    #[arg(long, value_name = "N")]
    pub max_words: Option<usize>,
}

impl TextArgs {
    /// Sets what was given.
    pub fn apply_to(&self, text: &mut DialogConfig) {
        set(&mut text.vocab_size, self.vocab_size);
        set(&mut text.max_words, self.max_words);
    }

    /// The default with what was given.
    pub fn config(&self) -> DialogConfig {
        let mut text = DialogConfig::default();
        self.apply_to(&mut text);
        text
    }
}

/// Settings of the model.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Model, instead of the settings of the preset or the run")]
pub struct ModelArgs {
    /// Width of the embedding.
    #[arg(long, value_name = "D")]
    pub d_embedding: Option<usize>,
    /// Hidden size of the encoder of utterances, in each direction.
    #[arg(long, value_name = "D")]
    pub d_utterance: Option<usize>,
    /// Hidden size of the encoder of contexts.
    #[arg(long, value_name = "D")]
    pub d_context: Option<usize>,
    /// Hidden size of the decoder.
    #[arg(long, value_name = "D")]
    pub d_decoder: Option<usize>,
    /// Utterances of a context.
    #[arg(long, value_name = "N")]
    pub window: Option<usize>,
    /// Components of a mixture. Its width follows: the head is never larger than a softmax.
    #[arg(long, value_name = "K")]
    pub components: Option<usize>,
    /// Pieces of a PLIF.
    #[arg(long, value_name = "N")]
    pub knots: Option<usize>,
    /// T of a PLIF, which bends on [-T, T].
    #[arg(long, value_name = "T")]
    pub plif_bound: Option<f64>,
    /// Dropout on embedded words, on encoded utterances and on the decoder's output.
    #[arg(long, value_name = "P")]
    pub dropout: Option<f64>,
    /// All weights are uniform in ± this at the start.
    #[arg(long, value_name = "W")]
    pub init: Option<f64>,
}

impl ModelArgs {
    /// Sets what was given.
    pub fn apply_to(&self, model: &mut ModelConfig) {
        set(&mut model.d_embedding, self.d_embedding);
        set(&mut model.d_utterance, self.d_utterance);
        set(&mut model.d_context, self.d_context);
        set(&mut model.d_decoder, self.d_decoder);
        set(&mut model.window, self.window);
        set(&mut model.components, self.components);
        set(&mut model.knots, self.knots);
        set(&mut model.plif_bound, self.plif_bound);
        set(&mut model.dropout, self.dropout);
        set(&mut model.init, self.init);
    }
}

/// Settings of the procedure.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Procedure, instead of the settings of the preset or the run")]
pub struct ProcedureArgs {
    /// The most epochs.
    #[arg(long, value_name = "N")]
    pub epochs: Option<usize>,
    /// Training steps of an epoch, after which the validation text is scored.
    #[arg(long, value_name = "N")]
    pub updates: Option<usize>,
    /// Pairs of context and response of a training step, a multiple of --run-length.
    #[arg(long, value_name = "N")]
    pub batch: Option<usize>,
    /// Consecutive pairs of a dialogue that stay together in a training step.
    #[arg(long, value_name = "N")]
    pub run_length: Option<usize>,
    /// Learning rate of Adam.
    #[arg(long)]
    pub lr: Option<f64>,
    /// Largest gradient norm, over all parameters together; larger gradients are scaled down to it.
    #[arg(long, value_name = "NORM")]
    pub clip: Option<f64>,
    /// The first epoch after which training may end early.
    #[arg(long, value_name = "EPOCH")]
    pub patience: Option<usize>,
    /// A validation loss counts if it is at most this part of the last one that counted.
    #[arg(long, value_name = "PART")]
    pub improvement: Option<f64>,
    /// After a loss that counts in epoch n, training goes on to epoch N · n at least.
    #[arg(long, value_name = "N")]
    pub increase: Option<usize>,
    /// Seed of everything random.
    #[arg(long)]
    pub seed: Option<u64>,
}

impl ProcedureArgs {
    /// Sets what was given.
    pub fn apply_to(&self, train: &mut TrainConfig) {
        set(&mut train.epochs, self.epochs);
        set(&mut train.updates, self.updates);
        set(&mut train.batch, self.batch);
        set(&mut train.run, self.run_length);
        set(&mut train.lr, self.lr);
        set(&mut train.clip, self.clip);
        set(&mut train.stop.patience, self.patience);
        set(&mut train.stop.improvement, self.improvement);
        set(&mut train.stop.increase, self.increase);
        set(&mut train.seed, self.seed);
    }
}

fn set<T>(setting: &mut T, given: Option<T>) {
    if let Some(given) = given {
        *setting = given;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use awd_lstm::HeadKind;
    use clap::Parser;
    use seq2seq::Preset;
    use seq2seq::config::StopConfig;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        text: TextArgs,
        #[command(flatten)]
        model: ModelArgs,
        #[command(flatten)]
        procedure: ProcedureArgs,
    }

    fn parsed(line: &str) -> (DialogConfig, ModelConfig, TrainConfig) {
        let line = Line::parse_from(format!("train {line}").split_whitespace());
        let (mut model, mut train) = (Preset::Small.model(HeadKind::Mos, 50), Preset::Small.train());
        line.model.apply_to(&mut model);
        line.procedure.apply_to(&mut train);
        (line.text.config(), model, train)
    }

    #[test]
    fn every_option_is_a_setting() {
        let (text, model, train) = parsed(
            "--vocab-size 11 --max-words 12 --d-embedding 13 --d-utterance 14 --d-context 15 --d-decoder 16 --window 17 \
             --components 18 --knots 19 --plif-bound 20.5 --dropout 0.21 --init 0.22 --epochs 23 --updates 24 --batch 25 \
             --run-length 26 --lr 0.27 --clip 0.28 --patience 29 --improvement 0.3 --increase 31 --seed 32",
        );
        assert_eq!(text, DialogConfig { vocab_size: 11, max_words: 12 });
        let expected = ModelConfig {
            vocab: 50,
            d_embedding: 13,
            d_utterance: 14,
            d_context: 15,
            d_decoder: 16,
            window: 17,
            head: HeadKind::Mos,
            components: 18,
            knots: 19,
            plif_bound: 20.5,
            dropout: 0.21,
            init: 0.22,
        };
        assert_eq!(model, expected);
        let stop = StopConfig { patience: 29, improvement: 0.3, increase: 31 };
        let expected =
            TrainConfig { epochs: 23, updates: 24, batch: 25, run: 26, lr: 0.27, clip: 0.28, stop, seed: 32 };
        assert_eq!(train, expected);
    }

    #[test]
    fn without_options_nothing_changes() {
        let presets = (Preset::Small.model(HeadKind::Mos, 50), Preset::Small.train());
        assert_eq!(parsed(""), (DialogConfig::default(), presets.0, presets.1));
    }
}
