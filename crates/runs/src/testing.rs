//! What tests of the crates above share. No part of the public interface.

use std::fs::{self, FileTimes, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Command;

use burn::tensor::Tensor;
use serde_json::Value;

use crate::data::{Fingerprint, Vocabulary};
use crate::folder::{Folder, StateOf};
use crate::metrics::{FinalMetrics, StepMetrics};
use crate::observer::Notes;
use crate::ranks::{Grid, threads};
use crate::settings::{RunConfig, Settings, Versions};
use crate::task::Task;
use crate::trainer::{Fitted, Trainer};

/// A number of steps that no training has: it is not stopped.
pub const NEVER: usize = usize::MAX;

/// Runs a test in a separate process. Its result depends on the seed, and all threads share the random numbers of the CPU
/// backend, so no other test may draw from them meanwhile. `module` is the `module_path!()` of the
/// test and `name` that of its function.
///
/// # Panics
/// If the test fails there.
pub fn alone(module: &str, name: &str, test: impl FnOnce()) {
    const ALONE: &str = "RUNS_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return test();
    }
    // Without the name of the crate, as tests are listed.
    let (_, module) = module.split_once("::").unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("{module}::{name}"), "--nocapture"])
        .env(ALONE, "")
        .output()
        .unwrap();
    let text =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// A configuration of which only the data, the model and its training matter.
pub fn config<S: Settings<Text: Default>>(
    corpus: Fingerprint,
    model: S::Model,
    train: S::Train,
) -> RunConfig<S> {
    RunConfig {
        versions: Versions::current(),
        preset: "small".into(),
        device: "flex".into(),
        data: "generated".into(),
        corpus,
        finetunes: None,
        text: Default::default(),
        tokens: None,
        model,
        train,
        extensions: vec![],
    }
}

/// The results of a training that was not stopped.
///
/// # Panics
/// If it was.
pub fn finished(fitted: Fitted) -> FinalMetrics {
    let Fitted::Finished(metrics) = fitted else { panic!("it was stopped") };
    metrics
}

/// Lines of metrics without wall-clock times.
///
/// # Panics
/// If a line is not JSON.
pub fn without_times(lines: &str) -> Vec<Value> {
    let mut lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for line in &mut lines {
        (line["seconds"], line["tokens_per_s"]) = (0.into(), 0.into());
    }
    lines
}

/// Replaces a file by bytes that are no text, of the same size and time.
///
/// # Panics
/// If it cannot be written.
pub fn spoil(path: &Path) {
    let before = fs::metadata(path).unwrap();
    fs::write(path, vec![0xff; before.len() as usize]).unwrap();
    let times = FileTimes::new().set_modified(before.modified().unwrap());
    OpenOptions::new().write(true).open(path).unwrap().set_times(times).unwrap();
}

/// The one text that a folder of encoded texts keeps.
///
/// # Panics
/// If there is none, or several.
pub fn kept(cache: &Path) -> PathBuf {
    let entries = fs::read_dir(cache).unwrap().map(|entry| entry.unwrap().path());
    let folders: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    assert_eq!(folders.len(), 1, "{folders:?}");
    folders[0].clone()
}

/// The elements of a tensor.
pub fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

/// Whether two numbers differ by less than a share of them.
pub fn near(a: f64, b: f64, share: f64) -> bool {
    (a / b - 1.0).abs() < share
}

/// Checks that a training of `what` ended with the perplexities of another, but for a share of them.
///
/// # Panics
/// If it did not.
#[track_caller]
pub fn assert_near(got: &FinalMetrics, want: &FinalMetrics, share: f64, what: &str) {
    assert!(near(got.valid_ppl, want.valid_ppl, share), "{what}: {got:?} {want:?}");
    assert!(near(got.test_ppl.unwrap(), want.test_ppl.unwrap(), share), "{what}: {got:?} {want:?}");
}

/// Trains a new run to its end, with a stop after each of these numbers of steps and chunks and a new trainer after each. Training
/// starts from `start`, if it is given. Returns the last and the best weights as bytes, and the metrics without times.
///
/// # Panics
/// If training fails, or does not stop when it should.
pub fn fit_with_stops<T: Task>(
    path: &Path,
    config: &RunConfig<T::Settings>,
    vocabulary: &Vocabulary,
    trainer: impl Fn() -> Trainer<T>,
    start: Option<&T::Model>,
    stops: &[usize],
) -> ([Vec<u8>; 2], Vec<Value>) {
    let mut run = Folder::create(path, config, vocabulary).unwrap();
    for &steps in stops.iter().chain([&NEVER]) {
        let mut trainer = trainer();
        let has_begun = trainer.restore(&run).unwrap();
        if let (false, Some(start)) = (has_begun, start) {
            trainer.start_with(start.clone()).unwrap();
        }
        let fitted = trainer.fit(Some(&run), &mut Notes::stopping_after(steps)).unwrap();
        assert_eq!(fitted == Fitted::Stopped, steps != NEVER);
        drop(run);
        run = Folder::resume(path).unwrap();
    }
    let files = [run.last_weights().unwrap(), run.best_weights().unwrap()];
    (files.map(|file| fs::read(file).unwrap()), without_times(&run.metrics().unwrap()))
}

/// What one of several ranks has at its end.
pub struct AtEnd<T: Task> {
    /// At rank 0 the whole model, at the others their rows.
    pub model: T::Model,
    /// The model with this rank's rows alone.
    pub own: T::Model,
    /// The state besides tensors.
    pub state: StateOf<T::Settings>,
    /// How training ended, or the message of its error.
    pub fitted: Result<Fitted, String>,
    /// What was reported of its steps.
    pub intervals: Vec<StepMetrics>,
}

impl<T: Task> AtEnd<T> {
    /// The results.
    ///
    /// # Panics
    /// If training was stopped or failed.
    pub fn last(&self) -> FinalMetrics {
        finished(self.fitted.clone().unwrap())
    }
}

/// Trains as `size` ranks, threads of this process, of which `width` share a vocabulary, from what `run` has, if it is given.
/// `trainer` makes the trainer of a rank. Rank `size − 1` stops after so many steps and chunks.
///
/// # Panics
/// If the run cannot be read, or the ranks cannot share the work.
pub fn train_among<T: Task>(
    (size, width): (usize, usize),
    trainer: impl Fn(&Grid) -> Trainer<T> + Sync,
    run: Option<&Folder<T::Settings>>,
    stop: usize,
) -> Vec<AtEnd<T>>
where
    Folder<T::Settings>: Sync,
    StateOf<T::Settings>: Send,
{
    threads(size, |ranks| {
        let grid = Grid::new(&ranks, width).unwrap();
        let mut trainer = trainer(&grid).with_grid(&grid).unwrap();
        if let Some(run) = run {
            // The others do not hold the lock.
            let own = Folder::open(run.path()).unwrap();
            ranks.wait().unwrap();
            trainer.restore(if ranks.is_first() { run } else { &own }).unwrap();
        }
        let stop = if ranks.rank() == size - 1 { stop } else { NEVER };
        let mut watch = Notes::stopping_after(stop);
        let fitted = trainer.fit(run.filter(|_| ranks.is_first()), &mut watch);
        AtEnd {
            model: trainer.task().shards().whole(trainer.model()).unwrap(),
            own: trainer.model().clone(),
            state: trainer.state().clone(),
            fitted: fitted.map_err(|error| error.to_string()),
            intervals: watch.intervals,
        }
    })
}
