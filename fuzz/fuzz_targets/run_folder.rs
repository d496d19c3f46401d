//! A run's folder of which one file is damaged: settings, words, metrics.

#![no_main]

use awd_lstm::train::RunFolder;
use highrank_fuzz::Run;
use libfuzzer_sys::fuzz_target;
use runs::StepMetrics;

thread_local! {
    static RUN: Run = Run::new();
}

fuzz_target!(|input: &[u8]| RUN.with(|run| {
    run.with_damage(
        input,
        |path| path.parent() == Some(run.path()),
        |_, writes| {
            let Ok(folder) = RunFolder::open(run.path()) else { return };
            if let Ok(config) = folder.config() {
                let _ = config.check(&config);
                assert!(config.model.num_params() > 0);
                if let Ok(words) = folder.vocabulary() {
                    assert_eq!(config.model.vocab, words.len());
                }
            }
            let _ = folder.metrics();
            for line in folder.steps().unwrap_or_default().lines() {
                let _ = serde_json::from_str::<StepMetrics>(line);
            }
            if writes {
                let _ = RunFolder::resume(run.path());
            }
        },
    );
}));
