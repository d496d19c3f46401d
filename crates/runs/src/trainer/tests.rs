//! A trainer of a tiny task: stops, ends, extensions, damage.

mod among;
mod damage;
mod extension;
mod limits;
mod steps;
mod tiny;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use self::tiny::{Bigram, Tiny, TinyTask, Train, run_of, train, trainer};
use super::*;
use crate::folder::{MODEL, RunState};
use crate::observer::{Notes, Silent};
use crate::settings::Extension;
use crate::testing::{finished, without_times};
use crate::weights::save_weights;

type Run = Folder<Tiny>;

/// All that a finished run has, but for times.
fn outcome(run: &Run) -> (Vec<Value>, Vec<Value>, Vec<Vec<u8>>) {
    let files = [run.best_weights().unwrap(), run.last_weights().unwrap(), run.checkpoint().join("adam.bpk")];
    let files = files.map(|file| fs::read(file).unwrap()).to_vec();
    (without_times(&run.metrics().unwrap()), without_times(&run.steps().unwrap()), files)
}

/// A run in a folder of its own, trained to its end.
fn trained(config: &Train) -> (tempfile::TempDir, Run, FinalMetrics) {
    let (root, run) = run_of(config);
    let last = finished(trainer(config).fit(Some(&run), &mut Silent).unwrap());
    (root, run, last)
}

/// A trainer that goes on with a run as its configuration says.
fn resumed(run: &Run) -> Trainer<TinyTask> {
    let mut trainer = trainer(&run.config().unwrap().train);
    trainer.restore(run).unwrap();
    trainer
}

/// The files of a run and their contents, but for the lock.
fn contents(run: &Run) -> BTreeMap<PathBuf, Vec<u8>> {
    let folders = [run.path().to_path_buf(), run.checkpoint(), run.best()];
    let files = folders.iter().flat_map(|folder| fs::read_dir(folder).into_iter().flatten());
    let files = files.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    files.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

#[test]
fn learns_and_reports() {
    let mut notes = Notes::default();
    let last = finished(trainer(&train(3)).fit(None, &mut notes).unwrap());
    let ppl: Vec<f64> = notes.epochs.iter().map(|metrics| metrics.valid_ppl).collect();
    assert!(ppl.len() == 3 && ppl[0] < 6.0 && ppl[2] < ppl[0], "{ppl:?}");
    assert!((last.valid_ppl - ppl[last.best_epoch - 1]).abs() < 1e-12);
    assert!(last.test_ppl.unwrap() < 6.0 && last.test_accuracy.unwrap() > 0.0);
    assert_eq!((last.ended, last.best_step), (EndReason::Epochs, None));
    let shares: Vec<f64> = notes.intervals.iter().map(|interval| interval.share).collect();
    assert!(shares.is_sorted() && shares[0] > 0.0 && shares[shares.len() - 1] < 1.0, "{shares:?}");
}

#[test]
fn training_that_was_stopped_anywhere_goes_on_to_the_same_bits() {
    let mut weights = vec![];
    for validate_every in [None, Some(7)] {
        let config = Train { validate_every, patience: Some(1000), ..train(4) };
        let (_root, straight) = run_of(&config);
        let expected =
            finished(trainer(&config).with_log_every(8).fit(Some(&straight), &mut Silent).unwrap());

        let (_root, run) = run_of(&config);
        let pauses = [0, 1, 3, 19, 20, 21, 7, 8];
        let mut stops = 0;
        let got = loop {
            let mut trainer = trainer(&config).with_log_every(8);
            assert_eq!(trainer.restore(&run).unwrap(), stops > 0);
            match trainer.fit(Some(&run), &mut Notes::stopping_after(pauses[stops % pauses.len()])).unwrap() {
                Fitted::Finished(metrics) => break metrics,
                Fitted::Stopped => stops += 1,
            }
        };
        assert!(stops > 8, "{stops}");
        let times = |metrics: FinalMetrics| FinalMetrics { seconds: 0.0, tokens_per_s: 0.0, ..metrics };
        assert_eq!(times(got), times(expected));
        assert!(outcome(&run) == outcome(&straight), "{validate_every:?}");
        let lines = without_times(&run.metrics().unwrap());
        let places: Vec<u64> = lines.iter().filter_map(|line| line["step"].as_u64()).collect();
        let inside = validate_every.map_or(vec![], |every| (1..=4).map(|n| n * every as u64).collect());
        assert_eq!(places, inside.repeat(4));
        weights.push(fs::read(run.last_weights().unwrap()).unwrap());
    }
    // Validations inside of epochs change no weights.
    assert!(weights[0] == weights[1]);
}

#[test]
fn a_process_that_dies_between_its_saves_loses_nothing() {
    // After its checkpoint, and while it adds lines.
    let (_root, run) = run_of(&train(3));
    let mut first = trainer(&train(3)).with_log_every(5);
    assert_eq!(first.fit(Some(&run), &mut Notes::stopping_after(37)).unwrap(), Fitted::Stopped);
    let (metrics, steps) = (run.metrics().unwrap(), run.steps().unwrap());
    assert_eq!(metrics.lines().count(), 1);
    run.append_metrics(&metrics).unwrap();
    fs::write(run.path().join("steps.jsonl"), format!("{steps}{steps}{{\"epo")).unwrap();
    trainer(&train(3)).restore(&run).unwrap();
    assert_eq!((run.metrics().unwrap(), run.steps().unwrap()), (metrics, steps));

    // Between the checkpoint of its best epoch, or of an epoch's middle, and the file of the best model.
    for validate_every in [None, Some(5)] {
        let config = Train { validate_every, ..train(3) };
        let (_root, run) = run_of(&config);
        let mut first = trainer(&config);
        assert!(first.advance(None, &mut Silent).unwrap());
        assert_eq!(first.state().best.unwrap().step, validate_every);
        first.save(Some(&run)).unwrap();
        assert!(run.best_weights().is_err());
        resumed(&run);
        let saved = run.path().join("first.safetensors");
        save_weights(first.best().unwrap(), &saved).unwrap();
        assert!(fs::read(run.best_weights().unwrap()).unwrap() == fs::read(saved).unwrap());
        assert_eq!(run.metrics().unwrap().lines().count(), 1);
    }

    // After a first validation within an epoch, worse than the model that training started from.
    let (_root, before, _) = trained(&train(3));
    let config = Train { validate_every: Some(5), lr: 3.0, ..train(1) };
    let (_root, run) = run_of(&config);
    let mut first = trainer(&config);
    first.start_from(&before.best_weights().unwrap()).unwrap();
    first.peers.saves = true;
    first.save_best(Some(&run)).unwrap();
    assert!(first.advance(Some(&run), &mut Silent).unwrap());
    assert_eq!(first.state().best.unwrap().epoch, 0);
    assert_eq!(resumed(&run).state().position.as_ref().unwrap().step, 5);
}

#[test]
fn a_loss_that_is_not_finite_is_noted_and_leaves_the_checkpoint() {
    let (_root, run) = run_of(&train(2));
    let mut first = trainer(&train(2));
    first.advance(None, &mut Silent).unwrap();
    first.save(Some(&run)).unwrap();
    let before = fs::read(run.checkpoint().join(MODEL)).unwrap();
    first.task.breaks = true;
    let error = first.fit(Some(&run), &mut Silent).unwrap_err();
    let message = error.to_string();
    assert!(matches!(error, Error::NonFiniteLoss { epoch: 2, .. }), "{message}");
    assert!(message.contains("epoch 2") && message.contains("step") && !message.contains('\n'), "{message}");
    assert_eq!(fs::read(run.checkpoint().join(MODEL)).unwrap(), before);
    assert!(!run.path().join("checkpoint.new").exists());
    let path = run.path().to_path_buf();
    drop(run);
    let run = Run::open(&path).unwrap();
    assert_eq!((run.state().unwrap(), run.failure()), (RunState::Diverged, Some(message)));
    // Until it goes on.
    let run = Run::resume(&path).unwrap();
    let mut again = resumed(&run);
    finished(again.fit(Some(&run), &mut Silent).unwrap());
    drop(run);
    let run = Run::open(&path).unwrap();
    assert_eq!((run.state().unwrap(), run.failure()), (RunState::Finished, None));
}

#[test]
fn weights_that_are_not_finite_are_noted_and_leave_the_checkpoint() {
    let said = |epoch: usize, step: usize| {
        format!(
            "the weights are not finite in epoch {epoch}, at or before step {step} of 30: training stopped, the last checkpoint is \
             untouched; a lower learning rate may help"
        )
    };
    let (_root, run) = run_of(&train(2));
    let path = run.path().to_path_buf();
    let mut first = trainer(&train(2)).with_checkpoint_every(Duration::ZERO);
    first.advance(None, &mut Silent).unwrap();
    first.save(Some(&run)).unwrap();
    let before = fs::read(run.checkpoint().join(MODEL)).unwrap();
    let is_untouched = |run: &Run| {
        assert_eq!(fs::read(run.checkpoint().join(MODEL)).unwrap(), before);
        assert!(!path.join("checkpoint.new").exists());
    };
    first.task.spoils = Some(1);
    let message = first.fit(Some(&run), &mut Silent).unwrap_err().to_string();
    assert_eq!(message, said(2, 1));
    is_untouched(&run);
    drop(run);
    let run = Run::open(&path).unwrap();
    assert_eq!((run.state().unwrap(), run.failure()), (RunState::Diverged, Some(message)));
    // At the end of an epoch.
    let mut first = trainer(&train(2));
    first.advance(None, &mut Silent).unwrap();
    let spoilt = Bigram::spoilt(&first.task.setup().device);
    first.task.set_model(spoilt);
    assert_eq!(first.save(Some(&run)).unwrap_err().to_string(), said(1, 30));
    is_untouched(&run);
}

#[test]
fn a_perplexity_that_is_not_finite_names_its_weights() {
    for (validate_every, place) in [(Some(5), "step 5 of epoch 1"), (None, "epoch 1")] {
        let mut trainer = trainer(&Train { validate_every, ..train(2) });
        trainer.task.spoils = Some(validate_every.unwrap_or(tiny::STEPS));
        let message = trainer.fit(None, &mut Silent).unwrap_err().to_string();
        let expected = format!(
            "the validation perplexity is not finite after {place}: training stopped, the last checkpoint is untouched"
        );
        assert_eq!(message, expected);
    }
    let mut trainer = trainer(&train(1));
    let given = Bigram::spoilt(&trainer.task.setup().device);
    let message = trainer.start_with(given).unwrap_err().to_string();
    assert_eq!(message, "the validation perplexity is not finite with the weights that training starts from");
}

#[test]
fn a_state_has_a_name() {
    let (_root, run) = run_of(&train(1));
    let path = run.path().to_path_buf();
    assert_eq!(run.state().unwrap(), RunState::Running);
    drop(run);
    let state = || Run::open(&path).unwrap().state().unwrap();
    assert_eq!(state(), RunState::NeverStarted);
    let run = Run::resume(&path).unwrap();
    let mut trainer = trainer(&train(1));
    run.save_best(trainer.model()).unwrap();
    drop(run);
    assert_eq!(state(), RunState::Imported);
    let run = Run::resume(&path).unwrap();
    trainer.fit(Some(&run), &mut Notes::stopping_after(3)).unwrap();
    drop(run);
    assert_eq!(state(), RunState::Stopped);
    let run = Run::resume(&path).unwrap();
    trainer.fit(Some(&run), &mut Silent).unwrap();
    drop(run);
    assert_eq!(state(), RunState::Finished);
}

/// As a process leaves it that was killed between the two renames of a checkpoint, before a validation.
#[test]
fn a_checkpoint_that_is_being_replaced_is_read() {
    let (_root, run) = run_of(&train(1));
    let path = run.path().to_path_buf();
    trainer(&train(1)).fit(Some(&run), &mut Notes::stopping_after(3)).unwrap();
    drop(run);
    let run = Run::open(&path).unwrap();
    let [old, new] = ["checkpoint.old", "checkpoint.new"].map(|name| path.join(name));
    fs::rename(run.checkpoint(), &old).unwrap();
    assert_eq!((run.state().unwrap(), run.last_weights().unwrap()), (RunState::Stopped, old.join(MODEL)));
    fs::rename(&old, &new).unwrap();
    fs::create_dir(&old).unwrap();
    assert_eq!((run.state().unwrap(), run.last_weights().unwrap()), (RunState::Stopped, new.join(MODEL)));
    // Alone, it may be half written.
    fs::remove_dir(&old).unwrap();
    assert_eq!(run.state().unwrap(), RunState::NeverStarted);
    assert!(matches!(run.last_weights(), Err(Error::NoWeights { .. })));
}

/// As after an import: a configuration and a best model, but no checkpoint.
#[test]
fn a_run_of_given_weights_starts_from_them() {
    let (_root, origin) = run_of(&train(2));
    let mut first = trainer(&train(2));
    let before = finished(first.fit(Some(&origin), &mut Silent).unwrap());
    let (_root, run) = run_of(&train(1));
    run.save_best(first.best().unwrap()).unwrap();

    let mut trainer = trainer(&train(1));
    assert!(!trainer.restore(&run).unwrap());
    assert_eq!(trainer.state().best.unwrap().epoch, 0);
    // The given model stays the best until there is a better one.
    let last = finished(trainer.fit(Some(&run), &mut Silent).unwrap());
    assert!(last.valid_ppl <= before.valid_ppl, "{last:?} after {before:?}");
}

#[test]
fn ranks_are_refused_where_a_task_takes_one() {
    let refused = crate::ranks::threads(2, |ranks| trainer(&train(1)).with_grid(&Grid::of_one(&ranks)).err());
    let expected = "2 ranks cannot share a batch of 1: every rank needs at least one column";
    assert!(refused.into_iter().all(|error| error.unwrap().to_string() == expected));
}

/// A run's folder while it is saved again and again.
#[test]
fn hundreds_of_saves_leave_nothing_behind() {
    struct Watch(Run, Vec<PathBuf>);
    impl TrainObserver for Watch {
        fn stop(&mut self) -> bool {
            let new = contents(&self.0).into_keys().filter(|file| !self.1.contains(file));
            let new: Vec<PathBuf> = new.collect();
            self.1.extend(new);
            false
        }
    }
    let (_root, run) = run_of(&train(5));
    let mut watch = Watch(run.clone(), vec![]);
    let mut trainer = trainer(&train(5)).with_checkpoint_every(Duration::ZERO);
    finished(trainer.fit(Some(&run), &mut watch).unwrap());
    let left = contents(&run);
    assert!(left.len() < 13, "{left:?}");
    assert!(watch.1.iter().all(|file| left.contains_key(file)), "{:?} and {left:?}", watch.1);
}
