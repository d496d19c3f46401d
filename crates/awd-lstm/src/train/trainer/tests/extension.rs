//! Runs that go on for longer, on another device, or from weights of elsewhere.

use super::*;
use runs::Extended;
use runs::Extension;

/// Goes on with a run as its configuration now says.
fn go_on(run: &RunFolder) -> (Trainer, FinalMetrics) {
    let mut trainer = trainer(&run.config().unwrap().train);
    assert!(trainer.restore(run).unwrap());
    let last = finished(trainer.fit(Some(run), &mut Silent).unwrap());
    (trainer, last)
}

fn epochs(epochs: usize) -> Extension {
    Extension { epochs: Some(epochs), ..Extension::default() }
}

fn refused(run: &RunFolder, change: &Extension) -> String {
    let (config, metrics) = (run.config().unwrap(), run.metrics().unwrap());
    let error = run.extend(change).unwrap_err();
    assert!(matches!(error, Error::CannotExtend { .. } | Error::InvalidSetting { .. }), "{error}");
    assert_eq!((run.config().unwrap(), run.metrics().unwrap()), (config, metrics));
    let message = error.to_string();
    assert!(!message.contains('\n'), "{message}");
    message
}

#[test]
fn an_extended_run_is_one_that_was_started_for_longer() {
    alone(module_path!(), "an_extended_run_is_one_that_was_started_for_longer", || {
        let (_root, straight_run) = run_of(&config(5));
        let mut straight = trainer(&config(5));
        let expected = finished(straight.fit(Some(&straight_run), &mut Silent).unwrap());

        let (_root, run) = run_of(&config(2));
        finished(trainer(&config(2)).fit(Some(&run), &mut Silent).unwrap());
        assert_eq!(timeless(&run).len(), 3);
        let extended = run.extend(&epochs(3)).unwrap();
        assert_eq!((extended.train.epochs, extended.extensions.len()), (3, 1));
        assert_eq!(run.config().unwrap(), extended);
        // Not finished any longer, whoever reads it.
        assert_eq!(timeless(&run).len(), 2);
        go_on(&run);
        run.extend(&epochs(5)).unwrap();
        let (trainer, last) = go_on(&run);
        assert_eq!(weights(trainer.model()), weights(straight.model()));
        assert_eq!(FinalMetrics { seconds: expected.seconds, ..last }, expected);
        assert_eq!(timeless(&run), timeless(&straight_run));
        assert_eq!(without_times(&run.steps().unwrap()), without_times(&straight_run.steps().unwrap()));
        let change = |after_epoch: usize, from: usize, to: usize| {
            let setting = "train.epochs".to_string();
            Extended { after_epoch, setting, from: from.into(), to: to.into() }
        };
        assert_eq!(run.config().unwrap().extensions, [change(2, 2, 3), change(3, 3, 5)]);
    });
}

#[test]
fn what_leaves_nothing_to_train_is_refused() {
    let (_root, run) = run_of(&config(2));
    finished(trainer(&config(2)).fit(Some(&run), &mut Silent).unwrap());
    assert!(refused(&run, &epochs(1)).ends_with("epochs is 1, but epoch 2 is done: give more"));
    assert!(refused(&run, &epochs(0)).contains("epochs is 0"));
    let patience = Extension { patience: Some(4), ..Extension::default() };
    assert!(refused(&run, &patience).contains("epoch 2 is done"));
    // What it has already changes nothing.
    let same = run.extend(&Extension { device: Some("flex".into()), ..epochs(2) }).unwrap();
    assert!(same.extensions.is_empty());
    assert_eq!(run.extend(&Extension::default()).unwrap(), same);
    assert_eq!(timeless(&run).len(), 3);
}

#[test]
fn a_run_inside_of_an_epoch_can_be_extended_and_shortened_to_it() {
    let (_root, run) = run_of(&config(5));
    let mut trainer = trainer(&config(5));
    // An epoch, the chunk of its validation and 5 steps.
    let steps = trainer.new_pass().schedule.steps().len();
    trainer.fit(Some(&run), &mut StopAfter(steps + 1 + 5)).unwrap();
    assert!(refused(&run, &epochs(1)).contains("epochs is 1, but epoch 1 is done"));
    run.extend(&epochs(2)).unwrap();
    assert_eq!(timeless(&run).len(), 1);
    let (trainer, last) = go_on(&run);
    assert_eq!((trainer.state().epoch, last.ended), (2, Some(EndReason::Epochs)));
}

#[test]
fn a_run_without_a_checkpoint_can_be_extended() {
    let (_root, run) = run_of(&config(1));
    let extended = run.extend(&epochs(2)).unwrap();
    assert_eq!(extended.extensions[0].after_epoch, 0);
    let mut trainer = trainer(&extended.train);
    assert!(!trainer.restore(&run).unwrap());
    finished(trainer.fit(Some(&run), &mut Silent).unwrap());
    assert_eq!(timeless(&run).len(), 3);
}

#[test]
fn a_run_that_patience_ended_needs_more_of_it() {
    let config = TrainConfig { patience: Some(1), lr: 200.0, nonmono: 100, ..config(60) };
    let (_root, run) = run_of(&config);
    let last = finished(trainer(&config).fit(Some(&run), &mut Silent).unwrap());
    assert_eq!(last.ended, Some(EndReason::Patience));
    let lines = timeless(&run).len();
    assert!(refused(&run, &epochs(100)).contains("its patience is 1: give a larger one"));
    run.extend(&Extension { patience: Some(2), ..Extension::default() }).unwrap();
    go_on(&run);
    assert!(timeless(&run).len() > lines);
}

#[test]
fn a_run_whose_time_was_over_goes_on_where_it_was() {
    alone(module_path!(), "a_run_whose_time_was_over_goes_on_where_it_was", || {
        let mut straight = trainer(&config(2));
        finished(straight.fit(None, &mut Silent).unwrap());
        let config = TrainConfig { max_minutes: Some(1e-9), ..config(2) };
        let (_root, run) = run_of(&config);
        finished(trainer(&config).fit(Some(&run), &mut Silent).unwrap());
        assert!(refused(&run, &epochs(9)).contains("minutes have passed: give more"));
        let time = |minutes| Extension { max_minutes: Some(minutes), ..Extension::default() };
        assert!(refused(&run, &time(-1.0)).contains("max_minutes is -1"));
        assert!(refused(&run, &time(2e-9)).contains("minutes have passed: give more"));
        run.extend(&time(1e3)).unwrap();
        let (trainer, last) = go_on(&run);
        assert_eq!(last.ended, Some(EndReason::Epochs));
        assert_eq!(weights(trainer.model()), weights(straight.model()));
        // The validation at the first end, two epochs and the end.
        assert_eq!(timeless(&run).len(), 4);
    });
}

#[test]
fn a_finetuning_that_its_rule_ended_stays_so() {
    alone(module_path!(), "a_finetuning_that_its_rule_ended_stays_so", || {
        let (_root, origin) = folder();
        finished(trainer(&config(2)).fit(Some(&origin), &mut Silent).unwrap());
        let config = TrainConfig { nonmono: 0, lr: 300.0, average_from_start: true, ..config(30) };
        let (_root, run) = run_of(&config);
        let mut trainer = trainer(&config);
        trainer.start_from(&origin.best_weights().unwrap()).unwrap();
        let last = finished(trainer.fit(Some(&run), &mut Silent).unwrap());
        assert_eq!(last.ended, Some(EndReason::FinetuningRule));
        assert!(refused(&run, &epochs(99)).contains("finetune its best model in a new run"));
    });
}

#[test]
fn another_device_is_said_in_the_record() {
    let (_root, run) = run_of(&config(1));
    finished(trainer(&config(1)).fit(Some(&run), &mut Silent).unwrap());
    let lines = run.metrics().unwrap();
    let moved = run.extend(&Extension { device: Some("ndarray".into()), ..Extension::default() }).unwrap();
    assert_eq!(moved.device, "ndarray");
    let setting = "device".to_string();
    let record = Extended { after_epoch: 1, setting, from: "flex".into(), to: "ndarray".into() };
    assert_eq!(run.config().unwrap().extensions, [record]);
    // It is as finished as before.
    assert_eq!(run.metrics().unwrap(), lines);
    go_on(&run);
}

/// Only `extend` can change the number of epochs: it leaves a record.
#[test]
fn epochs_changed_by_hand_are_named() {
    let (_root, run) = run_of(&config(1));
    finished(trainer(&config(1)).fit(Some(&run), &mut Silent).unwrap());
    let message = trainer(&config(2)).restore(&run).unwrap_err().to_string();
    assert!(message.contains("train.epochs is 2 now, but 1 in the run"), "{message}");
}

/// As after an import: a configuration and a best model, but no checkpoint.
#[test]
fn a_run_of_given_weights_starts_from_them() {
    let (_root, origin) = folder();
    let mut trained = trainer(&config(2));
    let before = finished(trained.fit(Some(&origin), &mut Silent).unwrap());
    let best = trained.best().unwrap();
    let (_root, run) = run_of(&config(1));
    run.save_best(best).unwrap();

    let mut trainer = trainer(&config(1));
    assert!(!trainer.restore(&run).unwrap());
    assert_eq!(weights(&trainer.model().valid()), weights(best));
    assert_eq!(trainer.state().best.unwrap().epoch, 0);
    // The given model stays the best until there is a better one.
    let last = finished(trainer.fit(Some(&run), &mut Silent).unwrap());
    assert!(last.valid_ppl <= before.valid_ppl, "{last:?} after {before:?}");
}
