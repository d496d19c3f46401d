//! The tables of heads under a transformer.

use crate::tables::{Runs, Table, grouped, row};

pub const TABLES: [Table; 4] = [
    ("transformers", heads),
    ("transformers-curves", curves),
    ("transformers-continued", continued),
    ("transformers-causes", causes),
];

/// The heads in the order of the tables, by their name in the file.
const HEADS: [(&str, &str); 5] = [
    ("softmax", "softmax"),
    ("plif", "PLIF, 1,000 knots"),
    ("moc", "MoC, K 4"),
    ("mos", "MoS, K 4"),
    ("multi-facet", "multi-facet MoS, K 4"),
];

const CAUSES: [(&str, &str); 16] = [
    ("mos", "MoS, K 4: linear contexts that start at the softmax, spread 0.02"),
    ("mos-tanh", "tanh contexts, random start (the papers')"),
    ("mos-random", "random start"),
    ("mos-residual", "residual contexts"),
    ("mos-spread-0", "spread 0"),
    ("mos-spread-0.1", "spread 0.1"),
    ("mos-decay-0", "no weight decay (0.01 elsewhere)"),
    ("mos-decay-0.1", "weight decay 0.1"),
    ("mos-2", "K 2"),
    ("mos-8", "K 8"),
    ("mos-plif", "and a PLIF of 1,000 knots"),
    ("softmax-untied", "a softmax with a decoder of its own"),
    ("mos-untied", "a decoder of its own"),
    ("facets-1", "K 1 over facets of three layers at three positions"),
    ("multi-facet-3x1", "facets of three layers at the token itself"),
    ("multi-facet-1x3", "facets of the last layer at three positions"),
];

fn stage(name: &str) -> Runs {
    Runs::read("transformers").filter(|run| run["stage"] == name)
}

fn variant(runs: &Runs, name: &str) -> Runs {
    runs.filter(|run| run["variant"] == name)
}

/// `−4.1 %`.
fn percent(value: f64, base: f64) -> String {
    let percent = 100.0 * (value / base - 1.0);
    format!("{}{:.1} %", if percent < 0.0 { "−" } else { "+" }, percent.abs())
}

fn widths(runs: &Runs) -> Vec<f64> {
    let mut widths = runs.each("d_model");
    widths.sort_by(f64::total_cmp);
    widths.dedup();
    widths
}

fn heads() -> Vec<String> {
    let all = stage("heads");
    let lines = widths(&all).into_iter().flat_map(|width| {
        let runs = all.number("d_model", width);
        let base = variant(&runs, "softmax").mean("test_ppl");
        HEADS.map(|(name, shown)| {
            let runs = variant(&runs, name);
            assert_eq!(runs.each("seed").len(), 3, "{name} at width {width}");
            row(&[
                format!("{width}"),
                shown.to_string(),
                grouped(runs.same("parameters")),
                format!("{}", runs.same("lr")),
                runs.spread("valid_ppl"),
                runs.spread("test_ppl"),
                if name == "softmax" { "–".to_string() } else { percent(runs.mean("test_ppl"), base) },
            ])
        })
    });
    lines.collect()
}

/// Validation perplexity over steps, the mean over seeds.
fn curves() -> Vec<String> {
    let all = stage("heads");
    let lines = widths(&all).into_iter().flat_map(|width| {
        let runs = all.number("d_model", width);
        HEADS.map(|(name, shown)| {
            let runs = variant(&runs, name);
            let at = |round: usize| format!("{:.1}", runs.mean(&format!("curve.{round}")));
            row(&[format!("{width}"), shown.to_string(), at(0), at(1), at(3), at(5), at(7), at(9)])
        })
    });
    lines.collect()
}

fn continued() -> Vec<String> {
    let (all, before) = (stage("continue"), stage("heads").number("seed", 28.0));
    let lines = widths(&all).into_iter().flat_map(|width| {
        let runs = all.number("d_model", width);
        let before = variant(&before.number("d_model", width), "softmax").same("test_ppl");
        let base = variant(&runs, "softmax").same("test_ppl");
        HEADS.map(|(name, shown)| {
            let runs = variant(&runs, name);
            let test = runs.same("test_ppl");
            row(&[
                format!("{width}"),
                shown.to_string(),
                format!("{before:.2}"),
                format!("{:.2}", runs.same("valid_ppl")),
                format!("{test:.2}"),
                if name == "softmax" { "–".to_string() } else { percent(test, base) },
            ])
        })
    });
    lines.collect()
}

fn causes() -> Vec<String> {
    let all = stage("causes");
    let mut lines = vec![];
    for width in widths(&all) {
        let runs = all.number("d_model", width);
        let base = variant(&stage("heads").number("seed", 28.0).number("d_model", width), "mos");
        let test = base.same("test_ppl");
        for (name, shown) in CAUSES {
            let runs = if name == "mos" { base.clone() } else { variant(&runs, name) };
            lines.push(row(&[
                format!("{width}"),
                shown.to_string(),
                format!("{:.2}", runs.same("valid_ppl")),
                format!("{:.2}", runs.same("test_ppl")),
                if name == "mos" { "–".to_string() } else { percent(runs.same("test_ppl"), test) },
            ]));
        }
    }
    lines
}
