//! The held-out text that a saved model is scored on.

use std::path::Path;

use program::failure::Failure;
use program::files::refuse_file;
use program::print::print_note;
use program::progress::Working;
use runs::Error;
use runs::data::{Corpus, Fingerprint, TextConfig, Vocabulary};

/// The validation text, in messages.
pub const VALID: &str = "the validation text";
/// The test text, in messages.
pub const TEST: &str = "the test text";

/// The validation and the test text in the folder `data`, in the words of a run that reads its text so.
pub fn load_held_out(data: &Path, text: &TextConfig, vocabulary: Vocabulary) -> Result<Corpus, Failure> {
    refuse_file(data)?;
    let _reading = Working::new(format!("reading the text in {}", data.display()));
    Ok(Corpus::load_held_out(data, vocabulary, text)?)
}

/// Refuses a corpus without a test text, for work that scores it. `data` is its folder.
pub fn require_test(corpus: &Corpus, data: &Path) -> Result<(), Error> {
    let path = data.join("test.txt");
    match corpus.test().is_empty() {
        // A file without a word is read as if it were not there.
        true if path.is_file() => Err(Error::EmptyFile { path }),
        true => Err(Error::MissingFile { path }),
        false => Ok(()),
    }
}

/// Refuses to train a run on whose training text nothing is known, as an import with given words makes it.
pub fn require_training(run: &Path, corpus: &Fingerprint) -> Result<(), Failure> {
    match corpus.train.length {
        0 => {
            let run = run.display();
            Err(format!("run `{run}` was imported with --vocab, without a training text: it is not trained")
                .into())
        }
        _ => Ok(()),
    }
}

/// Says which of the texts `of` are others `now` than in the run.
pub fn note_other_texts(of_run: &Fingerprint, now: &Fingerprint, of: &[&str]) {
    for (what, before, now) in [(VALID, &of_run.valid, &now.valid), (TEST, &of_run.test, &now.test)] {
        if of.contains(&what) && before != now {
            print_note(format_args!(
                "note: {what} is not the run's: {} tokens of hash {:.8}, but {} of {:.8} in the run",
                now.length, now.sha256, before.length, before.sha256
            ));
        }
    }
}
