//! `eval`: perplexities of a saved run's weights.

use std::time::Instant;

use awd_lstm::data::Batches;
use awd_lstm::train::{RunConfig, RunFolder, mean_nll_among};
use awd_lstm::{LanguageModel, TrainConfig};
use burn::tensor::Device;
use gpt::Transformer;
use program::device::{self, DeviceName};
use program::failure::Failure;
use program::files::text_folder;
use program::progress::Working;
use program::ranks::{agree, refuse};
use runs::data::{Fingerprint, Part};
use runs::ranks::Ranks;
use runs::{Settings, Shards, kind_of_run, load_weights};

use crate::commands::scores::{EvalArgs, Evaluated, Scores, Split, Weights, first};
use crate::commands::transformer;
use crate::training::{load_held_out, note_other_texts, require_test, require_training};

/// Scores texts with a saved run's weights and prints the perplexities.
pub fn run(args: &EvalArgs, ranks: &Ranks) -> Result<(), Failure> {
    let kind = agree(ranks, kind_of_run(&args.run).map_err(Failure::from))?;
    ranks.check_same("kind", &kind)?;
    if kind == Transformer::KIND {
        return refuse(ranks, "eval of a transformer").and_then(|()| transformer::eval(args));
    }
    let (name, weights) = (device::resolve(args.device), args.weights.unwrap_or(Weights::Best));
    let (config, texts, model) = agree(ranks, prepare(args, weights, name, ranks))?;
    ranks.check_same("weights", &weights)?;
    ranks.check_same("model", &config.model)?;
    // A machine may have an older copy of the run.
    Shards::default().check_same(ranks, "weights", &model)?;
    if ranks.are_several() {
        let parts: Vec<Part> = texts.iter().map(|(_, batches)| part(batches, &model.device())).collect();
        ranks.check_same("text", &parts)?;
    }
    let (mut scores, mut tokens, start) = (Scores::default(), 0, Instant::now());
    for (split, batches) in &texts {
        let _scoring = ranks.is_first().then(|| Working::new(format!("scoring {}", split.what())));
        let of_text = mean_nll_among(ranks, &model, batches)?.exp();
        if !of_text.is_finite() {
            return agree(ranks, Err("the perplexity is not finite".into()));
        }
        tokens += batches.predictions();
        scores.set(*split, of_text, None);
    }
    if !ranks.is_first() {
        return Ok(());
    }
    let evaluated = Evaluated {
        run: args.run.display().to_string(),
        head: config.model.head.to_string(),
        parameters: config.model.num_params(),
        weights,
        scores,
        tokens,
        seconds: start.elapsed().as_secs_f64(),
        device: name.to_string(),
        model: Some(config.model),
        train: Some(config.train),
    };
    evaluated.print(args.json, config.text.characters);
    Ok(())
}

/// A run's settings, the texts that are scored, and the model.
type Prepared = (RunConfig, Vec<(Split, Batches)>, LanguageModel);

fn prepare(
    args: &EvalArgs,
    weights: Weights,
    device: DeviceName,
    ranks: &Ranks,
) -> Result<Prepared, Failure> {
    let run = RunFolder::open(&args.run)?;
    let config = run.config()?;
    args.check()?;
    let weights = weights.file(&run)?;
    let texts = texts(args, &run, &config, ranks.is_first())?;
    let device = device::open_at(device, ranks.local_rank())?;
    let model = load_weights(config.model.try_init(&device)?, &weights)?;
    Ok((config, texts, model))
}

/// What a text is compared by between processes.
fn part(batches: &Batches, device: &Device) -> Part {
    let windows = batches.windows(1024, device);
    Part::of(batches.predictions(), windows.map(|window| window.targets.into_data().as_bytes().to_vec()))
}

/// The texts that are scored.
fn texts(
    args: &EvalArgs,
    run: &RunFolder,
    config: &RunConfig,
    first_process: bool,
) -> Result<Vec<(Split, Batches)>, Failure> {
    let TrainConfig { eval_batch, test_batch, .. } = config.train;
    let data = text_folder(args.data.as_deref(), &config.data)?;
    if args.split == Some(Split::Train) {
        require_training(&args.run, &config.corpus)?;
        let corpus = args.tokens.or(config.tokens.as_ref()).load(data, &config.text, false)?;
        config.corpus.check(&corpus)?;
        let ids = first(corpus.train(), args.max_tokens);
        return Ok(vec![(Split::Train, Batches::new(Split::Train.what(), &ids, test_batch, 2)?)]);
    }
    let corpus = load_held_out(data, &config.text, run.vocabulary()?)?;
    let mut wanted =
        vec![(Split::Valid, corpus.valid(), eval_batch), (Split::Test, corpus.test(), test_batch)];
    if args.split != Some(Split::Valid) {
        require_test(&corpus, data)?;
    }
    wanted.retain(|(split, ..)| args.split.is_none_or(|wanted| wanted == *split));
    let names: Vec<&str> = wanted.iter().map(|(split, ..)| split.what()).collect();
    let batches = wanted.into_iter().map(|(split, ids, batch)| {
        let ids = &ids[..args.max_tokens.map_or(ids.len(), |most| ids.len().min(most))];
        Ok((split, Batches::new(split.what(), ids, batch, 2)?))
    });
    let batches = batches.collect::<Result<Vec<_>, Failure>>()?;
    if first_process {
        note_other_texts(&config.corpus, &Fingerprint::of(&corpus), &names);
    }
    Ok(batches)
}
