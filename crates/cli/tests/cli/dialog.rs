//! Models of dialogues: bad input, and a small run from its first step to its responses.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Output, Stdio};

use seq2seq::synthetic::{Language, LanguageConfig, Sizes};
use serde_json::Value;

use super::{edit, objects, program, refused, run, same_files, text, timeless};
use crate::harness::{Folder, number, parsed, stderr};

/// A model and procedure of a second or so.
pub(super) const SMALL: &str = "--d-embedding 6 --d-utterance 5 --d-context 8 --d-decoder 10 --components 2 --window 3 \
                     --batch 12 --updates 6 --epochs 2";
/// Exact results are those of the CPU.
pub(super) const CPU: &str = if cfg!(feature = "flex") { "--device flex" } else { "--device ndarray" };

/// A folder whose folder `data` holds generated dialogues.
pub(super) fn folder() -> Folder {
    let folder = Folder::empty();
    write(&folder.join("data"), 1);
    folder
}

pub(super) fn write(data: &Path, seed: u64) {
    let config = LanguageConfig { words: 20, utterances: 24, max_words: 3, seed, ..Default::default() };
    let language = Language::new(config).unwrap();
    language.write_corpus(data, Sizes { train: 24, valid: 3, test: 3 }, 1).unwrap();
}

/// Trains with the small settings and returns the objects on standard output.
pub(super) fn train(folder: &Path, more: &str) -> Vec<Value> {
    objects(folder, &format!("dialog train --data data {SMALL} {CPU} --json {more}"))
}

/// Writes a file of references whose lines are those of another one, each changed.
fn change_references(from: &Path, to: &Path, change: impl Fn(&mut Vec<Value>)) {
    let mut lines = super::lines(from);
    for line in &mut lines {
        change(line["references"].as_array_mut().unwrap());
    }
    fs::write(to, lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
}

/// Runs the program with `input` as its standard input.
fn piped(folder: &Path, line: &str, input: &[u8]) -> Output {
    let mut child = program(folder, line)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The program may have ended already for a reason that is tested.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

/// The responses to the lines of `input`, one object a line.
fn respond(folder: &Path, more: &str, input: &str) -> Vec<Value> {
    let output = piped(folder, &format!("dialog respond first {CPU} --json {more}"), input.as_bytes());
    stderr(&output, 0);
    parsed(str::from_utf8(&output.stdout).unwrap())
}

#[test]
fn a_run_from_the_first_step_to_its_responses() {
    let path = &folder();
    let lines = train(path, "--out first");
    assert_eq!(lines.len(), 3);
    for (index, line) in lines[..2].iter().enumerate() {
        assert_eq!(line["epoch"], index + 1);
        assert!(number(line, "valid_ppl") > 1.0 && number(line, "tokens_per_s") > 0.0, "{line}");
    }
    let last = &lines[2];
    let words = fs::read_to_string(path.join("first/vocab.txt")).unwrap().lines().count();
    assert!(number(last, "test_ppl") < words as f64, "{last}");
    for name in ["config.json", "metrics.jsonl", "best/model.safetensors", "curves.svg"] {
        assert!(path.join("first").join(name).is_file(), "{name}");
    }
    // Other programs draw its curve, too.
    let curves = objects(path, "curves --run first --json");
    assert_eq!(curves[0]["points"].as_array().unwrap().len(), 2);

    // The same seed trains the same model, another seed another. A finished run comes to its end again.
    train(path, "--out second");
    train(path, "--out third --seed 9");
    let weights = |run: &str| fs::read(path.join(run).join("best/model.safetensors")).unwrap();
    assert!(weights("first") == weights("second"), "the same seed trained another model");
    assert!(weights("first") != weights("third"), "another seed trained the same model");
    let again = objects(path, "dialog train --resume first --json");
    assert_eq!((again.len(), &again[0]["test_ppl"]), (1, &last["test_ppl"]));
    assert!(weights("first") == weights("second"));

    // The best model reads back to the same perplexity.
    let eval =
        objects(path, &format!("dialog eval first {CPU} --json --responses responses.jsonl")).remove(0);
    for key in ["valid_ppl", "test_ppl"] {
        assert!((number(&eval, key) / number(last, key) - 1.0).abs() < 1e-9, "{key}: {eval} {last}");
    }
    let contexts = fs::read_to_string(path.join("data/test_refs.jsonl")).unwrap().lines().count();
    assert_eq!((&eval["contexts"], &eval["bleu"]), (&contexts.into(), &"four_orders".into()));
    let bleu = |eval: &Value, of: &str, kind: &str| {
        let orders = eval[of][kind].as_array().unwrap();
        assert_eq!(orders.len(), 4);
        orders[0].as_f64().unwrap()
    };
    assert!(bleu(&eval, "single", "precision") <= bleu(&eval, "single", "recall"));
    assert!(bleu(&eval, "references", "precision") >= bleu(&eval, "single", "precision"));
    assert!(number(&eval, "mean_references") > 1.0);
    let responses = super::lines(&path.join("responses.jsonl"));
    assert_eq!(responses.len(), contexts);
    let of_first = responses[0]["responses"].as_array().unwrap();
    assert_eq!(of_first.len(), 5);
    assert!(of_first.windows(2).all(|pair| number(&pair[0], "log_prob") >= number(&pair[1], "log_prob")));

    // A file made with a vocabulary that lacked every word, and none: the true responses are those of the text.
    let (given, unknown) = (path.join("data/test_refs.jsonl"), path.join("unknown.jsonl"));
    change_references(&given, &unknown, |references| {
        let words = references[0].as_str().unwrap().split(' ').count();
        references[0] = vec!["<unk>"; words].join(" ").into();
    });
    fs::remove_file(given).unwrap();
    for (more, references) in [("--refs unknown.jsonl", &eval["references"]), ("", &Value::Null)] {
        let other = objects(path, &format!("dialog eval first {CPU} --json {more}")).remove(0);
        assert_eq!((&other["single"], &other["references"]), (&eval["single"], references), "{more}");
    }

    // Fewer contexts, another form, another beam.
    let more = "--contexts 4 --bleu short_weights --width 3 --n-best 2 --max-length 4 --alpha 1 --leave-beam";
    let other = objects(path, &format!("dialog eval first {CPU} --json {more}")).remove(0);
    assert_eq!((&other["contexts"], &other["bleu"]), (&4.into(), &"short_weights".into()));
    assert_eq!((&other["references"], &other["test_ppl"]), (&Value::Null, &eval["test_ppl"]));
    assert!(number(&other, "mean_length") <= 4.0);
    let table = text(path, &format!("dialog eval first {CPU} {more}"));
    assert!(table.starts_with("perplexity valid ") && table.contains("BLEU (short_weights)"), "{table}");
}

#[test]
fn references_that_do_not_fit_are_left_out_unless_they_are_asked_for() {
    let path = &folder();
    train(path, "--max-words 60 --out first");
    // As if made with --max-words 1.
    let file = path.join("data/test_refs.jsonl");
    change_references(&file, &file, |references| {
        for text in references {
            *text = text.as_str().unwrap().split(' ').next().unwrap().into();
        }
    });
    let fault = "the first reference is not the response of the test text: the file was made for another text or another \
                 max_words than 60";
    let output = run(path, &format!("dialog eval first {CPU} --contexts 3 --json"));
    let errors = stderr(&output, 0);
    let note = errors.lines().find(|line| line.starts_with("note: ")).unwrap_or_else(|| panic!("{errors}"));
    assert!(note.contains("unless --refs FILE names others") && note.ends_with(fault), "{note}");
    let eval = parsed(str::from_utf8(&output.stdout).unwrap()).remove(0);
    assert!(number(&eval, "test_ppl") > 1.0 && eval["single"].is_object(), "{eval}");
    assert_eq!(eval["references"], Value::Null);
    let asked = "dialog eval first --refs data/test_refs.jsonl";
    refused(path, asked, &["data file `data/test_refs.jsonl`, line ", fault]);
    // A damaged file is refused even if nobody asked for it.
    fs::write(&file, "{\n").unwrap();
    refused(path, "dialog eval first", &["data/test_refs.jsonl`, line 1: not JSON"]);
}

#[test]
fn responses_depend_on_the_conversation() {
    let path = &folder();
    train(path, "--out first");
    let data = fs::read_to_string(path.join("data/train.jsonl")).unwrap();
    let dialogue: Value = serde_json::from_str(data.lines().next().unwrap()).unwrap();
    let said = |turn: usize| dialogue["turns"][turn][1].as_str().unwrap();
    let (one, two) = (said(0), said(1));

    let answers = respond(path, "", &format!("{one}\n{two}\n\n{one}\r\nzebra polka, zebra\n{two}\n{two}"));
    assert_eq!(answers.len(), 6);
    let places: Vec<&Value> = answers.iter().map(|answer| &answer["line"]).collect();
    assert_eq!(places, [1, 2, 4, 5, 6, 7]);
    // The window is three: a line, the answer to it, and the next line.
    let seen: Vec<&Value> = answers.iter().map(|answer| &answer["seen"]).collect();
    assert_eq!(seen, [1, 3, 1, 3, 3, 3]);
    for answer in &answers {
        let found = answer["responses"].as_array().unwrap();
        assert_eq!(found.len(), 5, "{answer}");
        assert!(found.iter().all(|response| number(response, "log_prob") < 0.0), "{answer}");
    }
    // An empty line begins anew.
    assert_eq!(answers[0]["responses"], answers[2]["responses"]);
    assert_eq!(answers[3]["unknown"], serde_json::json!(["zebra", "polka", ","]));
    // Who speaks matters.
    let alone = respond(path, "--go-on --n-best 2", one);
    assert_eq!(alone[0]["responses"].as_array().unwrap().len(), 2);
    assert_ne!(alone[0]["responses"][0], answers[0]["responses"][0]);

    let text =
        piped(path, &format!("dialog respond first {CPU} --n-best 3"), format!("{one} zebra\n").as_bytes());
    let (out, errors) = (String::from_utf8(text.stdout).unwrap(), String::from_utf8(text.stderr).unwrap());
    assert_eq!(out.lines().count(), 4, "{out}");
    assert!(out.lines().next().unwrap().trim_start().starts_with('-'), "{out}");
    assert_eq!(errors.trim(), "not in the vocabulary and read as <unk>: zebra");

    for (input, expected) in [
        (&b"a\n\xff\xfe\n"[..], "standard input, line 2: not UTF-8 text"),
        (&vec![b'a'; 10 << 20], "standard input, line 1: longer than 4194304 bytes"),
    ] {
        let errors = stderr(&piped(path, &format!("dialog respond first {CPU} --json"), input), 2);
        let error = errors.lines().last().unwrap();
        assert!(error.starts_with(&format!("error: {expected}")), "{errors}");
    }
}

#[test]
fn dialogues_that_cannot_be_used() {
    let path = &folder();
    let line = format!("dialog train --data data {SMALL} --out run");
    refused(path, &line.replace("--data data", "--data nowhere"), &["data folder `nowhere` does not exist"]);
    let good = fs::read(path.join("data/train.jsonl")).unwrap();
    let bad: [(&[u8], &str); 2] = [
        (b"{\"turns\": [[\"A\", \"a\"]]}", "too few turns: 1; a dialogue has at least 2"),
        (&[b'x'; 10 << 20], "longer than 4194304 bytes"),
    ];
    for (second, expected) in bad {
        let first = good.split_inclusive(|&byte| byte == b'\n').next().unwrap();
        for name in ["train", "valid"] {
            let file = path.join(format!("data/{name}.jsonl"));
            let before = fs::read(&file).unwrap();
            fs::write(&file, [first, second, b"\n"].concat()).unwrap();
            refused(path, &line, &[&format!("data/{name}.jsonl`, line 2: "), expected]);
            fs::write(&file, before).unwrap();
        }
    }
    let file = path.join("data/test.jsonl");
    fs::write(&file, "\n").unwrap();
    refused(path, &line, &["data/test.jsonl` is empty"]);
    fs::remove_file(&file).unwrap();
    refused(path, &line, &["there is no file `data/test.jsonl`", "train.jsonl, valid.jsonl and test.jsonl"]);
}

#[test]
fn settings_out_of_range() {
    let path = &folder();
    for (more, expected) in [
        ("--head softmix", "unknown head `softmix`"),
        ("--head doc", "head is doc, but must be one that reads the last layer alone"),
        ("--preset huge", "unknown preset `huge`; known: small, paper"),
        ("--device abacus", "unknown device `abacus`"),
        ("--vocab-size 5", "vocab_size is 5, but must be at least 6"),
        ("--head mos-plif --plif-bound -1", "plif_bound is -1"),
        ("--init nan", "'nan' for '--init <W>'"),
        ("--set text.max_words=0", "max_words is 0"),
        ("--set train.lrr=3", "train.lrr: unknown field `lrr`"),
        ("--clip -1", "clip is -1"),
        ("--improvement 1.5", "stop.improvement is 1.5"),
        ("--log-every 0", "log-every is 0"),
        ("--checkpoint-every 0", "checkpoint-every is 0"),
        ("--colour blue", "--colour"),
    ] {
        refused(path, &format!("dialog train --data data --out run {more}"), &[expected]);
    }
    refused(path, "dialog train --out run", &["--data <DIR>"]);
    refused(path, "dialog eval", &["<RUN>"]);
    refused(path, "dialog train --data data --device auto --change-device", &["--resume <RUN>"]);
    refused(path, "dialog train --resume run --change-device", &["--device"]);
    refused(path, "dialog dance", &["dance"]);
    for (more, expected) in [
        ("--width 0", "width"),
        ("--n-best 0", "n_best"),
        ("--n-best 11", "n_best is 11, but must be at most the width of the beam"),
        ("--max-length 0", "max_length"),
        ("--alpha -1", "alpha"),
        ("--contexts 0", "contexts is 0"),
        ("--bleu exact", "unknown form of BLEU `exact`; known: four_orders, short_weights, repository_2017"),
    ] {
        refused(path, &format!("dialog eval first {more}"), &[expected]);
    }
}

#[test]
fn folders_that_are_no_run_of_dialogues() {
    let path = &folder();
    let commands = ["dialog eval RUN", "dialog respond RUN", "dialog train --resume RUN"];
    for command in commands {
        refused(path, &command.replace("RUN", "data"), &["`data` is not a run folder", "config.json"]);
    }
    train(path, "--out first");
    refused(path, &format!("dialog train --data data {SMALL} --out first"), &["`first` already holds a run"]);

    // Runs of other programs.
    let expected = "`first` is a run of seq2seq, but analyses look into runs of awd-lstm and gpt";
    refused(path, "rank --run first", &[expected]);
    fs::create_dir(path.join("words")).unwrap();
    let config = fs::read_to_string(path.join("first/config.json")).unwrap();
    edit(&path.join("words"), "config.json", config.replace(r#""kind": "seq2seq""#, r#""kind": "awd-lstm""#));
    refused(
        path,
        "dialog eval words",
        &["`words` is a run of awd-lstm, but this takes one of a model of dialogues"],
    );
    let old = r#"{"versions": {"awd_lstm": "0.2.0", "burn": "0.22.1", "format": 3}}"#;
    fs::write(path.join("words/config.json"), old).unwrap();
    refused(
        path,
        "dialog eval words",
        &["has the run format 3, but this program reads 4; an earlier build of highrank 0.2 reads it"],
    );
    refused(path, "dialog eval first --responses nowhere/file", &["cannot write `nowhere/file`: its folder"]);

    // The vocabulary of another run: of other size, of the same size, and of another program.
    let file = path.join("first/vocab.txt");
    let vocabulary = fs::read_to_string(&file).unwrap();
    let mut lines: Vec<&str> = vocabulary.lines().collect();
    lines.swap(6, 7);
    for (text, expected) in [
        (vocabulary.clone() + "zebra\n", "first/vocab.txt` is damaged: it holds"),
        (lines.join("\n") + "\n", "first/vocab.txt` is not the vocabulary of the run"),
        (vocabulary.replace("<d>", "<eos>"), "first/vocab.txt` is not a vocabulary of dialogues"),
    ] {
        edit(&path.join("first"), "vocab.txt", text);
        for command in ["dialog eval first", "dialog respond first"] {
            refused(path, command, &[expected]);
        }
    }
    edit(&path.join("first"), "vocab.txt", &vocabulary);

    // References of other dialogues, or in part.
    let references = fs::read_to_string(path.join("data/test_refs.jsonl")).unwrap();
    let first = references.lines().next().unwrap();
    for (text, expected) in [
        (format!("{first}\n{first}\n"), "refs.jsonl`, line 2: references for turn 1 of dialogue 0"),
        (first.to_string(), "refs.jsonl` has references for 1 responses"),
        ("{\n".into(), "refs.jsonl`, line 1: not JSON"),
    ] {
        fs::write(path.join("refs.jsonl"), text).unwrap();
        refused(path, "dialog eval first --refs refs.jsonl", &[expected]);
    }
    refused(path, "dialog eval first --refs nowhere.jsonl", &["nowhere.jsonl"]);

    // Other text or settings than those that the run was started with.
    for (more, expected) in [
        ("--d-context 9", "cannot resume: model.d_context is 9 now, but 8 in the run"),
        ("--head moc", "cannot resume: model.head is \"moc\" now"),
        ("--preset paper", "cannot resume: preset is paper now, but small in the run"),
        ("--lr 1", "cannot resume: train.lr is 1"),
        ("--vocab-size 17", "cannot resume: text.vocab_size is 17 now"),
        ("--out other", "--out"),
        ("--epochs 1", "cannot extend `first`: epochs is 1, but epoch 2 is done"),
        ("--patience 11", "cannot extend `first`: epoch 2 of 2 is done: give more epochs"),
        ("--patience 9", "cannot extend `first`: patience is 9, but 10 in the run: it can only grow"),
        ("--epochs 0", "epochs is 0, but must be at least 1"),
    ] {
        refused(path, &format!("dialog train --resume first {more}"), &[expected]);
    }
    write(&path.join("other"), 2);
    let other = "dialog train --resume first --data other";
    refused(path, other, &["the training text is not the one that the run was started with"]);

    // A damaged model, and none.
    let file = path.join("first/best/model.safetensors");
    let weights = fs::read(&file).unwrap();
    fs::write(&file, &weights[..weights.len() / 2]).unwrap();
    refused(path, "dialog eval first", &["best/model.safetensors` is damaged"]);
    fs::remove_file(&file).unwrap();
    refused(path, "dialog respond first", &["best/model.safetensors` is damaged: it is missing"]);
    fs::write(path.join("first/config.json"), "{").unwrap();
    refused(path, "dialog eval first", &["first/config.json` is damaged"]);
}

#[test]
fn steps_are_logged_and_each_run_has_a_folder_of_its_own() {
    let path = &folder();
    let line = format!("dialog train --data data {SMALL} --vocab-size 12 --head moc {CPU}");
    for _ in 0..2 {
        let output = run(path, &format!("{line} --log-every 2"));
        let (errors, out) = (stderr(&output, 0), String::from_utf8(output.stdout).unwrap());
        assert!(out.starts_with("best epoch ") && out.contains(": perplexity valid "), "{out}");
        let steps: Vec<&str> = errors.lines().filter(|line| line.contains("/6 loss ")).collect();
        assert_eq!(steps.len(), 6, "{errors}");
        assert!(steps[1].starts_with("epoch 1/2 step 4/6 loss "), "{errors}");
        assert!(errors.starts_with("moc with "), "{errors}");
    }
    for name in ["dialog-small-moc-1", "dialog-small-moc-1-2"] {
        let lines = |file: &str| {
            let text = fs::read_to_string(path.join("runs").join(name).join(file)).unwrap();
            text.lines().count()
        };
        assert_eq!((lines("steps.jsonl"), lines("metrics.jsonl"), lines("vocab.txt")), (6, 3, 12));
    }
}

#[test]
#[cfg(unix)]
fn an_interrupted_run_goes_on_to_the_same_end() {
    let path = &folder();
    let line = format!(
        "dialog train --data data {CPU} --json {}",
        SMALL.replace("--updates 6", "--updates 35 --checkpoint-every 0.0002")
    );
    objects(path, &format!("{line} --out straight"));
    let child = super::started(path, &format!("{line} --out stopped"));
    crate::harness::wait_for(&path.join("stopped/checkpoint/state.json"));
    let second = stderr(&run(path, "dialog train --resume stopped"), 2);
    assert!(second.contains("another process is training"), "{second}");
    crate::harness::child_signal(&child, "INT");
    let errors = stderr(&child.wait_with_output().unwrap(), 130);
    assert!(errors.contains("\nstopping after this step, then saving; press again"), "{errors}");
    let last = errors.lines().last().unwrap();
    assert_eq!(last, "stopped and saved; to go on: highrank train --resume stopped");

    objects(path, "dialog train --resume stopped --json");
    let metrics = |run: &str| timeless(&path.join(run).join("metrics.jsonl"));
    assert_eq!(metrics("straight"), metrics("stopped"));
    same_files(
        &path.join("straight"),
        &path.join("stopped"),
        &["best/model.safetensors", "checkpoint/model.safetensors"],
    );
}

#[test]
fn exported_weights_come_back_as_the_same_model() {
    let path = &folder();
    train(path, "--out first --head moc");
    refused(path, "dialog export first --out first.pt", &["`first.pt` would not be a safetensors file"]);
    let exported = objects(path, "dialog export first --out first.safetensors --json").remove(0);
    refused(path, "dialog export first --out first.safetensors", &["`first.safetensors` exists already"]);
    let sizes = SMALL.split(" --batch").next().unwrap();
    let line = format!("dialog import --weights first.safetensors --data data {sizes} --json");
    refused(
        path,
        &line.replace("--d-context 8", "--d-context 9").replace("--json", "--out run"),
        &["first.safetensors"],
    );
    let imported = objects(path, &format!("{line} --out second")).remove(0);
    assert_eq!((&exported["parameters"], &imported["head"]), (&imported["parameters"], &"moc".into()));
    refused(path, &format!("{line} --epochs 0 --out run").replace(" --json", ""), &["epochs is 0"]);
    objects(path, "dialog export second --out again.safetensors --json");
    let tensors = |name: &str| super::weights::tensors(&path.join(name));
    assert!(tensors("again.safetensors") == tensors("first.safetensors"));
    let names: Vec<String> = tensors("first.safetensors").into_iter().map(|tensor| tensor.0).collect();
    assert!(names.contains(&"decoder.weight_hh_l0".to_string()), "{names:?}");
    let eval = |run: &str| objects(path, &format!("dialog eval {run} {CPU} --contexts 3 --json")).remove(0);
    let (first, second) = (eval("first"), eval("second"));
    assert_eq!((&first["test_ppl"], &first["single"]), (&second["test_ppl"], &second["single"]));
}
