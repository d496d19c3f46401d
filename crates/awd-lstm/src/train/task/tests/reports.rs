//! What is reported of steps.

use super::*;

#[test]
fn the_share_of_clipped_steps_depends_on_the_norm_that_is_allowed() {
    for (clip, clipped) in [(1e-6, 1.0), (1e6, 0.0)] {
        let config = TrainConfig { clip, alpha: 0.0, beta: 0.0, lr: 0.1, ..config(1) };
        for interval in fit(&mut trainer(&config), None).1.intervals {
            assert_eq!((interval.clipped, interval.ar, interval.tar), (clipped, Some(0.0), Some(0.0)));
            assert!(interval.gradient_norm > 0.01 && interval.gradient_norm < 100.0, "{interval:?}");
        }
    }
}

#[test]
fn the_share_of_the_projections_is_that_of_a_mixture() {
    let intervals = |head| fit(&mut of_head(head, &config(1)), None).1.intervals;
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
        fit(&mut of_head(head, &config).with_log_every(log_every), None).1.intervals
    };
    let written = |interval: &StepMetrics| serde_json::to_value(interval).unwrap();
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
    weights(&trainer.model().head.context).concat()
}

#[test]
fn a_rate_of_the_projections_is_kept_through_a_stop() {
    alone(module_path!(), "a_rate_of_the_projections_is_kept_through_a_stop", || {
        let config = TrainConfig { latent_lr: 0.01, prior_cv: 0.25, ..config(2) };
        let mut straight = trainer(&config);
        let start = projections(&straight);
        let (_, lines) = fit(&mut straight, None);

        let (_root, run) = run_of(&config);
        trainer(&config).fit(Some(&run), &mut Notes::stopping_after(27)).unwrap();
        let mut again = trainer(&config);
        assert!(again.restore(&run).unwrap());
        let (_, notes) = fit(&mut again, Some(&run));
        assert_eq!(weights(again.model()), weights(straight.model()));
        // The first interval goes over the stop.
        let of = |interval: &StepMetrics| {
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
        fit(&mut whole, None);
        assert!(moved(&straight) > 0.0 && moved(&straight) < 0.1 * moved(&whole));
    });
}
