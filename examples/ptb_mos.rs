//! A softmax and a Mixture of Softmaxes of equal size, trained on a generated language and set against its truth; with arguments, the
//! program `highrank` under another name.
//!
//! ```text
//! cargo run --release --example ptb_mos                                  a generated language, seconds
//! cargo run --release --example ptb_mos -- train DATA --head mos         real text: train.txt, valid.txt and test.txt in a folder
//! cargo run --release --example ptb_mos -- train --resume RUN            continues a run that was stopped, to the same bits
//! cargo run --release --example ptb_mos -- train --from RUN              continues training its best model with averaged weights
//! cargo run --release --example ptb_mos -- eval RUN                      perplexities of a saved run; --dynamic: while it learns
//! cargo run --release --example ptb_mos -- generate RUN                  text from it
//! cargo run --release --example ptb_mos -- analyse rank RUN              also kl, plif, gradient, compare: what runs have learned
//! cargo run --release --example ptb_mos -- sweep --data DATA             heads by values of any settings: table and pictures
//! cargo run --release --example ptb_mos -- runs                          the runs below runs/ with their results
//! ```

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use awd_lstm::data::Batches;
use awd_lstm::language::{Language, LanguageConfig};
use awd_lstm::train::{LmTask, Trainer};
use awd_lstm::{HeadKind, LanguageModel, ModelConfig, Preset, TrainConfig};
use burn::tensor::Device;
use clap::Args;
use highrank::analysis::{Spectrum, kl_divergence};
use program::chart::perplexities;
use program::device::{self, DeviceChoice};
use program::failure::Failure;
use program::files::{Force, create_folder, fresh_folder};
use program::picture;
use program::print::{print_json, print_note};
use program::println;
use program::progress::Progress;
use program::sparkline::lines_as_text;
use program::statistics::{grouped, mean_and_spread_text};
use runs::data::Corpus;
use runs::error::check;
use runs::{Error, Fitted};
use serde::Serialize;

/// Contexts whose log-probabilities make the matrix of the empirical rank: more than there are words.
const RANK_CONTEXTS: usize = 1_200;
/// Test tokens that are compared with the truth at once.
const WINDOW: usize = 500;
/// Passes over the training text.
const EPOCHS: usize = 10;

fn main() -> ExitCode {
    highrank_cli::programs::ptb_mos(run)
}

/// Options of the study.
#[derive(Debug, Clone, Args)]
struct StudyArgs {
    /// Number of seeds; with more than one, means and spreads are shown.
    #[arg(long, default_value_t = 1, value_name = "N")]
    seeds: usize,
    /// The first seed.
    #[arg(long, default_value_t = 28)]
    seed: u64,
    /// Folder for the picture of the learning curves, learning.svg [default: a new one under runs/].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Whether the picture replaces a file.
    #[command(flatten)]
    force: Force,
    /// Where to compute: auto (the fastest there is), flex, ndarray, wgpu or cuda.
    #[arg(long, default_value_t)]
    device: DeviceChoice,
    /// One JSON object a head and seed on standard output, and nothing else there.
    #[arg(long)]
    json: bool,
}

/// The result of one trained head.
#[derive(Debug, Clone, Serialize)]
struct Outcome {
    head: HeadKind,
    seed: u64,
    parameters: usize,
    seconds: f64,
    valid_ppl: f64,
    test_ppl: f64,
    /// The language's own perplexity on the test text.
    floor_ppl: f64,
    /// Mean over test contexts of the divergence of the model's distribution from the true one, in nats.
    kl: f64,
    rank: usize,
}

/// Trains both heads for every seed, prints the table and draws the learning curves.
fn run(args: &StudyArgs) -> Result<(), Failure> {
    check(args.seeds > 0, "seeds", args.seeds, "at least 1")?;
    let StudyArgs { seeds, seed, json, .. } = *args;
    if let Some(out) = &args.out {
        args.force.check_in(out, &["learning.svg"])?;
    }
    let name = device::resolve(args.device);
    let config = LanguageConfig::default();
    let [softmax, _] = models(config.vocab);
    print_note(format_args!(
        "trains a softmax and a Mixture of Softmaxes of {} parameters each for {EPOCHS} epochs on a generated language of {} words, whose \
         next-word distribution is known; {} to {} seconds on two cores, by their vector units (here: {name})",
        grouped(softmax.num_params()),
        grouped(config.vocab),
        seeds.saturating_mul(9),
        seeds.saturating_mul(45),
    ));
    let device = device::open(name)?;
    let language = Language::new(config)?;
    // Every training seed sees the same texts.
    let corpus = language.corpus()?;
    let (mut outcomes, mut curves) = (vec![], vec![]);
    for seed in seeds_from(seed, seeds) {
        for model in models(corpus.vocabulary().len()) {
            let (outcome, points) = train_one(&model, seed, &language, &corpus, &device)?;
            if json {
                print_json(&outcome);
            } else {
                let Outcome { head, seconds, test_ppl, .. } = outcome;
                print_note(format_args!(
                    "{head}, seed {seed}: test perplexity {test_ppl:.2} after {seconds:.0} s"
                ));
            }
            let of = if seeds == 1 { String::new() } else { format!(", seed {seed}") };
            curves.push((format!("{}{of}", model.head), points));
            outcomes.push(outcome);
        }
    }
    if !json {
        print_table(&outcomes);
        println!("\nvalidation perplexity over epochs, of the first seed:\n{}", lines_as_text(&curves[..2]));
    }
    let out = args.out.clone().unwrap_or_else(|| fresh_folder("study"));
    let caption = "Validation perplexity on a language whose truth is known";
    create_folder(&out)?;
    picture::save(&perplexities(caption.into(), "epoch", curves), &out.join("learning"))?;
    print_note(format_args!("learning curves: {}", out.join("learning.svg").display()));
    Ok(())
}

/// So many seeds from `first` on; 0 follows the largest.
fn seeds_from(first: u64, count: usize) -> impl Iterator<Item = u64> {
    (0..count as u64).map(move |number| first.wrapping_add(number))
}

/// The models that are compared: equal numbers of parameters to within a percent.
///
/// The softmax gets its share as width of the embedding, which is what bounds its rank.
fn models(vocab: usize) -> [ModelConfig; 2] {
    let model = |head, d_embedding, lstm| ModelConfig {
        d_embedding,
        lstm_sizes: vec![lstm],
        components: 4,
        ..ModelConfig::tiny(head, vocab)
    };
    [model(HeadKind::Softmax, 31, 31), model(HeadKind::Mos, 24, 40)]
}

/// How both are trained: many small steps, and averaging as soon as the validation loss rises once, since a few
/// epochs have to do.
fn procedure(seed: u64) -> TrainConfig {
    TrainConfig {
        bptt: 15,
        lr: 15.0,
        alpha: 0.0,
        beta: 0.0,
        nonmono: 0,
        epochs: EPOCHS,
        seed,
        ..Preset::Small.train()
    }
}

fn train_one(
    model: &ModelConfig,
    seed: u64,
    language: &Language,
    corpus: &Corpus,
    device: &Device,
) -> Result<(Outcome, Vec<(f64, f64)>), Failure> {
    let started = Instant::now();
    let mut trainer = Trainer::new(LmTask::new(model, &procedure(seed), corpus, device)?);
    let mut points = vec![];
    let mut progress = Progress::bar_only(format!("{} ", model.head)).with_each_epoch(|metrics| {
        points.push((metrics.epoch as f64, metrics.valid_ppl));
        Ok(())
    });
    let result = trainer.fit(None, &mut progress);
    progress.finish();
    let Fitted::Finished(last) = result? else { unreachable!("the progress bar never says stop") };
    let best = trainer.best().expect("a finished run has a best model");
    let (kl, rows) = against_truth(best, language, corpus.test(), device)?;
    let outcome = Outcome {
        head: model.head,
        seed,
        parameters: model.num_params(),
        seconds: started.elapsed().as_secs_f64(),
        valid_ppl: last.valid_ppl,
        test_ppl: last.test_ppl.expect("the procedure tests"),
        floor_ppl: language.mean_nll(corpus.test()).exp(),
        kl,
        // The entries were computed in f32, so that is their roundoff.
        rank: Spectrum::of(&rows, model.vocab)?.rank(f64::from(f32::EPSILON)),
    };
    Ok((outcome, points))
}

/// The mean of `KL(truth || model)` over the contexts of `text` in nats, and the log-probabilities in its first
/// [`RANK_CONTEXTS`] contexts, row by row.
fn against_truth(
    model: &LanguageModel,
    language: &Language,
    text: &[u32],
    device: &Device,
) -> Result<(f64, Vec<f64>), Error> {
    let vocab = language.config().vocab;
    let batches = Batches::new("the test text", text, 1, 2)?;
    let mut contexts = language.contexts(text);
    let mut state = model.zero_state(1);
    let (mut kl, mut rows) = (0.0, Vec::with_capacity(RANK_CONTEXTS * vocab));
    for window in batches.windows(WINDOW, device) {
        let (log_probs, next) = model.log_probs(window.tokens, state);
        state = next;
        let log_probs: Vec<f64> = log_probs.into_data().iter::<f64>().collect();
        for (row, context) in log_probs.chunks(vocab).zip(&mut contexts) {
            let truth = language.log_probs(context);
            kl += kl_divergence(&truth, row);
        }
        let wanted = (RANK_CONTEXTS * vocab - rows.len()).min(log_probs.len());
        rows.extend_from_slice(&log_probs[..wanted]);
    }
    Ok((kl / batches.predictions() as f64, rows))
}

/// One line a head, means over seeds, with the spread (standard deviation) where there are several.
fn print_table(outcomes: &[Outcome]) {
    println!(
        "{:<8} {:>10} {:>17} {:>9} {:>17} {:>11} {:>8}",
        "head", "parameters", "test perplexity", "floor", "KL to truth", "rank", "seconds"
    );
    for head in [HeadKind::Softmax, HeadKind::Mos] {
        let of_head: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.head == head).collect();
        let column = |value: fn(&Outcome) -> f64, digits: usize| {
            let values: Vec<f64> = of_head.iter().map(|outcome| value(outcome)).collect();
            mean_and_spread_text(&values, digits)
        };
        println!(
            "{head:<8} {:>10} {:>17} {:>9} {:>17} {:>11} {:>8}",
            of_head[0].parameters,
            column(|outcome| outcome.test_ppl, 2),
            format!("{:.2}", of_head[0].floor_ppl),
            column(|outcome| outcome.kl, 4),
            column(|outcome| outcome.rank as f64, 0),
            format!("{:.0}", of_head.iter().map(|outcome| outcome.seconds).sum::<f64>()),
        );
    }
    println!(
        "floor: the language's own perplexity; KL in nats, mean over the test contexts; rank: of the \
         log-probabilities of {RANK_CONTEXTS} contexts"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_go_on_after_the_largest() {
        assert_eq!(seeds_from(28, 2).collect::<Vec<_>>(), [28, 29]);
        assert_eq!(seeds_from(u64::MAX, 3).collect::<Vec<_>>(), [u64::MAX, 0, 1]);
    }

    #[test]
    fn both_heads_have_the_same_number_of_parameters() {
        let [softmax, mos] = models(LanguageConfig::default().vocab).map(|model| {
            model.validate().unwrap();
            model.num_params() as f64
        });
        assert!((softmax / mos - 1.0).abs() < 0.01, "{softmax} against {mos}");
    }
}
