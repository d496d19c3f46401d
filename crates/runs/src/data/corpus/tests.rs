use super::*;
use std::fs;

const WORDS: TextConfig = TextConfig { characters: false, lower_case: false, vocab_size: None };

fn ids(tokens: &Tokens) -> Vec<u32> {
    tokens.get(0..tokens.len())
}

fn folder(train: &[u8], valid: &[u8], test: &[u8]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("train.txt"), train).unwrap();
    fs::write(folder.path().join("valid.txt"), valid).unwrap();
    fs::write(folder.path().join("test.txt"), test).unwrap();
    folder
}

#[test]
fn splits_on_blanks_and_ends_every_line() {
    let folder = folder(b" the cat  sat \n\nthe\tdog\n", b"a cat", b"sat\r\nhere\n");
    let corpus = Corpus::load(folder.path(), &WORDS).unwrap();
    // Order of first appearance: the cat sat <eos> dog | a | here.
    assert_eq!(corpus.vocabulary().words(), ["the", "cat", "sat", EOS, "dog", "a", "here"]);
    assert_eq!(ids(corpus.train()), [0, 1, 2, 3, 3, 0, 4, 3]);
    assert_eq!(corpus.valid(), [5, 1, 3]);
    assert_eq!(corpus.test(), [2, 3, 6, 3]);
}

#[test]
fn names_what_is_wrong_with_a_file() {
    let good = b"a b\n".as_slice();
    let cases: [(&[u8], &str); 3] = [
        (b"a\nb \xff c\n", "valid.txt`, line 2: not UTF-8"),
        (b"", "valid.txt` is empty"),
        (b" \n\n", "valid.txt` is empty"),
    ];
    for (bytes, expected) in cases {
        let message = Corpus::load(folder(good, bytes, good).path(), &WORDS).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
        assert!(!message.contains('\n'));
    }
    let message = Corpus::load(folder(good, good, cases[0].0).path(), &WORDS).unwrap_err().to_string();
    assert!(message.contains("test.txt`, line 2: not UTF-8"), "{message}");
}

#[test]
fn tells_a_missing_file_from_a_missing_folder() {
    let folder = folder(b"a\n", b"a\n", b"a\n");
    fs::remove_file(folder.path().join("valid.txt")).unwrap();
    assert!(
        matches!(Corpus::load(folder.path(), &WORDS), Err(Error::MissingFile { path }) if path.ends_with("valid.txt"))
    );
    let nowhere = folder.path().join("nowhere");
    assert!(matches!(Corpus::load(&nowhere, &WORDS), Err(Error::MissingFolder { path }) if path == nowhere));
}

#[test]
fn a_test_text_without_a_word_is_as_good_as_none() {
    let folder = folder(b"a b\n", b"b\n", b"");
    let path = folder.path();
    let load = || {
        let corpus = Corpus::load(path, &WORDS).unwrap();
        let held_out = Corpus::load_held_out(path, corpus.vocabulary().clone(), &WORDS).unwrap();
        assert!(corpus.test().is_empty() && held_out.test().is_empty());
        [Fingerprint::of(&corpus), Fingerprint::of(&held_out)]
    };
    let empty = load();
    fs::write(path.join("test.txt"), " \n\n").unwrap();
    assert_eq!(load(), empty);
    fs::remove_file(path.join("test.txt")).unwrap();
    assert_eq!(load(), empty);
    // Of several files each must hold text.
    fs::create_dir(path.join("test")).unwrap();
    fs::write(path.join("test/a"), "").unwrap();
    let message = Corpus::load(path, &WORDS).unwrap_err().to_string();
    assert!(message.contains("a` is empty"), "{message}");
}

#[test]
fn held_out_text_must_keep_to_the_vocabulary() {
    let folder = folder(b"", b"a b\nb a\n", b"a a\nb zebra\n");
    let vocabulary = Vocabulary::from(vec!["b".to_string(), "a".into(), EOS.into()]);
    let message = Corpus::load_held_out(folder.path(), vocabulary.clone(), &WORDS).unwrap_err().to_string();
    assert!(message.contains("test.txt`, line 2: word `zebra`"), "{message}");
    fs::write(folder.path().join("test.txt"), "a\n").unwrap();
    let corpus = Corpus::load_held_out(folder.path(), vocabulary, &WORDS).unwrap();
    assert_eq!(corpus.valid(), [1, 0, 2, 0, 1, 2]);
    assert_eq!(corpus.test(), [1, 2]);
}

#[test]
fn ready_made_ids_are_checked() {
    let vocabulary = Vocabulary::from(vec!["a".to_string(), "b".into()]);
    let error = Corpus::from_ids(vocabulary.clone(), vec![0, 1], vec![1], vec![0, 1, 2]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "test text: token 2 has the id 2, but the vocabulary has 2 words, numbered from 0"
    );
    assert!(Corpus::from_ids(vocabulary, vec![0, 1], vec![1], vec![0]).is_ok());
    let error = Corpus::from_ids(Vocabulary::new(), vec![0], vec![], vec![]).unwrap_err().to_string();
    assert!(error.contains("but the vocabulary has 0 words"), "{error}");
}

#[test]
fn shards_are_one_text_that_stays_on_the_disk() {
    let whole = folder(b"the cat\nsat\n\nA dog\n", b"the dog\n", b"cat\n");
    let sharded = folder(b"", b"the dog\n", b"cat\n");
    fs::remove_file(sharded.path().join("train.txt")).unwrap();
    let shards = sharded.path().join("train");
    fs::create_dir(&shards).unwrap();
    for (name, text) in [("b", "A dog\n"), ("a-00010", "\n"), ("a-00002", "the cat\nsat\n")] {
        fs::write(shards.join(name), text).unwrap();
    }
    // Neither is taken without a word if both are there.
    fs::write(sharded.path().join("train.txt"), "a\n").unwrap();
    let message = Corpus::load(sharded.path(), &WORDS).unwrap_err().to_string();
    assert!(message.contains("train.txt` and the folder `") && message.contains("both there"), "{message}");
    fs::remove_file(sharded.path().join("train.txt")).unwrap();
    // An empty shard is a mistake; a hidden file is none.
    fs::write(shards.join(".part"), "").unwrap();
    let message = Corpus::load(sharded.path(), &WORDS).unwrap_err().to_string();
    assert!(message.contains("a-00010` is empty"), "{message}");
    fs::remove_file(shards.join("a-00010")).unwrap();
    fs::write(shards.join("a-00002"), "the cat\nsat\n\n").unwrap();

    for text in [WORDS, TextConfig { lower_case: true, vocab_size: Some(5), ..WORDS }] {
        let (one, many) =
            (Corpus::load(whole.path(), &text).unwrap(), Corpus::load(sharded.path(), &text).unwrap());
        assert!(matches!((one.train(), many.train()), (Tokens::Memory(_), Tokens::Disk(_))));
        assert_eq!(ids(one.train()), ids(many.train()));
        assert_eq!(one.vocabulary(), many.vocabulary());
        assert_eq!((one.valid(), one.test()), (many.valid(), many.test()));
    }
    // Nor is a text whole without one of them.
    fs::create_dir(shards.join("part")).unwrap();
    let message = Corpus::load(sharded.path(), &WORDS).unwrap_err().to_string();
    assert!(message.contains("train/part`: it is no file"), "{message}");
    fs::remove_dir_all(&shards).unwrap();
    fs::create_dir(&shards).unwrap();
    assert!(Corpus::load(sharded.path(), &WORDS).unwrap_err().to_string().contains("train` is empty"));
}

#[test]
fn a_largest_vocabulary_keeps_the_most_frequent_words() {
    let folder = folder(b"b b b c c a\nd a\n", b"b zebra\n", b"a c\n");
    let text = TextConfig { vocab_size: Some(5), ..WORDS };
    let corpus = Corpus::load(folder.path(), &text).unwrap();
    // Of `c` and `a`, twice each, `c` appeared first.
    assert_eq!(corpus.vocabulary().words(), [UNKNOWN, EOS, "b", "c", "a"]);
    assert_eq!(ids(corpus.train()), [2, 2, 2, 3, 3, 4, 1, 0, 4, 1]);
    assert_eq!((corpus.valid(), corpus.test()), ([2, 0, 1].as_slice(), [4, 3, 1].as_slice()));
    let again = Corpus::load_held_out(folder.path(), corpus.vocabulary().clone(), &text).unwrap();
    assert_eq!((again.valid(), again.test()), (corpus.valid(), corpus.test()));
    // Text that brings its own marks, as the published corpora do, has them once.
    let marked = self::folder(b"a <unk> a\n", b"a\n", b"a\n");
    let corpus = Corpus::load(marked.path(), &text).unwrap();
    assert_eq!(corpus.vocabulary().words(), [UNKNOWN, EOS, "a"]);
    assert!(Corpus::load(marked.path(), &TextConfig { vocab_size: Some(2), ..WORDS }).is_err());
}

#[test]
fn characters_come_from_three_files_or_from_one() {
    let text = TextConfig { characters: true, ..WORDS };
    let files = folder(b"ab c\n", b"a\nb\n", b"cab");
    let corpus = Corpus::load(files.path(), &text).unwrap();
    assert_eq!(corpus.vocabulary().words(), ["a", "b", " ", "c"]);
    assert_eq!(ids(corpus.train()), [0, 1, 2, 3]);
    assert_eq!((corpus.valid(), corpus.test()), ([0, 2, 1].as_slice(), [3, 0, 1].as_slice()));

    let single = tempfile::tempdir().unwrap();
    let stream: String = (0..100).map(|n| ["a", "b", " "][n % 3]).collect();
    fs::write(single.path().join("text8"), &stream).unwrap();
    let corpus = Corpus::load(single.path(), &text).unwrap();
    assert_eq!((corpus.train().len(), corpus.valid().len(), corpus.test().len()), (90, 5, 5));
    let all = [ids(corpus.train()), corpus.valid().to_vec(), corpus.test().to_vec()].concat();
    assert_eq!(all, (0..100).map(|n| n % 3).collect::<Vec<u32>>());
    let again = Corpus::load_held_out(single.path(), corpus.vocabulary().clone(), &text).unwrap();
    assert_eq!((again.train().len(), again.valid(), again.test()), (0, corpus.valid(), corpus.test()));
    // Their frequencies are those of the training part.
    let few = TextConfig { vocab_size: Some(3), ..text.clone() };
    fs::write(single.path().join("text8"), ["ab".repeat(45), "b".repeat(2), "c".repeat(8)].concat()).unwrap();
    let corpus = Corpus::load(single.path(), &few).unwrap();
    assert_eq!(corpus.vocabulary().words(), [UNKNOWN, "a", "b"]);
    fs::write(single.path().join("text8"), &stream).unwrap();
    // Beside one of three texts it is none.
    for name in ["train.txt", "test.txt"] {
        fs::write(single.path().join(name), "ab").unwrap();
        let refused = Corpus::load(single.path(), &text).unwrap_err();
        assert!(matches!(refused, Error::MissingFile { .. }), "{name}: {refused}");
        fs::remove_file(single.path().join(name)).unwrap();
    }
    // Of fewer characters the held-out texts have nothing to predict.
    fs::write(single.path().join("text8"), "aba").unwrap();
    for corpus in [
        Corpus::load(single.path(), &text),
        Corpus::load_held_out(single.path(), corpus.vocabulary().clone(), &text),
    ] {
        let message = corpus.unwrap_err().to_string();
        assert!(message.contains("text8` has 3 characters, but needs at least 40"), "{message}");
    }
    // Beside texts in folders it would be a second text.
    for name in ["train", "valid", "test"] {
        let shards = single.path().join(name);
        fs::create_dir(&shards).unwrap();
        let refused = Corpus::load(single.path(), &text).unwrap_err();
        let is_named = |file: &Path, folder: &Path| file.ends_with("text8") && folder == shards;
        assert!(
            matches!(&refused, Error::TwoTexts { file, folder } if is_named(file, folder)),
            "{name}: {refused}"
        );
        fs::remove_dir(&shards).unwrap();
    }
    // As words, the folder lacks its texts.
    assert!(matches!(Corpus::load(single.path(), &WORDS), Err(Error::MissingFile { .. })));
}

fn of_ids(words: [&str; 3], train: Vec<u32>, test: Vec<u32>) -> Corpus {
    let vocabulary = Vocabulary::from(words.map(String::from).to_vec());
    Corpus::from_ids(vocabulary, train, vec![0, 1], test).unwrap()
}

#[test]
fn any_difference_is_named() {
    let before = Fingerprint::of(&of_ids(["a", "b", "c"], vec![0, 1, 2], vec![1]));
    assert_eq!(before.train.length, 3);
    before.check(&of_ids(["a", "b", "c"], vec![0, 1, 2], vec![1])).unwrap();
    let cases = [
        (of_ids(["a", "b", "c"], vec![0, 2, 1], vec![1]), "the training text"),
        (of_ids(["a", "b", "c"], vec![0, 1, 2], vec![1, 1]), "the test text"),
        (of_ids(["a", "b", "d"], vec![0, 1, 2], vec![1]), "the vocabulary"),
        (of_ids(["a", "bc", ""], vec![0, 1, 2], vec![1]), "the vocabulary"),
    ];
    for (corpus, part) in cases {
        let message = before.check(&corpus).unwrap_err().to_string();
        assert!(message.starts_with(&format!("{part} is not the one")), "{message}");
    }
}
