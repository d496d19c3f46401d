//! Several ranks, as threads of this process, that share sequences, a vocabulary, or both. Without dropout: all threads draw from the
//! same random numbers.

use highrank::LogitMapConfig;
use highrank::context::FacetsConfig;
use runs::data::Fingerprint;
use runs::ranks::{Grid, threads};
use runs::testing::{AtEnd, NEVER, assert_near, config, near, train_among};
use runs::{distance, load_weights};

use super::*;
use crate::run::{RunConfig, RunFolder};

fn procedure() -> TrainConfig {
    TrainConfig::new(16).with_rounds(2).with_batch(6).with_lr(0.01).with_warmup(3).with_clip(0.5)
}

fn models() -> Vec<GptConfig> {
    let vocab = VOCAB as usize;
    let of = |head: HeadConfig| GptConfig::new(8, head).with_layers(1).with_context(8).with_dropout(0.0);
    let facets = HeadConfig::mos(16, 6, vocab, 2).starting_at_softmax(0.02).with_tied(true);
    vec![
        of(HeadConfig::softmax(8, vocab).with_tied(true)),
        // The rows of the padding are shared out, too.
        of(HeadConfig::mos(8, 6, vocab, 2).with_vocab_multiple(8).with_tied(true)),
        of(HeadConfig::plif(8, vocab, 10)),
        of(facets).with_facets(Some(FacetsConfig { layers: 2, window: 3 })),
    ]
}

/// A run whose training starts from the weights of `start`.
fn run_of(model: &GptConfig, start: &Gpt) -> (tempfile::TempDir, RunFolder) {
    let root = tempfile::tempdir().unwrap();
    let config = config(Fingerprint::of(&corpus()), model.clone(), procedure());
    let run = RunFolder::create(&root.path().join("run"), &config, corpus().vocabulary()).unwrap();
    run.save_best(start).unwrap();
    (root, run)
}

/// Goes on with the run as ranks of this [shape](train_among).
fn train(shape: (usize, usize), run: &RunFolder, stop: usize) -> Vec<AtEnd<GptTask>> {
    let RunConfig { model, train, .. } = run.config().unwrap();
    let trainer = |grid: &Grid| {
        let task = GptTask::among(&grid.vocabulary, &model, &train, &corpus(), &Device::flex());
        Trainer::new(task.unwrap()).with_log_every(4)
    };
    train_among(shape, trainer, Some(run), stop)
}

#[test]
fn ranks_train_as_one_process() {
    for model in models() {
        let start = model.try_init(&Device::flex()).unwrap();
        let (_root, run) = run_of(&model, &start);
        let whole = train((1, 1), &run, NEVER).remove(0);
        assert!(distance(&start, &whole.model) > 1e-3, "it learns");
        for shape in [(2, 1), (3, 1), (2, 2), (4, 2), (3, 3)] {
            let (_root, run) = run_of(&model, &start);
            let all = train(shape, &run, NEVER);
            let what = format!("{:?}, {shape:?}", model.head.logit_map);
            let rows: usize = all[..shape.1].iter().map(|end| end.own.embedding.weight.dims()[0]).sum();
            assert_eq!(rows, model.head.decoder_rows(), "{what}");
            let far = distance(&all[0].model, &whole.model);
            // Slopes below all logits move all of them alike: their gradient is rounding, of which Adam makes whole steps.
            let is_plif = matches!(model.head.logit_map, LogitMapConfig::Plif { .. });
            assert!(is_plif || far < 1e-3, "{what}: weights differ by {far}");
            let expected = whole.last();
            for end in &all {
                let got = end.last();
                assert_near(&got, &expected, 1e-4, &what);
                assert_eq!(got.test_accuracy, expected.test_accuracy, "{what}");
                assert_eq!((got.valid_ppl, got.test_ppl), (all[0].last().valid_ppl, all[0].last().test_ppl));
                for (interval, one) in end.intervals.iter().zip(&whole.intervals) {
                    assert!(near(interval.nll, one.nll, 1e-4), "{what}: {interval:?} {one:?}");
                    assert!(
                        near(interval.gradient_norm, one.gradient_norm, 1e-4),
                        "{what}: {interval:?} {one:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_checkpoint_is_whole_and_goes_on_with_any_number_of_ranks() {
    let model = models().remove(1);
    let start = model.try_init(&Device::flex()).unwrap();
    let (_root, run) = run_of(&model, &start);
    let straight = train((2, 2), &run, NEVER).remove(0);
    // In the first round, and in a later validation.
    for stop in [9, 19] {
        for (before, after) in
            [((2, 2), (2, 2)), ((2, 2), (1, 1)), ((1, 1), (2, 2)), ((2, 2), (4, 2)), ((2, 1), (3, 3))]
        {
            let (_root, run) = run_of(&model, &start);
            let all = train(before, &run, stop);
            assert!(all.iter().all(|end| end.fitted == Ok(Fitted::Stopped)), "{stop}");
            let end = train(after, &run, NEVER).remove(0);
            let far = distance(&end.model, &straight.model);
            let is_same = (before, after) == ((2, 2), (2, 2));
            assert!(if is_same { far == 0.0 } else { far < 1e-3 }, "{stop}, {before:?} {after:?}: {far}");
            // The best model is for one process.
            let best =
                load_weights(model.try_init(&Device::flex()).unwrap(), &run.best_weights().unwrap()).unwrap();
            let ppl = evaluate(&best, corpus().valid(), 6, |_| ()).unwrap().perplexity();
            assert!(near(ppl, end.last().valid_ppl, 1e-4), "{stop}, {before:?} {after:?}: {ppl}");
        }
    }
}

#[test]
fn what_cannot_be_shared_is_refused() {
    let model = models().remove(0);
    let refused = threads(13, |ranks| {
        let task = GptTask::among(&ranks, &model, &procedure(), &corpus(), &Device::flex());
        task.err().expect("refused").to_string()
    });
    assert_eq!(refused[0], "13 ranks share 12 rows of a decoder, expected at most as many ranks as rows");
    let refused = threads(7, |ranks| {
        let task = GptTask::new(&model, &procedure(), &corpus(), &Device::flex()).unwrap();
        Trainer::new(task).with_grid(&Grid::of_one(&ranks)).err().expect("refused").to_string()
    });
    assert!(refused[0].contains("7 ranks cannot share a batch of 6"), "{}", refused[0]);
}
