//! A model of dialogues that several processes train, as copies of it and with a vocabulary in common.

use super::*;

/// Dialogues of a few words in `talk`.
fn talk() -> Folder {
    let folder = Folder::empty();
    let data = folder.join("talk");
    fs::create_dir(&data).unwrap();
    let turn = |n: usize| format!("[\"{}\", \"w{} w{} w{}\"]", ["A", "B"][n % 2], n % 7, n * n % 5, n % 3);
    for (text, count) in [("train", 24), ("valid", 4), ("test", 4)] {
        let dialogue = |n: usize| {
            let turns: Vec<String> = (n..n + 4 + n % 3).map(turn).collect();
            format!("{{\"topic\": \"T\", \"turns\": [{}]}}\n", turns.join(", "))
        };
        fs::write(data.join(format!("{text}.jsonl")), (0..count).map(dialogue).collect::<String>()).unwrap();
    }
    folder
}

const TALK: &str = "train talk --model seq2seq --set model.d_embedding=6 --set model.d_utterance=5 --set model.d_context=6 --set \
                    model.d_decoder=8 --set model.dropout=0 --set train.batch=12 --set train.run=6 --set train.updates=4 --set \
                    train.epochs=2 --device flex --json";

#[test]
fn processes_train_the_model_of_one() {
    let path = &talk();
    for (head, more) in [("softmax", ""), ("mos", "--set model.components=2")] {
        let train = |out: &str, width: usize| {
            format!("{TALK} --head {head} {more} --out {head}-{out} --vocab-parallel {width}")
        };
        let one = good(alone(path, &train("one", 1)));
        for (count, width) in [(3, 1), (2, 2), (4, 2)] {
            let out = format!("{count}-{width}");
            let shared = good(ranks(path, count, &train(&out, width)));
            near(&shared, &one, &PPLS[..2], 1e-4, &format!("{head}, {out}"));
            let far = distance(&path.join(format!("{head}-{out}")), &path.join(format!("{head}-one")));
            assert!(far < 1e-3, "{head}, {out}: {far}");
        }
        // Whoever reads the run sees a whole model, and goes on with it.
        good(alone(path, &format!("eval {head}-4-2 --device flex")));
        good(ranks(path, 2, &format!("train --resume {head}-4-2 --set train.epochs=3 --vocab-parallel 2")));
    }
    bad(ranks(path, 2, "eval mos-one"), &["error: this command works in one process"]);
}
