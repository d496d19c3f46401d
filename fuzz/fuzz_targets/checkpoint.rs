//! A checkpoint of which one file is damaged: it is refused or restored.

#![no_main]

use awd_lstm::train::{RunFolder, load_weights};
use highrank_fuzz::Run;
use libfuzzer_sys::fuzz_target;

thread_local! {
    static RUN: Run = Run::new();
}

fuzz_target!(|input: &[u8]| RUN.with(|run| {
    let saved = ["checkpoint", "best"].map(|name| run.path().join(name));
    run.with_damage(
        input,
        |path| saved.iter().any(|folder| path.starts_with(folder)),
        || {
            let folder = RunFolder::resume(run.path()).expect("settings and lock are as they were");
            let mut trainer = run.new_trainer();
            let _ = trainer.restore(&folder);
            if let Ok(weights) = folder.best_weights() {
                let _ = load_weights(trainer.model().clone(), &weights);
            }
        },
    );
}));
