//! The rank of a run's log-probabilities on validation text.

use awd_lstm::train::RunFolder;
use program::device::{self, DeviceName};
use program::failure::Failure;
use runs::data::Corpus;
use runs::files::replace;
use runs::{FinalMetrics, load_weights};
use serde::{Deserialize, Serialize};

use crate::commands::analysis::model::Model;
use crate::commands::analysis::rank::{is_wide, spectrum};
use crate::commands::analysis::text::Text;
use crate::training::Record;

/// The file of a run that keeps its rank.
const FILE: &str = "rank.json";

/// A rank: the number of singular values above the roundoff of the float type that they were computed in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rank {
    /// The rank of the matrix of contexts by words.
    pub rank: usize,
    pub rank_contexts: usize,
    pub rank_precision: String,
}

/// A rank with the end of the run that it was computed for.
#[derive(Serialize, Deserialize)]
struct Kept {
    #[serde(flatten)]
    rank: Rank,
    of: FinalMetrics,
}

/// The contexts that ranks are computed in.
pub struct Ranks {
    text: Text,
}

impl Ranks {
    /// The first so many contexts of the validation text.
    pub fn new(corpus: &Corpus, contexts: usize) -> Result<Self, Failure> {
        if contexts < 2 {
            return Err(format!("rank is {contexts}, but must be at least 2 contexts").into());
        }
        Ok(Self { text: Text::of("the validation text", corpus.valid(), Some(contexts), 2)? })
    }

    /// The rank of a finished run with its best model: the one in its folder, or computed and kept there.
    pub fn of(&self, record: &Record, last: &FinalMetrics) -> Result<Rank, Failure> {
        let path = record.path.join(FILE);
        // One that cannot be read is computed again.
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        if let Ok(kept) = serde_json::from_str::<Kept>(&text)
            && (kept.rank.rank_contexts, &kept.of) == (self.text.contexts(), last)
        {
            return Ok(kept.rank);
        }
        let name: DeviceName = record.config.device.parse()?;
        let device = device::open(name)?;
        let model = record.config.model.try_init(&device)?;
        let model = load_weights(model, &RunFolder::open(&record.path)?.best_weights()?)?;
        let (wide, vocab) = (is_wide(name), record.config.model.vocab);
        let model = Model::Lstm(Box::new(model));
        let spectrum = spectrum(&model, vocab, model.windows(&self.text, &device, "rank"), wide)?;
        let rank = Rank {
            rank: if wide { spectrum.rank() } else { spectrum.rank_with(f64::from(f32::EPSILON)) },
            rank_contexts: self.text.contexts(),
            rank_precision: if wide { "f64" } else { "f32" }.into(),
        };
        let kept = Kept { rank: rank.clone(), of: last.clone() };
        replace(&path, (serde_json::to_string_pretty(&kept)? + "\n").as_bytes())?;
        Ok(rank)
    }
}
