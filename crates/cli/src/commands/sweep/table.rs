//! The results of a sweep as lines, as a table, and as pictures.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use program::failure::Failure;
use program::picture;
use program::statistics::{grouped, mean_and_spread_text};
use runs::Error;
use runs::files::replace;
use runs::text::comma_list;

use crate::commands::sweep::cells::{self, Cell, Quantity};
use crate::commands::sweep::grid::Axis;
use crate::commands::sweep::marks::Marks;
use crate::commands::sweep::outcome::{Outcome, RESULTS};
use crate::commands::sweep::pictures::AxisPicture;

/// Where a cell of the table has nothing to show.
const NOTHING: &str = "–";

/// Writes `results.jsonl` to `folder`.
pub fn save_lines(outcomes: &[Outcome], folder: &Path) -> Result<(), Failure> {
    let lines = outcomes.iter().map(|outcome| Ok(serde_json::to_string(outcome)? + "\n"));
    let lines = lines.collect::<Result<String, serde_json::Error>>()?;
    Ok(replace(&folder.join(RESULTS), lines.as_bytes())?)
}

/// Writes `table.md` to `folder`, and pictures: `by-SETTING` for every setting of several numbers, or, where there is none or every head
/// has but one combination of values in the end, `perplexities`. Pictures of the other kind, of the sweep as it was before it went further,
/// are removed.
pub fn save(outcomes: &[Outcome], axes: &[Axis], is_one_a_head: bool, folder: &Path) -> Result<(), Failure> {
    replace(&folder.join("table.md"), table(outcomes, axes).as_bytes())?;
    if outcomes.iter().all(|outcome| outcome.trained.is_none()) {
        return Ok(());
    }
    let numeric = || axes.iter().filter(|axis| axis.is_numeric());
    let by = |axis: &Axis| folder.join(format!("by-{}", axis.flag));
    if is_one_a_head || numeric().count() == 0 {
        axes.iter().try_for_each(|axis| remove(&by(axis)))?;
        return picture::save(&Marks::new(outcomes), &folder.join("perplexities"));
    }
    remove(&folder.join("perplexities"))?;
    axes.iter().filter(|axis| !axis.is_numeric()).try_for_each(|axis| remove(&by(axis)))?;
    // Early on, there may be one value yet, or none.
    for (axis, picture) in numeric().filter_map(|axis| Some((axis, AxisPicture::new(outcomes, axis)?))) {
        picture::save(&picture, &by(axis))?;
    }
    Ok(())
}

/// Removes the picture of a stem, if there is one.
fn remove(stem: &Path) -> Result<(), Failure> {
    let path = stem.with_added_extension("svg");
    match fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::io("remove", &path)(error).into()),
        _ => Ok(()),
    }
}

/// A Markdown table with one line a head and combination of values: means over seeds, with the standard deviation where there are
/// several. Runs that failed are named below it.
pub fn table(outcomes: &[Outcome], axes: &[Axis]) -> String {
    let cells = Cell::all(outcomes);
    // The titles, and the texts in every line.
    let mut columns: Vec<(String, Vec<String>)> = vec![];
    let mut column = |title: &str, of: &dyn Fn(&Cell) -> String| {
        columns.push((title.to_string(), cells.iter().map(of).collect()));
    };
    column("head", &|cell| cell.head().to_string());
    // Parameters and the sizes that everything has are shown anyway.
    let hidden = ["parameters", "d-embedding", "components"];
    for axis in axes.iter().filter(|axis| !hidden.contains(&axis.flag.as_str())) {
        column(&axis.flag, &|cell| cell.first().setting(&axis.flag).unwrap_or(NOTHING).to_string());
    }
    column("sizes", &|cell| cell.first().sizes());
    column("parameters", &|cell| grouped(cell.first().parameters));
    column("seeds", &|cell| {
        comma_list(cell.runs.iter().filter(|run| run.trained.is_some()).map(|run| run.seed))
    });
    let has = |of: Quantity| outcomes.iter().any(|outcome| of(outcome).is_some());
    let numbers = |of: Quantity, digits: usize| {
        move |cell: &Cell| match cell.values(of) {
            values if values.is_empty() => NOTHING.to_string(),
            values => mean_and_spread_text(&values, digits),
        }
    };
    column("train perplexity", &numbers(|run| run.trained.as_ref()?.train_ppl, 2));
    column("valid perplexity", &numbers(cells::valid_ppl, 2));
    let optional: [(&str, Quantity); 3] = [
        ("test perplexity", cells::test_ppl),
        ("finetuned valid", cells::finetuned_valid_ppl),
        ("finetuned test", |run| run.finetuned.as_ref()?.test_ppl),
    ];
    for (title, of) in optional {
        if has(of) {
            column(title, &numbers(of, 2));
        }
    }
    if let Some(rank) = outcomes.iter().find_map(|outcome| outcome.rank.as_ref()) {
        let title = format!("rank, {} contexts, {}", grouped(rank.rank_contexts), rank.rank_precision);
        column(&title, &numbers(cells::rank, 0));
    }
    let seconds: Quantity = |run| Some(run.trained.as_ref()?.seconds);
    let digits = usize::from(outcomes.iter().filter_map(seconds).all(|seconds| seconds < 100.0));
    column("seconds", &numbers(seconds, digits));
    column("tokens/s", &numbers(|run| run.trained.as_ref()?.tokens_per_s, 0));
    let failures = outcomes.iter().filter_map(|outcome| Some((&outcome.run, outcome.failed.as_ref()?)));
    let failures: String = failures.map(|(run, reason)| format!("\nFailed: `{run}`: {reason}\n")).collect();
    let line = |parts: Vec<&str>| format!("| {} |\n", parts.join(" | "));
    let mut text = line(columns.iter().map(|(title, _)| title.as_str()).collect());
    text += &line(columns.iter().map(|_| "---").collect());
    for row in 0..cells.len() {
        text += &line(columns.iter().map(|(_, texts)| texts[row].as_str()).collect());
    }
    text + &failures
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::commands::sweep::marks::is_one_a_head;
    use crate::commands::sweep::outcome::{Rank, Trained};
    use awd_lstm::HeadKind;

    pub fn outcome(head: HeadKind, settings: &[(&str, &str)], seed: u64, test_ppl: f64) -> Outcome {
        let trained = Trained {
            epochs: 3,
            best_epoch: 3,
            train_ppl: Some(test_ppl - 2.0),
            valid_ppl: test_ppl + 1.0,
            test_ppl: Some(test_ppl),
            tokens_per_s: Some(1000.0),
            seconds: 7.0,
        };
        Outcome {
            run: format!("{head}-s{seed}"),
            head,
            seed,
            settings: settings.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect(),
            parameters: 1_234_567,
            d_embedding: 30,
            lstm_sizes: vec![64, 30],
            components: head.is_mixture().then_some(5),
            trained: Some(trained),
            finetuned: None,
            rank: None,
            failed: None,
            exact: None,
        }
    }

    #[test]
    fn a_line_a_cell_with_mean_and_spread() {
        let mut outcomes = [
            outcome(HeadKind::Mos, &[("lr", "5")], 28, 10.0),
            outcome(HeadKind::Softmax, &[], 28, 20.0),
            outcome(HeadKind::Mos, &[("lr", "5")], 29, 12.0),
        ];
        let text = table(&outcomes, &[Axis::new("lr", ["5", "6"])]);
        assert_eq!(
            text,
            "| head | lr | sizes | parameters | seeds | train perplexity | valid perplexity | test perplexity | seconds | tokens/s |\n\
             | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n\
             | mos | 5 | d 30, LSTM 64, 30, K 5 | 1,234,567 | 28, 29 | 9.00 ± 1.41 | 12.00 ± 1.41 | 11.00 ± 1.41 | 7.0 ± 0.0 | 1000 ± 0 |\n\
             | softmax | – | d 30, LSTM 64, 30 | 1,234,567 | 28 | 18.00 | 21.00 | 20.00 | 7.0 | 1000 |\n"
        );
        outcomes[0].rank = Some(Rank { rank: 40, rank_contexts: 1200, rank_precision: "f64".into() });
        outcomes[0].finetuned = outcomes[0].trained.clone();
        outcomes[1].trained = None;
        outcomes[1].failed = Some("too hot".into());
        let text = table(&outcomes, &[]);
        assert!(text.contains("| finetuned valid | finetuned test | rank, 1,200 contexts, f64 |"), "{text}");
        assert!(text.contains("| 11.00 | 10.00 | 40 |") && text.contains("|  | – | – |"), "{text}");
        assert!(text.ends_with("\n\nFailed: `softmax-s28`: too hot\n"), "{text}");
    }

    #[test]
    fn results_are_written_with_their_pictures() {
        let of = |axes: &[Axis], outcomes: &[Outcome], is_one_a_head: bool| {
            let folder = tempfile::tempdir().unwrap();
            // Of the sweep as it was before it went further.
            let stale = if is_one_a_head { "by-lr.svg" } else { "perplexities.svg" };
            if outcomes.iter().any(|outcome| outcome.trained.is_some()) && !axes.is_empty() {
                for name in [stale, "by-precision.svg"] {
                    fs::write(folder.path().join(name), "").unwrap();
                }
            }
            save_lines(outcomes, folder.path()).unwrap();
            save(outcomes, axes, is_one_a_head, folder.path()).unwrap();
            let names = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
            let mut names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
            names.sort();
            names.join(" ")
        };
        let plain = [outcome(HeadKind::Mos, &[], 28, 10.0), outcome(HeadKind::Softmax, &[], 28, 20.0)];
        assert_eq!(of(&[], &plain, true), "perplexities.svg results.jsonl table.md");
        let by_lr = |lr| outcome(HeadKind::Mos, &[("lr", lr), ("precision", "full")], 28, 10.0);
        let axes = [Axis::new("lr", ["5", "6"]), Axis::new("precision", ["full", "bf16"])];
        assert_eq!(of(&axes, &[by_lr("5"), by_lr("6")], false), "by-lr.svg results.jsonl table.md");
        // The first of several runs leaves no picture of another kind.
        assert_eq!(of(&axes, &[by_lr("5")], false), "results.jsonl table.md");
        // Each head has a setting of its own.
        let chosen = [by_lr("5"), outcome(HeadKind::Softmax, &[("lr", "6")], 28, 20.0)];
        let settings = chosen.iter().map(|outcome| (outcome.head, &outcome.settings));
        assert!(
            is_one_a_head(settings.clone()) && !is_one_a_head(settings.chain([(HeadKind::Mos, &vec![])]))
        );
        assert_eq!(of(&axes, &chosen, true), "perplexities.svg results.jsonl table.md");
        let failed = Outcome { trained: None, failed: Some("too hot".into()), ..plain[0].clone() };
        assert_eq!(of(&axes, &[failed], true), "results.jsonl table.md");
    }

    #[test]
    fn lines_of_results_are_flat_objects() {
        let outcome = Outcome {
            rank: Some(Rank { rank: 40, rank_contexts: 1200, rank_precision: "f64".into() }),
            ..outcome(HeadKind::Mos, &[("lr", "0.5"), ("components", "5"), ("lstm", "9,8")], 28, 10.0)
        };
        let value = serde_json::to_value(&outcome).unwrap();
        assert_eq!((&value["test_ppl"], &value["rank"]), (&10.0.into(), &40.into()));
        assert_eq!(value["settings"], serde_json::json!({ "lr": 0.5, "components": 5, "lstm": "9,8" }));
        assert!(value.get("finetuned").is_none() && value.get("failed").is_none());
    }
}
