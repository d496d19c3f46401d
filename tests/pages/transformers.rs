//! The tables of heads under a transformer.

use crate::tables::{Runs, Table, analysis_line, grouped, percent, row};

pub const TABLES: [Table; 7] = [
    ("transformers-search", search),
    ("transformers", heads),
    ("transformers-curves", curves),
    ("transformers-causes", causes),
    ("transformers-time", time),
    ("transformers-defaults", defaults),
    ("transformers-analysis", analysis),
];

/// The texts in the order of the tables, by their name in the file.
const TEXTS: [(&str, &str); 2] = [("ptb", "PTB"), ("wikitext-2", "WikiText-2")];

/// The heads in the order of the tables, by their name in the file.
const HEADS: [(&str, &str); 7] = [
    ("softmax", "softmax"),
    ("plif", "PLIF, 1,000 knots"),
    ("moc", "MoC, K 4"),
    ("mos", "MoS, K 4"),
    ("facets-1", "facets, K 1"),
    ("facets-2", "facets, K 2"),
    ("multi-facet", "facets, K 4"),
];

/// What differs from one line of the table of causes to the next, by the name and the stage in the file.
const CAUSES: [(&str, &str, &str); 19] = [
    ("mos-tanh", "causes", "tanh contexts that start at random: the papers' MoS"),
    ("mos-random", "causes", "linear contexts that start at random"),
    ("mos-residual", "causes", "residual contexts, `h + tanh(W h + b)`"),
    ("mos", "heads", "linear contexts that start at the softmax: MoS, K 4"),
    ("mos-spread-0", "causes", "the same, no noise between the components"),
    ("mos-spread-0.1", "causes", "the same, noise of 0.1 in place of 0.02"),
    ("mos-2", "causes", "the same, K 2"),
    ("mos-8", "causes", "the same, K 8"),
    ("mos-plif", "causes", "the same, and a PLIF"),
    ("mos-decay-0", "causes", "the same, no weight decay in place of 0.01"),
    ("mos-decay-0.1", "causes", "the same, a weight decay of 0.1"),
    ("mos-untied", "causes", "the same, a decoder of its own"),
    ("facets-1", "heads", "facets: three layers at three positions, K 1"),
    ("facets-2", "heads", "the same, K 2"),
    ("multi-facet", "heads", "the same, K 4"),
    ("multi-facet-1x3", "causes", "the same, one layer at three positions"),
    ("multi-facet-3x1", "causes", "the same, three layers at one position"),
    ("softmax", "heads", "softmax"),
    ("softmax-untied", "causes", "the same, a decoder of its own"),
];

fn stage(name: &str, text: &str) -> Runs {
    Runs::read("transformers").filter(|run| run["stage"] == name && run["text"] == text)
}

fn variant(runs: &Runs, name: &str) -> Runs {
    runs.filter(|run| run["variant"] == name)
}

/// A line for each text, width and head of a stage; `cells` makes the rest of it from the runs of the width, and those of the head.
fn lines(of: &str, cells: impl Fn(&Runs, &Runs) -> Vec<String>) -> Vec<String> {
    let mut lines = Vec::new();
    for (text, shown_text) in TEXTS {
        let all = stage(of, text);
        let mut widths = all.each("d_model");
        widths.sort_by(f64::total_cmp);
        widths.dedup();
        for width in widths {
            let runs = all.number("d_model", width);
            for (name, shown) in HEADS.into_iter().filter(|(name, _)| runs.has("variant", name)) {
                let first = [shown_text.to_string(), width.to_string(), shown.to_string()];
                lines.push(row(first.into_iter().chain(cells(&runs, &variant(&runs, name)))));
            }
        }
    }
    lines
}

/// The rates of the search, a column each.
const RATES: [f64; 5] = [0.001, 0.002, 0.004, 0.008, 0.016];

/// Validation perplexity after 1,000 steps at each learning rate.
fn search() -> Vec<String> {
    lines("search", |_, runs| {
        let rates = runs.each("lr");
        let of = RATES.map(|rate| rates.contains(&rate).then(|| runs.number("lr", rate).same("valid_ppl")));
        assert_eq!(of.iter().flatten().count(), rates.len(), "a rate without a column among {rates:?}");
        let best = of.iter().flatten().copied().fold(f64::INFINITY, f64::min);
        let cell = |ppl: Option<f64>| match ppl {
            Some(ppl) if ppl == best => format!("**{ppl:.2}**"),
            Some(ppl) => format!("{ppl:.2}"),
            None => "–".into(),
        };
        of.map(cell).to_vec()
    })
}

fn heads() -> Vec<String> {
    lines("heads", |of_width, runs| {
        vec![
            grouped(runs.same("parameters")),
            runs.same("lr").to_string(),
            runs.each("seed").len().to_string(),
            runs.spread("valid_ppl"),
            runs.spread("test_ppl"),
            percent(runs.mean("test_ppl"), variant(of_width, "softmax").mean("test_ppl")),
        ]
    })
}

/// Validation perplexity over steps, the mean over seeds.
fn curves() -> Vec<String> {
    lines("heads", |_, runs| {
        let at = |round: usize| format!("{:.1}", runs.mean(&format!("curve.{round}")));
        [0, 1, 3, 5, 7, 9].map(at).to_vec()
    })
}

fn causes() -> Vec<String> {
    let runs =
        |name: &str, of: &str| variant(&stage(of, "ptb").number("d_model", 64.0).number("seed", 28.0), name);
    let base = runs("mos", "heads").same("test_ppl");
    let line = |(name, of, shown): (&str, &str, &str)| {
        let runs = runs(name, of);
        let (valid, test) = (runs.same("valid_ppl"), runs.same("test_ppl"));
        let (valid, over) = (format!("{valid:.2}"), percent(test, base));
        row([shown.to_string(), runs.same("lr").to_string(), valid, format!("{test:.2}"), over])
    };
    CAUSES.map(line).to_vec()
}

/// From scratch and from a trained softmax at width 128, and longer trainings of which some take as long as other heads.
fn time() -> Vec<String> {
    let of = |name: &str| stage(name, "ptb").number("d_model", 128.0);
    let starts = [of("heads"), of("continue")];
    let base = starts.each_ref().map(|runs| variant(runs, "softmax"));
    let step = |name: &str| variant(&of("step"), name).same("seconds");
    let line = |name: &str, runs: &[Runs]| {
        let steps = runs[0].same("steps");
        let time = step(name) * steps / (step("softmax") * base[0].same("steps"));
        let (_, shown) = HEADS.into_iter().find(|(of, _)| *of == name).expect("a head of the tables");
        let mut cells = vec![shown.to_string(), grouped(steps), format!("{time:.2}")];
        for (runs, base) in runs.iter().zip(&base) {
            cells.extend([runs.spread("test_ppl"), percent(runs.mean("test_ppl"), base.mean("test_ppl"))]);
        }
        cells.resize(7, "–".into());
        row(cells)
    };
    let heads = HEADS.map(|(name, _)| line(name, &starts.each_ref().map(|runs| variant(runs, name))));
    let longer = [3_750.0, 4_500.0].map(|steps| {
        let runs = variant(&of("time"), "softmax").number("steps", steps);
        line("softmax", &base.each_ref().map(|base| runs.number("lr", base.same("lr"))))
    });
    let facets = ["facets-1", "multi-facet"].map(|name| line(name, &[variant(&of("time"), name)]));
    [heads.to_vec(), longer.to_vec(), facets.to_vec()].concat()
}

/// The program's own settings, on another text.
fn defaults() -> Vec<String> {
    let all = stage("defaults", "wikitext-2");
    let mut rates = all.each("lr");
    rates.sort_by(f64::total_cmp);
    rates.dedup();
    let of_rate = |rate: f64| {
        let runs = all.number("lr", rate);
        let base = variant(&runs, "softmax").same("test_ppl");
        let line = |(name, shown): (&str, &str)| {
            let of_head = runs.has("variant", name).then(|| variant(&runs, name))?;
            let test = of_head.same("test_ppl");
            Some(row([
                format!("{rate:.4}"),
                shown.to_string(),
                grouped(of_head.same("parameters")),
                format!("{:.2}", of_head.same("valid_ppl")),
                format!("{test:.2}"),
                percent(test, base),
            ]))
        };
        HEADS.into_iter().filter_map(line).collect::<Vec<_>>()
    };
    rates.into_iter().flat_map(of_rate).collect()
}

/// Rank, divergence and lost gradient of the models of width 128 and seed 28.
fn analysis() -> Vec<String> {
    let heads = HEADS.into_iter().filter(|(name, _)| !name.starts_with("facets"));
    heads.map(|(run, shown)| analysis_line("transformers", run, shown)).collect()
}
