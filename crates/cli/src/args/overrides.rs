//! Settings that replace a preset's, a file's or a run's.

use awd_lstm::config::{DecayWhen, LrDecay};
use awd_lstm::{ModelConfig, TrainConfig};
use clap::Args;
use highrank::Precision;

use crate::args::list::List;
use crate::args::time::TimeLimit;
use crate::failure::Failure;

/// Every setting of model and procedure. Each is one option with one value; the rarer ones are hidden, since --set has them all.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Settings, instead of those of the preset, the file or the run")]
pub struct Overrides {
    /// Passes over the training text.
    #[arg(long)]
    pub epochs: Option<usize>,
    /// Seed of everything random.
    #[arg(long)]
    pub seed: Option<u64>,
    /// Learning rate of a step of `bptt` time steps.
    #[arg(long)]
    pub lr: Option<f64>,
    /// Factor on the learning rate of a mixture's projections, those to its contexts and to its weights, after clipping.
    #[arg(hide = true, long, value_name = "FACTOR")]
    pub latent_lr: Option<f64>,
    /// Multiply the learning rate by this factor, above 0 and below 1, when --lr-decay-from or --lr-decay-on-plateau says.
    #[arg(hide = true, long, value_name = "F")]
    pub lr_decay: Option<f64>,
    /// Decay the learning rate before every epoch from this one on, counted from 1.
    #[arg(hide = true, long, value_name = "EPOCH", conflicts_with = "lr_decay_on_plateau")]
    pub lr_decay_from: Option<usize>,
    /// Decay the learning rate after every validation without a new best.
    #[arg(hide = true, long, value_name = "BOOL")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub lr_decay_on_plateau: Option<bool>,
    /// Largest gradient norm, over all parameters together; larger gradients are scaled down to it.
    #[arg(hide = true, long, value_name = "NORM")]
    pub clip: Option<f64>,
    /// Share of every weight that is added to its gradient, after clipping.
    #[arg(hide = true, long, value_name = "W")]
    pub weight_decay: Option<f64>,
    /// Weight of activation regularisation (AR), of the dropped output of the last LSTM.
    #[arg(hide = true, long)]
    pub alpha: Option<f64>,
    /// Weight of temporal activation regularisation (TAR), of the output's change from one time step to the next.
    #[arg(hide = true, long)]
    pub beta: Option<f64>,
    /// Weight of the squared coefficient of variation of a mixture's priors over a step: keeps all components in use.
    #[arg(hide = true, long, value_name = "W")]
    pub prior_cv: Option<f64>,
    /// Begin averaging when a validation is worse than the best of all earlier ones but the last N.
    #[arg(hide = true, long, value_name = "N")]
    pub nonmono: Option<usize>,
    /// Average the weights from the first step on; what would begin averaging then ends training.
    #[arg(hide = true, long, value_name = "BOOL")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub average_from_start: Option<bool>,
    /// Validate within epochs too, every N training steps. The averaging rule, patience and the best model see it.
    #[arg(hide = true, long, value_name = "N")]
    pub validate_every: Option<usize>,
    /// End training after N validations in a row without a new best.
    #[arg(long, value_name = "N")]
    pub patience: Option<usize>,
    /// End training after this time, all processes of the run together: 45s, 90m, 8h or 2d. The best model is tested then.
    #[arg(long, value_name = "TIME")]
    pub max_time: Option<TimeLimit>,
    /// Do not score the best model on the test text.
    #[arg(long, value_name = "BOOL")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub no_test: Option<bool>,
    /// Parallel text streams in training.
    #[arg(long)]
    pub batch: Option<usize>,
    /// Accumulate gradients over slices of so many of them, for less memory.
    #[arg(hide = true, long, value_name = "N")]
    pub small_batch: Option<usize>,
    /// Parallel text streams in validation.
    #[arg(hide = true, long, value_name = "N")]
    pub eval_batch: Option<usize>,
    /// Parallel text streams in the test.
    #[arg(hide = true, long, value_name = "N")]
    pub test_batch: Option<usize>,
    /// Mean time steps of a training step.
    #[arg(long)]
    pub bptt: Option<usize>,
    /// Time steps that a training step may have above `bptt`.
    #[arg(hide = true, long, value_name = "N")]
    pub max_seq_len_delta: Option<usize>,
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
    /// Give the output layer a matrix of its own instead of the embedding's.
    #[arg(hide = true, long, value_name = "BOOL")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub untied: Option<bool>,
    /// Components of a mixture, for --head doc those from the last LSTM.
    #[arg(long, value_name = "K")]
    pub components: Option<usize>,
    /// Components of --head doc from the layer below the last LSTM, and after commas from those further down to the embedding.
    #[arg(hide = true, long, value_name = "KS")]
    pub lower_components: Option<List<usize>>,
    /// First words of clusters of rare words, separated by commas: makes any head adaptive [default for --head adaptive: a 25th and
    /// a fifth of the vocabulary]. --vocab-size numbers words by frequency.
    #[arg(hide = true, long, value_name = "WORDS")]
    pub cutoffs: Option<List<usize>>,
    /// Words of --head mixtape that have a gate of their own, the first of the vocabulary [preset: a twentieth of it]. With
    /// --vocab-size words are numbered by frequency.
    #[arg(hide = true, long, value_name = "WORDS")]
    pub frequent: Option<usize>,
    /// Width of the gates of --head mixtape.
    #[arg(hide = true, long, value_name = "G")]
    pub d_gate: Option<usize>,
    /// Pieces of a PLIF.
    #[arg(hide = true, long)]
    pub knots: Option<usize>,
    /// T of a PLIF, which bends on [-T, T].
    #[arg(hide = true, long, value_name = "T")]
    pub plif_bound: Option<f64>,
    /// What the inputs of matrix products are rounded to: full (nothing), tf32 or bf16. Faster where the hardware multiplies
    /// such numbers.
    #[arg(long)]
    pub precision: Option<Precision>,
    /// Dropout on the last LSTM's output.
    #[arg(hide = true, long, value_name = "P")]
    pub dropout_output: Option<f64>,
    /// Dropout between LSTM layers.
    #[arg(hide = true, long, value_name = "P")]
    pub dropout_hidden: Option<f64>,
    /// Dropout on the embedded words.
    #[arg(hide = true, long, value_name = "P")]
    pub dropout_input: Option<f64>,
    /// Dropout on the latent contexts of a mixture.
    #[arg(hide = true, long, value_name = "P")]
    pub dropout_latent: Option<f64>,
    /// Dropout of whole words.
    #[arg(hide = true, long, value_name = "P")]
    pub dropout_embedding: Option<f64>,
    /// Dropout of recurrent weights.
    #[arg(hide = true, long, value_name = "P")]
    pub dropout_weight: Option<f64>,
}

impl Overrides {
    /// Sets what was given of the model.
    pub fn apply_to_model(&self, model: &mut ModelConfig) {
        set(&mut model.tied, self.untied.map(|untied| !untied));
        set(&mut model.lstm_sizes, self.lstm.clone().map(|sizes| sizes.0));
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
        set(&mut model.components, self.components);
        set(&mut model.lower_components, self.lower_components.clone().map(|lower| lower.0));
        set(&mut model.cutoffs, self.cutoffs.clone().map(|cutoffs| cutoffs.0));
        set_some(&mut model.frequent, self.frequent);
        set(&mut model.d_gate, self.d_gate);
        set(&mut model.knots, self.knots);
        set(&mut model.plif_bound, self.plif_bound);
        set(&mut model.precision, self.precision);
        set(&mut model.dropouts.output, self.dropout_output);
        set(&mut model.dropouts.hidden, self.dropout_hidden);
        set(&mut model.dropouts.input, self.dropout_input);
        set(&mut model.dropouts.latent, self.dropout_latent);
        set(&mut model.dropouts.embedding, self.dropout_embedding);
        set(&mut model.dropouts.weight, self.dropout_weight);
    }

    /// Sets what was given of the procedure.
    ///
    /// # Errors
    /// A decay of the learning rate without its factor, or without its time.
    pub fn apply_to_procedure(&self, config: &mut TrainConfig) -> Result<(), Failure> {
        set(&mut config.epochs, self.epochs);
        set(&mut config.seed, self.seed);
        set(&mut config.lr, self.lr);
        set(&mut config.latent_lr, self.latent_lr);
        config.lr_decay = self.lr_decay(config.lr_decay)?;
        set(&mut config.clip, self.clip);
        set(&mut config.weight_decay, self.weight_decay);
        set(&mut config.alpha, self.alpha);
        set(&mut config.beta, self.beta);
        set(&mut config.prior_cv, self.prior_cv);
        set(&mut config.nonmono, self.nonmono);
        set(&mut config.average_from_start, self.average_from_start);
        set_some(&mut config.validate_every, self.validate_every);
        set_some(&mut config.patience, self.patience);
        set_some(&mut config.max_minutes, self.max_time.map(TimeLimit::minutes));
        set(&mut config.test, self.no_test.map(|no_test| !no_test));
        set(&mut config.batch, self.batch);
        set_some(&mut config.small_batch, self.small_batch);
        set(&mut config.eval_batch, self.eval_batch);
        set(&mut config.test_batch, self.test_batch);
        set(&mut config.bptt, self.bptt);
        set(&mut config.max_seq_len_delta, self.max_seq_len_delta);
        Ok(())
    }

    /// What a configuration says of procedure, dropouts, precision and PLIF: the settings that always have a value and change what is
    /// learnt, each as the name of its option and the value that this would be given. Those that the head ignores are left out.
    pub fn of(model: &ModelConfig, train: &TrainConfig) -> Vec<(&'static str, String)> {
        let (head, dropouts) = (model.head, &model.dropouts);
        let everywhere = [
            ("epochs", train.epochs.to_string()),
            ("lr", train.lr.to_string()),
            ("clip", train.clip.to_string()),
            ("weight-decay", train.weight_decay.to_string()),
            ("alpha", train.alpha.to_string()),
            ("beta", train.beta.to_string()),
            ("nonmono", train.nonmono.to_string()),
            ("batch", train.batch.to_string()),
            ("bptt", train.bptt.to_string()),
            ("precision", model.precision.to_string()),
            ("dropout-output", dropouts.output.to_string()),
            ("dropout-hidden", dropouts.hidden.to_string()),
            ("dropout-input", dropouts.input.to_string()),
            ("dropout-embedding", dropouts.embedding.to_string()),
            ("dropout-weight", dropouts.weight.to_string()),
        ];
        let somewhere = [
            (head.has_contexts(), "latent-lr", train.latent_lr.to_string()),
            (head.has_contexts(), "dropout-latent", dropouts.latent.to_string()),
            (head.is_mixture(), "prior-cv", train.prior_cv.to_string()),
            (head.has_plif(), "knots", model.knots.to_string()),
            (head.has_plif(), "plif-bound", model.plif_bound.to_string()),
        ];
        let of_head = somewhere.into_iter().filter_map(|(has, flag, value)| has.then_some((flag, value)));
        everywhere.into_iter().chain(of_head).collect()
    }

    /// The decay of the learning rate, each part of it from the options or from `before`.
    fn lr_decay(&self, before: Option<LrDecay>) -> Result<Option<LrDecay>, Failure> {
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

fn set<T>(setting: &mut T, given: Option<T>) {
    if let Some(given) = given {
        *setting = given;
    }
}

fn set_some<T>(setting: &mut Option<T>, given: Option<T>) {
    if given.is_some() {
        *setting = given;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use awd_lstm::{HeadKind, Preset};
    use clap::{Command, FromArgMatches};
    use serde_json::{Value, json};

    /// Every option, the rest of the line that it needs, a place in `config.json`, and the value there.
    fn options() -> Vec<(&'static str, &'static str, &'static str, Value)> {
        vec![
            ("--epochs=7", "", "/train/epochs", json!(7)),
            ("--seed=5", "", "/train/seed", json!(5)),
            ("--lr=3.5", "", "/train/lr", json!(3.5)),
            ("--latent-lr=0.25", "", "/train/latent_lr", json!(0.25)),
            ("--lr-decay=0.8", "--lr-decay-from=6", "/train/lr_decay/factor", json!(0.8)),
            ("--lr-decay-from=6", "--lr-decay=0.8", "/train/lr_decay/when/from/epoch", json!(6)),
            ("--lr-decay-on-plateau", "--lr-decay=0.8", "/train/lr_decay/when", json!("plateau")),
            ("--clip=0.5", "", "/train/clip", json!(0.5)),
            ("--weight-decay=0.001", "", "/train/weight_decay", json!(0.001)),
            ("--alpha=0.75", "", "/train/alpha", json!(0.75)),
            ("--beta=0.25", "", "/train/beta", json!(0.25)),
            ("--prior-cv=0.125", "", "/train/prior_cv", json!(0.125)),
            ("--nonmono=3", "", "/train/nonmono", json!(3)),
            ("--average-from-start", "", "/train/average_from_start", json!(true)),
            ("--validate-every=50", "", "/train/validate_every", json!(50)),
            ("--patience=9", "", "/train/patience", json!(9)),
            ("--max-time=1h30m", "", "/train/max_minutes", json!(90.0)),
            ("--no-test", "", "/train/test", json!(false)),
            ("--batch=4", "", "/train/batch", json!(4)),
            ("--small-batch=2", "", "/train/small_batch", json!(2)),
            ("--eval-batch=3", "", "/train/eval_batch", json!(3)),
            ("--test-batch=2", "", "/train/test_batch", json!(2)),
            ("--bptt=9", "", "/train/bptt", json!(9)),
            ("--max-seq-len-delta=11", "", "/train/max_seq_len_delta", json!(11)),
            ("--d-embedding=16", "", "/model/d_embedding", json!(16)),
            ("--lstm=20,12", "", "/model/lstm_sizes", json!([20, 12])),
            ("--layers=3", "", "/model/lstm_sizes", json!([256, 256, 128])),
            ("--last-lstm=96", "", "/model/lstm_sizes", json!([256, 96])),
            ("--untied", "", "/model/tied", json!(false)),
            ("--components=2", "", "/model/components", json!(2)),
            ("--lower-components=2,1", "", "/model/lower_components", json!([2, 1])),
            ("--cutoffs=5,20", "", "/model/cutoffs", json!([5, 20])),
            ("--frequent=21", "", "/model/frequent", json!(21)),
            ("--d-gate=5", "", "/model/d_gate", json!(5)),
            ("--knots=33", "", "/model/knots", json!(33)),
            ("--plif-bound=5.5", "", "/model/plif_bound", json!(5.5)),
            ("--precision=bf16", "", "/model/precision", json!("bf16")),
            ("--dropout-output=0.11", "", "/model/dropouts/output", json!(0.11)),
            ("--dropout-hidden=0.12", "", "/model/dropouts/hidden", json!(0.12)),
            ("--dropout-input=0.13", "", "/model/dropouts/input", json!(0.13)),
            ("--dropout-latent=0.14", "", "/model/dropouts/latent", json!(0.14)),
            ("--dropout-embedding=0.15", "", "/model/dropouts/embedding", json!(0.15)),
            ("--dropout-weight=0.16", "", "/model/dropouts/weight", json!(0.16)),
        ]
    }

    fn command() -> Command {
        Overrides::augment_args(Command::new("settings").no_binary_name(true))
    }

    fn parse(line: &str) -> Overrides {
        let matches = command().try_get_matches_from(line.split_whitespace()).unwrap();
        Overrides::from_arg_matches(&matches).unwrap()
    }

    /// A preset's model and procedure after the options of `line`.
    fn configured(head: HeadKind, line: &str) -> (ModelConfig, TrainConfig) {
        let (given, mut train) = (parse(line), Preset::Small.train());
        let mut model = Preset::Small.model(head, 50);
        given.apply_to_model(&mut model);
        given.apply_to_procedure(&mut train).unwrap();
        (model, train)
    }

    /// The settings of a preset after the options of `line`.
    fn settings(line: &str) -> Value {
        let (model, train) = configured(HeadKind::MosPlif, line);
        train.validate().unwrap();
        model.validate().unwrap();
        json!({"model": model, "train": train})
    }

    /// Places and values of everything that is no object.
    fn leaves(value: &Value, place: &str) -> Vec<(String, Value)> {
        match value {
            Value::Object(fields) => {
                fields.iter().flat_map(|(name, value)| leaves(value, &format!("{place}/{name}"))).collect()
            }
            other => vec![(place.to_string(), other.clone())],
        }
    }

    #[test]
    fn every_option_sets_its_setting_and_no_other() {
        for (option, more, place, expected) in options() {
            let (without, with) = (settings(""), settings(&format!("{option} {more}")));
            assert_eq!(with.pointer(place), Some(&expected), "{option}");
            assert_ne!(without.pointer(place), Some(&expected), "{option} is the preset's");
            let before = leaves(&without, "");
            let changed = leaves(&with, "").into_iter().filter(|leaf| !before.contains(leaf));
            let places: Vec<String> = changed.map(|(place, _)| place).collect();
            let decay = "/train/lr_decay";
            assert!(
                places.iter().all(|other| other == place || other.starts_with(decay)),
                "{option}: {places:?}"
            );
        }
    }

    #[test]
    fn a_configuration_says_what_its_options_were() {
        let of = |head, line: &str| {
            let (model, train) = configured(head, line);
            Overrides::of(&model, &train)
        };
        let of_all = of(HeadKind::MosPlif, "");
        assert!(of_all.len() > 15);
        for (flag, before) in of_all {
            let listed = options().into_iter().find(|(option, ..)| name(option) == format!("--{flag}"));
            let (option, more, ..) = listed.unwrap();
            let (_, value) = option.split_once('=').unwrap();
            assert_ne!(before, value, "{flag}");
            let after = of(HeadKind::MosPlif, &format!("{option} {more}"));
            let said = after.iter().find(|(other, _)| *other == flag).unwrap();
            assert_eq!(said.1, value, "{flag}");
        }
        let flags: Vec<_> = of(HeadKind::Softmax, "").into_iter().map(|(flag, _)| flag).collect();
        assert!(flags.contains(&"lr") && !flags.contains(&"latent-lr") && !flags.contains(&"knots"));
    }

    #[test]
    fn every_setting_has_an_option() {
        let listed: Vec<&str> = options().iter().map(|(option, ..)| &option[2..]).map(name).collect();
        let command = command();
        let defined: Vec<&str> = command.get_arguments().map(|arg| arg.get_long().unwrap()).collect();
        assert_eq!(listed, defined);
        // All that a run's configuration says of its procedure can be given.
        let every = "--latent-lr=2 --lr-decay=0.8 --lr-decay-on-plateau --validate-every=2 --patience=3 --max-time=8h --no-test \
                     --small-batch=1";
        let settings = settings(every);
        let sections = ["train", "model"].map(|name| settings[name].as_object().unwrap().clone());
        for setting in sections.iter().flat_map(|section| section.keys()) {
            let fixed = ["head", "vocab", "dropouts", "lr_decay"].contains(&setting.as_str());
            let place = format!("/{setting}");
            assert!(fixed || options().iter().any(|(_, _, at, _)| at.ends_with(&place)), "{setting}");
        }
    }

    fn name(option: &str) -> &str {
        option.split('=').next().unwrap_or(option)
    }

    #[test]
    fn switches_can_be_switched_off() {
        let off =
            settings("--untied=false --no-test=false --average-from-start=false --lr-decay-on-plateau=false");
        assert_eq!(off, settings(""));
    }

    #[test]
    fn layers_are_counted_from_the_last() {
        let sizes = |head, line: &str| {
            let mut model = Preset::Paper.model(head, 50);
            parse(line).apply_to_model(&mut model);
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
        let mut train = Preset::Small.train();
        parse("--lr-decay=0.5 --lr-decay-from=3").apply_to_procedure(&mut train).unwrap();
        parse("--lr-decay=0.9").apply_to_procedure(&mut train).unwrap();
        assert_eq!(train.lr_decay, Some(LrDecay { factor: 0.9, when: DecayWhen::From { epoch: 3 } }));
        parse("--lr-decay-on-plateau").apply_to_procedure(&mut train).unwrap();
        assert_eq!(train.lr_decay, Some(LrDecay { factor: 0.9, when: DecayWhen::Plateau }));
        for (line, needed) in
            [("--lr-decay=0.5", "--lr-decay-from EPOCH"), ("--lr-decay-from=3", "need --lr-decay F")]
        {
            let error = parse(line).apply_to_procedure(&mut Preset::Small.train()).unwrap_err();
            assert!(error.to_string().contains(needed), "{line}: {error}");
        }
    }
}
