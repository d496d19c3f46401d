//! The command: a training, or the perplexities of a saved run.

use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::tensor::Device;
use gpt::{Gpt, GptConfig, GptTask, RunConfig, RunFolder, TrainConfig, Trainer, Transformer, evaluate};
use highrank::{ContextConfig, LogitMapConfig};
use program::args::TokenArgs;
use program::device;
use program::failure::Failure;
use program::files::check_run_folder;
use program::print::{print_json, print_note};
use program::progress::ShareBar;
use program::ranks::{agree, refuse};
use program::statistics::grouped;
use runs::data::{Fingerprint, Vocabulary};
use runs::error::{Error, check};
use runs::ranks::Ranks;
use runs::{FinalMetrics, Score, Task, Versions, load_weights};
use serde::Serialize;

use super::args::TransformerArgs;
use super::head::Size;
use super::text::Text;
use crate::commands::scores::{EvalArgs, Scores, Split, Weights, first};
use crate::training::{Folder, Job, Kind, Output, absolute, lock, require_test};

/// What came of a run.
#[derive(Debug, Clone, Serialize)]
struct Outcome {
    head: String,
    device: String,
    parameters: usize,
    /// Words of the text.
    vocab: usize,
    /// Rows of the embedding.
    rows: usize,
    d_model: usize,
    d_embedding: usize,
    steps: usize,
    /// Time of the training, its validations included.
    seconds: f64,
    /// Speed of the training alone.
    tokens_per_s: f64,
    /// Of the best round, as met, with dropout.
    train_ppl: f64,
    #[serde(flatten)]
    scores: Scores,
    run: String,
}

/// What `eval` prints.
#[derive(Debug, Serialize)]
struct Evaluated {
    weights: Weights,
    #[serde(flatten)]
    scores: Scores,
}

/// What a training begins with at one process.
type Ready = (Folder<Transformer>, RunConfig, Text);

/// Runs the command. `command` continues a run that is stopped, with `--resume RUN`. Several processes train together, and rank 0 writes
/// and prints. Nothing is written before all input is found to be good.
pub fn run(args: &TransformerArgs, command: String, ranks: &Ranks) -> Result<(), Failure> {
    if let Some(path) = &args.run {
        refuse(ranks, "train --run")?;
        check_scored(args)?;
        return eval(&EvalArgs {
            run: path.clone(),
            data: args.data.clone(),
            split: None,
            max_tokens: args.given.value("train.eval_tokens"),
            weights: None,
            device: args.device,
            json: args.json,
            tokens: TokenArgs::default(),
        });
    }
    agree(ranks, check_scored(args).map_err(Failure::from))?;
    let output = &Output::new(command, args.json, &args.record, ranks, false)?;
    let ranks = &agree(ranks, processes(args, ranks))?;
    let locked = lock(args.resume.as_deref(), ranks)?;
    let ready = match (&args.resume, &args.from) {
        (Some(path), _) => resume(args, path, locked),
        (None, Some(path)) => continue_from(args, path),
        (None, None) => start(args, ranks),
    };
    let (folder, config, text) = agree(ranks, ready)?;
    let vocab_parallel = args.reduce.vocab_parallel;
    Job { config: &config, text: &text, output, ranks, vocab_parallel }.train_and_print(folder)
}

fn check_scored(args: &TransformerArgs) -> Result<(), Error> {
    let scored: Option<usize> = args.given.value("train.eval_tokens");
    check(scored.is_none_or(|tokens| tokens > 1), "eval_tokens", scored.unwrap_or_default(), "at least 2")
}

/// The processes, which send gradients as they are asked to.
fn processes(args: &TransformerArgs, ranks: &Ranks) -> Result<Ranks, Failure> {
    if args.from.is_some() && args.reduce.vocab_parallel > 1 {
        return Err(
            "train --from starts from a whole model: leave --vocab-parallel out, or resume its run with it"
                .into(),
        );
    }
    Ok(args.reduce.apply_after_passes(ranks)?)
}

/// A new run.
fn start(args: &TransformerArgs, ranks: &Ranks) -> Result<Ready, Failure> {
    args.head.validate()?;
    args.out.as_deref().map_or(Ok(()), check_run_folder)?;
    // Settings are checked before the text is read, whatever its vocabulary and length turn out to be.
    let text_config = args.text_config();
    let model = args.model(Size::new(1, text_config.vocab_size));
    model.validate()?;
    args.procedure(model.context, model.context).validate_with(model.context)?;
    let text = Text::load(args.data.as_deref(), &text_config, None)?;
    let model = args.model(Size::new(text.corpus.vocabulary().len(), text_config.vocab_size));
    let name = device::resolve(args.device);
    let model = match args.model.parameters {
        Some(parameters) => model.with_parameters(parameters, &device::open_at(name, ranks.local_rank())?)?,
        None => model,
    };
    let config = RunConfig {
        versions: Versions::current(),
        preset: args.head.head.to_string(),
        device: name.to_string(),
        data: args.data.as_deref().map_or_else(PathBuf::new, absolute),
        corpus: Fingerprint::of(&text.corpus),
        finetunes: None,
        text: text_config,
        tokens: None,
        train: args.procedure(text.corpus.train().len(), model.context),
        model,
        extensions: vec![],
    };
    Ok((new_folder(args, &config), config, text))
}

fn new_folder(args: &TransformerArgs, config: &RunConfig) -> Folder<Transformer> {
    Folder::new(args.out.clone(), || format!("transformer-{}-{}", config.preset, config.train.seed))
}

/// A run from the best model of another, with the head that is asked for.
fn continue_from(args: &TransformerArgs, path: &Path) -> Result<Ready, Failure> {
    if args.given.has_section("text") {
        return Err("train --from keeps how the run's text is read: leave --set text.… out".into());
    }
    args.head.validate()?;
    args.out.as_deref().map_or(Ok(()), check_run_folder)?;
    let origin = RunFolder::open(path)?;
    let config = origin.config()?;
    let of_run = &config.model;
    origin.best_weights()?;
    let vocabulary = Size { words: of_run.head.vocab, rows: of_run.head.rows() };
    let head = (&of_run.head.context, &of_run.head.logit_map);
    let is_softmax = matches!(head, (ContextConfig::Direct(_), LogitMapConfig::Identity));
    let facets = match args.head.facets {
        // Another head keeps its own.
        None if !is_softmax => of_run.facets,
        _ => args.head.facets(of_run.layers, of_run.context),
    };
    // A head that goes on as itself has its own settings where none are given.
    let itself = !is_softmax && config.preset == args.head.head.name();
    let asked = if itself { args.head.or_those_of(&of_run.head) } else { args.head.clone() };
    let model = GptConfig {
        head: asked
            .config(of_run.d_model, of_run.head.d_embedding, facets, vocabulary)
            .with_tied(of_run.head.tied),
        facets,
        ..of_run.clone()
    };
    let model = args.given.apply("model", &model);
    let changes = |model: &GptConfig| GptConfig {
        head: of_run.head.clone(),
        facets: of_run.facets,
        dropout: of_run.dropout,
        ..model.clone()
    };
    if changes(&model) != *of_run {
        return Err(
            "train --from keeps the sizes of the run's model: give a head, its settings and dropout alone"
                .into(),
        );
    }
    if !is_softmax && (model.head != of_run.head || model.facets != of_run.facets) {
        return Err(format!(
            "`{}` has the head {}: a softmax goes on as another head, every other one as itself",
            path.display(),
            config.preset
        )
        .into());
    }
    model.validate()?;
    let data = args.data.as_deref().or(config.data_folder());
    let text = Text::load(data, &config.text, None)?;
    config.corpus.check(&text.corpus)?;
    let config = RunConfig {
        versions: Versions::current(),
        preset: args.head.head.to_string(),
        device: device::resolve(args.device).to_string(),
        data: data.map_or_else(PathBuf::new, absolute),
        finetunes: Some(absolute(path)),
        train: args.procedure(text.corpus.train().len(), model.context),
        model,
        extensions: vec![],
        ..config
    };
    Ok((new_folder(args, &config), config, text))
}

/// A run that goes on; rank 0 has locked it.
fn resume(args: &TransformerArgs, path: &Path, locked: Option<RunFolder>) -> Result<Ready, Failure> {
    let run = locked.map_or_else(|| RunFolder::open(path), Ok)?;
    let config = run.config()?;
    let text = Text::load(args.data.as_deref().or(config.data_folder()), &config.text, None)?;
    config.corpus.check(&text.corpus)?;
    Ok((Folder::Old(run), config, text))
}

impl Kind for &Text {
    type Task = GptTask;

    fn vocabulary(&self) -> &Vocabulary {
        self.corpus.vocabulary()
    }

    fn parameters(config: &RunConfig, device: &Device) -> Result<usize, Failure> {
        Ok(config.model.num_params(device)?)
    }

    fn task(&self, config: &RunConfig, vocabulary: &Ranks, device: &Device) -> Result<GptTask, Failure> {
        if config.train.tests() {
            require_test(&self.corpus, &config.data)?;
        }
        Ok(GptTask::among(vocabulary, &config.model, &config.train, &self.corpus, device)?)
    }

    fn start(trainer: &mut Trainer, origin: &Path, ranks: &Ranks) -> Result<(), Failure> {
        let read = || -> Result<_, Failure> {
            if !trainer.task().shards().are_none() {
                let line = "this run starts from a whole model: resume it without --vocab-parallel until it is saved";
                return Err(line.into());
            }
            let run = RunFolder::open(origin)?;
            let before = run.config()?.model.try_init(trainer.task().device())?;
            if !before.takes_head_of(trainer.model()) {
                let origin = origin.display();
                return Err(format!(
                    "run `{origin}`: its model has other sizes than the run that goes on from it"
                )
                .into());
            }
            Ok(load_weights(before, &run.best_weights()?)?)
        };
        // All have read it before they score it together.
        let before = agree(ranks, read())?;
        let model = before.with_head_of(trainer.model().clone());
        agree(ranks, trainer.start_with(model).map_err(Failure::from))
    }

    fn announce(&self, config: &RunConfig, parameters: usize, place: &str) {
        print_note(format_args!(
            "{} with {} parameters, {} words, {} training tokens, {} steps, {place}",
            config.preset,
            grouped(parameters),
            grouped(config.model.head.vocab),
            grouped(self.corpus.train().len()),
            grouped(config.train.steps),
        ));
    }

    fn done(rounds: usize) -> String {
        if rounds > 0 { format!(", {rounds} rounds done") } else { String::new() }
    }

    /// Scores the best model. The other processes are done by now: one has the whole model.
    fn print(
        &self,
        config: &RunConfig,
        run: &RunFolder,
        last: &FinalMetrics,
        output: &Output,
    ) -> Result<(), Failure> {
        let device = device::open(config.device.parse()?)?;
        let best = load_weights(config.model.try_init(&device)?, &run.best_weights()?)?;
        let (head, parameters) = (&config.model.head, best.num_params());
        let valid = score(Split::Valid.what(), &best, self.corpus.valid(), &config.train)?;
        let mut scores = Scores::default();
        scores.set(Split::Valid, valid.perplexity(), valid.accuracy());
        if config.train.tests() {
            scores.set(Split::Test, last.test_ppl.unwrap_or(f64::NAN), last.test_accuracy);
            scores.floor_ppl = self.floor_ppl(config.train.eval_tokens.unwrap_or(usize::MAX));
        }
        let outcome = Outcome {
            head: config.preset.clone(),
            device: config.device.clone(),
            parameters,
            vocab: head.vocab,
            rows: head.rows(),
            d_model: config.model.d_model,
            d_embedding: head.d_embedding,
            steps: config.train.steps,
            seconds: last.seconds,
            tokens_per_s: last.tokens_per_s,
            train_ppl: last.train_ppl.unwrap_or(f64::NAN),
            scores,
            run: run.path().display().to_string(),
        };
        if output.json {
            print_json(&outcome);
        } else {
            println!(
                "{} with {} parameters after {} steps: {}; saved in {}",
                outcome.head,
                grouped(parameters),
                grouped(outcome.steps),
                outcome.scores.text(config.text.characters),
                outcome.run
            );
        }
        Ok(())
    }
}

/// Prints the perplexities of a saved run.
pub fn eval(args: &EvalArgs) -> Result<(), Failure> {
    if let Some(tokens) = args.max_tokens {
        check(tokens > 1, "max-tokens", tokens, "at least 2")?;
    }
    let run = RunFolder::open(&args.run)?;
    let config = run.config()?;
    let data = args.data.as_deref().or(config.data_folder());
    let (weights, file) = match (args.weights, run.best_weights()) {
        (Some(weights), _) => (weights, weights.file(&run)?),
        // It was stopped before its first validation.
        (None, Err(Error::NoWeights { .. })) => {
            let file = run.last_weights()?;
            print_note("no validation has chosen the best weights yet: the last ones are scored");
            (Weights::Last, file)
        }
        (None, file) => (Weights::Best, file?),
    };
    let device = device::open(device::resolve(args.device))?;
    let text = match args.split {
        Some(Split::Train) => {
            let text = Text::load(data, &config.text, None)?;
            config.corpus.check(&text.corpus)?;
            text
        }
        _ => Text::load(data, &config.text, Some(run.vocabulary()?))?,
    };
    let model = load_weights(config.model.try_init(&device)?, &file)?;
    let train = config.train.clone().with_eval_tokens(args.max_tokens);
    let mut scores = Scores::default();
    for split in [Split::Train, Split::Valid, Split::Test] {
        if args.split.map_or(split == Split::Train, |wanted| wanted != split) {
            continue;
        }
        let ids = match split {
            Split::Train => first(text.corpus.train(), args.max_tokens),
            Split::Valid => text.corpus.valid().to_vec(),
            Split::Test => {
                require_test(&text.corpus, data.unwrap_or(Path::new("")))?;
                text.corpus.test().to_vec()
            }
        };
        let score = score(split.what(), &model, &ids, &train)?;
        scores.set(split, score.perplexity(), score.accuracy());
        if split == Split::Test {
            scores.floor_ppl = text.floor_ppl(score.tokens + 1);
        }
    }
    if args.json {
        print_json(&Evaluated { weights, scores });
    } else {
        println!("{}", scores.text(config.text.characters));
    }
    Ok(())
}

/// Scores a text, or the beginning of it that the procedure scores at the end.
fn score(what: &str, model: &Gpt, text: &[u32], train: &TrainConfig) -> Result<Score, Failure> {
    let text = &text[..train.eval_tokens.unwrap_or(text.len()).min(text.len())];
    let bar = ShareBar::new(what);
    let score = evaluate(model, text, train.batch, |share| bar.set(share))?;
    match score.nll.is_finite() {
        true => Ok(score),
        false => Err(format!("the perplexity of {what} is not finite").into()),
    }
}
