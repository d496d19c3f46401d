//! One run, from where it is to its end.

use std::path::{Path, PathBuf};

use awd_lstm::train::{AwdLstm, LmTask, RunConfig, Trainer};
use program::device::{self, DeviceName};
use program::failure::Failure;
use program::interrupt::Interrupt;
use program::print::{bits_text, print_json, print_note, with_bits};
use program::progress::Progress;
use program::ranks::agree;
use program::statistics::{decimal, grouped};
use runs::data::{Corpus, Vocabulary};
use runs::ranks::{Grid, Ranks};
use runs::{
    EpochMetrics, FinalMetrics, Fitted, Settings, StepMetrics, Task, TrainObserver, ValidationMetrics,
};

use crate::training::held_out::require_test;
use crate::training::output::Output;
use crate::training::vocabulary::words;
use crate::training::{curves, frequency};

/// Where a run goes.
pub enum Folder<S: Settings> {
    /// A run to be started.
    New(PathBuf),
    /// A run to be continued, locked; by rank 0, if there are several.
    Old(runs::Folder<S>),
}

/// A run's folder, at rank 0, and whether there was a checkpoint.
type Placed<S> = (Option<runs::Folder<S>>, bool);

/// A run to be trained.
pub struct Job {
    /// Where it goes.
    pub folder: Folder<AwdLstm>,
    /// All of its settings.
    pub config: RunConfig,
    /// The text.
    pub corpus: Corpus,
    /// What is reported.
    pub output: Output,
    /// The processes that train it.
    pub ranks: Ranks,
    /// How many of them share a vocabulary.
    pub vocab_parallel: usize,
}

impl Job {
    /// Trains the run on the device of its configuration and prints its final perplexities.
    ///
    /// # Errors
    /// As [`train`](Self::train).
    pub fn train_and_print(self) -> Result<(), Failure> {
        let (json, characters) = (self.output.json, self.config.text.characters);
        let is_first = self.ranks.is_first();
        let last = self.train()?;
        if !is_first {
            return Ok(());
        }
        print_last(&last, json, characters);
        Ok(())
    }

    /// Trains the run on the device of its configuration. Several ranks train it together, and rank 0 writes its folder.
    ///
    /// # Errors
    /// A device that is missing, ranks that differ, or what goes wrong in training. Nothing is written before all input is found to
    /// be good.
    pub fn train(self) -> Result<FinalMetrics, Failure> {
        let Self { folder, config, corpus, output, ranks, vocab_parallel } = self;
        let grid = grid(&ranks, &config, vocab_parallel)?;

        let made = || -> Result<Trainer, Failure> {
            if config.train.test {
                require_test(&corpus, &config.data)?;
            }
            let name: DeviceName = config.device.parse()?;
            let device = device::open_at(name, ranks.local_rank())?;
            // No less, however few of the parameters are the vocabulary's.
            device::check_room(name, config.model.num_params() / vocab_parallel)?;
            let task = LmTask::among(grid.vocabulary(), &config.model, &config.train, &corpus, &device)?;
            let trainer = Trainer::new(task).with_grid(&grid)?;
            let trainer = trainer.with_checkpoint_every(output.checkpoint_every);
            Ok(trainer.with_log_every(output.log_every()))
        };
        let mut trainer = agree(&ranks, made())?;
        let (run, restored) =
            place(&mut trainer, folder, &config, corpus.vocabulary(), &ranks, |trainer, origin| {
                start_from(trainer, origin, &ranks)
            })?;
        // Rank 0 alone writes and speaks.
        let Some(run) = run else { return follow(&mut trainer, &output) };
        if !output.quiet {
            print_note(format_args!(
                "{} with {} parameters, {} training tokens, run folder {}{}{}",
                config.model.head,
                grouped(config.model.num_params()),
                grouped(corpus.train().len()),
                run.path().display(),
                ranks_in_words(&ranks, vocab_parallel),
                if restored { format!(", {} epochs done", trainer.state().epoch) } else { String::new() },
            ));
            print_note(words(&config.text, &corpus));
            frequency::note(&config.model, &corpus).iter().for_each(print_note);
        }
        let progress = output.progress().with_characters(config.text.characters);
        fit(&mut trainer, &run, progress, &output)
    }
}

/// The processes of a run, of which groups of `vocab_parallel` share a vocabulary. All of them call it.
///
/// # Errors
/// If they differ in their settings, or are no multiple of a group.
pub fn grid<S: Settings>(
    ranks: &Ranks,
    config: &runs::RunConfig<S>,
    vocab_parallel: usize,
) -> Result<Grid, Failure> {
    // Texts and runs may lie in different places.
    let compared = runs::RunConfig { data: PathBuf::new(), finetunes: None, tokens: None, ..config.clone() };
    ranks.check_same("run", &compared)?;
    ranks.check_same("reduce_precision", &ranks.precision())?;
    ranks.check_same("reduce_meanwhile", &ranks.sums_meanwhile())?;
    ranks.check_same("vocab_parallel", &vocab_parallel)?;
    Ok(Grid::new(ranks, vocab_parallel)?)
}

/// How many ranks there are, after what else is said of a run.
pub fn ranks_in_words(ranks: &Ranks, vocab_parallel: usize) -> String {
    match (ranks.size(), vocab_parallel) {
        (1, _) => String::new(),
        (size, 1) => format!(", {size} ranks"),
        (size, width) => format!(", {size} ranks, of which {width} share a vocabulary"),
    }
}

/// Trains a run of any model to its end; reports steps and epochs, draws its curves, and stops after an interrupt.
///
/// # Errors
/// What goes wrong in training, or [`Interrupted`](program::interrupt::Interrupted) once the run is saved.
pub fn fit<T: Task>(
    trainer: &mut runs::Trainer<T>,
    run: &runs::Folder<T::Settings>,
    progress: Progress,
    output: &Output,
) -> Result<FinalMetrics, Failure> {
    let mut watch = Watch { progress, run };
    let result = trainer.fit(Some(run), &mut watch);
    watch.progress.finish();
    finish(result?, output, &run.path().display().to_string())
}

/// What a rank without the run's folder does while another [fits](fit). Nothing is said here.
///
/// # Errors
/// As [`fit`].
pub fn follow<T: Task>(trainer: &mut runs::Trainer<T>, output: &Output) -> Result<FinalMetrics, Failure> {
    finish(trainer.fit(None, &mut Listener(&output.interrupt))?, output, "the run")
}

/// As [`fit`], and prints the final perplexities.
///
/// # Errors
/// As [`fit`].
pub fn fit_and_print<T: Task>(
    mut trainer: runs::Trainer<T>,
    run: &runs::Folder<T::Settings>,
    progress: Progress,
    output: &Output,
) -> Result<(), Failure> {
    print_last(&fit(&mut trainer, run, progress, output)?, output.json, false);
    Ok(())
}

/// Prints the end of a run, as an object with `json`; tokens may be `characters`.
fn print_last(last: &FinalMetrics, json: bool, characters: bool) {
    let FinalMetrics { best_epoch, valid_ppl, test_ppl, .. } = *last;
    let ppls = |valid: &'static str, test: &'static str| {
        let all = [(valid, Some(valid_ppl)), (test, test_ppl)];
        all.into_iter().filter_map(|(name, ppl)| Some((name, ppl?))).collect::<Vec<_>>()
    };
    if json {
        print_json(&with_bits(last, characters, &ppls("valid_bpc", "test_bpc")));
    } else {
        let bits = bits_text(characters, &ppls("valid", "test"));
        let test = test_ppl.map_or(String::new(), |ppl| format!(", test {}", decimal(ppl, 2)));
        println!("best epoch {best_epoch}: perplexity valid {}{test}{bits}", decimal(valid_ppl, 2));
    }
}

/// Puts the trainer where its run is, and returns the run's folder, at rank 0, and whether there was a checkpoint. `start` lets it begin
/// with what the run's origin has learnt.
///
/// # Errors
/// Whatever is wrong with the folder at any rank, or with the origin.
pub fn place<T: Task>(
    trainer: &mut runs::Trainer<T>,
    folder: Folder<T::Settings>,
    config: &runs::RunConfig<T::Settings>,
    vocabulary: &Vocabulary,
    ranks: &Ranks,
    start: impl Fn(&mut runs::Trainer<T>, &Path) -> Result<(), Failure>,
) -> Result<Placed<T::Settings>, Failure> {
    match folder {
        Folder::New(path) => {
            if let Some(origin) = &config.finetunes {
                start(trainer, origin)?;
            }
            let create = || Ok(runs::Folder::create(&path, config, vocabulary)?);
            Ok((agree(ranks, ranks.is_first().then(create).transpose())?, false))
        }
        Folder::Old(run) => {
            let restored = agree(ranks, trainer.restore(&run).map_err(Failure::from))?;
            // Else it has gone back to its own start, if it has one: the origin's best model may be another by now.
            if let (None, Some(origin)) = (trainer.best(), &config.finetunes) {
                start(trainer, origin)?;
            }
            Ok((Some(run).filter(|_| ranks.is_first()), restored))
        }
    }
}

/// Starts from the best model of the run in `origin`.
fn start_from(trainer: &mut Trainer, origin: &Path, ranks: &Ranks) -> Result<(), Failure> {
    let weights = agree(ranks, best_weights(origin))?;
    agree(ranks, trainer.start_from(&weights).map_err(Failure::from))
}

/// The end of training, or what to tell if it was stopped in the run at `path`.
fn finish(fitted: Fitted, output: &Output, path: &str) -> Result<FinalMetrics, Failure> {
    match fitted {
        Fitted::Finished(last) => Ok(last),
        Fitted::Stopped => {
            let line = format!("stopped and saved; to go on: {} --resume {path}", output.command);
            Err(output.interrupt.end(line).into())
        }
    }
}

/// The file with the best weights of the run in `folder`.
fn best_weights(folder: &Path) -> Result<PathBuf, Failure> {
    Ok(runs::Folder::<AwdLstm>::open(folder)?.best_weights()?)
}

/// Keeps quiet, but stops at an interrupt.
struct Listener<'a>(&'a Interrupt);

impl TrainObserver for Listener<'_> {
    fn stop(&mut self) -> bool {
        self.0.is_noted()
    }
}

/// Reports progress, and draws the curves after every epoch.
struct Watch<'a, S: Settings> {
    progress: Progress,
    run: &'a runs::Folder<S>,
}

impl<S: Settings> TrainObserver for Watch<'_, S> {
    fn on_start(&mut self, share: f64) {
        self.progress.on_start(share);
    }

    fn on_interval(&mut self, interval: &StepMetrics) {
        self.progress.on_interval(interval);
    }

    fn on_validation(&mut self, metrics: &ValidationMetrics, share: f64) {
        self.progress.on_validation(metrics, share);
    }

    fn on_epoch(&mut self, metrics: &EpochMetrics, share: f64) {
        self.progress.on_epoch(metrics, share);
        // A picture is no reason to stop training.
        if let Err(error) = curves::save(self.run) {
            self.progress.on_message(&format!("the curves were not drawn: {error}"));
        }
    }

    fn stop(&mut self) -> bool {
        self.progress.stop()
    }

    fn on_message(&mut self, message: &str) {
        self.progress.on_message(message);
    }
}

/// A folder under `runs/` that holds nothing yet, with a name that begins with `name`.
pub fn fresh_folder(name: &str) -> PathBuf {
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    std::iter::once(name.to_string())
        .chain(numbered)
        .map(|name| PathBuf::from("runs").join(name))
        .find(|path| !path.exists())
        .expect("there is no end of numbers")
}
