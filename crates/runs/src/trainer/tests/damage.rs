//! Files that were damaged or changed: each is refused with one line, and the run stays as it was.

use super::tiny::{config, corpus};
use super::*;
use crate::folder::STATE;
use crate::settings::FORMAT;

/// Whatever is wrong with a file, an attempt to go on with more epochs says so and writes nothing.
#[test]
fn a_resume_that_fails_changes_nothing() {
    let (root, run, _) = trained(&train(2));
    drop(run);
    let files = [
        "config.json",
        "vocab.txt",
        "metrics.jsonl",
        "hashes.json",
        "best/model.safetensors",
        "checkpoint/model.safetensors",
        "checkpoint/adam.bpk",
        "checkpoint/state.json",
        "checkpoint/metrics.jsonl",
        "checkpoint/hashes.json",
    ];
    let go_on = || -> Result<bool> {
        let run = Run::resume(root.path())?;
        let run = run.extend(&Extension { epochs: Some(3), ..Extension::default() })?;
        trainer(&run.config()?.train).restore(&run)
    };
    let present = contents(&Run::open(root.path()).unwrap());
    for name in files {
        let path = root.path().join(name);
        let good = fs::read(&path).unwrap();
        let (middle, end) = (good.len() / 2, good.len() - 10);
        let zeroed = [&good[..middle], &[0; 4], &good[middle + 4..]].concat();
        for bytes in [zeroed, good[..end].to_vec(), vec![]] {
            fs::write(&path, bytes).unwrap();
            let before = contents(&Run::open(root.path()).unwrap());
            let message = go_on().unwrap_err().to_string();
            assert!(
                message.contains(&path.display().to_string()) && !message.contains('\n'),
                "{name}: {message}"
            );
            assert!(message.contains("is damaged") || message.contains("cannot read"), "{name}: {message}");
            assert!(contents(&Run::open(root.path()).unwrap()) == before, "{name}");
        }
        fs::remove_file(&path).unwrap();
        let message = go_on().unwrap_err().to_string();
        let told = message.contains(&path.display().to_string()) || name == "config.json";
        assert!(told && !message.contains('\n'), "{name}: {message}");
        fs::write(&path, good).unwrap();
        assert!(contents(&Run::open(root.path()).unwrap()) == present);
    }
    // Of these no hash is noted: a folder in their place is found before anything is written.
    for name in ["steps.jsonl", "failed.txt"] {
        let path = root.path().join(name);
        let good = fs::read(&path).ok();
        good.iter().for_each(|_| fs::remove_file(&path).unwrap());
        fs::create_dir(&path).unwrap();
        let before = contents(&Run::open(root.path()).unwrap());
        let message = go_on().unwrap_err().to_string();
        assert!(message.starts_with(&format!("cannot write `{}`", path.display())), "{name}: {message}");
        assert!(contents(&Run::open(root.path()).unwrap()) == before, "{name}");
        fs::remove_dir(&path).unwrap();
        good.iter().for_each(|good| fs::write(&path, good).unwrap());
    }
    assert!(go_on().unwrap());
}

/// Without its weights it would be trained from random ones.
#[test]
fn a_given_model_that_cannot_be_written_makes_no_run() {
    let root = tempfile::tempdir().unwrap();
    let trainer = trainer(&train(1));
    let create = |model: &Bigram| {
        Run::create_with_best(root.path(), &config(&train(1)), corpus().vocabulary(), model).map(drop)
    };
    let error = create(&Bigram::spoilt(&trainer.task().setup().device)).unwrap_err();
    assert!(matches!(error, Error::NonFiniteTensor { .. }), "{error}");
    let error = Run::resume(root.path()).unwrap_err();
    assert!(matches!(error, Error::NotARun { .. }), "{error}");
    // There is room for another.
    create(trainer.model()).unwrap();
    let run = Run::open(root.path()).unwrap();
    assert_eq!(run.state().unwrap(), RunState::Imported);
    run.best_weights().unwrap();
}

/// As an import leaves it that was killed between the weights and the configuration.
#[test]
fn a_start_that_was_cut_off_leaves_room_for_another() {
    let root = tempfile::tempdir().unwrap();
    let (path, trainer) = (root.path(), trainer(&train(1)));
    let import = || {
        let made = Run::create_with_best(path, &config(&train(1)), corpus().vocabulary(), trainer.model());
        drop(made.unwrap());
        fs::remove_file(path.join("config.json")).unwrap();
        // A configuration that was there is no cut-off start's.
        assert!(Run::exists(path));
        crate::hashes::note(path, &["vocab.txt", "best/model.safetensors"]).unwrap();
        assert!(!Run::exists(path));
    };
    import();
    import();
    // Nor is what somebody else put there.
    let other = path.join("best/other");
    fs::write(&other, "").unwrap();
    assert!(Run::exists(path));
    fs::remove_file(&other).unwrap();
    let run = Run::create(path, &config(&train(1)), corpus().vocabulary()).unwrap();
    assert!(matches!(run.best_weights(), Err(Error::NoWeights { .. })));
}

#[test]
fn what_reads_a_run_notices_damage_too() {
    let (_root, run, _) = trained(&train(1));
    let damaged = |name: &str, read: &dyn Fn() -> Result<()>| {
        let path = run.path().join(name);
        let good = fs::read(&path).unwrap();
        let mut bytes = good.clone();
        let end = bytes.len();
        bytes[end - 3] ^= 1;
        fs::write(&path, bytes).unwrap();
        let message = read().unwrap_err().to_string();
        assert!(message.starts_with(&format!("`{}` is damaged: ", path.display())), "{message}");
        fs::write(&path, good).unwrap();
        read().unwrap();
    };
    damaged("best/model.safetensors", &|| run.best_weights().map(drop));
    damaged("checkpoint/model.safetensors", &|| run.last_weights().map(drop));
    damaged("vocab.txt", &|| run.vocabulary().map(drop));
    damaged("metrics.jsonl", &|| run.metrics().map(drop));
    damaged("metrics.jsonl", &|| crate::record::Record::<Tiny>::read(run.path()).map(drop));
    damaged("checkpoint/state.json", &|| run.saved_state().map(drop));
}

/// The hashes say that a file is what was written. What was written is checked all the same.
#[test]
fn a_checkpoint_that_cannot_be_used_is_named() {
    let (_root, run) = run_of(&train(3));
    trainer(&train(3)).fit(Some(&run), &mut Notes::stopping_after(10)).unwrap();
    let state = fs::read_to_string(run.checkpoint().join(STATE)).unwrap();
    let message = |name: &str, bytes: &[u8]| {
        let good = fs::read(run.checkpoint().join(name)).unwrap();
        crate::hashes::replace(&run.checkpoint(), name, bytes).unwrap();
        let message = trainer(&train(3)).restore(&run).unwrap_err().to_string();
        crate::hashes::replace(&run.checkpoint(), name, &good).unwrap();
        assert!(!message.contains('\n'), "{message}");
        message
    };
    assert!(message(STATE, b"{").contains("state.json` is damaged"));
    let step = message(STATE, state.replace(r#""step": 10"#, r#""step": 1000"#).as_bytes());
    assert!(step.contains("it is at step 1000, but the epoch has 30"), "{step}");
    let mut nan = fs::read(run.checkpoint().join(MODEL)).unwrap();
    let end = nan.len();
    nan[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    assert!(message(MODEL, &nan).contains("holds a value that is not finite"));
    assert!(message("adam.bpk", b"nothing").contains("adam.bpk` is damaged"));
    // Other settings than the run's.
    let other = trainer(&Train { lr: 6.0, ..train(3) }).restore(&run).unwrap_err().to_string();
    assert!(other.contains("train.lr is 6.0 now, but 0.05 in the run"), "{other}");
    trainer(&train(3)).restore(&run).unwrap();
    // Without any checkpoint, but with epochs that were done.
    fs::rename(run.checkpoint(), run.path().join("elsewhere")).unwrap();
    assert!(!trainer(&train(3)).restore(&run).unwrap());
    run.append_metrics("{}\n").unwrap();
    let message = trainer(&train(3)).restore(&run).unwrap_err().to_string();
    assert!(message.contains("but no checkpoint"), "{message}");
}

#[test]
fn a_run_of_another_kind_or_format_is_named() {
    let (_root, run) = run_of(&train(1));
    let path = run.path().join("config.json");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace(r#""kind": "tiny""#, r#""kind": "huge""#)).unwrap();
    let message = run.config().unwrap_err().to_string();
    assert!(message.contains("is damaged"), "{message}");
    crate::hashes::replace(run.path(), "config.json", &fs::read(&path).unwrap()).unwrap();
    let message = run.config().unwrap_err().to_string();
    assert!(message.ends_with("is a run of huge, but this takes one of a tiny model"), "{message}");
    for (format, reader) in [
        (1, "highrank 0.1, for Burn 0.21,"),
        (3, "an earlier build of highrank 0.2"),
        (FORMAT + 1, "a newer version of highrank"),
    ] {
        // Without hashes, and with unknown fields: they are no reason to call the file damaged.
        let other =
            text.replace(&format!(r#""format": {FORMAT}"#), &format!(r#""format": {format}, "more": 0"#));
        fs::write(&path, other).unwrap();
        let message = run.config().unwrap_err().to_string();
        let expected =
            format!("has the run format {format}, but this program reads {FORMAT}; {reader} reads it");
        assert!(message.ends_with(&expected) && !message.contains('\n'), "{message}");
    }
}
