//! Settings from options and files, what a run would need, and what it says of itself while it lasts and afterwards.

use std::fs;

use serde_json::{Value, json};

use super::{SMALL, all_files, config, folder, lines, objects, refused, run, same_files};
use crate::harness::stderr;

#[test]
fn every_option_reaches_the_configuration() {
    let path = &folder();
    let line = "--epochs 2 --seed 5 --lr-decay 0.5 --lr-decay-from 2 --clip 0.5 --weight-decay 0.001 --alpha 0.75 \
                --beta 0.25 --nonmono 3 --average-from-start --validate-every 15 --patience 9 --max-time 1h30m \
                --no-test --small-batch 4 --eval-batch 3 --test-batch 2 --max-seq-len-delta 11 --untied";
    let printed = objects(path, &format!("train {SMALL} {line} --out first --json"));
    let train = json!({
        "batch": 8, "small_batch": 4, "bptt": 12, "lr": 5.0, "clip": 0.5, "weight_decay": 0.001, "alpha": 0.75,
        "beta": 0.25, "nonmono": 3, "max_seq_len_delta": 11, "eval_batch": 3, "test_batch": 2, "epochs": 2,
        "seed": 5, "average_from_start": true, "validate_every": 15, "patience": 9, "max_minutes": 90.0,
        "lr_decay": {"factor": 0.5, "when": {"from": {"epoch": 2}}}, "test": false,
    });
    let config = config(path, "first");
    assert_eq!(config["train"], train);
    assert_eq!(config["model"]["tied"], false);
    // And training heeds them.
    let metrics = lines(&path.join("first/metrics.jsonl"));
    assert_eq!(metrics, printed);
    let within = metrics.iter().filter(|line| line["step"] == 15).count();
    assert_eq!(within, 2, "{metrics:?}");
    let rates: Vec<&Value> = metrics
        .iter()
        .filter(|line| line.get("step").or(line.get("ended")).is_none())
        .map(|line| &line["lr"])
        .collect();
    assert_eq!(rates, [5.0, 2.5]);
    let last = metrics.last().unwrap();
    assert!(last.get("test_ppl").is_none() && last["valid_ppl"].is_number(), "{last}");

    let plateau = "--epochs 1 --lr-decay 0.25 --lr-decay-on-plateau --no-test";
    objects(path, &format!("train {SMALL} {plateau} --out second --json"));
    let decay = json!({"factor": 0.25, "when": "plateau"});
    assert_eq!(super::config(path, "second")["train"]["lr_decay"], decay);
}

#[test]
fn set_has_the_last_word_for_every_model() {
    let path = &folder();
    super::dialog::write(&path.join("talk"), 1);
    let (talk, cpu) = (super::dialog::SMALL, super::dialog::CPU);
    let gpt = "--model gpt --d-model 8 --attention-heads 2 --layers 1 --context 8 --batch 4 --components 2 --steps 4";
    for (line, out) in [
        (format!("train {SMALL} --epochs 1"), "lstm"),
        (format!("train --from lstm --epochs 1 {cpu}"), "tuned"),
        (format!("train talk --model seq2seq {talk} {cpu}"), "answers"),
        (format!("train data {gpt} {cpu}"), "gpt"),
    ] {
        let line = line.replace(" --lr 5", "");
        objects(path, &format!("{line} --set train.lr=0.25 --lr 0.5 --out {out} --json"));
        assert_eq!(config(path, out)["train"]["lr"], 0.25, "{line}");
        // It is checked before any text is read.
        let nowhere = line.replace("--data data", "--data nowhere").replace("train talk", "train nowhere");
        let nowhere = nowhere.replace("train data", "train nowhere");
        refused(
            path,
            &format!("{nowhere} --set train.rate=1 --out run"),
            &["train.rate: unknown field `rate`"],
        );
    }
    // A run goes on with its settings, but for those that extend it.
    refused(path, "train --resume lstm --set train.lr=9", &["train.lr is 9.0 now, but 0.25 in the run"]);
    refused(path, "train --resume answers --set train.lr=9", &["train.lr is 9.0 now, but 0.25 in the run"]);
    for run in ["lstm", "answers"] {
        let epochs = config(path, run)["train"]["epochs"].as_u64().unwrap() + 1;
        objects(path, &format!("train --resume {run} --set train.epochs={epochs} --json"));
        assert_eq!(config(path, run)["train"]["epochs"], epochs);
    }
}

#[test]
fn a_runs_own_file_repeats_it() {
    let path = &folder();
    let small = SMALL.replace("--lstm 16,12 --components 3", "");
    let first = "--head gss --lstm 16,12 --epochs 2 --lower-case --patience 3 --out first --json";
    objects(path, &format!("train {small} {first}"));
    objects(path, "train --config first/config.json --out second --json");
    let (one, two) = (config(path, "first"), config(path, "second"));
    assert_eq!(one, two);
    let weights = |run: &str| fs::read(path.join(run).join("best/model.safetensors")).unwrap();
    assert!(weights("first") == weights("second"));
    // Options replace the file's settings; sizes go along with another head.
    objects(
        path,
        "train --config first/config.json --head plif --knots 50 --epochs 1 --lr 2 --out third --json",
    );
    let mut expected = one.clone();
    expected["model"]["head"] = "plif".into();
    expected["model"]["knots"] = 50.into();
    expected["train"]["epochs"] = 1.into();
    expected["train"]["lr"] = 2.0.into();
    assert_eq!(config(path, "third"), expected);
    refused(
        path,
        "train --config first/config.json --preset paper --out run",
        &["--preset is paper, but small in `first/config.json`"],
    );
}

#[test]
fn a_file_of_some_settings_replaces_the_presets() {
    let path = &folder();
    let file = json!({
        "preset": "text8", "head": "softmax", "data": "data", "text": {"characters": false},
        "model": {"d_embedding": 10, "lstm_sizes": [14, 10], "dropouts": {"weight": 0.25}},
        "train": {"batch": 8, "bptt": 12, "lr": 5.0, "epochs": 3, "patience": 2},
    });
    fs::write(path.join("some.json"), file.to_string()).unwrap();
    objects(path, "train --config some.json --epochs 1 --dropout-input 0.5 --out first --json");
    let config = config(path, "first");
    assert_eq!((&config["preset"], &config["text"]["characters"]), (&json!("text8"), &json!(false)));
    let model = &config["model"];
    assert_eq!((&model["head"], &model["lstm_sizes"]), (&json!("softmax"), &json!([14, 10])));
    assert_eq!((&model["dropouts"]["weight"], &model["dropouts"]["input"]), (&json!(0.25), &json!(0.5)));
    let train = &config["train"];
    assert_eq!((&train["lr"], &train["epochs"], &train["patience"]), (&json!(5.0), &json!(1), &json!(2)));
    // What neither says is the preset's.
    assert_eq!((&train["clip"], &model["components"]), (&json!(0.25), &json!(7)));

    for (text, expected) in [
        (r#"{"model": {"colour": 1}}"#, "model.colour: unknown field `colour`, expected one of `vocab`"),
        (r#"{"train": {"lr": "fast"}}"#, "train.lr: invalid type"),
        (r#"{"train": {"lr": -1}}"#, "lr is -1"),
        (r#"{"models": {}}"#, "unknown field `models`, expected one of `preset`"),
        ("{", "line 1"),
        ("{}", "train needs --data DIR, or `data` in the file of --config"),
    ] {
        fs::write(path.join("bad.json"), text).unwrap();
        refused(path, "train --config bad.json --out run", &[expected]);
    }
    refused(path, "train --config nowhere.json --out run", &["cannot read `nowhere.json`"]);
}

#[test]
fn a_dry_run_says_what_a_run_needs_and_writes_nothing() {
    let path = &folder();
    let before = all_files(path);
    let plan = objects(path, &format!("train {SMALL} --epochs 4 --dry-run --json")).remove(0);
    let train = fs::read_to_string(path.join("data/train.txt")).unwrap();
    let tokens = train.split_whitespace().count() + train.lines().count();
    assert_eq!((&plan["train_tokens"], &plan["epochs"]), (&json!(tokens), &json!(4)));
    let parameters = plan["parameters"].as_u64().unwrap();
    assert_eq!(plan["weights_bytes"], 4 * parameters);
    let number = |name: &str| plan[name].as_f64().unwrap_or_else(|| panic!("{name} in {plan}"));
    assert!(number("tokens_per_s") > 0.0 && number("step_seconds") > 0.0, "{plan}");
    assert!(number("timed_steps") >= 2.0, "{plan}");
    assert!(number("run_seconds") >= 4.0 * number("epoch_seconds"), "{plan}");
    if cfg!(target_os = "linux") {
        assert_eq!(number("expected_bytes"), number("peak_bytes") + 8.0 * parameters as f64);
    }
    // As a run of these settings has them.
    objects(path, &format!("train {SMALL} --epochs 1 --out first --json"));
    let steps = lines(&path.join("first/steps.jsonl"));
    assert_eq!(steps[0]["steps"], plan["steps_per_epoch"]);
    fs::remove_dir_all(path.join("first")).unwrap();

    // Words of the held-out text that training never meets are counted, and it is said.
    let count = |names: &[&str]| {
        let texts =
            names.iter().map(|name| fs::read_to_string(path.join(format!("data/{name}.txt"))).unwrap());
        let words: std::collections::BTreeSet<String> =
            texts.flat_map(|text| text.split_whitespace().map(String::from).collect::<Vec<_>>()).collect();
        words.len() + 1
    };
    assert_eq!(plan["words"], format!("{} words", count(&["train"])));
    let test = fs::read_to_string(path.join("data/test.txt")).unwrap();
    fs::write(path.join("data/test.txt"), format!("{test}one two three\n")).unwrap();
    let words = format!(
        "{} words: {} of the training text and those of validation and test, as the papers' programs count",
        count(&["train", "valid", "test"]),
        count(&["train"])
    );
    let plan = objects(path, &format!("train {SMALL} --epochs 4 --dry-run --json")).remove(0);
    assert_eq!(plan["words"], words);
    let said = stderr(&run(path, &format!("train {SMALL} --epochs 1 --out first")), 0);
    assert!(said.lines().any(|line| line == words), "{said}");
    fs::remove_dir_all(path.join("first")).unwrap();
    fs::write(path.join("data/test.txt"), test).unwrap();

    let text = super::text(path, &format!("train {SMALL} --epochs 4 --max-time 1s --no-test --dry-run"));
    assert_eq!(text.lines().count(), 6, "{text}");
    for part in ["parameters", "training", "steps timed", "memory: "] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    assert!(all_files(path) == before);
    // Nor an empty folder beside `data`.
    assert_eq!(fs::read_dir(path).unwrap().count(), 1);
    refused(
        path,
        &format!("train {SMALL} --batch 2000 --dry-run").replace("--batch 8", ""),
        &["shorter than one batch"],
    );
}

#[test]
fn a_run_is_extended_to_the_bits_of_a_longer_one() {
    let path = &folder();
    objects(path, &format!("train {SMALL} --epochs 4 --out straight --json"));
    objects(path, &format!("train {SMALL} --epochs 2 --out extended --json"));
    let extend = "train --resume extended --epochs 4 --max-time 8h --patience 50 --json";
    let errors = stderr(&run(path, extend), 0);
    for line in
        ["extended: train.epochs is 4 now, 2 before", "extended: train.max_minutes is 480.0 now, null before"]
    {
        assert!(errors.lines().any(|said| said == line), "{errors}");
    }
    let files = ["checkpoint/model.safetensors", "best/model.safetensors"];
    same_files(&path.join("straight"), &path.join("extended"), &files);
    let config = config(path, "extended");
    let train = &config["train"];
    assert_eq!(
        (&train["epochs"], &train["max_minutes"], &train["patience"]),
        (&json!(4), &json!(480.0), &json!(50))
    );
    let of_epochs = &config["extensions"][0];
    assert_eq!((&of_epochs["setting"], &of_epochs["after_epoch"]), (&json!("train.epochs"), &json!(2)));
    let ppls = |run: &str| -> Vec<Value> {
        lines(&path.join(run).join("metrics.jsonl")).iter().map(|line| line["valid_ppl"].clone()).collect()
    };
    assert_eq!(ppls("extended"), ppls("straight"));
    refused(path, "train --resume extended --epochs 3", &["cannot extend `extended`: epochs is 3"]);
    // The same total changes nothing.
    objects(path, "train --resume extended --epochs 4 --json");
    assert_eq!(super::config(path, "extended"), config);
}

#[test]
fn a_run_goes_on_elsewhere_if_that_is_meant() {
    if !cfg!(feature = "ndarray") {
        return;
    }
    let path = &folder();
    objects(path, &format!("train {SMALL} --epochs 1 --out first --json"));
    refused(
        path,
        "train --resume first --epochs 2 --device ndarray",
        &["device is \"ndarray\" now", "--change-device"],
    );
    assert_eq!(config(path, "first").get("extensions"), None);
    let lines = objects(path, "train --resume first --epochs 2 --device ndarray --change-device --json");
    assert_eq!(lines.len(), 2);
    let config = config(path, "first");
    assert_eq!((&config["device"], &config["train"]["epochs"]), (&json!("ndarray"), &json!(2)));
    let record = config["extensions"].as_array().unwrap().iter().find(|record| record["setting"] == "device");
    let record = record.unwrap();
    assert_eq!((&record["from"], &record["to"]), (&json!("flex"), &json!("ndarray")));
    // A device that is not there is found before the run is changed.
    if !cfg!(feature = "cuda") {
        let cuda = "train --resume first --epochs 3 --device cuda --change-device";
        refused(path, cuda, &["without the device `cuda`"]);
        assert_eq!(super::config(path, "first"), config);
    }
    refused(path, "train --data data --change-device --device flex --out run", &["--resume <RUN>"]);
}

#[test]
fn without_a_terminal_steps_are_lines() {
    let path = &folder();
    let said = stderr(&run(path, &format!("train {SMALL} --epochs 2 --log-every 7 --out first")), 0);
    let of_steps: Vec<&str> = said.lines().filter(|line| line.contains(" step ")).collect();
    let steps = lines(&path.join("first/steps.jsonl"));
    assert_eq!(of_steps.len(), steps.len(), "{said}");
    assert_eq!((steps[0]["step"].clone(), steps[1]["step"].clone()), (json!(7), json!(14)));
    for (line, object) in of_steps.iter().zip(&steps) {
        let start = format!("epoch {}/2 step {}/{} loss ", object["epoch"], object["step"], object["steps"]);
        assert!(line.starts_with(&start), "{line} for {object}");
        for part in [" ppl ", " lr ", " norm ", " clipped ", " ar ", " tar ", " tokens/s"] {
            assert!(line.contains(part), "no {part} in {line}");
        }
        let loss: f64 = line[start.len()..].split(' ').next().unwrap().parse().unwrap();
        assert!((loss - object["nll"].as_f64().unwrap()).abs() < 6e-4, "{line} for {object}");
    }
    // By default they are some seconds apart, and this run is shorter.
    let said = stderr(&run(path, &format!("train {SMALL} --epochs 1 --out second")), 0);
    assert!(!said.contains(" step "), "{said}");
    assert_eq!(lines(&path.join("second/steps.jsonl"))[0]["step"], 20);
}

#[test]
fn finetuning_takes_other_settings_but_no_other_sizes() {
    let path = &folder();
    objects(path, &format!("train {SMALL} --epochs 1 --lr-decay 0.5 --lr-decay-from 1 --out first --json"));
    let more = "--lr 3 --epochs 1 --dropout-weight 0.1 --nonmono 2 --no-test --log-every 3";
    objects(path, &format!("finetune --run first --out second {more} --json"));
    let config = config(path, "second");
    assert_eq!((&config["train"]["nonmono"], &config["train"]["test"]), (&json!(2), &json!(false)));
    assert_eq!(config["model"]["dropouts"]["weight"], 0.1);
    assert_eq!(config["train"].get("lr_decay"), None);
    assert_eq!(lines(&path.join("second/steps.jsonl"))[0]["step"], 3);
    for more in
        ["--d-embedding 16", "--lstm 20,12", "--components 2", "--untied", "--frequent 3", "--d-gate 3"]
    {
        let option = more.split(' ').next().unwrap();
        let expected = ["train --from keeps the sizes", option];
        refused(path, &format!("finetune --run first --out run {more}"), &expected);
    }
    let text = "finetune --run first --out run --set text.vocab_size=0";
    refused(path, text, &["train --from keeps how the run's text is read"]);
    let head = "finetune --run first --out run --set model.head=gss";
    refused(path, head, &["train --from keeps that of an LSTM's run"]);
    refused(path, "finetune --run first --out run --average-from-start=false", &["averages from the start"]);
    refused(path, "train --config second/config.json --out run", &["a run that was finetuned from"]);
}
