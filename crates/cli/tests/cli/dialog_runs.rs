//! `dialog table`, extension of finished runs, and `runs` with runs of both kinds.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::dialog::{CPU, SMALL, folder, number, train, write};
use super::{edit, objects, refused, run};

/// When a file was written.
fn time(path: &Path) -> std::time::SystemTime {
    fs::metadata(path).unwrap().modified().unwrap()
}

fn text(path: &Path, line: &str) -> String {
    let output = run(path, line);
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Trains with the small settings, but three components.
fn train_of_three(path: &Path, more: &str) {
    let small = SMALL.replace("--components 2", "--components 3");
    objects(path, &format!("dialog train --data data {small} {CPU} --json {more}"));
}

#[test]
fn a_table_of_runs_is_made_once() {
    let folder = folder();
    let path = folder.path();
    for (name, more) in
        [("softmax-1", "--head softmax"), ("mos-1", "--head mos"), ("mos-2", "--head mos --seed 2")]
    {
        train(path, &format!("--out {name} {more}"));
    }
    train_of_three(path, "--out mos-k3 --head mos");
    let line = format!("dialog table softmax-1 mos-1 mos-2 mos-k3 {CPU} --by-length 1 --contexts 5");
    let outcomes = objects(path, &format!("{line} --json"));
    let runs: Vec<&str> = outcomes.iter().map(|outcome| outcome["run"].as_str().unwrap()).collect();
    assert_eq!(runs, ["softmax-1", "mos-1", "mos-2", "mos-k3"]);
    // Each is what `eval` says of it.
    for (more, of) in [("", None), ("--alpha 1", Some("by_length"))] {
        let eval = objects(path, &format!("dialog eval mos-2 {CPU} --json --contexts 5 {more}")).remove(0);
        let searched = of.map_or(&outcomes[2], |name| &outcomes[2][name]);
        for name in ["alpha", "contexts", "single", "references", "mean_length", "distinct_best"] {
            assert_eq!((name, &searched[name]), (name, &eval[name]));
        }
        for name in ["valid_ppl", "test_ppl"] {
            assert!((number(&outcomes[2], name) / number(&eval, name) - 1.0).abs() < 1e-9, "{name}");
        }
    }
    let last = fs::read_to_string(path.join("mos-2/metrics.jsonl")).unwrap();
    let last: Value = serde_json::from_str(last.lines().last().unwrap()).unwrap();
    assert_eq!((&outcomes[2]["ended"], &outcomes[2]["seed"]), (&last["ended"], &2.into()));
    assert_eq!((&outcomes[3]["components"], &outcomes[0]["components"]), (&3.into(), &Value::Null));
    assert!(number(&outcomes[0], "train_tokens_per_s") > 0.0 && number(&outcomes[0], "parameters") > 100.0);

    // The same again costs nothing: not even the weights are read to a device.
    let kept = path.join("mos-1/evaluation");
    let files = ["perplexity.json", "responses-10-30-5-0-5.json", "responses-10-30-5-1-5.json"];
    let times = || files.map(|name| time(&kept.join(name)));
    let before = times();
    assert_eq!(objects(path, &format!("{line} --json")), outcomes);
    let other = objects(path, &format!("{line} --json --bleu short_weights")).remove(1);
    assert_eq!((&other["bleu"], &other["seconds"]), (&"short_weights".into(), &outcomes[1]["seconds"]));
    assert_eq!(times(), before);
    // What is damaged, of another model or asked for again is computed.
    fs::write(kept.join(files[1]), "{").unwrap();
    assert_eq!(objects(path, &format!("{line} --json"))[1]["single"], outcomes[1]["single"]);
    assert_ne!(times()[1], before[1]);
    let before = times();
    let other = fs::read(path.join("mos-2/best/model.safetensors")).unwrap();
    edit(&path.join("mos-1"), "best/model.safetensors", other);
    let copied = objects(path, &format!("{line} --json")).remove(1);
    assert_eq!((&copied["test_ppl"], &copied["single"]), (&outcomes[2]["test_ppl"], &outcomes[2]["single"]));
    assert!(times().iter().zip(&before).all(|(now, before)| now > before));
    let before = times();
    objects(path, &format!("{line} --json --again"));
    assert!(times().iter().zip(&before).all(|(now, before)| now > before));

    let out = text(path, &format!("{line} --published --side-by-side 2"));
    let titles: Vec<&str> = out.lines().filter(|line| line.contains("BLEU (four_orders) against ")).collect();
    assert_eq!(titles.len(), 4, "{out}");
    assert!(
        titles[0].starts_with("BLEU")
            && titles[0].contains("the true response alone: 5 best of a beam of 10")
    );
    assert!(titles[1].contains(" references a context: "), "{out}");
    let by_length = "in order of log-probability / length^1, 5 contexts";
    for (title, sum) in titles.iter().zip([true, true, false, false]) {
        assert_eq!(
            title.starts_with("Length-normalised. BLEU") && title.ends_with(by_length),
            !sum,
            "{title}"
        );
    }
    let table: Vec<&str> = out.lines().filter(|line| line.starts_with('|')).take(8).collect();
    let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_string()).collect::<Vec<_>>();
    assert_eq!(cells(table[0])[1..7], ["head", "K", "d", "parameters", "seeds", "test perplexity"]);
    assert_eq!(
        (&cells(table[2])[1..3], &cells(table[3])[1..3]),
        (&["softmax".into(), "–".into()][..], &["mos".into(), "2".into()][..])
    );
    assert_eq!((&cells(table[3])[5][..], cells(table[3])[6].contains(" ± ")), ("1, 2", true));
    assert_eq!((&cells(table[4])[2][..], cells(table[4])[6].contains(" ± ")), ("3", false));
    assert_eq!(cells(table[5])[1], "softmax, published");
    assert_eq!((&cells(table[7])[6][..], &cells(table[7])[7][..]), ("32.73", ".272 / .206"));
    assert!(out.contains("published: Yang et al. 2018, Table 4"), "{out}");
    for name in ["softmax", "mos, K 2", "mos, K 2, by length", "mos, K 3", "true response"] {
        let lines = out.lines().filter(|line| line.trim_start().starts_with(&format!("{name}  ")));
        assert_eq!(lines.count(), 2, "{name}: {out}");
    }
    let plain = text(path, &format!("dialog table mos-1 {CPU} --contexts 5 --refs data/test_refs.jsonl"));
    assert!(!plain.contains("published") && !plain.contains('±') && !plain.contains("Length"), "{plain}");
}

#[test]
fn runs_that_cannot_share_a_table() {
    let folder = folder();
    let path = folder.path();
    for name in ["first", "same"] {
        train(path, &format!("--out {name}"));
    }
    train_of_three(path, "--out faster --lr 0.02");
    refused(path, "dialog table first same", &["`first` and `same` are runs of the same settings and seed"]);
    let out = text(path, &format!("dialog table first faster {CPU} --contexts 2"));
    assert!(out.contains("| lr ") && out.contains("| 0.02 ") && !out.contains("| clip"), "{out}");
    write(&path.join("other"), 2);
    objects(path, &format!("dialog train --data other {SMALL} {CPU} --json --out elsewhere"));
    refused(
        path,
        "dialog table first elsewhere",
        &["`first` and `elsewhere` cannot share a table: the training text"],
    );
    // The text of the folder has changed since; another one was asked for.
    fs::copy(path.join("other/test.jsonl"), path.join("data/test.jsonl")).unwrap();
    fs::remove_file(path.join("data/test_refs.jsonl")).unwrap();
    refused(
        path,
        "dialog table first",
        &["no longer holds the text that `first` was started with", "--data"],
    );
    let outcome =
        objects(path, &format!("dialog table first {CPU} --data data --contexts 2 --json")).remove(0);
    assert_eq!(outcome.get("references"), None);
    fs::remove_file(path.join("first/best/model.safetensors")).unwrap();
    refused(path, "dialog table first --data data", &["is damaged: it is missing"]);
}

#[test]
fn a_finished_run_is_extended() {
    let folder = folder();
    let path = folder.path();
    train(path, "--out first");
    objects(
        path,
        &format!(
            "dialog train --data data {} {CPU} --json --out straight",
            SMALL.replace("--epochs 2", "--epochs 3")
        ),
    );
    let output = run(path, "dialog train --resume first --epochs 3 --patience 12 --json");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(errors.contains("extended: train.epochs is 3 now, 2 before"), "{errors}");
    assert!(errors.contains("extended: train.stop.patience is 12 now, 10 before"), "{errors}");
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 2);
    for file in ["best/model.safetensors", "checkpoint/model.safetensors"] {
        let read = |run: &str| fs::read(path.join(run).join(file)).unwrap();
        assert!(read("straight") == read("first"), "{file}");
    }
    let config: Value = serde_json::from_slice(&fs::read(path.join("first/config.json")).unwrap()).unwrap();
    assert_eq!((&config["train"]["epochs"], &config["train"]["stop"]["patience"]), (&3.into(), &12.into()));
    assert_eq!(config["extensions"][0]["setting"], "train.epochs");
    assert_eq!(config["extensions"][1]["setting"], "train.stop.patience");

    // Another device, if this program has two.
    if cfg!(all(feature = "flex", feature = "ndarray")) {
        let other = "dialog train --resume first --device ndarray --epochs 4";
        refused(path, other, &["cannot resume: device is \"ndarray\" now", "--change-device"]);
        let output = run(path, &format!("{other} --change-device"));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && errors.contains("extended: device is \"ndarray\" now"),
            "{errors}"
        );
    }
}

#[test]
fn runs_of_both_kinds_are_listed_together() {
    let folder = folder();
    let path = folder.path();
    let last = train(path, "--out runs/talk --head moc").pop().unwrap();
    fs::create_dir_all(path.join("runs/broken")).unwrap();
    let config = fs::read_to_string(path.join("runs/talk/config.json")).unwrap();
    fs::write(path.join("runs/broken/config.json"), config.replace("\"format\": 4", "\"format\": 9"))
        .unwrap();
    let words = super::folder();
    let line = "train --data data --lstm 16,12 --d-embedding 12 --components 2 --batch 8 --bptt 12 --epochs 1 --out run";
    objects(words.path(), &format!("{line} --json"));
    fs::rename(words.path().join("run"), path.join("runs/words")).unwrap();

    let listed = objects(path, "runs --json --sort kind");
    let runs: Vec<&str> = listed.iter().map(|run| run["run"].as_str().unwrap()).collect();
    assert_eq!(runs, ["runs/words", "runs/talk", "runs/broken"]);
    let [words, talk, broken] = &listed[..] else { panic!() };
    assert_eq!((&words["kind"], &words["ended"]), (&"language-model".into(), &"epochs".into()));
    assert_eq!((&talk["kind"], &talk["ended"]), (&"dialogues".into(), &"epochs".into()));
    for name in ["valid_ppl", "test_ppl", "train_ppl", "seconds"] {
        assert!((number(talk, name) / number(&last, name) - 1.0).abs() < 1e-9, "{name}: {talk} {last}");
    }
    let sizes = ["lstm_sizes", "d_embedding", "epochs_done", "epochs", "components", "head", "state"];
    let expected = serde_json::json!([[5, 8, 10], 6, 2, 2, 2, "moc", "finished"]);
    assert_eq!(sizes.map(|name| talk[name].clone()).to_vec(), *expected.as_array().unwrap());
    assert!(
        broken["reason"].as_str().unwrap().contains("has the run format 9, but this program reads 4"),
        "{broken}"
    );
    let out = text(path, "runs");
    assert!(
        out.lines().any(|line| line.starts_with("runs/talk ")
            && line.contains(" dialogues   moc ")
            && line.ends_with(" finished")),
        "{out}"
    );
    assert!(out.lines().next().unwrap().contains("ended") && out.contains(" language    mos "), "{out}");

    // A run that was cut off within its second epoch.
    let metrics = path.join("runs/talk/metrics.jsonl");
    let lines = fs::read_to_string(&metrics).unwrap();
    let first = lines.lines().next().unwrap().to_string() + "\n";
    edit(&path.join("runs/talk"), "metrics.jsonl", first);
    let talk = objects(path, "runs runs/talk --json").remove(0);
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
