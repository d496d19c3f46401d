//! A transformer that several processes train, as copies of it and with a vocabulary in common.

use super::*;

const GPT: &str = "train --data data --model gpt --d-model 8 --layers 1 --attention-heads 2 --context 8 \
                   --steps 12 --rounds 2 --batch 6 --lr 0.01 --dropout 0 --device flex --json";

#[test]
fn processes_train_the_model_of_one() {
    let path = &folder();
    for head in ["softmax", "moc", "mos --untied", "sigsoftmax", "gss", "plif", "mos --facets 2x3"] {
        let name = |of: &str| format!("{}-{of}", head.replace([' ', '-'], ""));
        let train = |out: &str, width: usize| {
            format!("{GPT} --head {head} --out {} --vocab-parallel {width}", name(out))
        };
        let one = good(alone(path, &train("one", 1)));
        for (count, width) in [(3, 1), (2, 2), (4, 2)] {
            let out = format!("{count}-{width}");
            let shared = good(ranks(path, count, &train(&out, width)));
            let of = format!("{head}, {out}");
            near(&shared, &one, &PPLS, 1e-4, &of);
            // Slopes of a PLIF below all logits change nothing, and go where rounding leads Adam.
            let far = distance(&path.join(name(&out)), &path.join(name("one")));
            assert!(head == "plif" || far < 1e-3, "{of}: {far}");
            // Whoever reads the run sees a whole model.
            let eval = good(alone(path, &format!("eval {} --split test --device flex --json", name(&out))));
            near(&shared, &eval, &["test_ppl"], 1e-5, &of);
        }
    }
    let dropping = GPT.replace("--dropout 0", "--dropout 0.2");
    good(ranks(path, 2, &format!("{dropping} --head mos --out dropped --vocab-parallel 2")));
}

#[test]
fn a_transformer_goes_on_from_a_softmax_in_several_processes() {
    let path = &folder();
    good(alone(path, &format!("{GPT} --head softmax --out softmax")));
    let on = |out: &str| {
        format!(
            "train --from softmax --head mos --start 0.02 --steps 6 --dropout 0 --device flex --json --out {out}"
        )
    };
    let one = good(alone(path, &on("one")));
    let two = good(ranks(path, 2, &on("two")));
    near(&one, &two, &["test_ppl"], 1e-3, "mos");
    bad(
        ranks(path, 2, &(on("none") + " --vocab-parallel 2")),
        &["error: train --from starts from a whole model: leave --vocab-parallel out"],
    );

    // As it was before its first save.
    let run = path.join("two");
    for name in ["checkpoint", "best"] {
        fs::remove_dir_all(run.join(name)).unwrap();
    }
    for name in ["metrics.jsonl", "steps.jsonl"] {
        fs::remove_file(run.join(name)).unwrap();
    }
    let hashes = run.join("hashes.json");
    let mut noted: BTreeMap<String, serde_json::Value> =
        serde_json::from_str(&fs::read_to_string(&hashes).unwrap()).unwrap();
    noted.retain(|name, _| ["config.json", "vocab.txt"].contains(&name.as_str()));
    fs::write(&hashes, serde_json::to_string(&noted).unwrap()).unwrap();
    bad(
        ranks(path, 2, "train --resume two --vocab-parallel 2"),
        &["error: this run starts from a whole model: resume it without --vocab-parallel"],
    );
    let again = good(ranks(path, 2, "train --resume two --json"));
    near(&again, &two, &["test_ppl"], 1e-9, "resumed");
}

#[test]
fn what_does_not_go_together_is_refused_before_anything_is_written() {
    let path = &folder();
    let run = format!("{GPT} --head mos --out run");
    for (count, more, line) in [
        (
            3,
            "--vocab-parallel 2",
            "error: --vocab-parallel is 2, but must divide the number of ranks, which is 3",
        ),
        (7, "", "error: 7 ranks cannot share a batch of 6"),
    ] {
        bad(ranks(path, count, &format!("{run} {more}")), &[line]);
    }
    bad(
        ranks_of(path, &[(1, &run), (1, &format!("{run} --clip 0.5"))]),
        &["rank 1 differs from rank 0: run.train.clip is 0.5 there, but 1.0 at rank 0"],
    );
    bad(ranks(path, 2, "train --data nowhere --model gpt --head mos"), &["error: ", "nowhere"]);
    assert!(!path.join("run").exists() && !path.join("runs").exists());
}
