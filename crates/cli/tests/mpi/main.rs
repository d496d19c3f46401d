//! Training by `mpirun`: several processes against one, and what becomes of them if one dies. Needs Open MPI.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use harness::Folder;
use safetensors::SafeTensors;

mod dialogues;
mod faults;
#[path = "../cli/harness.rs"]
mod harness;
mod machines;
mod shared;
mod transformers;

const PROGRAM: &str = env!("CARGO_BIN_EXE_highrank");

/// A folder whose folder `data` holds a small text, and `other` another one of the same words.
fn folder() -> Folder {
    let folder = Folder::empty();
    let words = |count: usize, factor: usize| {
        let word = |n: usize| match n % 9 {
            8 => "\n".to_string(),
            _ => format!("w{} ", (n * n / factor + n % 5) % 17),
        };
        (0..count).map(word).collect::<String>() + "\n"
    };
    for (name, factor) in [("data", 7), ("other", 11)] {
        let data = folder.join(name);
        fs::create_dir(&data).unwrap();
        // All words first, so that both have the same.
        let all: String = (0..17).map(|n| format!("w{n} ")).collect();
        for (text, count, factor) in [("train", 900, factor), ("valid", 150, 3), ("test", 120, 5)] {
            fs::write(data.join(format!("{text}.txt")), format!("{all}\n{}", words(count, factor))).unwrap();
        }
    }
    folder
}

/// A model and procedure of a part of a second, with all dropouts.
const SMALL: &str = "--data data --d-embedding 6 --lstm 9,6 --components 2 --batch 6 --bptt 8 --lr 2 --eval-batch 3 \
                     --dropout-output 0.2 --dropout-hidden 0.1 --dropout-input 0.2 --dropout-latent 0.2 \
                     --dropout-embedding 0.1 --dropout-weight 0.3 --device flex";

/// The same for a head, with the sizes of its own parts.
fn small(head: &str) -> String {
    let sizes = match head.split(' ').next().unwrap_or_default() {
        "moc" | "mos" | "doc" => "--components 2",
        "mos-plif" => "--components 2 --knots 5",
        "plif" => "--knots 5",
        "mixtape" => "--d-gate 4",
        _ => "",
    };
    SMALL.replace("--components 2", sizes)
}

fn quiet(command: &mut Command, folder: &Path) {
    command
        .current_dir(folder)
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        // What containers forbid.
        .env("OMPI_MCA_btl_vader_single_copy_mechanism", "none")
        .env("OMPI_MCA_plm_rsh_agent", "")
        .env("RAYON_NUM_THREADS", "1");
}

/// The program, to be started in one process.
fn alone(folder: &Path, line: &str) -> Command {
    let mut command = Command::new(PROGRAM);
    quiet(&mut command, folder);
    command.args(line.split_whitespace());
    command
}

fn mpirun(folder: &Path) -> Command {
    let mut command = Command::new("mpirun");
    quiet(&mut command, folder);
    command.args(["--oversubscribe", "--bind-to", "none"]);
    command
}

/// The program, to be started in so many processes for each of some command lines.
fn ranks_of(folder: &Path, lines: &[(usize, &str)]) -> Command {
    let mut command = mpirun(folder);
    for (index, (count, line)) in lines.iter().enumerate() {
        command.args(if index == 0 { &[][..] } else { &[":"] });
        command.args(["-np", &count.to_string(), PROGRAM]).args(line.split_whitespace());
    }
    command
}

fn ranks(folder: &Path, count: usize, line: &str) -> Command {
    ranks_of(folder, &[(count, line)])
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs a command that must succeed, and returns its standard output.
fn good(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", errors(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a command that must fail, with one line of the program that holds each of `expected`.
fn bad(mut command: Command, expected: &[&str]) {
    let output = command.output().unwrap();
    let text = errors(&output);
    assert_eq!(output.status.code(), Some(2), "{command:?}: {text}");
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("error: ")).collect();
    assert_eq!(lines.len(), 1, "{command:?}: {text}");
    for part in expected {
        assert!(lines[0].contains(part), "{command:?}: `{part}` is not in {}", lines[0]);
    }
    assert!(!text.contains("panicked"), "{text}");
}

/// The weights of a run's checkpoint.
fn weights(run: &Path) -> BTreeMap<String, Vec<f32>> {
    let bytes = fs::read(run.join("checkpoint/model.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let value = |bytes: &[u8; 4]| f32::from_le_bytes(*bytes);
    file.iter()
        .map(|(name, tensor)| (name.to_string(), tensor.data().as_chunks().0.iter().map(value).collect()))
        .collect()
}

/// The largest difference of the weights of two runs, and the largest change that training made of one.
fn distance(a: &Path, b: &Path) -> f32 {
    let (a, b) = (weights(a), weights(b));
    assert!(a.keys().eq(b.keys()));
    let pairs = a.values().flatten().zip(b.values().flatten());
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

fn ppl(metrics: &str, key: &str) -> f64 {
    let last = metrics.lines().last().expect("a line");
    serde_json::from_str::<serde_json::Value>(last).unwrap()[key].as_f64().unwrap()
}

/// Checks that the last lines of two commands have the same values, but for a share; `of`: what is compared.
#[track_caller]
fn near(one: &str, other: &str, keys: &[&str], share: f64, of: &str) {
    for key in keys {
        let [one, other] = [one, other].map(|lines| ppl(lines, key));
        assert!((one / other - 1.0).abs() < share, "{of}, {key}: {one} {other}");
    }
}

/// The perplexities of a training.
const PPLS: [&str; 3] = ["valid_ppl", "test_ppl", "train_ppl"];

#[test]
fn every_head_trains_to_the_bits_of_as_many_slices_in_one_process() {
    let path = &folder();
    for head in ["softmax", "moc", "mos", "sigsoftmax", "gss", "plif", "mos-plif", "doc", "mixtape"] {
        let train =
            |out: &str| format!("train {} --head {head} --epochs 2 --json --out {head}-{out}", small(head));
        let whole = good(alone(path, &train("whole")));
        for count in [2, 3] {
            let (of_ranks, of_slices) = (train(&format!("r{count}")), train(&format!("s{count}")));
            // The same bits either way.
            let ranks = good(ranks(path, count, &of_ranks));
            let slices = good(alone(path, &format!("{of_slices} --small-batch {}", 6 / count)));
            let run = |name: &str| path.join(format!("{head}-{name}"));
            let [of_ranks, of_slices] = ["r", "s"].map(|kind| run(&format!("{kind}{count}")));
            let of = format!("{head}, {count} ranks");
            assert_eq!(weights(&of_ranks), weights(&of_slices), "{of}");
            // The same masks as the whole batch, so that even it differs by rounding only.
            assert!(distance(&of_ranks, &run("whole")) < 1e-4, "{of}");
            near(&ranks, &slices, &PPLS, 1e-6, &of);
            near(&ranks, &whole, &PPLS, 1e-3, &of);
        }
    }
}

#[cfg(feature = "ndarray")]
#[test]
fn the_other_cpu_backend_does_too() {
    let path = &folder();
    let train = format!("train {SMALL} --epochs 1").replace("--device flex", "--device ndarray");
    good(ranks(path, 2, &format!("{train} --out ranks")));
    good(alone(path, &format!("{train} --small-batch 3 --out slices")));
    assert_eq!(weights(&path.join("ranks")), weights(&path.join("slices")));
}

#[test]
fn rank_0_alone_writes_and_prints_and_waiting_is_measured() {
    let path = &folder();
    let out = good(ranks(path, 3, &format!("train {SMALL} --epochs 1 --log-every 4 --json --out run")));
    assert_eq!(out.lines().count(), 2, "{out}");
    let lines = fs::read_to_string(path.join("run/steps.jsonl")).unwrap();
    let steps = harness::parsed(&lines);
    assert!(steps.len() > 3, "{lines}");
    for step in &steps {
        assert_eq!(step["ranks"], 3, "{step}");
        let [wait, longest, reduce] =
            ["wait_seconds", "longest_wait_seconds", "reduce_seconds"].map(|key| step[key].as_f64().unwrap());
        assert!(0.0 <= wait && wait <= longest && longest < 5.0 && 0.0 < reduce && reduce < 5.0, "{step}");
    }
    good(alone(path, &format!("train {SMALL} --epochs 1 --json --out one")));
    assert!(!fs::read_to_string(path.join("one/steps.jsonl")).unwrap().contains("wait"));
    // One rank is one process.
    good(ranks(path, 1, &format!("train {SMALL} --epochs 1 --out rank")));
    assert_eq!(weights(&path.join("rank")), weights(&path.join("one")));
}

#[test]
fn bf16_is_near() {
    let path = &folder();
    for precision in ["f32", "bf16"] {
        let train = format!("train {SMALL} --epochs 1 --reduce-precision {precision} --out {precision}");
        good(ranks(path, 2, &train));
    }
    let far = distance(&path.join("f32"), &path.join("bf16"));
    assert!(far > 1e-6 && far < 0.02, "{far}");
    let unknown = ranks(path, 2, &format!("train {SMALL} --reduce-precision f8 --out run"));
    bad(unknown, &["unknown precision `f8`", "f32, bf16"]);
}

#[test]
fn a_run_goes_on_with_another_number_of_ranks() {
    let path = &folder();
    let train = format!("train {SMALL} --validate-every 5 --json");
    good(ranks(path, 2, &format!("{train} --epochs 3 --out whole")));
    for count in [1, 2, 3] {
        let out = format!("part{count}");
        good(ranks(path, 2, &format!("{train} --epochs 1 --out {out}")));
        good(ranks(path, count, &format!("train --resume {out} --epochs 3 --json")));
        let far = distance(&path.join("whole"), &path.join(&out));
        assert!(if count == 2 { far == 0.0 } else { far < 1e-4 }, "{count} ranks: {far}");
    }
}

#[test]
fn finetuning_and_evaluation_share_the_work() {
    let path = &folder();
    good(alone(path, &format!("train {SMALL} --epochs 1 --out run")));
    good(ranks(path, 2, "finetune --run run --epochs 2 --out ranks"));
    good(alone(path, "finetune --run run --epochs 2 --small-batch 3 --out slices"));
    assert_eq!(weights(&path.join("ranks")), weights(&path.join("slices")));
    let one = good(alone(path, "eval --run run --device flex --json"));
    // More ranks than columns of the test text.
    let three = good(ranks(path, 3, "eval --run run --device flex --json"));
    assert_eq!(three.lines().count(), 1, "{three}");
    near(&one, &three, &PPLS[..2], 1e-6, "eval");
}

#[test]
fn a_sweep_deals_its_runs() {
    let path = &folder();
    let sweep = |out: &str| {
        let settings = SMALL.replace("--d-embedding 6 --lstm 9,6", "--lstm 9,6");
        format!(
            "sweep {settings} --epochs 1 --heads softmax,mos --d-embedding 4,6 --seeds 1,2 --out {out} --json"
        )
    };
    let dealt = good(ranks(path, 3, &sweep("three")));
    let one = good(alone(path, &sweep("one")));
    let results = |lines: &str| -> Vec<(String, f64)> {
        let objects = lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        objects.map(|run| (run["run"].to_string(), run["test_ppl"].as_f64().unwrap())).collect()
    };
    assert_eq!(results(&dealt), results(&one));
    assert_eq!(results(&one).len(), 8);
    assert!(path.join("three/table.md").exists());
}

#[test]
fn a_sweep_whose_runs_fail_ends_as_in_one_process() {
    let path = &folder();
    let settings = small("softmax").replace("--lr 2", "--lr 2,1e38");
    let sweep = |out: &str| format!("sweep {settings} --epochs 1 --heads softmax --out {out}");
    for mut command in [alone(path, &sweep("one")), ranks(path, 2, &sweep("two"))] {
        let output = command.output().unwrap();
        let text = errors(&output);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains("1 of 2 runs failed; delete a run's folder"), "{text}");
        assert!(!text.contains("error: ") && !text.contains("MPI_ABORT"), "{text}");
    }
}

#[test]
fn ranks_that_differ_are_refused() {
    let path = &folder();
    let train = format!("train {SMALL} --out run");
    let data = |name: &str| train.replace("--data data", &format!("--data {name}"));
    for (own, expected) in [
        (
            train.replace("--lr 2", "--lr 3"),
            " differs from rank 0: run.train.lr is 3.0 there, but 2.0 at rank 0",
        ),
        (format!("train {} --out run --head softmax", small("softmax")), " differs from rank 0: run.model."),
        (format!("{train} --reduce-precision bf16"), " differs from rank 0: reduce_precision"),
        (format!("{train} --log-every 7"), " differs from rank 0: log_every is 7 there, but 20 at rank 0"),
        ("--version".into(), r#" differs from rank 0: command is "help or version" there, but "train" at"#),
        ("train --resume run".into(), ": `run` is not a run folder: it has no config.json"),
        (data("nowhere"), ": data folder `nowhere` does not exist"),
        (format!("{train} --colour blue"), ": unexpected argument '--colour'"),
    ] {
        bad(ranks_of(path, &[(2, &train), (1, &own)]), &[&format!("rank 2{expected}")]);
    }
    bad(
        ranks_of(path, &[(1, &train), (1, &data("other"))]),
        &["rank 1 differs from rank 0: run.corpus.train.sha256"],
    );
    // What all have in common is no rank's.
    bad(ranks(path, 2, &data("nowhere")), &["error: data folder `nowhere` does not exist"]);
    bad(ranks(path, 2, &format!("{train} --colour blue")), &["error: unexpected argument '--colour'"]);
    bad(ranks(path, 7, &train), &["error: 7 ranks cannot share a batch of 6"]);
    bad(ranks(path, 2, "train --resume nowhere"), &["error: `nowhere` is not a run folder"]);
    let gpt = "train --data data --model gpt --out run";
    bad(
        ranks_of(path, &[(1, &train), (1, gpt)]),
        &[r#"rank 1 differs from rank 0: command is "transformer" there, but "train" at rank 0"#],
    );
    bad(ranks(path, 2, "generate --run run"), &["works in one process, but mpirun started 2"]);
    bad(ranks(path, 2, &format!("{train} --dry-run")), &["train --dry-run works in one process"]);
    assert!(!path.join("run").exists());
}
