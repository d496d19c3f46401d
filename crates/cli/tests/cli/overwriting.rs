//! What a command did not make, it does not write over.

use std::fs;

use super::{SMALL, all_files, folder, objects, refused};

#[test]
fn no_file_is_replaced_without_a_word() {
    let path = &folder();
    for name in ["test.jsonl", "file", "model.safetensors"] {
        fs::write(path.join("data").join(name), "mine").unwrap();
    }
    for name in ["curves.svg", "spectrum.svg", "gradient_loss.svg", "plif.svg"] {
        fs::create_dir_all(path.join("drawn")).unwrap();
        fs::write(path.join("drawn").join(name), "mine").unwrap();
    }
    let before = all_files(path);
    // It is found before anything else: none of these runs exist.
    for (line, file) in [
        ("dialog eval nowhere --responses data/test.jsonl", "data/test.jsonl"),
        ("dialog export nowhere --out data/model.safetensors", "data/model.safetensors"),
        ("export --run nowhere --out data/model.safetensors", "data/model.safetensors"),
        ("curves --run nowhere --out drawn", "drawn/curves.svg"),
        ("rank --run nowhere --out drawn", "drawn/spectrum.svg"),
        ("gradient-loss --run nowhere --out drawn", "drawn/gradient_loss.svg"),
        ("plif --from nowhere.jsonl --out drawn", "drawn/plif.svg"),
    ] {
        let told = format!("`{file}` exists already; name another file, or replace it with --force");
        refused(path, line, &[&told]);
        // Then something else is wrong.
        refused(path, &format!("{line} --force"), &["nowhere"]);
    }
    for (line, told) in [
        ("dialog eval nowhere --responses data", "`data` is a folder; name a file"),
        ("dialog eval nowhere --responses none/all", "cannot write `none/all`: its folder does not exist"),
        ("rank --run nowhere --out data/file", "`data/file` is a file; name a folder"),
        (
            "sweep --from nowhere.jsonl --out drawn",
            "`drawn` holds `curves.svg`; name a folder that is new or empty, or",
        ),
    ] {
        refused(path, line, &[told]);
    }
    assert_eq!(all_files(path), before);
}

#[test]
fn no_run_is_put_among_other_files() {
    let path = &folder();
    objects(path, &format!("train {SMALL} --epochs 1 --out first --json"));
    objects(path, "export --run first --out model.safetensors --json");
    fs::copy(path.join("data/test.txt"), path.join("data/test.jsonl")).unwrap();
    let before = all_files(path);
    let told = "`data` holds `test.jsonl`; name a folder that is new or empty";
    for line in [
        format!("train {SMALL} --out data"),
        "finetune --run first --out data".into(),
        "import --weights model.safetensors --data data --out data".into(),
        "dialog train --data data --out data".into(),
        "dialog import --weights model.safetensors --data data --out data".into(),
        format!("sweep {SMALL} --out data"),
    ] {
        refused(path, &line, &[told]);
        let to_file = line.replace("--out data", "--out model.safetensors");
        refused(path, &to_file, &["`model.safetensors` is a file; name a folder"]);
    }
    assert_eq!(all_files(path), before);
    // Files that a start would leave are someone's without its lock; so is a table among runs without a sweep's results.
    for (folder, file) in [("words", "vocab.txt"), ("among", "table.md")] {
        fs::create_dir(path.join(folder)).unwrap();
        fs::write(path.join(folder).join(file), "mine").unwrap();
    }
    fs::rename(path.join("first"), path.join("among/first")).unwrap();
    refused(path, &format!("train {SMALL} --out words"), &["`words` holds `vocab.txt`"]);
    refused(path, &format!("sweep {SMALL} --out among"), &["`among` holds `table.md`"]);

    // An empty folder is taken, and what a start left that was cut off before it was a run.
    fs::create_dir(path.join("empty")).unwrap();
    fs::create_dir(path.join("left")).unwrap();
    for name in ["vocab.txt", "lock", ".replacing-x", "log.txt", "night.log"] {
        fs::write(path.join("left").join(name), "").unwrap();
    }
    for out in ["empty", "left"] {
        objects(path, &format!("train {SMALL} --epochs 1 --out {out} --json"));
        assert!(path.join(out).join("best/model.safetensors").is_file(), "{out}");
    }
}

#[test]
fn force_replaces_a_file_as_a_whole() {
    let path = &folder();
    objects(path, &format!("train {SMALL} --epochs 1 --out first --json"));
    fs::write(path.join("curves.svg"), "mine").unwrap();
    refused(path, "curves --run first", &["`./curves.svg` exists already"]);
    objects(path, "curves --run first --force --json");
    assert!(fs::read_to_string(path.join("curves.svg")).unwrap().starts_with("<svg"));
    objects(path, "export --run first --out model.safetensors --json");
    let exported = fs::read(path.join("model.safetensors")).unwrap();
    fs::write(path.join("model.safetensors"), "mine").unwrap();
    objects(path, "export --run first --out model.safetensors --force --json");
    assert!(fs::read(path.join("model.safetensors")).unwrap() == exported);
}
