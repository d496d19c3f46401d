//! Beam search over a first-order chain, by its table as a tensor on the device.

use burn::tensor::Tensor;
use highrank::{BeamSearch, Hypothesis};

use crate::backends::Setting;
use crate::case::Case;
use crate::compare::{Report, Tolerance};

pub fn check(case: &Case, on: &Setting, report: &mut Report) {
    let size = |name: &str| case.number(name) as usize;
    let search = BeamSearch::new(size("beam"), size("max_length"), size("eos"))
        .with_n_best(size("n_best"))
        .with_alpha(case.number("alpha"));
    let (start, transition) = (case.array("start"), case.array("transition"));

    // The last row, one after those of the words, is for the first word. Two contexts at a time.
    let table = Tensor::cat(vec![transition.tensor::<2>(on), start.tensor::<1>(on).unsqueeze()], 0);
    let first = start.values.len();
    let found =
        search.search(2, (), |live, ()| (table.clone().select(0, live.last_words(first, &on.device)), ()));
    for found in &found.expect("a search with the options of its case") {
        compare("device", case, found, on, report);
    }
}

fn compare(path: &str, case: &Case, found: &[Hypothesis], on: &Setting, report: &mut Report) {
    let longest = case.number("max_length") as usize;
    let exact = |report: &mut Report, name: &str, got: Vec<f64>| {
        report.compare_scaled(&format!("{path} {name}"), &got, case.array(name), 0.0);
    };
    let padded = |hypothesis: &Hypothesis| {
        let words: Vec<f64> = hypothesis.words.iter().map(|&word| word as f64).collect();
        words.into_iter().chain(std::iter::repeat(-1.0)).take(longest).collect::<Vec<_>>()
    };
    exact(report, "sequences", found.iter().flat_map(padded).collect());
    exact(report, "lengths", found.iter().map(|h| h.words.len() as f64).collect());
    exact(report, "finished", found.iter().map(|h| f64::from(u8::from(h.finished))).collect());
    let tolerance = Tolerance::new(&case.entry, on);
    let log_probs: Vec<f64> = found.iter().map(|h| h.log_prob).collect();
    let scores = found.iter().map(|h| h.score).collect();
    for (name, got) in [("log_probs", log_probs), ("scores", scores)] {
        report.compare(&format!("{path} {name}"), &got, case.array(name), tolerance.value(name));
    }
}
