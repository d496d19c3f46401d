//! Transformers: bad input, and a small run from its first step to its evaluation.

use std::fs;

use serde_json::Value;

use super::{config, folder, objects, refused, run, same_files};
use crate::harness::{number, stderr};

/// A model and procedure of a second or so.
const SMALL: &str = "--d-model 8 --attention-heads 2 --layers 1 --context 8 --batch 4";

#[test]
fn settings_that_make_no_model_are_refused() {
    let path = &folder();
    let cases = [
        ("--head softmix", &["unknown head `softmix`", "soft-cap, monotonic-net"][..]),
        ("--head softmax --activation tanh", &["--activation is given, but the softmax head has no mixture"]),
        ("--activation relu", &["unknown activation `relu`: expected tanh, linear or residual"]),
        ("--head softmax --components 3", &["--components is given, but the softmax head has no mixture"]),
        ("--head doc", &["--head is doc, which reads several layers"]),
        ("--head mos --knots 3", &["--knots is given, but the mos head has no PLIF"]),
        ("--components 0", &["components is 0"]),
        ("--head plif --plif-bound -1", &["-1", "positive"]),
        ("--head soft-cap --cap 0", &["cap is 0"]),
        ("--head monotonic-net --units 0", &["units is 0"]),
        ("--start 1x", &["`1x` is neither a spread, such as 0.02, nor random"]),
        ("--start 0.1 --activation tanh", &["--start is given, but tanh contexts start at random"]),
        ("--start=-1", &["spread is -1"]),
        ("--head plif --facets 3x3", &["--facets is given, but the plif head has no mixture"]),
        ("--facets 3", &["`3` is neither a number of layers and of positions, such as 3x3, nor none"]),
        ("--set model.layers=0", &["layers is 0"]),
        ("--set train.valid_token=null", &["train.valid_token: unknown field `valid_token`"]),
        ("--data data --context 2 --facets 2x3", &["facets.window is 3, but must be from 1 to the context"]),
        ("--from data --head plif", &["`data` is not a run folder"]),
        ("--from data", &["--head"]),
        ("--dropout-latent 1", &["latent dropout is 1"]),
        ("--set model.head.vocab=3", &["the head is chosen by --head"]),
        ("--set model.d_model=12", &["the width is chosen by --d-model"]),
        ("--set model.facets=null", &["facets are chosen by --facets"]),
        (
            "--parameters 5000 --set model.d_ff=8",
            &["--parameters chooses `d_ff`, which --set model.d_ff gives"],
        ),
        ("--steps 0", &["steps is 0"]),
        ("--epochs 0", &["epochs is 0, but must be at least 1"]),
        ("--steps 10 --epochs 1", &["--steps", "--epochs"]),
        ("--clip nan", &["'nan' for '--clip <NORM>'"]),
        ("--head plif --plif-bound nan", &["'nan' for '--plif-bound <T>': a finite number is needed"]),
        ("--head soft-cap --cap inf", &["'inf' for '--cap <C>': a finite number is needed"]),
        ("--dropout-latent nan", &["a finite number is needed"]),
        ("--start inf", &["`inf` is neither a spread, such as 0.02, nor random"]),
        (
            "--parameters 18446744073709551615",
            &["parameters is 18446744073709551615, but must be at most 2^40"],
        ),
        ("--vocab-size 10000000000000", &["but must be at most 2^40"]),
        ("--batch 1000000000000000000", &["batch is 1000000000000000000, but must be so small"]),
        ("--data file", &["`file` is a file; name a folder"]),
        ("--run data --lr 3", &["--lr"]),
        ("--run data --head plif", &["--head"]),
        ("--eval-tokens 1", &["eval_tokens is 1"]),
        // All tokens, as without it.
        ("--set train.eval_tokens=null --steps 0", &["steps is 0"]),
        ("--head plif --plif-bound 1e308", &["PLIF's bound T is 1e308"]),
        ("--steps -1", &["'-1' for '--steps <N>'"]),
        ("--checkpoint-every -5s", &["a time needs its unit and must be above 0"]),
        ("--characters", &["--characters is given, but the generated language"]),
        ("--vocab-size 2", &["vocab_size is 2, but must be at least 3"]),
        ("--vocab-size 34", &["vocab_size is 34, but must be at least 35 for the generated language"]),
        ("--device abacus", &["unknown device `abacus`"]),
        ("--data nowhere", &["data folder `nowhere` does not exist"]),
        ("--data data --context 5000", &["context is 5000, but must be less than the number of tokens"]),
        (
            "--data data --head mos --parameters 900",
            &["parameters is 900, but with a feed-forward part of width 1 the model has"],
        ),
        ("--data data --d-ff 999999999", &["GB for weights and gradients, but this machine has"]),
        ("--run data", &["`data` is not a run folder"]),
    ];
    fs::write(path.join("file"), "").unwrap();
    for (line, expected) in cases {
        refused(path, &format!("transformer --out run {line}").replace("--out run --run", "--run"), expected);
    }
    // Without --out a folder gets its name from the settings.
    refused(path, "transformer --d-model 0", &["d_model is 0"]);
}

#[test]
fn a_test_text_that_is_not_scored_need_not_be_there() {
    let path = &folder();
    fs::remove_file(path.join("data/test.txt")).unwrap();
    let train = format!("train data --model gpt {SMALL} --components 2 --steps 4 --rounds 2 --out first");
    let missing = &["/data/test.txt`; a data folder holds"];
    refused(path, &train, missing);
    let lines = objects(path, &format!("{train} --no-test --json"));
    let last = lines.last().unwrap();
    assert!(number(last, "valid_ppl") > 1.0 && last.get("test_ppl").is_none(), "{last}");
    assert_eq!(config(path, "first")["train"]["test"], false);
    assert!(super::lines(&path.join("first/metrics.jsonl")).last().unwrap().get("test_ppl").is_none());
    refused(path, "eval first", missing);
    let scored = |more: &str| stderr(&run(path, &format!("eval first --split valid {more}")), 0);
    assert!(!scored("").contains("note: "));
    fs::create_dir(path.join("other")).unwrap();
    fs::copy(path.join("data/train.txt"), path.join("other/valid.txt")).unwrap();
    assert!(scored("--data other").contains("note: the validation text is not the run's: "));
}

#[test]
fn a_run_from_its_first_step_to_its_evaluation() {
    let path = &folder();
    let train = format!(
        "transformer --data data {SMALL} --components 2 --head mos --steps 40 --rounds 2 --lr 0.01 --json"
    );
    let lines = objects(path, &format!("{train} --out first"));
    assert_eq!(lines.len(), 3);
    for (index, line) in lines[..2].iter().enumerate() {
        assert_eq!(line["epoch"], index + 1);
        for key in ["seconds", "tokens_per_s", "train_ppl", "valid_ppl", "train_accuracy", "valid_accuracy"] {
            assert!(number(line, key) > 0.0, "{key} in {line}");
        }
    }
    let last = &lines[2];
    assert_eq!((&last["head"], &last["steps"], &last["run"]), (&"mos".into(), &40.into(), &"first".into()));
    for key in ["seconds", "tokens_per_s", "parameters", "train_ppl", "valid_accuracy", "test_accuracy"] {
        assert!(number(last, key) > 0.0, "{key} in {last}");
    }
    assert!(last.get("floor_ppl").is_none());
    // A uniform guess has the number of words as its perplexity.
    let words = fs::read_to_string(path.join("first/vocab.txt")).unwrap().lines().count();
    assert_eq!((&last["vocab"], &last["rows"]), (&words.into(), &words.into()));
    for key in ["valid_ppl", "test_ppl"] {
        assert!(number(last, key) < 0.9 * words as f64, "{key} in {last}");
    }
    // All of the validation text is met in a round, since it is short; the best model is the one that is scored.
    let best = lines[..2].iter().map(|line| number(line, "valid_ppl")).fold(f64::INFINITY, f64::min);
    assert!((number(last, "valid_ppl") / best - 1.0).abs() < 1e-4, "{lines:?}");

    // The run has a line a round and one at its end.
    let metrics = super::lines(&path.join("first/metrics.jsonl"));
    assert_eq!(metrics.len(), 3);
    assert_eq!(
        (&metrics[1]["valid_ppl"], &metrics[2]["test_ppl"]),
        (&lines[1]["valid_ppl"], &last["test_ppl"])
    );
    let listed = objects(path, "runs first --json").remove(0);
    assert_eq!(listed["components"], 2);
    assert_eq!((&listed["kind"], &listed["state"]), (&"gpt".into(), &"finished".into()));
    assert_eq!((&listed["head"], &listed["parameters"]), (&"mos".into(), &last["parameters"]));
    // The saved model reads back to the same values.
    let scores = objects(path, "transformer --run first --json").remove(0);
    for key in ["valid_ppl", "test_ppl", "valid_accuracy", "test_accuracy"] {
        assert!((number(&scores, key) / number(last, key) - 1.0).abs() < 1e-6, "{key}: {scores} and {last}");
    }

    // What was scored, and how.
    assert_eq!((&scores["run"], &scores["head"]), (&"first".into(), &"mos".into()));
    assert_eq!(scores["parameters"], last["parameters"]);
    assert!(number(&scores, "seconds") > 0.0 && number(&scores, "tokens") > 1.0, "{scores}");

    // Each text by itself, or its beginning.
    let of = |more: &str| objects(path, &format!("eval first --json {more}")).remove(0);
    assert_eq!(of("--split test")["test_ppl"], scores["test_ppl"]);
    assert!(of("--split valid").get("test_ppl").is_none() && number(&of("--split train"), "train_ppl") > 1.0);
    assert_ne!(of("--limit 50")["test_ppl"], scores["test_ppl"]);
    refused(
        path,
        "eval first --split dev",
        &["invalid value 'dev' for '--split <SPLIT>' [possible values: train, valid, test]"],
    );

    // The same seed makes the same model, another seed another.
    objects(path, &format!("{train} --out second"));
    objects(path, &format!("{train} --out third --seed 29"));
    let score = |run: &str| objects(path, &format!("transformer --run {run} --json")).remove(0);
    let timeless = |mut scores: Value| {
        let fields = scores.as_object_mut().unwrap();
        assert!(fields.remove("run").is_some() && fields.remove("seconds").is_some());
        scores
    };
    assert_eq!(timeless(score("second")), timeless(scores.clone()));
    assert_ne!(score("third")["test_ppl"], scores["test_ppl"]);
    let again = run(path, &format!("{train} --out first"));
    assert_eq!(again.status.code(), Some(2));

    fs::write(path.join("first/best/model.safetensors"), "no model").unwrap();
    refused(path, "transformer --run first", &["first/best/model.safetensors` is damaged"]);
    refused(path, "transformer --resume first", &["first/best/model.safetensors` is damaged"]);
    refused(path, "transformer --resume second --steps 9", &["--steps", "--resume"]);
    refused(path, "transformer --resume data", &["`data` is not a run folder"]);
}

#[test]
fn every_head_is_trained_and_parameters_can_be_equal() {
    let path = &folder();
    let train = |more: &str| {
        let line = format!("transformer --data data {SMALL} --steps 3 --eval-tokens 50 --json {more}");
        objects(path, &line).pop().unwrap()
    };
    let mixture = train("--head mos --d-embedding 6");
    for head in [
        "softmax",
        "moc",
        "mos --facets none",
        "mos --activation residual --start random",
        "mos --untied",
        "sigsoftmax",
        "gss",
        "plif --knots 20",
        "mos-plif --knots 20",
        "soft-cap",
        "monotonic-net",
    ] {
        let parameters = number(&mixture, "parameters") + 4000.0;
        let last = train(&format!("--d-embedding 6 --parameters {parameters} --head {head}"));
        assert!(head.starts_with(last["head"].as_str().unwrap()));
        assert!(number(&last, "test_ppl").is_finite());
        // A unit of width adds 17.
        assert!((number(&last, "parameters") - parameters).abs() <= 8.0, "{last}");
    }
    assert!(number(&train("--d-embedding 6 --head mixtape"), "test_ppl").is_finite());
    // Each in a folder of its own.
    assert!(path.join("runs/transformer-mos-28/config.json").is_file());
    assert_eq!(fs::read_dir(path.join("runs")).unwrap().count(), 13);
}

#[test]
fn transformers_are_looked_into() {
    let path = &folder();
    for head in ["softmax", "plif --knots 20", "mos --facets 2x3"] {
        let name = head.split(' ').next().unwrap();
        objects(
            path,
            &format!("train data --model gpt {SMALL} --head {head} --steps 20 --json --out {name}"),
        );
    }
    objects(
        path,
        "train data --head mos --d-embedding 6 --lstm 6 --components 2 --batch 8 --bptt 12 --epochs 1 --json --out lstm",
    );

    let rank = objects(path, "analyse rank softmax mos lstm --limit 100 --json");
    // Width 8, the normaliser and the bias bound the softmax.
    assert_eq!((&rank[0]["rank"], &rank[0]["bound"]), (&10.into(), &10.into()));
    assert!(number(&rank[1], "rank") > 16.0 && rank[1]["head"] == "mos", "{}", rank[1]["rank"]);
    // As the model is scored, in stretches of its context.
    let (kl, scores) = (objects(path, "analyse kl mos --json"), objects(path, "eval mos --json"));
    assert!((number(&kl[0], "ppl") / number(&scores[0], "test_ppl") - 1.0).abs() < 1e-5, "{kl:?} {scores:?}");
    let lost = objects(path, "analyse gradient softmax mos --json");
    assert!(lost.iter().all(|lost| number(lost, "share") > 0.0), "{lost:?}");
    assert_eq!(objects(path, "analyse plif plif --json")[0]["pieces"], 20);
    // Stretches of 8 tokens beside those of 128.
    let compared = objects(path, "analyse compare mos lstm --limit 150 --most 3 --json");
    let of = |run: &str| objects(path, &format!("analyse kl {run} --limit 150 --json")).remove(0);
    for (side, run) in [("ppl_a", "mos"), ("ppl_b", "lstm")] {
        assert!((number(&compared[3], side) / number(&of(run), "ppl") - 1.0).abs() < 1e-5, "{compared:?}");
    }

    objects(path, &format!("train --model gpt {SMALL} --head softmax --steps 2 --json --out generated"));
    let message = "run `generated`: it has learned a generated text, which is in no folder: give --data DIR";
    refused(path, "analyse rank generated", &[message]);
}

#[test]
fn a_softmax_goes_on_as_another_head() {
    let path = &folder();
    let train = |more: &str| {
        objects(path, &format!("train {more} --steps 20 --warmup 0 --dropout 0 --json")).pop().unwrap()
    };
    let before = train(&format!("data --model gpt {SMALL} --head softmax --lr 0.02 --out softmax"));
    // It does not move: all heads are the function that they start at.
    for head in ["mos --start 0", "moc --start 0 --facets none", "plif --knots 50", "softmax"] {
        let name = head.split(' ').next().unwrap();
        let after = train(&format!("--from softmax --head {head} --lr 1e-12 --out {name}-next"));
        assert_eq!(after["head"], name);
        let moved = number(&after, "test_ppl") / number(&before, "test_ppl") - 1.0;
        assert!(moved.abs() < 1e-4, "{head}: {before} and {after}");
        let of_run = config(path, &format!("{name}-next"));
        assert!(of_run["finetunes"].as_str().unwrap().ends_with("softmax"), "{of_run}");
    }
    // It keeps the settings that are not given.
    train(&format!("data --model gpt {SMALL} --head softmax --precision bf16 --lr 0.02 --out short"));
    train("--from short --head softmax --lr 1e-12 --out short-next");
    assert_eq!(config(path, "short-next")["model"]["head"]["precision"], "bf16");
    train("--from moc-next --head moc --lr 1e-12 --out moc-same");
    assert_eq!(config(path, "moc-same")["model"], config(path, "moc-next")["model"]);
    // A mixture goes on as itself, with the facets that it has.
    train("--from moc-next --head moc --start 0 --lr 1e-12 --out moc-again");
    let facets = |run: &str| config(path, run)["model"]["facets"].clone();
    assert!(facets("moc-again").is_null() && facets("mos-next")["window"] == 3);
    let last = train("--from softmax --head mos --lr 0.02 --out next");
    assert!(number(&last, "train_ppl") < number(&before, "train_ppl"), "{before} then {last}");
    for (line, expected) in [
        ("--from softmax --d-model 4 --head mos", "--d-model"),
        ("--from softmax --head mos --set model.layers=2", "train --from keeps the sizes"),
        (
            "--from softmax --head mos --set text.vocab_size=0",
            "train --from keeps how the run's text is read",
        ),
        ("--from mos-next --head plif", "has the head mos: a softmax goes on as another head"),
        ("--from mos-next --head mos --facets none", "has the head mos: a softmax goes on as another head"),
        ("--from softmax --head mos --model seq2seq", "--model is seq2seq, but `softmax` is a run of gpt"),
    ] {
        refused(path, &format!("train {line} --out refused"), &[expected]);
    }
    assert!(!path.join("refused").exists());
}

#[test]
fn a_softmax_of_another_width_than_its_transformer_goes_on_as_every_head() {
    let path = &folder();
    let train = |more: &str| {
        objects(path, &format!("train {more} --steps 20 --warmup 0 --dropout 0 --json")).pop().unwrap()
    };
    let origin = format!("data --model gpt {SMALL} --d-embedding 4 --head softmax --lr 0.02 --out softmax");
    let before = train(&origin);
    for (index, (head, is_same)) in [
        ("mos --start 0", true),
        ("mos --start 0 --facets none", true),
        ("moc --start 0 --facets none", true),
        ("mos --activation residual", false),
        ("plif --knots 50", true),
        ("mos --activation tanh", false),
        ("mixtape", false),
    ]
    .into_iter()
    .enumerate()
    {
        let after = train(&format!("--from softmax --head {head} --lr 1e-12 --out next-{index}"));
        let moved = number(&after, "test_ppl") / number(&before, "test_ppl") - 1.0;
        assert!(!is_same || moved.abs() < 1e-4, "{head}: {before} and {after}");
        // The saved model is one of its configuration.
        let scores = objects(path, &format!("eval next-{index} --json")).remove(0);
        let moved = number(&scores, "test_ppl") / number(&after, "test_ppl") - 1.0;
        assert!(moved.abs() < 1e-6, "{head}: {after} and {scores}");
    }
    let last = train("--from softmax --head mos --lr 0.02 --out next");
    assert!(number(&last, "valid_ppl") < number(&before, "valid_ppl"), "{before} then {last}");
}

#[test]
fn a_head_that_goes_on_as_itself_takes_another_precision_and_latent_dropout() {
    let path = &folder();
    let train =
        |more: &str| objects(path, &format!("train {more} --warmup 0 --dropout 0 --json")).pop().unwrap();
    let before =
        train(&format!("data --model gpt {SMALL} --components 2 --head mos --steps 40 --lr 0.05 --out mos"));
    let cases = [("plain", ""), ("short", "--precision bf16"), ("dropped", "--dropout-latent 0.5")];
    for (name, given) in cases {
        let after = train(&format!("--from mos --head mos {given} --steps 4 --lr 1e-12 --out {name}"));
        // From what it has learned, but for the rounding.
        let moved = number(&after, "test_ppl") / number(&before, "test_ppl") - 1.0;
        assert!(moved.abs() < 1e-2, "{name}: {before} and {after}");
        for line in [format!("eval {name} --json"), format!("train --resume {name} --json")] {
            let again = objects(path, &line).pop().unwrap();
            let moved = number(&again, "test_ppl") / number(&after, "test_ppl") - 1.0;
            assert!(moved.abs() < 1e-6, "{line}: {after} and {again}");
        }
    }
    let head = |run: &str| config(path, run)["model"]["head"].clone();
    assert_eq!(head("short")["precision"], "bf16");
    assert_eq!(head("dropped")["context"]["MixtureOfSoftmaxes"]["dropout"]["probability"], 0.5);
    // The same sequences, with features dropped.
    let [plain, dropped] = ["plain", "dropped"].map(|name| {
        let metrics = super::lines(&path.join(format!("{name}/metrics.jsonl")));
        number(&metrics[0], "train_ppl")
    });
    assert!((dropped / plain - 1.0).abs() > 1e-3, "{plain} and {dropped}");
    // A run that goes on from it keeps both.
    train("--from short --head mos --dropout-latent 0.1 --steps 4 --lr 1e-12 --out both");
    train("--from both --head mos --steps 4 --lr 1e-12 --out again");
    assert_eq!(head("again"), head("both"));
    assert_eq!(head("both")["precision"], "bf16");
    refused(
        path,
        "train --from mos --head mos --components 3 --out refused",
        &["has the head mos", "with its own settings but --precision and --dropout-latent"],
    );
}

#[test]
fn a_head_that_goes_on_as_itself_keeps_what_it_has_learned() {
    let path = &folder();
    let train = |more: &str| objects(path, &format!("train {more} --warmup 0 --json")).pop().unwrap();
    for head in ["mos", "mos --activation tanh", "plif --knots 50"] {
        let run = head.replace(' ', "");
        let before = train(&format!(
            "data --model gpt {SMALL} --head {head} --steps 40 --lr 0.05 --dropout 0 --out {run}"
        ));
        let name = before["head"].as_str().unwrap();
        let next = |more: &str| train(&format!("--from {run} --head {name} --steps 4 --lr 1e-9 {more}"));
        let after = next(&format!("--dropout 0 --out {run}-next"));
        for key in ["valid_ppl", "test_ppl"] {
            let moved = number(&after, key) / number(&before, key) - 1.0;
            assert!(moved.abs() < 1e-5, "{head}, {key}: {before} and {after}");
        }
        // The dropout is the one that is asked for, not the origin's.
        next(&format!("--dropout 0.5 --out {run}-dropped"));
        let [kept, dropped] = ["next", "dropped"].map(|name| {
            let metrics = super::lines(&path.join(format!("{run}-{name}/metrics.jsonl")));
            number(&metrics[0], "train_ppl")
        });
        assert!((dropped / kept - 1.0).abs() > 1e-3, "{head}: {kept} and {dropped}");
    }
}

#[test]
fn a_padded_vocabulary_changes_no_perplexity() {
    let path = &folder();
    let train = |more: &str| {
        let line = format!(
            "transformer --data data {SMALL} --components 2 --steps 1 --lr 1e-9 --dropout 0 --activation tanh --json --out {more}"
        );
        objects(path, &line).pop().unwrap()
    };
    let plain = train("plain");
    let padded = train("padded --vocab-size 500");
    // Rows that stand for no word are in no analysis.
    train(&format!("unpadded --vocab-size {}", number(&padded, "vocab")));
    let rank = objects(path, "analyse rank padded --limit 60 --json").remove(0);
    assert_eq!(rank["vocab"], padded["vocab"]);
    for line in ["kl padded", "gradient padded", "compare padded unpadded"] {
        objects(path, &format!("analyse {line} --limit 60 --json"));
    }
    // With a largest size there is an <unk> besides the words.
    assert_eq!((number(&padded, "rows"), number(&padded, "vocab")), (500.0, number(&plain, "vocab") + 1.0));
    // A model that knows nothing guesses among the words alone.
    for key in ["valid_ppl", "test_ppl"] {
        assert!((number(&padded, key) / number(&padded, "vocab") - 1.0).abs() < 0.1, "{padded}");
    }
    let fewer = train("fewer --vocab-size 20");
    assert_eq!((number(&fewer, "rows"), number(&fewer, "vocab")), (20.0, 20.0));
}

#[test]
fn epochs_are_rounds_over_the_whole_text() {
    let path = &folder();
    let lines = objects(
        path,
        "transformer --data data --d-model 8 --context 32 --epochs 2 --warmup 4 --json --out run",
    );
    assert_eq!(lines.len(), 3);
    let config = config(path, "run");
    // 3,000 tokens in steps of 512.
    assert_eq!((&config["train"]["steps"], &config["train"]["rounds"]), (&12.into(), &2.into()));
}

#[test]
fn a_loss_that_is_not_finite_stops_the_training() {
    let path = &folder();
    let line = format!(
        "transformer --data data {SMALL} --components 2 --steps 40 --lr 1 --warmup 0 --clip 1e38 --out first --json"
    );
    // A weight decay of more than everything makes all weights grow without bound.
    let errors = stderr(&run(path, &format!("{line} --weight-decay 1e30")), 2);
    let last = errors.lines().last().unwrap();
    assert!(last.starts_with("error: the loss is not finite in epoch 1, at or before step"), "{errors}");
    assert!(!errors.contains("panicked"), "{errors}");
    assert_eq!(objects(path, "runs first --json")[0]["state"], "diverged");
}

#[test]
#[cfg(unix)]
fn a_run_that_was_interrupted_or_killed_goes_on_to_the_same_bits() {
    let path = &folder();
    objects(path, &format!("train data --model gpt {SMALL} --head softmax --steps 20 --json --out origin"));
    let afresh = format!("transformer --data data {SMALL} --components 2");
    for (name, train) in [("", afresh.as_str()), ("next-", "train --from origin --head mos --batch 4")] {
        let train = format!("{train} --steps 400 --rounds 4 --lr 0.01 --json");
        let straight = format!("{name}straight");
        objects(path, &format!("{train} --out {straight}"));
        for signal in ["INT", "KILL"] {
            let run = format!("{name}{signal}");
            let line = format!("{train} --checkpoint-every 0.0002 --out {run}");
            let child = super::started(path, &line);
            crate::harness::wait_for(&path.join(&run).join("checkpoint/state.json"));
            crate::harness::child_signal(&child, signal);
            let output = child.wait_with_output().unwrap();
            if signal == "INT" {
                let errors = stderr(&output, 130);
                let expected = format!("stopped and saved; to go on: highrank train --resume {run}");
                assert_eq!(errors.lines().last(), Some(expected.as_str()), "{errors}");
                let scores = objects(path, &format!("transformer --run {run} --json")).remove(0);
                assert!(number(&scores, "test_ppl").is_finite(), "{scores}");
                let has_best = path.join(&run).join("best/model.safetensors").is_file();
                assert_eq!(scores["weights"], if has_best { "best" } else { "last" });
                let best = super::run(path, &format!("eval {run} --weights best"));
                assert_eq!(best.status.success(), has_best);
            }
            assert_eq!(objects(path, &format!("runs {run} --json"))[0]["state"], "stopped");
            let lines = objects(path, &format!("transformer --resume {run} --json"));
            assert!(number(lines.last().unwrap(), "test_ppl") > 1.0);
            let files = ["checkpoint/model.safetensors", "best/model.safetensors"];
            same_files(&path.join(&straight), &path.join(&run), &files);
        }
    }
}

#[test]
fn an_origin_that_became_a_model_of_other_sizes_is_refused() {
    let path = &folder();
    let origin = format!("train data --model gpt {SMALL} --head softmax --steps 20 --json --out origin");
    objects(path, &origin);
    objects(path, "train --from origin --head mos --batch 4 --steps 20 --json --out run");
    // Killed before it had a model.
    let run = path.join("run");
    for what in ["best", "checkpoint"] {
        fs::remove_dir_all(run.join(what)).unwrap();
    }
    fs::remove_file(run.join("metrics.jsonl")).unwrap();
    runs::note_hashes(&run).unwrap();
    for (size, other) in [("--layers 1", "--layers 2"), ("--attention-heads 2", "--attention-heads 4")] {
        fs::remove_dir_all(path.join("origin")).unwrap();
        objects(path, &origin.replace(size, other));
        let errors = stderr(&super::run(path, "train --resume run"), 2);
        assert!(
            errors.contains("origin`: its model has other sizes than the run that goes on from it"),
            "{other}: {errors}"
        );
    }
}
