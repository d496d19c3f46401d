//! Results of sweeps drawn anew, settings of sweeps from a file, and the study's script.

use std::fs;
use std::path::Path;
#[cfg(unix)]
use std::path::PathBuf;

use serde_json::{Value, json};

#[cfg(unix)]
use super::{HIGHRANK, all_files};
use super::{folder, names, objects, read, refused, text};
#[cfg(unix)]
use crate::harness::{parsed, stderr};

/// A procedure of a second or so.
const SMALL: &str = "--data data --knots 50 --batch 8 --bptt 12 --epochs 1";

#[test]
fn results_are_drawn_anew_from_their_lines() {
    let path = &folder();
    let line = format!("sweep {SMALL} --lstm 12,8 --heads mos --components 2 --lr 2,4 --seeds 3,4 --out out");
    let first = objects(path, &format!("{line} --json"));
    let keep = |name: &str| fs::read(path.join(name)).unwrap();
    fs::copy(path.join("out/results.jsonl"), path.join("lines.jsonl")).unwrap();
    assert_eq!(text(path, "sweep --from lines.jsonl"), read(path, "out/table.md"));
    for name in ["table.md", "by-lr.svg"] {
        assert!(keep(&format!("lines/{name}")) == keep(&format!("out/{name}")), "{name}");
    }
    assert!(!path.join("lines/results.jsonl").exists());
    // A folder, several files, and lines of earlier versions.
    let old = r#"{"head":"softmax","seed":28,"parameters":9,"d_embedding":2,"lstm_sizes":[3,2],"epochs":4,"best_epoch":4,
        "valid_ppl":134.5,"test_ppl":131.9,"seconds":176.2}"#;
    fs::write(path.join("old.jsonl"), old.replace('\n', " ")).unwrap();
    let both = objects(path, "sweep --from out old.jsonl --out both --json");
    assert_eq!((both.len(), &both[..4]), (5, &first[..]));
    assert!(read(path, "both/table.md").contains("| softmax | – | d 2, LSTM 3, 2 | 9 | 28 |"));
    assert_eq!(
        objects(path, "sweep --from out old.jsonl --out both --force --json --heads softmax").len(),
        1
    );

    // Nothing is counted twice.
    let twice = super::run(path, "sweep --from out out --out twice --json");
    let notes = crate::harness::stderr(&twice, 0);
    assert!(notes.contains("left out: 4 results that are given twice"), "{notes}");
    assert_eq!(crate::harness::parsed(str::from_utf8(&twice.stdout).unwrap()), first);
    // A rate that one sweep varied is a setting of a run with one rate, too.
    let lines = read(path, "lines.jsonl");
    let [line, rest] = [lines.lines().next().unwrap(), lines.split_once('\n').unwrap().1];
    fs::write(path.join("one.jsonl"), line.replace("\"settings\":{\"lr\":2}", "\"settings\":{}") + "\n")
        .unwrap();
    fs::write(path.join("rest.jsonl"), rest).unwrap();
    objects(path, "sweep --from rest.jsonl one.jsonl --out merged --json");
    assert!(!read(path, "merged/by-lr.svg").contains("learning rate)"));
    // Sizes that are the same within each sweep differ between them.
    let nameless = read(path, "lines.jsonl")
        .lines()
        .next()
        .unwrap()
        .replace("\"settings\":{\"lr\":2}", "\"settings\":{}");
    let parameters = first[0]["parameters"].as_u64().unwrap();
    let larger = nameless.replace(&format!("\"parameters\":{parameters}"), "\"parameters\":98765");
    fs::write(path.join("sizes.jsonl"), format!("{nameless}\n{larger}\n")).unwrap();
    let apart = objects(path, "sweep --from sizes.jsonl --out sizes --json");
    assert_eq!((apart.len(), &apart[1]["settings"]), (2, &json!({ "parameters": 99_000 })));
    assert!(path.join("sizes/by-parameters.svg").is_file());
    let letters = nameless.replace("\"characters\":false", "\"characters\":true");
    fs::write(path.join("texts.jsonl"), format!("{nameless}\n{letters}\n")).unwrap();

    fs::write(path.join("bad.jsonl"), "{\"head\":\"mos\"}\n").unwrap();
    for (more, expected) in [
        ("--from none.jsonl", "cannot read `none.jsonl`"),
        ("--from bad.jsonl", "`bad.jsonl` is damaged: line 1: no result of a sweep"),
        ("--from texts.jsonl", "have the same settings but differ in more than their seeds: draw them apart"),
        ("--from old.jsonl --heads moc", "there is no result of these heads"),
        ("--from old.jsonl --seeds 3", "'--seeds <SEEDS>'"),
        ("--from old.jsonl --rank 5", "'--rank <N>'"),
        ("--from old.jsonl --epochs 7", "--epochs has no effect: --from draws what was trained"),
        ("--from old.jsonl --set train.lr=3", "--set has no effect: --from draws what was trained"),
    ] {
        refused(path, &format!("sweep --out run {more}"), &[expected]);
    }
}

#[test]
fn data_and_heads_may_be_those_of_a_file() {
    let path = &folder();
    let write = |text: &str| fs::write(path.join("settings.json"), text).unwrap();
    let line = "sweep --config settings.json --seeds 3 --out out --dry-run --json";
    write(r#"{"data": "data", "head": "moc", "model": {"components": 3}, "train": {"lr": 7}}"#);
    let listed = objects(path, line);
    assert_eq!(names(&listed), ["moc-s3"]);
    assert_eq!((&listed[0]["components"], &listed[0]["exact"]["train"]["lr"]), (&json!(3), &json!(7.0)));
    assert_eq!(names(&objects(path, &format!("{line} --heads plif --set train.lr=2"))), ["plif-s3"]);
    write(r#"{"data": "data", "head": "plif", "train": {"seed": 9}}"#);
    assert_eq!(names(&objects(path, &line.replace("--seeds 3", ""))), ["plif-s9"]);
    write("{}");
    refused(
        path,
        "sweep --config settings.json --out run",
        &["sweep needs --data DIR, or `data` in the file"],
    );
    refused(path, "sweep --out run", &["--data <DIR>"]);
}

/// `scripts/study.sh` in a folder, with environment variables.
#[cfg(unix)]
fn study(path: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> std::process::Output {
    std::process::Command::new("bash")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/study.sh"))
        .args(arguments)
        .env("PROGRAM", env!("CARGO_BIN_EXE_highrank"))
        .envs(variables.iter().copied())
        .current_dir(path)
        .output()
        .unwrap()
}

#[cfg(unix)]
#[test]
fn the_study_refuses_what_it_cannot_do() {
    let path = &folder();
    for (arguments, expected) in [
        (&["data", "out"][..], "expected DATA OUT PART..."),
        (&["data", "out", "sizes", "everything"], "expected DATA OUT PART..."),
        (&["nowhere", "out", "sizes"], "`nowhere/train.txt` does not exist"),
        (&["data", "out", "found"], "no model in `out`: the parts sizes and later come first"),
        (&["data", "out", "again"], "mos-s13-finetuned` is not there: the part tuned comes first"),
        (&["data", "out", "dynamic"], "mos-s11-finetuned` is not there: the part tuned comes first"),
    ] {
        let errors = stderr(&study(path, arguments, &[]), 2);
        let errors: Vec<&str> = errors.lines().filter(|line| line.starts_with("error")).collect();
        assert!(errors.len() == 1 && errors[0].contains(expected), "{errors:?}");
    }
    // What is finished is left alone.
    let started =
        |arguments: &[&str]| String::from_utf8_lossy(&study(path, arguments, &[]).stderr).lines().count();
    for cell in ["later/11", "later/12", "later-ordered/11", "later-ordered/12"] {
        fs::create_dir_all(path.join("done").join(cell)).unwrap();
        fs::write(path.join("done").join(cell).join("done"), "").unwrap();
    }
    assert_eq!(started(&["data", "done", "later"]), 0);
    fs::write(path.join("done/later/12/done"), "made of another text").unwrap();
    let errors = stderr(&study(path, &["data", "done", "later"], &[]), 2);
    assert!(errors.contains("`done/later/12` is of another text or PRECISION"), "{errors}");
}

#[cfg(unix)]
#[test]
fn the_study_takes_settings_from_recorded_results() {
    let path = &folder();
    let variables = [("SIZE", "500000"), ("PRECISION", "full"), ("EXTRA", "--dry-run")];
    let errors = stderr(&study(path, &["data", "out", "search", "tuned", "dropouts"], &variables), 0);
    assert_eq!(errors.lines().count(), 40 + 6 + 10, "{errors}");
    let planned = |name: &str| -> Value {
        let lines = read(path, &format!("out/{name}/log.jsonl"));
        assert_eq!(lines.lines().count(), 1, "{lines}");
        serde_json::from_str(lines.trim()).unwrap()
    };
    let drawn = planned("search-500000/softmax-1");
    assert_eq!(drawn["exact"]["train"]["lr"], 30.5);
    assert_eq!(drawn["exact"]["model"]["dropouts"]["weight"], 0.387);
    let tuned = planned("tuned-500000/mos-13");
    assert_eq!((&tuned["run"], &tuned["exact"]["train"]["epochs"]), (&json!("mos-s13"), &json!(10)));
    // Those of the best draw at two million parameters, but for the dropouts.
    let quarter = planned("dropouts/mos-0.25");
    assert_eq!((&quarter["exact"]["train"]["lr"], &quarter["components"]), (&json!(20.3), &json!(10)));
    assert_eq!(quarter["exact"]["model"]["dropouts"]["hidden"], 0.05625);
    assert_eq!(planned("dropouts/softmax-found")["exact"]["model"]["dropouts"]["output"], 0.3);
}

/// The runs of the files of settings of a part, as a sweep lists them; their files are taken out of `files`.
#[cfg(unix)]
fn runs_of_files(path: &Path, part: &str, files: &mut Vec<PathBuf>) -> Vec<Value> {
    let of_part = |file: &PathBuf| {
        let rest = file.file_stem().unwrap().to_str().unwrap().strip_prefix(part);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    let (own, others): (Vec<PathBuf>, Vec<PathBuf>) = files.drain(..).partition(of_part);
    *files = others;
    let mut lines = vec![];
    for file in own {
        let line = "sweep --data data --out whole --precision full --rank 20 --dry-run --json";
        let output = HIGHRANK.command(path, line).arg(&file).output().unwrap();
        stderr(&output, 0);
        let runs = parsed(str::from_utf8(&output.stdout).unwrap());
        assert!(!runs.is_empty(), "{}", file.display());
        lines.extend(runs);
    }
    lines
}

#[cfg(unix)]
#[test]
fn the_study_makes_the_runs_of_its_files() {
    let path = &folder();
    let settings = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../studies/settings");
    let mut files: Vec<PathBuf> =
        fs::read_dir(settings).unwrap().map(|entry| entry.unwrap().path()).collect();
    let exact = |lines: &[Value]| {
        let mut exact: Vec<String> = lines.iter().map(|line| line["exact"].to_string()).collect();
        exact.sort();
        exact
    };
    for (part, runs) in [
        ("shapes", 24),
        ("sizes", 60),
        ("later", 12),
        ("lag", 28),
        ("components", 12),
        ("start", 8),
        ("letters", 6),
    ] {
        let whole = runs_of_files(path, part, &mut files);
        assert_eq!(whole.len(), runs, "{part}");
        // The text has no 2,000 contexts for a rank.
        let variables = [("PRECISION", "full"), ("EXTRA", "--rank 20 --dry-run")];
        stderr(&study(path, &["data", part, part], &variables), 0);
        let mut shared = vec![];
        for (name, content) in all_files(&path.join(part)) {
            if name.ends_with("log.jsonl") {
                shared.extend(parsed(str::from_utf8(&content).unwrap()));
            }
        }
        assert_eq!(exact(&shared), exact(&whole), "{part}");
    }
    // What the script adds to these is found by other parts.
    for part in ["search", "tuned", "dropouts", "regularised"] {
        runs_of_files(path, part, &mut files);
    }
    assert!(files.is_empty(), "of no part: {files:?}");
}

#[cfg(unix)]
#[test]
fn the_study_averages_again() {
    let path = &folder();
    for head in ["softmax", "mos"] {
        let sweep = format!("sweep {SMALL} --precision full --heads {head} --lstm 12,8 --d-embedding 8");
        for seed in 11..14 {
            let tuned = format!("--seeds {seed} --out out/tuned-500000/{head}-{seed}");
            objects(path, &format!("{sweep} --lr 30 --finetune 1 --dropout-output 0.1 --json {tuned}"));
            fs::write(path.join(format!("out/tuned-500000/{head}-{seed}/done")), "").unwrap();
        }
    }
    let started = |part: &str| {
        let output = study(path, &["data", "out", part], &[("SIZE", "500000")]);
        stderr(&output, 0).lines().count()
    };
    assert_eq!(started("again"), 4);
    // A run that was killed while its checkpoint was replaced goes on.
    let run = path.join("out/again-500000/softmax-12");
    let id = fs::read(run.join("run/config.json")).unwrap();
    fs::remove_file(run.join("done")).unwrap();
    fs::rename(run.join("run/checkpoint"), run.join("run/checkpoint.old")).unwrap();
    assert_eq!(started("again"), 1);
    assert!(run.join("done").exists() && fs::read(run.join("run/config.json")).unwrap() == id);
    let config = |name: &str| super::config(path, &format!("out/{name}/run"));
    let settings = |name: &str| {
        let config = config(name);
        let dropouts = &config["model"]["dropouts"];
        [&config["train"]["lr"], &dropouts["output"], &dropouts["latent"]]
            .map(|value| value.as_f64().unwrap())
    };
    assert_eq!(settings("again-500000/softmax-12"), [20.0, 0.1, 0.1]);
    assert_eq!(settings("again-500000/mos-13-dropout"), [20.0, 0.2, 0.2]);
    assert!(read(path, "out/again-500000/softmax-13/log.jsonl").contains("\"averaging\":true"));

    // Three rates for each head and seed, one after another.
    assert_eq!(started("falling"), 18);
    for rate in [10.0, 5.0, 2.5] {
        assert_eq!(settings(&format!("falling-500000/mos-12-rate-{rate}")), [rate, 0.1, 0.1]);
    }
    // From where the averaging before them ended.
    for (stage, before) in [
        ("mos-11-rate-10", "tuned-500000/mos-11/mos-s11-finetuned"),
        ("softmax-11-rate-10", "again-500000/softmax-11/run"),
        ("softmax-11-rate-5", "falling-500000/softmax-11-rate-10/run"),
    ] {
        let config = config(&format!("falling-500000/{stage}"));
        assert!(config["finetunes"].as_str().unwrap().ends_with(before), "{stage}");
    }
    // What is finished is left alone.
    assert_eq!((started("again"), started("falling")), (0, 0));
}
