//! Help texts, and the commands that measure.

use std::fs;

use super::{objects, refused, run};

#[test]
fn help_names_the_program_and_its_commands() {
    let folder = tempfile::tempdir().unwrap();
    let text = |line: &str| {
        let output = run(folder.path(), line);
        assert!(output.status.success() && output.stderr.is_empty(), "{line}");
        String::from_utf8(output.stdout).unwrap()
    };
    let help = text("--help");
    assert!(help.contains("Usage: highrank ") && !help.contains("ptb_mos"), "{help}");
    for command in [
        "train",
        "eval",
        "rank",
        "kl",
        "compare",
        "plif",
        "finetune",
        "dynamic-eval",
        "ablation",
        "generate",
        "import",
        "export",
        "synthetic",
        "head-throughput",
        "step-throughput",
        "bench-report",
        "transformer",
    ] {
        assert!(help.lines().any(|line| line.trim_start().starts_with(&format!("{command} "))), "{command}");
        let help = text(&format!("{command} --help"));
        assert!(help.contains(&format!("Usage: highrank {command} ")), "{help}");
    }
    assert_eq!(text("--version"), format!("highrank {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_training_step_is_timed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let small = "step-throughput --preset small --vocab 50 --repeats 1 --device cpu";
    for part in ["step", "lstm"] {
        let measured = objects(path, &format!("{small} --part {part} --json")).remove(0);
        assert_eq!((&measured["preset"], &measured["device"]), (&"small".into(), &"flex".into()));
        for key in ["parameters", "tokens", "median_ms", "tokens_per_s"] {
            assert!(measured[key].as_f64().is_some_and(|value| value > 0.0), "{key} in {measured}");
        }
    }
    refused(path, &format!("{small} --repeats 0").replace("--repeats 1 ", ""), &["--repeats is 0"]);
}

#[test]
fn an_output_head_is_timed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let small =
        "head-throughput --head mos --tokens 8 --d-hidden 6 --d-embedding 4 --vocab 20 --components 2";
    refused(path, &format!("{small} --repeats 0"), &["--repeats is 0"]);
    refused(path, &small.replace("--tokens 8", "--tokens 0"), &["--tokens is 0"]);
    refused(path, &format!("{small} --layers burn"), &["--layers burn has no mos", "--head softmax"]);
    refused(path, &format!("{small} --mode nll --options smoothing"), &["--options", "--mode step"]);
    let softmax = small.replace("--head mos", "--head softmax");
    refused(
        path,
        &format!("{softmax} --layers burn --options z-loss"),
        &["--layers burn", "--options plain"],
    );
    // Without optimisation the large product that it is compared with takes minutes.
    if !cfg!(debug_assertions) {
        let measured = objects(path, &format!("{small} --repeats 1 --device cpu --json")).remove(0);
        assert_eq!((&measured["head"], &measured["device"]), (&"mos".into(), &"flex".into()));
        for key in ["params", "tokens", "median_ms", "tokens_per_s", "gflops", "of_ceiling", "loss"] {
            assert!(measured[key].as_f64().is_some_and(|value| value > 0.0), "{key} in {measured}");
        }
    }
}

#[test]
fn recorded_runs_are_compared() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let line = |who: &str, ms: u32| {
        format!(r#"{{"what":"mos","who":"{who}","round":1,"result":{{"median_ms":{ms},"tokens_per_s":1}}}}"#)
    };
    fs::write(path.join("runs.jsonl"), [line("highrank", 10), line("peer", 20)].join("\n")).unwrap();
    let output = run(path, "bench-report runs.jsonl --plot speeds.svg");
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && table.contains("| mos | 1 | 10.0 |"), "{table}");
    assert!(table.contains("**2.00** (2.00 – 2.00)"), "{table}");
    assert!(fs::read_to_string(path.join("speeds.svg")).unwrap().contains("mos / peer"));
    refused(path, "bench-report nowhere.jsonl", &["cannot read `nowhere.jsonl`"]);
}
