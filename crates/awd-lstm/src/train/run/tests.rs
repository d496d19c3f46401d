use std::fs;

use super::*;
use crate::config::{HeadKind, Preset};
use runs::METRICS;
use runs::data::{Corpus, Vocabulary};

const CONFIG: &str = "config.json";

fn config(vocab: usize) -> RunConfig {
    RunConfig {
        versions: Versions::current(),
        preset: "small".into(),
        device: "flex".into(),
        data: PathBuf::from("data"),
        text: Default::default(),
        corpus: Fingerprint::of(&corpus()),
        finetunes: None,
        tokens: None,
        model: Preset::Small.model(HeadKind::Mos, vocab),
        train: Preset::Small.train(),
        extensions: vec![],
    }
}

fn corpus() -> Corpus {
    Corpus::from_ids(vocabulary(), vec![0, 1], vec![1], vec![0]).unwrap()
}

fn vocabulary() -> Vocabulary {
    Vocabulary::from(vec!["a".to_string(), "<eos>".into()])
}

#[test]
fn what_is_written_is_read_back() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("deep/run");
    let run = RunFolder::create(&path, &config(2), &vocabulary()).unwrap();
    assert_eq!(RunFolder::open(&path).unwrap().path(), run.path());
    assert_eq!(run.config().unwrap(), config(2));
    assert_eq!(run.vocabulary().unwrap(), vocabulary());
    assert_eq!(run.metrics().unwrap(), "");
    run.append_metrics("1\n").unwrap();
    run.append_metrics("2\n").unwrap();
    assert_eq!(run.metrics().unwrap(), "1\n2\n");
    run.reset_metrics("1\n").unwrap();
    assert_eq!(fs::read_to_string(path.join(METRICS)).unwrap(), "1\n");
    let message = run.best_weights().unwrap_err().to_string();
    assert!(message.contains("no epoch was finished"), "{message}");
}

#[test]
fn a_folder_with_a_run_is_refused_and_left_alone() {
    let root = tempfile::tempdir().unwrap();
    RunFolder::create(root.path(), &config(2), &vocabulary()).unwrap();
    let again = RunFolder::create(root.path(), &config(3), &vocabulary());
    assert!(matches!(again, Err(Error::RunExists { .. })));
    assert_eq!(RunFolder::open(root.path()).unwrap().config().unwrap().model.vocab, 2);
}

#[test]
fn a_folder_without_a_run_is_named() {
    let root = tempfile::tempdir().unwrap();
    assert!(matches!(RunFolder::open(root.path()), Err(Error::NotARun { .. })));
    assert!(!RunFolder::exists(root.path()));
}

#[test]
fn damaged_files_are_named() {
    let root = tempfile::tempdir().unwrap();
    let run = RunFolder::create(root.path(), &config(3), &vocabulary()).unwrap();
    let message = run.vocabulary().unwrap_err().to_string();
    assert!(message.contains("vocab.txt` is damaged: it holds 2 words, but the model has 3"), "{message}");
    let text = fs::read_to_string(root.path().join(CONFIG)).unwrap();
    fs::write(root.path().join(CONFIG), &text[..text.len() / 2]).unwrap();
    let message = run.config().unwrap_err().to_string();
    assert!(message.contains("config.json` is damaged"), "{message}");
    let text = text.replace(r#""components": 5"#, r#""components": 0"#);
    fs::write(root.path().join(CONFIG), text).unwrap();
    assert!(run.config().unwrap_err().to_string().contains("components"));
}

#[test]
fn a_run_is_trained_by_one_at_a_time_and_read_by_all() {
    let root = tempfile::tempdir().unwrap();
    let run = RunFolder::create(root.path(), &config(2), &vocabulary()).unwrap();
    let message = RunFolder::resume(root.path()).unwrap_err().to_string();
    assert!(message.contains("is in use: another process is training this run"), "{message}");
    assert!(run.is_locked() && !RunFolder::open(root.path()).unwrap().is_locked());
    let copy = run.clone();
    drop(run);
    assert!(matches!(RunFolder::resume(root.path()), Err(Error::RunInUse { .. })));
    drop(copy);
    assert!(RunFolder::resume(root.path()).unwrap().is_locked());
}

#[test]
fn a_changed_setting_is_named() {
    let before = config(2);
    before.check(&config(2)).unwrap();
    let message = |change: fn(&mut RunConfig)| {
        let mut now = config(2);
        change(&mut now);
        before.check(&now).unwrap_err().to_string()
    };
    let lr = message(|config| config.train.lr = 3.5);
    assert!(lr.starts_with("cannot resume: train.lr is 3.5 now, but 20.0 in the run"), "{lr}");
    let head = message(|config| config.model.head = HeadKind::Softmax);
    assert!(head.contains(r#"model.head is "softmax" now, but "mos" in the run"#), "{head}");
    let dropout = message(|config| config.model.dropouts.weight = 0.0);
    assert!(dropout.contains("model.dropouts.weight is 0.0 now"), "{dropout}");
    // Not what a real number loses when it is written and read.
    let by_ulps = |ulps: u64| f64::from_bits(1.2e-6f64.to_bits() + ulps);
    let rounded = TrainConfig { weight_decay: by_ulps(1), ..config(2).train };
    before.check(&RunConfig { train: rounded, ..config(2) }).unwrap();
    let other = TrainConfig { weight_decay: by_ulps(9), ..config(2).train };
    assert!(before.check(&RunConfig { train: other, ..config(2) }).is_err());
    assert!(message(|config| config.device = "cuda".into()).contains("device is"));
    // Where the data lies does not matter, what it holds is checked elsewhere.
    before.check(&RunConfig { data: "elsewhere".into(), ..config(2) }).unwrap();
}

#[test]
fn another_format_is_named() {
    let root = tempfile::tempdir().unwrap();
    let run = RunFolder::create(root.path(), &config(2), &vocabulary()).unwrap();
    let path = root.path().join(CONFIG);
    let text = fs::read_to_string(&path).unwrap();
    for (format, reader) in [
        (1, "highrank 0.1, for Burn 0.21,"),
        (2, "highrank 0.1, for Burn 0.21,"),
        (4, "a newer version of highrank"),
    ] {
        // Unknown fields and all: they are no reason to call the file damaged.
        let other = text.replace(r#""format": 3"#, &format!(r#""format": {format}, "more": 0"#));
        fs::write(&path, other).unwrap();
        let message = run.config().unwrap_err().to_string();
        let expected = format!("has the run format {format}, but this program reads 3; {reader} reads it");
        assert!(message.ends_with(&expected) && !message.contains('\n'), "{message}");
    }
}

#[test]
fn the_version_of_burn_is_that_of_the_lock_file() {
    // In the package's own folder, or in that of a workspace around it.
    let folders = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let lock = folders.map(|folder| folder.join("Cargo.lock")).find_map(|path| fs::read_to_string(path).ok());
    let lock = lock.expect("a lock file").replace('\r', "");
    let (_, burn) = lock.split_once("name = \"burn\"\nversion = \"").unwrap();
    assert_eq!(burn.split('"').next().unwrap(), Versions::BURN);
}
