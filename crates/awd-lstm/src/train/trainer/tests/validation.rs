//! Validations inside of epochs.

use super::*;
use crate::config::{DecayWhen, LrDecay};

#[test]
fn validations_inside_of_epochs_are_reported_and_change_no_weights() {
    alone(module_path!(), "validations_inside_of_epochs_are_reported_and_change_no_weights", || {
        let (_root, run) = folder();
        let config = TrainConfig { nonmono: 100, ..config(2) };
        let mut plain = trainer(&config);
        plain.fit(None, &mut Silent).unwrap();
        let config = TrainConfig { validate_every: Some(9), ..config };
        let mut notes = Notes::default();
        let mut trainer = trainer(&config);
        let last = finished(trainer.fit(Some(&run), &mut notes).unwrap());
        assert_eq!(weights(trainer.model()), weights(plain.model()));

        let steps = notes.validations[0].steps;
        assert!(steps > 36 && !steps.is_multiple_of(9), "{steps}");
        let places: Vec<_> = notes.validations.iter().map(|metrics| (metrics.epoch, metrics.step)).collect();
        let expected = [1, 2].into_iter().flat_map(|epoch| (1..=4).map(move |n| (epoch, 9 * n)));
        assert!(places.len() >= 8 && places[..4].iter().copied().eq(expected.clone().take(4)), "{places:?}");
        assert!(places.contains(&(2, 36)), "{places:?}");

        // In the file, in the order in which they were, and each kind is read as itself only.
        let text = run.metrics().unwrap();
        let inside: Vec<ValidationMetrics> =
            text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let ends: Vec<EpochMetrics> =
            text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        assert_eq!(inside.iter().map(|metrics| (metrics.epoch, metrics.step)).collect::<Vec<_>>(), places);
        assert_eq!(ends.iter().map(|metrics| metrics.epoch).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(text.lines().count(), inside.len() + ends.len() + 1);
        let kinds: Vec<bool> = text.lines().map(|line| line.contains("\"step\"")).collect();
        assert_eq!(&kinds[..6], [true, true, true, true, false, true]);

        // All of them together have one best model.
        let ppl = inside.iter().map(|metrics| metrics.valid_ppl).chain(ends.iter().map(|end| end.valid_ppl));
        assert!((ppl.fold(f64::INFINITY, f64::min) - last.valid_ppl).abs() < 1e-9);
        assert_eq!(trainer.state().rule.losses().len(), inside.len() + ends.len());
        let share: Vec<f64> = notes.intervals.iter().map(|interval| interval.share).collect();
        assert!(share.is_sorted() && share[share.len() - 1] < 1.0, "{share:?}");
    });
}

#[test]
fn a_best_model_of_the_middle_of_an_epoch_is_kept() {
    alone(module_path!(), "a_best_model_of_the_middle_of_an_epoch_is_kept", || {
        // A rate that is too high after the first steps.
        let (_root, run) = folder();
        let config = TrainConfig { validate_every: Some(5), lr: 60.0, nonmono: 100, ..config(2) };
        let mut notes = Notes::default();
        let mut trainer = trainer(&config);
        let last = finished(trainer.fit(Some(&run), &mut notes).unwrap());
        let step = last.best_step.expect("the best model is of the middle of an epoch");
        let is_best = |metrics: &&ValidationMetrics| (metrics.epoch, metrics.step) == (last.best_epoch, step);
        let best = notes.validations.iter().find(is_best).unwrap();
        assert!(best.best);
        assert!((last.train_ppl.unwrap() - best.train_ppl).abs() < 1e-9);
        let fresh = model(HeadKind::Mos).try_init(&Device::flex()).unwrap();
        let loaded = load_weights(fresh, &run.best_weights().unwrap()).unwrap();
        assert_eq!(mean_nll(&loaded, &trainer.valid).exp(), last.valid_ppl);
        assert_eq!(Some(mean_nll(&loaded, &trainer.test).exp()), last.test_ppl);
    });
}

#[test]
fn a_process_that_dies_before_the_best_model_of_an_epochs_middle_is_saved_loses_nothing() {
    let (_root, run) = folder();
    let config = TrainConfig { validate_every: Some(5), ..config(1) };
    let mut trainer = trainer(&config);
    assert!(trainer.advance(None, &mut Silent).unwrap());
    assert_eq!(trainer.state().best.unwrap().step, Some(5));
    trainer.save(Some(&run)).unwrap();
    assert!(run.best_weights().is_err());
    let mut again = self::trainer(&config);
    again.restore(&run).unwrap();
    assert_eq!(weights(again.best().unwrap()), weights(trainer.best().unwrap()));
    assert!(run.best_weights().is_ok());
    assert_eq!(timeless(&run).len(), 1);
}

#[test]
fn every_rule_goes_on_to_the_same_bits() {
    alone(module_path!(), "every_rule_goes_on_to_the_same_bits", || {
        // Averaging begins in the middle of an epoch, and the learning rate falls there too.
        let config = TrainConfig {
            nonmono: 1,
            lr: 50.0,
            validate_every: Some(7),
            lr_decay: Some(LrDecay { factor: 0.9, when: DecayWhen::Plateau }),
            patience: Some(1000),
            ..config(4)
        };
        let notes = stopped_anywhere(&config, &[0, 1, 3, 7, 8, 15, 9, 30]);
        assert!(notes.messages.iter().any(|line| line.starts_with("averaging begins after step ")));
        let rates: Vec<f64> = notes.validations.iter().map(|metrics| metrics.lr).collect();
        assert!(rates[rates.len() - 1] < rates[0], "{rates:?}");
    });
}

#[test]
fn a_finetuning_ends_in_the_middle_of_an_epoch_too() {
    alone(module_path!(), "a_finetuning_ends_in_the_middle_of_an_epoch_too", || {
        let (_root, run) = folder();
        finished(trainer(&config(2)).fit(Some(&run), &mut Silent).unwrap());
        let config = TrainConfig {
            nonmono: 1,
            lr: 300.0,
            validate_every: Some(3),
            average_from_start: true,
            ..config(50)
        };
        let mut trainer = trainer(&config);
        trainer.start_from(&run.best_weights().unwrap()).unwrap();
        let mut notes = Notes::default();
        let last = finished(trainer.fit(None, &mut notes).unwrap());
        let end = notes.validations.last().unwrap();
        let line = format!("finetuning ends after step {} of epoch {}", end.step, end.epoch);
        assert_eq!(
            (notes.messages.as_slice(), last.ended),
            ([line].as_slice(), Some(EndReason::FinetuningRule))
        );
        assert_eq!(trainer.state().rule.losses().len(), notes.validations.len() + notes.epochs.len());
        if last.best_epoch == 0 {
            assert_eq!((last.best_step, last.train_ppl), (None, None));
        }
    });
}
