//! What is reported of steps, and its file.

use super::*;
use crate::train::observer::StepMetrics;
use crate::train::pass::Position;
use runs::EPOCH;
use runs::save_weights;

#[test]
fn a_line_says_the_means_of_its_steps() {
    alone(module_path!(), "a_line_says_the_means_of_its_steps", || {
        let intervals = |log_every: usize| {
            let mut notes = Notes::default();
            trainer(&config(2)).with_log_every(log_every).fit(None, &mut notes).unwrap();
            notes.intervals
        };
        let (single, ten) = (intervals(1), intervals(10));
        let steps = single[0].steps;
        assert_eq!(ten.iter().filter(|interval| interval.epoch == 1).count(), steps.div_ceil(10));
        assert!(single.iter().all(|interval| interval.clipped == 0.0 || interval.clipped == 1.0));
        for (line, of) in ten.iter().zip(single.chunks(10)) {
            if of[9.min(of.len() - 1)].epoch != line.epoch || line.epoch > 1 {
                break;
            }
            let of = &of[..of.len().min(steps - (line.step - 1) / 10 * 10)];
            let mean = |value: fn(&Interval) -> f64| of.iter().map(value).sum::<f64>() / of.len() as f64;
            let near = |got: f64, want: f64| assert!((got - want).abs() < 1e-5 * want.abs(), "{got} {want}");
            near(line.gradient_norm, mean(|step| step.gradient_norm));
            near(line.ar, mean(|step| step.ar));
            near(line.tar, mean(|step| step.tar));
            assert_eq!(line.clipped, mean(|step| step.clipped));
            let last = &of[of.len() - 1];
            assert_eq!((line.step, line.lr, line.tokens), (last.step, last.lr, last.tokens));
        }
        // Every token but those of a row that is left over.
        let last = single[single.len() - 1];
        assert!((2 * 8 * 498..=2 * 8 * 499).contains(&last.tokens), "{}", last.tokens);
        assert!(single.iter().all(|interval| interval.ar > 0.0 && interval.tar > 0.0));
        assert!(single.is_sorted_by_key(|interval| interval.seconds));
    });
}

#[test]
fn the_share_of_clipped_steps_depends_on_the_norm_that_is_allowed() {
    for (clip, clipped) in [(1e-6, 1.0), (1e6, 0.0)] {
        let config = TrainConfig { clip, alpha: 0.0, beta: 0.0, lr: 0.1, ..config(1) };
        let mut notes = Notes::default();
        trainer(&config).fit(None, &mut notes).unwrap();
        for interval in &notes.intervals {
            assert_eq!((interval.clipped, interval.ar, interval.tar), (clipped, 0.0, 0.0));
            assert!(interval.gradient_norm > 0.01 && interval.gradient_norm < 100.0, "{interval:?}");
        }
    }
}

#[test]
fn the_share_of_the_projections_is_that_of_a_mixture() {
    let intervals = |head| {
        let mut notes = Notes::default();
        let mut trainer = Trainer::new(&model(head), &config(1), &corpus(), &Device::flex()).unwrap();
        trainer.fit(None, &mut notes).unwrap();
        notes.intervals
    };
    assert!(
        intervals(HeadKind::Mos)
            .iter()
            .all(|interval| { interval.latent_share.is_some_and(|share| share > 0.001 && share < 1.0) })
    );
    assert!(intervals(HeadKind::Softmax).iter().all(|interval| interval.latent_share.is_none()));
}

/// With a weight the variation is reported, and no other figure depends on whether; of a head without priors there is none.
#[test]
fn the_variation_of_the_priors_is_reported_where_it_is_in_the_loss() {
    let lines = |head, weight: f64, log_every: usize| {
        let config = TrainConfig { prior_cv: weight, ..config(1) };
        let mut notes = Notes::default();
        let trainer = Trainer::new(&model(head), &config, &corpus(), &Device::flex()).unwrap();
        trainer.with_log_every(log_every).fit(None, &mut notes).unwrap();
        notes.intervals
    };
    let written = |interval: &Interval| serde_json::to_value(StepMetrics::from(interval)).unwrap();
    for (head, weight) in [(HeadKind::Mos, 0.0), (HeadKind::Softmax, 0.5)] {
        for interval in lines(head, weight, 10) {
            assert_eq!((interval.prior_cv, written(&interval).get("prior_cv")), (None, None));
        }
    }
    let single: Vec<f64> =
        lines(HeadKind::Mos, 0.5, 1).iter().map(|interval| interval.prior_cv.unwrap()).collect();
    let components = model(HeadKind::Mos).components as f64;
    assert!(single.iter().all(|squared| *squared > 0.0 && *squared < components - 1.0), "{single:?}");
    for (line, of) in lines(HeadKind::Mos, 0.5, 10).iter().zip(single.chunks(10)) {
        let mean = of.iter().sum::<f64>() / of.len() as f64;
        let got = line.prior_cv.unwrap();
        assert!((got - mean).abs() < 1e-5 * mean, "{got} {mean}");
        assert_eq!(written(line)["prior_cv"].as_f64(), line.prior_cv);
        assert!(line.latent_share.is_some_and(|share| share > 0.001 && share < 1.0));
    }
}

/// The weights of the mixture's projections.
fn projections(trainer: &Trainer) -> Vec<f32> {
    let tensors = trainer.model().head.context.collect(None, None, false);
    tensors.iter().flat_map(|tensor| bridge::to_data(tensor).unwrap().try_to_vec::<f32>().unwrap()).collect()
}

#[test]
fn a_rate_of_the_projections_is_kept_through_a_stop() {
    alone(module_path!(), "a_rate_of_the_projections_is_kept_through_a_stop", || {
        let config = TrainConfig { latent_lr: 0.01, prior_cv: 0.25, ..config(2) };
        let mut straight = trainer(&config);
        let start = projections(&straight);
        let mut lines = Notes::default();
        straight.fit(None, &mut lines).unwrap();

        let (_root, run) = run_of(&config);
        trainer(&config).fit(Some(&run), &mut StopAfter(27)).unwrap();
        let mut again = trainer(&config);
        assert!(again.restore(&run).unwrap());
        let mut notes = Notes::default();
        again.fit(Some(&run), &mut notes).unwrap();
        assert_eq!(weights(again.model()), weights(straight.model()));
        // The first interval goes over the stop.
        let of = |interval: &Interval| {
            (interval.step, [interval.latent_share, interval.prior_cv].map(Option::unwrap))
        };
        let (after, all) = (of(&notes.intervals[0]), lines.intervals.iter().map(of));
        let before = all.clone().find(|(step, _)| *step == after.0).unwrap();
        for (after, before) in after.1.iter().zip(before.1) {
            assert!((after - before).abs() < 1e-6 * before, "{after:?} {before:?}");
        }

        // At a hundredth of the rate the projections go a small part of the way.
        let moved = |trainer: &Trainer| {
            let now = projections(trainer);
            now.iter().zip(&start).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>().sqrt()
        };
        let mut whole = trainer(&TrainConfig { latent_lr: 1.0, ..config });
        whole.fit(None, &mut Silent).unwrap();
        assert!(moved(&straight) > 0.0 && moved(&straight) < 0.1 * moved(&whole));
    });
}

#[test]
#[should_panic(expected = "with_log_every: steps is 0")]
fn no_step_between_two_lines_is_refused() {
    let _ = trainer(&config(1)).with_log_every(0);
}

#[test]
fn the_file_has_the_reported_lines() {
    let (_root, run) = folder();
    let mut notes = Notes::default();
    let mut trainer = trainer(&config(2));
    trainer.fit(Some(&run), &mut notes).unwrap();
    let text = run.steps().unwrap();
    let lines: Vec<StepMetrics> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), notes.intervals.len());
    for (line, interval) in lines.iter().zip(&notes.intervals) {
        let reported = StepMetrics::from(interval);
        assert_eq!((line.epoch, line.step, line.tokens), (reported.epoch, reported.step, reported.tokens));
        assert!((line.gradient_norm - reported.gradient_norm).abs() < 1e-12);
    }
    assert_eq!(trainer.state().step_bytes, text.len() as u64);
}

#[test]
fn the_file_is_cut_back_to_the_checkpoint() {
    let (_root, run) = folder();
    let path = run.path().join("steps.jsonl");
    let fresh = || trainer(&config(3)).with_log_every(5);
    fresh().fit(Some(&run), &mut StopAfter(17)).unwrap();
    let lines = fs::read_to_string(&path).unwrap();
    assert_eq!(lines.lines().count(), 3);
    // As a process leaves it that dies after its checkpoint.
    fs::write(&path, format!("{lines}{lines}{{\"epo")).unwrap();
    fresh().restore(&run).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), lines);
    // Lines that are lost stay so, and what is left of one goes.
    let first = lines.lines().next().unwrap().to_string() + "\n";
    fs::write(&path, format!("{first}{{\"epo")).unwrap();
    let mut trainer = fresh();
    trainer.restore(&run).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), first);
    trainer.fit(Some(&run), &mut StopAfter(5)).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 2);
    fs::remove_file(&path).unwrap();
    let mut trainer = fresh();
    trainer.restore(&run).unwrap();
    trainer.fit(Some(&run), &mut StopAfter(5)).unwrap();
    let lines = fs::read_to_string(&path).unwrap();
    assert_eq!(lines.lines().count(), 1);
    // And of one that dies before its first checkpoint.
    fs::remove_dir_all(run.checkpoint()).unwrap();
    assert!(!fresh().restore(&run).unwrap());
    assert_eq!(fs::read_to_string(&path).unwrap(), "");
}

/// JSON has no infinity: it is written as null.
#[test]
fn an_infinite_norm_is_read_back() {
    let mut notes = Notes::default();
    trainer(&config(1)).fit(None, &mut notes).unwrap();
    let mut line = StepMetrics::from(&notes.intervals[0]);
    (line.gradient_norm, line.ppl) = (f64::INFINITY, f64::INFINITY);
    let back: StepMetrics = serde_json::from_str(&serde_json::to_string(&line).unwrap()).unwrap();
    assert_eq!((back.gradient_norm, back.ppl), (f64::INFINITY, f64::INFINITY));
}

/// A checkpoint within an epoch, as it was before anything was watched.
#[test]
fn a_checkpoint_of_an_earlier_version_goes_on() {
    alone(module_path!(), "a_checkpoint_of_an_earlier_version_goes_on", || {
        let config = config(2);
        let mut straight = trainer(&config);
        straight.fit(None, &mut Silent).unwrap();

        let (_root, run) = folder();
        let mut trainer = self::trainer(&config);
        trainer.fit(Some(&run), &mut StopAfter(27)).unwrap();
        let path = run.checkpoint().join("state.json");
        let mut state: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        let of_state = state["state"].as_object_mut().unwrap();
        for new in ["unimproved", "decays", "tokens", "step_bytes"] {
            assert!(of_state.remove(new).is_some(), "{new}");
        }
        let position = of_state["position"].as_object_mut().unwrap();
        for new in ["unread_steps", "latent_steps", "validation_seconds"] {
            assert!(position.remove(new).is_some(), "{new}");
        }
        let position: Position = serde_json::from_value(of_state["position"].clone()).unwrap();
        assert_eq!((position.step, position.unread_steps), (27, 0));
        fs::write(&path, state.to_string()).unwrap();
        let pass = trainer.pass.as_ref().unwrap();
        let old = pass.form_of(&position, &pass.hidden);
        save_weights(&old, &run.checkpoint().join(EPOCH)).unwrap();
        fs::remove_file(run.path().join("steps.jsonl")).unwrap();

        let mut again = self::trainer(&config);
        assert!(again.restore(&run).unwrap());
        let mut notes = Notes::default();
        again.fit(Some(&run), &mut notes).unwrap();
        assert_eq!(weights(again.model()), weights(straight.model()));
        assert!(notes.intervals.iter().all(|interval| interval.gradient_norm > 0.0));
    });
}
