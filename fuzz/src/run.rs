//! A small run, trained once, whose files the targets damage.

use std::fs;
use std::path::{Path, PathBuf};

use awd_lstm::language::{Language, LanguageConfig};
use awd_lstm::train::{LmTask, RunConfig, RunFolder, Trainer};
use awd_lstm::{HeadKind, ModelConfig, Preset, TrainConfig};
use burn::tensor::Device;
use rand::SeedableRng;
use runs::data::{Corpus, Fingerprint, TextConfig};
use runs::{Silent, Versions};
use tempfile::TempDir;

/// A finished run of one epoch with its text, and copies of its files.
pub struct Run {
    folder: TempDir,
    corpus: Corpus,
    config: RunConfig,
    files: Vec<(PathBuf, Vec<u8>)>,
}

impl Run {
    /// Trains it.
    pub fn new() -> Self {
        let language = Language::new(LanguageConfig {
            vocab: 30,
            topics: 3,
            classes: 3,
            favourites: 4,
            ..Default::default()
        })
        .expect("sizes that fit");
        let text = |tokens, seed| language.generate(tokens, &mut rand_pcg::Pcg64Mcg::seed_from_u64(seed));
        let corpus = Corpus::from_ids(language.vocabulary(), text(200, 1), text(60, 2), text(60, 3))
            .expect("ids of the vocabulary");
        let config = RunConfig {
            preset: "small".into(),
            device: "flex".into(),
            data: "generated".into(),
            corpus: Fingerprint::of(&corpus),
            versions: Versions::current(),
            finetunes: None,
            text: TextConfig::default(),
            tokens: None,
            // Few tensors: loading one reads the header of all of them.
            model: ModelConfig { lstm_sizes: vec![8], ..ModelConfig::tiny(HeadKind::Softmax, 30) },
            train: TrainConfig {
                batch: 4,
                eval_batch: 2,
                test_batch: 1,
                bptt: 10,
                epochs: 1,
                average_from_start: true,
                ..Preset::Small.train()
            },
            extensions: vec![],
        };
        let folder = tempfile::tempdir().expect("TMPDIR can be written to");
        let run = RunFolder::create(folder.path(), &config, corpus.vocabulary()).expect("a new folder");
        let mut trainer = Self::trainer(&config, &corpus);
        trainer.fit(Some(&run), &mut Silent).expect("a run of one epoch");
        let mut files = vec![];
        copy(folder.path(), &mut files);
        Self { folder, corpus, config, files }
    }

    fn trainer(config: &RunConfig, corpus: &Corpus) -> Trainer {
        let task = LmTask::new(&config.model, &config.train, corpus, &Device::flex());
        Trainer::new(task.expect("valid settings"))
    }

    /// A trainer before its first step.
    pub fn new_trainer(&self) -> Trainer {
        Self::trainer(&self.config, &self.corpus)
    }

    /// The run's folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Damages one file of those that `of` chooses, does `work`, which is told the file, and puts it back as it was. One input in
    /// sixteen may write: for it `work` gets `true`, and all files are put back.
    pub fn with_damage(&self, input: &[u8], of: impl Fn(&Path) -> bool, work: impl FnOnce(&Path, bool)) {
        let Some((which, input)) = input.split_first() else { return };
        let writes = which >> 4 == 0;
        let chosen: Vec<_> = self.files.iter().filter(|(path, _)| of(path)).collect();
        let (path, whole) = chosen[usize::from(which & 15) % chosen.len()];
        fs::write(path, super::damaged(whole, input)).expect("TMPDIR can be written to");
        // What is behind the hashes is to be met too.
        let noted = which & 8 != 0;
        if noted {
            runs::note_hashes(self.path()).expect("TMPDIR can be written to");
        }
        work(path, writes);
        if !writes && !noted {
            fs::write(path, whole).expect("TMPDIR can be written to");
            return;
        }
        for (path, whole) in &self.files {
            if fs::read(path).ok().as_ref() != Some(whole) {
                fs::create_dir_all(path.parent().expect("a file in a folder"))
                    .expect("TMPDIR can be written to");
                fs::write(path, whole).expect("TMPDIR can be written to");
            }
        }
    }
}

impl Default for Run {
    fn default() -> Self {
        Self::new()
    }
}

/// The files below a folder.
fn copy(folder: &Path, files: &mut Vec<(PathBuf, Vec<u8>)>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            copy(&path, files);
        } else {
            files.push((path.clone(), fs::read(&path).expect("a file")));
        }
    }
    files.sort();
}
