//! The tables of heads under a transformer.

use crate::tables::{Runs, Table, row};

pub const TABLES: [Table; 1] = [("transformers-search", search)];

/// The heads in the order of the tables, by their name in the file.
const HEADS: [(&str, &str); 5] = [
    ("softmax", "softmax"),
    ("plif", "PLIF, 1,000 knots"),
    ("moc", "MoC, K 4"),
    ("mos", "MoS, K 4"),
    ("multi-facet", "multi-facet MoS, K 4"),
];

fn stage(name: &str) -> Runs {
    Runs::read("transformers").filter(|run| run["stage"] == name)
}

fn variant(runs: &Runs, name: &str) -> Runs {
    runs.filter(|run| run["variant"] == name)
}

fn widths(runs: &Runs) -> Vec<f64> {
    let mut widths = runs.each("d_model");
    widths.sort_by(f64::total_cmp);
    widths.dedup();
    widths
}

/// Validation perplexity after 1,000 steps at each learning rate.
fn search() -> Vec<String> {
    let all = stage("search");
    let lines = widths(&all).into_iter().flat_map(|width| {
        let runs = all.number("d_model", width);
        HEADS.map(|(name, shown)| {
            let runs = variant(&runs, name);
            let mut rates = runs.each("lr");
            rates.sort_by(f64::total_cmp);
            let of = rates.iter().map(|rate| runs.number("lr", *rate).same("valid_ppl"));
            let best = of.clone().fold(f64::INFINITY, f64::min);
            let cells = of.map(|ppl| if ppl == best { format!("**{ppl:.2}**") } else { format!("{ppl:.2}") });
            row(&[format!("{width}"), shown.to_string()].into_iter().chain(cells).collect::<Vec<_>>())
        })
    });
    lines.collect()
}
