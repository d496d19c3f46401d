//! Machines that share no folder: each process has one of its own.

use super::*;

/// The program, to be started in a process in `m0` and in one in `m1`.
fn machines(folder: &Path, line: &str) -> Command {
    let mut command = mpirun(folder);
    for (machine, before) in [("m0", None), ("m1", Some(":"))] {
        command.args(before).args(["-np", "1", "-wdir"]).arg(folder.join(machine));
        command.arg(PROGRAM).args(line.split_whitespace());
    }
    command
}

fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-r").args([from, to]).status().unwrap();
    assert!(status.success(), "{}", from.display());
}

/// Folders `m0` and `m1`, each with the text.
fn two() -> Folder {
    let folder = folder();
    for machine in ["m0", "m1"] {
        fs::create_dir(folder.join(machine)).unwrap();
        copy(&folder.join("data"), &folder.join(machine).join("data"));
    }
    folder
}

/// The files of a run that a resume writes first.
fn written(run: &Path) -> Vec<Vec<u8>> {
    let names = ["config.json", "metrics.jsonl", "hashes.json", "checkpoint/model.safetensors"];
    names.iter().map(|name| fs::read(run.join(name)).unwrap()).collect()
}

#[test]
fn other_copies_of_a_run_are_refused() {
    let path = &two();
    let (first, second) = (path.join("m0"), path.join("m1"));
    // The same settings, but a training each: with two slices, it ends elsewhere.
    let train = format!("train {SMALL} --epochs 1 --out run");
    good(alone(&first, &train));
    good(ranks(&second, 2, &train));
    let before = written(&first.join("run"));
    let differs = "rank 1 differs from rank 0: ";
    bad(machines(path, "train --resume run --epochs 2"), &[&format!("error: {differs}checkpoint.")]);
    assert!(written(&first.join("run")) == before);

    let hash = format!("error: {differs}the hash of the weights is ");
    bad(machines(path, "eval --run run --device flex"), &[&hash]);
    bad(machines(path, "train --from run --epochs 1 --out tuned"), &[&hash]);
    assert!(!first.join("tuned").exists());
    bad(
        ranks_of(
            &first,
            &[(1, "eval --run run --device flex"), (1, "eval --run run --weights last --device flex")],
        ),
        &[&format!("error: {differs}weights is \"last\" there, but \"best\" at rank 0")],
    );
}

#[test]
fn a_resume_that_one_rank_refuses_changes_nothing() {
    let path = &two();
    let (first, second) = (path.join("m0/run"), path.join("m1/run"));
    good(alone(&path.join("m0"), &format!("train {SMALL} --epochs 1 --out run")));
    copy(&first, &second);
    let file = second.join("checkpoint/model.safetensors");
    let mut bytes = fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&file, bytes).unwrap();
    let before = written(&first);
    bad(
        machines(path, "train --resume run --epochs 9"),
        &["error: rank 1: `run/checkpoint/model.safetensors` is damaged"],
    );
    assert!(written(&first) == before);
}

#[test]
fn a_sweep_needs_a_folder_that_all_share() {
    let path = &two();
    let sweep = format!("sweep {SMALL} --epochs 1 --heads softmax,mos");
    bad(
        machines(path, &format!("{sweep} --out sw")),
        &["error: rank 1's runs are not in `sw`: give an --out that all machines share"],
    );
    assert!(!path.join("m0/sw/table.md").exists());
    // The texts may lie in different places.
    good(machines(path, &format!("{sweep} --out {}", path.join("shared").display())));
    assert!(path.join("shared/table.md").exists());
}
