//! Rules that begin averaging, end finetuning and lower the learning rate.

use super::*;
use crate::data::schedule;
use runs::optim::NonMonotone;
use std::path::PathBuf;

/// The best weights of a training, which finetunings start from.
fn trained() -> (tempfile::TempDir, PathBuf) {
    let (root, run) = run_of(&config(3));
    fit(&mut trainer(&config(2)), Some(&run));
    (root, run.best_weights().unwrap())
}

#[test]
fn the_rule_starts_averaging_and_the_average_is_what_is_evaluated() {
    alone(module_path!(), "the_rule_starts_averaging_and_the_average_is_what_is_evaluated", || {
        // With a rule that looks at every loss and a rate far too high, losses soon rise.
        let config = TrainConfig { nonmono: 0, lr: 40.0, ..config(8) };
        let mut trainer = trainer(&config);
        let (_, notes) = fit(&mut trainer, None);
        let began =
            notes.epochs.iter().position(|metrics| metrics.averaging == Some(true)).expect("averaging began");
        assert_eq!(notes.messages, [format!("averaging begins after epoch {began}")]);
        assert!(notes.epochs[began..].iter().all(|metrics| metrics.averaging == Some(true)));
        let losses = trainer.state().task.rule.losses();
        assert_eq!(losses.len(), began);
        assert!(losses[began - 1] > losses[..began - 1].iter().copied().fold(f64::INFINITY, f64::min));
        let averaged = mean_nll(&trainer.task().evaluated(trainer.state()), &trainer.task().valid);
        assert_eq!(averaged.exp(), notes.epochs[7].valid_ppl);
        let latest = mean_nll(&trainer.model().valid(), &trainer.task().valid);
        assert_ne!(averaged, latest);
    });
}

#[test]
fn a_finetuning_averages_from_its_first_step_and_ends_by_the_rule() {
    alone(module_path!(), "a_finetuning_averages_from_its_first_step_and_ends_by_the_rule", || {
        let (_root, weights) = trained();
        // Far too high a rate: it gets worse, and the model that it started from remains the best.
        let config = TrainConfig { nonmono: 1, lr: 300.0, average_from_start: true, ..config(50) };
        let (_root, tuned) = run_of(&config);
        let mut trainer = trainer(&config);
        trainer.start_from(&weights).unwrap();
        let start = trainer.state().best.unwrap();
        assert_eq!(start.epoch, 0);
        let (last, notes) = fit(&mut trainer, Some(&tuned));
        assert!(notes.epochs.iter().all(|metrics| metrics.averaging == Some(true)));
        let epochs = notes.epochs.len();
        assert!(epochs < 50);
        assert_eq!(notes.messages, [format!("finetuning ends after epoch {epochs}")]);
        let losses = trainer.state().task.rule.losses();
        let mut rule = NonMonotone::new(1);
        assert_eq!(losses.iter().position(|&loss| rule.observe(loss)), Some(epochs - 1));
        assert!(last.valid_ppl <= start.nll.exp());
        if last.best_epoch == 0 {
            assert_eq!(fs::read(tuned.best_weights().unwrap()).unwrap(), fs::read(&weights).unwrap());
        }
        // A gentle one improves on it.
        let config = TrainConfig { nonmono: 5, lr: 3.0, average_from_start: true, ..self::config(3) };
        let mut trainer = self::trainer(&config);
        trainer.start_from(&weights).unwrap();
        let (last, _) = fit(&mut trainer, None);
        assert!(last.best_epoch > 0 && last.valid_ppl < start.nll.exp(), "{last:?} from {}", start.nll.exp());
    });
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
        let (_root, weights) = trained();
        let config = TrainConfig {
            nonmono: 1,
            lr: 300.0,
            validate_every: Some(3),
            average_from_start: true,
            ..config(50)
        };
        let mut trainer = trainer(&config);
        trainer.start_from(&weights).unwrap();
        let (last, notes) = fit(&mut trainer, None);
        let end = notes.validations.last().unwrap();
        let line = format!("finetuning ends after step {} of epoch {}", end.step, end.epoch);
        assert_eq!((notes.messages.as_slice(), last.ended), ([line].as_slice(), EndReason::FinetuningRule));
        assert_eq!(trainer.state().task.rule.losses().len(), notes.validations.len() + notes.epochs.len());
        if last.best_epoch == 0 {
            assert_eq!((last.best_step, last.train_ppl), (None, None));
        }
    });
}

#[test]
fn the_rate_falls_from_an_epoch_on() {
    let lr_decay = Some(LrDecay { factor: 0.5, when: DecayWhen::From { epoch: 3 } });
    let config = TrainConfig { lr_decay, ..config(4) };
    let (_, notes) = fit(&mut trainer(&config).with_log_every(1), None);
    assert_eq!(notes.epochs.iter().map(|metrics| metrics.lr).collect::<Vec<_>>(), [5.0, 5.0, 2.5, 1.25]);
    // What a step is taken with, too.
    for interval in notes.intervals.iter().filter(|interval| interval.epoch == 4) {
        let StepMetrics { epoch, step, lr, .. } = *interval;
        let steps = schedule(500, config.bptt, config.max_seq_len_delta, config.seed, epoch);
        assert_eq!(lr, 1.25 * steps[step - 1].lr_scale);
    }
}

#[test]
fn the_rate_falls_after_each_validation_without_a_new_best() {
    let lr_decay = Some(LrDecay { factor: 0.25, when: DecayWhen::Plateau });
    let config = TrainConfig { lr_decay, lr: 60.0, nonmono: 100, ..config(7) };
    let (_, notes) = fit(&mut trainer(&config), None);
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
fn a_finetuning_that_its_rule_ended_stays_so() {
    alone(module_path!(), "a_finetuning_that_its_rule_ended_stays_so", || {
        let (_origin, weights) = trained();
        let config = TrainConfig { nonmono: 0, lr: 300.0, average_from_start: true, ..config(30) };
        let (_root, run) = run_of(&config);
        let mut trainer = trainer(&config);
        trainer.start_from(&weights).unwrap();
        let (last, _) = fit(&mut trainer, Some(&run));
        assert_eq!(last.ended, EndReason::FinetuningRule);
        let longer = runs::Extension { epochs: Some(99), ..Default::default() };
        let message = run.extend(&longer).unwrap_err().to_string();
        assert!(message.contains("finetune its best model in a new run"), "{message}");
    });
}
