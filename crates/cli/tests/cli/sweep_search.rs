//! Sweeps at equal size, random search, the best settings trained anew, results drawn anew.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::{folder, objects, refused, run};

/// A procedure of a second or so.
const SMALL: &str = "--data data --knots 50 --batch 8 --bptt 12 --epochs 1";

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("no number {key} in {value}"))
}

fn names(lines: &[Value]) -> Vec<&str> {
    lines.iter().map(|line| line["run"].as_str().unwrap()).collect()
}

fn read(path: &Path, name: &str) -> String {
    fs::read_to_string(path.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn sizes_that_cannot_be_met_are_left_out_with_their_reason() {
    let folder = folder();
    let line = format!(
        "sweep {SMALL} --heads softmax,mos --parameters 3000,6000 --layers 1,2 --last-lstm 8,16 --lstm 12 --components \
         2,60 --seeds 3 --out out --dry-run --json"
    );
    let output = run(folder.path(), &line);
    let notes = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{notes}");
    let listed: Vec<Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let reason =
        "left out: softmax, layers 1, last-lstm 8, parameters 3000: the softmax head has no size left";
    assert!(notes.contains(reason), "{notes}");
    assert!(
        notes.contains(
            "left out: mos, layers 1, last-lstm 16, components 60, parameters 3000: parameters is 3000, but"
        ),
        "{notes}"
    );
    for run in &listed {
        let want = number(&run["settings"], "parameters");
        assert!((number(run, "parameters") / want - 1.0).abs() <= 0.1, "{run}");
        assert_eq!(run["lstm_sizes"].as_array().unwrap().len() as f64, number(&run["settings"], "layers"));
        assert_eq!(run["lstm_sizes"].as_array().unwrap().last(), Some(&run["settings"]["last-lstm"]));
    }
    assert!(names(&listed).iter().any(|name| name.starts_with("softmax-layers2-last-lstm16")), "{listed:?}");
    let mut different: Vec<String> = listed
        .iter()
        .map(|run| format!("{} {} {}", run["head"], run["lstm_sizes"], run["exact"]["model"]))
        .collect();
    different.sort();
    different.dedup();
    assert_eq!(different.len(), listed.len());
}

#[test]
fn a_random_search_and_its_best_trained_anew() {
    let folder = folder();
    let path = folder.path();
    let line = |more: &str| {
        format!(
            "sweep {SMALL} --lstm 12,8 --d-embedding 8 --lr 1..10 --for mos:components=2:3,latent-lr=0.5..2 --seeds 3 --out \
             found {more}"
        )
    };
    let trials = objects(path, &line("--trials 2 --json"));
    assert_eq!(names(&trials), ["softmax-t1-s3", "mos-t1-s3", "softmax-t2-s3", "mos-t2-s3"]);
    for trial in &trials {
        assert!(trial.get("test_ppl").is_none() && number(trial, "valid_ppl") > 1.0, "{trial}");
        let lr = number(&trial["settings"], "lr");
        assert!((1.0..=10.0).contains(&lr) && trial["exact"]["train"]["lr"] == json!(lr), "{trial}");
        assert!(number(trial, "seconds") > 0.0);
    }
    assert_eq!(trials[0]["settings"]["lr"], trials[1]["settings"]["lr"]);
    assert!(path.join("found/by-lr.svg").is_file() && path.join("found/by-latent-lr.svg").is_file());
    assert!(read(path, "found/table.md").starts_with("| head | trial | lr |"));
    // More trials go on with those that are there.
    let before = read(path, "found/softmax-t2-s3/metrics.jsonl");
    let more = objects(path, &line("--trials 3 --json"));
    assert_eq!((more.len(), &more[..4]), (6, &trials[..]));
    assert_eq!(before, read(path, "found/softmax-t2-s3/metrics.jsonl"));
    refused(path, &line("--trials 3 --trial-seed 9"), &["`found/softmax-t1-s3`", "train.lr is"]);

    let best = "sweep --data data --best-of found --seeds 11,12 --out best";
    // Knots are nothing to these heads, so they change no model.
    let listed = objects(path, &format!("{best} --knots 9 --dry-run --json"));
    assert_eq!(names(&listed), ["softmax-s11", "mos-s11", "softmax-s12", "mos-s12"]);
    // What is given takes the place of what was chosen, but for what the head ignores.
    for run in objects(path, &format!("{best} --lr 3.5 --latent-lr 0.625 --prior-cv 0.5 --dry-run --json")) {
        let (settings, train, is_mixture) = (&run["settings"], &run["exact"]["train"], run["head"] == "mos");
        assert_eq!((number(settings, "lr"), number(train, "lr")), (3.5, 3.5), "{run}");
        let found = [&settings["latent-lr"], &train["latent_lr"], &train["prior_cv"]].map(Value::as_f64);
        let of_mixtures = [0.625, 0.625, 0.5].map(|value| is_mixture.then_some(value));
        assert_eq!(found, of_mixtures, "{run}");
    }
    let reported = objects(path, &format!("{best} --json"));
    for outcome in &reported {
        let of_head = || more.iter().filter(|trial| trial["head"] == outcome["head"]);
        let lowest = of_head().map(|trial| number(trial, "valid_ppl")).fold(f64::INFINITY, f64::min);
        let chosen = &outcome["chosen"];
        assert_eq!((number(chosen, "valid_ppl"), &chosen["among"]), (lowest, &json!(3)));
        let trial = of_head().find(|trial| trial["run"] == chosen["run"]).unwrap();
        assert_eq!(outcome["settings"], trial["settings"]);
        assert_eq!(outcome["exact"]["model"], trial["exact"]["model"]);
        assert_eq!(outcome["exact"]["train"]["lr"], trial["exact"]["train"]["lr"]);
        assert!(number(outcome, "test_ppl") > 1.0);
    }
    assert!(path.join("best/perplexities.svg").is_file());
    let table = read(path, "best/table.md");
    assert!(table.starts_with("| head | settings of | lr |") && table.contains(" of 3 |"), "{table}");
    // The same again trains nothing, and other procedures are others.
    assert_eq!(objects(path, &format!("{best} --json")), reported);
    let longer = objects(
        path,
        &format!("{best} --json --heads mos --epochs 2 --finetune 1 --no-test")
            .replace("--out best", "--out longer"),
    );
    assert_eq!((names(&longer), &longer[0]["epochs"]), (vec!["mos-s11", "mos-s12"], &json!(2)));
    assert!(
        longer
            .iter()
            .all(|run| run.get("test_ppl").is_none() && number(&run["finetuned"], "valid_ppl") > 1.0)
    );

    for (more, expected) in [
        ("--best-of found --seeds 3,4", "--seeds has 3, which the settings in `found` were chosen with"),
        ("--best-of found --seeds 4 --heads moc", "`found` has no result of the head moc"),
        ("--best-of nowhere --seeds 4", "cannot read `nowhere`"),
        ("--best-of found --seeds 4 --lr 3,4", "--best-of takes one value of --lr"),
        ("--best-of found --seeds 4 --lstm 9,8", "--best-of keeps the model"),
        ("--best-of found --seeds 4 --vocab-size 9", "it was trained on other text"),
        ("--best-of found", "--seeds <SEEDS>"),
    ] {
        refused(path, &format!("sweep --data data --out run {more}"), &[expected]);
    }
}

#[test]
fn results_are_drawn_anew_from_their_lines() {
    let folder = folder();
    let path = folder.path();
    let line = format!("sweep {SMALL} --lstm 12,8 --heads mos --components 2 --lr 2,4 --seeds 3,4 --out out");
    let first = objects(path, &format!("{line} --json"));
    let keep = |name: &str| fs::read(path.join(name)).unwrap();
    fs::copy(path.join("out/results.jsonl"), path.join("lines.jsonl")).unwrap();
    let output = run(path, "sweep --from lines.jsonl");
    assert!(output.status.success());
    assert_eq!(String::from_utf8(output.stdout).unwrap(), read(path, "out/table.md"));
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

    // What was the same within each sweep differs between them.
    let nameless = |lr: usize| {
        let lines = read(path, "lines.jsonl");
        let line = lines.lines().find(|line| line.contains(&format!("\"lr\":{lr}}}"))).unwrap();
        line.replace(&format!("\"settings\":{{\"lr\":{lr}}}"), "\"settings\":{}")
    };
    fs::write(path.join("rates.jsonl"), format!("{}\n{}\n", nameless(2), nameless(4))).unwrap();
    let parameters = first[0]["parameters"].as_u64().unwrap();
    let larger = nameless(2).replace(&format!("\"parameters\":{parameters}"), "\"parameters\":98765");
    fs::write(path.join("sizes.jsonl"), format!("{}\n{larger}\n", nameless(2))).unwrap();
    let apart = objects(path, "sweep --from sizes.jsonl --out sizes --json");
    assert_eq!((apart.len(), &apart[1]["settings"]), (2, &json!({ "parameters": 99_000 })));
    assert!(path.join("sizes/by-parameters.svg").is_file());
    // So it does where some have a name for it.
    let lines = read(path, "lines.jsonl");
    let of_four = lines.lines().find(|line| line.contains("\"lr\":4}")).unwrap();
    fs::write(path.join("named.jsonl"), format!("{}\n{of_four}\n", nameless(2))).unwrap();
    for name in ["rates", "named"] {
        let apart = objects(path, &format!("sweep --from {name}.jsonl --out {name} --json"));
        let settings: Vec<_> = apart.iter().map(|run| &run["settings"]).collect();
        assert_eq!(settings, [&json!({ "lr": 2 }), &json!({ "lr": 4 })]);
        assert!(path.join(name).join("by-lr.svg").is_file());
    }
    let letters = nameless(2).replace("\"characters\":false", "\"characters\":true");
    fs::write(path.join("texts.jsonl"), format!("{}\n{letters}\n", nameless(2))).unwrap();

    fs::write(path.join("bad.jsonl"), "{\"head\":\"mos\"}\n").unwrap();
    for (more, expected) in [
        ("--from none.jsonl", "cannot read `none.jsonl`"),
        ("--from bad.jsonl", "`bad.jsonl` is damaged: line 1: no result of a sweep"),
        ("--from texts.jsonl", "have the same settings but differ in their text: draw them apart"),
        ("--from old.jsonl --heads moc", "there is no result of these heads"),
        ("--from old.jsonl --trials 3", "cannot be used with"),
    ] {
        refused(path, &format!("sweep --out run {more}"), &[expected]);
    }
}

#[test]
fn data_and_heads_may_be_those_of_a_file() {
    let folder = folder();
    let path = folder.path();
    let write = |text: &str| fs::write(path.join("settings.json"), text).unwrap();
    let line = "sweep --config settings.json --seeds 3 --out out --dry-run --json";
    write(r#"{"data": "data", "heads": ["moc", "gss"], "model": {"components": 3}, "train": {"lr": 7}}"#);
    let listed = objects(path, line);
    assert_eq!(names(&listed), ["moc-s3", "gss-s3"]);
    assert_eq!((&listed[0]["components"], &listed[0]["exact"]["train"]["lr"]), (&json!(3), &json!(7.0)));
    assert_eq!(names(&objects(path, &format!("{line} --heads plif"))), ["plif-s3"]);
    let ablation = line.replace("sweep", "ablation");
    assert_eq!(names(&objects(path, &ablation)), ["moc-s3", "gss-s3"]);
    write(r#"{"data": "data", "head": "plif", "train": {"seed": 9}}"#);
    assert_eq!(names(&objects(path, &line.replace("--seeds 3", ""))), ["plif-s9"]);
    write("{}");
    refused(
        path,
        "sweep --config settings.json --out run",
        &["sweep needs --data DIR, or `data` in the file"],
    );
    refused(path, "sweep --out run", &["--data <DIR>"]);
    write(r#"{"heads": ["mos", "mos"]}"#);
    refused(
        path,
        "sweep --config settings.json --out run",
        &["heads must be at least one, each of them once"],
    );
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
    let folder = folder();
    let path = folder.path();
    for (arguments, expected) in [
        (&["data", "out"][..], "expected DATA OUT PART..."),
        (&["data", "out", "sizes", "everything"], "expected DATA OUT PART..."),
        (&["nowhere", "out", "sizes"], "`nowhere/train.txt` does not exist"),
        (&["data", "out", "found"], "no model in `out`: the parts sizes and later come first"),
        (
            &["data", "out", "tuned"],
            "error: `out/search-2000000/softmax-1` is not done: the part search comes first",
        ),
        (&["data", "out", "again"], "mos-s13-finetuned` is not there: the part tuned comes first"),
        (&["data", "out", "dynamic"], "mos-s11-finetuned` is not there: the part tuned comes first"),
    ] {
        let output = study(path, arguments, &[]);
        let errors = String::from_utf8_lossy(&output.stderr);
        let errors: Vec<&str> = errors.lines().filter(|line| line.starts_with("error")).collect();
        assert_eq!((output.status.code(), errors.len()), (Some(2), 1), "{errors:?}");
        assert!(errors[0].contains(expected), "{errors:?}");
    }
    // What is finished is left alone.
    let started =
        |arguments: &[&str]| String::from_utf8_lossy(&study(path, arguments, &[]).stderr).lines().count();
    fs::create_dir_all(path.join("done/later")).unwrap();
    for head in ["softmax", "sigsoftmax", "adaptive", "mixtape", "mos", "doc"] {
        fs::create_dir_all(path.join(format!("done/later/{head}"))).unwrap();
        fs::write(path.join(format!("done/later/{head}/done")), "").unwrap();
    }
    assert_eq!(started(&["data", "done", "later"]), 0);
}

#[cfg(unix)]
#[test]
fn the_study_trains_the_best_of_its_search() {
    let folder = folder();
    let path = folder.path();
    for head in ["softmax", "mos"] {
        let of_trial = |trial: usize| format!("out/search-500000/{head}-{trial}");
        let search = format!("sweep {SMALL} --precision full --heads {head} --lstm 12,8 --d-embedding 8");
        objects(path, &format!("{search} --lr 1..10 --trials 1 --no-test --json --out {}", of_trial(1)));
        for trial in 1..=20 {
            let cell = path.join(of_trial(trial));
            fs::create_dir_all(&cell).unwrap();
            fs::write(cell.join("done"), "").unwrap();
            if trial > 1 {
                fs::write(cell.join("results.jsonl"), "").unwrap();
            }
        }
    }
    let variables = [("SIZE", "500000"), ("PRECISION", "full"), ("EXTRA", "--dry-run")];
    let output = study(path, &["data", "out", "tuned"], &variables);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.lines().count() == 6, "{errors}");
    let planned = read(path, "out/tuned-500000/mos-13/log.jsonl");
    assert!(planned.contains("mos-s13") && !planned.contains("softmax"), "{planned}");
}

#[cfg(unix)]
#[test]
fn the_study_averages_again() {
    let folder = folder();
    let path = folder.path();
    for head in ["softmax", "mos"] {
        let sweep = format!("sweep {SMALL} --precision full --heads {head} --lstm 12,8 --d-embedding 8");
        for seed in 11..14 {
            let tuned = format!("--seeds {seed} --out out/tuned-500000/{head}-{seed}");
            objects(path, &format!("{sweep} --lr 30 --finetune 1 --dropout-output 0.1 --json {tuned}"));
        }
    }
    let started = |part: &str| {
        let output = study(path, &["data", "out", part], &[("SIZE", "500000")]);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{errors}");
        errors.lines().count()
    };
    assert_eq!(started("again"), 4);
    let config = |name: &str| -> Value {
        serde_json::from_str(&read(path, &format!("out/{name}/run/config.json"))).unwrap()
    };
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
