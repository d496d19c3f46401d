//! The reader of texts: any bytes as three texts, in any way of reading them.

#![no_main]

use awd_lstm::data::{Corpus, TextConfig};
use highrank_fuzz::{file, parts};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((how, input)) = input.split_first() else { return };
    let text = TextConfig {
        lower_case: how & 1 == 1,
        characters: how & 2 == 2,
        vocab_size: (how & 4 == 4).then_some(usize::from(how >> 3)),
        ..TextConfig::default()
    };
    let names = ["train.txt", "valid.txt", "test.txt"];
    let mut folder = None;
    for (name, content) in names.into_iter().zip(parts::<3>(input)) {
        folder = file(name, content).parent().map(|folder| folder.to_path_buf());
    }
    let folder = folder.expect("three files in a folder");
    let Ok(corpus) = Corpus::load(&folder, &text) else { return };
    let words = corpus.vocabulary().len();
    assert!(text.vocab_size.is_none_or(|size| words <= size), "{words} words of {text:?}");
    let known = |ids: &[u32]| assert!(ids.iter().all(|&id| (id as usize) < words));
    corpus.train().for_each_block(known);
    known(corpus.valid());
    known(corpus.test());
    let again = Corpus::load_held_out(&folder, corpus.vocabulary().clone(), &text).expect("the same texts");
    assert_eq!((again.valid(), again.test()), (corpus.valid(), corpus.test()));
});
