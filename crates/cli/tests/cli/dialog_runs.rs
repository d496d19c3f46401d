//! Extension of finished runs of dialogues, and `runs` with runs of both kinds.

use std::fs;

use serde_json::Value;

use super::dialog::{CPU, SMALL, folder, train};
use super::{config, edit, objects, refused, run, same_files, text};
use crate::harness::{number, stderr};

#[test]
fn a_finished_run_is_extended() {
    let path = &folder();
    train(path, "--out first");
    objects(
        path,
        &format!(
            "dialog train --data data {} {CPU} --json --out straight",
            SMALL.replace("--epochs 2", "--epochs 3")
        ),
    );
    let output = run(path, "dialog train --resume first --epochs 3 --patience 12 --json");
    let errors = stderr(&output, 0);
    assert!(errors.contains("extended: train.epochs is 3 now, 2 before"), "{errors}");
    assert!(errors.contains("extended: train.stop.patience is 12 now, 10 before"), "{errors}");
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 2);
    let files = ["best/model.safetensors", "checkpoint/model.safetensors"];
    same_files(&path.join("straight"), &path.join("first"), &files);
    let config = config(path, "first");
    assert_eq!((&config["train"]["epochs"], &config["train"]["stop"]["patience"]), (&3.into(), &12.into()));
    assert_eq!(config["extensions"][0]["setting"], "train.epochs");
    assert_eq!(config["extensions"][1]["setting"], "train.stop.patience");

    // Another device, if this program has two.
    if cfg!(all(feature = "flex", feature = "ndarray")) {
        let other = "dialog train --resume first --device ndarray --epochs 4";
        refused(path, other, &["cannot resume: device is \"ndarray\" now", "--change-device"]);
        let errors = stderr(&run(path, &format!("{other} --change-device")), 0);
        assert!(errors.contains("extended: device is \"ndarray\" now"), "{errors}");
    }
}

#[test]
fn runs_of_both_kinds_are_listed_together() {
    let path = &folder();
    let last = train(path, "--out runs/talk --head moc").pop().unwrap();
    fs::create_dir_all(path.join("runs/broken")).unwrap();
    let config = fs::read_to_string(path.join("runs/talk/config.json")).unwrap();
    fs::write(path.join("runs/broken/config.json"), config.replace("\"format\": 4", "\"format\": 9"))
        .unwrap();
    let words = &super::folder();
    let line = "train --data data --lstm 16,12 --d-embedding 12 --components 2 --batch 8 --bptt 12 --epochs 1 --out run";
    objects(words, &format!("{line} --json"));
    fs::rename(words.join("run"), path.join("runs/words")).unwrap();

    let listed = objects(path, "runs --json --sort kind");
    let runs: Vec<&str> = listed.iter().map(|run| run["run"].as_str().unwrap()).collect();
    assert_eq!(runs, ["runs/words", "runs/talk", "runs/broken"]);
    let [words, talk, broken] = &listed[..] else { panic!() };
    assert_eq!((&words["kind"], &words["ended"]), (&"awd-lstm".into(), &"epochs".into()));
    assert_eq!((&talk["kind"], &talk["ended"]), (&"seq2seq".into(), &"epochs".into()));
    for name in ["valid_ppl", "test_ppl", "train_ppl", "seconds"] {
        assert!((number(talk, name) / number(&last, name) - 1.0).abs() < 1e-9, "{name}: {talk} {last}");
    }
    let sizes = ["lstm_sizes", "d_embedding", "epochs_done", "epochs", "components", "head", "state"];
    let expected = serde_json::json!([[5, 8, 10], 6, 2, 2, 2, "moc", "finished"]);
    assert_eq!(sizes.map(|name| talk[name].clone()).to_vec(), *expected.as_array().unwrap());
    assert_eq!(broken["state"], "other-version");
    assert!(
        broken["reason"].as_str().unwrap().contains("has the run format 9, but this program reads 4"),
        "{broken}"
    );
    let out = text(path, "runs");
    assert!(
        out.lines().any(|line| line.starts_with("runs/talk ")
            && line.contains(" seq2seq  moc ")
            && line.ends_with(" finished")),
        "{out}"
    );
    assert!(out.lines().next().unwrap().contains("ended") && out.contains(" awd-lstm mos "), "{out}");

    // A run that was cut off within its second epoch.
    let metrics = path.join("runs/talk/metrics.jsonl");
    let lines = fs::read_to_string(&metrics).unwrap();
    let first = lines.lines().next().unwrap().to_string() + "\n";
    edit(&path.join("runs/talk"), "metrics.jsonl", first);
    // However it is named, it is one.
    let talk = objects(path, "runs runs/talk ./runs/talk runs/words/../talk --json");
    let [talk] = &talk[..] else { panic!("{talk:?}") };
    assert_eq!(
        (&talk["state"], &talk["epochs_done"], &talk["ended"]),
        (&"stopped".into(), &1.into(), &Value::Null)
    );
    edit(&path.join("runs/talk"), "metrics.jsonl", "{\"epoch\": 1}\n");
    let talk = objects(path, "runs runs/talk --json").remove(0);
    assert!(talk["reason"].as_str().unwrap().contains("metrics.jsonl` is damaged: line 1: "), "{talk}");
    fs::write(&metrics, lines).unwrap();
    let talk = objects(path, "runs runs/talk --json").remove(0);
    assert!(talk["reason"].as_str().unwrap().contains("SHA-256"), "{talk}");
}
