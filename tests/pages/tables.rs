//! The tables that the pages take from `results/`, computed anew.

use serde_json::Value;

/// A table of a page: the name in the comment above it, and its lines below the header.
pub type Table = (&'static str, fn() -> Vec<String>);

pub const TABLES: [Table; 24] = [
    ("equal-size", equal_size),
    ("equal-size-1200000", equal_size_in_full),
    ("later-heads", later_heads),
    ("causes", causes),
    ("start", start),
    ("components", components),
    ("one-setting", one_setting),
    ("softmax-dropout", softmax_dropout),
    ("tuned", tuned),
    ("tuned-500000", || pair("study-tuned", ["softmax, d 47", "MoS, K 5, d 42, LSTM 96"])),
    ("tuned-2000000", || {
        pair("study-tuned-2000000", ["softmax, d 165, LSTM 128, 165", "MoS, K 10, d 163, LSTM 128"])
    }),
    ("dropouts", dropouts),
    ("no-gain", no_gain),
    ("characters", characters),
    ("passes-1000", || known("dirichlet-passes")),
    ("passes-100", || known("dirichlet")),
    ("repeated", repeated),
    ("width", width),
    ("dynamic", dynamic),
    ("analysis", analysis),
    ("paper", || curves("paper", &["H200", "Xeon", "log-1", "log-2"])),
    ("paper-components", || curves("paper-components", &["K 5, H200", "K 5, log", "K 1, H200", "K 1, log"])),
    ("lstm-wikitext2", || curves("lstm-wikitext2", &["here", "log"])),
    ("ranks", ranks),
];

/// Lines of a file of results.
#[derive(Clone)]
pub struct Runs(Vec<Value>);

impl Runs {
    pub fn read(name: &str) -> Self {
        Self(crate::read_lines(&format!("results/{name}.jsonl")))
    }

    pub fn filter(&self, keep: impl Fn(&Value) -> bool) -> Self {
        let kept: Vec<Value> = self.0.iter().filter(|run| keep(run)).cloned().collect();
        assert!(!kept.is_empty(), "no such runs among {}", self.0.len());
        Self(kept)
    }

    pub fn has(&self, place: &str, value: &str) -> bool {
        self.0.iter().any(|run| run[place] == value)
    }

    fn head(&self, head: &str) -> Self {
        self.filter(|run| run["head"] == head)
    }

    /// The runs of this many parameters to within a twentieth.
    fn size(&self, parameters: f64) -> Self {
        self.filter(|run| (run["parameters"].as_f64().unwrap() / parameters - 1.0).abs() < 0.05)
    }

    pub fn number(&self, key: &str, value: f64) -> Self {
        self.filter(|run| run[key].as_f64() == Some(value))
    }

    /// The runs in a folder of this name.
    fn folder(&self, start: &str) -> Self {
        self.filter(|run| run["run"].as_str().unwrap().starts_with(start))
    }

    /// The values at a place such as `finetuned.test_ppl`.
    pub fn each(&self, place: &str) -> Vec<f64> {
        let place = format!("/{}", place.replace('.', "/"));
        let value = |run: &Value| run.pointer(&place).and_then(Value::as_f64);
        self.0.iter().map(|run| value(run).unwrap_or_else(|| panic!("no {place} in {run}"))).collect()
    }

    pub fn mean(&self, place: &str) -> f64 {
        mean(&self.each(place))
    }

    /// Mean and standard deviation over seeds.
    pub fn spread(&self, place: &str) -> String {
        spread(&self.each(place), 2)
    }

    /// What all runs have at a place.
    pub fn same(&self, place: &str) -> f64 {
        let values = self.each(place);
        assert!(values.iter().all(|value| *value == values[0]), "{place} differs: {values:?}");
        values[0]
    }

    fn layers(&self) -> String {
        let sizes = self.0[0]["lstm_sizes"].as_array().unwrap().iter();
        sizes.map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn spread(values: &[f64], digits: usize) -> String {
    let mean = mean(values);
    if values.len() == 1 {
        return format!("{mean:.digits$}");
    }
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    format!("{mean:.digits$} ± {:.digits$}", (squares / (values.len() - 1) as f64).sqrt())
}

pub fn row(cells: impl IntoIterator<Item = String>) -> String {
    format!("| {} |", cells.into_iter().collect::<Vec<_>>().join(" | "))
}

/// A row with a name before its cells.
fn named(name: impl ToString, cells: impl IntoIterator<Item = String>) -> String {
    row([name.to_string()].into_iter().chain(cells))
}

/// A name, and what runs have at these places.
fn spreads(name: impl ToString, runs: &Runs, places: &[&str]) -> String {
    named(name, places.iter().map(|place| runs.spread(place)))
}

/// `−4.1 %`; of the base itself a dash.
pub fn percent(value: f64, base: f64) -> String {
    if value == base {
        return "–".into();
    }
    let tenths = (1000.0 * (value / base - 1.0)).round();
    let sign = if tenths < 0.0 {
        "−"
    } else if tenths > 0.0 {
        "+"
    } else {
        ""
    };
    format!("{sign}{:.1} %", tenths.abs() / 10.0)
}

/// 1,234,567.
pub fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let groups = digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap());
    groups.collect::<Vec<_>>().join(",")
}

const SIZES: [f64; 5] = [300e3, 500e3, 800e3, 1.2e6, 2e6];
const HEADS: [(&str, &str); 6] = [
    ("softmax", "softmax"),
    ("sigsoftmax", "sigsoftmax"),
    ("plif", "PLIF"),
    ("moc", "MoC, K 10"),
    ("mos", "MoS, K 10"),
    ("mos-plif", "MoS + PLIF, K 10"),
];

fn equal_size() -> Vec<String> {
    let runs = Runs::read("study-sizes");
    let of = |head: &str, size: f64| runs.head(head).size(size);
    let best = SIZES.map(|size| {
        let means = HEADS.map(|(head, _)| of(head, size).mean("finetuned.test_ppl"));
        means.into_iter().fold(f64::INFINITY, f64::min)
    });
    let cell = |head: &str, at: usize| {
        let runs = of(head, SIZES[at]);
        let text = runs.spread("finetuned.test_ppl");
        if runs.mean("finetuned.test_ppl") == best[at] { format!("**{text}**") } else { text }
    };
    let line = |(head, name): (&str, &str)| named(name, (0..SIZES.len()).map(|at| cell(head, at)));
    HEADS.map(line).to_vec()
}

/// The mean test perplexity of a head of 1.2 million parameters.
pub fn test_perplexity(file: &str, head: &str) -> f64 {
    Runs::read(file).head(head).size(1.2e6).mean("finetuned.test_ppl")
}

/// Before averaging, and after it.
const STAGES: [&str; 3] = ["valid_ppl", "finetuned.valid_ppl", "finetuned.test_ppl"];

fn sizes_and_stages(runs: &Runs, (head, name): (&str, &str)) -> String {
    let runs = runs.head(head);
    let sizes = [runs.same("d_embedding").to_string(), runs.layers(), grouped(runs.same("parameters"))];
    spreads(format!("{name} | {}", sizes.join(" | ")), &runs, &STAGES)
}

fn equal_size_in_full() -> Vec<String> {
    let runs = Runs::read("study-sizes").size(1.2e6);
    HEADS.map(|head| sizes_and_stages(&runs, head)).to_vec()
}

fn later_heads() -> Vec<String> {
    let runs = Runs::read("study-later");
    let heads = [
        ("softmax", "softmax"),
        ("sigsoftmax", "sigsoftmax"),
        ("adaptive", "adaptive softmax, three clusters"),
        ("mixtape", "Mixtape, 500 words with gates"),
        ("mos", "MoS, K 10"),
        ("doc", "DOC, K 7 + 3"),
    ];
    heads.map(|head| sizes_and_stages(&runs, head)).to_vec()
}

fn causes() -> Vec<String> {
    let (sizes, lag) = (Runs::read("study-sizes"), Runs::read("study-lag"));
    let names = ["0.3 million", "0.5 million", "0.8 million", "1.2 million", "2 million"];
    let test = |runs: Runs| runs.spread("finetuned.test_ppl");
    let of_lag = |components: f64, size: f64| {
        let found = lag.0.iter().any(|run| {
            run["components"] == components as usize
                && (run["parameters"].as_f64().unwrap() / size - 1.0).abs() < 0.05
        });
        if found { test(lag.number("components", components).size(size)) } else { "–".into() }
    };
    let line = |(name, size): (&str, f64)| {
        let of = |head: &str| sizes.head(head).size(size);
        let below = |head: &str, base: &str| {
            let [of, base] = [head, base].map(|head| of(head).mean("finetuned.test_ppl"));
            format!("{:.1} %", 100.0 * (1.0 - of / base))
        };
        row([
            name.into(),
            test(of("softmax")),
            of_lag(1.0, size),
            test(of("moc")),
            of_lag(5.0, size),
            test(of("mos")),
            below("moc", "softmax"),
            below("mos", "softmax"),
            below("mos", "moc"),
        ])
    };
    names.into_iter().zip(SIZES).map(line).collect()
}

/// The papers' contexts beside linear ones that start at the softmax.
fn start() -> Vec<String> {
    let (sizes, start) = (Runs::read("study-sizes"), Runs::read("study-start"));
    let cases = [("1.2 million", 1.2e6), ("2 million", 2e6)];
    let line = |(name, size): (&str, f64), (head, shown): (&str, &str)| {
        let [papers, linear] = [&sizes, &start].map(|runs| runs.head(head).size(size));
        let test = "finetuned.test_ppl";
        row([
            name.into(),
            shown.into(),
            papers.spread("valid_ppl"),
            linear.spread("valid_ppl"),
            papers.spread(test),
            linear.spread(test),
            percent(linear.mean(test), papers.mean(test)),
        ])
    };
    let heads = [("moc", "MoC, K 10"), ("mos", "MoS, K 10")];
    cases.into_iter().flat_map(|case| heads.map(|head| line(case, head))).collect()
}

fn components() -> Vec<String> {
    let runs = Runs::read("study-components");
    let line = |k: f64| {
        let runs = runs.number("components", k);
        let cells = STAGES.map(|place| runs.spread(place));
        let [parameters, rank] = ["parameters", "rank"].map(|place| grouped(runs.same(place)));
        row([k.to_string(), parameters].into_iter().chain(cells).chain([rank]))
    };
    [1.0, 3.0, 5.0, 10.0, 15.0, 20.0].map(line).to_vec()
}

/// The training text, and the validation text before and after averaging.
const FIT: [&str; 3] = ["finetuned.train_ppl", "valid_ppl", "finetuned.valid_ppl"];

/// A line for a value of a setting, from runs with it.
fn with_setting(name: impl ToString, setting: &str, key: &str, value: f64) -> String {
    let runs = Runs::read(&format!("study-lag-{setting}"));
    spreads(name, &runs.filter(|run| run["settings"][key].as_f64() == Some(value)), &FIT)
}

fn one_setting() -> Vec<String> {
    let settings = [
        ("factor of the latent layer's learning rate", "latent-lr", [0.3, 3.0]),
        ("dropout of the decoder's input", "dropout-output", [0.0, 0.4]),
        ("dropout of the latent contexts", "dropout-latent", [0.0, 0.3]),
    ];
    let lines = settings.into_iter().flat_map(|(name, setting, values)| {
        values.map(|value| with_setting(format!("{name} | {value}"), setting, setting, value))
    });
    lines.collect()
}

fn softmax_dropout() -> Vec<String> {
    let line = |value: f64| with_setting(value, "softmax-dropout-output", "dropout-output", value);
    [0.0, 0.2, 0.4].map(line).to_vec()
}

/// The models that dynamic evaluation reads: folder, head, what the page says of them.
const TUNED: [(&str, &str, &str); 8] = [
    ("tuned-500000/softmax", "softmax", "0.5 million | softmax | 10 + 10"),
    ("tuned-500000/mos", "mos", "0.5 million | MoS, K 5 | 10 + 10"),
    ("tuned-2000000/softmax", "softmax", "2 million | softmax | 15 + 60"),
    ("again-2000000/softmax", "softmax", "2 million | softmax, 26 more at rate 20 | 15 + 86"),
    (
        "falling-2000000/softmax",
        "softmax",
        "2 million | softmax, trained anew, 40 more at rate 10 | 15 + 126",
    ),
    (
        "regularised/softmax",
        "softmax",
        "2 million | softmax, more dropout, rate 10 at the end | 15 + 88, 100",
    ),
    ("tuned-2000000/mos", "mos", "2 million | MoS, K 10 | 15 + 15"),
    ("regularised/mos", "mos", "2 million | MoS, K 10, more dropout | 15 + 12"),
];

/// The runs of a line of [`TUNED`], without those that were averaged for five epochs alone.
fn tuned_runs(folder: &str) -> Runs {
    let runs = Runs::read("study-dynamic").folder(folder);
    runs.filter(|run| !run["run"].as_str().unwrap().ends_with("five-averaged"))
}

fn tuned() -> Vec<String> {
    let line = |(folder, head, name): (&str, &str, &str)| {
        let runs = tuned_runs(folder).head(head);
        let cells = ["static_valid_ppl", "static_test_ppl", "test_ppl"].map(|place| runs.spread(place));
        format!("| {name} | {} {}", runs.0.len(), row(cells))
    };
    TUNED.map(line).to_vec()
}

fn dynamic() -> Vec<String> {
    let all = Runs::read("study-dynamic");
    let line = |name: &str, runs: Runs| {
        let places = ["static_valid_ppl", "valid_ppl", "static_test_ppl", "test_ppl"];
        let gain = 100.0 * (1.0 - runs.mean("test_ppl") / runs.mean("static_test_ppl"));
        named(name, places.map(|place| runs.spread(place)).into_iter().chain([format!("{gain:.1} %")]))
    };
    let mut lines = vec![
        line("0.8 million, softmax, 3 + 1", all.folder("sizes/softmax")),
        line("0.8 million, MoS, K 10, 3 + 1", all.folder("sizes/mos")),
    ];
    lines.extend(TUNED.map(|(folder, _, name)| line(&name.replace(" |", ","), tuned_runs(folder))));
    let five = all.filter(|run| run["run"].as_str().unwrap().ends_with("five-averaged"));
    lines.push(line("2 million, MoS, K 10, trained anew, 15 + 5", five));
    lines
}

/// Softmax and MoS, by these names.
fn pair(file: &str, [softmax, mos]: [&str; 2]) -> Vec<String> {
    let runs = Runs::read(file);
    let line = |(head, name): (&str, &str)| {
        let places =
            ["finetuned.train_ppl", "valid_ppl", "test_ppl", "finetuned.valid_ppl", "finetuned.test_ppl"];
        spreads(name, &runs.head(head), &places)
    };
    [("softmax", softmax), ("mos", mos)].map(line).to_vec()
}

fn dropouts() -> Vec<String> {
    let runs = Runs::read("study-dropouts");
    let lines = [
        ("1", "published for either head"),
        ("0.75", "three quarters of them"),
        ("0.5", "half"),
        ("0.25", "a quarter"),
        ("found", "the search's, 0.3 before the decoder and on contexts"),
    ];
    let line = |(share, name): (&str, &str)| {
        let heads = ["softmax", "mos"].into_iter().flat_map(|head| {
            let run = runs.filter(|run| run["run"] == format!("{head}-{share}"));
            FIT.map(|place| run.spread(place))
        });
        named(name, heads)
    };
    lines.map(line).to_vec()
}

/// Bits of a perplexity.
fn bits(runs: &Runs, place: &str) -> String {
    spread(&runs.each(place).iter().map(|ppl| ppl.log2()).collect::<Vec<_>>(), 3)
}

fn characters() -> Vec<String> {
    let runs = Runs::read("study-letters");
    let heads = [("softmax", "softmax"), ("mos", "MoS, K 5"), ("moc", "MoC, K 5")];
    let line = |(head, name): (&str, &str)| {
        let runs = runs.head(head);
        let mut cells = vec![
            name.to_string(),
            format!("d {}, LSTM {}", runs.same("d_embedding"), runs.layers()),
            grouped(runs.same("parameters")),
        ];
        let places = ["finetuned.train_ppl", "finetuned.valid_ppl", "finetuned.test_ppl"];
        cells.extend(places.map(|place| bits(&runs, place)));
        let each = runs.each("finetuned.test_ppl");
        cells.push(each.iter().map(|ppl| format!("{:.3}", ppl.log2())).collect::<Vec<_>>().join(", "));
        row(cells)
    };
    heads.map(line).to_vec()
}

fn no_gain() -> Vec<String> {
    let (letters, dialogs, transformers) =
        (Runs::read("study-letters"), Runs::read("dialog"), Runs::read("wikitext2"));
    let ends = transformers.filter(|run| run["test_ppl"].is_f64());
    let letters = |head| bits(&letters.head(head), "finetuned.test_ppl");
    let dialogs = |head| dialogs.head(head).spread("test_ppl");
    let end = |head| format!("{:.1}", ends.head(head).mean("test_ppl"));
    let lines = [
        ["27 characters, bits".into(), letters("softmax"), letters("moc"), letters("mos"), "–".into()],
        ["dialogue, Switchboard".into(), dialogs("softmax"), dialogs("moc"), dialogs("mos"), "–".into()],
        [
            "transformer, WikiText-2, the papers' contexts".into(),
            end("softmax"),
            "–".into(),
            end("mos"),
            end("plif"),
        ],
    ];
    lines.map(row).to_vec()
}

fn known(file: &str) -> Vec<String> {
    let runs = Runs::read(file);
    let heads = ["softmax", "sigsoftmax", "plif", "monotonic-net", "mos"];
    let line = |alpha: f64| {
        let runs = runs.number("alpha", alpha);
        let best = heads.map(|head| runs.head(head).mean("kl")).into_iter().fold(f64::INFINITY, f64::min);
        let cell = |head: &str| {
            let runs = runs.head(head);
            let [kl, kl_spread, modes, modes_spread] =
                ["kl", "kl_spread", "mode_match", "mode_match_spread"].map(|key| runs.mean(key));
            let mark = if kl == best { "**" } else { "" };
            let rate = match (file, runs.mean("lr")) {
                ("dirichlet", rate) if rate != 0.3 => format!(" (rate {rate})"),
                _ => String::new(),
            };
            format!("{mark}{kl:.3}{mark} ± {kl_spread:.3} / {modes:.3} ± {modes_spread:.3}{rate}")
        };
        named(alpha, heads.map(cell))
    };
    [0.01, 0.1, 1.0].map(line).to_vec()
}

fn repeated() -> Vec<String> {
    let runs = Runs::read("repeated");
    let heads = ["softmax", "sigsoftmax", "mos", "plif"];
    let line = |vocab: f64| {
        let runs = runs.number("vocab", vocab);
        let cell = |head: &str| {
            let runs = runs.head(head);
            let fits = runs.0[0]["fits"].as_array().unwrap();
            let one = fits.iter().all(|fit| fit["seed"] == fits[0]["seed"]);
            let (loss, right) = (runs.mean("loss"), 100.0 * runs.mean("accuracy"));
            format!("{loss:.5} / {right:.2} %{}", if one { " (one seed)" } else { "" })
        };
        let visits = runs.head("softmax").mean("visits");
        row([grouped(vocab), grouped(visits)].into_iter().chain(heads.map(cell)))
    };
    [1e3, 1e4, 3e4, 1e5].map(line).to_vec()
}

fn width() -> Vec<String> {
    let runs = Runs::read("sweep-d");
    let widths = [8.0, 16.0, 32.0, 64.0];
    let line = |(head, name): (&str, &str)| {
        let cell = |d: f64| {
            let runs = runs.head(head).number("d_embedding", d);
            let [test, train, rank] = ["test_ppl", "train_ppl", "rank"].map(|place| runs.mean(place));
            format!("{test:.1} ({train:.0}; {rank})")
        };
        named(name, widths.map(cell))
    };
    [("softmax", "softmax"), ("moc", "MoC, K 5"), ("mos", "MoS, K 5")].map(line).to_vec()
}

fn analysis() -> Vec<String> {
    let models = [
        ("study", "softmax", "softmax, 1.2 million"),
        ("study", "moc", "MoC, K 10"),
        ("study", "sigsoftmax", "sigsoftmax"),
        ("study", "plif", "PLIF"),
        ("study", "mos", "MoS, K 10"),
        ("study", "doc", "DOC, K 7 + 3"),
        ("study", "mixtape", "Mixtape, S 500"),
        ("study", "adaptive", "adaptive softmax"),
        ("study-tuned", "softmax", "softmax, 0.5 million, tuned"),
        ("study-tuned", "mos", "MoS, K 5"),
        ("study-tuned-2000000", "softmax", "softmax, 2 million, tuned, 15 + 60"),
        ("study-tuned-2000000", "softmax averaged again", "the same, 15 + 86"),
        ("study-tuned-2000000", "mos", "MoS, K 10"),
        ("study-regularised", "softmax", "softmax, 2 million, more dropout, 15 + 100"),
        ("study-regularised", "mos", "MoS, K 10, more dropout, 15 + 12"),
        ("study-paper", "mos", "MoS, K 15, 22 million, 24 epochs"),
    ];
    models.map(|(file, run, name)| analysis_line(file, run, name)).to_vec()
}

/// Rank, divergence and lost gradient of a run, from the files that begin with `file`.
pub fn analysis_line(file: &str, run: &str, name: &str) -> String {
    let read = |what: &str| Runs::read(&format!("{file}-{what}"));
    let [rank, kl] = ["rank", "kl"].map(|what| read(what).filter(|line| line["run"] == run));
    let bound = rank.0[0]["bound"].as_u64().map_or("–".into(), |bound| bound.to_string());
    // Mixtape and adaptive softmax have no products with one decoder, so no such share.
    let lost = read("lost").0.into_iter().find(|line| line["run"] == run);
    let percent = |key: &str| {
        lost.as_ref().map_or("–".into(), |line| format!("{:.1} %", 100.0 * line[key].as_f64().unwrap()))
    };
    row([
        name.into(),
        rank.mean("d_embedding").to_string(),
        bound,
        grouped(rank.mean("rank")),
        grouped(rank.mean("rank_f32")),
        format!("{:.3}", kl.mean("pairwise_kl")),
        percent("share"),
        percent("squared_share"),
        percent("squared_share_by_chance"),
    ])
}

/// Validation perplexity after each epoch, a column a run.
fn curves(file: &str, runs: &[&str]) -> Vec<String> {
    let of_run = |run: &&str| Runs::read(file).head(run).each("valid_ppl");
    let columns: Vec<Vec<f64>> = runs.iter().map(of_run).collect();
    let line = |epoch: usize| {
        let after = |column: &Vec<f64>| column.get(epoch).map_or("–".into(), |value| format!("{value:.2}"));
        named(epoch + 1, columns.iter().map(after))
    };
    let epochs = columns.iter().map(Vec::len).max().unwrap_or(0);
    (0..epochs).map(line).collect()
}

fn ranks() -> Vec<String> {
    let runs = Runs::read("mpi");
    // Lines of the file.
    let lines = [
        ("one process, 1 thread", 0),
        ("one process, 2 threads", 6),
        ("one process, 2 slices", 1),
        ("2 ranks", 2),
        ("2 ranks on two hosts", 7),
        ("one process, 3 slices", 3),
        ("3 ranks", 4),
        ("2 ranks, bf16", 5),
    ];
    let line = |(name, at): (&str, usize)| {
        let run = &runs.0[at];
        let places = ["train_ppl", "valid_ppl", "test_ppl"];
        named(name, places.map(|key| format!("{:.4}", run[key].as_f64().unwrap())))
    };
    lines.map(line).to_vec()
}
