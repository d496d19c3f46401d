//! Ranks that share the vocabulary, as threads of this process. Without dropout: all threads draw from the same random numbers.

use super::*;
use runs::load_weights;

/// Steps that rounding does not drive apart, most of them clipped.
fn gentle(epochs: usize) -> TrainConfig {
    TrainConfig { lr: 1.0, clip: 0.1, ..config(epochs) }
}

/// That training with a shared vocabulary is training with a whole one, to rounding.
fn check(shape: (usize, usize), model: &ModelConfig, config: &TrainConfig, whole: &AtEnd<LmTask>) {
    let what = format!("{}, tied {}, {shape:?}", model.head, model.tied);
    let all = train(shape, model, |_| config.clone(), None, NEVER);
    let rows = all[..shape.1].iter().map(|end| end.own.embedding.lazy_shape()[0]);
    assert_eq!(rows.clone().sum::<usize>(), model.vocab, "{what}");
    assert!(rows.max().unwrap() <= model.vocab.div_ceil(shape.1), "{what}");
    let far = distance(&all[0].model, &whole.model);
    assert!(far < 1e-5, "{what}: weights differ by {far}");
    let (expected, first) = (whole.last(), all[0].last());
    for (rank, end) in all.iter().enumerate() {
        let got = end.last();
        assert_near(&got, &expected, 1e-5, &format!("{what}, rank {rank}"));
        // All bits, on all ranks.
        assert_eq!((got.valid_ppl, got.test_ppl), (first.valid_ppl, first.test_ppl));
        for (interval, one) in end.intervals.iter().zip(&whole.intervals) {
            assert!(near(interval.nll, one.nll, 1e-5), "{what}: {interval:?} {one:?}");
            assert!(near(interval.gradient_norm, one.gradient_norm, 1e-5), "{what}: {interval:?} {one:?}");
            assert_eq!(interval.clipped, one.clipped, "{what}");
        }
        // Those with the same rows.
        if rank >= shape.1 {
            assert_eq!(weights(&end.model), weights(&all[rank % shape.1].model), "{what}, rank {rank}");
        }
    }
}

#[test]
fn every_head_trains_as_with_a_whole_vocabulary() {
    alone(module_path!(), "every_head_trains_as_with_a_whole_vocabulary", || {
        // Rounding depends on the number of threads: the same on every machine.
        rayon::ThreadPoolBuilder::new().num_threads(2).build_global().unwrap();
        let config = gentle(1);
        for head in HeadKind::ALL {
            if matches!(head, HeadKind::Mixtape | HeadKind::Adaptive) {
                continue;
            }
            for tied in [true, false] {
                let model = ModelConfig { tied, ..model(*head) };
                let whole = train((1, 1), &model, |_| config.clone(), None, NEVER).remove(0);
                check((2, 2), &model, &config, &whole);
            }
        }
    });
}

#[test]
fn any_number_of_ranks_shares_a_vocabulary_and_groups_share_the_batch() {
    alone(module_path!(), "any_number_of_ranks_shares_a_vocabulary_and_groups_share_the_batch", || {
        let config = TrainConfig { average_from_start: true, prior_cv: 0.01, ..gentle(2) };
        let model = ModelConfig { tied: false, ..model(HeadKind::Mos) };
        let whole = train((1, 1), &model, |_| config.clone(), None, NEVER).remove(0);
        for shape in [(2, 2), (4, 4)] {
            check(shape, &model, &config, &whole);
        }
        // The priors' term is that of a group's columns.
        let config = TrainConfig { prior_cv: 0.0, ..config };
        let whole = train((1, 1), &model, |_| config.clone(), None, NEVER).remove(0);
        for shape in [(4, 2), (6, 2)] {
            check(shape, &model, &config, &whole);
        }
        // In slices of the columns.
        let config = TrainConfig { small_batch: Some(3), ..config };
        check((2, 2), &model, &config, &whole);
    });
}

#[test]
fn a_checkpoint_is_whole_and_goes_on_with_any_number_of_ranks() {
    alone(module_path!(), "a_checkpoint_is_whole_and_goes_on_with_any_number_of_ranks", || {
        // Averages are part of it.
        let config = TrainConfig { average_from_start: true, nonmono: 50, ..gentle(2) };
        let model = model(HeadKind::Mos);
        let straight = train((2, 2), &model, |_| config.clone(), None, NEVER).remove(0);
        // Before a step of the second epoch, and in a validation.
        for stop in [13, 37, 60] {
            for shape in [(2, 2), (1, 1), (4, 4), (4, 2), (2, 1)] {
                let (_root, run) = run_of(&config);
                let all = train((2, 2), &model, |_| config.clone(), Some(&run), stop);
                assert!(all.iter().all(|end| end.fitted == Ok(Fitted::Stopped)), "{stop}");
                let end = train(shape, &model, |_| config.clone(), Some(&run), NEVER).remove(0);
                let far = distance(&end.model, &straight.model);
                let is_same = shape == (2, 2);
                assert!(if is_same { far == 0.0 } else { far < 1e-5 }, "{stop}, {shape:?}: {far}");
                // The best model is for one process.
                let best = model.try_init(&Device::flex()).unwrap();
                let best = load_weights(best, &run.best_weights().unwrap()).unwrap();
                let corpus = corpus();
                let valid =
                    Batches::new("the validation text", corpus.valid(), config.eval_batch, 2).unwrap();
                let nll = mean_nll(&best, &valid);
                let ppl = end.last().valid_ppl;
                assert!(near(nll.exp(), ppl, 1e-5), "{stop}, {shape:?}: {} {ppl}", nll.exp());
            }
        }
        // The other way round.
        let (_root, run) = run_of(&config);
        train((1, 1), &model, |_| config.clone(), Some(&run), 30);
        let end = train((2, 2), &model, |_| config.clone(), Some(&run), NEVER).remove(0);
        assert!(distance(&end.model, &straight.model) < 1e-5);
    });
}

#[test]
fn what_cannot_be_shared_is_refused() {
    let refused = |model: ModelConfig, size: usize| {
        let corpus = corpus();
        let all = threads(size, |ranks| {
            let task = LmTask::among(&ranks, &model, &config(1), &corpus, &Device::flex());
            task.err().expect("refused").to_string()
        });
        assert!(all.iter().all(|line| *line == all[0] && !line.contains('\n')), "{all:?}");
        all[0].clone()
    };
    assert!(
        refused(model(HeadKind::Mixtape), 2).starts_with("a Mixtape is not made by a head whose vocabulary")
    );
    let clusters = ModelConfig { cutoffs: vec![10], ..model(HeadKind::Mos) };
    assert!(refused(clusters, 2).starts_with("a softmax with clusters is not made by"));
    assert_eq!(
        refused(model(HeadKind::Mos), 31),
        "31 ranks share 30 rows of a decoder, expected at most as many ranks as rows"
    );
    let refused = threads(3, |ranks| Grid::new(&ranks, 2).err().unwrap().to_string());
    let line = "--vocab-parallel is 2, but must divide the number of ranks, which is 3";
    assert!(refused.iter().all(|refused| refused == line), "{refused:?}");
}
