//! The programs that measure, and the table of what they measured.

#[path = "../../crates/cli/tests/cli/harness.rs"]
mod harness;

use std::fs;

use harness::{Folder, Program};

const HEAD: Program = Program(env!("CARGO_BIN_EXE_head_throughput"));
const STEP: Program = Program(env!("CARGO_BIN_EXE_step_throughput"));
const TRANSFORMER: Program = Program(env!("CARGO_BIN_EXE_transformer_step"));
const REPORT: Program = Program(env!("CARGO_BIN_EXE_bench_report"));

#[test]
fn a_training_step_is_timed() {
    let path = &Folder::empty();
    let small = "--preset small --vocab 50 --repeats 1 --device cpu";
    for part in ["step", "lstm"] {
        let measured = STEP.objects(path, &format!("{small} --part {part} --json")).remove(0);
        assert_eq!((&measured["preset"], &measured["device"]), (&"small".into(), &"flex".into()));
        for key in ["parameters", "tokens", "median_ms", "tokens_per_s"] {
            assert!(measured[key].as_f64().is_some_and(|value| value > 0.0), "{key} in {measured}");
        }
    }
    STEP.refused(path, &format!("{small} --repeats 0").replace("--repeats 1 ", ""), &["--repeats is 0"]);
    // Before training, clusters of words are not equally probable.
    assert_eq!(STEP.objects(path, &format!("{small} --head adaptive --json"))[0]["head"], "adaptive");
    STEP.refused(path, &format!("{small} --threads 0"), &["--threads is 0", "at least 1"]);
    STEP.refused(path, &format!("{small} --threads 100000"), &["--threads is 100000", "at most 1024"]);
    for vocab in [usize::MAX, 1 << 50] {
        STEP.refused(path, &format!("--device cpu --vocab {vocab}"), &["parameters"]);
    }
    STEP.refused(path, &format!("{small} --threads two"), &["--threads", "two"]);
    STEP.refused(path, &format!("{small} --precision bf15"), &["bf15", "bf16"]);
    STEP.refused(path, "--device nonsense", &["unknown device `nonsense`", "auto, flex"]);
    let alone = STEP.objects(path, &format!("{small} --threads 1 --precision bf16 --json")).remove(0);
    assert_eq!((&alone["threads"], &alone["precision"]), (&1.into(), &"bf16".into()));
}

#[test]
fn a_step_of_a_transformer_is_timed_with_either_layer() {
    let path = &Folder::empty();
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
    let most = usize::MAX;
    for option in ["vocab", "d-model", "depth", "context", "batch", "head mos --components"] {
        TRANSFORMER.refused(path, &format!("--device cpu --{option} {most}"), &[]);
    }
    TRANSFORMER.refused(path, "--device cpu --batch 1099511627776", &["the size of a step", "2^40"]);
}

#[test]
fn an_output_head_is_timed() {
    let path = &Folder::empty();
    let small = |head: &str| {
        format!("--head {head} --tokens 8 --d-hidden 6 --d-embedding 4 --vocab 20 --components 2")
    };
    let refused = |head: &str, more: &str, expected: &[&str]| {
        HEAD.refused(path, &format!("{} {more}", small(head)), expected);
    };
    HEAD.refused(path, &small("mos").replace("--tokens 8", "--tokens 0"), &["--tokens is 0"]);
    HEAD.refused(path, "--device nonsense", &["unknown device `nonsense`", "auto, flex"]);
    refused("softmix", "", &["unknown head `softmix`", "soft-cap, monotonic-net"]);
    refused("mos", "--repeats 0", &["--repeats is 0"]);
    refused("mos", "--layers burn", &["--layers burn has no mos", "--head softmax"]);
    refused("mos", "--mode nll --options smoothing", &["--options", "--mode step"]);
    refused("softmax", "--layers burn --options z-loss", &["--layers burn", "--options plain"]);
    refused("mos", "--k 3", &["--k is given", "--mode top-k"]);
    for k in ["0", "21"] {
        let expected = format!("--k is {k}");
        refused("mos", &format!("--mode top-k --k {k}"), &[&expected, "vocabulary's 20"]);
    }
    refused("mos", "--d-lower 5", &["--d-lower is given", "only --head doc"]);
    refused("mos", "--lower-components 1", &["--lower-components is given", "not mos"]);
    refused("mos", "--frequent 5", &["--frequent is given", "only --head mixtape"]);
    refused("mos", "--d-gate 5", &["--d-gate is given", "not mos"]);
    refused("softmax", "--activation linear", &["--activation is given", "softmax head"]);
    refused("mos", "--activation relu", &["unknown activation `relu`"]);
    refused("mixtape", "--frequent 20", &["frequent is 20", "fewer than the 20 words"]);
    refused("mixtape", "--d-gate 0", &["d_gate is 0"]);
    for head in ["mixtape", "softmax"] {
        refused(head, "--options prior-cv", &["--options prior-cv needs priors", head]);
    }
    refused("doc", "--d-lower 5 --lower-components 0", &["components of a layer is 0"]);
    refused("mos", "--division 2", &["--division is given", "no clusters"]);
    refused("mos", "--cutoffs 5,20", &["the cutoffs are [5, 20]", "below the vocabulary's 20"]);
    refused("mos", "--cutoffs 5 --division 0.5", &["division of the tails' widths is 0.5"]);
    refused("mos", "--cutoffs 5 --options smoothing", &["--options smoothing needs every word"]);
    refused("mos", "--targets zipf --options weights", &["--targets zipf has only"]);
    refused("softmax", "--cutoffs 5 --layers burn", &["--layers burn has no clusters"]);
    refused("softmax", "--layers burn --precision bf16", &["--layers burn has no --precision bf16"]);
    refused("softmax", "--layers burn --memory-budget 1000", &["--layers burn", "--memory-budget"]);
    refused("mos", "--threads 0", &["--threads is 0"]);
    refused("mos", "--dtype f8", &["--dtype", "f32, bf16"]);
    refused("soft-cap", "--cap 0", &["cap"]);
    refused("soft-cap", "--cap -1", &["cap"]);
    refused("mos", "--threads 100000", &["--threads is 100000", "at most 1024"]);
    let (most, large) = (usize::MAX, 1usize << 39);
    for option in ["tokens", "d-hidden", "d-embedding", "vocab", "components"] {
        let line = |size: usize| format!("--head mos --device cpu --{option} {size}");
        HEAD.refused(path, &line(most), &[&format!("--{option} is {most}"), "at most 2^40"]);
        HEAD.refused(path, &line(large), &["at most 2^40"]);
    }
    for more in ["plif --knots", "monotonic-net --units", "doc --d-lower", "doc --lower-components"] {
        HEAD.refused(path, &format!("--device cpu --head {more} {most}"), &["at most 2^40"]);
    }
    refused("monotonic-net", "--units 0", &["units is 0"]);
    if cfg!(feature = "ndarray") {
        refused("mos", "--device ndarray --threads 2", &["--threads", "flex", "ndarray"]);
        refused("mos", "--device ndarray --dtype bf16", &["--dtype is bf16", "ndarray"]);
    }
    // Without optimisation the large product that it is compared with takes minutes.
    if !cfg!(debug_assertions) {
        let options = "--activation linear --threads 1 --repeats 1 --device cpu --json";
        let measured = HEAD.objects(path, &format!("{} {options}", small("mos"))).remove(0);
        assert_eq!((&measured["head"], &measured["device"]), (&"mos".into(), &"flex".into()));
        assert_eq!((&measured["activation"], &measured["threads"]), (&"linear".into(), &1.into()));
        for key in ["params", "tokens", "median_ms", "tokens_per_s", "gflops", "of_ceiling", "loss"] {
            assert!(measured[key].as_f64().is_some_and(|value| value > 0.0), "{key} in {measured}");
        }
    }
}

#[test]
fn recorded_runs_are_compared() {
    let path = &Folder::empty();
    let line = |who: &str, ms: u32| {
        format!(r#"{{"what":"mos","who":"{who}","round":1,"result":{{"median_ms":{ms},"tokens_per_s":1}}}}"#)
    };
    fs::write(path.join("runs.jsonl"), [line("highrank", 10), line("peer", 20)].join("\n")).unwrap();
    let table = REPORT.text(path, "runs.jsonl --plot speeds.svg");
    assert!(table.contains("| mos | f32 | 1 | 10.0 |"), "{table}");
    assert!(table.contains("**2.00** (2.00 – 2.00)"), "{table}");
    assert!(fs::read_to_string(path.join("speeds.svg")).unwrap().contains("mos, f32 / peer"));
    // Of several files, one table.
    let other = [line("highrank", 30), line("another peer", 30)].join("\n");
    fs::write(path.join("more.jsonl"), other).unwrap();
    let table = REPORT.text(path, "runs.jsonl more.jsonl");
    assert!(table.contains("| peer | 20.0 |") && table.contains("| another peer | 30.0 |"), "{table}");
    REPORT.refused(path, "runs.jsonl --plot speeds.svg", &["`speeds.svg` exists already", "--force"]);
    REPORT.text(path, "runs.jsonl --plot speeds.svg --force");
    // Under another name, too.
    for recording in ["runs.jsonl", "./runs.jsonl"] {
        let expected = format!("`{recording}` is one of the recordings");
        REPORT.refused(path, &format!("runs.jsonl --plot {recording} --force"), &[&expected]);
    }
    assert!(fs::read_to_string(path.join("runs.jsonl")).unwrap().contains("median_ms"));
    fs::write(path.join("zero.jsonl"), [line("highrank", 10), line("peer", 0)].join("\n")).unwrap();
    REPORT.refused(path, "zero.jsonl --plot zero.svg", &["`zero.jsonl` line 2", "median_ms is 0"]);
    REPORT.refused(path, "", &["<RUNS>"]);
    REPORT.refused(path, "nowhere.jsonl", &["cannot read `nowhere.jsonl`"]);
}
