//! BLEU of responses, and its tables.

use std::collections::HashSet;

use seq2seq::metrics::{BleuForm, BleuMean, BleuScores, mean_length};
use serde::Serialize;

/// How good responses are, as means over contexts.
#[derive(Debug, Clone, Serialize)]
pub struct Scores {
    pub contexts: usize,
    /// Mean number of words of a response.
    pub mean_length: f64,
    /// Number of different best responses.
    pub distinct_best: usize,
    pub bleu: BleuForm,
    /// Against the true response alone.
    pub single: BleuScores,
    /// Against several references, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub references: Option<BleuScores>,
    /// Mean number of these references.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_references: Option<f64>,
}

impl Scores {
    /// The scores of the responses to each context. A context's references begin with the true response; `several` says whether
    /// there are others.
    pub fn new<'a>(
        form: BleuForm,
        several: bool,
        of_contexts: impl IntoIterator<Item = (Vec<&'a [u32]>, &'a [Vec<u32>])>,
    ) -> Self {
        let (mut single, mut all) = (BleuMean::new(form), BleuMean::new(form));
        let (mut words, mut references, mut best) = (Vec::new(), 0, HashSet::new());
        for (responses, of_context) in of_contexts {
            single.add(&responses, &of_context[..1]);
            if several {
                all.add(&responses, of_context);
            }
            references += of_context.len();
            best.extend(responses.first().copied());
            words.extend(responses);
        }
        let contexts = single.contexts();
        Self {
            contexts,
            mean_length: mean_length(words).unwrap_or_default(),
            distinct_best: best.len(),
            bleu: form,
            single: single.scores().unwrap_or_default(),
            references: all.scores(),
            mean_references: several.then(|| references as f64 / contexts.max(1) as f64),
        }
    }

    /// A table with a line for each kind of references.
    pub fn table(&self) -> String {
        let title = format!("BLEU ({})", self.bleu);
        let mut table = line(&title, &std::array::from_fn(|order| format!("BLEU-{} p / r", order + 1)));
        table += &line("true response", &cells(&self.single));
        if let (Some(scores), Some(references)) = (&self.references, self.mean_references) {
            table += &line(&format!("{references:.1} references"), &cells(scores));
        }
        table
    }
}

fn line(title: &str, cells: &[String; 4]) -> String {
    let cells: String = cells.iter().map(|cell| format!(" {cell:>14}")).collect();
    format!("{title:<22}{cells}\n")
}

/// Precision and recall of every order, such as `.072 / .276`.
fn cells(scores: &BleuScores) -> [String; 4] {
    std::array::from_fn(|order| {
        format!("{} / {}", digits(scores.precision[order]), digits(scores.recall[order]))
    })
}

/// Three digits after the point, and none before it below 1.
fn digits(value: f64) -> String {
    let text = format!("{value:.3}");
    text.strip_prefix('0').unwrap_or(&text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_tables_are_means_over_contexts() {
        let references = [vec![vec![7, 8, 9], vec![5]], vec![vec![6]]];
        let responses: [&[&[u32]]; 2] = [&[&[5], &[7, 8, 9]], &[&[5], &[5, 5]]];
        let of_contexts = || responses.iter().map(|of| of.to_vec()).zip(references.iter().map(Vec::as_slice));
        let scores = Scores::new(BleuForm::FourOrders, true, of_contexts());
        assert_eq!((scores.contexts, scores.distinct_best), (2, 1));
        assert_eq!((scores.mean_length, scores.mean_references), (7.0 / 4.0, Some(1.5)));
        // One of two responses is the true one in the first context, none in the second.
        assert!((scores.single.precision[0] - 1.0 / 3.0).abs() < 1e-12, "{scores:?}");
        assert!((scores.single.recall[0] - 2.0 / 3.0).abs() < 1e-12, "{scores:?}");
        // Of two references both are found: 4/3 for three words, 1 for a single one.
        let all = scores.references.unwrap();
        assert!((all.recall[0] - (4.0 / 3.0 + 1.0) / 4.0).abs() < 1e-12, "{scores:?}");
        assert_eq!(all.precision[0], all.recall[0]);
        let lines: Vec<String> = scores.table().lines().map(String::from).collect();
        assert!(
            lines[0].starts_with("BLEU (four_orders)") && lines[0].ends_with("BLEU-4 p / r"),
            "{lines:?}"
        );
        assert!(lines[1].contains(".333 / .667") && lines[2].starts_with("1.5 references"), "{lines:?}");

        let scores = Scores::new(BleuForm::FourOrders, false, of_contexts());
        assert_eq!((scores.references, scores.table().lines().count()), (None, 2));
        assert_eq!(digits(4.0 / 3.0), "1.333");
    }
}
