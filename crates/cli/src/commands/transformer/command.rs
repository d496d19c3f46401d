//! The command: a training, or the perplexities of a saved run.

use std::path::{Path, PathBuf};

use awd_lstm::HeadKind;
use burn::module::Module;
use burn::tensor::Device;
use gpt::{Gpt, GptConfig, GptTask, RunConfig, RunFolder, TrainConfig, Trainer, evaluate};
use runs::data::Fingerprint;
use runs::error::{Error, check};
use runs::{Score, Versions, load_weights};
use serde::Serialize;

use super::args::TransformerArgs;
use super::head::{HeadArgs, Size};
use super::sizes::matching;
use super::text::Text;
use crate::args::Head;
use crate::device::{self, DeviceName};
use crate::failure::Failure;
use crate::files::check_run_folder;
use crate::interrupt::Interrupt;
use crate::print::{print_json, print_note};
use crate::progress::ShareBar;
use crate::training::{Output, absolute, fit, fresh_folder};

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

/// How well the held-out texts are predicted.
#[derive(Debug, Clone, Serialize)]
struct Scores {
    valid_ppl: f64,
    test_ppl: f64,
    /// In percent.
    valid_accuracy: Option<f64>,
    test_accuracy: Option<f64>,
    /// The language's own perplexity on the test text, if it is generated.
    #[serde(skip_serializing_if = "Option::is_none")]
    floor_ppl: Option<f64>,
}

/// Runs the command. `command` continues a run that is stopped, with `--resume RUN`.
///
/// # Errors
/// Bad input, or what goes wrong in training. Nothing is written before all input is found to be good.
pub fn run(args: &TransformerArgs, command: String) -> Result<(), Failure> {
    let scored = args.training.eval_tokens;
    check(scored.is_none_or(|tokens| tokens > 1), "eval_tokens", scored.unwrap_or_default(), "at least 2")?;
    if let Some(path) = &args.run {
        return score_run(args, path);
    }
    let output = Output::new(command, args.json, &args.record, Interrupt::of_training(true)?)?;
    if let Some(path) = &args.resume {
        return resume(args, path, &output);
    }
    args.head.validate()?;
    // Settings are checked before the text is read, whatever its vocabulary and length turn out to be.
    let model = args.model(&args.head, args.d_embedding(), Size::new(1, args.text.vocab_size));
    model.validate()?;
    args.procedure(model.context, model.context).validate()?;
    args.out.as_deref().map_or(Ok(()), check_run_folder)?;
    let text = Text::load(args.data.as_deref(), &args.text.config())?;
    let vocabulary = Size::new(text.corpus.vocabulary().len(), args.text.vocab_size);
    let name = device::resolve(args.device);
    let device = device::open(name)?;
    let model = match args.model.equal_parameters {
        true => {
            let softmax = args.model(&softmax_of(&args.head), args.d_embedding(), vocabulary);
            let parameters = softmax.num_params(&device)?;
            matching(|width| args.model(&args.head, width, vocabulary), parameters, &device)?
        }
        false => args.model(&args.head, args.d_embedding(), vocabulary),
    };
    train(args, &text, model, name, &device, &output)
}

/// The plain softmax with the precision of another head.
fn softmax_of(head: &HeadArgs) -> HeadArgs {
    let none = HeadArgs {
        head: Head::Common(HeadKind::Softmax),
        components: None,
        activation: None,
        dropout_latent: None,
        knots: None,
        plif_bound: None,
        cap: None,
        units: None,
        precision: head.precision,
    };
    debug_assert!(none.validate().is_ok());
    none
}

fn train(
    args: &TransformerArgs,
    text: &Text,
    model: GptConfig,
    name: DeviceName,
    device: &Device,
    output: &Output,
) -> Result<(), Failure> {
    let config = RunConfig {
        versions: Versions::current(),
        preset: args.head.head.to_string(),
        device: name.to_string(),
        data: args.data.as_deref().map_or_else(PathBuf::new, absolute),
        corpus: Fingerprint::of(&text.corpus),
        finetunes: None,
        text: args.text.config(),
        tokens: None,
        train: args.procedure(text.corpus.train().len(), model.context),
        model,
        extensions: vec![],
    };
    let trainer = trainer(&config, text, device, output)?;
    let path = args.out.clone();
    let path =
        path.unwrap_or_else(|| fresh_folder(&format!("transformer-{}-{}", config.preset, config.train.seed)));
    let run = RunFolder::create(&path, &config, text.corpus.vocabulary())?;
    fit_and_print(trainer, &run, text, output)
}

fn resume(args: &TransformerArgs, path: &Path, output: &Output) -> Result<(), Failure> {
    let run = RunFolder::resume(path)?;
    let config = run.config()?;
    let text = Text::load(data(args, &config), &config.text)?;
    config.corpus.check(&text.corpus)?;
    let device = device::open(config.device.parse()?)?;
    let mut trainer = trainer(&config, &text, &device, output)?;
    trainer.restore(&run)?;
    fit_and_print(trainer, &run, &text, output)
}

/// The folder of a run's text, unless that was generated.
fn data<'a>(args: &'a TransformerArgs, config: &'a RunConfig) -> Option<&'a Path> {
    let of_run = Some(config.data.as_path()).filter(|data| !data.as_os_str().is_empty());
    args.data.as_deref().or(of_run)
}

fn trainer(config: &RunConfig, text: &Text, device: &Device, output: &Output) -> Result<Trainer, Failure> {
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
    let valid = score("validation text", best, text.corpus.valid(), &config.train)?;
    let of_test = config.train.eval_tokens.unwrap_or(usize::MAX).min(text.corpus.test().len());
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
        scores: Scores {
            valid_ppl: valid.perplexity(),
            test_ppl: last.test_ppl.unwrap_or(f64::NAN),
            valid_accuracy: valid.accuracy(),
            test_accuracy: last.test_accuracy,
            floor_ppl: text.floor_ppl(of_test),
        },
        run: path,
    };
    if output.json {
        print_json(&outcome);
    } else {
        println!(
            "{} with {parameters} parameters after {} steps: {}; saved in {}",
            outcome.head,
            outcome.steps,
            outcome.scores.text(),
            outcome.run
        );
    }
    Ok(())
}

/// Prints the perplexities of a saved run: of its best model, or of the last one before there is a best.
fn score_run(args: &TransformerArgs, path: &Path) -> Result<(), Failure> {
    let run = RunFolder::open(path)?;
    let config = run.config()?;
    let device = device::open(device::resolve(args.device))?;
    let text = Text::load_held_out(data(args, &config), &config.text, run.vocabulary()?)?;
    let weights = match run.best_weights() {
        Err(Error::NotARun { .. }) => run.last_weights()?,
        best => best?,
    };
    let model = load_weights(config.model.try_init(&device)?, &weights)?;
    let train = config.train.clone().with_eval_tokens(args.training.eval_tokens);
    let [valid, test] = [("validation text", text.corpus.valid()), ("test text", text.corpus.test())]
        .map(|(what, text)| score(what, &model, text, &train));
    let (valid, test) = (valid?, test?);
    let scores = Scores {
        valid_ppl: valid.perplexity(),
        test_ppl: test.perplexity(),
        valid_accuracy: valid.accuracy(),
        test_accuracy: test.accuracy(),
        floor_ppl: text.floor_ppl(test.tokens + 1),
    };
    if args.json {
        print_json(&scores);
    } else {
        println!("{} in {}: {}", config.preset, run.path().display(), scores.text());
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
        false => Err(format!("the perplexity of the {what} is not finite").into()),
    }
}

impl Scores {
    fn text(&self) -> String {
        let Self { valid_ppl, test_ppl, .. } = self;
        let test_accuracy = self.test_accuracy.unwrap_or(f64::NAN);
        let floor =
            self.floor_ppl.map_or(String::new(), |floor| format!(" (the language's own: {floor:.2})"));
        format!(
            "perplexity valid {valid_ppl:.2}, test {test_ppl:.2}{floor}, accuracy test {test_accuracy:.1} %"
        )
    }
}
