//! Lines of dialogues, as a corpus with its pairs and batches, and of references.

#![no_main]

use highrank_fuzz::{file, parts};
use libfuzzer_sys::fuzz_target;
use seq2seq::data::{Batch, Corpus, DialogConfig, Dialogue, Pair, References};

fuzz_target!(|input: &[u8]| {
    let Some((how, input)) = input.split_first() else { return };
    let config = DialogConfig { vocab_size: 6 + usize::from(how >> 4), max_words: 1 + usize::from(how & 15) };
    let [train, valid, test, references] = parts::<4>(input);
    for line in String::from_utf8_lossy(train).lines() {
        let _ = Dialogue::parse(line);
    }
    let path = file("train.jsonl", train);
    file("valid.jsonl", valid);
    file("test.jsonl", test);
    let folder = path.parent().expect("a file in a folder");
    let Ok(corpus) = Corpus::load(folder, &config) else { return };
    for split in [corpus.train(), corpus.valid(), corpus.test()] {
        let pairs: Vec<Pair> = split.pairs().collect();
        if !pairs.is_empty() {
            let batch = Batch::new(split, &pairs, 3);
            assert_eq!(batch.targets.rows(), pairs.len());
        }
        let _ = References::read(&file("refs.jsonl", references), split, corpus.vocabulary());
    }
});
