//! What a run's best model says to the held-out text, kept in the run's folder.

use std::fs;
use std::path::{Path, PathBuf};

use highrank::{BeamSearch, FinishedHypotheses};
use runs::Error;
use runs::data::Part;
use runs::files::{read_json, replace};
use seq2seq::Seq2Seq;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::commands::dialog::beam::Found;
use crate::commands::dialog::held_out::{HeldOut, Perplexities};
use crate::commands::dialog::saved::Saved;
use crate::device::{self, DeviceChoice};
use crate::failure::Failure;

/// The folder in a run's folder that keeps answers.
const FOLDER: &str = "evaluation";

/// A model with the text that it was asked about.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Subject {
    /// The file of the weights.
    weights: Part,
    valid: Part,
    test: Part,
}

/// A search for responses, with the contexts that were responded to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Search {
    width: usize,
    max_length: usize,
    n_best: usize,
    alpha: f64,
    keep_place: bool,
    contexts: usize,
}

impl Search {
    fn new(search: &BeamSearch, contexts: usize) -> Self {
        let &BeamSearch { width, max_length, n_best, alpha, finished, .. } = search;
        let keep_place = finished == FinishedHypotheses::KeepPlace;
        Self { width, max_length, n_best, alpha, keep_place, contexts }
    }

    /// The name of its file.
    fn file(&self) -> String {
        let Self { width, max_length, n_best, alpha, keep_place, contexts } = self;
        let leave = if *keep_place { "" } else { "-leave" };
        format!("responses-{width}-{max_length}-{n_best}-{alpha}{leave}-{contexts}.json")
    }
}

/// The file of perplexities.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeptPerplexities {
    of: Subject,
    device: String,
    #[serde(with = "runs::exact")]
    valid_ppl: f64,
    #[serde(with = "runs::exact")]
    test_ppl: f64,
}

/// A file of responses.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeptResponses {
    of: Subject,
    device: String,
    search: Search,
    #[serde(with = "runs::exact")]
    seconds: f64,
    /// The words of the responses to each context, best first.
    responses: Vec<Vec<Vec<u32>>>,
}

/// Responses to the contexts of the held-out text.
#[derive(Debug, Clone, PartialEq)]
pub struct Responses {
    /// The words of those to each context, best first.
    pub words: Vec<Vec<Vec<u32>>>,
    /// Wall-clock time of the search.
    pub seconds: f64,
}

impl Responses {
    /// The words of those to each context.
    pub fn words(&self) -> impl Iterator<Item = Vec<&[u32]>> {
        self.words.iter().map(|found| found.iter().map(Vec::as_slice).collect())
    }
}

impl From<Found> for Responses {
    fn from(found: Found) -> Self {
        let of_context = |responses: Vec<seq2seq::generate::Response>| {
            responses.into_iter().map(|one| one.words).collect()
        };
        Self { words: found.responses.into_iter().map(of_context).collect(), seconds: found.seconds }
    }
}

/// A run's best model, which is loaded only if something is not known of it yet.
pub struct Answers<'a> {
    saved: &'a Saved,
    held_out: &'a HeldOut,
    device: DeviceChoice,
    /// Whether what is kept counts.
    again: bool,
    subject: Subject,
    model: Option<Seq2Seq>,
}

impl<'a> Answers<'a> {
    /// The best model of a run, to be asked about a text on a device. What was kept of any device counts for
    /// [`DeviceChoice::Auto`], else what was kept of this one; with `again`, nothing does.
    ///
    /// # Errors
    /// A run without a finished epoch.
    pub fn new(
        saved: &'a Saved,
        held_out: &'a HeldOut,
        device: DeviceChoice,
        again: bool,
    ) -> Result<Self, Failure> {
        let path = saved.folder.best_weights()?;
        let bytes = fs::read(&path).map_err(Error::io("read", &path))?;
        let [valid, test] = held_out.parts();
        let subject = Subject { weights: Part::of(bytes.len(), std::iter::once(bytes)), valid, test };
        Ok(Self { saved, held_out, device, again, subject, model: None })
    }

    /// The perplexities.
    ///
    /// # Errors
    /// A device that is missing, damaged weights, a perplexity that is not finite, a folder that cannot be written.
    pub fn perplexities(&mut self) -> Result<Perplexities, Failure> {
        let path = self.path("perplexity.json");
        if let Some(kept) = self.kept::<KeptPerplexities>(&path)
            && kept.of == self.subject
            && self.is_of_device(&kept.device)
        {
            return Ok(Perplexities { valid_ppl: kept.valid_ppl, test_ppl: kept.test_ppl });
        }
        let found = self.held_out.perplexities(self.model()?)?;
        let (of, device, Perplexities { valid_ppl, test_ppl }) = (self.subject.clone(), self.device(), found);
        keep(&path, &KeptPerplexities { of, device, valid_ppl, test_ppl })?;
        Ok(found)
    }

    /// The responses. A bar shows how far the search is, with `what` in front.
    ///
    /// # Errors
    /// A device that is missing, damaged weights, what the search says, a folder that cannot be written.
    pub fn responses(&mut self, search: &BeamSearch, what: &str) -> Result<Responses, Failure> {
        let asked = Search::new(search, self.held_out.pairs.len());
        let path = self.path(&asked.file());
        if let Some(kept) = self.kept::<KeptResponses>(&path)
            && (&kept.of, &kept.search) == (&self.subject, &asked)
            && self.is_of_device(&kept.device)
            && self.fits(&kept.responses)
        {
            return Ok(Responses { words: kept.responses, seconds: kept.seconds });
        }
        let held_out = self.held_out;
        let found = Responses::from(held_out.respond(self.model()?, search, what)?);
        let kept = KeptResponses {
            of: self.subject.clone(),
            device: self.device(),
            search: asked,
            seconds: found.seconds,
            responses: found.words,
        };
        keep(&path, &kept)?;
        Ok(Responses { words: kept.responses, seconds: kept.seconds })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.saved.folder.path().join(FOLDER).join(name)
    }

    /// What a file keeps. One that is missing or cannot be read is made anew.
    fn kept<T: DeserializeOwned>(&self, path: &Path) -> Option<T> {
        if self.again { None } else { read_json(path).ok() }
    }

    fn is_of_device(&self, kept: &str) -> bool {
        self.device == DeviceChoice::Auto || self.device() == kept
    }

    /// Whether there are responses to every context, of words that there are.
    fn fits(&self, responses: &[Vec<Vec<u32>>]) -> bool {
        let vocab = self.saved.vocabulary.len() as u32;
        responses.len() == self.held_out.pairs.len()
            && responses.iter().flatten().flatten().all(|&word| word < vocab)
    }

    /// The name of the device.
    fn device(&self) -> String {
        device::resolve(self.device).to_string()
    }

    fn model(&mut self) -> Result<&Seq2Seq, Failure> {
        if self.model.is_none() {
            self.model = Some(self.saved.model(self.device)?);
        }
        Ok(self.model.as_ref().expect("it was just loaded"))
    }
}

fn keep(path: &Path, value: &impl Serialize) -> Result<(), Failure> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
    // Compact: a line a word would make long files of responses.
    Ok(replace(path, (serde_json::to_string(value)? + "\n").as_bytes())?)
}
