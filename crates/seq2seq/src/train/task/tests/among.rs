//! Several ranks, as threads of this process, that share responses, a vocabulary, or both. Without dropout: all threads draw from the
//! same random numbers.

use runs::load_weights;
use runs::ranks::Grid;
use runs::testing::{AtEnd, NEVER, assert_near, near, train_among};

use super::*;

/// A run whose training starts from weights that all numbers of ranks have alike.
fn begun(folder: &Path, name: &str, corpus: &Corpus, head: HeadKind) -> RunFolder {
    let model = model(corpus, head);
    let config = RunConfig { model: model.clone(), ..configuration(corpus, &train()) };
    let run = RunFolder::create(&folder.join(name), &config, corpus.vocabulary()).unwrap();
    run.save_best(&with_fixed_weights(model.try_init(&Device::flex()).unwrap(), 0.3)).unwrap();
    run
}

/// Goes on with the run as ranks of this [shape](train_among).
fn fit<'a>(
    shape: (usize, usize),
    run: &RunFolder,
    corpus: &'a Corpus,
    stop: usize,
) -> Vec<AtEnd<DialogTask<'a>>> {
    let RunConfig { model, train, .. } = run.config().unwrap();
    let trainer = |grid: &Grid| {
        let task = DialogTask::among(&grid.vocabulary, &model, &train, corpus, &Device::flex());
        Trainer::new(task.unwrap())
    };
    train_among(shape, trainer, Some(run), stop)
}

#[test]
fn ranks_train_as_one_process() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = corpus(folder.path());
    for head in [HeadKind::Softmax, HeadKind::Mos, HeadKind::Moc, HeadKind::Plif] {
        let run = |shape: (usize, usize)| {
            let name = format!("{head}-{}-{}", shape.0, shape.1);
            begun(folder.path(), &name, &corpus, head)
        };
        let whole = fit((1, 1), &run((1, 1)), &corpus, NEVER).remove(0);
        for shape in [(2, 1), (5, 1), (2, 2), (4, 2), (3, 3)] {
            let all = fit(shape, &run(shape), &corpus, NEVER);
            let rows: usize = all[..shape.1].iter().map(|end| end.own.embedding.lazy_shape()[0]).sum();
            assert_eq!(rows, corpus.vocabulary().len(), "{head}, {shape:?}");
            // Slopes of a PLIF below all logits change nothing, and go where rounding leads Adam.
            let far = distance(&all[0].model, &whole.model);
            assert!(head == HeadKind::Plif || far < 1e-3, "{head}, {shape:?}: weights differ by {far}");
            for end in &all {
                let got = end.last();
                assert_near(&got, &whole.last(), 1e-4, &format!("{head}, {shape:?}"));
                assert_eq!(got.valid_ppl, all[0].last().valid_ppl);
            }
        }
    }
}

#[test]
fn a_checkpoint_is_whole_and_goes_on_with_any_number_of_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = corpus(folder.path());
    let run = |name: &str| begun(folder.path(), name, &corpus, HeadKind::Mos);
    let straight = fit((2, 2), &run("straight"), &corpus, NEVER).remove(0);
    let pairs = [((2, 2), (2, 2)), ((2, 2), (1, 1)), ((1, 1), (2, 2)), ((2, 2), (4, 2)), ((2, 1), (3, 3))];
    for stop in [2, 7] {
        for (at, (before, after)) in pairs.into_iter().enumerate() {
            let run = run(&format!("{stop}-{at}"));
            let all = fit(before, &run, &corpus, stop);
            assert!(all.iter().all(|end| end.fitted == Ok(Fitted::Stopped)), "{stop}");
            let end = fit(after, &run, &corpus, NEVER).remove(0);
            let far = distance(&end.model, &straight.model);
            let is_same = (before, after) == ((2, 2), (2, 2));
            assert!(if is_same { far == 0.0 } else { far < 1e-3 }, "{stop}, {before:?} {after:?}: {far}");
            // The best model is for one process.
            let config = run.config().unwrap().model;
            let best = config.try_init(&Device::flex()).unwrap();
            let best = load_weights(best, &run.best_weights().unwrap()).unwrap();
            let ppl = mean_nll(&best, corpus.valid()).exp();
            assert!(near(ppl, end.last().valid_ppl, 1e-4), "{stop}, {before:?} {after:?}: {ppl}");
        }
    }
}
