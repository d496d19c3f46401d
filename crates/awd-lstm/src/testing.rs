//! What tests of several modules share.

use std::process::Command;

use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use runs::data::Corpus;

use crate::language::{Language, LanguageConfig};

/// A corpus of a small language, of 30 words, with as many tokens for training and for validation, and 300 for the test.
pub(crate) fn corpus_of(train: usize, valid: usize) -> Corpus {
    let config = LanguageConfig { vocab: 30, topics: 3, classes: 3, favourites: 4, ..Default::default() };
    let language = Language::new(config).unwrap();
    let text = |tokens: usize, seed| language.generate(tokens, &mut Pcg64Mcg::seed_from_u64(seed));
    Corpus::from_ids(language.vocabulary(), text(train, 1), text(valid, 2), text(300, 3)).unwrap()
}

/// Runs a test in a separate process. Its result depends on the seed, and all threads share the random numbers of the CPU
/// backend, so no other test may draw from them meanwhile. `module` is the `module_path!()` of the
/// test and `name` that of its function.
pub(crate) fn alone(module: &str, name: &str, test: impl FnOnce()) {
    const ALONE: &str = "AWD_LSTM_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return test();
    }
    // Without the name of the crate, as tests are listed.
    let (_, module) = module.split_once("::").unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("{module}::{name}"), "--nocapture"])
        .env(ALONE, "")
        .output()
        .unwrap();
    let text =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}
