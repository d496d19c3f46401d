//! Ranks that read copies of one run. The task takes one group of ranks, so they are one that shares a vocabulary.

use super::*;
use crate::folder::note_hashes;
use crate::ranks::threads;

/// A copy of the run in a folder.
fn copy(run: &Path) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, bytes) in contents(&Run::open(run).unwrap()) {
        let path = root.path().join(path.strip_prefix(run).unwrap());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    root
}

/// What each of two ranks is told that go on with a run to nine epochs, each with a copy of it.
fn go_on(copies: [&Path; 2]) -> Vec<Result<bool, String>> {
    threads(2, |ranks| {
        let path = copies[ranks.rank()];
        let run = if ranks.is_first() { Run::resume(path) } else { Run::open(path) };
        let run = run.unwrap().extend(&Extension { epochs: Some(9), ..Extension::default() }).unwrap();
        let grid = Grid::new(&ranks, 2).unwrap();
        let mut trainer = trainer(&run.config().unwrap().train).with_grid(&grid).unwrap();
        trainer.restore(&run).map_err(|error| error.to_string())
    })
}

/// Checks that both ranks are told the same, which begins so, and that nothing is written to the first one's copy.
#[track_caller]
fn refused(copies: [&Path; 2], expected: &str) {
    let before = contents(&Run::open(copies[0]).unwrap());
    for told in go_on(copies) {
        let message = told.unwrap_err();
        assert!(message.starts_with(expected) && !message.contains('\n'), "{message}");
    }
    assert!(contents(&Run::open(copies[0]).unwrap()) == before, "{expected}");
}

#[test]
fn other_copies_are_refused_before_anything_is_written() {
    let (root, run) = run_of(&train(3));
    let begun = copy(root.path());
    assert_eq!(trainer(&train(3)).fit(Some(&run), &mut Notes::stopping_after(20)).unwrap(), Fitted::Stopped);
    let older = copy(root.path());
    // To a step of the second epoch, so that the best model is none of the checkpoint's.
    let mut later = resumed(&run);
    assert_eq!(later.fit(Some(&run), &mut Notes::stopping_after(20)).unwrap(), Fitted::Stopped);
    assert_eq!((later.state().epoch, later.state().best.unwrap().epoch), (1, 1));
    drop(run);

    let with_other = |name: &str| {
        let changed = copy(root.path());
        let mut other = trainer(&Train { lr: 0.1, ..train(3) });
        other.fit(None, &mut Notes::stopping_after(5)).unwrap();
        save_weights(other.model(), &changed.path().join(name)).unwrap();
        note_hashes(changed.path()).unwrap();
        changed
    };
    let (last, best) = (with_other("checkpoint/model.safetensors"), with_other("best/model.safetensors"));
    for (other, expected) in [
        (&begun, "has_checkpoint is false there, but true at rank 0"),
        (&older, "checkpoint."),
        (&last, "the hash of the weights is "),
        (&best, "the hash of the best weights is "),
    ] {
        let expected = format!("rank 1 differs from rank 0: {expected}");
        refused([root.path(), other.path()], &expected);
    }
    let same = copy(root.path());
    assert_eq!(go_on([root.path(), same.path()]), [Ok(true), Ok(true)]);
}

#[test]
fn damage_at_one_rank_changes_no_other_copy() {
    let (root, run, _) = trained(&train(2));
    drop(run);
    let damaged = copy(root.path());
    let file = damaged.path().join("checkpoint").join(MODEL);
    let mut bytes = fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&file, bytes).unwrap();
    refused([root.path(), damaged.path()], &format!("rank 1: `{}` is damaged", file.display()));
}

/// A device in the place of `steps.jsonl` can be opened, but not cut.
#[cfg(unix)]
#[test]
fn all_are_told_what_one_cannot_write() {
    let (root, run) = run_of(&train(2));
    let stopped =
        trainer(&train(2)).with_log_every(5).fit(Some(&run), &mut Notes::stopping_after(20)).unwrap();
    assert_eq!(stopped, Fitted::Stopped);
    drop(run);
    let steps = root.path().join("steps.jsonl");
    fs::remove_file(&steps).unwrap();
    std::os::unix::fs::symlink("/dev/null", &steps).unwrap();
    for told in go_on([root.path(); 2]) {
        let message = told.unwrap_err();
        assert!(message.starts_with(&format!("rank 0: cannot write `{}`: ", steps.display())), "{message}");
    }
}

#[test]
fn other_weights_to_start_from_are_refused() {
    let told = threads(2, |ranks| {
        let mut origin = trainer(&Train { lr: 0.1 + ranks.rank() as f64, ..train(1) });
        origin.fit(None, &mut Notes::stopping_after(5)).unwrap();
        let grid = Grid::new(&ranks, 2).unwrap();
        let mut next = trainer(&train(1)).with_grid(&grid).unwrap();
        next.start_with(origin.model().clone()).unwrap_err().to_string()
    });
    for message in told {
        assert!(message.starts_with("rank 1 differs from rank 0: the hash of the weights is "), "{message}");
    }
}

#[test]
fn a_line_has_the_time_of_its_last_step() {
    let seconds = threads(2, |ranks| {
        let grid = Grid::new(&ranks, 2).unwrap();
        let mut trainer = trainer(&train(1)).with_log_every(1).with_grid(&grid).unwrap();
        trainer.task.pause = Duration::from_millis(30);
        let mut notes = Notes::stopping_after(2);
        assert_eq!(trainer.fit(None, &mut notes).unwrap(), Fitted::Stopped);
        notes.intervals[0].seconds
    });
    assert!(seconds.iter().all(|seconds| *seconds >= 0.03), "{seconds:?}");
}

#[test]
fn all_are_told_of_weights_that_are_not_finite() {
    let (_root, run) = run_of(&train(2));
    let told = threads(2, |ranks| {
        let grid = Grid::new(&ranks, 2).unwrap();
        let saves = trainer(&train(2)).with_checkpoint_every(Duration::ZERO);
        let mut trainer = saves.with_grid(&grid).unwrap();
        trainer.task.spoils = Some(1);
        let own = Some(&run).filter(|_| ranks.is_first());
        let error = trainer.fit(own, &mut Silent).unwrap_err();
        assert!(error.is_everywhere(), "{error}");
        error.to_string()
    });
    assert!(
        told[0].starts_with("the weights are not finite in epoch 1, at or before step 1 of 30"),
        "{told:?}"
    );
    assert_eq!(told[1], told[0]);
    assert_eq!(run.failure().as_ref(), Some(&told[0]));
}
