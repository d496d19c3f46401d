//! Sentence BLEU, precision and recall against reference values that were computed with 60 digits.
//!
//! `HIGHRANK_GOLDEN_DIR=DIR cargo test --test bleu` reads the `expected.json` of another folder. A folder of the heads' cases, with a
//! `manifest.json` instead, changes nothing here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use seq2seq::metrics::{BleuForm, BleuMean, BleuScores, ORDERS, sentence_bleu};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The largest difference from a reference value, of BLEU and of scores alike.
const TOLERANCE: f64 = 1e-12;

#[derive(Deserialize)]
struct Expected {
    cases: Vec<Case>,
    set: Set,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    hypotheses: Vec<Vec<String>>,
    references: Vec<Vec<String>>,
    orders: Vec<usize>,
    #[serde(flatten)]
    values: Values,
    #[serde(default)]
    variants: BTreeMap<String, Values>,
}

/// What is expected of one form, by order.
#[derive(Deserialize)]
struct Values {
    bleu: BTreeMap<String, Vec<Vec<f64>>>,
    #[serde(flatten)]
    scores: Scores,
}

#[derive(Deserialize)]
struct Scores {
    precision: BTreeMap<String, f64>,
    recall: BTreeMap<String, f64>,
}

#[derive(Deserialize)]
struct Set {
    #[serde(flatten)]
    scores: Scores,
    #[serde(default)]
    variants: BTreeMap<String, Scores>,
}

fn folder() -> PathBuf {
    let given = std::env::var_os("HIGHRANK_GOLDEN_DIR").map(PathBuf::from);
    let own = || Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let of_heads =
        |folder: &Path| folder.join("manifest.json").exists() && !folder.join("expected.json").exists();
    given.filter(|folder| !of_heads(folder)).unwrap_or_else(own)
}

fn read<T: DeserializeOwned>(name: &str) -> T {
    let path = folder().join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The place of an order, such as `"1"`, in a list of all.
fn index(order: &str) -> usize {
    let order: usize = order.parse().expect("an order is a number");
    assert!((1..=ORDERS).contains(&order), "order {order}");
    order - 1
}

/// Compares values and counts them.
#[derive(Default)]
struct Report {
    compared: usize,
    failures: Vec<String>,
}

impl Report {
    fn compare(&mut self, what: &str, value: f64, expected: f64) {
        self.compared += 1;
        // A NaN is not close.
        let close = (value - expected).abs() <= TOLERANCE;
        if !close {
            self.failures.push(format!("{what}: {value} instead of {expected}"));
        }
    }

    fn scores(&mut self, what: &str, scores: BleuScores, expected: &Scores) {
        for (name, values, expected) in [
            ("precision", scores.precision, &expected.precision),
            ("recall", scores.recall, &expected.recall),
        ] {
            assert!(!expected.is_empty(), "{what} has no {name}");
            for (order, &expected) in expected {
                self.compare(&format!("{what} {name} {order}"), values[index(order)], expected);
            }
        }
    }

    fn case(&mut self, case: &Case, form: BleuForm, expected: &Values) {
        let what = format!("{}, {form}", case.name);
        for &order in &case.orders {
            let order = order.to_string();
            let rows = &expected.bleu[&order];
            assert_eq!(rows.len(), case.hypotheses.len(), "{what}");
            for (hypothesis, row) in case.hypotheses.iter().zip(rows) {
                assert_eq!(row.len(), case.references.len(), "{what}");
                for (reference, &expected) in case.references.iter().zip(row) {
                    let bleu = sentence_bleu(hypothesis, reference, form)[index(&order)];
                    self.compare(&format!("{what} bleu {order}"), bleu, expected);
                }
            }
        }
        let scores = BleuScores::of_context(&case.hypotheses, &case.references, form);
        self.scores(&what, scores.expect("every case has both"), &expected.scores);
    }
}

/// Checks everything in `expected`.
fn check(expected: &Expected) -> Report {
    let mut report = Report::default();
    for case in &expected.cases {
        report.case(case, BleuForm::FourOrders, &case.values);
        for (form, values) in &case.variants {
            report.case(case, form.parse().expect("a known form"), values);
        }
    }
    let variants =
        expected.set.variants.iter().map(|(form, scores)| (form.parse().expect("a known form"), scores));
    for (form, scores) in std::iter::once((BleuForm::FourOrders, &expected.set.scores)).chain(variants) {
        let mut mean = BleuMean::new(form);
        expected.cases.iter().for_each(|case| mean.add(&case.hypotheses, &case.references));
        report.scores(&format!("set, {form}"), mean.scores().expect("a case"), scores);
    }
    report
}

#[test]
fn every_case_agrees_with_the_reference() {
    let expected: Expected = read("expected.json");
    assert!(!expected.cases.is_empty());
    let report = check(&expected);
    println!("{}: {} cases, {} values compared", folder().display(), expected.cases.len(), report.compared);
    assert!(
        report.failures.is_empty(),
        "{} mismatches:\n{}",
        report.failures.len(),
        report.failures.join("\n")
    );
}

#[test]
fn a_wrong_value_is_reported() {
    let damages: [fn(&mut Expected); 4] = [
        |expected| expected.cases[0].values.bleu.get_mut("2").unwrap()[0][0] += 1e-11,
        |expected| *expected.cases[0].values.scores.recall.get_mut("4").unwrap() += 1e-11,
        |expected| *expected.set.scores.precision.get_mut("1").unwrap() = f64::NAN,
        |expected| {
            for case in &mut expected.cases {
                for values in case.variants.values_mut() {
                    *values.scores.precision.get_mut("3").unwrap() += 1e-11;
                }
            }
        },
    ];
    for (number, damage) in damages.into_iter().enumerate() {
        let mut expected: Expected = read("expected.json");
        damage(&mut expected);
        let wrong = if number < 3 { 1 } else { expected.cases.iter().map(|case| case.variants.len()).sum() };
        assert_eq!(check(&expected).failures.len(), wrong, "damage {number}");
    }
}
