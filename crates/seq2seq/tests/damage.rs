//! Damaged files are read or refused with one line that names the file, and never make the reader panic.

use std::fs;
use std::path::Path;

use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use seq2seq::Error;
use seq2seq::data::{Batch, Corpus, DialogConfig, Pair, References, Schedule, load_vocabulary};
use seq2seq::synthetic::{Language, LanguageConfig, Sizes};

const FILES: [&str; 5] = ["train.jsonl", "valid.jsonl", "test.jsonl", "test_refs.jsonl", "vocab.txt"];

/// Reads everything in a folder and uses it.
fn read(folder: &Path) -> Result<(), Error> {
    let config = DialogConfig { vocab_size: 40, max_words: 5 };
    let corpus = Corpus::load(folder, &config)?;
    let references = References::read(&folder.join("test_refs.jsonl"), corpus.test(), corpus.vocabulary())?;
    assert_eq!(references.len(), corpus.test().num_pairs());
    let mut schedule = Schedule::new(corpus.train(), 2, 4, 1)?;
    for step in 0..schedule.batches() as u64 {
        Batch::new(corpus.train(), &schedule.pairs(step), 3);
    }
    let pairs: Vec<Pair> = corpus.valid().pairs().collect();
    Batch::new(corpus.valid(), &pairs, 3);
    load_vocabulary(&folder.join("vocab.txt"))?;
    Ok(())
}

/// Changes some bytes of a file.
fn damage<R: Rng>(bytes: &mut Vec<u8>, rng: &mut R) {
    const PIECES: [&[u8]; 10] = [
        b"\"",
        b"[",
        b"}",
        b"\n",
        b"\r",
        b"\xff",
        b"\xef\xbb\xbf",
        b"null",
        b"\\u0000",
        b"{\"turns\": 1e999}\n",
    ];
    for _ in 0..rng.random_range(1..4) {
        let at = rng.random_range(0..=bytes.len());
        let end = (at + rng.random_range(0..9)).min(bytes.len());
        match rng.random_range(0..4) {
            0 => bytes.truncate(at),
            1 => drop(bytes.splice(at..end, [])),
            2 => bytes[at..end].fill_with(|| rng.random()),
            _ => drop(bytes.splice(at..at, PIECES[rng.random_range(0..PIECES.len())].to_vec())),
        }
    }
}

#[test]
fn damaged_files_are_read_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let config = LanguageConfig { min_turns: 2, max_turns: 4, ..LanguageConfig::default() };
    let language = Language::new(config).unwrap();
    language.write_corpus(folder.path(), Sizes { train: 4, valid: 2, test: 2 }, 1).unwrap();
    language.vocabulary().save(&folder.path().join("vocab.txt")).unwrap();
    read(folder.path()).unwrap();
    let good = FILES.map(|name| fs::read(folder.path().join(name)).unwrap());
    let mut rng = Pcg64Mcg::seed_from_u64(4);
    let (mut refused, mut taken) = (0, 0);
    for case in 0..500 {
        let (name, good) = (FILES[case % FILES.len()], &good[case % FILES.len()]);
        let mut bytes = good.clone();
        damage(&mut bytes, &mut rng);
        fs::write(folder.path().join(name), &bytes).unwrap();
        match read(folder.path()) {
            Ok(()) => taken += 1,
            Err(error) => {
                refused += 1;
                let message = error.to_string();
                let one_line = !message.contains(['\n', '\r']);
                // Words that the test text has no longer are missed in the references of it.
                let names =
                    message.contains(name) || (name == "test.jsonl" && message.contains("test_refs.jsonl"));
                assert!(one_line && names, "{name}: {message:?}");
            }
        }
        fs::write(folder.path().join(name), good).unwrap();
    }
    assert!(refused > 150 && taken > 20, "{refused} refused, {taken} taken");
}
