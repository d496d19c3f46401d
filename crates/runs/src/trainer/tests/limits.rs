//! Training that ends before its last epoch.

use super::*;

#[test]
fn patience_ends_training() {
    for validate_every in [None, Some(5)] {
        let config = Train { patience: Some(3), lr: 3.0, validate_every, ..train(60) };
        let (_root, run) = run_of(&config);
        let mut notes = Notes::default();
        let last = finished(trainer(&config).fit(Some(&run), &mut notes).unwrap());
        assert_eq!(last.ended, EndReason::Patience);
        let lines = without_times(&run.metrics().unwrap());
        let bests: Vec<bool> = lines.iter().filter_map(|line| line["best"].as_bool()).collect();
        assert_eq!(bests.iter().rposition(|&best| best), Some(bests.len() - 4), "{bests:?}");
        let message = notes.messages.last().unwrap();
        assert!(message.ends_with("3 validations without a new best"), "{message}");
        // Once over, it stays so.
        let mut again = resumed(&run);
        let mut notes = Notes::default();
        let same = finished(again.fit(Some(&run), &mut notes).unwrap());
        assert_eq!((same.best_epoch, same.test_ppl), (last.best_epoch, last.test_ppl));
        assert!(notes.intervals.is_empty() && notes.messages.is_empty());
        assert_eq!(without_times(&run.metrics().unwrap()).len(), lines.len());
    }
}

#[test]
fn the_time_ends_training_wherever_it_is() {
    // The first step takes longer.
    let config = Train { max_minutes: Some(1e-9), ..train(3) };
    let (_root, run) = run_of(&config);
    let mut notes = Notes::default();
    let last = finished(trainer(&config).fit(Some(&run), &mut notes).unwrap());
    assert_eq!((last.best_epoch, last.best_step, last.ended), (1, Some(1), EndReason::Time));
    assert!(last.test_ppl.is_some() && last.train_ppl.is_some() && last.seconds > 0.0);
    assert_eq!(notes.messages, ["training ends after step 1 of epoch 1: its time is over"]);
    assert_eq!((notes.validations.len(), run.metrics().unwrap().lines().count()), (1, 2));
    let mut again = resumed(&run);
    let same = finished(again.fit(Some(&run), &mut Silent).unwrap());
    assert_eq!((same.best_step, same.test_ppl), (last.best_step, last.test_ppl));
    assert_eq!(run.metrics().unwrap().lines().count(), 2);
    // Time enough.
    let config = Train { max_minutes: Some(1e3), ..train(1) };
    let last = finished(trainer(&config).fit(None, &mut Silent).unwrap());
    assert_eq!((last.best_step, last.ended), (None, EndReason::Epochs));
}

#[test]
fn a_pause_between_two_calls_takes_no_time() {
    let mut trainer = trainer(&train(1));
    assert_eq!(trainer.fit(None, &mut Notes::stopping_after(5)).unwrap(), Fitted::Stopped);
    let before = trainer.state().seconds_in_all();
    std::thread::sleep(Duration::from_millis(500));
    let began = Instant::now();
    let last = finished(trainer.fit(None, &mut Silent).unwrap());
    assert!(last.seconds <= before + began.elapsed().as_secs_f64(), "{}", last.seconds);
}

/// The time of all processes counts, and validations with it.
#[test]
fn the_time_of_earlier_processes_counts() {
    let config = Train { max_minutes: Some(10.0), ..train(3) };
    let (_root, run) = run_of(&config);
    assert_eq!(trainer(&config).fit(Some(&run), &mut Notes::stopping_after(20)).unwrap(), Fitted::Stopped);
    let path = run.checkpoint().join("state.json");
    let mut state: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    state["state"]["position"]["seconds"] = 599.9999.into();
    crate::hashes::replace(&run.checkpoint(), "state.json", state.to_string().as_bytes()).unwrap();
    let mut again = resumed(&run);
    let mut notes = Notes::default();
    let last = finished(again.fit(Some(&run), &mut notes).unwrap());
    assert_eq!(last.ended, EndReason::Time);
    assert!(last.seconds > 599.9 && last.best_epoch == 1, "{last:?}");
    assert!(notes.intervals.iter().all(|interval| interval.share > 0.99));
}

#[test]
fn without_a_test_there_is_no_test_perplexity() {
    let config = Train { test: false, ..train(2) };
    let (_root, run) = run_of(&config);
    let mut notes = Notes::default();
    let last = finished(trainer(&config).fit(Some(&run), &mut notes).unwrap());
    assert_eq!((last.test_ppl, last.ended), (None, EndReason::Epochs));
    let line = run.metrics().unwrap().lines().last().unwrap().to_string();
    assert!(!line.contains("test_ppl") && serde_json::from_str::<FinalMetrics>(&line).is_ok(), "{line}");
    let best = &notes.epochs[last.best_epoch - 1];
    assert!((last.train_ppl.unwrap() - best.train_ppl).abs() < 1e-9);
}
