//! Results on standard output: JSON lines, and bits per character beside perplexities. Lines about the work on standard error.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::Write;

use serde::Serialize;

/// Metrics with bits per character beside them.
#[derive(Debug, Serialize)]
pub struct WithBits<'a, T> {
    #[serde(flatten)]
    metrics: &'a T,
    #[serde(flatten)]
    bits: BTreeMap<&'static str, f64>,
}

/// Metrics with bits per character under the given names for some perplexities, if tokens are `characters`.
pub fn with_bits<'a, T>(metrics: &'a T, characters: bool, ppls: &[(&'static str, f64)]) -> WithBits<'a, T> {
    let bits = ppls.iter().filter(|_| characters).map(|&(name, ppl)| (name, ppl.log2())).collect();
    WithBits { metrics, bits }
}

/// Bits per character as the end of a line about perplexities, if tokens are `characters`.
pub fn bits_text(characters: bool, ppls: &[(&str, f64)]) -> String {
    if !characters {
        return String::new();
    }
    let bits: Vec<String> = ppls.iter().map(|(name, ppl)| format!("{name} {:.4}", ppl.log2())).collect();
    format!(", bits per character {}", bits.join(", "))
}

/// Prints `value` as one line of JSON on standard output, at once.
pub fn print_json(value: &impl Serialize) {
    let line = serde_json::to_string(value).expect("metrics are plain numbers and names");
    let mut out = std::io::stdout().lock();
    // A reader that went away is no reason to stop training.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Prints one line on standard error, at once: other processes write there too, and `mpirun` passes on what it has read.
pub fn print_note(line: impl Display) {
    // A terminal that was closed is no reason to stop before work is saved.
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}
