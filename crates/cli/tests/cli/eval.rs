//! The command `eval`: texts, slices and weights; and what training says of the projections of a mixture.

use std::fs;

use serde_json::json;

use super::{SMALL, config, folder, lines, objects, refused};
use crate::harness::number;

#[test]
fn a_text_that_is_not_scored_need_not_be_there() {
    let path = &folder();
    let train = format!("train {SMALL} --epochs 1");
    let moved = path.join("test.txt");
    fs::rename(path.join("data/test.txt"), &moved).unwrap();
    let missing = "/data/test.txt`; a data folder holds";
    refused(path, &format!("{train} --out run"), &[missing]);
    refused(path, &format!("{train} --dry-run"), &[missing]);
    objects(path, &format!("{train} --no-test --dry-run --json"));
    objects(path, &format!("{train} --no-test --out first --json"));
    let valid = objects(path, "eval --run first --split valid --json").remove(0);
    assert!(valid["valid_ppl"].is_f64() && valid["test_ppl"].is_null(), "{valid}");
    objects(path, "rank --run first --split valid --tokens 40 --json");
    for line in ["eval --run first", "eval --run first --split test", "rank --run first --tokens 40"] {
        refused(path, line, &[missing]);
    }
    // A file without a word is no text either.
    fs::write(path.join("data/test.txt"), "\n").unwrap();
    let empty = "/data/test.txt` is empty";
    refused(path, &format!("{train} --out run"), &[empty]);
    objects(path, &format!("{train} --no-test --out second --json"));
    refused(path, "eval --run second", &[empty]);
    // It is another text of the same run then.
    fs::rename(&moved, path.join("data/test.txt")).unwrap();
    refused(path, "train --resume first", &["the test text"]);
}

#[test]
fn each_text_and_any_slice_of_it_is_scored() {
    let path = &folder();
    objects(path, &format!("train {SMALL} --epochs 2 --out first --json"));
    let eval = |more: &str| objects(path, &format!("eval --run first --json {more}")).remove(0);
    let both = eval("");
    for (split, other) in [("valid", "test"), ("test", "valid")] {
        let one = eval(&format!("--split {split}"));
        assert_eq!(one[format!("{split}_ppl")], both[format!("{split}_ppl")]);
        assert!(one.get(format!("{other}_ppl")).is_none(), "{one}");
    }
    let train = eval("--split train");
    // All but the first token are predicted, in one column as in the test.
    let config = config(path, "first");
    assert_eq!(train["tokens"], json!(number(&config["corpus"]["train"], "length") as u64 - 1));
    assert!(train.get("valid_ppl").is_none() && number(&train, "train_ppl") > 1.0);
    let (few, more) = (eval("--split train --max-tokens 50"), eval("--split train --limit 400"));
    assert_eq!((&few["tokens"], &more["tokens"]), (&json!(49), &json!(399)));
    assert_ne!(few["train_ppl"], more["train_ppl"]);
    assert_eq!(eval("--split train --max-tokens 99999999")["train_ppl"], train["train_ppl"]);
    assert_eq!(eval("--max-tokens 200")["tokens"], json!(199 + (200 / 10 - 1) * 10));
    // What was scored, and how.
    assert_eq!(
        (&train["run"], &train["weights"], &train["head"]),
        (&json!("first"), &json!("best"), &json!("mos"))
    );
    assert!(number(&train, "seconds") > 0.0 && train["model"]["components"] == json!(3));
    assert_eq!(train["train"]["seed"], json!(28));
    let text = super::text(path, "eval --run first --split train --max-tokens 50");
    assert_eq!(text, format!("perplexity train {:.2}\n", number(&few, "train_ppl")));

    for (more, expected) in [
        ("--split dev", "invalid value 'dev' for '--split <SPLIT>' [possible values: train, valid, test]"),
        (
            "--weights first",
            "invalid value 'first' for '--weights <WEIGHTS>' [possible values: best, last, averaged]",
        ),
        ("--max-tokens 1", "max-tokens is 1, but must be at least 2"),
        ("--max-tokens 9", "the validation text is shorter than one batch: 9 tokens"),
        ("--weights averaged", "error: run `first` has no averaged weights: averaging has not begun"),
        ("--limit -1", "invalid value '-1' for '--max-tokens <N>'"),
    ] {
        refused(path, &format!("eval --run first {more}"), &[expected]);
    }
    // What was there and is gone is damage.
    let last = path.join("first/checkpoint/model.safetensors");
    fs::rename(&last, path.join("elsewhere")).unwrap();
    let missing = "checkpoint/model.safetensors` is damaged: it is missing";
    refused(path, "eval --run first --weights last", &[missing]);
    fs::rename(path.join("elsewhere"), last).unwrap();
    let train = path.join("data/train.txt");
    let text = fs::read_to_string(&train).unwrap();
    fs::write(&train, text.replacen("word1", "word2", 1)).unwrap();
    refused(
        path,
        "eval --run first --split train --token-cache-from 99",
        &["the training text is not the one that the run was started with"],
    );
}

#[test]
fn last_and_averaged_weights_are_those_of_the_checkpoint() {
    let path = &folder();
    objects(path, &format!("train {SMALL} --epochs 2 --average-from-start --out averaged --json"));
    let of = |run: &str, weights: &str| {
        number(
            &objects(path, &format!("eval --run {run} --weights {weights} --split valid --json"))[0],
            "valid_ppl",
        )
    };
    let last_epoch = |run: &str| number(&lines(&path.join(run).join("metrics.jsonl"))[1], "valid_ppl");
    // Averaged weights are what is validated once there are any.
    let near = |got: f64, want: f64| assert!((got / want - 1.0).abs() < 1e-6, "{got} {want}");
    near(of("averaged", "averaged"), last_epoch("averaged"));
    assert_ne!(of("averaged", "averaged"), of("averaged", "last"));
    objects(path, &format!("train {SMALL} --epochs 2 --out plain --json"));
    near(of("plain", "last"), last_epoch("plain"));
}

#[test]
fn the_projections_of_a_mixture_have_a_rate_and_a_share() {
    let path = &folder();
    let train = |out: &str, more: &str| {
        objects(path, &format!("train {SMALL} --epochs 1 --out {out} --json {more}")).remove(1)
    };
    let config = |run: &str| config(path, run);
    let steps = |run: &str| lines(&path.join(run).join("steps.jsonl"));
    let plain = train("plain", "");
    let slow = train("slow", "--latent-lr 0.1");
    assert_ne!(plain["valid_ppl"], slow["valid_ppl"]);
    assert_eq!(config("slow")["train"]["latent_lr"], json!(0.1));
    assert!(config("plain")["train"].get("latent_lr").is_none());
    assert!(steps("slow").iter().all(|line| (0.0..1.0).contains(&number(line, "latent_share"))));
    // It is the same as before if it says 1, and nothing to a head without mixture.
    assert_eq!(train("one", "--latent-lr 1")["valid_ppl"], plain["valid_ppl"]);
    let softmax = |out: &str, more: &str| {
        let small = SMALL.replace(" --components 3", "");
        let line = format!("train {small} --head softmax --epochs 1 --out {out} --json {more}");
        objects(path, &line).remove(1)
    };
    assert_eq!(softmax("with", "--latent-lr 0.1")["valid_ppl"], softmax("without", "")["valid_ppl"]);
    assert!(steps("with").iter().all(|line| line.get("latent_share").is_none()));
    refused(path, "train --resume slow --latent-lr 0.2", &["train.latent_lr is 0.2 now, but 0.1 in the run"]);
}
