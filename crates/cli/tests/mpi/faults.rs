//! Processes that die, disks that are full, and interrupts.

use std::io::Read;
use std::process::{Child, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::*;

/// A command under way and what it says of errors.
struct Job {
    child: Child,
    /// Reads all along: what nobody reads fills the pipe, and `mpirun` then says nothing more.
    errors: JoinHandle<String>,
}

/// Starts a command.
fn started(mut command: Command) -> Job {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut errors = child.stderr.take().expect("it is piped");
    let read = move || {
        let mut text = String::new();
        errors.read_to_string(&mut text).unwrap();
        text
    };
    Job { child, errors: std::thread::spawn(read) }
}

/// The process of a rank below the process `mpirun`, once it is there.
fn process_of(mpirun: u32, rank: usize) -> Option<i32> {
    let children = fs::read_to_string(format!("/proc/{mpirun}/task/{mpirun}/children")).ok()?;
    let variable = format!("OMPI_COMM_WORLD_RANK={rank}");
    children.split_whitespace().find_map(|child| {
        let environment = fs::read(format!("/proc/{child}/environ")).ok()?;
        let is_it = environment.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes());
        is_it.then(|| child.parse().expect("the number of a process"))
    })
}

fn send(signal: &str, process: i32) {
    Command::new("kill").args([signal, &process.to_string()]).status().unwrap();
}

/// Waits for the end of a job, which must come soon. Returns whether it succeeded, and its errors.
fn ended(mut job: Job, limit: Duration) -> (bool, String) {
    let began = Instant::now();
    let status = loop {
        if let Some(status) = job.child.try_wait().unwrap() {
            break status;
        }
        assert!(began.elapsed() < limit, "the job hangs");
        std::thread::sleep(Duration::from_millis(20));
    };
    (status.success(), job.errors.join().unwrap())
}

/// Waits until the run has begun to train: a line of `steps.jsonl` beyond those of before.
fn wait_for_steps(job: &mut Job, run: &Path, before: usize) -> bool {
    for _ in 0..3000 {
        let lines = fs::read_to_string(run.join("steps.jsonl")).unwrap_or_default().lines().count();
        if lines > before {
            return true;
        }
        if job.child.try_wait().unwrap().is_some() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("the job does not begin");
}

/// Saved after every step, with validations inside of epochs.
const OFTEN: &str = "--epochs 12 --validate-every 7 --log-every 1 --checkpoint-every 0.000001";

/// Kills ranks of a run, which all share its vocabulary if `width` is their number, until it is done.
fn kill_until_done(width: usize) {
    let path = &folder();
    let train = format!("train {SMALL} {OFTEN} --vocab-parallel {width}");
    good(ranks(path, 2, &format!("{train} --out whole")));
    let steps = fs::read_to_string(path.join("whole/steps.jsonl")).unwrap().lines().count();
    let mut random = Pcg64Mcg::seed_from_u64(19);
    let resume =
        format!("train --resume run --log-every 1 --checkpoint-every 0.000001 --vocab-parallel {width}");
    let mut killed = 0;
    for attempt in 0..10 {
        let line = if attempt == 0 { format!("{train} --out run") } else { resume.clone() };
        let mut job = started(ranks(path, 2, &line));
        let (run, rank) = (path.join("run"), random.random_range(0..2));
        let before = fs::read_to_string(run.join("steps.jsonl")).unwrap_or_default().lines().count();
        if !wait_for_steps(&mut job, &run, before.min(steps - 1)) {
            break;
        }
        std::thread::sleep(Duration::from_millis(random.random_range(0..60)));
        let Some(process) = process_of(job.child.id(), rank) else { break };
        send("-KILL", process);
        let (success, text) = ended(job, Duration::from_secs(30));
        if success {
            // It was over.
            break;
        }
        killed += 1;
        assert!(text.contains(&format!("rank {rank} with PID")), "rank {rank}: {text}");
    }
    assert!(killed > 0);
    good(ranks(path, 2, &resume));
    assert_eq!(weights(&path.join("run")), weights(&path.join("whole")));
    let last = |run: &str| {
        let text = fs::read_to_string(path.join(run).join("metrics.jsonl")).unwrap();
        (ppl(&text, "valid_ppl"), ppl(&text, "test_ppl"), text.lines().count())
    };
    assert_eq!(last("run"), last("whole"));
}

#[test]
fn a_rank_that_is_killed_ends_the_job_and_the_run_goes_on_to_the_same_bits() {
    kill_until_done(1);
}

#[test]
fn so_does_one_of_those_that_share_a_vocabulary() {
    kill_until_done(2);
}

#[test]
fn a_killed_run_goes_on_within_its_epoch_with_another_number_of_ranks() {
    let path = &folder();
    let train = format!("train {SMALL} {OFTEN}");
    good(ranks(path, 2, &format!("{train} --out whole")));
    for count in [1, 3] {
        let name = format!("run{count}");
        let mut job = started(ranks(path, 2, &format!("{train} --out {name}")));
        assert!(wait_for_steps(&mut job, &path.join(&name), 9));
        send("-KILL", process_of(job.child.id(), 1).unwrap());
        assert!(!ended(job, Duration::from_secs(30)).0);
        let state = fs::read_to_string(path.join(&name).join("checkpoint/state.json")).unwrap();
        assert!(state.contains("\"step\""), "{state}");
        good(ranks(path, count, &format!("train --resume {name}")));
        let far = distance(&path.join("whole"), &path.join(&name));
        assert!(far < 1e-3, "{count} ranks: {far}");
    }
}

#[test]
fn an_interrupt_of_mpirun_saves_the_run() {
    let path = &folder();
    for (signal, width) in [("-USR1", 1), ("-TERM", 1), ("-USR1", 2)] {
        let shared = format!("--vocab-parallel {width}");
        // Without end, on any machine, and with few lines: at SIGTERM mpirun drops those that it has not yet passed on.
        let mut command =
            ranks(path, 2, &format!("train {SMALL} --epochs 1000000 {shared} --out run{signal}{width}"));
        if signal == "-TERM" {
            // Otherwise mpirun kills after a second what it has asked to end.
            command.env("OMPI_MCA_odls_base_sigkill_timeout", "5");
        }
        let (mut job, run) = (started(command), path.join(format!("run{signal}{width}")));
        assert!(wait_for_steps(&mut job, &run, 3));
        send(signal, job.child.id() as i32);
        let (success, text) = ended(job, Duration::from_secs(40));
        assert!(!success, "{text}");
        let line = format!("stopped and saved; to go on: highrank train --resume run{signal}{width}");
        assert!(text.contains(&line), "{text}");
        // To the end of the epoch, beside a run that was not stopped.
        let state = fs::read_to_string(run.join("checkpoint/state.json")).unwrap();
        let state: serde_json::Value = serde_json::from_str(&state).unwrap();
        let epochs = state["state"]["epoch"].as_u64().unwrap() + 1;
        good(ranks(path, 2, &format!("train --resume run{signal}{width} --epochs {epochs} {shared}")));
        good(ranks(path, 2, &format!("train {SMALL} --epochs {epochs} {shared} --out whole{signal}{width}")));
        assert_eq!(weights(&run), weights(&path.join(format!("whole{signal}{width}"))), "{signal}");
    }
}

#[test]
fn a_rank_that_cannot_write_ends_the_job() {
    let path = &folder();
    // A start that was cut off, with a folder where a file is to be.
    fs::create_dir_all(path.join("run/vocab.txt")).unwrap();
    fs::write(path.join("run/lock"), "").unwrap();
    let began = Instant::now();
    bad(
        ranks(path, 2, &format!("train {SMALL} --log-every 1 --out run")),
        &["error: rank 0: cannot write `run/vocab.txt`"],
    );
    assert!(began.elapsed() < Duration::from_secs(30));
}

/// Whether this user may mount something in a namespace of its own.
fn can_mount() -> bool {
    let line = "mount -t tmpfs -o size=64k tmpfs /mnt";
    Command::new("unshare")
        .args(["-rm", "sh", "-c", line])
        .output()
        .is_ok_and(|output| output.status.success())
}

#[test]
fn a_full_disk_ends_the_job_and_the_last_checkpoint_is_whole() {
    fill_the_disk(1);
}

#[test]
fn so_it_does_where_the_vocabulary_is_shared() {
    fill_the_disk(2);
}

fn fill_the_disk(width: usize) {
    if !can_mount() {
        eprintln!("NOT RUN: this system lets no user mount anything (needed: `unshare -rm`)");
        return;
    }
    let path = &folder();
    fs::create_dir(path.join("disk")).unwrap();
    let train =
        format!("train {SMALL} {OFTEN} --vocab-parallel {width}").replace("--epochs 12", "--epochs 1000000");
    // Room for some checkpoints and lines. The disk is gone after the command, so the run is copied from it.
    let full = format!(
        "mount -t tmpfs -o size=300k tmpfs disk && mpirun --oversubscribe --bind-to none -np 2 {PROGRAM} {train} --out disk/run
         status=$?; cp -r disk/run run; exit $status"
    );
    let mut command = Command::new("unshare");
    quiet(&mut command, path);
    command.args(["-rm", "sh", "-c", &full]);
    let began = Instant::now();
    bad(command, &["error: rank 0: cannot ", "`disk/run/", "No space left on device"]);
    assert!(began.elapsed() < Duration::from_secs(120));
    let state = fs::read_to_string(path.join("run/checkpoint/state.json")).unwrap();
    let state: serde_json::Value = serde_json::from_str(&state).unwrap();
    let epochs = state["state"]["epoch"].as_u64().unwrap() + 1;
    good(ranks(path, 2, &format!("train --resume run --epochs {epochs} --vocab-parallel {width}")));
    let whole = train.replace("--epochs 1000000", &format!("--epochs {epochs}"));
    good(ranks(path, 2, &format!("{whole} --out whole")));
    assert_eq!(weights(&path.join("run")), weights(&path.join("whole")));
}
