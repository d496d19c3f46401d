//! The readers of vocabularies: what is read is written and read again as the same words.

#![no_main]

use awd_lstm::data::Vocabulary;
use highrank_fuzz::file;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let path = file("vocab.txt", input);
    let _ = seq2seq::data::load_vocabulary(&path);
    let Ok(vocabulary) = Vocabulary::load(&path) else { return };
    for (id, word) in (0..).zip(vocabulary.words()) {
        assert_eq!((vocabulary.id(word), vocabulary.word(id)), (Some(id), Some(word.as_str())));
    }
    vocabulary.save(&path).expect("the folder can be written to");
    assert_eq!(Vocabulary::load(&path).expect("the program's own file"), vocabulary);
});
