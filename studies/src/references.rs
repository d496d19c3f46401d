//! `references`: references for test responses from similar training contexts.

use std::path::PathBuf;

use clap::Args;
use seq2seq::data::DialogConfig;
use seq2seq::retrieve::{RetrievalConfig, write_references};
use serde_json::json;

use program::failure::Failure;
use program::files::{Force, refuse_file};
use program::print::print_json;
use program::println;

/// Finds references for test responses of dialogues: what was answered in similar training contexts.
#[derive(Debug, Clone, Args)]
pub struct ReferencesArgs {
    /// Folder with train.jsonl and test.jsonl.
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// File to write the references to, one JSON object a test response; `highrank eval RUN --refs FILE` reads it.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Whether the file is replaced.
    #[command(flatten)]
    pub force: Force,
    /// Utterances of a context that are compared.
    #[arg(long, value_name = "N", default_value_t = RetrievalConfig::default().window)]
    pub window: usize,
    /// References besides the true response, at most.
    #[arg(long, value_name = "N", default_value_t = RetrievalConfig::default().extra)]
    pub extra: usize,
    /// One JSON object on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
}

/// Writes a file of references.
///
/// # Errors
/// Bad input, or a file that exists already.
pub fn run(args: &ReferencesArgs) -> Result<(), Failure> {
    args.force.check(&args.out)?;
    refuse_file(&args.data)?;
    let config = RetrievalConfig { window: args.window, extra: args.extra };
    let references = write_references(&args.data, &args.out, &DialogConfig::default(), config)?;
    match args.json {
        true => print_json(&json!({ "file": args.out.display().to_string(), "references": references })),
        false => println!("{references} references written to {}", args.out.display()),
    }
    Ok(())
}
