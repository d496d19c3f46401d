//! `ptb_mos train`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use awd_lstm::data::Corpus;
use awd_lstm::train::{
    EpochMetrics, FinalMetrics, Fingerprint, Fitted, Interval, RunConfig, RunFolder, TrainObserver, Trainer,
    Versions,
};
use awd_lstm::{Error, LmBackend};
use burn::tensor::backend::AutodiffBackend;

use crate::args::TrainArgs;
use crate::curves;
use crate::device::{DeviceName, Task, on_device};
use crate::exit::Failure;
use crate::interrupt::Interrupt;
use crate::progress::{Progress, bits_text, print_json, with_bits};

/// Trains as the arguments say and saves the run, or goes on with one.
///
/// # Errors
/// Bad input, or what goes wrong in training. Nothing is written before all input is found to be good.
pub fn run(args: &TrainArgs) -> Result<(), Failure> {
    let output = Output::new(args.json, args.checkpoint_every)?;
    match &args.resume {
        Some(path) => resume(args, path, output),
        None => start(args, output),
    }
}

fn start(args: &TrainArgs, output: Output) -> Result<(), Failure> {
    let train = args.config()?;
    // Settings are checked before the text is read, whatever its vocabulary turns out to be.
    args.model(1)?;
    if let Some(out) = args.out.as_ref().filter(|out| RunFolder::exists(out)) {
        return Err(Error::RunExists { path: out.clone() }.into());
    }
    let Some(data) = &args.data else { return Err("train needs --data DIR or --resume RUN".into()) };
    let text = args.text.config();
    let corpus = Corpus::load(data, &text)?;
    let (preset, head, device) = (args.preset(), args.head(), args.device());
    let out = args.out.clone().unwrap_or_else(|| fresh_folder(&format!("{preset}-{head}-{}", train.seed)));
    let config = RunConfig {
        versions: Versions::current(),
        preset: preset.to_string(),
        device: device.to_string(),
        data: std::fs::canonicalize(data).unwrap_or_else(|_| data.clone()),
        corpus: Fingerprint::of(&corpus),
        finetunes: None,
        text,
        model: args.model(corpus.vocabulary().len())?,
        train,
    };
    train_and_print(device, TrainTask { folder: Folder::New(out), config, corpus, output })
}

/// Trains a run and prints what it came to.
///
/// # Errors
/// What goes wrong in training.
pub fn train_and_print(device: DeviceName, task: TrainTask) -> Result<(), Failure> {
    let (json, characters) = (task.output.json, task.config.text.characters);
    let last = on_device(device, task)?;
    let FinalMetrics { best_epoch, valid_ppl, test_ppl, .. } = last;
    if json {
        print_json(&with_bits(&last, characters, &[("valid_bpc", valid_ppl), ("test_bpc", test_ppl)]));
    } else {
        let bits = bits_text(characters, &[("valid", valid_ppl), ("test", test_ppl)]);
        println!("best epoch {best_epoch}: perplexity valid {valid_ppl:.2}, test {test_ppl:.2}{bits}");
    }
    Ok(())
}

fn resume(args: &TrainArgs, path: &Path, output: Output) -> Result<(), Failure> {
    let run = RunFolder::resume(path)?;
    let config = run.config()?;
    let mut now = config.clone();
    if let Some(preset) = args.preset.filter(|preset| preset.name() != config.preset) {
        let (setting, before, now) = ("preset".to_string(), config.preset.clone(), preset.to_string());
        return Err(Error::ConfigChanged { setting, before, now }.into());
    }
    if let Some(head) = args.head {
        now.model.head = head;
    }
    if let Some(device) = args.device {
        now.device = device.to_string();
    }
    args.text.apply_to(&mut now.text);
    args.overrides.apply_to_model(&mut now.model);
    args.overrides.apply_to_procedure(&mut now.train);
    config.check(&now)?;
    let corpus = Corpus::load(args.data.as_ref().unwrap_or(&config.data), &config.text)?;
    config.corpus.check(&corpus)?;
    train_and_print(config.device.parse()?, TrainTask { folder: Folder::Old(run), config, corpus, output })
}

/// Where a run goes.
pub enum Folder {
    /// A run to be started.
    New(PathBuf),
    /// A run to go on with, locked.
    Old(RunFolder),
}

/// What is reported while a run is trained, and how often it is saved.
#[derive(Debug, Clone)]
pub struct Output {
    /// Objects on standard output.
    pub json: bool,
    /// Time between two checkpoints inside of an epoch.
    pub checkpoint_every: Duration,
    /// What stops the run.
    pub interrupt: Interrupt,
}

impl Output {
    /// Checkpoints every so many minutes, and after an interrupt, for which handlers are set.
    ///
    /// # Errors
    /// If the time is no positive number.
    pub fn new(json: bool, minutes: f64) -> Result<Self, Failure> {
        let time = Duration::try_from_secs_f64(minutes * 60.0).ok().filter(|time| !time.is_zero());
        let Some(checkpoint_every) = time else {
            return Err(Error::invalid("checkpoint-every", minutes, "a number of minutes above 0").into());
        };
        Ok(Self { json, checkpoint_every, interrupt: Interrupt::install()? })
    }
}

/// Trains a run, whatever command it belongs to.
pub struct TrainTask {
    /// Where it goes.
    pub folder: Folder,
    /// All of its settings.
    pub config: RunConfig,
    /// The text.
    pub corpus: Corpus,
    /// What is reported.
    pub output: Output,
}

impl Task for TrainTask {
    type Output = FinalMetrics;

    fn run<B>(self, device: B::Device) -> Result<FinalMetrics, Failure>
    where
        B: AutodiffBackend + LmBackend,
        B::InnerBackend: LmBackend,
    {
        let Self { folder, config, corpus, output } = self;
        let trainer = Trainer::<B>::new(&config.model, &config.train, &corpus, &device)?;
        let mut trainer = trainer.with_checkpoint_every(output.checkpoint_every);
        let (run, restored) = match folder {
            Folder::New(path) => (RunFolder::create(&path, &config, corpus.vocabulary())?, false),
            Folder::Old(run) => {
                let restored = trainer.restore(&run)?;
                (run, restored)
            }
        };
        if let (false, Some(origin)) = (restored, &config.finetunes) {
            trainer.start_from(&RunFolder::open(origin)?.best_weights()?)?;
        }
        eprintln!(
            "{} with {} parameters, {} {}, {} training tokens, run folder {}{}",
            config.model.head,
            config.model.num_params(),
            corpus.vocabulary().len(),
            if config.text.characters { "characters" } else { "words" },
            corpus.train().len(),
            run.path().display(),
            if restored { format!(", {} epochs done", trainer.state().epoch) } else { String::new() },
        );
        let progress = Progress::new(output.json).until(&output.interrupt);
        let progress = progress.with_characters(config.text.characters);
        let mut watch = Watch { progress, run: &run };
        let result = trainer.fit(Some(&run), &mut watch);
        watch.progress.finish();
        match result? {
            Fitted::Finished(last) => Ok(last),
            Fitted::Stopped => {
                let path = run.path().display();
                let line = format!("stopped and saved; to go on: ptb_mos train --resume {path}");
                Err(output.interrupt.end(line).into())
            }
        }
    }
}

/// Reports progress, and draws the curves after every epoch.
struct Watch<'a> {
    progress: Progress,
    run: &'a RunFolder,
}

impl TrainObserver for Watch<'_> {
    fn on_start(&mut self, share: f64) {
        self.progress.on_start(share);
    }

    fn on_interval(&mut self, interval: &Interval) {
        self.progress.on_interval(interval);
    }

    fn on_epoch(&mut self, metrics: &EpochMetrics, share: f64) {
        self.progress.on_epoch(metrics, share);
        // A picture is no reason to stop training.
        if let Err(error) = curves::save(self.run) {
            self.progress.on_message(&format!("the curves were not drawn: {error}"));
        }
    }

    fn stop(&mut self) -> bool {
        self.progress.stop()
    }

    fn on_message(&mut self, message: &str) {
        self.progress.on_message(message);
    }
}

/// A folder under `runs/` that holds nothing yet, with a name that begins with `name`.
pub fn fresh_folder(name: &str) -> PathBuf {
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    std::iter::once(name.to_string())
        .chain(numbered)
        .map(|name| PathBuf::from("runs").join(name))
        .find(|path| !path.exists())
        .expect("there is no end of numbers")
}
