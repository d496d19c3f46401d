//! Where encoded texts are kept.

use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::files::{absolute, refuse_file};
use crate::print::print_note;
use crate::progress::Working;
use clap::Args;
use runs::KeptTokens;
use runs::data::{Corpus, Kept, TextConfig, TokenCache};

/// Options of the commands that read a whole corpus.
#[derive(Debug, Clone, Default, Args)]
pub struct TokenArgs {
    /// Folder to keep the encoded text of a large corpus in, so that the next command need not encode it again [default:
    /// the run's, or .encoded in the data folder]. It takes four bytes a token.
    #[arg(hide = true, long, value_name = "DIR", help_heading = "Text")]
    pub token_cache: Option<PathBuf>,
    /// Size of a text, in MiB, from which on it is kept [default: the run's, or 64].
    #[arg(hide = true, long, value_name = "MIB", help_heading = "Text")]
    pub token_cache_from: Option<u64>,
}

impl TokenArgs {
    /// What was said, for a run to remember; none if nothing was.
    pub fn remembered(&self) -> Option<KeptTokens> {
        let folder = self.token_cache.as_deref().map(absolute);
        let kept = KeptTokens { folder, from_mib: self.token_cache_from };
        (kept != KeptTokens::default()).then_some(kept)
    }

    /// The same with what a run remembers where nothing is said.
    pub fn or(&self, run: Option<&KeptTokens>) -> Self {
        let run = run.cloned().unwrap_or_default();
        Self {
            token_cache: self.token_cache.clone().or(run.folder),
            token_cache_from: self.token_cache_from.or(run.from_mib),
        }
    }

    /// Reads a corpus, from where it is kept or from its text. Nothing is written if that is to be `read_only`.
    pub fn load(&self, data: &Path, text: &TextConfig, read_only: bool) -> Result<Corpus, Failure> {
        let min_bytes =
            self.token_cache_from.map_or(TokenCache::MIN_BYTES, |mib| mib.saturating_mul(1 << 20));
        let cache = TokenCache { folder: self.token_cache.clone(), min_bytes, read_only };
        refuse_file(data)?;
        let _reading = Working::new(format!("reading the text in {}", data.display()));
        let (corpus, kept) = Corpus::load_kept(data, text, &cache)?;
        match kept {
            Kept::Written { because: Some(reason) } => {
                print_note(format_args!("the text was encoded anew: {reason}"));
            }
            Kept::Failed { reason } => print_note(format_args!(
                "the encoded text is not kept: {reason}; --token-cache DIR keeps it in another folder"
            )),
            Kept::Encoded | Kept::Read | Kept::Written { because: None } => {}
        }
        Ok(corpus)
    }
}
