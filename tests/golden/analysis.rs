//! Rank, pairwise divergence and mode match.

use burn::tensor::DType;
use highrank::analysis::{AgainstTruth, PairwiseKl, RowAnalysis, Spectrum, SpectrumBuilder, kl_divergence};

use crate::backends::Setting;
use crate::case::Case;
use crate::compare::Report;
use crate::head;

/// What sums of a few hundred terms of order 1 may be off by in f64, over their largest magnitude.
const ROUNDING: f64 = 1e-13;

/// The spectrum and ranks of the stored matrix, decomposed as a whole and in blocks, and those of the log-probabilities
/// that the backend computes from the stored head.
pub fn check_rank(case: &Case, on: &Setting, report: &mut Report) {
    let matrix = case.array("matrix");
    let columns = matrix.shape[1];
    let whole = Spectrum::of(&matrix.values, columns).expect("a spectrum");
    let blocks = |values: &[f64]| {
        let mut builder = SpectrumBuilder::new(columns);
        values.chunks(7 * columns).for_each(|rows| builder.add_rows(rows).expect("finite rows"));
        builder.finish().expect("a spectrum")
    };
    compare_spectrum("decomposed as a whole", case, &whole, report);
    compare_spectrum("decomposed in blocks", case, &blocks(&matrix.values), report);

    let Some(spec) = case.entry.hyperparameters.get("head_spec") else { return };
    let mut of_head = case.clone();
    of_head.entry.head = spec["head"].as_str().map(Into::into);
    of_head.entry.hyperparameters = spec.clone();
    let Some(head) = head::load(&of_head, on, report) else { return };
    let mut builder = SpectrumBuilder::new(columns);
    for block in head.log_prob_blocks(case.tensor::<2>("hidden", on)) {
        builder.add(block).expect("finite rows");
    }
    let spectrum = builder.finish().expect("a spectrum");
    match on.dtype {
        DType::F64 => compare_spectrum("from the head", case, &spectrum, report),
        _ => {
            let rank = [spectrum.rank(f32::EPSILON as f64) as f64];
            report.compare("rank_f32 from the head", &rank, case.array("rank_f32"), 0.0);
        }
    }
}

fn compare_spectrum(how: &str, case: &Case, spectrum: &Spectrum, report: &mut Report) {
    let want = case.array("singular_values");
    // Below this everything is rounding noise.
    let threshold = case.array("threshold_f64").values[0];
    let counted = want.iter().take_while(|value| **value > threshold).count();
    let (name, got) = (format!("singular_values {how}"), &spectrum.singular_values[..counted]);
    report.compare_scaled(&name, got, &want[..counted], 8.0 * threshold);
    for (name, epsilon) in [("f64", f64::EPSILON), ("f32", f32::EPSILON as f64)] {
        let rank = [spectrum.rank(epsilon) as f64];
        report.compare(&format!("rank_{name} {how}"), &rank, case.array(&format!("rank_{name}")), 0.0);
        let threshold = case.array(&format!("threshold_{name}"));
        let (got, error) = ([spectrum.threshold(epsilon)], 1e-12 * threshold[0]);
        report.compare_scaled(&format!("threshold_{name} {how}"), &got, threshold, error);
    }
}

/// Every pair by itself and both means, streamed.
pub fn check_pairwise(case: &Case, report: &mut Report) {
    let log_probs = case.array("log_probs");
    let columns = log_probs.shape[1];
    let rows = || log_probs.values.chunks(columns);
    let pairs: Vec<f64> = rows().flat_map(|p| rows().map(move |q| kl_divergence(p, q))).collect();
    report.compare("kl", &pairs, case.array("kl"), ROUNDING);

    let mut divergence = PairwiseKl::new(columns);
    log_probs.values.chunks(3 * columns).for_each(|block| divergence.add_rows(block).expect("finite rows"));
    let distinct = divergence.finish().expect("a mean");
    let all = distinct * (pairs.len() as f64 - log_probs.shape[0] as f64) / pairs.len() as f64;
    for (name, mean) in [("mean_distinct_pairs", distinct), ("mean_all_pairs", all)] {
        report.compare(name, &[mean], case.array(name), ROUNDING);
    }
}

/// Both modes of every row, their matches and the rate.
pub fn check_modes(case: &Case, report: &mut Report) {
    let (truth, model) = (case.array("true_log_probs"), case.array("model_log_probs"));
    let columns = truth.shape[1];
    let rate = |truth: &[f64], model: &[f64]| {
        let mut fit = AgainstTruth::new(columns);
        fit.add_rows(truth, model).expect("finite rows");
        fit.finish().expect("rows").mode_match
    };
    for (name, rows) in [("true_mode", truth), ("model_mode", model)] {
        // A truth that is certain of a word is matched by the rows whose mode that is.
        let of_row = |(row, mode): (&[f64], &f64)| {
            let certain = |word| if word == *mode as usize { 0.0 } else { f64::NEG_INFINITY };
            rate(&(0..columns).map(certain).collect::<Vec<_>>(), row)
        };
        let modes = &case.array(name).values;
        let matched: Vec<f64> = rows.values.chunks(columns).zip(modes).map(of_row).collect();
        report.compare(name, &matched, &vec![1.0; modes.len()], 0.0);
    }
    let pairs = truth.values.chunks(columns).zip(model.values.chunks(columns));
    let rates: Vec<f64> = pairs.map(|(truth, model)| rate(truth, model)).collect();
    report.compare("match", &rates, case.array("match"), 0.0);
    report.compare("rate", &[rate(&truth.values, &model.values)], case.array("rate"), 1e-15);
}
