//! The tables, one for each search and kind of references.

use runs::text::comma_list;
use seq2seq::metrics::BleuScores;

use super::cells::{Cell, different_settings};
use super::outcome::Outcome;
use super::published::{NOTE, TABLE_4};
use crate::commands::dialog::held_out::Searched;
use crate::commands::dialog::scores::{Scores, cells as bleu_cells};
use crate::markdown::{Column, aligned};
use crate::statistics::{grouped, mean_and_spread_text};

/// What stands where a line has nothing to show.
const NOTHING: &str = "–";

/// A kind of references: what it is called, and its scores.
type Against = (String, fn(&Scores) -> Option<BleuScores>);

/// A table for each search and each kind of references, each with a title.
pub fn text(cells: &[Cell], published: bool) -> String {
    let first = cells[0].first();
    let mut text = String::new();
    let mut searches: Vec<fn(&Outcome) -> &Searched> = vec![of_search];
    if first.by_length.is_some() {
        searches.push(of_search_by_length);
    }
    for of in searches {
        let searched = of(first);
        let mark = if searched.alpha > 0.0 { "Length-normalised. " } else { "" };
        for (against, bleu) in kinds(&searched.scores) {
            text += &format!(
                "{mark}BLEU ({}) against {against}: {}, {} contexts\n\n{}\n",
                searched.scores.bleu,
                searched.text(),
                grouped(searched.scores.contexts),
                aligned(&columns(cells, of, bleu, published)),
            );
        }
    }
    text += "p / r: precision and recall; length: mean words of a response; different: different best responses; tokens/s: \
             response tokens a second in training";
    if cells.iter().any(|cell| cell.runs.len() > 1) {
        text += "; ±: standard deviation over seeds, a difference within which is none";
    }
    text.push('\n');
    if published {
        text += &format!("{NOTE}\n");
    }
    text
}

fn of_search(outcome: &Outcome) -> &Searched {
    &outcome.searched
}

/// The search by length, which all runs have or none.
fn of_search_by_length(outcome: &Outcome) -> &Searched {
    outcome.by_length.as_ref().unwrap_or(&outcome.searched)
}

fn kinds(scores: &Scores) -> Vec<Against> {
    let mut kinds: Vec<Against> = vec![("the true response alone".into(), |scores| Some(scores.single))];
    if let Some(references) = scores.mean_references {
        kinds.push((format!("{references:.1} references a context"), |scores| scores.references));
    }
    kinds
}

fn columns(
    cells: &[Cell],
    searched: fn(&Outcome) -> &Searched,
    bleu: fn(&Scores) -> Option<BleuScores>,
    published: bool,
) -> Vec<Column> {
    let lines = if published { &TABLE_4[..] } else { &[] };
    let mut columns: Vec<Column> = vec![];
    let mut column = |title: &str, of: &dyn Fn(&Cell) -> String, published: Vec<String>| {
        let nothing = std::iter::repeat_n(NOTHING.to_string(), lines.len() - published.len());
        columns.push((title.to_string(), cells.iter().map(of).chain(published).chain(nothing).collect()));
    };
    let number =
        |of: &dyn Fn(&Outcome) -> f64, cell: &Cell, digits| mean_and_spread_text(&cell.values(of), digits);
    column(
        "head",
        &|cell| cell.first().line.head.to_string(),
        lines.iter().map(|line| line.head.to_string()).collect(),
    );
    column(
        "K",
        &|cell| cell.first().line.components.map_or(NOTHING.into(), |count| count.to_string()),
        vec![],
    );
    column("d", &|cell| cell.first().d_latent.to_string(), vec![]);
    for name in different_settings(cells) {
        column(&name, &|cell| cell.setting(&name), vec![]);
    }
    column("parameters", &|cell| grouped(cell.first().parameters), vec![]);
    column("seeds", &|cell| comma_list(cell.values(|run| run.seed)), vec![]);
    column(
        "test perplexity",
        &|cell| number(&|run| run.perplexities.test_ppl, cell, 2),
        lines.iter().map(|line| format!("{:.2}", line.ppl)).collect(),
    );
    let of_lines: Vec<[String; 4]> = lines.iter().map(|line| bleu_cells(&[line.bleu])).collect();
    for order in 0..4 {
        column(
            &format!("BLEU-{} p / r", order + 1),
            &|cell| {
                let scores = cell.values(|run| bleu(&searched(run).scores).unwrap_or_default());
                bleu_cells(&scores)[order].clone()
            },
            of_lines.iter().map(|cells| cells[order].clone()).collect(),
        );
    }
    column("length", &|cell| number(&|run| searched(run).scores.mean_length, cell, 2), vec![]);
    column("different", &|cell| number(&|run| searched(run).scores.distinct_best as f64, cell, 0), vec![]);
    column(
        "tokens/s",
        &|cell| {
            let speeds: Option<Vec<f64>> = cell.values(|run| run.train_tokens_per_s).into_iter().collect();
            speeds.map_or(NOTHING.into(), |speeds| mean_and_spread_text(&speeds, 0))
        },
        vec![],
    );
    columns
}
