//! Several ranks, as threads of this process, that share responses, a vocabulary, or both. Without dropout: all threads draw from the
//! same random numbers.

use runs::load_weights;
use runs::ranks::{Grid, threads};

use super::*;

const NEVER: usize = usize::MAX;

/// What one rank has at its end.
struct AtEnd {
    /// Of rank 0 the whole model, of the others their rows.
    model: Seq2Seq,
    rows: usize,
    fitted: Fitted,
}

impl AtEnd {
    fn last(&self) -> FinalMetrics {
        let Fitted::Finished(last) = self.fitted.clone() else { panic!("it was not stopped") };
        last
    }
}

/// A run whose training starts from weights that all numbers of ranks have alike.
fn begun(folder: &Path, name: &str, corpus: &Corpus, head: HeadKind) -> RunFolder {
    let model = model(corpus, head);
    let config = RunConfig { model: model.clone(), ..configuration(corpus, &train()) };
    let run = RunFolder::create(&folder.join(name), &config, corpus.vocabulary()).unwrap();
    run.save_best(&with_fixed_weights(model.try_init(&Device::flex()).unwrap(), 0.3)).unwrap();
    run
}

/// Goes on with the run as `size` ranks, of which `width` share a vocabulary. Rank `size − 1` stops after so many steps and chunks.
fn fit((size, width): (usize, usize), run: &RunFolder, corpus: &Corpus, stop: usize) -> Vec<AtEnd> {
    threads(size, |ranks| {
        let grid = Grid::new(&ranks, width).unwrap();
        let config = run.config().unwrap();
        let task =
            DialogTask::among(grid.vocabulary(), &config.model, &config.train, corpus, &Device::flex());
        let mut trainer = Trainer::new(task.unwrap()).with_grid(&grid).unwrap();
        // The others do not hold the lock.
        let own = RunFolder::open(run.path()).unwrap();
        ranks.wait().unwrap();
        trainer.restore(if ranks.is_first() { run } else { &own }).unwrap();
        let stop = if ranks.rank() == size - 1 { stop } else { NEVER };
        let fitted = trainer.fit(Some(run).filter(|_| ranks.is_first()), &mut Notes::stopping_after(stop));
        let rows = trainer.model().embedding.lazy_shape()[0];
        let model = trainer.task().shards().whole(trainer.model()).unwrap();
        AtEnd { model, rows, fitted: fitted.unwrap() }
    })
}

fn near(a: f64, b: f64) -> bool {
    (a / b - 1.0).abs() < 1e-4
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
            let rows: usize = all[..shape.1].iter().map(|end| end.rows).sum();
            assert_eq!(rows, corpus.vocabulary().len(), "{head}, {shape:?}");
            // Slopes of a PLIF below all logits change nothing, and go where rounding leads Adam.
            let far = distance(&all[0].model, &whole.model);
            assert!(head == HeadKind::Plif || far < 1e-3, "{head}, {shape:?}: weights differ by {far}");
            for end in &all {
                let (got, expected) = (end.last(), whole.last());
                assert!(near(got.valid_ppl, expected.valid_ppl), "{head}, {shape:?}: {got:?} {expected:?}");
                assert!(
                    near(got.test_ppl.unwrap(), expected.test_ppl.unwrap()),
                    "{head}, {shape:?}: {got:?}"
                );
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
            assert!(all.iter().all(|end| end.fitted == Fitted::Stopped), "{stop}");
            let end = fit(after, &run, &corpus, NEVER).remove(0);
            let far = distance(&end.model, &straight.model);
            let is_same = (before, after) == ((2, 2), (2, 2));
            assert!(if is_same { far == 0.0 } else { far < 1e-3 }, "{stop}, {before:?} {after:?}: {far}");
            // The best model is for one process.
            let config = run.config().unwrap().model;
            let best = config.try_init(&Device::flex()).unwrap();
            let best = load_weights(best, &run.best_weights().unwrap()).unwrap();
            let ppl = mean_nll(&best, corpus.valid()).exp();
            assert!(near(ppl, end.last().valid_ppl), "{stop}, {before:?} {after:?}: {ppl}");
        }
    }
}
