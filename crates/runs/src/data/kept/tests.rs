use std::fs::{FileTimes, OpenOptions};

use super::*;
use crate::data::UNKNOWN;
use crate::testing::{kept, spoil};

const WORDS: TextConfig = TextConfig { characters: false, lower_case: false, vocab_size: None };

fn all() -> TokenCache {
    TokenCache { folder: None, min_bytes: 0, read_only: false }
}

/// A data folder whose training text is in one file or in a folder of several.
fn data(sharded: bool) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let train: &[(&str, &str)] = match sharded {
        true => &[("train/a", "the cat\n"), ("train/b", "a Dog sat\n")],
        false => &[("train.txt", "the cat\na Dog sat\n")],
    };
    for (name, text) in train.iter().chain(&[("valid.txt", "the dog\n"), ("test.txt", "a cat sat\n")]) {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

/// Everything that a corpus holds.
fn content(corpus: &Corpus) -> (Vec<String>, Vec<u32>, Vec<u32>, Vec<u32>) {
    let train = corpus.train().get(0..corpus.train().len());
    (corpus.vocabulary().words().to_vec(), train, corpus.valid().to_vec(), corpus.test().to_vec())
}

fn load(data: &Path, cache: &TokenCache) -> (Corpus, Kept) {
    Corpus::load_kept(data, &WORDS, cache).unwrap()
}

#[test]
fn a_kept_text_is_read_without_the_text() {
    for sharded in [true, false] {
        let folder = data(sharded);
        let plain = Corpus::load(folder.path(), &WORDS).unwrap();
        let (first, how) = load(folder.path(), &all());
        assert!(matches!(how, Kept::Written { because: None }), "{how:?}");
        let texts = Texts::find(folder.path(), &WORDS).unwrap();
        texts.files().for_each(|path| spoil(path));
        assert!(Corpus::load(folder.path(), &WORDS).is_err());
        let (second, how) = load(folder.path(), &all());
        assert!(matches!(how, Kept::Read), "{how:?}");
        for corpus in [&first, &second] {
            assert_eq!(content(corpus), content(&plain));
            assert_eq!(matches!(corpus.train(), Tokens::Disk(_)), sharded);
            Fingerprint::of(&plain).check(corpus).unwrap();
        }
    }
}

#[test]
fn a_text_of_characters_in_one_file_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("text8"), "ab \r".repeat(25)).unwrap();
    let text = TextConfig { characters: true, ..WORDS };
    let load = || Corpus::load_kept(folder.path(), &text, &all()).unwrap();
    let (first, _) = load();
    spoil(&folder.path().join("text8"));
    let (second, how) = load();
    assert!(matches!(how, Kept::Read), "{how:?}");
    assert_eq!(content(&first), content(&second));
    assert_eq!((second.train().len(), second.valid().len()), (90, 5));
}

/// A process died between two renames.
#[test]
fn a_text_that_was_being_replaced_is_found() {
    let folder = data(true);
    let want = content(&load(folder.path(), &all()).0);
    let place = kept(&folder.path().join(BESIDE));
    fs::rename(&place, place.with_added_extension("old")).unwrap();
    assert!(matches!(load(folder.path(), &TokenCache { read_only: true, ..all() }).1, Kept::Encoded));
    let (corpus, how) = load(folder.path(), &all());
    assert!(matches!(how, Kept::Read), "{how:?}");
    assert_eq!(content(&corpus), want);
}

#[test]
fn a_small_text_is_not_kept() {
    let folder = data(true);
    let bytes: u64 = Texts::find(folder.path(), &WORDS)
        .unwrap()
        .files()
        .map(|path| fs::metadata(path).unwrap().len())
        .sum();
    let (_, how) = load(folder.path(), &TokenCache { min_bytes: bytes + 1, ..all() });
    assert!(matches!(how, Kept::Encoded), "{how:?}");
    assert!(!folder.path().join(BESIDE).exists());
    let (_, how) = load(folder.path(), &TokenCache { read_only: true, ..all() });
    assert!(matches!(how, Kept::Encoded), "{how:?}");
    assert!(!folder.path().join(BESIDE).exists());
    let (_, how) = load(folder.path(), &TokenCache { min_bytes: bytes, ..all() });
    assert!(matches!(how, Kept::Written { .. }), "{how:?}");
    assert!(matches!(load(folder.path(), &TokenCache { read_only: true, ..all() }).1, Kept::Read));
}

#[test]
fn damage_is_noticed_and_the_text_encoded_anew() {
    let folder = data(true);
    let want = content(&load(folder.path(), &all()).0);
    let place = kept(&folder.path().join(BESIDE));
    let flip = |name: &str, at: usize| {
        let mut bytes = fs::read(place.join(name)).unwrap();
        bytes[at] ^= 1;
        fs::write(place.join(name), bytes).unwrap();
    };
    // A word of `train.ids` that is no id at all, under the hash of what is there.
    let lie = || {
        let mut ids = fs::read(place.join(TRAIN)).unwrap();
        ids[3] = 1;
        fs::write(place.join(TRAIN), ids).unwrap();
        let mut manifest: Manifest = files::read_json(&place.join(MANIFEST)).unwrap();
        let texts = Texts::find(folder.path(), &WORDS).unwrap();
        let there = Place { folder: place.clone(), kept: place.clone(), lock: place.clone() };
        manifest.corpus = Some(there.corpus(texts.train.sharded).unwrap().fingerprint().clone());
        files::replace_json(&place.join(MANIFEST), &manifest).unwrap();
    };
    let damages: [(&dyn Fn(), &str); 9] = [
        (&|| flip(TRAIN, 0), "is damaged: the training text"),
        (&|| flip(VALID, 4), "is damaged: the validation text"),
        (&|| flip(TEST, 0), "is damaged: the test text"),
        (&|| flip(VOCABULARY, 5), "is damaged: the vocabulary"),
        (&|| fs::write(place.join(TRAIN), [0; 7]).unwrap(), "7 bytes are no list of 32-bit words"),
        (&|| fs::remove_file(place.join(TEST)).unwrap(), "test.ids"),
        (&|| fs::write(place.join(MANIFEST), "{").unwrap(), "kept.json"),
        (&|| flip(MANIFEST, 15), "kept"),
        (&lie, "an id is that of no word"),
    ];
    for (damage, part) in damages {
        damage();
        let (corpus, how) = load(folder.path(), &all());
        let Kept::Written { because: Some(reason) } = how else { panic!("{part}: {how:?}") };
        assert!(reason.contains(part) && !reason.contains('\n'), "{part}: {reason}");
        assert_eq!(content(&corpus), want);
        let (corpus, how) = load(folder.path(), &all());
        assert!(matches!(how, Kept::Read), "{how:?}");
        assert_eq!(content(&corpus), want);
    }
}

#[test]
fn another_text_is_encoded_anew() {
    let folder = data(true);
    let (before, _) = load(folder.path(), &all());
    let shard = folder.path().join("train/a");
    let old = FileTimes::new().set_modified(UNIX_EPOCH);
    let changes: [(&dyn Fn(), &str); 3] = [
        // Of the same size, at another time.
        (&|| OpenOptions::new().write(true).open(&shard).unwrap().set_times(old).unwrap(), "the cat"),
        (&|| fs::write(&shard, "the cow cat\n").unwrap(), "the cow cat"),
        (&|| fs::write(folder.path().join("train/c"), "more\n").unwrap(), "the cow cat"),
    ];
    for (change, words) in changes {
        change();
        let (corpus, how) = load(folder.path(), &all());
        let Kept::Written { because: Some(reason) } = how else { panic!("{words}: {how:?}") };
        assert!(reason.starts_with("the text is not the one that `"), "{reason}");
        assert_eq!(corpus.vocabulary().words()[..words.split(' ').count()].join(" "), words);
        assert!(matches!(load(folder.path(), &all()).1, Kept::Read));
    }
    // The one that was read before still has its tokens.
    assert_eq!(content(&before).1.len(), 7);

    // Read otherwise, it is another text, which has its own place.
    let text = TextConfig { lower_case: true, vocab_size: Some(4), ..WORDS };
    let (other, how) = Corpus::load_kept(folder.path(), &text, &all()).unwrap();
    assert!(matches!(how, Kept::Written { because: None }), "{how:?}");
    assert_eq!(other.vocabulary().words()[0], UNKNOWN);
    assert!(matches!(Corpus::load_kept(folder.path(), &text, &all()).unwrap().1, Kept::Read));
    assert!(matches!(load(folder.path(), &all()).1, Kept::Read));
}

#[test]
fn what_cannot_be_kept_is_encoded_all_the_same() {
    let folder = data(true);
    let want = content(&Corpus::load(folder.path(), &WORDS).unwrap());
    fs::write(folder.path().join(BESIDE), "a file in the way").unwrap();
    for _ in 0..2 {
        let (corpus, how) = load(folder.path(), &all());
        let Kept::Failed { reason } = how else { panic!("{how:?}") };
        assert!(reason.starts_with("cannot create `") && reason.contains(BESIDE), "{reason}");
        assert_eq!(content(&corpus), want);
    }
    // Bad text is an error as always.
    fs::write(folder.path().join("valid.txt"), [0xff]).unwrap();
    let message = Corpus::load_kept(folder.path(), &WORDS, &all()).unwrap_err().to_string();
    assert!(message.contains("valid.txt`, line 1: not UTF-8"), "{message}");
}

#[test]
fn one_process_writes_at_a_time_and_one_that_died_is_no_obstacle() {
    let folder = data(true);
    let place = all().place(folder.path(), &WORDS).unwrap();
    fs::create_dir_all(&place.folder).unwrap();
    let lock = place.lock().unwrap();
    let (_, how) = load(folder.path(), &all());
    let Kept::Failed { reason } = how else { panic!("{how:?}") };
    assert!(reason.contains("another process is writing there"), "{reason}");
    assert!(!place.kept.exists());
    // It dies in the middle.
    let new = place.kept.with_added_extension("new");
    fs::create_dir(&new).unwrap();
    fs::write(new.join(TRAIN), [0; 8]).unwrap();
    drop(lock);
    assert!(matches!(load(folder.path(), &all()).1, Kept::Written { because: None }));
    assert!(matches!(load(folder.path(), &all()).1, Kept::Read));
    assert!(!new.exists());
}

#[test]
fn a_shared_folder_keeps_texts_apart() {
    let (shared, one, other) = (tempfile::tempdir().unwrap(), data(true), data(true));
    fs::write(other.path().join("train/a"), "one cat\n").unwrap();
    let cache = TokenCache { folder: Some(shared.path().join("new/folder")), ..all() };
    for how in ["Written { because: None }", "Read"] {
        for (data, word) in [(&one, "the"), (&other, "one")] {
            let (corpus, found) = load(data.path(), &cache);
            assert_eq!((format!("{found:?}").as_str(), corpus.vocabulary().word(0)), (how, Some(word)));
            assert!(!data.path().join(BESIDE).exists());
        }
    }
}
