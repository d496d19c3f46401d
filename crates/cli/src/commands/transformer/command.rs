//! The command: a training, or the perplexities of a saved run.

use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::tensor::Device;
use gpt::{Gpt, GptConfig, GptTask, RunConfig, RunFolder, TrainConfig, Trainer, evaluate};
use highrank::{ContextConfig, LogitMapConfig};
use runs::data::Fingerprint;
use runs::error::{Error, check};
use runs::{Score, Versions, load_weights};
use serde::Serialize;

use super::args::TransformerArgs;
use super::head::Size;
use super::sizes::of_parameters;
use super::text::Text;
use crate::args::TokenArgs;
use crate::commands::scores::{EvalArgs, Scores, Split, Weights, first};
use crate::device;
use crate::failure::Failure;
use crate::files::check_run_folder;
use crate::interrupt::Interrupt;
use crate::print::{print_json, print_note};
use crate::progress::ShareBar;
use crate::training::{Output, absolute, fit, fresh_folder, require_test};

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
    /// Where the run is.
    run: String,
}

/// Runs the command. `command` continues a run that is stopped, with `--resume RUN`.
///
/// # Errors
/// Bad input, or what goes wrong in training. Nothing is written before all input is found to be good.
pub fn run(args: &TransformerArgs, command: String) -> Result<(), Failure> {
    let scored = args.given.value("train.eval_tokens");
    check(
        scored.is_none_or(|tokens: usize| tokens > 1),
        "eval_tokens",
        scored.unwrap_or_default(),
        "at least 2",
    )?;
    if let Some(path) = &args.run {
        return eval(&EvalArgs {
            run: path.clone(),
            data: args.data.clone(),
            split: None,
            max_tokens: scored,
            weights: Weights::Best,
            device: args.device,
            json: args.json,
            tokens: TokenArgs::default(),
        });
    }
    let output = Output::new(command, args.json, &args.record, Interrupt::of_training(true)?)?;
    if let Some(path) = &args.resume {
        return resume(args, path, &output);
    }
    args.head.validate()?;
    args.out.as_deref().map_or(Ok(()), check_run_folder)?;
    if let Some(path) = &args.from {
        return continue_from(args, path, &output);
    }
    // Settings are checked before the text is read, whatever its vocabulary and length turn out to be.
    let text_config = args.text_config();
    let model = args.model(Size::new(1, text_config.vocab_size));
    model.validate()?;
    args.procedure(model.context, model.context).validate()?;
    let text = Text::load(args.data.as_deref(), &text_config)?;
    let model = args.model(Size::new(text.corpus.vocabulary().len(), text_config.vocab_size));
    let name = device::resolve(args.device);
    let device = device::open(name)?;
    let model = match args.model.parameters {
        Some(parameters) => of_parameters(&model, parameters, &device)?,
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
    train(args, config, &text, &device, &output)
}

/// Starts a run from the best model of another, with the head that is asked for.
fn continue_from(args: &TransformerArgs, path: &Path, output: &Output) -> Result<(), Failure> {
    let origin = RunFolder::open(path)?;
    let config = origin.config()?;
    let of_run = &config.model;
    origin.best_weights()?;
    let vocabulary = Size { words: of_run.head.vocab, rows: of_run.head.rows() };
    let model = GptConfig {
        head: args
            .head
            .config(of_run.d_model, of_run.head.d_embedding, vocabulary)
            .with_tied(of_run.head.tied),
        facets: args.head.facets.map(|facets| facets.0),
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
    let head = (&of_run.head.context, &of_run.head.logit_map);
    let is_softmax = matches!(head, (ContextConfig::Direct(_), LogitMapConfig::Identity));
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
    let text = Text::load(data, &config.text)?;
    config.corpus.check(&text.corpus)?;
    let name = device::resolve(args.device);
    let device = device::open(name)?;
    let config = RunConfig {
        versions: Versions::current(),
        preset: args.head.head.to_string(),
        device: name.to_string(),
        data: data.map_or_else(PathBuf::new, absolute),
        finetunes: Some(absolute(path)),
        train: args.procedure(text.corpus.train().len(), model.context),
        model,
        extensions: vec![],
        ..config
    };
    train(args, config, &text, &device, output)
}

fn train(
    args: &TransformerArgs,
    config: RunConfig,
    text: &Text,
    device: &Device,
    output: &Output,
) -> Result<(), Failure> {
    let mut trainer = trainer(&config, text, device, output)?;
    start(&mut trainer, &config, device)?;
    let path = args.out.clone();
    let path =
        path.unwrap_or_else(|| fresh_folder(&format!("transformer-{}-{}", config.preset, config.train.seed)));
    let run = RunFolder::create(&path, &config, text.corpus.vocabulary())?;
    fit_and_print(trainer, &run, text, output)
}

/// Starts from the best model of the run that this one continues, if there is one.
fn start(trainer: &mut Trainer, config: &RunConfig, device: &Device) -> Result<(), Failure> {
    let Some(origin) = &config.finetunes else { return Ok(()) };
    let (run, device) = (RunFolder::open(origin)?, device.clone().autodiff());
    let before = load_weights(run.config()?.model.try_init(&device)?, &run.best_weights()?)?;
    trainer.start_with(before.with_head_of(trainer.model().clone()))?;
    Ok(())
}

fn resume(args: &TransformerArgs, path: &Path, output: &Output) -> Result<(), Failure> {
    let run = RunFolder::resume(path)?;
    let config = run.config()?;
    let text = Text::load(args.data.as_deref().or(config.data_folder()), &config.text)?;
    config.corpus.check(&text.corpus)?;
    let device = device::open(config.device.parse()?)?;
    let mut trainer = trainer(&config, &text, &device, output)?;
    trainer.restore(&run)?;
    if trainer.best().is_none() {
        start(&mut trainer, &config, &device)?;
    }
    fit_and_print(trainer, &run, &text, output)
}

fn trainer(config: &RunConfig, text: &Text, device: &Device, output: &Output) -> Result<Trainer, Failure> {
    if config.train.tests() {
        require_test(&text.corpus, &config.data)?;
    }
    device::check_room(config.device.parse()?, config.model.num_params(device)?)?;
    let trainer = Trainer::new(GptTask::new(&config.model, &config.train, &text.corpus, device)?);
    Ok(trainer.with_checkpoint_every(output.checkpoint_every).with_log_every(output.log_every()))
}

/// Trains to the end, and prints what came of it.
fn fit_and_print(mut trainer: Trainer, run: &RunFolder, text: &Text, output: &Output) -> Result<(), Failure> {
    let (config, path) = (run.config()?, run.path().display().to_string());
    let (parameters, head) = (trainer.model().num_params(), &config.model.head);
    let rounds = trainer.state().epoch;
    print_note(format_args!(
        "{} with {parameters} parameters, {} words, {} training tokens, {} steps, run folder {path}{}",
        config.preset,
        head.vocab,
        text.corpus.train().len(),
        config.train.steps,
        if rounds > 0 { format!(", {rounds} rounds done") } else { String::new() },
    ));
    let last = fit(&mut trainer, run, output.progress(), output)?;
    let best = trainer.best().expect("a finished run has a best model");
    let valid = score(Split::Valid.what(), best, text.corpus.valid(), &config.train)?;
    let mut scores = Scores::default();
    scores.set(Split::Valid, valid.perplexity(), valid.accuracy());
    if config.train.tests() {
        scores.set(Split::Test, last.test_ppl.unwrap_or(f64::NAN), last.test_accuracy);
        scores.floor_ppl = text.floor_ppl(config.train.eval_tokens.unwrap_or(usize::MAX));
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
        run: path,
    };
    if output.json {
        print_json(&outcome);
    } else {
        println!(
            "{} with {parameters} parameters after {} steps: {}; saved in {}",
            outcome.head,
            outcome.steps,
            outcome.scores.text(config.text.characters),
            outcome.run
        );
    }
    Ok(())
}

/// Prints the perplexities of a saved run.
///
/// # Errors
/// Bad input: no run, a damaged one, text that the model's vocabulary does not cover, weights that it does not keep.
pub fn eval(args: &EvalArgs) -> Result<(), Failure> {
    if let Some(tokens) = args.max_tokens {
        check(tokens > 1, "max-tokens", tokens, "at least 2")?;
    }
    let run = RunFolder::open(&args.run)?;
    let config = run.config()?;
    let data = args.data.as_deref().or(config.data_folder());
    let weights = match args.weights.file(&run) {
        // One that was stopped before its first validation.
        Err(Error::NotARun { .. }) if args.weights == Weights::Best => run.last_weights()?,
        file => file?,
    };
    let device = device::open(device::resolve(args.device))?;
    let text = match args.split {
        Some(Split::Train) => {
            let text = Text::load(data, &config.text)?;
            config.corpus.check(&text.corpus)?;
            text
        }
        _ => Text::load_held_out(data, &config.text, run.vocabulary()?)?,
    };
    let model = load_weights(config.model.try_init(&device)?, &weights)?;
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
        print_json(&scores);
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
