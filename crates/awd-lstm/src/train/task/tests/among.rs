//! Several ranks, as threads of this process. Without dropout: all threads draw from the same random numbers.

use super::*;

/// Averages from early on.
fn eager(epochs: usize) -> TrainConfig {
    TrainConfig { nonmono: 0, lr: 40.0, ..config(epochs) }
}

#[test]
fn ranks_make_the_bits_of_as_many_slices() {
    alone(module_path!(), "ranks_make_the_bits_of_as_many_slices", || {
        // 8 columns in parts of 4 and 4; 3, 3 and 2.
        for (size, slice) in [(2, 4), (3, 3)] {
            let config = TrainConfig { small_batch: Some(slice), ..eager(3) };
            let mut slices = trainer(&config).with_log_every(8);
            let (expected, notes) = fit(&mut slices, None);
            assert!(slices.state().task.averaging);
            let all = train((size, 1), &model(HeadKind::Mos), |_| eager(3), None, NEVER);
            assert_eq!(all.len(), size);
            for (rank, end) in all.iter().enumerate() {
                assert_eq!(weights(&end.model), weights(slices.model()), "{size} ranks, rank {rank}");
                assert_near(&end.last(), &expected, 1e-6, &format!("{size} ranks, rank {rank}"));
                // All ranks go by the same clock and the same numbers.
                assert_eq!(end.state.task.rule, all[0].state.task.rule);
                assert_eq!(end.state.seconds, all[0].state.seconds);
                for (interval, one) in end.intervals.iter().zip(&notes.intervals) {
                    assert_eq!((interval.nll, interval.ar, interval.tar), (one.nll, one.ar, one.tar));
                    assert_eq!((interval.gradient_norm, interval.clipped), (one.gradient_norm, one.clipped));
                    let waiting = interval.waiting.unwrap();
                    assert_eq!(waiting.ranks, size);
                    assert!(waiting.wait_seconds <= waiting.longest_wait_seconds);
                    assert!(one.waiting.is_none());
                }
            }
        }
    });
}

#[test]
fn a_stop_at_one_rank_stops_all_and_any_number_goes_on() {
    alone(module_path!(), "a_stop_at_one_rank_stops_all_and_any_number_goes_on", || {
        let model = model(HeadKind::Mos);
        let whole = train((2, 1), &model, |_| config(2), None, NEVER).remove(0).model;
        // Before a step of the second epoch, and in a validation.
        for stop in [9, 37, 60] {
            for size in [2, 1, 3] {
                let (_root, run) = run_of(&config(2));
                let all = train((2, 1), &model, |_| config(2), Some(&run), stop);
                assert!(all.iter().all(|end| end.fitted == Ok(Fitted::Stopped)), "{stop}");
                assert!(run.checkpoint().exists());
                let all = train((size, 1), &model, |_| config(2), Some(&run), NEVER);
                for end in &all {
                    let far = distance(&end.model, &whole);
                    assert!(if size == 2 { far == 0.0 } else { far < 1e-3 }, "{stop}, {size} ranks: {far}");
                }
            }
        }
    });
}

#[test]
fn what_ends_training_ends_it_everywhere() {
    alone(module_path!(), "what_ends_training_ends_it_everywhere", || {
        let model = model(HeadKind::Mos);
        let absurd = TrainConfig { lr: 1e38, ..config(2) };
        let all = train((2, 1), &model, |_| absurd.clone(), None, NEVER);
        assert!(all[0].fitted.clone().unwrap_err().contains("not finite"), "{:?}", all[0].fitted);
        assert_eq!(all[1].fitted, all[0].fitted);
        // By rank 0's clock.
        let limited = TrainConfig { max_minutes: Some(1e-6), ..config(2) };
        let (_root, run) = run_of(&limited);
        let all = train((3, 1), &model, |_| limited.clone(), Some(&run), NEVER);
        for end in &all {
            assert_eq!(weights(&end.model), weights(&all[0].model));
            assert_eq!(end.last().ended, EndReason::Time);
        }
    });
}

#[test]
fn weights_that_differ_are_found_and_too_many_ranks_refused() {
    alone(module_path!(), "weights_that_differ_are_found_and_too_many_ranks_refused", || {
        let of_rank = |rank: usize| TrainConfig { lr: 5.0 + (rank / 2) as f64, ..config(1) };
        let all = train((3, 1), &model(HeadKind::Mos), of_rank, None, NEVER);
        for end in &all {
            let error = end.fitted.clone().unwrap_err();
            assert!(error.contains("rank 2 differs from rank 0: the hash of the weights is "), "{error}");
        }
        let fresh = Mutex::new(());
        let refused = threads(9, |ranks| {
            let _guard = fresh.lock().unwrap();
            trainer(&config(1)).with_grid(&Grid::of_one(&ranks)).err().map(|error| error.to_string())
        });
        let line = "9 ranks cannot share a batch of 8: every rank needs at least one column";
        assert!(refused.iter().all(|refused| refused.as_deref() == Some(line)), "{refused:?}");
    });
}
