//! Sweeps over heads and settings, and the list of runs.

use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::Value;

use super::{config, edit, folder, names, objects, read, refused, run};
use crate::harness::{number, parsed, stderr, wait_for};

/// A model and procedure of a second or so.
const SMALL: &str = "--data data --lstm 16,12 --knots 50 --batch 8 --bptt 12 --lr 5 --epochs 2";

/// When the last checkpoint of a run was written.
fn time(path: &Path, run: &str) -> std::time::SystemTime {
    fs::metadata(path.join(run).join("checkpoint/model.safetensors")).unwrap().modified().unwrap()
}

#[test]
fn a_sweep_at_equal_size_trains_what_is_left_of_it() {
    let path = &folder();
    let line = |heads: &str, seeds: &str| {
        format!(
            "sweep {SMALL} --components 3 --heads {heads} --seeds {seeds} --parameters 4000 --out out --json"
        )
    };
    let first = objects(path, &line("softmax,mos-plif", "28"));
    assert_eq!(names(&first), ["softmax-s28", "mos-plif-s28"]);
    for outcome in &first {
        let off = number(outcome, "parameters") / 4000.0 - 1.0;
        assert!(off.abs() < 0.05, "{outcome}");
        assert!(number(outcome, "test_ppl") > 1.0 && number(outcome, "tokens_per_s") > 0.0);
        assert!(number(outcome, "train_ppl") > 1.0 && outcome["settings"] == serde_json::json!({}));
    }
    let before = time(path, "out/softmax-s28");
    // A run that was cut off: its last lines and checkpoint are those of the first epoch.
    let metrics = path.join("out/mos-plif-s28/metrics.jsonl");
    let text = fs::read_to_string(&metrics).unwrap();
    let first_line = text.lines().next().unwrap().to_string() + "\n";
    edit(metrics.parent().unwrap(), "metrics.jsonl", first_line);
    let second = objects(path, &line("softmax,mos-plif", "28,29"));
    assert_eq!(names(&second), ["softmax-s28", "mos-plif-s28", "softmax-s29", "mos-plif-s29"]);
    assert_eq!(time(path, "out/softmax-s28"), before);
    assert_eq!((&second[0], &second[1]["test_ppl"]), (&first[0], &first[1]["test_ppl"]));
    assert_eq!(fs::read_to_string(&metrics).unwrap().lines().count(), 3);
    let table = read(path, "out/table.md");
    assert!(table.contains("| softmax | d ") && table.contains("| 28, 29 |"), "{table}");
    assert!(table.contains(" ± ") && table.contains("| train perplexity |"), "{table}");
    assert!(path.join("out/perplexities.svg").is_file());

    // A smaller sweep in its folder would take results away.
    let smaller = line("softmax", "28");
    let results = read(path, "out/results.jsonl");
    refused(path, &smaller, &["`out/results.jsonl` has the result of `mos-plif-s28`", "--force"]);
    assert_eq!(read(path, "out/results.jsonl"), results);
    assert_eq!(objects(path, &format!("{smaller} --force")).len(), 1);
    assert_eq!(read(path, "out/results.jsonl").lines().count(), 1);

    let changed = line("softmax", "28").replace("--lr 5", "--lr 6");
    refused(path, &changed, &["`out/softmax-s28`", "train.lr is 6.0 now, but 5.0 in the run"]);
    let fewer = line("softmax", "28").replace("--parameters 4000", "--parameters 10 --out run");
    refused(path, &fewer.replace("--out out", ""), &["softmax: parameters is 10, but the softmax head has"]);
    let more = format!("sweep --data data --parameters {} --out run", usize::MAX);
    refused(path, &more, &["parameters is 18446744073709551615, but must be at most 2^40"]);
}

#[test]
fn a_sweep_over_widths_and_components_is_drawn_and_extended() {
    let path = &folder();
    let line =
        |more: &str| format!("sweep {SMALL} --seeds 3 --out out {more}").replace("--epochs 2", "--epochs 1");
    let listed = objects(path, &line("--d-embedding 8,16 --components 2 --dry-run --json"));
    assert_eq!(names(&listed), ["softmax-d8-s3", "softmax-d16-s3", "mos-d8-s3", "mos-d16-s3"]);
    assert!(listed.iter().all(|run| run["state"] == Value::Null && number(run, "parameters") > 100.0));
    assert!(!path.join("out").exists());

    let first = objects(path, &line("--d-embedding 8,16 --components 2 --rank 200 --json"));
    assert_eq!(first.len(), 4);
    assert_eq!(first[3]["settings"], serde_json::json!({ "d-embedding": 16 }));
    for run in &first {
        assert_eq!((&run["rank_contexts"], &run["rank_precision"]), (&200.into(), &"f64".into()));
    }
    // The bound of a softmax: one for each column of the decoder, one for the normaliser, one for the bias.
    assert_eq!((&first[0]["rank"], &first[1]["rank"]), (&10.into(), &18.into()));
    let rank = objects(path, "rank --run out/mos-d8-s3 --split valid --tokens 200 --json");
    assert_eq!((&first[2]["rank"], number(&rank[0], "contexts")), (&rank[0]["rank"], 200.0));
    for name in ["by-d-embedding.svg", "results.jsonl"] {
        assert!(path.join("out").join(name).is_file(), "{name}");
    }
    assert!(read(path, "out/table.md").contains("rank, 200 contexts, f64"));
    let svg = read(path, "out/by-d-embedding.svg");
    for text in [
        "d, width of the embedding",
        "test perplexity",
        "Test perplexity and rank against d",
        "rank of 200 contexts",
        "softmax",
        "mos",
    ] {
        assert!(svg.contains(text), "{text}");
    }

    // More values: what is there is taken under the names that it has, and nothing of a softmax is trained again.
    let before = [time(path, "out/mos-d8-s3"), time(path, "out/softmax-d8-s3")];
    let more = line("--d-embedding 8,16 --components 2,3 --json");
    // As of a time when no setting had several values.
    fs::write(path.join("out/perplexities.svg"), "").unwrap();
    let listed = objects(path, &format!("{more} --dry-run"));
    let states: Vec<&str> = listed.iter().map(|run| run["state"].as_str().unwrap_or("nothing")).collect();
    assert_eq!(states, ["finished", "finished", "finished", "nothing", "finished", "nothing"]);
    let second = objects(path, &more);
    assert_eq!(
        names(&second),
        ["softmax-d8-s3", "softmax-d16-s3", "mos-d8-s3", "mos-d8-k3-s3", "mos-d16-s3", "mos-d16-k3-s3"]
    );
    assert_eq!(before, [time(path, "out/mos-d8-s3"), time(path, "out/softmax-d8-s3")]);
    assert_eq!(second[2]["settings"], serde_json::json!({ "d-embedding": 8, "components": 2 }));
    assert!(path.join("out/by-components.svg").is_file());
    assert!(!path.join("out/perplexities.svg").exists());

    // Another text in the same folder.
    let text = read(path, "data/train.txt");
    fs::write(path.join("data/train.txt"), text.replacen("word1", "word2", 1)).unwrap();
    refused(path, &more, &["`out/softmax-d8-s3`: it was trained on other text"]);
}

#[test]
fn settings_of_one_head_and_finetuning() {
    let path = &folder();
    let line = format!(
        "sweep {SMALL} --d-embedding 12 --for mos:components=2,lr=4 --seeds 3 --out out --no-test \
         --finetune 1 --finetune-lr 2 --json"
    );
    let outcomes = objects(path, &line);
    assert_eq!(names(&outcomes), ["softmax-s3", "mos-s3"]);
    assert_eq!((&outcomes[1]["components"], &outcomes[1]["test_ppl"]), (&2.into(), &Value::Null));
    let config = |run: &str| config(path, &format!("out/{run}"));
    assert_eq!(
        (&config("softmax-s3")["train"]["lr"], &config("mos-s3")["train"]["lr"]),
        (&5.0.into(), &4.0.into())
    );
    let tuned = config("mos-s3-finetuned");
    assert!(tuned["finetunes"].as_str().unwrap().ends_with("mos-s3"));
    assert_eq!((&tuned["train"]["lr"], &tuned["train"]["epochs"]), (&2.0.into(), &1.into()));
    for outcome in &outcomes {
        assert!(number(&outcome["finetuned"], "valid_ppl") <= number(outcome, "valid_ppl"), "{outcome}");
    }
    assert!(read(path, "out/table.md").contains("| valid perplexity | finetuned valid | seconds |"));
    // All is there; another rate for finetuning is refused.
    assert_eq!(objects(path, &line), outcomes);
    refused(
        path,
        &line.replace("--finetune-lr 2", "--finetune-lr 3"),
        &["`out/softmax-s3-finetuned`", "train.lr"],
    );
}

#[test]
fn a_run_that_fails_is_left_out() {
    let path = &folder();
    let line = format!(
        "sweep {SMALL} --d-embedding 12 --components 2 --heads mos --lr 1e38,5 --seeds 3 --out out --json"
    )
    .replace("--lr 5 ", "");
    let check = |output: Output| {
        let errors = stderr(&output, 1);
        let last = errors.lines().last().unwrap();
        assert_eq!(last, "1 of 2 runs failed; delete a run's folder in `out` to train it again", "{errors}");
        let lines = parsed(str::from_utf8(&output.stdout).unwrap());
        assert_eq!(names(&lines), ["mos-lr1e38-s3", "mos-lr5-s3"]);
        assert!(lines[0]["failed"].as_str().unwrap().starts_with("the loss is not finite in epoch 1"));
        assert!(lines[0].get("valid_ppl").is_none() && number(&lines[1], "valid_ppl") > 1.0);
    };
    check(run(path, &line));
    let before = fs::metadata(path.join("out/mos-lr1e38-s3/failed.txt")).unwrap().modified().unwrap();
    check(run(path, &line));
    assert_eq!(before, fs::metadata(path.join("out/mos-lr1e38-s3/failed.txt")).unwrap().modified().unwrap());
    assert!(read(path, "out/table.md").contains("Failed: `mos-lr1e38-s3`: the loss is not finite"));
    let listed = objects(path, "runs out --json --sort valid");
    assert_eq!((&listed[0]["run"], &listed[1]["state"]), (&"out/mos-lr5-s3".into(), &"diverged".into()));
}

#[test]
fn sweeps_that_cannot_be_made() {
    let path = &folder();
    let sweep = |more: &str| format!("sweep --data data --out run {more}");
    for (more, expected) in [
        ("--heads mos,mix", "unknown head `mix`"),
        ("--heads mos,mos", "`mos` is there twice"),
        ("--seeds 1,1", "`1` is there twice"),
        ("--seed 1", "'--seed'"),
        ("--lr 3,fast", "'fast' for '--lr <LR>'"),
        ("--lr 3,3", "--lr has the value `3` twice"),
        ("--lr 3,0", "softmax, lr 0: lr is 0"),
        (
            "--equal shares",
            "invalid value 'shares' for '--equal <WHAT>' [possible values: sizes, parameters]",
        ),
        ("--equal sizes --parameters 9", "--parameters needs --equal parameters"),
        ("--for mos", "HEAD:SETTING=VALUE"),
        ("--for mos:rate=3", "unknown setting `rate`; known: d-embedding, lstm"),
        ("--for moc:lr=3", "--for names the head moc, which is not among --heads"),
        ("--finetune-lr 3", "--finetune"),
        ("--finetune 0", "finetune is 0"),
        ("--rank 1", "rank is 1, but must be at least 2 contexts"),
        ("--checkpoint-every 0", "checkpoint-every is 0"),
        ("--batch 2,5000", "softmax-batch5000-s28: the training text"),
        ("--eval-batch 5000", "the validation text"),
        ("--equal parameters --d-embedding 8 --lstm 8", "the softmax head has no size left to solve for"),
    ] {
        refused(path, &sweep(more), &[expected]);
    }
    refused(path, "sweep --data nowhere", &["data folder `nowhere` does not exist"]);
    if cfg!(target_os = "linux") {
        refused(path, &sweep("--heads softmax --d-embedding 20,100000"), &["of memory"]);
        refused(path, "train data --model gpt --vocab-size 100000000000 --d-model 4", &["of memory"]);
    }
    // Bad input is found before a run is made, and in later runs too.
    fs::create_dir_all(path.join("out/mos-s28")).unwrap();
    fs::write(path.join("out/mos-s28/config.json"), "{").unwrap();
    refused(path, "sweep --data data --out out", &["out/mos-s28/config.json` is damaged"]);
    assert_eq!(fs::read_dir(path.join("out")).unwrap().count(), 1);
}

#[test]
fn runs_are_listed_with_damaged_ones() {
    let path = &folder();
    let train = |out: &str, more: &str| {
        let components = if more.contains("softmax") { "" } else { "--components 2" };
        let line = format!("train {SMALL} --d-embedding 12 {components} --out {out} --json {more}");
        objects(path, &line.replace("--epochs 2", "--epochs 1").replace("--knots 50", ""))
    };
    let first = train("all/first", "");
    train("all/deep/second", "--head softmax");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;

        // One folder that cannot be read hides no run in another.
        let shut = path.join("all/a-shut");
        fs::create_dir(&shut).unwrap();
        fs::set_permissions(&shut, fs::Permissions::from_mode(0o000)).unwrap();
        let output = run(path, "runs all --json");
        assert_eq!(parsed(str::from_utf8(&output.stdout).unwrap()).len(), 2);
        // Some users may read all.
        assert!(
            fs::read_dir(&shut).is_ok() || stderr(&output, 0).contains("left out: cannot read `all/a-shut`")
        );
        fs::set_permissions(&shut, fs::Permissions::from_mode(0o700)).unwrap();
        fs::remove_dir(&shut).unwrap();

        // Links are followed to a run alone.
        std::os::unix::fs::symlink(path.join("all/first"), path.join("linked")).unwrap();
        fs::create_dir(path.join("links")).unwrap();
        fs::rename(path.join("linked"), path.join("links/linked")).unwrap();
        std::os::unix::fs::symlink(path, path.join("links/around")).unwrap();
        let listed = objects(path, "runs links --json");
        assert_eq!(listed.len(), 1, "{listed:?}");
        fs::remove_dir_all(path.join("links")).unwrap();
    }
    fs::create_dir_all(path.join("all/broken")).unwrap();
    fs::write(path.join("all/broken/config.json"), "{").unwrap();
    fs::create_dir_all(path.join("all/empty")).unwrap();
    // A run that was cut off after its first epoch.
    let metrics = path.join("all/deep/second/metrics.jsonl");
    let text = fs::read_to_string(&metrics).unwrap();
    let first_line = text.lines().next().unwrap().to_string() + "\n";
    edit(metrics.parent().unwrap(), "metrics.jsonl", first_line);

    let listed = objects(path, "runs all --json");
    assert_eq!(names(&listed), ["all/deep/second", "all/first", "all/broken"]);
    assert_eq!((&listed[0]["state"], &listed[0]["head"]), (&"stopped".into(), &"softmax".into()));
    assert_eq!((&listed[0]["epochs_done"], &listed[0]["epochs"]), (&1.into(), &1.into()));
    let end = first.last().unwrap();
    assert_eq!((&listed[1]["state"], &listed[1]["test_ppl"]), (&"finished".into(), &end["test_ppl"]));
    assert_eq!((&listed[1]["valid_ppl"], &listed[1]["components"]), (&end["valid_ppl"], &2.into()));
    assert_eq!(listed[2]["state"], "damaged");
    let order = |by: &str| names(&objects(path, &format!("runs all --json --sort {by}"))).join(" ");
    assert_eq!(order("head"), "all/first all/deep/second all/broken");
    assert_eq!(order("test"), "all/first all/deep/second all/broken");
    assert_eq!(order("state"), "all/first all/deep/second all/broken");
    assert_eq!(order("parameters"), "all/deep/second all/first all/broken");

    // The same twice is once, and the table is for readers.
    let text = super::text(path, "runs all/first all");
    assert_eq!(text.lines().count(), 4, "{text}");
    assert!(text.lines().any(|line| line.starts_with("all/first ") && line.ends_with("finished")), "{text}");
    assert!(
        text.contains("all/broken") && text.contains("damaged: `all/broken/config.json` is damaged"),
        "{text}"
    );
    let output = run(path, "runs all/empty");
    assert!(output.status.success() && output.stdout.is_empty());
    refused(path, "runs", &["`runs` is no folder"]);
    refused(
        path,
        "runs all --sort size",
        &["invalid value 'size' for '--sort <BY>' [possible values: name, kind, head"],
    );
}

#[test]
#[cfg(unix)]
fn an_interrupted_sweep_goes_on() {
    let path = &folder();
    let line = format!(
        "sweep {SMALL} --d-embedding 12 --heads mos --components 2,3 --seeds 3 --out out --checkpoint-every 0.0002"
    );
    let child = super::started(path, &line);
    wait_for(&path.join("out/mos-k2-s3/checkpoint/state.json"));
    crate::harness::child_signal(&child, "INT");
    let errors = stderr(&child.wait_with_output().unwrap(), 130);
    let last = errors.lines().last().unwrap();
    assert_eq!(last, "stopped and saved; the same command goes on from here", "{errors}");
    let state = |line: &str| objects(path, &format!("{line} --dry-run --json"))[1]["state"].clone();
    assert_ne!(state(&line), "finished");
    let outcomes = objects(path, &format!("{line} --json"));
    assert_eq!(names(&outcomes), ["mos-k2-s3", "mos-k3-s3"]);
    assert_eq!(state(&line), "finished");
}

#[test]
#[cfg(unix)]
fn a_sweep_that_goes_further_keeps_the_results_of_later_runs() {
    let path = &folder();
    let line = |heads: &str| {
        format!(
            "sweep {SMALL} --d-embedding 12 --heads {heads} --seeds 3,4 --out out --checkpoint-every 0.0002"
        )
    };
    objects(path, &format!("{} --json", line("softmax,mos")));
    // A run that is to be trained again has no result.
    fs::remove_dir_all(path.join("out/mos-s4")).unwrap();
    let child = super::started(path, &line("softmax,mos,moc"));
    wait_for(&path.join("out/mos-s4/checkpoint/state.json"));
    crate::harness::child_signal(&child, "INT");
    stderr(&child.wait_with_output().unwrap(), 130);
    let kept: Vec<Value> =
        read(path, "out/results.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(names(&kept), ["softmax-s3", "mos-s3", "moc-s3", "softmax-s4"]);
}

#[test]
fn sweeps_without_a_folder_do_not_collide() {
    let path = &folder();
    let sweep = |more: &str| {
        let line = format!("sweep {SMALL} --heads mos --d-embedding 12 --components 2 --seeds 3 {more}");
        stderr(&run(path, &line), 0).lines().next().unwrap().to_string()
    };
    assert_eq!(sweep("--clip 1"), "runs and results go to runs/sweep");
    let first = read(path, "runs/sweep/results.jsonl");
    // A run of the same name with another setting.
    assert_eq!(sweep("--clip 2"), "runs and results go to runs/sweep-2");
    assert_eq!(sweep("--clip 1"), "runs and results go to runs/sweep");
    assert_eq!(read(path, "runs/sweep/results.jsonl"), first);
    // One that goes further goes on.
    assert_eq!(sweep("--clip 1,3"), "runs and results go to runs/sweep");
    assert_eq!(read(path, "runs/sweep/results.jsonl").lines().count(), 2);
    assert!(!path.join("runs/sweep-3").exists());
    // So does one that was cut off before its first result, beside a file that is no sweep's.
    fs::remove_file(path.join("runs/sweep/results.jsonl")).unwrap();
    for name in ["table.md", "by-clip.svg", "perplexities.svg"] {
        let _ = fs::remove_file(path.join("runs/sweep").join(name));
    }
    fs::write(path.join("runs/sweep/notes.txt"), "").unwrap();
    assert_eq!(sweep("--clip 1,3"), "runs and results go to runs/sweep");
}

#[cfg(unix)]
#[test]
fn a_folder_of_runs_that_cannot_be_read_is_named() {
    let path = &folder();
    std::os::unix::fs::symlink("runs", path.join("runs")).unwrap();
    refused(path, &format!("sweep {SMALL} --dry-run"), &["cannot read `runs/sweep`"]);
}
