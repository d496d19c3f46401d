//! What can be done with runs: finetuning, dynamic evaluation, accumulated gradients.

use std::fs;

use serde_json::json;

use super::{SMALL, config, folder, objects, refused, run};
use crate::harness::number;

#[test]
fn a_run_is_finetuned_in_a_run_of_its_own() {
    let path = &folder();
    let trained = objects(path, &format!("train {SMALL} --epochs 2 --out first --json"));
    let before = fs::read(path.join("first/best/model.safetensors")).unwrap();
    let tuned = objects(path, "finetune --run first --out second --lr 3 --epochs 3 --json");
    let (start, end) = (trained.last().unwrap(), tuned.last().unwrap());
    assert!(number(end, "valid_ppl") < number(start, "valid_ppl"), "{end} from {start}");
    assert!(tuned[..3].iter().all(|epoch| epoch["averaging"] == true));
    assert_eq!(fs::read(path.join("first/best/model.safetensors")).unwrap(), before);
    let config = config(path, "second");
    assert_eq!(config["train"]["average_from_start"], true);
    assert!(config["finetunes"].as_str().unwrap().ends_with("first"));
    assert!(path.join("second/curves.svg").is_file());
    let eval = objects(path, "eval --run second --json");
    assert_eq!(eval[0]["test_ppl"], end["test_ppl"]);

    // It ends by itself, and goes on like any other run.
    let output = run(path, "finetune --run first --out third --lr 300 --epochs 60 --json");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("finetuning ends after epoch"), "{errors}");
    let lines = fs::read_to_string(path.join("third/metrics.jsonl")).unwrap();
    assert!(lines.lines().count() < 60);
    let again = objects(path, "train --resume third --json");
    assert_eq!(again.len(), 1);

    refused(path, "finetune --run data", &["`data` is not a run folder"]);
    refused(path, "finetune --run first --out second", &["`second` already holds a run"]);
    refused(path, "finetune --run first --out run --lr 0", &["lr is 0"]);
    refused(path, "finetune", &["--run <RUN>"]);
}

#[test]
fn dynamic_evaluation_learns_from_what_was_scored() {
    let path = &folder();
    let trained = objects(path, &format!("train {SMALL} --epochs 2 --out first --json"));
    let eval = |more: &str| {
        let objects = objects(path, &format!("dynamic-eval --run first --batch 10 --json {more}"));
        assert_eq!(objects.len(), 1);
        objects[0].clone()
    };
    let program = eval("--statistics statistics");
    // All that they depend on is said.
    assert_eq!((&program["run"], &program["bptt"]), (&json!("first"), &json!(5)));
    assert_eq!((number(&program, "batch"), number(&program, "lr")), (10.0, 0.002));
    // One column instead of ten leaves fewer tokens out: the same text but for that.
    let (fixed, of_run) =
        (number(&program, "static_valid_ppl"), number(trained.last().unwrap(), "valid_ppl"));
    assert!((fixed / of_run - 1.0).abs() < 0.05, "{fixed} {of_run}");
    assert_eq!(number(&program, "static_test_ppl"), number(trained.last().unwrap(), "test_ppl"));
    for key in ["valid_ppl", "test_ppl"] {
        let (dynamic, fixed) = (number(&program, key), number(&program, &format!("static_{key}")));
        assert!(dynamic < fixed, "{key}: {dynamic} {fixed}");
    }
    let file = fs::read(path.join("statistics")).unwrap();
    let again = eval("--statistics statistics");
    assert_eq!((&again["valid_ppl"], &again["test_ppl"]), (&program["valid_ppl"], &program["test_ppl"]));
    assert_eq!(fs::read(path.join("statistics")).unwrap(), file);
    // Other held-out text in the same words.
    let other = path.join("other");
    fs::create_dir(&other).unwrap();
    fs::copy(path.join("data/test.txt"), other.join("valid.txt")).unwrap();
    fs::copy(path.join("data/test.txt"), other.join("test.txt")).unwrap();
    let swapped = eval("--statistics statistics --data other");
    assert_eq!((&swapped["valid_ppl"], &swapped["test_ppl"]), (&program["test_ppl"], &program["test_ppl"]));
    let paper = eval("--form paper --statistics statistics");
    assert_ne!(paper["valid_ppl"], program["valid_ppl"]);
    assert_ne!(eval("--lambda 0.5")["valid_ppl"], program["valid_ppl"]);
    // Recurrent weights dropped as in the published program: another perplexity, the same with the same seed.
    let dropped = eval("--weight-dropout 0.5");
    assert_eq!(dropped["weight_dropout"], 0.5);
    assert_ne!(dropped["valid_ppl"], program["valid_ppl"]);
    assert_eq!(dropped["static_valid_ppl"], program["static_valid_ppl"]);
    assert_eq!(dropped["valid_ppl"], eval("--weight-dropout 0.5")["valid_ppl"]);

    let refuse =
        |more: &str, expected: &str| refused(path, &format!("dynamic-eval --run first {more}"), &[expected]);
    refuse(
        "--statistics statistics --batch 20",
        "`statistics` holds statistics of other weights, of another training text, or of another batch or bptt",
    );
    refuse("--form sum", "unknown form `sum`; known: program, paper");
    refuse("--batch 10 --lr 1e30", "the perplexity of the validation text is not finite");
    refuse("--lr 0", "lr is 0");
    refuse("--eps -1", "eps is -1");
    refuse("--lambda nan", "lambda is NaN");
    refuse("--weight-dropout 1", "weight_dropout is 1");
    refuse("--weight-dropout 0.5 --statistics other", "--statistics keeps statistics without dropout only");
    refuse("--bptt 0", "bptt is 0");
    // After the data folder was moved, its training text is where it is.
    fs::rename(path.join("data"), path.join("moved")).unwrap();
    refuse("--lr 1", "data` does not exist; the run was made from it: name its new place with --data");
    for line in ["eval first", "train --resume first", "train --from first --out tuned", "analyse rank first"]
    {
        refused(path, line, &["data` does not exist", "name its new place with --data"]);
    }
    assert_eq!(eval("--data moved")["valid_ppl"], program["valid_ppl"]);
    fs::copy(path.join("moved/test.txt"), other.join("train.txt")).unwrap();
    refuse("--data other", "the training text is not the one that the run was started with");
    fs::rename(path.join("moved"), path.join("data")).unwrap();
    refuse("--batch 0", "batch is 0");
    fs::write(path.join("statistics"), &file[..file.len() / 2]).unwrap();
    refuse("--statistics statistics --batch 10", "statistics` is damaged");
}

#[test]
fn accumulated_gradients_train_as_the_whole_batch_does() {
    let path = &folder();
    let plain = "--dropout-output 0 --dropout-hidden 0 --dropout-input 0 --dropout-latent 0 --dropout-weight 0 \
                 --epochs 1 --json";
    let whole = objects(path, &format!("train {SMALL} {plain} --out whole"));
    let sliced = objects(path, &format!("train {SMALL} {plain} --small-batch 3 --out sliced"));
    for key in ["train_ppl", "valid_ppl"] {
        let (whole, sliced) = (number(&whole[0], key), number(&sliced[0], key));
        assert!((whole / sliced - 1.0).abs() < 1e-3, "{key}: {whole} {sliced}");
    }
    refused(path, &format!("train {SMALL} --small-batch 0 --out run"), &["small_batch is 0"]);
    refused(
        path,
        &format!("train {SMALL} --small-batch 9 --out run"),
        &["small_batch is 9", "from 1 to batch"],
    );
}
