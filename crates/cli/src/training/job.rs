//! One run, from where it is to its end, which may be another than the run was started for.

use std::path::{MAIN_SEPARATOR, Path, PathBuf};

use burn::tensor::Device;
use program::device::{self, DeviceChoice, DeviceName};
use program::failure::Failure;
use program::files::{check_run_folder, fresh_folder};
use program::interrupt::Interrupt;
use program::print::{bits_text, print_json, print_note, with_bits};
use program::ranks::agree;
use program::statistics::decimal;
use runs::data::Vocabulary;
use runs::ranks::{Grid, Ranks};
use runs::{
    Error, Extended, Extension, FinalMetrics, Fitted, RunConfig, Settings, Task, TrainObserver, Trainer,
};

use crate::training::curves;
use crate::training::output::Output;

/// Where a run goes.
pub enum Folder<S: Settings> {
    /// A run to be started.
    New(PathBuf),
    /// A run to be started in a new folder below `runs/`, with a name that begins so.
    Fresh(String),
    /// A run to be continued, locked; by rank 0, if there are several.
    Old(runs::Folder<S>),
}

impl<S: Settings> Folder<S> {
    /// The folder `out` of a run to be started, which has room for it, or a new one that is named when the run is.
    pub fn new(out: Option<&Path>, name: impl FnOnce() -> String) -> Result<Self, Failure> {
        let Some(out) = out else { return Ok(Self::Fresh(name())) };
        check_run_folder(out)?;
        Ok(Self::New(out.to_path_buf()))
    }
}

/// The settings of what is trained on a text.
pub type SettingsOf<K> = <<K as Kind>::Task as Task>::Settings;

/// The configuration of a run that is trained on a text.
pub type ConfigOf<K> = RunConfig<SettingsOf<K>>;

/// A text, and how training the kind of model that is trained on it differs from training others.
pub trait Kind: Sized {
    type Task: Task;

    /// The words of the text.
    fn vocabulary(&self) -> &Vocabulary;

    /// Number of parameters of a run's model.
    fn parameters(config: &ConfigOf<Self>, device: &Device) -> Result<usize, Failure>;

    /// The task of one of the ranks that share the `vocabulary`.
    fn task(
        &self,
        config: &ConfigOf<Self>,
        vocabulary: &Ranks,
        device: &Device,
    ) -> Result<Self::Task, Failure>;

    /// Lets a run begin with what its origin has learned, if such runs have an origin.
    fn start(_trainer: &mut Trainer<Self::Task>, _origin: &Path, _ranks: &Ranks) -> Result<(), Failure> {
        Ok(())
    }

    /// Says what is trained, and in which `place`.
    fn announce(&self, config: &ConfigOf<Self>, parameters: usize, place: &str);

    /// How far a run had come that goes on, as the end of a line.
    fn done(epochs: usize) -> String {
        format!(", {epochs} epochs done")
    }

    /// Whether progress and results are in bits per character, too.
    fn characters(_config: &ConfigOf<Self>) -> bool {
        false
    }

    /// Prints what came of a run.
    fn print(
        &self,
        config: &ConfigOf<Self>,
        _run: &runs::Folder<SettingsOf<Self>>,
        last: &FinalMetrics,
        output: &Output,
    ) -> Result<(), Failure> {
        let &FinalMetrics { best_epoch, valid_ppl, test_ppl, .. } = last;
        let ppls = |valid: &'static str, test: &'static str| {
            let all = [(valid, Some(valid_ppl)), (test, test_ppl)];
            all.into_iter().filter_map(|(name, ppl)| Some((name, ppl?))).collect::<Vec<_>>()
        };
        let characters = Self::characters(config);
        if output.json {
            print_json(&with_bits(last, characters, &ppls("valid_bpc", "test_bpc")));
        } else {
            let bits = bits_text(characters, &ppls("valid", "test"));
            let test = test_ppl.map_or(String::new(), |ppl| format!(", test {}", decimal(ppl, 2)));
            println!("best epoch {best_epoch}: perplexity valid {}{test}{bits}", decimal(valid_ppl, 2));
        }
        Ok(())
    }
}

/// A run to be trained.
pub struct Job<'a, K: Kind> {
    pub config: &'a ConfigOf<K>,
    pub text: K,
    pub output: &'a Output,
    pub ranks: &'a Ranks,
    /// How many of them share a vocabulary.
    pub vocab_parallel: usize,
}

/// A run's folder and its end, at rank 0.
type Ended<S> = Option<(runs::Folder<S>, FinalMetrics)>;

/// A run's folder, at rank 0, and whether there was a checkpoint.
type Placed<S> = (Option<runs::Folder<S>>, bool);

impl<K: Kind> Job<'_, K> {
    /// Trains the run on the device of its configuration and prints what came of it.
    pub fn train_and_print(&self, folder: Folder<SettingsOf<K>>) -> Result<(), Failure> {
        match self.train(folder)? {
            Some((run, last)) => self.text.print(self.config, &run, &last, self.output),
            None => Ok(()),
        }
    }

    /// Trains the run on the device of its configuration. Several ranks train it together, and rank 0 writes its folder, which it
    /// returns with the run's end. Nothing is written before all input is found to be good.
    pub fn train(&self, folder: Folder<SettingsOf<K>>) -> Result<Ended<SettingsOf<K>>, Failure> {
        let &Self { config, ref text, output, ranks, vocab_parallel } = self;
        let grid = self.grid()?;
        let made = || -> Result<_, Failure> {
            let name: DeviceName = config.device.parse()?;
            let device = device::open_at(name, ranks.local_rank())?;
            let parameters = K::parameters(config, &device)?;
            // No less, however few of the parameters are the vocabulary's.
            device::check_room(name, parameters / vocab_parallel)?;
            let trainer = Trainer::new(text.task(config, &grid.vocabulary, &device)?).with_grid(&grid)?;
            let trainer = trainer.with_checkpoint_every(output.checkpoint_every);
            Ok((trainer.with_log_every(output.log_every()), parameters))
        };
        let (mut trainer, parameters) = agree(ranks, made())?;
        let (run, restored) = self.place(&mut trainer, folder)?;
        // Rank 0 alone writes and speaks.
        let Some(run) = run else {
            let fitted = trainer.fit(None, &mut Listener(&output.interrupt))?;
            return finish(fitted, output, "the run").map(|_| None);
        };
        let path = run.path().display().to_string();
        if !output.quiet {
            let done = if restored { K::done(trainer.state().epoch) } else { String::new() };
            let ranks = ranks_in_words(ranks, vocab_parallel);
            text.announce(config, parameters, &format!("run folder {path}{ranks}{done}"));
        }
        let not_drawn = |error: Failure| format!("the curves were not drawn: {error}");
        let progress = output.progress().with_characters(K::characters(config));
        let mut progress = progress.with_each_epoch(|_| curves::save(&run).map_err(not_drawn));
        let result = trainer.fit(Some(&run), &mut progress);
        progress.finish();
        let last = finish(result?, output, &path)?;
        Ok(Some((run, last)))
    }

    /// The processes of the run, which must have the same settings and be a multiple of a group that shares a vocabulary.
    fn grid(&self) -> Result<Grid, Failure> {
        let ranks = self.ranks;
        ranks.check_same("run", &compared(self.config))?;
        // All look for losses that are not finite at the same steps.
        ranks.check_same("log_every", &self.output.log_every())?;
        ranks.check_same("reduce_precision", &ranks.precision())?;
        ranks.check_same("vocab_parallel", &self.vocab_parallel)?;
        Ok(Grid::new(ranks, self.vocab_parallel)?)
    }

    /// Puts the trainer where its run is.
    fn place(
        &self,
        trainer: &mut Trainer<K::Task>,
        folder: Folder<SettingsOf<K>>,
    ) -> Result<Placed<SettingsOf<K>>, Failure> {
        let &Self { config, ref text, ranks, .. } = self;
        // A run that goes on may have a start of its own by now: the origin's best model may be another.
        let begin = |trainer: &mut Trainer<K::Task>| match &config.finetunes {
            Some(origin) if trainer.best().is_none() => K::start(trainer, origin, ranks),
            _ => Ok(()),
        };
        let restored = match &folder {
            Folder::Old(run) => agree(ranks, trainer.restore_or(run, begin))?,
            _ => {
                begin(trainer)?;
                false
            }
        };
        // A new folder is made last, by rank 0 alone: a start that is refused leaves none.
        let create = |path: PathBuf| runs::Folder::create(&path, config, text.vocabulary()).map(Some);
        let run = match folder {
            _ if !ranks.is_first() => Ok(None),
            Folder::New(path) => create(path),
            Folder::Fresh(name) => create(fresh_folder(&name)),
            Folder::Old(run) => Ok(Some(run)),
        };
        Ok((agree(ranks, run.map_err(Failure::from))?, restored))
    }
}

/// What all processes of a run must have in common of its configuration: texts and runs may lie in different places.
pub fn compared<S: Settings>(config: &RunConfig<S>) -> RunConfig<S> {
    RunConfig { data: PathBuf::new(), finetunes: None, tokens: None, ..config.clone() }
}

/// The run that goes on, locked by rank 0, which cleans up before the others read.
pub fn lock<S: Settings>(path: &Path, ranks: &Ranks) -> Result<runs::Folder<S>, Failure> {
    let run = if ranks.is_first() { runs::Folder::resume(path) } else { runs::Folder::open(path) };
    agree(ranks, run.map_err(Failure::from))
}

/// Refuses another preset than that of the run, which is `before`.
pub fn check_preset(given: Option<impl ToString>, before: &str) -> Result<(), Error> {
    match given.map(|preset| preset.to_string()).filter(|now| now != before) {
        Some(now) => Err(Error::ConfigChanged { setting: "preset".into(), before: before.into(), now }),
        None => Ok(()),
    }
}

/// The name of the device that a run of the device `before` goes on with, if the command line names one. Another than the run's needs
/// `change_device`.
pub fn device_of(
    choice: Option<DeviceChoice>,
    change_device: bool,
    before: &str,
) -> Result<Option<String>, Failure> {
    let device = choice.map(device::resolve).map(|name| name.to_string());
    match device.as_ref().filter(|now| **now != before && !change_device) {
        Some(now) => Err(format!(
            "cannot resume: device is \"{now}\" now, but \"{before}\" in the run; leave it out, or add \
             --change-device to continue there with other rounding and random numbers"
        )
        .into()),
        None => Ok(device),
    }
}

/// The run with `change`, if anything is to be changed, which the process with the run's lock says; nothing is written yet. The device
/// that the run goes on with is there.
pub fn extend<S: Settings>(
    run: &runs::Folder<S>,
    before: &RunConfig<S>,
    change: &Extension,
    ranks: &Ranks,
) -> Result<runs::Folder<S>, Failure> {
    let device = change.device.as_deref().unwrap_or(&before.device);
    device::open_at(device.parse()?, ranks.local_rank())?;
    if !run.is_locked() {
        return Ok(run.extend(change)?);
    }
    // Before anything is said.
    run.check()?;
    let run = run.extend(change)?;
    for Extended { setting, from, to, .. } in &run.config()?.extensions[before.extensions.len()..] {
        print_note(format_args!("extended: {setting} is {to} now, {from} before"));
    }
    Ok(run)
}

/// How many ranks there are, after what else is said of a run.
fn ranks_in_words(ranks: &Ranks, vocab_parallel: usize) -> String {
    match (ranks.size(), vocab_parallel) {
        (1, _) => String::new(),
        (size, 1) => format!(", {size} ranks"),
        (size, width) => format!(", {size} ranks, of which {width} share a vocabulary"),
    }
}

/// The end of training, or what to tell if it was stopped in the run at `path`.
fn finish(fitted: Fitted, output: &Output, path: &str) -> Result<FinalMetrics, Failure> {
    match fitted {
        Fitted::Finished(last) => Ok(last),
        Fitted::Stopped => {
            let line = format!("stopped and saved; to go on: {} --resume {}", output.command, in_shell(path));
            Err(output.interrupt.end(line).into())
        }
    }
}

/// A path as one word of a command.
fn in_shell(path: &str) -> String {
    match path.chars().all(|c| c.is_alphanumeric() || c == MAIN_SEPARATOR || "_-+./:".contains(c)) {
        true => path.to_string(),
        false => format!("'{}'", path.replace('\'', r"'\''")),
    }
}

/// Keeps quiet, but stops at an interrupt.
struct Listener<'a>(&'a Interrupt);

impl TrainObserver for Listener<'_> {
    fn stop(&mut self) -> bool {
        self.0.is_noted()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_word_of_a_command() {
        for (path, word) in [
            ("runs/mos-28", "runs/mos-28"),
            ("größe/a+b.1", "größe/a+b.1"),
            ("my run", "'my run'"),
            ("it's", r"'it'\''s'"),
            ("$HOME", "'$HOME'"),
        ] {
            assert_eq!(in_shell(path), word);
        }
    }
}
