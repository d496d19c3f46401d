//! The encoded text of a corpus, kept from one command to the next.

use std::fs;
use std::path::{Path, PathBuf};

use runs::testing::{kept, spoil};

use super::{SMALL, folder, refused, run};
use crate::harness::stderr;

/// The training ids of the one text that a cache holds.
fn ids(cache: &Path) -> PathBuf {
    kept(cache).join("train.ids")
}

/// What a command that must succeed says on standard error.
fn notes(folder: &Path, line: &str) -> String {
    stderr(&run(folder, line), 0)
}

#[test]
fn a_large_text_is_encoded_once() {
    let path = &folder();
    // A training text in a folder, as a large one is.
    let (data, cache) = (path.join("data"), path.join("data/.encoded"));
    fs::create_dir(data.join("train")).unwrap();
    fs::rename(data.join("train.txt"), data.join("train/part")).unwrap();
    let all = "--token-cache-from 0";

    // Small as it is, and where nothing is to be written, it is not kept.
    notes(path, &format!("train {SMALL} --epochs 1 --out small --json"));
    notes(path, &format!("train {SMALL} --epochs 1 {all} --dry-run"));
    assert!(!cache.exists());

    notes(path, &format!("train {SMALL} --epochs 1 --out first --json {all}"));
    let kept = fs::read(ids(&cache)).unwrap();
    assert!(kept.len() > 4 * 2900 && kept.len().is_multiple_of(4), "{}", kept.len());

    // Damage is noticed and said, and mended.
    let mut damaged = kept.clone();
    damaged[0] ^= 1;
    fs::write(ids(&cache), damaged).unwrap();
    let said = notes(path, &format!("dynamic-eval --run first --json {all}"));
    assert!(said.starts_with("the text was encoded anew: `"), "{said}");
    assert!(said.contains("is damaged: the training text is not the one that was kept"), "{said}");
    assert_eq!(fs::read(ids(&cache)).unwrap(), kept);

    // Nobody reads the text any more.
    for file in ["train/part", "valid.txt", "test.txt"] {
        spoil(&data.join(file));
    }
    refused(path, "dynamic-eval --run first --token-cache-from 64", &["part`, line 1: not UTF-8"]);
    // The run remembers what was said when it was started.
    for command in [
        "train --resume first --epochs 2 --json",
        "finetune --run first --out tuned --epochs 1 --json",
        "train --resume tuned --epochs 2 --json",
        "dynamic-eval --run tuned --json",
        "eval --run first --split train --json",
    ] {
        let said = notes(path, command);
        assert!(!said.contains("encoded"), "{command}: {said}");
    }
}

#[test]
fn a_text_is_kept_where_it_is_said_or_not_at_all() {
    let path = &folder();
    let train = format!("train {SMALL} --epochs 1 --json --token-cache-from 0");
    notes(path, &format!("{train} --out one --token-cache kept/here"));
    assert!(ids(&path.join("kept/here")).exists() && !path.join("data/.encoded").exists());
    notes(path, "train --resume one --epochs 2 --json");
    notes(path, "eval --run one --split train --json");
    let sweep = format!(
        "sweep {SMALL} --seeds 3 --epochs 1 --heads mos --json --token-cache-from 0 --token-cache kept/here --out sweep"
    );
    notes(path, &sweep);
    notes(path, "finetune --run sweep/mos-s3 --out tuned --epochs 1 --json");
    assert!(!path.join("data/.encoded").exists());
    let config = fs::read_to_string(path.join("tuned/config.json")).unwrap();
    assert!(config.contains("kept/here") && config.contains("\"from_mib\": 0"), "{config}");

    fs::write(path.join("data/.encoded"), "in the way").unwrap();
    let said = notes(path, &format!("{train} --out two"));
    assert!(said.starts_with("the encoded text is not kept: cannot create `data/.encoded`: "), "{said}");
    assert!(said.contains("; --token-cache DIR keeps it in another folder"), "{said}");
    refused(path, &format!("{train} --out three --token-cache-from -1"), &["--token-cache-from"]);
}
