//! The commands `rank`, `kl`, `gradient-loss`, `compare` and `plif`.

use super::*;
use crate::harness::{assert_pictures, number};

/// A folder with runs `softmax`, `mos` and `plif` on the same data, and `other` on data of other words.
fn runs() -> Folder {
    let folder = folder();
    let path = &folder;
    let sizes = "--d-embedding 6 --lstm 16,6 --batch 8 --bptt 12 --lr 5";
    for (head, more) in [("softmax", ""), ("mos", "--components 3"), ("plif", "--knots 20 --plif-bound 2")] {
        let line = format!("train --data data --head {head} {more} {sizes} --epochs 2 --out {head} --json");
        objects(path, &line);
    }
    fs::create_dir(path.join("words")).unwrap();
    for name in ["train.txt", "valid.txt", "test.txt"] {
        let text = fs::read_to_string(path.join("data").join(name)).unwrap();
        // A word that no other run has.
        fs::write(path.join("words").join(name), text.replace("word1", "zebra")).unwrap();
    }
    objects(path, &format!("train --data words --head softmax {sizes} --epochs 1 --out other --json"));
    folder
}

#[test]
fn saved_runs_are_looked_into() {
    let path = &runs();
    let refused = |line: &str, expected: &[&str]| super::refused(path, line, expected);
    let words = fs::read_to_string(path.join("mos/vocab.txt")).unwrap().lines().count();

    let rank = objects(path, "rank --run softmax --run mos --out pictures --json");
    assert_eq!((rank.len(), &rank[0]["run"], &rank[1]["head"]), (2, &"softmax".into(), &"mos".into()));
    // Width 6, the normaliser and the bias bound the softmax.
    assert_eq!((&rank[0]["rank"], &rank[0]["bound"]), (&8.into(), &8.into()));
    assert!((1.0..=8.0).contains(&number(&rank[0], "rank_f32")), "{}", rank[0]["rank_f32"]);
    assert!(number(&rank[1], "rank") > 16.0, "{}", rank[1]["rank"]);
    assert!(rank[1]["bound"].is_null());
    assert_eq!(rank[1]["singular_values"].as_array().unwrap().len(), words);
    assert_pictures(&path.join("pictures"), "spectrum", &["softmax", "mos", "singular value"]);

    let kl = objects(path, "kl --run softmax mos --json");
    let eval = objects(path, "eval --run mos --json");
    assert_eq!(kl.len(), 2);
    for object in &kl {
        let (pairs, all) = (number(object, "pairwise_kl"), number(object, "pairwise_kl_all_pairs"));
        assert!(pairs > all && all > 0.0, "{object}");
    }
    assert!((number(&kl[1], "ppl") / number(&eval[0], "test_ppl") - 1.0).abs() < 1e-5);
    let few = objects(path, "kl --run mos --tokens 50 --split valid --json");
    assert_eq!(few[0]["contexts"], 50);

    let lost = objects(path, "gradient-loss --run softmax mos --run plif --out pictures --json");
    assert_eq!((lost.len(), &lost[0]["run"], &lost[1]["head"]), (3, &"softmax".into(), &"mos".into()));
    for object in &lost {
        let [all, squared, by_chance] =
            ["share", "squared_share", "squared_share_by_chance"].map(|key| number(object, key));
        // A mean of squares is above the square of the mean, and no share is above 1.
        assert!(all * all <= squared && squared < all && all < 1.0, "{object}");
        assert!((by_chance - (1.0 - 6.0 / words as f64)).abs() < 1e-12, "{object}");
        let total = number(object, "total_squared_share");
        assert!(total > 0.1 && total < 1.0 && number(object, "share_of_sum") <= 1.0, "{object}");
        let quantiles: Vec<f64> =
            object["share_quantiles"].as_array().unwrap().iter().map(|it| it.as_f64().unwrap()).collect();
        assert!(quantiles.len() == 3 && quantiles.is_sorted() && quantiles[2] <= 1.0, "{object}");
        assert_eq!((&object["dimension"], &object["without_gradient"]), (&6.into(), &0.into()));
    }
    assert_eq!((&lost[0]["components"], &lost[1]["components"]), (&1.into(), &3.into()));
    assert_eq!(lost[0]["contexts"], kl[0]["contexts"]);
    assert_pictures(&path.join("pictures"), "gradient_loss", &["softmax", "mos", "plif", "|Q|/|G|"]);
    let few = objects(path, "gradient-loss --run mos --tokens 1 --split valid --json");
    assert_eq!(few[0]["contexts"], 1);

    let compare = objects(path, "compare --run mos --run softmax --most 4 --top 3 --json");
    let (summary, tokens) = compare.split_last().unwrap();
    assert_eq!(tokens.len(), 4);
    let gains: Vec<f64> = tokens.iter().map(|token| number(token, "gain")).collect();
    assert!(gains.windows(2).all(|pair| pair[0] >= pair[1]) && gains[0] > 0.0, "{gains:?}");
    for token in tokens {
        let gain = (number(token, "p_a") / number(token, "p_b")).ln();
        assert!((gain - number(token, "gain")).abs() < 1e-9);
        assert_eq!(
            (token["top_a"].as_array().unwrap().len(), token["top_b"].as_array().unwrap().len()),
            (3, 3)
        );
    }
    assert!((number(summary, "ppl_a") / number(&eval[0], "test_ppl") - 1.0).abs() < 1e-5);

    let plif = objects(path, "plif --run plif --out pictures --json");
    assert_eq!((plif.len(), &plif[0]["pieces"]), (1, &20.into()));
    let [low, mean, high] = ["slope_min", "slope_mean", "slope_max"].map(|key| number(&plif[0], key));
    assert!(0.0 < low && low < mean && mean < high, "{}", plif[0]);
    assert!(number(&plif[0], "outside_share") < 1.0 && number(&plif[0], "logits") > 0.0);
    assert_pictures(&path.join("pictures"), "plif", &["logit z", "identity"]);

    // What was found is drawn again without the runs.
    for (command, found, stem) in
        [("rank", &rank, "spectrum"), ("gradient-loss", &lost, "gradient_loss"), ("plif", &plif, "plif")]
    {
        let lines: Vec<String> = found.iter().map(|object| object.to_string()).collect();
        let (first, others) = lines.split_at(1);
        fs::write(path.join("first.jsonl"), first.join("\n")).unwrap();
        fs::write(path.join("others.jsonl"), format!("{}\n", others.join("\n"))).unwrap();
        let files = if others.is_empty() { "first.jsonl" } else { "first.jsonl others.jsonl" };
        let again = objects(path, &format!("{command} --from {files} --out again --json"));
        let names = |objects: &[Value]| -> Vec<_> {
            let keys = |object: &Value| object.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
            objects
                .iter()
                .map(|object| (object["run"].clone(), object["head"].clone(), keys(object)))
                .collect()
        };
        assert_eq!(names(&again), names(found), "{command}");
        let picture =
            |folder: &str| fs::read_to_string(path.join(folder).join(format!("{stem}.svg"))).unwrap();
        assert_eq!(picture("again"), picture("pictures"), "{command}");
        let table = |line: String| super::text(path, &line);
        let header = |text: String| text.lines().next().map(str::to_owned);
        let again = table(format!("{command} --from {files}"));
        // The legend below the rows fits a terminal.
        let legend: Vec<&str> = again.lines().skip(1 + found.len()).collect();
        assert!(!legend.is_empty() && legend.iter().all(|line| line.len() <= 80), "{legend:?}");
        assert_eq!(header(again), header(table(format!("{command} --run plif"))));

        fs::write(path.join("broken.jsonl"), format!("{}\n{{\"run\":1}}\n", first[0])).unwrap();
        refused(&format!("{command} --from broken.jsonl"), &["`broken.jsonl`", "line 2: no "]);
        fs::write(path.join("empty.jsonl"), "\n").unwrap();
        refused(&format!("{command} --from empty.jsonl"), &["`empty.jsonl`", "it has no result"]);
        refused(&format!("{command} --from nowhere.jsonl"), &["cannot read `nowhere.jsonl`"]);
        refused(&format!("{command} --from first.jsonl --run mos"), &["--run", "--from"]);
        refused(&format!("{command} --from first.jsonl --tokens 5"), &["--tokens", "--from"]);
    }

    // The tables for people.
    for line in [
        "rank --run softmax mos",
        "kl --run mos",
        "gradient-loss --run softmax mos",
        "compare --run mos softmax",
        "plif --run plif",
    ] {
        let output = run(path, line);
        assert!(output.status.success() && output.stdout.len() > 100, "{line}");
    }

    refused("rank --run nowhere", &["`nowhere` is not a run folder"]);
    refused("rank", &["--run <RUN>"]);
    refused("rank --run mos --tokens 1", &["tokens is 1, but must be at least 2"]);
    refused("kl --run mos --tokens 0", &["tokens is 0"]);
    refused("kl --run mos --split all", &["invalid value 'all' for '--split <SPLIT>'", "valid, test"]);
    refused("kl --run mos other", &["runs `mos` and `other` have different vocabularies"]);
    refused("gradient-loss", &["--run <RUN>"]);
    refused("gradient-loss --run nowhere", &["`nowhere` is not a run folder"]);
    refused("gradient-loss --run mos --tokens 0", &["tokens is 0, but must be at least 1"]);
    objects(
        path,
        "train --data data --head mixtape --d-embedding 6 --lstm 16,6 --batch 8 --bptt 12 --epochs 1 --out mixtape --json",
    );
    refused(
        "gradient-loss --run mixtape",
        &["run `mixtape`: its head mixtape has logits that are no products with one decoder"],
    );
    // Clusters have logits and normalisers of their own.
    let train = |out: &str, more: &str| {
        let sizes = "--d-embedding 6 --batch 8 --bptt 12 --epochs 1";
        objects(path, &format!("train --data data {sizes} --json --out {out} {more}"));
    };
    train("clusters", "--head softmax --lstm 16,6 --cutoffs 20");
    train("plif-clusters", "--head plif --lstm 16,6 --knots 20 --cutoffs 20");
    train("mos-plif-clusters", "--head mos-plif --lstm 16,6 --components 2 --knots 20 --cutoffs 20");
    for (line, run, head) in [
        ("gradient-loss --run softmax clusters", "clusters", "softmax"),
        ("plif --run plif plif-clusters", "plif-clusters", "plif"),
        ("plif --run mos-plif-clusters", "mos-plif-clusters", "mos-plif"),
    ] {
        let message = format!(
            "run `{run}`: its head {head} with clusters has logits that are no products with one decoder"
        );
        refused(line, &[message.as_str()]);
    }
    assert!(objects(path, "rank --run clusters --json")[0]["bound"].is_null());
    // The decoder of an untied softmax is as wide as the last LSTM.
    train("untied", "--head softmax --lstm 16,9 --untied");
    let untied = objects(path, "rank --run untied --json").remove(0);
    assert_eq!((&untied["d_embedding"], &untied["bound"]), (&9.into(), &11.into()));
    assert!((9.0..=11.0).contains(&number(&untied, "rank")), "{}", untied["rank"]);

    refused("gradient-loss --run mos other", &["runs `mos` and `other` have different vocabularies"]);
    refused("compare --run mos other", &["runs `mos` and `other` have different vocabularies"]);
    refused("compare --run mos", &["1 runs given, but compare takes two"]);
    refused("compare --run mos softmax --most 0", &["most is 0"]);
    refused("compare --run mos softmax --top 0", &["top is 0"]);
    refused("plif --run mos", &["run `mos`: its head mos has no PLIF", "--head plif"]);
    refused("rank --run mos --data words", &["words/valid.txt`", "word `"]);
    fs::write(path.join("file"), "").unwrap();
    refused("rank --run mos --out file/deep", &["cannot create `file/deep`"]);
    refused("gradient-loss --run mos --out file/deep", &["cannot create `file/deep`"]);

    // Huge weights of both signs: their sums are infinity less infinity.
    let weights = path.join("mos/best/model.safetensors");
    let mut bytes = fs::read(&weights).unwrap();
    let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    for (i, value) in bytes[header..].chunks_exact_mut(4).enumerate() {
        let huge = if i % 2 == 0 { 3e38f32 } else { -3e38 };
        value.copy_from_slice(&huge.to_le_bytes());
    }
    edit(&path.join("mos"), "best/model.safetensors", bytes);
    for command in ["rank", "kl", "gradient-loss"] {
        let errors = stderr(&run(path, &format!("{command} --run mos --json")), 2);
        assert!(errors.contains("run `mos`: row 0, column 0") && errors.lines().count() == 1, "{errors}");
    }
}
