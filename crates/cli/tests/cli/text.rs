//! The command `generate`, and text that is not plain words in three files.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::Stdio;

use super::{SMALL, config, folder, objects, program, refused, run, same_files};
use crate::harness::{Folder, stderr};
use serde_json::{Value, json};

#[test]
fn text_is_drawn_from_a_run() {
    let path = &folder();
    objects(path, &format!("train {SMALL} --epochs 1 --out first --json"));
    let vocabulary = fs::read_to_string(path.join("first/vocab.txt")).unwrap();
    let generate = |more: &str| objects(path, &format!("generate --run first --json {more}")).remove(0);
    let drawn = generate("--tokens 25 --prompt topic1");
    assert_eq!((&drawn["prompt"], &drawn["seed"]), (&"topic1".into(), &28.into()));
    let tokens = drawn["tokens"].as_array().unwrap();
    assert_eq!(tokens.len(), 25);
    assert!(tokens.iter().all(|token| vocabulary.lines().any(|word| word == token)));
    let words: Vec<&str> = tokens.iter().map(|token| token.as_str().unwrap()).collect();
    let spoken: Vec<String> =
        words.join(" ").replace("<eos>", " ").split_whitespace().map(String::from).collect();
    assert_eq!(drawn["text"].as_str().unwrap().split_whitespace().collect::<Vec<_>>(), spoken);

    // The seed fixes the text, the options change it.
    assert_eq!(drawn, generate("--tokens 25 --prompt topic1"));
    assert_ne!(drawn["text"], generate("--tokens 25 --prompt topic1 --seed 29")["text"]);
    let options = "--tokens 25 --prompt topic1 --temperature 0.5 --top-k 3 --top-p 0.9";
    assert_eq!(generate(options), generate(options));
    assert_ne!(drawn["text"], generate(options)["text"]);
    if cfg!(feature = "ndarray") {
        let best = "--tokens 5 --top-k 1";
        assert_eq!(generate(best)["text"], generate(&format!("{best} --device ndarray"))["text"]);
    }

    // What people read: the prompt and what follows; unknown words are said on standard error.
    let output = run(path, "generate --run first --tokens 3 --prompt zebra");
    let (errors, text) = (stderr(&output, 0), String::from_utf8(output.stdout).unwrap());
    assert!(text.starts_with("zebra ") || text.starts_with("zebra\n"), "{text}");
    assert_eq!(errors, "not in the vocabulary and passed over: zebra\n");
    assert_eq!(generate("--tokens 1 --prompt zebra")["unknown"], serde_json::json!(["zebra"]));

    // Words are printed as they are drawn, until nobody reads any more.
    let text = super::text(path, "generate --run first --tokens 60");
    let mut endless = program(path, &format!("generate --run first --tokens {}", usize::MAX))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut beginning = vec![0; text.trim_end().len()];
    endless.stdout.take().unwrap().read_exact(&mut beginning).unwrap();
    assert_eq!(String::from_utf8(beginning).unwrap(), text.trim_end());
    assert!(endless.wait().unwrap().success());

    for (more, expected) in [
        ("--temperature 0", "temperature is 0, but must be finite and above 0"),
        ("--temperature nan", "temperature is NaN"),
        ("--top-k 0", "top_k is 0"),
        ("--top-p 0", "top_p is 0"),
        ("--top-p 1.5", "top_p is 1.5"),
        ("--tokens 0", "tokens is 0"),
        ("--tokens many", "--tokens"),
    ] {
        refused(path, &format!("generate --run first {more}"), &[expected]);
    }
    refused(path, "generate --run data", &["`data` is not a run folder"]);
}

#[test]
fn characters_are_tokens_with_bits_for_perplexities() {
    let path = &Folder::empty();
    fs::create_dir(path.join("data")).unwrap();
    let stream: String = (0..6000).map(|n| ['a', 'b', ' ', 'c', '\r', 'b'][n % 6]).collect();
    fs::write(path.join("data/text8"), stream).unwrap();
    let lines = objects(path, &format!("train {SMALL} --characters --epochs 2 --out first --json"));
    assert_eq!(fs::read_to_string(path.join("first/vocab.txt")).unwrap(), "a\nb\n \nc\n\r\n");
    let bits = |value: &Value, name: &str| {
        let (ppl, bpc) = (&value[format!("{name}_ppl")], &value[format!("{name}_bpc")]);
        assert!((ppl.as_f64().unwrap().log2() - bpc.as_f64().unwrap()).abs() < 1e-12, "{value}");
    };
    bits(&lines[0], "train");
    bits(&lines[0], "valid");
    bits(&lines[2], "test");
    // The run remembers what its tokens are.
    let eval = objects(path, "eval --run first --json").remove(0);
    bits(&eval, "valid");
    assert_eq!(eval["test_bpc"], lines[2]["test_bpc"]);
    let small = "--model gpt --head softmax --d-model 8 --layers 1 --attention-heads 2 --context 8 --batch 4";
    let of_gpt = format!("train data {small} --characters --steps 4 --rounds 2 --out gpt --json");
    let lines = objects(path, &of_gpt);
    let last = lines.last().unwrap();
    bits(&lines[0], "valid");
    bits(last, "test");
    assert_eq!(objects(path, "eval gpt --json")[0]["test_bpc"], last["test_bpc"]);
    let text = super::text(path, "eval --run first");
    assert!(text.contains(", bits per character valid ") && text.lines().count() == 1, "{text}");
    let text = super::text(path, "generate --run first --prompt ab --tokens 20 --top-k 1");
    assert_eq!(text.trim_end_matches('\n').chars().count(), 22, "{text}");
    // Without a prompt, it begins after a blank.
    let begun = super::text(path, "generate --run first --tokens 20 --top-k 1");
    assert_eq!(begun.chars().count(), 21, "{begun:?}");
    // As words, the same folder is no corpus.
    refused(path, "train --data data --out run", &["there is no file `data/train.txt`"]);
    // The presets of this text read characters anyway, unless told otherwise.
    let preset = format!("train {SMALL} --preset text8-mos10 --epochs 1 --json");
    objects(path, &format!("{preset} --out preset"));
    assert_eq!(
        text_settings(path, "preset"),
        json!({"characters": true, "lower_case": false, "vocab_size": null})
    );
    refused(path, &format!("{preset} --characters=false --out run"), &["there is no file `data/train.txt`"]);
}

/// How a run reads its text.
fn text_settings(path: &Path, run: &str) -> Value {
    config(path, run)["text"].clone()
}

#[test]
fn one_billion_word_is_read_in_lower_case_with_a_capped_vocabulary() {
    let path = &folder();
    let train = format!("train {SMALL} --preset billion-word --head softmax --lstm 12 --epochs 1 --json")
        .replace("--lstm 16,12 --components 3", "");
    objects(path, &format!("{train} --out first"));
    let capped =
        |lower: bool, size: usize| json!({"characters": false, "lower_case": lower, "vocab_size": size});
    assert_eq!(text_settings(path, "first"), capped(true, 100_000));
    objects(path, &format!("{train} --lower-case=false --vocab-size 20 --out second"));
    assert_eq!(text_settings(path, "second"), capped(false, 20));
    // Nothing regularises.
    let config = config(path, "first");
    assert_eq!((&config["train"]["alpha"], &config["train"]["beta"]), (&json!(0.0), &json!(0.0)));
    // A run goes on as it reads.
    refused(path, "train --resume first --lower-case=false", &["text.lower_case", "true", "false"]);
}

#[test]
fn a_corpus_in_shards_trains_the_same_weights() {
    let path = &folder();
    let text = fs::read_to_string(path.join("data/train.txt")).unwrap();
    fs::create_dir_all(path.join("shards/train")).unwrap();
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    for (index, part) in lines.chunks(40).enumerate() {
        fs::write(path.join(format!("shards/train/part-{index:05}")), part.concat()).unwrap();
    }
    for name in ["valid.txt", "test.txt"] {
        fs::copy(path.join("data").join(name), path.join("shards").join(name)).unwrap();
    }
    let capped = "--vocab-size 20 --lower-case";
    for (more, out) in [("", "all"), (capped, "capped")] {
        let train = format!("train {SMALL} --epochs 1 {more} --json");
        objects(path, &format!("{train} --out {out}-memory"));
        objects(path, &format!("{train} --out {out}-disk").replace("--data data", "--data shards"));
        let [memory, disk] = ["memory", "disk"].map(|kind| path.join(format!("{out}-{kind}")));
        same_files(&memory, &disk, &["vocab.txt", "best/model.safetensors"]);
    }
    let words = fs::read_to_string(path.join("capped-disk/vocab.txt")).unwrap();
    assert_eq!(words.lines().take(2).collect::<Vec<_>>(), ["<unk>", "<eos>"]);
    assert_eq!(words.lines().count(), 20);
    // Rare words of the held-out text are read as <unk>, in evaluation and in a prompt.
    let ppls = |run: &str| {
        let eval = objects(path, &format!("eval --run {run} --json")).remove(0);
        ["valid_ppl", "test_ppl"].map(|name| eval[name].as_f64().unwrap())
    };
    assert_eq!(ppls("capped-disk"), ppls("capped-memory"));
    let train = |run: &str| {
        objects(path, &format!("eval --run {run} --split train --json")).remove(0)["train_ppl"].clone()
    };
    assert_eq!(train("capped-disk"), train("capped-memory"));
    let dynamic = |run: &str| {
        let line = format!("dynamic-eval --run {run} --batch 8 --json");
        objects(path, &line).pop().unwrap()["test_ppl"].clone()
    };
    assert_eq!(dynamic("capped-disk"), dynamic("capped-memory"));
    let said = stderr(&run(path, "generate --run capped-disk --tokens 2 --prompt zebra"), 0);
    assert_eq!(said, "not in the vocabulary and read as <unk>: zebra\n");
    refused(path, &format!("train {SMALL} --vocab-size 2 --out run"), &["vocab_size is 2"]);
    // A run goes on with the text as it was read, and with no other.
    let last = |line: &str| objects(path, line).pop().unwrap()["test_ppl"].clone();
    let evaluated = objects(path, "eval --run capped-disk --json").pop().unwrap()["test_ppl"].clone();
    assert_eq!(last("train --resume capped-disk --vocab-size 20 --json"), evaluated);
    refused(path, "train --resume all-disk --lower-case", &["text.lower_case", "false", "true"]);
    fs::write(path.join("shards/train/part-00001"), b"word1\n\xff\n").unwrap();
    let train = format!("train {SMALL} --out run").replace("--data data", "--data shards");
    refused(path, &train, &["shards/train/part-00001`, line 2", "UTF-8"]);
}
