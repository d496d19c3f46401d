//! The program `highrank`: bad input, and a small run from the first epoch to its evaluation.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use harness::{Folder, Program, parsed, stderr};

use awd_lstm::language::{Language, LanguageConfig};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use serde_json::Value;

mod analysis;
mod devices;
mod dialog;
mod dialog_runs;
mod eval;
mod harness;
mod help;
mod letters;
mod methods;
mod output;
mod overwriting;
mod resume;
mod settings;
mod sweep;
mod sweep_search;
mod text;
mod tokens;
mod transformer;
mod weights;

const HIGHRANK: Program = Program(env!("CARGO_BIN_EXE_highrank"));

/// Changes a file of a run on purpose: its hash is noted.
fn edit(run: &Path, name: &str, content: impl AsRef<[u8]>) {
    fs::write(run.join(name), content).unwrap();
    runs::note_hashes(run).unwrap();
}

/// The program, to be started in `folder` with the words of `line` as arguments.
fn program(folder: &Path, line: &str) -> Command {
    HIGHRANK.command(folder, &arguments(line))
}

/// The words of `line`. What it does not say of the device is added where the build could find a GPU, since exact results
/// are those of the CPU.
fn arguments(line: &str) -> String {
    /// Commands that otherwise take the fastest device.
    const CHOOSING: &str =
        "train eval rank kl gradient-loss compare plif dynamic-eval sweep generate transformer";
    let mut words: Vec<&str> = line.split_whitespace().collect();
    let chooses = words.first().is_some_and(|word| CHOOSING.split(' ').any(|command| command == *word));
    let says = ["--device", "--resume", "--from"].iter().any(|option| words.contains(option));
    if cfg!(any(feature = "wgpu", feature = "cuda")) && cfg!(feature = "flex") && chooses && !says {
        words.extend(["--device", "flex"]);
    }
    words.join(" ")
}

/// Starts the program, whose standard error is to be read.
#[cfg(unix)]
fn started(folder: &Path, line: &str) -> std::process::Child {
    use std::process::Stdio;

    program(folder, line).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Runs the program in `folder` with the words of `line` as arguments.
fn run(folder: &Path, line: &str) -> Output {
    program(folder, line).output().unwrap()
}

/// Checks that the program refuses its input with one line that holds each of `expected`, and leaves no run.
#[track_caller]
fn refused(folder: &Path, line: &str, expected: &[&str]) {
    HIGHRANK.refused(folder, &arguments(line), expected);
    assert!(!folder.join("run").exists(), "{line} left a run folder");
    assert!(!folder.join("runs").exists(), "{line} left a run folder");
}

/// Runs the program, which must succeed, and returns the objects on standard output.
#[track_caller]
fn objects(folder: &Path, line: &str) -> Vec<Value> {
    HIGHRANK.objects(folder, &arguments(line))
}

/// Runs the program, which must succeed, and returns its standard output.
#[track_caller]
fn text(folder: &Path, line: &str) -> String {
    HIGHRANK.text(folder, &arguments(line))
}

/// The content of a file.
fn read(path: &Path, name: &str) -> String {
    fs::read_to_string(path.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The configuration of a run.
fn config(path: &Path, run: &str) -> Value {
    serde_json::from_str(&read(path, &format!("{run}/config.json"))).unwrap()
}

/// The lines of a file as JSON objects.
fn lines(file: &Path) -> Vec<Value> {
    parsed(&fs::read_to_string(file).unwrap())
}

/// The lines of a file of measurements without wall-clock times.
fn timeless(file: &Path) -> Vec<Value> {
    let mut lines = lines(file);
    for line in &mut lines {
        line["seconds"] = 0.into();
        line["tokens_per_s"] = 0.into();
    }
    lines
}

/// Checks that files of two folders are the same bit for bit.
#[track_caller]
fn same_files(one: &Path, other: &Path, names: &[&str]) {
    for name in names {
        let [one, other] = [one, other].map(|folder| folder.join(name));
        assert!(fs::read(&one).unwrap() == fs::read(&other).unwrap(), "{} differs", other.display());
    }
}

/// Every file below a folder, with its bytes.
fn all_files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files.extend(all_files(&path)),
            false => drop(files.insert(path.clone(), fs::read(&path).unwrap())),
        }
    }
    files
}

/// The names of the runs that lines are of.
fn names(lines: &[Value]) -> Vec<&str> {
    lines.iter().map(|line| line["run"].as_str().unwrap()).collect()
}

/// A folder whose folder `data` holds a small generated corpus.
fn folder() -> Folder {
    let folder = Folder::empty();
    let config = LanguageConfig { vocab: 40, topics: 4, classes: 4, favourites: 5, ..Default::default() };
    let language = Language::new(config).unwrap();
    let vocabulary = language.vocabulary();
    let data = folder.join("data");
    fs::create_dir(&data).unwrap();
    for (name, tokens, seed) in [("train", 3000, 1), ("valid", 400, 2), ("test", 300, 3)] {
        let ids = language.generate(tokens, &mut Pcg64Mcg::seed_from_u64(seed));
        let words: Vec<&str> = ids.iter().map(|&id| vocabulary.word(id).unwrap()).collect();
        fs::write(data.join(format!("{name}.txt")), words.join(" ").replace("<eos>", "\n")).unwrap();
    }
    folder
}

/// A model and procedure of a second or so; the dropouts of the preset stay.
const SMALL: &str = "--data data --d-embedding 12 --lstm 16,12 --components 3 --batch 8 --bptt 12 --lr 5";

#[test]
fn data_that_cannot_be_used() {
    let path = &folder();
    let train = format!("train {SMALL} --out run");
    refused(path, &train.replace("--data data", "--data nowhere"), &["data folder `nowhere` does not exist"]);
    // What has no effect is said of a run that is made.
    refused(path, "train nowhere --head softmax --components 3", &["data folder `nowhere` does not exist"]);
    #[cfg(unix)]
    refused(path, "plot /dev/null --out pictures", &["`/dev/null` is a pipe or a device"]);

    // A file is there, but it is no folder.
    for line in [
        format!("{train} --dry-run"),
        train.clone(),
        format!("sweep {SMALL} --out run"),
        "import --weights nowhere --data data --out run".into(),
        "dialog train --data data --out run".into(),
        "dialog import --weights nowhere --data data --out run".into(),
    ] {
        let line = line.replace("--data data", "--data data/train.txt");
        refused(path, &line, &["`data/train.txt` is a file; name a folder"]);
    }

    let (file, good) = (path.join("data/valid.txt"), fs::read(path.join("data/valid.txt")).unwrap());
    fs::remove_file(&file).unwrap();
    let missing = ["there is no file `data/valid.txt`", "train.txt, valid.txt and test.txt"];
    refused(path, &train, &missing);
    fs::create_dir(&file).unwrap();
    refused(path, &train, &missing);
    fs::remove_dir(&file).unwrap();
    fs::write(&file, "").unwrap();
    refused(path, &train, &["data/valid.txt` is empty"]);
    fs::write(&file, b"word0 word1\nword2 \xfe\xff\n").unwrap();
    refused(path, &train, &["data/valid.txt`, line 2", "UTF-8"]);
    fs::write(&file, "word0 word1\n").unwrap();
    refused(path, &train, &["the validation text is shorter than one batch: 3 tokens", "at least 20"]);
    fs::write(&file, good).unwrap();
    refused(
        path,
        &train.replace("--batch 8", "--batch 2000"),
        &["the training text is shorter than one batch"],
    );
}

#[test]
fn names_that_do_not_exist() {
    let path = &folder();
    let train = |more: &str| {
        let small =
            if more.contains("adaptive") { SMALL.replace(" --components 3", "") } else { SMALL.into() };
        format!("train {small} --out run {more}")
    };
    for (more, expected) in [
        ("--preset huge", &["unknown preset `huge`", "small, paper"][..]),
        (
            "--head doc --lower-components 1,1,1",
            &["lower_components is [1, 1, 1]", "one number for each layer below the last LSTM"],
        ),
        (
            "--head adaptive --cutoffs 9,5",
            &["cutoffs is [9, 5], but must be in ascending order, each above 0"],
        ),
        ("--head adaptive --cutoffs 5,99", &["the cutoffs are [5, 99]", "below the vocabulary's"]),
        ("--head softmix", &["unknown head `softmix`", "softmax, moc, mos", "mos-plif"]),
        ("--device abacus", &["unknown device `abacus`", "auto, flex, ndarray, wgpu, cuda"]),
        ("--colour blue", &["--colour"]),
    ] {
        refused(path, &train(more), expected);
    }
    let in_vain = "--head sigsoftmax --knots 3 --latent-lr 0.5 --set model.d_gate=8 --dry-run";
    let notes = stderr(&run(path, &train(in_vain)), 0);
    for (option, part) in [
        ("--components", "mixture"),
        ("--latent-lr", "latent contexts"),
        ("--knots", "PLIF"),
        ("--d-gate", "gates"),
    ] {
        let note = format!("{option} has no effect: the sigsoftmax head has no {part}\n");
        assert!(notes.contains(&note), "{notes}");
    }
    refused(path, "train --out run", &["--data <DIR>"]);
    refused(path, "eval", &["--run <RUN>"]);
    refused(path, "dance", &["dance"]);
    refused(path, "--seeds 0", &["--seeds"]);
    for (device, built) in [("wgpu", cfg!(feature = "wgpu")), ("cuda", cfg!(feature = "cuda"))] {
        if !built {
            let (missing, feature) =
                (format!("without the device `{device}`"), format!("--features {device}"));
            refused(path, &train(&format!("--device {device}")), &[&missing, &feature]);
        }
    }
}

#[test]
fn without_a_command_there_is_help() {
    let output = Command::new(env!("CARGO_BIN_EXE_highrank")).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{text}");
    assert!(text.contains("Usage: highrank") && text.contains("analyse"), "{text}");
}

#[test]
fn a_misspelt_name_is_met_by_the_right_one() {
    let path = &folder();
    let settings = path.join("settings.json");
    let check = |line: &str| {
        let words = line.replace("FILE", &settings.display().to_string());
        highrank_cli::programs::check(words.split(' ').map(String::from)).unwrap_err()
    };
    for (line, meant) in [
        ("trian --data data", "train"),
        ("train --data data --epohcs 3", "--epochs"),
        ("train --data data --head sofmax", "softmax"),
        ("train --data data --preset papper", "paper"),
        ("train --data data --device flx", "flex"),
        ("eval --run first --split vaild", "valid"),
        ("runs --sort sate", "state"),
        ("export --run first --out x.safetensors --names plian", "plain"),
        ("sweep --data data --for mos:lrr=3", "lr"),
        ("sweep --data data --heads softmax,moss", "mos"),
        ("dialog train --data data --preset smal", "small"),
    ] {
        let told = check(line);
        assert!(told.ends_with(&format!("; did you mean `{meant}`?")), "{line}: {told}");
    }
    for (text, meant) in [(r#"{"train": {"epohcs": 3}}"#, "epochs"), (r#"{"head": "sofmax"}"#, "softmax")] {
        fs::write(&settings, text).unwrap();
        let told = check("train --data data --config FILE");
        assert!(told.ends_with(&format!("; did you mean `{meant}`?")), "{text}: {told}");
    }
    for line in ["train --data data --head best", "train --data data --colour blue"] {
        assert!(!check(line).contains("did you mean"), "{}", check(line));
    }
}

/// Otherwise `mpirun`, which passes on what it has read, may put a line of its own into the middle.
#[cfg(unix)]
#[test]
fn an_error_is_written_at_once() {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixDatagram;
    use std::time::Duration;

    let path = &folder();
    // Each write to it arrives by itself.
    let (read, write) = UnixDatagram::pair().unwrap();
    read.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let status = program(path, "train --data nowhere").stderr(OwnedFd::from(write)).status().unwrap();
    assert_eq!(status.code(), Some(2));
    let mut line = [0; 1000];
    let length = read.recv(&mut line).unwrap();
    let line = str::from_utf8(&line[..length]).unwrap();
    assert!(line.starts_with("error: ") && line.contains("nowhere") && line.ends_with('\n'), "{line}");
    assert_eq!(line.lines().count(), 1, "{line}");
}

#[cfg(not(feature = "mpi"))]
#[test]
fn processes_of_one_job_are_refused_without_mpi() {
    let path = &folder();
    let start = |size: &str| {
        let train = format!("train {SMALL} --epochs 1 --out run{size}");
        program(path, &train).env("OMPI_COMM_WORLD_SIZE", size).output().unwrap()
    };
    let line = stderr(&start("3"), 2);
    assert!(line.contains("started 3 times over") && line.contains("--features mpi"), "{line}");
    assert_eq!(line.lines().count(), 1, "{line}");
    assert!(!path.join("run3").exists());
    assert!(start("1").status.success());
}

#[test]
fn settings_out_of_range() {
    let path = &folder();
    let cases = [
        ("--components 0", "components is 0"),
        ("--components -1", "'-1' for '--components <K>'"),
        ("--epochs 0", "epochs is 0"),
        ("--lstm 300000,12", "GB for weights and gradients, but this machine has"),
        ("--head mos-plif --plif-bound -3", "plif_bound is -3"),
        ("--head mos-plif --plif-bound nan", "'nan' for '--plif-bound <T>'"),
        ("--lr inf", "'inf' for '--lr <LR>'"),
        ("--set train.lr=0", "lr is 0"),
        ("--set train.lrr=1", "train.lrr: unknown field `lrr`"),
        ("--set train.lr", "is no setting: give its place and its value"),
        ("--set model.head=moc", "the head is chosen by --head"),
        ("--layers 0", "lstm_sizes is []"),
        ("--layers 70000", "--layers"),
        ("--last-lstm 0", "lstm_sizes is [256, 0]"),
        ("--head softmax --d-embedding 10 --last-lstm 12", "needs d_embedding = 10"),
        ("--dropout-weight much", "'much' for '--dropout-weight <P>'"),
        ("--max-time 0s", "must be above 0: 45s, 90m, 8h, 2d"),
        ("--max-time 90", "a time needs its unit"),
        ("--lr-decay 0.5 --lr-decay-from 0", "lr_decay.from.epoch is 0"),
        ("--lr-decay 0.5", "--lr-decay needs --lr-decay-from EPOCH or --lr-decay-on-plateau"),
        ("--lr-decay 0.5 --lr-decay-from 3 --lr-decay-on-plateau", "cannot be used with"),
        ("--untied=maybe", "'maybe' for '--untied"),
        ("--vocab-size 1e4", "'1e4' for '--vocab-size <N>': it must be a whole number of at least 0"),
        ("--log-every 0", "log-every is 0, but must be at least 1 step"),
        ("--checkpoint-every soon", "a time needs its unit"),
    ];
    for (more, expected) in cases {
        refused(path, &format!("train --data data --out run {more}"), &[expected]);
    }
}

#[test]
fn a_run_from_the_first_epoch_to_its_evaluation() {
    let path = &folder();
    let lines = objects(path, &format!("train {SMALL} --epochs 3 --out first --json"));
    assert_eq!(lines.len(), 4);
    for (index, line) in lines[..3].iter().enumerate() {
        assert_eq!(line["epoch"], index + 1);
        for key in ["seconds", "tokens_per_s", "train_ppl", "valid_ppl"] {
            assert!(line[key].as_f64().is_some_and(|value| value > 0.0), "{key} in {line}");
        }
    }
    let last = &lines[3];
    // A uniform guess has the number of words as its perplexity.
    let words = fs::read_to_string(path.join("first/vocab.txt")).unwrap().lines().count();
    assert!(last["test_ppl"].as_f64().unwrap() < words as f64, "{last}");

    for name in ["config.json", "vocab.txt", "checkpoint/model.safetensors", "checkpoint/state.json"] {
        assert!(path.join("first").join(name).is_file(), "{name}");
    }
    assert_eq!(self::lines(&path.join("first/metrics.jsonl")), lines);
    let config = config(path, "first");
    assert_eq!(config["train"]["seed"], 28);
    assert_eq!(config["model"]["vocab"], words);

    // The best model reads back to the same perplexities, here and on the other CPU backend.
    let eval = objects(path, "eval --run first --json");
    assert_eq!(eval.len(), 1);
    for key in ["valid_ppl", "test_ppl"] {
        assert_eq!(eval[0][key], last[key]);
    }
    if cfg!(feature = "ndarray") {
        let other = objects(path, "eval --run first --device ndarray --json");
        let (here, there) = (eval[0]["test_ppl"].as_f64().unwrap(), other[0]["test_ppl"].as_f64().unwrap());
        assert!((here - there).abs() < 1e-4 * here, "{here} {there}");
    }

    // The same seed makes the same weights, dropout masks and all; another seed others.
    objects(path, &format!("train {SMALL} --epochs 3 --out second --json"));
    objects(path, &format!("train {SMALL} --epochs 1 --seed 29 --out third --json"));
    let weights = |run: &str| fs::read(path.join(run).join("checkpoint/model.safetensors")).unwrap();
    assert!(weights("first") == weights("second"), "the same seed trained other weights");
    assert!(weights("first") != weights("third"), "another seed trained the same weights");
}

#[test]
fn folders_that_are_no_run_or_already_one() {
    let path = &folder();
    refused(path, "eval --run data", &["`data` is not a run folder", "config.json"]);
    objects(path, &format!("train {SMALL} --epochs 1 --out first --json"));
    let before = fs::read(path.join("first/config.json")).unwrap();
    refused(path, &format!("train {SMALL} --epochs 1 --out first"), &["`first` already holds a run"]);
    assert_eq!(fs::read(path.join("first/config.json")).unwrap(), before);

    // Another text in the model's words is scored, with a word about it; its own without.
    let noted = |line: &str| -> Vec<String> {
        let errors = stderr(&run(path, line), 0);
        errors.lines().filter(|line| line.starts_with("note: ")).map(String::from).collect()
    };
    fs::create_dir(path.join("swapped")).unwrap();
    for (from, to) in [("valid", "test"), ("test", "valid")] {
        fs::copy(path.join(format!("data/{from}.txt")), path.join(format!("swapped/{to}.txt"))).unwrap();
    }
    for (line, texts) in [
        ("eval --run first", vec!["the validation text", "the test text"]),
        ("eval --run first --split test --json", vec!["the test text"]),
        ("rank --run first --split valid --tokens 40", vec!["the validation text"]),
    ] {
        assert!(noted(line).is_empty(), "{line}");
        let notes = noted(&format!("{line} --data swapped"));
        assert_eq!(notes.len(), texts.len(), "{notes:?}");
        for (note, text) in notes.iter().zip(texts) {
            assert!(note.starts_with(&format!("note: {text} is not the run's: ")), "{note}");
        }
    }

    // Text of other words than the model's.
    fs::create_dir(path.join("other")).unwrap();
    fs::write(path.join("other/valid.txt"), "word0 word1\nword2 zebra\n").unwrap();
    fs::write(path.join("other/test.txt"), "word0\n").unwrap();
    refused(path, "eval --run first --data other", &["other/valid.txt`, line 2", "word `zebra`"]);

    // Without an output folder a fresh one is taken each time.
    for _ in 0..2 {
        objects(path, &format!("train {SMALL} --epochs 1 --json"));
    }
    assert!(path.join("runs/small-mos-28/config.json").is_file());
    assert!(path.join("runs/small-mos-28-2/config.json").is_file());
}

#[test]
fn checkpoints_that_cannot_be_read() {
    let path = &folder();
    objects(path, &format!("train {SMALL} --epochs 1 --out first --json"));
    objects(path, &format!("train {SMALL} --epochs 1 --out wide --json").replace("16,12", "20,12"));
    let file = path.join("first/best/model.safetensors");
    let good = fs::read(&file).unwrap();
    let eval = "eval --run first";

    fs::write(&file, &good[..good.len() / 2]).unwrap();
    refused(path, eval, &["best/model.safetensors` is damaged"]);
    // What is behind the hashes is checked too.
    let first = path.join("first");
    edit(&first, "best/model.safetensors", fs::read(path.join("wide/best/model.safetensors")).unwrap());
    refused(path, eval, &["does not fit the model: ", ", but should be ["]);
    fs::remove_file(&file).unwrap();
    refused(path, eval, &["is damaged: it is missing"]);
    runs::note_hashes(&first).unwrap();
    refused(path, eval, &["no epoch was finished"]);
    edit(&first, "best/model.safetensors", good);
    assert_eq!(objects(path, &format!("{eval} --json")).len(), 1);

    fs::write(path.join("first/config.json"), "{").unwrap();
    refused(path, eval, &["first/config.json` is damaged"]);
}

#[test]
fn a_loss_that_is_not_finite_stops_the_run() {
    let path = &folder();
    let line = format!("train {SMALL} --epochs 2 --out first --json").replace("--lr 5", "--lr 1e38");
    let errors = stderr(&run(path, &line), 2);
    let last = errors.lines().last().unwrap();
    assert!(last.starts_with("error: the loss is not finite in epoch 1, at or before step"), "{errors}");
    assert!(!errors.contains("panicked"), "{errors}");
    assert!(!path.join("first/checkpoint").exists());
    assert!(!path.join("first/best").exists());
}
