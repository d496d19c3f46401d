//! Settings of a language model that replace a preset's, a file's or a run's.

use awd_lstm::config::{DecayWhen, LrDecay};
use awd_lstm::{HeadKind, ModelConfig, Preset, TrainConfig};
use clap::Args;
use program::args::{Form, Given, Knob, Knobs, List, Setting, checked, finite};
use program::failure::Failure;
use program::print::print_note;
use runs::data::TextConfig;

/// Every setting of model and procedure. The rarer options are hidden, since --set has them all.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = LstmKnobs::HEADING)]
pub struct Overrides {
    /// Width of the embedding.
    #[arg(long, value_name = "D")]
    pub d_embedding: Option<usize>,
    /// Sizes of the LSTM layers, first to last, separated by commas.
    #[arg(long, value_name = "SIZES")]
    pub lstm: Option<List<usize>>,
    /// Number of LSTM layers: the last stays, those before it are left out or repeated.
    #[arg(hide = true, long, value_name = "N")]
    pub layers: Option<u16>,
    /// Size of the last LSTM. The embedding of a head without mixture goes with it, unless the head is untied.
    #[arg(hide = true, long, value_name = "SIZE")]
    pub last_lstm: Option<usize>,
    /// Multiply the learning rate by this factor, above 0 and below 1, when --lr-decay-from or --lr-decay-on-plateau says.
    #[arg(hide = true, long, value_name = "F", value_parser = finite)]
    pub lr_decay: Option<f64>,
    /// Decay the learning rate before every epoch from this one on, counted from 1.
    #[arg(hide = true, long, value_name = "EPOCH", conflicts_with = "lr_decay_on_plateau")]
    pub lr_decay_from: Option<usize>,
    /// Decay the learning rate after every validation without a new best.
    #[arg(hide = true, long, value_name = "BOOL")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub lr_decay_on_plateau: Option<bool>,
    /// All others.
    #[command(flatten)]
    pub given: Given<LstmKnobs>,
}

/// The settings of a language model.
#[derive(Debug, Clone, Copy, Default)]
pub struct LstmKnobs;

impl Knobs for LstmKnobs {
    const HEADING: &'static str = "Settings, instead of those of the preset, the file or the run";
    const SET: &'static str = "A setting by its place in config.json, such as train.lr=15 or model.dropouts.latent=0.2; may be given several \
                               times. It has the last word";
    #[rustfmt::skip]
    const ALL: &'static [Knob] = {
        use Form::{Inverse, List, Minutes, Plain, Switch};
        &[
            Knob::new("epochs", "train.epochs", Plain, "EPOCHS", "Passes over the training text"),
            Knob::new("seed", "train.seed", Plain, "SEED", "Seed of everything random"),
            Knob::new("lr", "train.lr", Plain, "LR", "Learning rate of a step of `bptt` time steps"),
            Knob::new("latent-lr", "train.latent_lr", Plain, "FACTOR", "Factor on the learning rate of a mixture's projections, those to its contexts and to its weights, after clipping").rare(),
            Knob::new("clip", "train.clip", Plain, "NORM", "Largest gradient norm, over all parameters together; larger gradients are scaled down to it").rare(),
            Knob::new("weight-decay", "train.weight_decay", Plain, "W", "Share of every weight that is added to its gradient, after clipping").rare(),
            Knob::new("alpha", "train.alpha", Plain, "ALPHA", "Weight of activation regularisation (AR), of the dropped output of the last LSTM").rare(),
            Knob::new("beta", "train.beta", Plain, "BETA", "Weight of temporal activation regularisation (TAR), of the output's change from one time step to the next").rare(),
            Knob::new("prior-cv", "train.prior_cv", Plain, "W", "Weight of the squared coefficient of variation of a mixture's priors over a step: keeps all components in use").rare(),
            Knob::new("nonmono", "train.nonmono", Plain, "N", "Begin averaging when a validation is worse than the best of all earlier ones but the last N").rare(),
            Knob::new("average-from-start", "train.average_from_start", Switch, "BOOL", "Average the weights from the first step on; what would begin averaging then ends training").rare(),
            Knob::new("validate-every", "train.validate_every", Plain, "N", "Validate within epochs too, every N training steps. The averaging rule, patience and the best model see it").rare(),
            Knob::new("patience", "train.patience", Plain, "N", "End training after N validations in a row without a new best"),
            Knob::new("max-time", "train.max_minutes", Minutes, "TIME", "End training after this time, all processes of the run together: 45s, 90m, 8h or 2d. The best model is tested then"),
            Knob::new("no-test", "train.test", Inverse, "BOOL", "Do not score the best model on the test text"),
            Knob::new("batch", "train.batch", Plain, "BATCH", "Parallel text streams in training"),
            Knob::new("small-batch", "train.small_batch", Plain, "N", "Text streams of a slice of the batch; gradients of slices are accumulated, for less memory").rare(),
            Knob::new("eval-batch", "train.eval_batch", Plain, "N", "Parallel text streams in validation").rare(),
            Knob::new("test-batch", "train.test_batch", Plain, "N", "Parallel text streams in the test").rare(),
            Knob::new("bptt", "train.bptt", Plain, "BPTT", "Mean time steps of a training step"),
            Knob::new("max-seq-len-delta", "train.max_seq_len_delta", Plain, "N", "Time steps that a training step may have above `bptt`").rare(),
            Knob::new("untied", "model.tied", Inverse, "BOOL", "Give the output layer a matrix of its own instead of the embedding's").rare(),
            Knob::new("components", "model.components", Plain, "K", "Components of a mixture, for --head doc those from the last LSTM"),
            Knob::new("lower-components", "model.lower_components", List, "KS", "Components of --head doc from the layer below the last LSTM, and after commas from those further down to the embedding").rare(),
            Knob::new("cutoffs", "model.cutoffs", List, "WORDS", "First words of clusters of rare words, separated by commas: makes any head adaptive [default for --head adaptive: a 25th and a fifth of the vocabulary]. --vocab-size numbers words by frequency").rare(),
            Knob::new("frequent", "model.frequent", Plain, "WORDS", "Words of --head mixtape that have a gate of their own, the first of the vocabulary [preset: a twentieth of it]. With --vocab-size words are numbered by frequency").rare(),
            Knob::new("d-gate", "model.d_gate", Plain, "G", "Width of the gates of --head mixtape").rare(),
            Knob::new("knots", "model.knots", Plain, "KNOTS", "Pieces of a PLIF").rare(),
            Knob::new("plif-bound", "model.plif_bound", Plain, "T", "T of a PLIF, which bends on [-T, T]").rare(),
            Knob::new("precision", "model.precision", Plain, "PRECISION", "Matrix-product precision: full, tf32 or bf16. Faster where the hardware multiplies such numbers"),
            Knob::new("dropout-output", "model.dropouts.output", Plain, "P", "Dropout on the last LSTM's output").rare(),
            Knob::new("dropout-hidden", "model.dropouts.hidden", Plain, "P", "Dropout between LSTM layers").rare(),
            Knob::new("dropout-input", "model.dropouts.input", Plain, "P", "Dropout on the embedded words").rare(),
            Knob::new("dropout-latent", "model.dropouts.latent", Plain, "P", "Dropout on the latent contexts of a mixture").rare(),
            Knob::new("dropout-embedding", "model.dropouts.embedding", Plain, "P", "Dropout of whole words").rare(),
            Knob::new("dropout-weight", "model.dropouts.weight", Plain, "P", "Dropout of recurrent weights").rare(),
        ]
    };

    fn check(setting: &Setting) -> Result<(), String> {
        // Types do not depend on the preset.
        let (model, train) = (Preset::Small.model(HeadKind::Mos, 1), Preset::Small.train());
        checked(setting, &model, &train, &TextConfig::default())
    }
}

impl Overrides {
    /// Settings by their places, and none besides.
    pub fn of(given: Given<LstmKnobs>) -> Self {
        Self { given, ..Self::default() }
    }

    /// A model with what was given.
    pub fn model(&self, mut model: ModelConfig) -> ModelConfig {
        // The sizes below depend on it.
        model.tied = self.given.value("model.tied").unwrap_or(model.tied);
        if let Some(List(sizes)) = &self.lstm {
            model.lstm_sizes.clone_from(sizes);
        }
        if let Some(layers) = self.layers {
            set_layers(&mut model.lstm_sizes, layers.into());
        }
        if let (Some(size), Some(last)) = (self.last_lstm, model.lstm_sizes.last_mut()) {
            *last = size;
            if model.tied && !model.head.has_contexts() {
                model.d_embedding = size;
            }
        }
        if let Some(d_embedding) = self.d_embedding {
            // A head without mixture reads the last LSTM's output as it is: that layer goes with the width.
            let free = !model.head.has_contexts() && self.lstm.is_none() && self.last_lstm.is_none();
            if let (true, Some(last)) = (free, model.lstm_sizes.last_mut()) {
                *last = d_embedding;
            }
            model.d_embedding = d_embedding;
        }
        self.given.apply("model", &model)
    }

    /// A procedure with what was given.
    pub fn procedure(&self, mut train: TrainConfig) -> Result<TrainConfig, Failure> {
        train.lr_decay = self.lr_decay(train.lr_decay)?;
        Ok(self.given.apply("train", &train))
    }

    /// The decay of the learning rate, each part of it from the options or from `before`.
    fn lr_decay(&self, before: Option<LrDecay>) -> Result<Option<LrDecay>, Failure> {
        let on_plateau = |decay: &LrDecay| decay.when == DecayWhen::Plateau;
        let before = before.filter(|decay| self.lr_decay_on_plateau != Some(false) || !on_plateau(decay));
        let when = match (self.lr_decay_from, self.lr_decay_on_plateau) {
            (Some(epoch), _) => Some(DecayWhen::From { epoch }),
            (None, Some(true)) => Some(DecayWhen::Plateau),
            _ => None,
        };
        let factor = self.lr_decay.or(before.map(|decay| decay.factor));
        match (factor, when.or(before.map(|decay| decay.when))) {
            (None, None) => Ok(None),
            (Some(factor), Some(when)) => Ok(Some(LrDecay { factor, when })),
            (Some(_), None) => Err("--lr-decay needs --lr-decay-from EPOCH or --lr-decay-on-plateau".into()),
            (None, Some(_)) => Err("--lr-decay-from and --lr-decay-on-plateau need --lr-decay F".into()),
        }
    }
}

/// The part that a setting is of, if a head does not have it.
pub fn missing_part(head: HeadKind, setting: &str) -> Option<&'static str> {
    let (has, part) = match setting {
        "components" | "prior-cv" => (head.is_mixture(), "mixture"),
        "latent-lr" | "dropout-latent" => (head.has_contexts(), "latent contexts"),
        "frequent" | "d-gate" => (head == HeadKind::Mixtape, "gates"),
        "lower-components" => (head.reads_layers(), "contexts from several layers"),
        "knots" | "plif-bound" => (head.has_plif(), "PLIF"),
        _ => return None,
    };
    (!has).then_some(part)
}

/// Says which of the given settings are of parts that a head does not have. They are no fault: several heads may be trained by one
/// command line.
pub fn note_unused<K: Knobs>(given: &Given<K>, head: HeadKind) {
    for Knob { name, place, .. } in K::ALL {
        let is_given = given.value::<serde_json::Value>(place).is_some();
        if let Some(part) = missing_part(head, name).filter(|_| is_given) {
            print_note(format_args!("--{name} has no effect: the {head} head has no {part}"));
        }
    }
}

/// Makes so many layers of the given ones: the last stays, those before it are left out or repeated.
fn set_layers(sizes: &mut Vec<usize>, layers: usize) {
    let Some(last) = sizes.pop() else { return };
    match layers.checked_sub(1) {
        Some(before) => {
            sizes.resize(before, sizes.last().copied().unwrap_or(last));
            sizes.push(last);
        }
        // Refused with all other sizes.
        None => sizes.clear(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Command, FromArgMatches};
    use serde_json::{Value, json};

    fn try_parse(line: &str) -> Result<Overrides, clap::Error> {
        let command = Overrides::augment_args(Command::new("settings").no_binary_name(true));
        Overrides::from_arg_matches(&command.try_get_matches_from(line.split_whitespace())?)
    }

    fn parse(line: &str) -> Overrides {
        try_parse(line).unwrap()
    }

    /// The settings of a preset after the options of `line`.
    fn settings(line: &str) -> Value {
        let given = parse(line);
        let model = given.model(Preset::Small.model(HeadKind::MosPlif, 50));
        let train = given.procedure(Preset::Small.train()).unwrap();
        train.validate().unwrap();
        model.validate().unwrap();
        json!({"model": model, "train": train})
    }

    /// Places and values of everything that is no object.
    fn leaves(value: &Value, place: &str) -> Vec<(String, Value)> {
        match value {
            Value::Object(fields) => {
                let of_field = |(name, value): (&String, &Value)| leaves(value, &format!("{place}.{name}"));
                fields.iter().flat_map(of_field).collect()
            }
            other => vec![(place[1..].to_string(), other.clone())],
        }
    }

    /// The places that a line changes.
    fn changed(line: &str) -> Vec<String> {
        let before = leaves(&settings(""), "");
        let after = leaves(&settings(line), "").into_iter();
        after.filter(|leaf| !before.contains(leaf)).map(|(place, _)| place).collect()
    }

    #[test]
    fn every_option_sets_its_setting_and_no_other() {
        for knob in LstmKnobs::ALL {
            let value = match (knob.form, knob.name) {
                (Form::Switch | Form::Inverse, _) => String::new(),
                (Form::Minutes, _) => "=1h30m".into(),
                (Form::List, "cutoffs") => "=5,20".into(),
                (Form::List, _) => "=2,1".into(),
                (_, "precision") => "=bf16".into(),
                (_, name) if name.starts_with("dropout") => "=0.15".into(),
                (_, "small-batch") => "=3".into(),
                _ => "=7".into(),
            };
            assert_eq!(changed(&format!("--{}{value}", knob.name)), [knob.place], "{}", knob.name);
            if let Form::Switch | Form::Inverse = knob.form {
                assert_eq!(changed(&format!("--{}=false", knob.name)), [""; 0], "{}", knob.name);
            }
        }
        for (line, place) in [
            ("--d-embedding=16", "model.d_embedding"),
            ("--lstm=20,12", "model.lstm_sizes"),
            ("--layers=3", "model.lstm_sizes"),
            ("--last-lstm=96", "model.lstm_sizes"),
            ("--set train.lr=3 --lr 4 --set train.lr=5", "train.lr"),
        ] {
            assert_eq!(changed(line), [place], "{line}");
        }
        assert_eq!(settings("--max-time=1h30m")["train"]["max_minutes"], 90.0);
        let given = parse("--patience 3 --set train.patience=null").given;
        assert_eq!((given.value::<usize>("train.patience"), given.is_null("train.patience")), (None, true));
        // --set has the last word.
        let both = settings(
            "--set train.lr=3 --lr 4 --dropout-latent 0.1 --set model.dropouts.latent=0.25 --lstm 9,8 --set model.lstm_sizes=[7,6]",
        );
        assert_eq!((&both["train"]["lr"], &both["model"]["dropouts"]["latent"]), (&json!(3.0), &json!(0.25)));
        assert_eq!(both["model"]["lstm_sizes"], json!([7, 6]));
    }

    #[test]
    fn every_setting_has_an_option() {
        let every = "--latent-lr=2 --lr-decay=0.8 --lr-decay-on-plateau --validate-every=2 --patience=3 --max-time=8h --no-test --small-batch=1";
        let without = ["head", "vocab", "lr_decay", "d_embedding", "lstm_sizes"];
        for (place, _) in leaves(&settings(every), "") {
            let own = without.iter().any(|name| place.split('.').any(|part| part == *name));
            assert!(own || LstmKnobs::ALL.iter().any(|knob| knob.place == place), "{place}");
        }
    }

    #[test]
    fn values_of_other_types_are_named() {
        for (line, expected) in [
            ("--lr fast", "'fast' for '--lr <LR>': train.lr: invalid type: string"),
            ("--components 3.5", "'3.5' for '--components <K>'"),
            ("--lr-decay nan", "'nan' for '--lr-decay <F>': a finite number is needed"),
            ("--cutoffs 3,", "'3,' for '--cutoffs <WORDS>'"),
            ("--precision bf15", "unknown variant `bf15`"),
            ("--set model.vocab=9", "the vocabulary is the text's"),
        ] {
            let message = program::exit::line_of(&try_parse(line).unwrap_err());
            assert!(message.contains(expected) && !message.contains('\n'), "{line}: {message}");
        }
    }

    #[test]
    fn layers_are_counted_from_the_last() {
        let sizes = |head, line: &str| {
            let model = parse(line).model(Preset::Paper.model(head, 50));
            (model.lstm_sizes, model.d_embedding)
        };
        assert_eq!(sizes(HeadKind::Mos, "--layers=2"), (vec![960, 620], 280));
        assert_eq!(sizes(HeadKind::Mos, "--layers=1 --last-lstm=7"), (vec![7], 280));
        assert_eq!(sizes(HeadKind::Mos, "--lstm=9 --layers=3 --last-lstm=7"), (vec![9, 9, 7], 280));
        assert_eq!(sizes(HeadKind::Mos, "--layers=0"), (vec![], 280));
        assert_eq!(sizes(HeadKind::Softmax, "--last-lstm=7 --layers=2"), (vec![960, 7], 7));
        assert_eq!(sizes(HeadKind::Softmax, "--d-embedding=8 --layers=2"), (vec![960, 8], 8));
        // Nothing is changed that was said: validation refuses it.
        assert_eq!(sizes(HeadKind::Softmax, "--d-embedding=8 --last-lstm=7 --layers=2"), (vec![960, 7], 8));
        assert_eq!(sizes(HeadKind::Softmax, "--untied --last-lstm=7 --layers=1").0, [7]);
        assert_ne!(sizes(HeadKind::Softmax, "--untied --last-lstm=7").1, 7);
    }

    #[test]
    fn a_decay_is_completed_from_what_there_is() {
        let train = parse("--lr-decay=0.5 --lr-decay-from=3").procedure(Preset::Small.train()).unwrap();
        let train = parse("--lr-decay=0.9").procedure(train).unwrap();
        assert_eq!(train.lr_decay, Some(LrDecay { factor: 0.9, when: DecayWhen::From { epoch: 3 } }));
        let train = parse("--lr-decay-on-plateau").procedure(train).unwrap();
        assert_eq!(train.lr_decay, Some(LrDecay { factor: 0.9, when: DecayWhen::Plateau }));
        let train = parse("--lr-decay-on-plateau=false").procedure(train).unwrap();
        assert_eq!(train.lr_decay, None);
        let error = parse("--lr-decay-from=3").procedure(Preset::Small.train()).unwrap_err();
        assert!(error.to_string().contains("need --lr-decay F"), "{error}");
    }
}
