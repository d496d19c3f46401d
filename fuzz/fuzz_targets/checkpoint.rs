//! A checkpoint of which one file is damaged: it is refused or restored.

#![no_main]

use std::cell::RefCell;

use awd_lstm::train::{RunFolder, Trainer};
use highrank_fuzz::Run;
use libfuzzer_sys::fuzz_target;
use runs::load_weights;

thread_local! {
    static RUN: Run = Run::new();
    // What an earlier input restored is no worse a start than a new model, which takes longer to make than to restore.
    static TRAINER: RefCell<Trainer> = RefCell::new(RUN.with(Run::new_trainer));
}

fuzz_target!(|input: &[u8]| RUN.with(|run| TRAINER.with_borrow_mut(|trainer| {
    let saved = ["checkpoint", "best"].map(|name| run.path().join(name));
    run.with_damage(
        input,
        |path| saved.iter().any(|folder| path.starts_with(folder)),
        |damaged, writes| {
            let opened = if writes { RunFolder::resume(run.path()) } else { RunFolder::open(run.path()) };
            let folder = opened.expect("settings and lock are as they were");
            if !damaged.starts_with(&saved[1]) || writes {
                let _ = trainer.restore(&folder);
            } else if let Ok(weights) = folder.best_weights() {
                let _ = load_weights(trainer.model().clone(), &weights);
            }
        },
    );
})));
