//! The study that runs without a command: heads of equal size on a language of dialogues whose right answers are known.

use std::time::Instant;

use awd_lstm::HeadKind;
use burn::tensor::Device;
use clap::Args;
use runs::Fitted;
use runs::error::check;
use seq2seq::config::StopConfig;
use seq2seq::data::{Corpus, DialogConfig, Dialogue, Pair};
use seq2seq::metrics::{BleuForm, BleuScores};
use seq2seq::synthetic::{Found, Language, LanguageConfig, Sizes};
use seq2seq::train::{DialogTask, Trainer};
use seq2seq::{ModelConfig, Seq2Seq, TrainConfig};
use serde::Serialize;

use super::beam::{BeamArgs, respond};
use super::progress::View;
use super::saved::text;
use super::scores::{Scores, cells};
use crate::args::DistinctList;
use crate::device::{self, DeviceChoice};
use crate::failure::Failure;
use crate::print::{print_json, print_note};
use crate::statistics::{decimal, mean_and_spread_text};

/// Seed of the texts. Every training seed sees the same ones.
const TEXT_SEED: u64 = 1;

/// Everything that decides how long the study takes, and what it shows.
#[derive(Debug, Clone)]
struct Scale {
    language: LanguageConfig,
    /// Dialogues.
    texts: Sizes,
    d_embedding: usize,
    d_utterance: usize,
    d_context: usize,
    d_decoder: usize,
    window: usize,
    components: usize,
    dropout: f64,
    /// Weights are uniform in ± this at the start.
    init: f64,
    updates: usize,
    epochs: usize,
    lr: f64,
    /// Test contexts that are responded to.
    contexts: usize,
}

impl Scale {
    /// A few minutes on two cores.
    fn usual() -> Self {
        Self {
            language: LanguageConfig::default(),
            texts: Sizes { train: 1500, valid: 100, test: 100 },
            d_embedding: 32,
            d_utterance: 32,
            d_context: 64,
            d_decoder: 48,
            window: 3,
            components: 4,
            dropout: 0.1,
            init: 0.25,
            updates: 1000,
            epochs: 15,
            lr: 3e-3,
            contexts: 500,
        }
    }

    /// A second or two, also without optimisation.
    fn smallest() -> Self {
        Self {
            language: LanguageConfig {
                words: 12,
                utterances: 10,
                max_words: 3,
                classes: 3,
                answers: 2,
                earlier_answers: 1,
                ..LanguageConfig::default()
            },
            texts: Sizes { train: 20, valid: 3, test: 3 },
            d_embedding: 6,
            d_utterance: 5,
            d_context: 8,
            d_decoder: 10,
            components: 2,
            updates: 12,
            epochs: 2,
            contexts: 8,
            ..Self::usual()
        }
    }

    /// The model that ends in a head. A mixture is as large as a softmax, or smaller by less than a row of its matrix.
    fn model(&self, head: HeadKind, vocab: usize) -> ModelConfig {
        ModelConfig {
            vocab,
            d_embedding: self.d_embedding,
            d_utterance: self.d_utterance,
            d_context: self.d_context,
            d_decoder: self.d_decoder,
            window: self.window,
            head,
            components: self.components,
            knots: 1000,
            plif_bound: 20.0,
            dropout: self.dropout,
            init: self.init,
        }
    }

    fn procedure(&self, seed: u64) -> TrainConfig {
        let Self { updates, epochs, lr, .. } = *self;
        let stop = StopConfig::default();
        TrainConfig { batch: 30, run: 6, updates, epochs, lr, clip: 5.0, stop, seed }
    }
}

/// Options of the study.
#[derive(Debug, Clone, Args)]
pub struct StudyArgs {
    /// Output layers, separated by commas: softmax, moc, mos, sigsoftmax, gss, plif or mos-plif.
    #[arg(long, default_value = "softmax,moc,mos")]
    pub heads: DistinctList<HeadKind>,
    /// Number of seeds; with more than one, means and spreads are shown.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seeds: usize,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// A language and models so small that the study takes seconds and shows little.
    #[arg(long)]
    pub smallest: bool,
    /// Form of BLEU: four_orders, short_weights or repository_2017.
    #[arg(long, value_name = "FORM", default_value_t)]
    pub bleu: BleuForm,
    /// Where to compute: auto (the fastest there is), flex, ndarray, wgpu or cuda.
    #[arg(long, default_value_t)]
    pub device: DeviceChoice,
    /// One JSON object a head and seed on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
}

/// The result of one trained head.
#[derive(Debug, Clone, Serialize)]
struct Outcome {
    head: HeadKind,
    seed: u64,
    parameters: usize,
    /// Of the training.
    seconds: f64,
    valid_ppl: f64,
    test_ppl: f64,
    /// The language's own perplexity on the test text.
    floor_ppl: f64,
    /// Right answers to a context that are among the responses, on average.
    right: f64,
    /// Right answers to a context, on average.
    answers: f64,
    /// Probability of the right answers among the responses together, on average.
    probability: f64,
    /// BLEU against the true response and against all right answers.
    #[serde(flatten)]
    scores: Scores,
}

/// A language, and what was drawn from it.
struct World {
    language: Language,
    corpus: Corpus,
    test: Vec<Dialogue>,
}

/// Trains every head for every seed and prints the table.
///
/// # Errors
/// If the device is missing, or training goes wrong.
pub fn run(args: &StudyArgs) -> Result<(), Failure> {
    check(args.seeds > 0, "seeds", args.seeds, "at least 1")?;
    let device = device::open(device::resolve(args.device))?;
    let scale = if args.smallest { Scale::smallest() } else { Scale::usual() };
    let language = Language::new(scale.language.clone())?;
    let texts = language.texts(scale.texts, TEXT_SEED);
    let corpus = Corpus::from_dialogues(language.vocabulary(), &texts, &DialogConfig::default())?;
    let [.., test] = texts;
    let world = World { language, corpus, test };
    let mut outcomes = Vec::new();
    for number in 0..args.seeds as u64 {
        for &head in &args.heads.0 {
            let outcome = train_one(&world, &scale, head, args.seed.wrapping_add(number), args, &device)?;
            if args.json {
                print_json(&outcome);
            } else {
                let Outcome { seed, seconds, test_ppl, .. } = outcome;
                print_note(format_args!(
                    "{head}, seed {seed}: test perplexity {} after {seconds:.0} s",
                    decimal(test_ppl, 3)
                ));
            }
            outcomes.push(outcome);
        }
    }
    if !args.json {
        print_table(&args.heads.0, &outcomes);
    }
    Ok(())
}

fn train_one(
    world: &World,
    scale: &Scale,
    head: HeadKind,
    seed: u64,
    args: &StudyArgs,
    device: &Device,
) -> Result<Outcome, Failure> {
    let World { language, corpus, test } = world;
    let model = scale.model(head, corpus.vocabulary().len());
    let started = Instant::now();
    let mut trainer = Trainer::new(DialogTask::new(&model, &scale.procedure(seed), corpus, device)?);
    let mut view = View::bar_only(format!("{head} "));
    let result = trainer.fit(None, &mut view);
    view.finish();
    let Fitted::Finished(last) = result? else { unreachable!("nothing stops the study") };
    let seconds = started.elapsed().as_secs_f64();
    let best = trainer.best().expect("a finished run has a best model");
    let floor = language.floor_of(test).expect("the text was drawn from the language");
    let answers = against_truth(best, world, scale.contexts, args.bleu, head)?;
    let Truth { right, of, probability, scores } = answers;
    Ok(Outcome {
        head,
        seed,
        parameters: model.num_params(),
        seconds,
        valid_ppl: last.valid_ppl,
        test_ppl: last.test_ppl.expect("the procedure tests"),
        floor_ppl: floor.perplexity(),
        right,
        answers: of,
        probability,
        scores,
    })
}

/// Responses beside all right answers, as means over contexts.
struct Truth {
    right: f64,
    of: f64,
    probability: f64,
    scores: Scores,
}

/// Responds to the first `most` test contexts in which something was said. (Everything is right at the beginning of a dialogue.)
fn against_truth(
    model: &Seq2Seq,
    world: &World,
    most: usize,
    form: BleuForm,
    head: HeadKind,
) -> Result<Truth, Failure> {
    let World { language, corpus, test } = world;
    let vocabulary = corpus.vocabulary();
    let pairs: Vec<Pair> = corpus.test().pairs().filter(|pair| pair.turn > 1).take(most).collect();
    let responses =
        respond(model, corpus.test(), &pairs, &BeamArgs::default().search()?, &format!("{head} responses"))?;
    let (mut right, mut of, mut probability, mut references) = (0, 0, 0.0, Vec::new());
    for (pair, words) in pairs.iter().zip(responses.words()) {
        let answers = language.answers(&test[pair.dialogue], pair.turn);
        let answers = answers.expect("the text was drawn from the language");
        let given: Vec<String> = words.iter().map(|words| text(words, vocabulary)).collect();
        let found = Found::new(&answers, &given);
        right += found.right;
        of += found.of;
        probability += found.probability;
        // The true response comes first.
        let mut of_context = vec![corpus.test().response(*pair).to_vec()];
        for answer in &answers {
            let entry = corpus.test().config().entry(answer.text, vocabulary);
            let words = entry[1..entry.len() - 1].to_vec();
            if words != of_context[0] {
                of_context.push(words);
            }
        }
        references.push(of_context);
    }
    let count = pairs.len() as f64;
    Ok(Truth {
        right: right as f64 / count,
        of: of as f64 / count,
        probability: probability / count,
        scores: Scores::new(form, true, responses.words().zip(references.iter().map(Vec::as_slice))),
    })
}

/// One line a head, means over seeds, with the spread (standard deviation) where there are several.
fn print_table(heads: &[HeadKind], outcomes: &[Outcome]) {
    let first = &outcomes[0];
    let titles: String = (1..5).map(|order| format!(" {:>14}", format!("BLEU-{order} p / r"))).collect();
    println!(
        "{:<10} {:>10} {:>16} {:>7}{titles} {:>21} {:>11} {:>6} {:>7}",
        "head", "parameters", "test perplexity", "floor", "right answers", "probability", "length", "seconds"
    );
    for &head in heads {
        let of_head: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.head == head).collect();
        let column = |value: fn(&Outcome) -> f64, digits: usize| {
            let values: Vec<f64> = of_head.iter().map(|outcome| value(outcome)).collect();
            mean_and_spread_text(&values, digits)
        };
        let mean = |value: &dyn Fn(&Outcome) -> f64| {
            of_head.iter().map(|outcome| value(outcome)).sum::<f64>() / of_head.len() as f64
        };
        let of = |outcome: &Outcome| outcome.scores.references.unwrap_or_default();
        let bleu = BleuScores {
            precision: std::array::from_fn(|order| mean(&|outcome| of(outcome).precision[order])),
            recall: std::array::from_fn(|order| mean(&|outcome| of(outcome).recall[order])),
        };
        let bleu: String = cells(&[bleu]).iter().map(|cell| format!(" {cell:>14}")).collect();
        println!(
            "{head:<10} {:>10} {:>16} {:>7}{bleu} {:>21} {:>11} {:>6} {:>7}",
            of_head[0].parameters,
            column(|outcome| outcome.test_ppl, 3),
            format!("{:.3}", first.floor_ppl),
            format!("{} of {:.2}", column(|outcome| outcome.right, 2), first.answers),
            column(|outcome| outcome.probability, 3),
            format!("{:.2}", mean(&|outcome| outcome.scores.mean_length)),
            format!("{:.0}", of_head.iter().map(|outcome| outcome.seconds).sum::<f64>()),
        );
    }
    println!(
        "floor: the language's own perplexity on the test text; BLEU ({}): of the 5 best responses of the beam, against \
         all right answers to a context; right answers: those among the 5, and their probability; length: words of a \
         response; {} contexts",
        first.scores.bleu, first.scores.contexts
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_mixture_is_larger_than_the_softmax_and_none_much_smaller() {
        for scale in [Scale::usual(), Scale::smallest()] {
            let language = Language::new(scale.language.clone()).unwrap();
            let params = |head| {
                let model = scale.model(head, language.vocabulary().len());
                model.validate().unwrap();
                (model.num_params(), model.vocab + scale.components * (scale.d_decoder + 1))
            };
            let (softmax, _) = params(HeadKind::Softmax);
            for head in [HeadKind::Moc, HeadKind::Mos] {
                let (mixture, column) = params(head);
                assert!((softmax - column..=softmax).contains(&mixture), "{mixture} {softmax}");
            }
            scale.procedure(1).validate().unwrap();
        }
    }
}
