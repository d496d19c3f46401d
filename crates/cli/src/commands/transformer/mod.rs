//! `transformer`: a small GPT with any output layer, trained as a run that can be continued, and `eval` of such a run.

mod args;
mod head;

use std::path::{Path, PathBuf};
use std::time::Instant;

use awd_lstm::language::{Language, LanguageConfig};
use burn::module::Module;
use burn::tensor::Device;
use gpt::{Gpt, GptConfig, GptTask, RunConfig, RunFolder, TrainConfig, Trainer, Transformer, evaluate};
use highrank::{ContextConfig, HeadConfig, LogitMapConfig, Precision, TimeAxis};
use program::device;
use program::failure::Failure;
use program::files::{refuse_file, text_folder};
use program::print::{print_json, print_note, with_bits};
use program::progress::ShareBar;
use program::ranks::agree;
use program::statistics::grouped;
use runs::data::{Corpus, Fingerprint, TextConfig, Vocabulary};
use runs::error::{Error, check};
use runs::ranks::Ranks;
use runs::{FinalMetrics, Score, Task, Versions, load_weights};
use serde::Serialize;

pub use self::args::TransformerArgs;
use crate::commands::scores::{EvalArgs, Evaluated, Scores, Split, Weights, first};
use crate::training::{Folder, Job, Kind, Output, absolute, lock, note_other_texts, require_test};

/// A corpus, and the language that it was drawn from, if it is known.
struct Text {
    corpus: Corpus,
    language: Option<Language>,
}

impl Text {
    /// The texts of a folder, or generated ones; held-out ones in the words of a saved model if its `vocabulary` is given.
    fn load(data: Option<&Path>, text: &TextConfig, vocabulary: Option<Vocabulary>) -> Result<Self, Failure> {
        data.map_or(Ok(()), refuse_file)?;
        let corpus = match (data, vocabulary) {
            (None, _) => return Self::generate(text),
            (Some(folder), None) => Corpus::load(folder, text)?,
            (Some(folder), Some(vocabulary)) => Corpus::load_held_out(folder, vocabulary, text)?,
        };
        Ok(Self { corpus, language: None })
    }

    fn generate(text: &TextConfig) -> Result<Self, Failure> {
        let options = [("--characters", text.characters), ("--lower-case", text.lower_case)];
        if let Some((option, _)) = options.into_iter().find(|(_, given)| *given) {
            return Err(
                format!("{option} is given, but the generated language has words only: give --data").into()
            );
        }
        text.validate()?;
        let mut config = LanguageConfig::default();
        config.vocab = text.vocab_size.map_or(config.vocab, |size| size.min(config.vocab));
        // The language's own check names sizes that no option sets.
        let least = 1 + config.topics + config.favourites;
        if config.vocab < least {
            return Err(format!(
                "vocab_size is {}, but must be at least {least} for the generated language: give more, or --data",
                config.vocab
            )
            .into());
        }
        let language = Language::new(config)?;
        Ok(Self { corpus: language.corpus()?, language: Some(language) })
    }

    /// The lowest perplexity that the first `tokens` tokens of the test text can be expected to have, where it is known.
    fn floor_ppl(&self, tokens: usize) -> Option<f64> {
        let test = self.corpus.test();
        self.language.as_ref().map(|language| language.mean_nll(&test[..tokens.min(test.len())]).exp())
    }
}

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

/// What a training begins with at one process.
type Ready = (Folder<Transformer>, RunConfig, Text);

/// Runs the command. `command` continues a run that is stopped, with `--resume RUN`. Several processes train together, and rank 0 writes
/// and prints. Nothing is written before all input is found to be good.
pub fn run(args: &TransformerArgs, command: String, ranks: &Ranks) -> Result<(), Failure> {
    let scored: Option<usize> = args.given.value("train.eval_tokens");
    let good = scored.is_none_or(|tokens| tokens > 1);
    let checked = check(good, "eval_tokens", scored.unwrap_or_default(), "at least 2");
    agree(ranks, checked.map_err(Failure::from))?;
    let output = &Output::new(command, args.json, &args.record, ranks, false)?;
    if args.from.is_some() && args.reduce.vocab_parallel > 1 {
        let line =
            "train --from starts from a whole model: leave --vocab-parallel out, or resume its run with it";
        return agree(ranks, Err(line.into()));
    }
    let ranks = &agree(ranks, args.reduce.apply_to(ranks).map_err(Failure::from))?;
    let ready = match (&args.resume, &args.from) {
        (Some(path), _) => resume(args, lock(path, ranks)?),
        (None, Some(path)) => continue_from(args, path),
        (None, None) => start(args, ranks),
    };
    let (folder, config, text) = agree(ranks, ready)?;
    let vocab_parallel = args.reduce.vocab_parallel;
    Job { config: &config, text: &text, output, ranks, vocab_parallel }.train_and_print(folder)
}

/// A new run.
fn start(args: &TransformerArgs, ranks: &Ranks) -> Result<Ready, Failure> {
    args.head.validate()?;
    if let (Some(_), Some(place)) = (args.model.parameters, args.given.overlapping("model.d_ff")) {
        return Err(
            format!("--parameters chooses `d_ff`, which --set {place} gives: leave one of them out").into()
        );
    }
    let folder = new_folder(args)?;
    // Settings are checked before the text is read, whatever its vocabulary and length turn out to be.
    let model = args.model(1);
    model.validate()?;
    // An epoch has as many steps as any warmup needs.
    args.procedure(u32::MAX as usize, &model, None).validate_with(model.context)?;
    let text_config = args.text_config();
    let text = Text::load(args.data.as_deref(), &text_config, None)?;
    let model = args.model(text.corpus.vocabulary().len());
    let name = device::resolve(args.device);
    // Before parameters are counted, which makes some of them.
    let of_vocabulary = model.head.decoder_rows().saturating_mul(model.head.d_embedding);
    device::check_room(name, of_vocabulary / args.reduce.vocab_parallel)?;
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
        train: args.procedure(text.corpus.train().len(), &model, None),
        model,
        extensions: vec![],
    };
    Ok((folder, config, text))
}

/// The folder of a new run.
fn new_folder(args: &TransformerArgs) -> Result<Folder<Transformer>, Failure> {
    Folder::new(args.out.as_deref(), || format!("transformer-{}-{}", args.head.head, args.seed()))
}

/// A run from the best model of another, with the head that is asked for.
fn continue_from(args: &TransformerArgs, path: &Path) -> Result<Ready, Failure> {
    if args.given.has_section("text") {
        return Err("train --from keeps how the run's text is read: leave --set text.… out".into());
    }
    args.head.validate()?;
    let folder = new_folder(args)?;
    let origin = RunFolder::open(path)?;
    let config = origin.config()?;
    let of_run = &config.model;
    origin.best_weights()?;
    let head = (&of_run.head.context, &of_run.head.logit_map);
    let is_softmax = matches!(head, (ContextConfig::Direct(_), LogitMapConfig::Identity));
    // A head that goes on as itself has its own settings where none are given.
    let itself = config.preset == args.head.head.name();
    let facets = match args.head.facets {
        None if itself || !is_softmax => of_run.facets,
        _ => args.head.facets(of_run.layers, of_run.context),
    };
    let asked = if itself { args.head.or_those_of(&of_run.head) } else { args.head.clone() };
    let HeadConfig { d_embedding, vocab, tied, .. } = of_run.head;
    let head = asked.config(of_run.d_model, d_embedding, facets, vocab, of_run.head.decoder_rows());
    let model = GptConfig { head: head.with_tied(tied), facets, ..of_run.clone() };
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
    if !is_softmax && !keeps_head(of_run, &model) {
        return Err(format!(
            "`{}` has the head {}: a softmax goes on as another head, every other one as itself, with its own settings but \
             --precision and --dropout-latent",
            path.display(),
            config.preset
        )
        .into());
    }
    model.validate()?;
    let data = folder_of(args.data.as_deref(), &config)?;
    let text = Text::load(data, &config.text, None)?;
    config.corpus.check(&text.corpus)?;
    let config = RunConfig {
        versions: Versions::current(),
        preset: args.head.head.to_string(),
        device: device::resolve(args.device).to_string(),
        data: data.map_or_else(PathBuf::new, absolute),
        finetunes: Some(absolute(path)),
        train: args.procedure(text.corpus.train().len(), &model, Some(&config.train)),
        model,
        extensions: vec![],
        ..config
    };
    Ok((folder, config, text))
}

/// Whether one model goes on as the other with its head as it is: all that the head has learned fits, whatever its precision and
/// latent dropout are now.
fn keeps_head(before: &GptConfig, now: &GptConfig) -> bool {
    // Without latent features there is nothing to drop, and nothing is set.
    let learned = |head: &HeadConfig| {
        head.clone().with_precision(Precision::Full).with_latent_dropout(0.0, TimeAxis::Second)
    };
    learned(&before.head) == learned(&now.head) && before.facets == now.facets
}

/// The folder of the text: the given one, or the run's; none of a text that is generated.
fn folder_of<'a>(given: Option<&'a Path>, config: &'a RunConfig) -> Result<Option<&'a Path>, Failure> {
    match given {
        Some(_) => Ok(given),
        None => config.data_folder().map(|recorded| text_folder(None, recorded)).transpose(),
    }
}

/// A run that goes on; rank 0 has locked it.
fn resume(args: &TransformerArgs, run: RunFolder) -> Result<Ready, Failure> {
    let config = run.config()?;
    let text = Text::load(folder_of(args.data.as_deref(), &config)?, &config.text, None)?;
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
            let (of_run, now) = (run.config()?.model, &trainer.task().setup().model);
            let is_itself = keeps_head(&of_run, now);
            // As itself it has the precision and the latent dropout that are asked for.
            let head = if is_itself { now.head.clone() } else { of_run.head.clone() };
            let before = GptConfig { head, dropout: now.dropout, ..of_run }
                .try_init(&trainer.task().setup().device)?;
            if !before.takes_head_of(trainer.model()) {
                let origin = origin.display();
                return Err(format!(
                    "run `{origin}`: its model has other sizes than the run that goes on from it"
                )
                .into());
            }
            Ok((load_weights(before, &run.best_weights()?)?, is_itself))
        };
        // All have read it before they score it together.
        let (before, is_itself) = agree(ranks, read())?;
        // A head that goes on as itself keeps what it has learned.
        let model = match is_itself {
            true => before,
            false => before.with_head_of(trainer.model().clone(), &trainer.task().setup().model.head),
        };
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

    fn characters(config: &RunConfig) -> bool {
        config.text.characters
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
            rows: head.decoder_rows(),
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
            let (characters, bits) = (config.text.characters, outcome.scores.bits());
            print_json(&with_bits(&outcome, characters, &bits));
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
    args.check()?;
    let run = RunFolder::open(&args.run)?;
    let config = run.config()?;
    let data = folder_of(args.data.as_deref(), &config)?;
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
    let name = device::resolve(args.device);
    let device = device::open(name)?;
    let of_training = args.split == Some(Split::Train);
    let vocabulary = if of_training { None } else { Some(run.vocabulary()?) };
    let text = Text::load(data, &config.text, vocabulary)?;
    let splits = args.split.map_or(vec![Split::Valid, Split::Test], |split| vec![split]);
    if splits.contains(&Split::Test) {
        require_test(&text.corpus, data.unwrap_or(Path::new("")))?;
    }
    if of_training {
        config.corpus.check(&text.corpus)?;
    }
    let model = load_weights(config.model.try_init(&device)?, &file)?;
    if !of_training {
        let names: Vec<&str> = splits.iter().map(|split| split.what()).collect();
        note_other_texts(&config.corpus, &Fingerprint::of(&text.corpus), &names);
    }
    let train = config.train.clone().with_eval_tokens(args.max_tokens);
    let (mut scores, mut tokens, started) = (Scores::default(), 0, Instant::now());
    for split in splits {
        let ids = match split {
            Split::Train => first(text.corpus.train(), args.max_tokens),
            Split::Valid => text.corpus.valid().to_vec(),
            Split::Test => text.corpus.test().to_vec(),
        };
        let score = score(split.what(), &model, &ids, &train)?;
        tokens += score.tokens;
        scores.set(split, score.perplexity(), score.accuracy());
        if split == Split::Test {
            scores.floor_ppl = text.floor_ppl(score.tokens + 1);
        }
    }
    let evaluated = Evaluated {
        run: args.run.display().to_string(),
        head: config.preset,
        parameters: model.num_params(),
        weights,
        scores,
        tokens,
        seconds: started.elapsed().as_secs_f64(),
        device: name.to_string(),
        model: None,
        train: None,
    };
    evaluated.print(args.json, config.text.characters);
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
