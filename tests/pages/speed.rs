//! The table of speeds beside PyTorch, from the recorded runs.

use serde_json::Value;

const ROWS: [(&str, &str); 12] = [
    ("product, 2048³", "matrix product alone, 2048³"),
    ("step, softmax", "step, softmax"),
    ("step, moc", "step, MoC"),
    ("step, sigsoftmax", "step, sigsoftmax"),
    ("step, plif", "step, PLIF"),
    ("step, mos", "step, MoS"),
    ("nll, softmax", "nll, softmax"),
    ("nll, mos", "nll, MoS"),
    ("top-k, mos", "ten best words, MoS"),
    ("three LSTM layers", "three LSTM layers"),
    ("paper step, softmax", "`paper` step, softmax"),
    ("paper step, mos", "`paper` step, MoS"),
];

/// The files of the machines, and whether they were measured in bf16 too.
const MACHINES: [(&str, bool); 3] =
    [("2026-11-22-epyc-2-cores", true), ("2026-11-24-intel-amx", true), ("2026-11-28-amd-avx2", false)];

/// The lines of the table: our milliseconds and how many times as fast that is, on each machine in each precision.
pub fn speed() -> Vec<String> {
    let machines =
        MACHINES.map(|(name, bf16)| (crate::read_lines(&format!("benches/results/{name}.jsonl")), bf16));
    let line = |(what, name): (&str, &str)| {
        let cells = machines.iter().flat_map(|(runs, bf16)| {
            let precisions = [("full", "PyTorch"), ("bf16", "PyTorch, bf16")];
            precisions
                .into_iter()
                .take(1 + usize::from(*bf16))
                .map(|(precision, peer)| cell(runs, what, precision, peer))
        });
        format!("| {name} | {} |", cells.collect::<Vec<_>>().join(" | "))
    };
    ROWS.map(line).to_vec()
}

/// Medians of the runs that were made right before the peer's.
fn cell(runs: &[Value], what: &str, precision: &str, peer: &str) -> String {
    let milliseconds = |run: &Value| run["result"]["median_ms"].as_f64().unwrap();
    let is_meant = |pair: &&[Value]| {
        let ours = &pair[0]["result"];
        let exact = ours["dtype"].is_null() || ours["dtype"] == "f32";
        pair[0]["who"] == "highrank"
            && pair[1]["who"] == peer
            && pair[1]["what"] == what
            && exact
            && ours["precision"] == precision
    };
    let pairs: Vec<_> = runs.windows(2).filter(is_meant).collect();
    if pairs.is_empty() {
        return "–".into();
    }
    let ours = median(pairs.iter().map(|pair| milliseconds(&pair[0])).collect());
    let ratio = median(pairs.iter().map(|pair| milliseconds(&pair[1]) / milliseconds(&pair[0])).collect());
    let digits = usize::from(ours < 100.0);
    format!("{ours:.digits$}, **{ratio:.2}**")
}

/// The middle value, halfway between the two middle ones of an even number.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    f64::midpoint(values[(values.len() - 1) / 2], values[values.len() / 2])
}
