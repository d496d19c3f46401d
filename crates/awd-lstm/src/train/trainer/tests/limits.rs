//! Learning rates that fall, and training that ends before its last epoch.

use super::*;
use crate::config::{DecayWhen, LrDecay};

#[test]
fn the_rate_falls_from_an_epoch_on() {
    let lr_decay = Some(LrDecay { factor: 0.5, when: DecayWhen::From { epoch: 3 } });
    let config = TrainConfig { lr_decay, ..config(4) };
    let mut notes = Notes::default();
    trainer(&config).with_log_every(1).fit(None, &mut notes).unwrap();
    assert_eq!(notes.epochs.iter().map(|metrics| metrics.lr).collect::<Vec<_>>(), [5.0, 5.0, 2.5, 1.25]);
    // What a step is taken with, too.
    for interval in notes.intervals.iter().filter(|interval| interval.epoch == 4) {
        let Interval { epoch, step, lr, .. } = *interval;
        let schedule = Schedule::new(500, config.bptt, config.max_seq_len_delta, config.seed, epoch);
        assert_eq!(lr, 1.25 * schedule.steps()[step - 1].lr_scale);
    }
}

#[test]
fn the_rate_falls_after_each_validation_without_a_new_best() {
    let lr_decay = Some(LrDecay { factor: 0.25, when: DecayWhen::Plateau });
    let config = TrainConfig { lr_decay, lr: 60.0, nonmono: 100, ..config(7) };
    let mut notes = Notes::default();
    trainer(&config).fit(None, &mut notes).unwrap();
    let mut lr = 60.0;
    for metrics in &notes.epochs {
        assert_eq!(metrics.lr, lr, "epoch {}", metrics.epoch);
        if !metrics.best {
            lr *= 0.25;
        }
    }
    assert!(lr < 60.0, "some epoch brought no new best: {:?}", notes.epochs);
}

#[test]
fn patience_ends_training() {
    alone(module_path!(), "patience_ends_training", || {
        for validate_every in [None, Some(5)] {
            let (_root, run) = folder();
            let config =
                TrainConfig { patience: Some(3), lr: 200.0, nonmono: 100, validate_every, ..config(60) };
            let mut notes = Notes::default();
            let mut trainer = trainer(&config);
            let last = finished(trainer.fit(Some(&run), &mut notes).unwrap());
            assert_eq!(last.ended, Some(EndReason::Patience));
            let lines = timeless(&run);
            let bests: Vec<bool> = lines.iter().filter_map(|line| line["best"].as_bool()).collect();
            assert_eq!(bests.iter().rposition(|&best| best), Some(bests.len() - 4), "{bests:?}");
            let [message] = notes.messages.as_slice() else { panic!("{:?}", notes.messages) };
            assert!(message.ends_with("3 validations without a new best"), "{message}");
            // Once over, it stays so.
            let mut again = self::trainer(&config);
            again.restore(&run).unwrap();
            let mut notes = Notes::default();
            let same = finished(again.fit(Some(&run), &mut notes).unwrap());
            assert_eq!(FinalMetrics { seconds: last.seconds, ..same }, last);
            assert!(notes.intervals.is_empty() && notes.messages.is_empty());
            assert_eq!(timeless(&run), lines);
        }
    });
}

#[test]
fn the_time_ends_training_wherever_it_is() {
    let (_root, run) = folder();
    // The first step takes longer.
    let config = TrainConfig { max_minutes: Some(1e-9), ..config(3) };
    let mut notes = Notes::default();
    let mut trainer = trainer(&config);
    let last = finished(trainer.fit(Some(&run), &mut notes).unwrap());
    assert_eq!((last.best_epoch, last.best_step, last.ended), (1, Some(1), Some(EndReason::Time)));
    assert!(last.test_ppl.is_some() && last.train_ppl.is_some() && last.seconds > 0.0);
    assert_eq!(notes.messages, ["training ends after step 1 of epoch 1: its time is over"]);
    assert_eq!((notes.validations.len(), timeless(&run).len()), (1, 2));
    let mut again = self::trainer(&config);
    again.restore(&run).unwrap();
    let same = finished(again.fit(Some(&run), &mut Silent).unwrap());
    assert_eq!(FinalMetrics { seconds: last.seconds, ..same }, last);
    assert_eq!(timeless(&run).len(), 2);

    // Time enough.
    let config = TrainConfig { max_minutes: Some(1e3), ..self::config(1) };
    let last = finished(self::trainer(&config).fit(None, &mut Silent).unwrap());
    assert_eq!((last.best_step, last.ended), (None, Some(EndReason::Epochs)));
}

/// The time of all processes counts, and validations with it.
#[test]
fn the_time_of_earlier_processes_counts() {
    let (_root, run) = folder();
    let config = TrainConfig { max_minutes: Some(10.0), ..config(3) };
    let mut trainer = trainer(&config);
    assert_eq!(trainer.fit(Some(&run), &mut StopAfter(30)).unwrap(), Fitted::Stopped);
    let path = run.checkpoint().join("state.json");
    let mut state: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    state["state"]["position"]["seconds"] = 599.999.into();
    fs::write(&path, state.to_string()).unwrap();
    let mut again = self::trainer(&config);
    again.restore(&run).unwrap();
    let mut notes = Notes::default();
    let last = finished(again.fit(Some(&run), &mut notes).unwrap());
    assert_eq!(last.ended, Some(EndReason::Time));
    assert!(last.seconds > 599.9 && last.best_epoch == 1, "{last:?}");
    assert!(notes.intervals.iter().all(|interval| interval.share > 0.99));
}

#[test]
fn without_a_test_there_is_no_test_perplexity() {
    let (_root, run) = folder();
    let config = TrainConfig { test: false, ..config(2) };
    let mut notes = Notes::default();
    let last = finished(trainer(&config).fit(Some(&run), &mut notes).unwrap());
    assert_eq!(last.test_ppl, None);
    let line = run.metrics().unwrap().lines().last().unwrap().to_string();
    assert!(!line.contains("test_ppl") && serde_json::from_str::<FinalMetrics>(&line).is_ok(), "{line}");
    let best = &notes.epochs[last.best_epoch - 1];
    assert!((last.train_ppl.unwrap() - best.train_ppl).abs() < 1e-9);
    assert_eq!(last.ended, Some(EndReason::Epochs));
}

#[test]
fn the_end_of_an_earlier_version_is_read() {
    let line = r#"{"best_epoch":2,"seconds":1.5,"valid_ppl":60.0,"test_ppl":58.5}"#;
    let last: FinalMetrics = serde_json::from_str(line).unwrap();
    assert_eq!((last.test_ppl, last.train_ppl, last.best_step, last.ended), (Some(58.5), None, None, None));
}
