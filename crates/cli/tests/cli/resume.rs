//! Runs that are stopped, killed, locked, changed or out of disk, and go on as if nothing had been.

use std::fs;
use std::path::Path;
#[cfg(target_os = "linux")]
use std::process::Output;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde_json::Value;

use super::{all_files, config, folder, objects, program, refused, run, same_files, timeless};
use crate::harness::{stderr, wait_for};
#[cfg(unix)]
use {super::started, crate::harness::child_signal};

/// A model and procedure of a second or so, with a rate that soon makes the validation loss rise.
const SMALL: &str = "--data data --d-embedding 12 --lstm 16,12 --components 3 --batch 8 --bptt 12 --lr 30";
/// Some seconds of training, with averaging from early on and every dropout.
const RUN: &str = "--epochs 12 --dropout-embedding 0.1 --dropout-weight 0.3 --json";
/// Saves after nearly every step.
const OFTEN: &str = "--checkpoint-every 0.0002";

fn start(folder: &Path, line: &str) -> Child {
    let errors = fs::File::create(folder.join("errors")).unwrap();
    program(folder, line).stdout(Stdio::null()).stderr(errors).spawn().unwrap()
}

/// Lines of `metrics.jsonl` without wall-clock times.
fn metrics(run: &Path) -> Vec<Value> {
    timeless(&run.join("metrics.jsonl"))
}

/// Whether two finished runs came to the same weights and metrics, bit for bit.
fn same(one: &Path, other: &Path) {
    assert_eq!(metrics(one), metrics(other));
    let steps = |run: &Path| timeless(&run.join("steps.jsonl"));
    assert_eq!(steps(one), steps(other));
    let files = [
        "checkpoint/model.safetensors",
        "checkpoint/average.safetensors",
        "best/model.safetensors",
        "vocab.txt",
    ];
    same_files(one, other, &files);
}

/// Waits until training has made a checkpoint.
fn wait_for_checkpoint(run: &Path) {
    wait_for(&run.join("checkpoint/state.json"));
}

#[test]
fn a_run_killed_at_random_moments_ends_as_an_undisturbed_one() {
    let path = &folder();
    let started = Instant::now();
    objects(path, &format!("train {SMALL} {RUN} --out straight"));
    let whole = started.elapsed();
    assert!(metrics(&path.join("straight")).iter().any(|line| line["averaging"] == true));

    let seed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().subsec_nanos();
    println!("moments of seed {seed}");
    let mut rng = Pcg64Mcg::seed_from_u64(seed.into());
    let (mut kills, mut rounds, mut inside) = (0, 0, 0);
    while kills < 20 {
        rounds += 1;
        let name = format!("killed{rounds}");
        let out = path.join(&name);
        loop {
            // A folder without configuration is no run yet.
            let line = match out.join("config.json").exists() {
                true => format!("train --resume {name} --json {OFTEN}"),
                false => format!("train {SMALL} {RUN} --out {name} {OFTEN}"),
            };
            if kills == 20 {
                objects(path, &line);
                break;
            }
            let mut child = start(path, &line);
            // Saving so often slows it down; a good half of it must be left for the next ones.
            sleep(whole.mul_f64(rng.random_range(0.0..0.6)));
            match child.try_wait().unwrap() {
                Some(status) => {
                    let errors = fs::read_to_string(path.join("errors")).unwrap();
                    assert!(status.success(), "{line}: {status}, {errors}");
                    break;
                }
                None => {
                    child.kill().unwrap();
                    child.wait().unwrap();
                    kills += 1;
                    let state = fs::read_to_string(out.join("checkpoint/state.json")).unwrap_or_default();
                    inside += usize::from(state.contains("\"step\""));
                }
            }
        }
        same(&path.join("straight"), &out);
    }
    println!("{kills} kills in {rounds} runs, {inside} left a checkpoint inside of an epoch");
    assert!(inside > 0);
}

/// Sends a signal twice without a gap, as `timeout` does.
#[cfg(unix)]
fn signal_twice(child: &Child, signal: &str) {
    let id = child.id().to_string();
    let sent = Command::new("kill").args([format!("-{signal}"), id.clone(), id]).status().unwrap();
    assert!(sent.success());
}

#[test]
#[cfg(unix)]
fn an_interrupt_saves_and_says_how_to_go_on() {
    let path = &folder();
    objects(path, &format!("train {SMALL} {RUN} --out straight"));
    for (signal, status, name) in [("INT", 130, "stopped"), ("TERM", 143, "ended")] {
        let out = path.join(name);
        let child = started(path, &format!("train {SMALL} {RUN} --out {name} {OFTEN}"));
        wait_for_checkpoint(&out);
        // While it is at work, nobody else is let in, and what there is can be read.
        let errors = stderr(&run(path, &format!("train --resume {name}")), 2);
        assert_eq!(errors, format!("error: `{name}` is in use: another process is training this run\n"));
        signal_twice(&child, signal);
        let errors = stderr(&child.wait_with_output().unwrap(), status);
        let last = errors.lines().last().unwrap();
        assert_eq!(last, format!("stopped and saved; to go on: highrank train --resume {name}"));
        let stopping = errors
            .lines()
            .filter(|line| line.starts_with("stopping after this step, then saving; press again"));
        assert_eq!(stopping.count(), 1, "{errors}");
        let lines = objects(path, &format!("train --resume {name} --json"));
        assert!(lines.last().unwrap()["test_ppl"].is_number());
        same(&path.join("straight"), &out);
    }
    // A terminal that closes: nothing more can be said.
    if !hangups_are_ignored() {
        let mut child = started(path, &format!("train {SMALL} {RUN} --out hung-up {OFTEN}"));
        wait_for_checkpoint(&path.join("hung-up"));
        drop(child.stderr.take());
        child_signal(&child, "HUP");
        assert_eq!(child.wait().unwrap().code(), Some(129));
        objects(path, "train --resume hung-up --json");
        same(&path.join("straight"), &path.join("hung-up"));
    }
    // A finished run comes to its end again.
    let again = objects(path, "train --resume straight --json");
    assert_eq!(again.len(), 1);
    same(&path.join("stopped"), &path.join("straight"));
}

/// Otherwise people press again, and lose what they have.
#[test]
#[cfg(unix)]
fn an_interrupt_is_answered_before_the_step_ends() {
    use std::io::{BufRead, BufReader};

    let path = &folder();
    // A step of a second or more.
    let slow = "--data data --head softmax --d-embedding 12 --lstm 1500,12 --batch 8 --bptt 200 --epochs 9";
    let mut child = started(path, &format!("train {slow} --out run"));
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.next().unwrap().starts_with("softmax with "));
    let sent = Instant::now();
    child_signal(&child, "INT");
    let mut said: Vec<(String, Duration)> = vec![];
    for line in lines {
        said.push((line, sent.elapsed()));
    }
    assert_eq!(child.wait().unwrap().code(), Some(130), "{said:?}");
    let notice = |said: &&(String, Duration)| said.0.starts_with("stopping after this step, then saving");
    let (notice, end) = (said.iter().find(notice).unwrap(), &said[said.len() - 1]);
    assert!(end.0.starts_with("stopped and saved; to go on: "), "{said:?}");
    assert!(notice.1 * 2 < end.1, "{said:?}");
}

#[test]
#[cfg(unix)]
fn a_run_that_is_to_outlive_its_terminal_does() {
    let path = &folder();
    let line = format!("train {SMALL} --epochs 3 --out first {OFTEN}");
    let command = format!("trap '' HUP; exec \"$0\" {line}");
    let mut child = Command::new("sh")
        .current_dir(path)
        .args(["-c", &command, env!("CARGO_BIN_EXE_highrank")])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for_checkpoint(&path.join("first"));
    child_signal(&child, "HUP");
    assert!(child.wait().unwrap().success());
    assert_eq!(metrics(&path.join("first")).len(), 4);
}

/// Whether these tests were started to outlive their terminal, and with them every program that they start.
#[cfg(unix)]
fn hangups_are_ignored() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

#[test]
fn a_finetuning_killed_before_its_first_checkpoint_starts_from_the_same_model_again() {
    let path = &folder();
    for seed in [28, 29] {
        objects(path, &format!("train {SMALL} --epochs 1 --seed {seed} --out seed{seed} --json"));
    }
    let finetune = "finetune --run seed28 --epochs 2 --lr 1 --json";
    objects(path, &format!("{finetune} --out straight"));
    let killed = (0..20).map(|attempt| format!("killed{attempt}")).find(|name| {
        let mut child = start(path, &format!("{finetune} --out {name}"));
        wait_for(&path.join(name).join("best/model.safetensors"));
        child.kill().unwrap();
        child.wait().unwrap();
        !path.join(name).join("checkpoint").exists()
    });
    let killed = killed.expect("one of them was killed before its first epoch was done");
    // By now, the run that it started from has another best model.
    let best = |run: &str| path.join(run).join("best/model.safetensors");
    fs::copy(best("seed29"), best("seed28")).unwrap();
    objects(path, &format!("train --resume {killed} --json"));
    same(&path.join("straight"), &path.join(&killed));
}

#[test]
fn a_resume_whose_origin_is_gone_changes_nothing() {
    let path = &folder();
    objects(path, &format!("train {SMALL} --epochs 1 --out origin --json"));
    objects(path, "finetune --run origin --epochs 1 --out tuned --json");
    // Killed before it had a model.
    let tuned = path.join("tuned");
    for what in ["best", "checkpoint"] {
        fs::remove_dir_all(tuned.join(what)).unwrap();
    }
    fs::remove_file(tuned.join("metrics.jsonl")).unwrap();
    runs::note_hashes(&tuned).unwrap();
    fs::rename(path.join("origin"), path.join("moved")).unwrap();
    let before = all_files(&tuned);
    let errors = stderr(&run(path, "train --resume tuned --epochs 2"), 2);
    assert!(errors.lines().last().unwrap().contains("origin` is not a run folder"), "{errors}");
    assert!(all_files(&tuned) == before);
    fs::rename(path.join("moved"), path.join("origin")).unwrap();
    objects(path, "train --resume tuned --epochs 2 --json");
    assert_eq!(config(path, "tuned")["train"]["epochs"], 2);
}

/// As an import leaves it that was killed between the weights and the configuration.
#[test]
fn a_start_that_was_cut_off_is_made_again() {
    let path = &folder();
    let train = format!("train {SMALL} --epochs 1 --json --out");
    objects(path, &format!("{train} whole"));
    let left = path.join("left");
    fs::create_dir_all(left.join("best")).unwrap();
    for name in ["lock", "vocab.txt", "best/model.safetensors"] {
        fs::copy(path.join("whole").join(name), left.join(name)).unwrap();
    }
    runs::note_hashes(&left).unwrap();
    objects(path, &format!("{train} left"));
    same_files(&path.join("whole"), &left, &["best/model.safetensors", "checkpoint/model.safetensors"]);
}

#[test]
fn changed_text_and_changed_settings_are_named() {
    let path = &folder();
    objects(path, &format!("train {SMALL} --epochs 2 --out first --json"));
    let before = fs::read(path.join("first/checkpoint/state.json")).unwrap();
    let cases = [
        ("--lr 7", "train.lr is 7.0 now, but 30.0 in the run"),
        ("--seed 9", "train.seed is 9 now, but 28 in the run"),
        ("--no-test", "train.test is false now, but null in the run"),
        ("--untied", "model.tied is false now, but true in the run"),
        ("--head softmax", r#"model.head is "softmax" now, but "mos" in the run"#),
        ("--preset paper", "preset is paper now, but small in the run"),
        (
            "--device ndarray",
            r#"device is "ndarray" now, but "flex" in the run; leave it out, or add --change-device"#,
        ),
        ("--change-device", "--device"),
        ("--epochs 1", "cannot extend `first`: epochs is 1"),
        ("--dry-run", "--dry-run"),
        ("--config first/config.json", "--config"),
        ("--lstm 16,14", "model.lstm_sizes[1] is 14 now, but 12 in the run"),
        ("--dropout-weight 0", "model.dropouts.weight is 0.0 now"),
        ("--out other", "--out"),
        ("--checkpoint-every 0", "checkpoint-every is 0, but must be a number of minutes above 0"),
        ("--checkpoint-every 1e300", "but must be a number of minutes above 0 and at most 3e17"),
    ];
    for (more, expected) in cases {
        refused(path, &format!("train --resume first {more}"), &[expected]);
    }
    refused(path, "train --resume nowhere", &["`nowhere` is not a run folder"]);
    refused(path, "train --resume first --data nowhere", &["data folder `nowhere` does not exist"]);
    // The same settings may be given again.
    objects(path, "train --resume first --lr 30 --data data --json");

    let file = path.join("data/valid.txt");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replacen("word1", "word2", 1)).unwrap();
    refused(
        path,
        "train --resume first",
        &["the validation text is not the one that the run was started with"],
    );
    fs::write(&file, text + "word1\n").unwrap();
    refused(path, "train --resume first", &["the validation text is not the one"]);
    let strip = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(char::is_whitespace, "");
    assert_eq!(strip(&fs::read(path.join("first/checkpoint/state.json")).unwrap()), strip(&before));
}

#[test]
fn a_limit_is_not_taken_back_by_null() {
    let path = &folder();
    let train = format!("train {SMALL} --epochs 1 --json");
    objects(path, &format!("{train} --patience 9 --max-time 1h --out first"));
    for place in ["train.patience", "train.max_minutes"] {
        let told = format!("{place} cannot be taken back from a run: give a number");
        refused(path, &format!("train --resume first --set {place}=null"), &[&told]);
    }
    refused(path, "train --resume first --max-time -5s", &["a time needs its unit and must be above 0"]);
    // A run that has none takes it for what it is.
    objects(path, &format!("{train} --set train.patience=null --out second"));
    objects(path, "train --resume second --set train.patience=null --json");
}

/// Every file of a finished run, damaged in two ways: going on for longer is refused, and nothing is written.
#[test]
fn a_resume_that_fails_changes_nothing() {
    let path = &folder();
    objects(path, &format!("train {SMALL} {RUN} --out lines"));
    super::dialog::write(&path.join("dialogues"), 1);
    objects(path, &format!("dialog train --data dialogues {} --out talk --json", super::dialog::SMALL));
    let gpt = "--d-model 8 --attention-heads 2 --layers 1 --context 8 --batch 4 --components 2 --steps 20";
    objects(path, &format!("transformer --data data {gpt} --out gpt --json"));
    let shared = [
        "config.json",
        "vocab.txt",
        "metrics.jsonl",
        "hashes.json",
        "best/model.safetensors",
        "checkpoint/model.safetensors",
        "checkpoint/state.json",
        "checkpoint/metrics.jsonl",
        "checkpoint/hashes.json",
    ];
    for (run, line, own) in [
        ("lines", "train --resume lines --epochs 20", "checkpoint/average.safetensors"),
        ("talk", "dialog train --resume talk --epochs 20", "checkpoint/optimiser.bpk"),
        ("gpt", "transformer --resume gpt", "checkpoint/optimiser.bpk"),
    ] {
        for name in shared.into_iter().chain([own]) {
            let file = path.join(run).join(name);
            let good = fs::read(&file).unwrap();
            let mut zeroed = good.clone();
            let middle = zeroed.len() / 2;
            zeroed[middle..(middle + 10_000).min(good.len())].fill(0);
            for bytes in [&good[..good.len().min(1000) / 2], &zeroed] {
                fs::write(&file, bytes).unwrap();
                let before = all_files(&path.join(run));
                let errors = stderr(&super::run(path, line), 2);
                assert!(errors.lines().count() == 1 && errors.contains(name), "{run}/{name}: {errors}");
                assert!(all_files(&path.join(run)) == before, "{run}/{name}");
            }
            fs::write(&file, good).unwrap();
        }
    }
    let lines = objects(path, "train --resume lines --epochs 13 --json");
    assert!(lines.last().unwrap()["test_ppl"].is_number());
    objects(path, "transformer --resume gpt --json");
}

/// Files of more than so many blocks of 512 bytes cannot be written, as on a disk that is full.
#[cfg(target_os = "linux")]
fn limited(path: &Path, blocks: usize, line: &str) -> Output {
    let command = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" {line}");
    let program = env!("CARGO_BIN_EXE_highrank");
    Command::new("sh").current_dir(path).args(["-c", &command, program]).output().unwrap()
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_one_line_and_loses_nothing() {
    let path = &folder();
    objects(path, &format!("train {SMALL} {RUN} --out straight"));
    let mut child = start(path, &format!("train {SMALL} {RUN} --out full {OFTEN}"));
    let out = path.join("full");
    wait_for_checkpoint(&out);
    child.kill().unwrap();
    child.wait().unwrap();
    // All files but the weights fit.
    let errors = stderr(&limited(path, 8, &format!("train --resume full {OFTEN}")), 2);
    let last = errors.lines().last().unwrap();
    assert!(last.starts_with("error: cannot write `full/"), "{errors}");
    assert!(last.contains(".safetensors"), "{errors}");
    // What was half written is gone, and what was saved is still there.
    assert!(!out.join("checkpoint.new").exists());
    objects(path, "train --resume full --json");
    same(&path.join("straight"), &out);
}

#[test]
fn a_folder_that_cannot_be_written_is_one_line() {
    let path = &folder();
    fs::write(path.join("file"), "").unwrap();
    refused(path, &format!("train {SMALL} --out file/run"), &["cannot create `file/run`"]);
}
