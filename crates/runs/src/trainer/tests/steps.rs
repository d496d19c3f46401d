//! What is reported of steps, and its file.

use super::*;
use crate::metrics::{EpochMetrics, ValidationMetrics};
use crate::record::Record;

#[test]
fn a_line_says_the_means_of_its_steps() {
    let intervals = |log_every: usize| {
        let mut notes = Notes::default();
        trainer(&train(2)).with_log_every(log_every).fit(None, &mut notes).unwrap();
        notes.intervals
    };
    let (single, ten) = (intervals(1), intervals(10));
    assert_eq!((single.len(), ten.len()), (2 * tiny::STEPS, 2 * tiny::STEPS / 10));
    assert!(single.iter().all(|interval| interval.clipped == 0.0 || interval.clipped == 1.0));
    assert!(ten.iter().any(|interval| interval.clipped > 0.0 && interval.clipped < 1.0));
    for (line, of) in ten.iter().zip(single.chunks(10)) {
        let mean = |value: fn(&StepMetrics) -> f64| of.iter().map(value).sum::<f64>() / of.len() as f64;
        let near = |got: f64, want: f64| assert!((got - want).abs() < 1e-12 * want.abs(), "{got} {want}");
        near(line.gradient_norm, mean(|step| step.gradient_norm));
        near(line.nll, mean(|step| step.nll));
        near(line.clipped, mean(|step| step.clipped));
        let last = &of[9];
        assert_eq!((line.step, line.lr, line.tokens), (last.step, last.lr, last.tokens));
    }
    assert!(single.is_sorted_by_key(|interval| interval.seconds));
}

#[test]
#[should_panic(expected = "with_log_every: steps is 0")]
fn no_step_between_two_lines_is_refused() {
    let _ = trainer(&train(1)).with_log_every(0);
}

#[test]
fn the_file_has_the_reported_lines_and_is_cut_back_to_the_checkpoint() {
    let (_root, run) = run_of(&train(3));
    let fresh = || trainer(&train(3)).with_log_every(5);
    let mut notes = Notes::default();
    let mut first = fresh();
    first.fit(Some(&run), &mut Notes::stopping_after(17)).unwrap();
    let lines = run.steps().unwrap();
    assert_eq!((lines.lines().count(), first.state().step_bytes), (3, lines.len() as u64));
    let mut again = fresh();
    again.restore(&run).unwrap();
    again.fit(Some(&run), &mut notes).unwrap();
    let all: Vec<StepMetrics> =
        run.steps().unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (line, reported) in all[3..].iter().zip(&notes.intervals) {
        assert_eq!((line.epoch, line.step, line.tokens), (reported.epoch, reported.step, reported.tokens));
        assert_eq!(line.gradient_norm, reported.gradient_norm);
    }

    // Lines that are lost stay so, and what is left of one goes.
    let (_root, run) = run_of(&train(3));
    let path = run.path().join("steps.jsonl");
    fresh().fit(Some(&run), &mut Notes::stopping_after(17)).unwrap();
    let first = lines.lines().next().unwrap().to_string() + "\n";
    fs::write(&path, format!("{first}{{\"epo")).unwrap();
    let mut trainer = fresh();
    trainer.restore(&run).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), first);
    fs::remove_file(&path).unwrap();
    let mut trainer = fresh();
    trainer.restore(&run).unwrap();
    trainer.fit(Some(&run), &mut Notes::stopping_after(5)).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 1);
    // And of one that dies before its first checkpoint.
    fs::remove_dir_all(run.checkpoint()).unwrap();
    assert!(!fresh().restore(&run).unwrap());
    assert_eq!(fs::read_to_string(&path).unwrap(), "");
}

/// JSON has no infinity: it is written as null.
#[test]
fn an_infinite_norm_is_read_back() {
    let mut notes = Notes::default();
    trainer(&train(1)).fit(None, &mut notes).unwrap();
    let mut line = notes.intervals[0];
    (line.gradient_norm, line.ppl) = (f64::INFINITY, f64::INFINITY);
    let back: StepMetrics = serde_json::from_str(&serde_json::to_string(&line).unwrap()).unwrap();
    assert_eq!((back.gradient_norm, back.ppl), (f64::INFINITY, f64::INFINITY));
}

#[test]
fn an_infinite_training_perplexity_is_read_back() {
    let config = Train { validate_every: Some(20), ..train(1) };
    let (_root, run) = run_of(&config);
    let mut notes = Notes::default();
    trainer(&config).fit(None, &mut notes).unwrap();
    let train_ppl = f64::INFINITY;
    let inside = ValidationMetrics { train_ppl, best: true, ..notes.validations[0].clone() };
    let epoch = EpochMetrics { train_ppl, best: false, ..notes.epochs[0].clone() };
    run.append_metrics(&to_line(&inside)).unwrap();
    assert_eq!(Record::<Tiny>::read(run.path()).unwrap().train_ppl(), Some(train_ppl));
    let back: ValidationMetrics = serde_json::from_str(&to_line(&inside)).unwrap();
    assert_eq!((back.step, back.train_ppl), (20, train_ppl));
    run.append_metrics(&to_line(&epoch)).unwrap();
    let epochs = Record::<Tiny>::read(run.path()).unwrap().epochs;
    assert_eq!((epochs.len(), epochs[0].train_ppl), (1, train_ppl));
}
