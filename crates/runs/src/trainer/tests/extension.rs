//! Runs that go on for longer or on another device.

use super::*;
use crate::settings::Extended;

/// Goes on with a run as its configuration now says.
fn go_on(run: &Run) -> (Trainer<TinyTask>, FinalMetrics) {
    let mut trainer = resumed(run);
    let last = finished(trainer.fit(Some(run), &mut Silent).unwrap());
    (trainer, last)
}

fn epochs(epochs: usize) -> Extension {
    Extension { epochs: Some(epochs), ..Extension::default() }
}

fn refused(run: &Run, change: &Extension) -> String {
    let before = contents(run);
    let error = run.extend(change).unwrap_err();
    assert!(matches!(error, Error::CannotExtend { .. } | Error::InvalidSetting { .. }), "{error}");
    assert_eq!(contents(run), before);
    let message = error.to_string();
    assert!(!message.contains('\n'), "{message}");
    message
}

#[test]
fn an_extended_run_is_one_that_was_started_for_longer() {
    let (_root, straight, _) = trained(&train(5));

    let (_root, run, _) = trained(&train(2));
    let before = contents(&run);
    let longer = run.extend(&epochs(3)).unwrap();
    // Nothing is written before it goes on.
    assert_eq!(contents(&run), before);
    assert_eq!(longer.config().unwrap().train.epochs, 3);
    let mut restored = resumed(&longer);
    // Not finished any longer, whoever reads it.
    assert_eq!(run.metrics().unwrap().lines().count(), 2);
    assert_eq!(run.config().unwrap(), longer.config().unwrap());
    finished(restored.fit(Some(&run), &mut Silent).unwrap());
    let longer = run.extend(&epochs(5)).unwrap();
    go_on(&longer);
    assert!(outcome(&run) == outcome(&straight));
    let change = |after_epoch: usize, from: usize, to: usize| {
        let setting = "train.epochs".to_string();
        Extended { after_epoch, setting, from: from.into(), to: to.into() }
    };
    assert_eq!(run.config().unwrap().extensions, [change(2, 2, 3), change(3, 3, 5)]);
}

/// The validation at the end of the time is as if it had not been: the rule sees the same losses, and an earlier best model is the
/// best again.
#[test]
fn a_run_of_more_time_is_one_that_had_it_from_the_start() {
    let time = |minutes| Extension { max_minutes: Some(minutes), ..Extension::default() };
    let state = |trainer: &Trainer<TinyTask>| {
        let state = trainer.state();
        (state.best, state.unimproved, state.before_end, state.task.clone())
    };
    for validate_every in [None, Some(7)] {
        let config = Train { lr: 0.02, validate_every, ..train(3) };
        let (_root, straight) = run_of(&config);
        let mut expected = trainer(&config);
        finished(expected.fit(Some(&straight), &mut Silent).unwrap());

        let (_root, run) = run_of(&config);
        let mut displaced = vec![];
        // Steps and validations up to a step after which none is due.
        for pause in [12, 29, 24] {
            // A process that is killed before it saves anything.
            resumed(&run.extend(&time(1e3)).unwrap());
            let mut first = resumed(&run);
            let stopped = first.fit(Some(&run), &mut Notes::stopping_after(pause)).unwrap();
            assert_eq!(stopped, Fitted::Stopped);
            let before = state(&first);
            let (ended, last) = go_on(&run.extend(&time(1e-9)).unwrap());
            assert_eq!(last.ended, EndReason::Time);
            let after = state(&ended);
            assert_eq!((after.1, &after.3), (before.1, &before.3));
            assert_eq!(after.2.unwrap().best, before.0);
            assert!(last.best_step.is_some() && after.0 != before.0);
            displaced.push(ended.state().has_displaced_best());
            // Without more time it stays as it is.
            let (same, last) = go_on(&run);
            assert_eq!((state(&same), last.ended), (after, EndReason::Time));
        }
        assert_eq!(displaced, [validate_every.is_some(), true, true]);
        let (got, last) = go_on(&run.extend(&time(1e3)).unwrap());
        assert_eq!(last.ended, EndReason::Epochs);
        assert_eq!(state(&got), state(&expected));
        assert!(outcome(&run) == outcome(&straight), "{validate_every:?}");
    }
}

#[test]
fn what_leaves_nothing_to_train_is_refused() {
    let (_root, run, _) = trained(&train(2));
    assert!(refused(&run, &epochs(1)).ends_with("epochs is 1, but epoch 2 is done: give more"));
    assert!(refused(&run, &epochs(0)).contains("epochs is 0"));
    let patience = Extension { patience: Some(4), ..Extension::default() };
    assert!(refused(&run, &patience).ends_with("epoch 2 of 2 is done: give more epochs"));
    // What it has already changes nothing.
    let same = run.extend(&Extension { device: Some("flex".into()), ..epochs(2) }).unwrap();
    assert!(same.config().unwrap().extensions.is_empty());
    assert_eq!(run.extend(&Extension::default()).unwrap().config().unwrap(), run.config().unwrap());
    assert_eq!(run.metrics().unwrap().lines().count(), 3);
}

#[test]
fn a_run_inside_of_an_epoch_can_be_extended_and_shortened_to_it() {
    let (_root, run) = run_of(&train(5));
    // An epoch, its validation and 5 steps.
    trainer(&train(5)).fit(Some(&run), &mut Notes::stopping_after(tiny::STEPS + 1 + 5)).unwrap();
    assert!(refused(&run, &epochs(1)).contains("epochs is 1, but epoch 1 is done"));
    let (trainer, last) = go_on(&run.extend(&epochs(2)).unwrap());
    assert_eq!((trainer.state().epoch, last.ended), (2, EndReason::Epochs));
}

#[test]
fn a_run_without_a_checkpoint_can_be_extended() {
    let (_root, run) = run_of(&train(1));
    let longer = run.extend(&epochs(2)).unwrap();
    assert_eq!(longer.config().unwrap().extensions[0].after_epoch, 0);
    go_on(&longer);
    assert_eq!(run.config().unwrap(), longer.config().unwrap());
    assert_eq!(run.metrics().unwrap().lines().count(), 3);
}

#[test]
fn a_start_that_fails_writes_no_extension() {
    let (_root, run) = run_of(&train(1));
    let before = contents(&run);
    let longer = run.extend(&epochs(2)).unwrap();
    let gone = |_: &mut Trainer<TinyTask>| Err(Error::EmptyFile { path: "origin".into() });
    assert!(trainer(&train(2)).restore_or(&longer, gone).is_err());
    assert_eq!(contents(&run), before);
}

#[test]
fn a_run_that_patience_ended_needs_more_of_it() {
    let config = Train { patience: Some(1), lr: 3.0, ..train(60) };
    let (_root, run, last) = trained(&config);
    assert_eq!(last.ended, EndReason::Patience);
    let lines = run.metrics().unwrap().lines().count();
    assert!(refused(&run, &epochs(100)).contains("its patience is 1: give a larger one"));
    go_on(&run.extend(&Extension { patience: Some(2), ..Extension::default() }).unwrap());
    assert!(run.metrics().unwrap().lines().count() > lines);
}

#[test]
fn a_run_whose_time_was_over_goes_on_where_it_was() {
    let mut straight = trainer(&train(2));
    finished(straight.fit(None, &mut Silent).unwrap());
    let config = Train { max_minutes: Some(1e-9), ..train(2) };
    let (_root, run, _) = trained(&config);
    assert!(refused(&run, &epochs(9)).contains("--max-time is 0 s, and "));
    let time = |minutes| Extension { max_minutes: Some(minutes), ..Extension::default() };
    assert!(refused(&run, &time(-1.0)).contains("max_minutes is -1"));
    assert!(refused(&run, &time(2e-9)).contains("--max-time is 0 s, and "));
    let (trainer, last) = go_on(&run.extend(&time(1e3)).unwrap());
    assert_eq!(last.ended, EndReason::Epochs);
    let weights = |trainer: &Trainer<TinyTask>| {
        let file = run.path().join("weights.safetensors");
        save_weights(trainer.model(), &file).unwrap();
        fs::read(file).unwrap()
    };
    assert!(weights(&trainer) == weights(&straight));
    // Two epochs and the end, but not the validation at the first end.
    assert_eq!(run.metrics().unwrap().lines().count(), 3);
}

#[test]
fn another_device_is_said_in_the_record() {
    let (_root, run, _) = trained(&train(1));
    let lines = run.metrics().unwrap();
    let moved = run.extend(&Extension { device: Some("ndarray".into()), ..Extension::default() }).unwrap();
    trainer(&train(1)).restore(&moved).unwrap();
    let setting = "device".to_string();
    let record = Extended { after_epoch: 1, setting, from: "flex".into(), to: "ndarray".into() };
    let config = run.config().unwrap();
    assert_eq!((config.device.as_str(), config.extensions.as_slice()), ("ndarray", [record].as_slice()));
    // It is as finished as before.
    trainer(&train(1)).restore(&run).unwrap();
    assert_eq!(lines.lines().count(), 2);
}
