//! The command: a comparison, a training, or the perplexities of a saved run.

use std::path::Path;
use std::sync::PoisonError;
use std::time::Instant;

use awd_lstm::HeadKind;
use burn::tensor::Device;
use burn::train::Interrupter;
use gpt::{Gpt, GptConfig, Score, evaluate};
use runs::Error;
use runs::error::check;
use serde::Serialize;

use super::args::TransformerArgs;
use super::compare::Comparison;
use super::head::{HeadArgs, Size};
use super::run_folder::{RunConfig, RunFolder};
use super::sizes::matching;
use super::text::Text;
use super::view::{History, View};
use crate::args::Head;
use crate::device::{self, DeviceName};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::print::{print_json, print_note};
use crate::progress::ShareBar;
use crate::training::fresh_folder;

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
    /// Of the last round, as met, with dropout.
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
    valid_accuracy: f64,
    test_accuracy: f64,
    /// The language's own perplexity on the test text, if it is generated.
    #[serde(skip_serializing_if = "Option::is_none")]
    floor_ppl: Option<f64>,
}

/// Runs the program.
///
/// # Errors
/// Bad input, or what goes wrong in training. Nothing is written before all input is found to be good.
pub fn run(args: &TransformerArgs) -> Result<(), Failure> {
    check(args.repeats > 0, "repeats", args.repeats, "at least 1")?;
    let scored = args.training.eval_tokens;
    check(scored.is_none_or(|tokens| tokens > 1), "eval_tokens", scored.unwrap_or_default(), "at least 2")?;
    if let Some(path) = &args.run {
        return score_run(args, path);
    }
    args.head.validate()?;
    // Settings are checked before the text is read, whatever its vocabulary and length turn out to be.
    let model = args.model(&args.head, args.d_embedding(), Size::new(1, args.text.vocab_size));
    model.validate()?;
    if args.trains() {
        args.procedure(model.context, model.context).validate()?;
    }
    if let Some(path) = args.out.as_ref().filter(|path| RunFolder::exists(path)) {
        return Err(Error::RunExists { path: path.clone() }.into());
    }
    let text = Text::load(args.data.as_deref(), &args.text.config())?;
    let vocabulary = Size::new(text.corpus.vocabulary().len(), args.text.vocab_size);
    let name = device::resolve(args.device);
    let device = device::open(name)?;
    let softmax = args.model(&softmax_of(&args.head), args.d_embedding(), vocabulary);
    let model = match args.model.equal_parameters {
        true => matching(
            |width| args.model(&args.head, width, vocabulary),
            softmax.num_params(&device)?,
            &device,
        )?,
        false => args.model(&args.head, args.d_embedding(), vocabulary),
    };
    if args.compare {
        let head = args.head.head;
        let mut models = vec![(HeadKind::Softmax.to_string(), softmax)];
        if head != Head::Common(HeadKind::Softmax) {
            models.push((head.to_string(), model.clone()));
        }
        let (batch, repeats) = (args.training.batch, args.repeats);
        let comparison = Comparison { models, batch, repeats, name, device: &device };
        if let Some(row) = &args.memory_of {
            return comparison.print_memory(row);
        }
        comparison.run(args.json)?;
    }
    if args.trains() { train(args, &text, model, name, &device) } else { Ok(()) }
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
) -> Result<(), Failure> {
    let config = RunConfig {
        head: args.head.head.to_string(),
        device: name.to_string(),
        data: args.data.as_ref().map(|data| std::fs::canonicalize(data).unwrap_or_else(|_| data.clone())),
        text: args.text.config(),
        train: args.procedure(text.corpus.train().len(), model.context),
        model,
    };
    config.train.validate_for(&text.corpus, config.model.context)?;
    let path = args.out.clone();
    let path =
        path.unwrap_or_else(|| fresh_folder(&format!("transformer-{}-{}", config.head, config.train.seed)));
    let run = RunFolder::create(&path, &config, text.corpus.vocabulary())?;
    let (parameters, head) = (config.model.num_params(device)?, &config.model.head);
    print_note(format_args!(
        "{} with {parameters} parameters, {} words, {} training tokens, {} steps, run folder {}",
        config.head,
        head.vocab,
        text.corpus.train().len(),
        config.train.steps,
        path.display(),
    ));
    let training = device.clone().autodiff();
    training.seed(config.train.seed);
    let (interrupt, interrupter) = (Interrupt::of_training(true)?, Interrupter::new());
    let view = View::new(&config.train, args.json, &interrupt, &interrupter);
    let history = view.history();
    let started = Instant::now();
    let model = config.model.try_init(&training)?;
    let trained = gpt::train(model, &config.train, &text.corpus, &path, Box::new(view), interrupter)?;
    let seconds = started.elapsed().as_secs_f64();
    let History { rounds, trained: (tokens, busy), failure } =
        std::mem::take(&mut *history.lock().unwrap_or_else(PoisonError::into_inner));
    if let Some(failure) = failure.or_else(|| trained.error.map(|error| error.to_string())) {
        return Err(failure.into());
    }
    run.save_model(&trained.model)?;
    if interrupt.is_noted() {
        return Err(interrupt.end(format!("stopped; the model is saved in {}", path.display())).into());
    }
    let outcome = Outcome {
        head: config.head.clone(),
        device: config.device.clone(),
        parameters,
        vocab: head.vocab,
        rows: head.rows(),
        d_model: config.model.d_model,
        d_embedding: head.d_embedding,
        steps: config.train.steps,
        seconds,
        tokens_per_s: tokens as f64 / busy,
        train_ppl: rounds.last().map_or(f64::NAN, |round| round.train_ppl),
        scores: score(&trained.model, text, config.train.batch, args.training.eval_tokens)?,
        run: path.display().to_string(),
    };
    let lines = rounds.iter().map(serde_json::to_value).chain([serde_json::to_value(&outcome)]);
    run.save_metrics(lines.collect::<Result<Vec<_>, _>>()?)?;
    if args.json {
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

/// Prints the perplexities of a saved run.
fn score_run(args: &TransformerArgs, path: &Path) -> Result<(), Failure> {
    let run = RunFolder::open(path)?;
    let config = run.config()?;
    let device = device::open(device::resolve(args.device))?;
    let data = args.data.as_ref().or(config.data.as_ref());
    let text = Text::load_held_out(data.map(|data| data.as_path()), &config.text, run.vocabulary()?)?;
    let model = run.model(&config.model, &device)?;
    let scores = score(&model, &text, config.train.batch, args.training.eval_tokens)?;
    if args.json {
        print_json(&scores);
    } else {
        println!("{} in {}: {}", config.head, run.path().display(), scores.text());
    }
    Ok(())
}

/// Scores the validation and the test text, or the beginning of each.
fn score(model: &Gpt, text: &Text, batch: usize, tokens: Option<usize>) -> Result<Scores, Failure> {
    let beginning = |text| -> &[u32] {
        let text: &[u32] = text;
        &text[..tokens.unwrap_or(text.len()).min(text.len())]
    };
    let (valid, test) = (beginning(text.corpus.valid()), beginning(text.corpus.test()));
    let scored = |what, text| -> Result<Score, Failure> {
        let bar = ShareBar::new(what);
        let score = evaluate(model, text, batch, |share| bar.set(share))?;
        match score.nll.is_finite() {
            true => Ok(score),
            false => Err(format!("the perplexity of the {what} is not finite").into()),
        }
    };
    let floor_ppl = text.floor_ppl(test.len());
    let (valid, test) = (scored("validation text", valid)?, scored("test text", test)?);
    Ok(Scores {
        valid_ppl: valid.perplexity(),
        test_ppl: test.perplexity(),
        valid_accuracy: valid.accuracy(),
        test_accuracy: test.accuracy(),
        floor_ppl,
    })
}

impl Scores {
    fn text(&self) -> String {
        let Self { valid_ppl, test_ppl, test_accuracy, .. } = self;
        let floor =
            self.floor_ppl.map_or(String::new(), |floor| format!(" (the language's own: {floor:.2})"));
        format!(
            "perplexity valid {valid_ppl:.2}, test {test_ppl:.2}{floor}, accuracy test {test_accuracy:.1} %"
        )
    }
}
