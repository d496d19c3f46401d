//! Help texts, and the commands that measure.

use std::fs;

use super::{objects, refused, run};
use serde_json::json;

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
        "sweep",
        "ablation",
        "runs",
        "generate",
        "import",
        "export",
        "synthetic",
        "head-throughput",
        "step-throughput",
        "slowdown",
        "theorems",
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
    refused(path, &format!("{small} --threads 0"), &["--threads is 0", "at least 1"]);
    refused(path, &format!("{small} --threads two"), &["--threads", "two"]);
    refused(path, &format!("{small} --precision bf15"), &["bf15", "bf16"]);
    let alone = objects(path, &format!("{small} --threads 1 --precision bf16 --json")).remove(0);
    assert_eq!((&alone["threads"], &alone["precision"]), (&1.into(), &"bf16".into()));
}

#[test]
fn a_mixture_is_timed_beside_a_softmax() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let line =
        "slowdown --text small --vocab 50 --repeats 1 --device cpu --components 2,3 --batches 2,5 --json";
    let rows = objects(path, &format!("{line} --out pictures"));
    let settings: Vec<_> = rows.iter().map(|row| (&row["batch"], &row["components"])).collect();
    let all = [(2, 2), (2, 3), (5, 2), (5, 3)];
    assert_eq!(format!("{settings:?}"), format!("{:?}", all.map(|(b, k)| (json!(b), json!(k)))));
    for row in &rows {
        let speed = |key: &str| row[key].as_f64().unwrap();
        let slowdown = speed("softmax_tokens_per_s") / speed("tokens_per_s");
        assert!((slowdown / speed("slowdown") - 1.0).abs() < 1e-12 && slowdown > 0.0, "{row}");
        assert_eq!(row["published"], json!([]));
    }
    let picture = fs::read_to_string(path.join("pictures/slowdown.svg")).unwrap();
    assert!(picture.contains("batch 5") && path.join("pictures/slowdown.png").exists());
    refused(path, "slowdown --repeats 0", &["--repeats is 0"]);
    refused(path, "slowdown --components 0 --repeats 1", &["components is 0"]);
}

#[test]
fn theorems_are_measured_and_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let lines = objects(path, "theorems --only powers,plif,entropy --out pictures --json");
    let names: Vec<_> = lines.iter().map(|line| line["theorem"].as_str().unwrap()).collect();
    assert_eq!(names, ["powers", "plif", "entropy"]);
    for line in &lines {
        assert_eq!(line["holds"], true, "{line}");
    }
    for name in names {
        for kind in ["svg", "png"] {
            assert!(path.join(format!("pictures/{name}.{kind}")).metadata().unwrap().len() > 1000);
        }
    }
    let text = String::from_utf8(run(path, "theorems --only powers").stdout).unwrap();
    assert!(text.contains("56 (56)") && text.contains("holds"), "{text}");
    refused(path, "theorems --only lemma", &["unknown theorem `lemma`", "rank, floor, entropy"]);
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
    refused(path, &format!("{small} --k 3"), &["--k is given", "--mode top-k"]);
    for k in ["0", "21"] {
        refused(path, &format!("{small} --mode top-k --k {k}"), &[&format!("--k is {k}"), "vocabulary's 20"]);
    }
    refused(path, &format!("{small} --d-lower 5"), &["--d-lower is given", "only --head doc"]);
    refused(path, &format!("{small} --lower-components 1"), &["--lower-components is given", "not mos"]);
    refused(path, &format!("{small} --frequent 5"), &["--frequent is given", "only --head mixtape"]);
    refused(path, &format!("{small} --d-gate 5"), &["--d-gate is given", "not mos"]);
    let gated = small.replace("--head mos", "--head mixtape");
    refused(path, &format!("{gated} --frequent 20"), &["20 words have a gate of their own", "there are 20"]);
    refused(path, &format!("{gated} --d-gate 0"), &["d_gate is 0"]);
    refused(path, &format!("{gated} --options prior-cv"), &["--options prior-cv needs priors", "mixtape"]);
    let connected = small.replace("--head mos", "--head doc --d-lower 5");
    refused(path, &format!("{connected} --lower-components 0"), &["components of a layer is 0"]);
    refused(path, &format!("{softmax} --options prior-cv"), &["--options prior-cv needs priors", "softmax"]);
    refused(path, &format!("{small} --division 2"), &["--division is given", "no clusters"]);
    refused(path, &format!("{small} --cutoffs 5,20"), &["the cutoffs are [5, 20]", "from 1 to 19"]);
    refused(path, &format!("{small} --cutoffs 5 --division 0.5"), &["division of the tails' widths is 0.5"]);
    refused(
        path,
        &format!("{small} --cutoffs 5 --options smoothing"),
        &["--options smoothing needs every word"],
    );
    refused(path, &format!("{small} --targets zipf --options weights"), &["--targets zipf has only"]);
    refused(path, &format!("{softmax} --cutoffs 5 --layers burn"), &["--layers burn has no clusters"]);
    refused(path, &format!("{small} --threads 0"), &["--threads is 0"]);
    refused(path, &format!("{small} --dtype f8"), &["--dtype", "f32, bf16"]);
    let unknown = small.replace("--head mos", "--head softmix");
    refused(path, &unknown, &["unknown head `softmix`", "soft-cap, monotonic-net"]);
    let headed = |head: &str| softmax.replace("--head softmax", head);
    refused(path, &headed("--head soft-cap --cap 0"), &["cap"]);
    refused(path, &headed("--head monotonic-net --units 0"), &["units is 0"]);
    if cfg!(feature = "ndarray") {
        let other = format!("{small} --device ndarray");
        refused(path, &format!("{other} --threads 2"), &["--threads", "flex", "ndarray"]);
        refused(path, &format!("{other} --dtype bf16"), &["--dtype is bf16", "ndarray"]);
    }
    // Without optimisation the large product that it is compared with takes minutes.
    if !cfg!(debug_assertions) {
        let softmax = format!("{softmax} --repeats 1 --device cpu --json");
        for more in [
            "--head soft-cap --cap 5",
            "--head monotonic-net --units 3",
            "--head gss --precision bf16",
            "--head doc --d-lower 5 --lower-components 1 --options prior-cv",
            "--head mixtape --frequent 7 --d-gate 3",
            "--head mixtape --mode top-k --k 5",
            "--head adaptive --targets zipf",
            "--head adaptive --mode decode",
            "--head adaptive --cutoffs 4,9 --division 2 --mode log-probs",
            "--head mos --cutoffs 4 --mode nll --targets zipf",
            "--head softmax --dtype bf16 --threads 1",
            "--head softmax --mode top-k --k 20",
            "--head plif --knots 8 --mode decode",
        ] {
            let measured = objects(path, &softmax.replace("--head softmax", more)).remove(0);
            assert!(measured["median_ms"].as_f64().is_some_and(|ms| ms > 0.0), "{measured}");
            let dtype = if more.contains("--dtype bf16") { "bf16" } else { "f32" };
            assert_eq!(measured["dtype"], dtype, "{measured}");
            if more.contains("--threads 1") {
                assert_eq!(measured["threads"], 1);
            }
        }
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
    assert!(output.status.success() && table.contains("| mos | f32 | 1 | 10.0 |"), "{table}");
    assert!(table.contains("**2.00** (2.00 – 2.00)"), "{table}");
    assert!(fs::read_to_string(path.join("speeds.svg")).unwrap().contains("mos, f32 / peer"));
    // Of several files, one table.
    let other = [line("highrank", 30), line("another peer", 30)].join("\n");
    fs::write(path.join("more.jsonl"), other).unwrap();
    let output = run(path, "bench-report runs.jsonl more.jsonl");
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("| peer | 20.0 |") && table.contains("| another peer | 30.0 |"), "{table}");
    refused(path, "bench-report", &["<RUNS>"]);
    refused(path, "bench-report nowhere.jsonl", &["cannot read `nowhere.jsonl`"]);
}
