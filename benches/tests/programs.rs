//! The programs that measure, and the table of what they measured.

#[path = "../../crates/cli/tests/harness.rs"]
mod harness;

use std::fs;

use harness::Program;

const HEAD: Program = Program(env!("CARGO_BIN_EXE_head_throughput"));
const STEP: Program = Program(env!("CARGO_BIN_EXE_step_throughput"));
const TRANSFORMER: Program = Program(env!("CARGO_BIN_EXE_transformer_step"));
const REPORT: Program = Program(env!("CARGO_BIN_EXE_bench_report"));

#[test]
fn a_training_step_is_timed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let small = "--preset small --vocab 50 --repeats 1 --device cpu";
    for part in ["step", "lstm"] {
        let measured = STEP.objects(path, &format!("{small} --part {part} --json")).remove(0);
        assert_eq!((&measured["preset"], &measured["device"]), (&"small".into(), &"flex".into()));
        for key in ["parameters", "tokens", "median_ms", "tokens_per_s"] {
            assert!(measured[key].as_f64().is_some_and(|value| value > 0.0), "{key} in {measured}");
        }
    }
    STEP.refused(path, &format!("{small} --repeats 0").replace("--repeats 1 ", ""), &["--repeats is 0"]);
    STEP.refused(path, &format!("{small} --threads 0"), &["--threads is 0", "at least 1"]);
    STEP.refused(path, &format!("{small} --threads two"), &["--threads", "two"]);
    STEP.refused(path, &format!("{small} --precision bf15"), &["bf15", "bf16"]);
    STEP.refused(path, "--device nonsense", &["unknown device `nonsense`", "auto, flex"]);
    let alone = STEP.objects(path, &format!("{small} --threads 1 --precision bf16 --json")).remove(0);
    assert_eq!((&alone["threads"], &alone["precision"]), (&1.into(), &"bf16".into()));
}

#[test]
fn a_step_of_a_transformer_is_timed_with_either_layer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let small = "--vocab 50 --d-model 8 --depth 1 --context 8 --batch 4 --repeats 1 --device cpu";
    let measured = ["--layers burn", "--layers fused", "--head mos"]
        .map(|more| TRANSFORMER.objects(path, &format!("{small} {more} --json")).remove(0));
    for object in &measured {
        assert!(object["median_ms"].as_f64().unwrap() > 0.0 && object["tokens"] == 32, "{object}");
        // Small weights cannot be far from the uniform distribution.
        assert!((object["loss"].as_f64().unwrap() - 50f64.ln()).abs() < 0.3, "{object}");
    }
    let [burn, fused] = [0, 1].map(|index: usize| measured[index]["loss"].as_f64().unwrap());
    assert!((burn - fused).abs() < 1e-4, "{burn} {fused}");
    TRANSFORMER.refused(path, &format!("{small} --layers burn --head mos"), &["--layers burn has no mos"]);
    TRANSFORMER.refused(path, &format!("{small} --head plif"), &["must be softmax, moc or mos"]);
    TRANSFORMER.refused(path, "--repeats 0", &["repeats is 0"]);
}

#[test]
fn an_output_head_is_timed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let small = "--head mos --tokens 8 --d-hidden 6 --d-embedding 4 --vocab 20 --components 2";
    HEAD.refused(path, &format!("{small} --repeats 0"), &["--repeats is 0"]);
    HEAD.refused(path, &small.replace("--tokens 8", "--tokens 0"), &["--tokens is 0"]);
    HEAD.refused(path, &format!("{small} --layers burn"), &["--layers burn has no mos", "--head softmax"]);
    HEAD.refused(path, &format!("{small} --mode nll --options smoothing"), &["--options", "--mode step"]);
    let softmax = small.replace("--head mos", "--head softmax");
    HEAD.refused(
        path,
        &format!("{softmax} --layers burn --options z-loss"),
        &["--layers burn", "--options plain"],
    );
    HEAD.refused(path, &format!("{small} --k 3"), &["--k is given", "--mode top-k"]);
    for k in ["0", "21"] {
        HEAD.refused(
            path,
            &format!("{small} --mode top-k --k {k}"),
            &[&format!("--k is {k}"), "vocabulary's 20"],
        );
    }
    HEAD.refused(path, &format!("{small} --d-lower 5"), &["--d-lower is given", "only --head doc"]);
    HEAD.refused(path, &format!("{small} --lower-components 1"), &["--lower-components is given", "not mos"]);
    HEAD.refused(path, &format!("{small} --frequent 5"), &["--frequent is given", "only --head mixtape"]);
    HEAD.refused(path, &format!("{small} --d-gate 5"), &["--d-gate is given", "not mos"]);
    HEAD.refused(path, &format!("{softmax} --activation linear"), &["--activation is given", "softmax head"]);
    HEAD.refused(path, &format!("{small} --activation relu"), &["unknown activation `relu`"]);
    let linear = HEAD.objects(path, &format!("{small} --activation linear --repeats 1 --json")).remove(0);
    assert_eq!((&linear["head"], &linear["activation"]), (&"mos".into(), &"linear".into()));
    let gated = small.replace("--head mos", "--head mixtape");
    HEAD.refused(
        path,
        &format!("{gated} --frequent 20"),
        &["20 words have a gate of their own", "there are 20"],
    );
    HEAD.refused(path, &format!("{gated} --d-gate 0"), &["d_gate is 0"]);
    HEAD.refused(
        path,
        &format!("{gated} --options prior-cv"),
        &["--options prior-cv needs priors", "mixtape"],
    );
    let connected = small.replace("--head mos", "--head doc --d-lower 5");
    HEAD.refused(path, &format!("{connected} --lower-components 0"), &["components of a layer is 0"]);
    HEAD.refused(
        path,
        &format!("{softmax} --options prior-cv"),
        &["--options prior-cv needs priors", "softmax"],
    );
    HEAD.refused(path, &format!("{small} --division 2"), &["--division is given", "no clusters"]);
    HEAD.refused(path, &format!("{small} --cutoffs 5,20"), &["the cutoffs are [5, 20]", "from 1 to 19"]);
    HEAD.refused(
        path,
        &format!("{small} --cutoffs 5 --division 0.5"),
        &["division of the tails' widths is 0.5"],
    );
    HEAD.refused(
        path,
        &format!("{small} --cutoffs 5 --options smoothing"),
        &["--options smoothing needs every word"],
    );
    HEAD.refused(path, &format!("{small} --targets zipf --options weights"), &["--targets zipf has only"]);
    HEAD.refused(path, &format!("{softmax} --cutoffs 5 --layers burn"), &["--layers burn has no clusters"]);
    HEAD.refused(path, &format!("{small} --threads 0"), &["--threads is 0"]);
    HEAD.refused(path, "--device nonsense", &["unknown device `nonsense`", "auto, flex"]);
    HEAD.refused(path, &format!("{small} --dtype f8"), &["--dtype", "f32, bf16"]);
    let unknown = small.replace("--head mos", "--head softmix");
    HEAD.refused(path, &unknown, &["unknown head `softmix`", "soft-cap, monotonic-net"]);
    let headed = |head: &str| softmax.replace("--head softmax", head);
    HEAD.refused(path, &headed("--head soft-cap --cap 0"), &["cap"]);
    HEAD.refused(path, &headed("--head monotonic-net --units 0"), &["units is 0"]);
    if cfg!(feature = "ndarray") {
        let other = format!("{small} --device ndarray");
        HEAD.refused(path, &format!("{other} --threads 2"), &["--threads", "flex", "ndarray"]);
        HEAD.refused(path, &format!("{other} --dtype bf16"), &["--dtype is bf16", "ndarray"]);
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
            let measured = HEAD.objects(path, &softmax.replace("--head softmax", more)).remove(0);
            assert!(measured["median_ms"].as_f64().is_some_and(|ms| ms > 0.0), "{measured}");
            let dtype = if more.contains("--dtype bf16") { "bf16" } else { "f32" };
            assert_eq!(measured["dtype"], dtype, "{measured}");
            if more.contains("--threads 1") {
                assert_eq!(measured["threads"], 1);
            }
        }
        let measured = HEAD.objects(path, &format!("{small} --repeats 1 --device cpu --json")).remove(0);
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
    let output = REPORT.run(path, "runs.jsonl --plot speeds.svg");
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && table.contains("| mos | f32 | 1 | 10.0 |"), "{table}");
    assert!(table.contains("**2.00** (2.00 – 2.00)"), "{table}");
    assert!(fs::read_to_string(path.join("speeds.svg")).unwrap().contains("mos, f32 / peer"));
    // Of several files, one table.
    let other = [line("highrank", 30), line("another peer", 30)].join("\n");
    fs::write(path.join("more.jsonl"), other).unwrap();
    let output = REPORT.run(path, "runs.jsonl more.jsonl");
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("| peer | 20.0 |") && table.contains("| another peer | 30.0 |"), "{table}");
    REPORT.refused(path, "", &["<RUNS>"]);
    REPORT.refused(path, "nowhere.jsonl", &["cannot read `nowhere.jsonl`"]);
}
