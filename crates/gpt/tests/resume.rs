//! Training with dropout that was stopped and resumed, and a run that was damaged. One test: the random numbers of the CPU's backend
//! are those of all threads of a process, so no other test may draw meanwhile.
#![cfg(feature = "flex")]

use std::fs;
use std::path::Path;

use burn::tensor::Device;
use gpt::{GptConfig, GptTask, RunConfig, RunFolder, TrainConfig, Trainer};
use highrank::HeadConfig;
use runs::Extension;
use runs::data::{Corpus, Fingerprint, Vocabulary};
use runs::testing::{self, fit_with_stops};

fn trainer(config: &RunConfig, corpus: &Corpus) -> Trainer {
    Trainer::new(GptTask::new(&config.model, &config.train, corpus, &Device::flex()).unwrap())
}

#[test]
fn a_run_that_was_stopped_anywhere_ends_in_the_same_bits_with_dropout() {
    let words: Vec<String> = (0..9).map(|word| format!("w{word}")).collect();
    let text = |start: u32, tokens| -> Vec<u32> {
        std::iter::successors(Some(start), |word| Some((word * 4 + 1) % 9)).take(tokens).collect()
    };
    let corpus = Corpus::from_ids(Vocabulary::from(words), text(1, 90), text(2, 30), text(0, 30)).unwrap();
    let head = HeadConfig::mos(8, 6, 9, 2).with_tied(true);
    let config = |dropout| -> RunConfig {
        let model = GptConfig::new(8, head.clone())
            .with_layers(1)
            .with_attention_heads(2)
            .with_context(5)
            .with_dropout(dropout);
        let train = TrainConfig::new(8).with_rounds(2).with_batch(3).with_lr(0.01).with_warmup(3);
        testing::config(Fingerprint::of(&corpus), model, train)
    };
    // The weights after training and those of the best model, as bytes, and the metrics without times.
    let fit = |path: &Path, config: &RunConfig, stops: &[usize]| {
        fit_with_stops(path, config, corpus.vocabulary(), || trainer(config, &corpus), None, stops)
    };
    let root = tempfile::tempdir().unwrap();
    let path = |name: &str| root.path().join(name);
    let whole = fit(&path("whole"), &config(0.3), &[]);
    assert_eq!(whole.1.len(), 3);
    assert!(whole.0 != fit(&path("without"), &config(0.0), &[]).0);
    for (name, stops) in [("once", &[2][..]), ("at the end", &[4]), ("often", &[1, 0, 2, 3])] {
        assert!(fit(&path(name), &config(0.3), stops) == whole, "{stops:?}");
    }

    // A run cannot go on for longer: its learning rate has fallen to nearly 0.
    let run = RunFolder::resume(&path("whole")).unwrap();
    let message = run.extend(&Extension { epochs: Some(7), ..Extension::default() }).unwrap_err().to_string();
    assert!(message.contains("start a new run with more steps"), "{message}");
    let metrics = run.metrics().unwrap();
    for name in ["checkpoint/optimiser.bpk", "checkpoint/model.safetensors", "best/model.safetensors"] {
        let file = run.path().join(name);
        let good = fs::read(&file).unwrap();
        fs::write(&file, &good[..good.len() / 2]).unwrap();
        let message = trainer(&config(0.3), &corpus).restore(&run).unwrap_err().to_string();
        assert!(message.starts_with(&format!("`{}` is damaged: ", file.display())), "{message}");
        assert_eq!(run.metrics().unwrap(), metrics);
        fs::write(&file, good).unwrap();
    }
    assert!(trainer(&config(0.3), &corpus).restore(&run).unwrap());
}
