//! The studies: what they find, draw, keep and refuse.

#[path = "../../crates/cli/tests/cli/harness.rs"]
mod harness;
mod pictures;

use std::fs;
use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

#[cfg(unix)]
use harness::child_signal;
use harness::{Folder, Program, assert_pictures, number, parsed, stderr, wait_for};
use serde_json::{Value, json};

const STUDIES: Program = Program(env!("CARGO_BIN_EXE_studies"));

/// A grid of 20 fits of 80 steps.
const SMALL: &str = "--contexts 30 --alphas 0.1,1 --words 10 --dims 2,8 --epochs 20 --batch 8 --json";

/// The objects on standard output of a program that has ended with any status.
fn lines(output: &Output) -> Vec<Value> {
    parsed(str::from_utf8(&output.stdout).unwrap())
}

/// The same without wall-clock times.
fn timeless(mut objects: Vec<Value>) -> Vec<Value> {
    for object in &mut objects {
        object["seconds"] = 0.into();
        object["fits"].as_array_mut().unwrap().iter_mut().for_each(|fit| fit["seconds"] = 0.into());
    }
    objects
}

/// Writes lines as they were printed.
fn save(folder: &Path, name: &str, objects: &[Value]) {
    let lines: Vec<String> = objects.iter().map(Value::to_string).collect();
    fs::write(folder.join(name), lines.join("\n")).unwrap();
}

#[test]
fn the_synthetic_study_runs_and_refuses() {
    let path = &Folder::empty();
    let outcomes = STUDIES.objects(path, &format!("synthetic {SMALL} --out maps"));
    assert_eq!(outcomes.len(), 2 * 2 * 5);
    for outcome in &outcomes {
        assert!(
            number(outcome, "kl") >= 0.0 && (0.0..=1.0).contains(&number(outcome, "mode_match")),
            "{outcome}"
        );
        assert_eq!((&outcome["contexts"], &outcome["lr"]), (&30.into(), &0.1.into()));
        assert_eq!((number(outcome, "kl_spread"), outcome["fits"].as_array().unwrap().len()), (0.0, 1));
    }
    assert_pictures(&path.join("maps"), "kl", &["alpha = 0.1", "monotonic-net", "nats"]);
    assert_pictures(&path.join("maps"), "mode_match", &["alpha = 1", "mos"]);

    // The same seed comes to the same, whatever else is in the grid.
    let one = "synthetic --contexts 30 --epochs 20 --batch 8 --words 10 --json --heads mos --alphas 1 --dims 8 --seed 28";
    let again = STUDIES.objects(path, one);
    let same = outcomes.iter().find(|it| it["head"] == "mos" && it["alpha"] == 1.0 && it["d"] == 8).unwrap();
    assert_eq!((again.len(), &again[0]["kl"]), (1, &same["kl"]));

    let table = STUDIES.text(path, &one.replace("--json", ""));
    assert!(table.lines().count() == 3 && table.contains("mode match") && table.contains("nats"), "{table}");

    // What was printed gives the same pictures and, beside the table of the run itself, the same table.
    save(path, "found.jsonl", &outcomes);
    let drawn = STUDIES.text(path, "synthetic --from found.jsonl --out again");
    assert_eq!(drawn.lines().count(), 2 * 2 * 5 + 2, "{drawn}");
    for picture in ["kl.svg", "mode_match.svg"] {
        assert!(
            fs::read(path.join("maps").join(picture)).unwrap()
                == fs::read(path.join("again").join(picture)).unwrap()
        );
    }

    let redrawn = "synthetic --from found.jsonl --out again";
    STUDIES.refused(path, redrawn, &["`again/kl.svg` exists already", "--force"]);
    STUDIES.text(path, &format!("{redrawn} --force"));
    // A picture that is not of the folder's own fits.
    fs::create_dir(path.join("taken")).unwrap();
    fs::write(path.join("taken/mode_match.svg"), "mine").unwrap();
    STUDIES.refused(path, &format!("{one} --out taken"), &["`taken/mode_match.svg` exists already"]);
    assert_eq!(fs::read_to_string(path.join("taken/mode_match.svg")).unwrap(), "mine");

    for (line, expected) in [
        ("--from found.jsonl --epochs 3", "cannot be used with"),
        ("--from none.jsonl", "none.jsonl"),
        (
            "--from found.jsonl found.jsonl",
            "`found.jsonl` has a second result of softmax with alpha 0.1, 10 words and d ",
        ),
        ("repeated --from found.jsonl", "line 1: no result that `synthetic repeated --json` printed"),
        ("--heads softmix", "unknown head `softmix`"),
        ("--device nonsense", "unknown device `nonsense`"),
        (
            "--heads mos,doc",
            "heads is doc, but must be heads that read one layer and have no clusters of words",
        ),
        ("--heads adaptive", "heads is adaptive"),
        ("--alphas 0", "alphas is 0"),
        ("--alphas 1,nan", "alphas is NaN"),
        ("--alphas 1,1", "`1` is there twice"),
        ("--words 1", "words is 1, but must be at least 2"),
        ("--dims 4,0", "dims is 0"),
        ("--contexts 0", "contexts is 0"),
        ("--epochs 0", "epochs is 0"),
        ("--batch 0", "batch is 0"),
        ("--components 0", "components is 0"),
        ("--knots 0", "knots is 0"),
        ("--units 0", "units is 0"),
        ("--lr -1", "lr is -1"),
        ("--lr 0.1,0.1", "`0.1` is there twice"),
        ("--seeds 1,x", "`x`"),
        ("--checkpoint-every -1", "checkpoint-every is -1"),
        ("--checkpoint-every 1e18", "checkpoint-every is 1000000000000000000"),
        ("--max-time 5m", "--out"),
        ("--max-time 5 --out maps", "a time needs its unit"),
        ("--words x", "--words"),
        ("--epochs 3 repeated", "repeated"),
    ] {
        STUDIES.refused(path, &format!("synthetic {line}"), &[expected]);
    }
    fs::write(path.join("file"), "").unwrap();
    STUDIES.refused(path, "synthetic --out file", &["`file` is a file; name a folder"]);
}

#[test]
fn fits_are_kept_and_those_that_are_there_are_not_made_again() {
    let path = &Folder::empty();
    let few = "synthetic --contexts 30 --alphas 0.1 --words 10 --dims 2 --epochs 20 --batch 8 --heads softmax,mos --json";
    let more = format!("{few} --lr 0.1,0.001 --seeds 28,29");
    STUDIES.objects(path, &format!("{few} --out kept"));
    let kept = || parsed(&fs::read_to_string(path.join("kept/fits.jsonl")).unwrap());
    let before = kept();
    assert_eq!((before.len(), &before[0]["settings"]["head"]), (2, &"softmax".into()));
    let components = [0, 1].map(|fit: usize| &before[fit]["settings"]["components"]);
    assert_eq!(components, [&Value::Null, &3.into()]);

    // What is there keeps its time, so that it was not made again; what has no such part does not depend on it.
    let outcomes = STUDIES.objects(path, &format!("{more} --knots 9 --out kept"));
    assert_eq!((kept().len(), &kept()[..2]), (8, &before[..]));
    let straight = STUDIES.objects(path, &more);
    assert_eq!(timeless(outcomes.clone()), timeless(straight));
    for outcome in &outcomes {
        // A hundredth of the rate has hardly begun to learn.
        assert_eq!((&outcome["lr"], outcome["fits"].as_array().unwrap().len()), (&0.1.into(), 4));
        let learned = outcome["fits"].as_array().unwrap().iter().filter(|fit| fit["lr"] == 0.1);
        let kls: Vec<f64> = learned.map(|fit| number(fit, "kl")).collect();
        assert!(
            (number(outcome, "kl") - (kls[0] + kls[1]) / 2.0).abs() < 1e-12
                && number(outcome, "kl_spread") > 0.0
        );
    }
    // A table with a spread, from kept fits alone.
    let table = STUDIES.text(path, &format!("{more} --out kept").replace("--json", ""));
    assert!(
        table.contains(" ± ") && table.contains("2 seeds") && table.contains("lowest training loss"),
        "{table}"
    );
    assert_eq!(kept().len(), 8);

    // A rate at which nothing is learned loses to any other, and alone is an answer too.
    let line = "synthetic --contexts 30 --alphas 0.1 --words 10 --dims 2 --epochs 20 --batch 8 --heads softmax --json";
    let output = STUDIES.run(path, &format!("{line} --lr 1e38"));
    let errors = stderr(&output, 1);
    assert!(errors.contains("1 heads diverged") && lines(&output)[0]["kl"].is_null(), "{errors}");
    assert_eq!(STUDIES.objects(path, &format!("{line} --lr 1e38,0.1"))[0]["lr"], 0.1);
    // So it is where its weights are to be saved before anything looks at the loss.
    let saved = STUDIES.run(path, &format!("{line} --lr 1e38 --out diverged --checkpoint-every 0"));
    assert!(stderr(&saved, 1).contains("1 heads diverged"));
    assert!(lines(&saved)[0]["kl"].is_null() && path.join("diverged/fits.jsonl").exists());

    fs::write(path.join("kept/fits.jsonl"), "{\n").unwrap();
    STUDIES.refused(path, &format!("{few} --out kept"), &["kept/fits.jsonl` is damaged: line 1"]);
}

/// Starts a command again and again with so little time that it has to stop inside of fits, until it comes to its end.
fn in_pieces(folder: &Path, line: &str, kept: &str) -> Vec<Value> {
    let patience = Instant::now() + Duration::from_secs(100);
    let mut stops = 0;
    loop {
        assert!(Instant::now() < patience, "{line}: {stops} stops");
        let output = STUDIES.run(folder, &format!("{line} --out {kept} --max-time 0.001s"));
        let errors = String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            Some(0) => {
                assert!(stops > 1, "{line} was never stopped");
                assert!(!folder.join(kept).join("unfinished").exists());
                return lines(&output);
            }
            Some(1) => {
                let line = errors.lines().last().unwrap();
                assert!(
                    line.starts_with("stopped after ") && line.ends_with("the same command goes on"),
                    "{errors}"
                );
                assert!(folder.join(kept).join("unfinished/position.json").exists());
            }
            status => panic!("{status:?}: {errors}"),
        }
        stops += 1;
    }
}

#[test]
fn fits_that_are_stopped_go_on_as_if_nothing_had_been() {
    let path = &Folder::empty();
    let grid = "synthetic --contexts 60 --alphas 0.1 --words 30 --dims 4 --epochs 4 --batch 20 --heads softmax,plif --json";
    let straight = STUDIES.objects(path, grid);
    assert_eq!(timeless(in_pieces(path, grid, "grid")), timeless(straight));

    let repeated = "synthetic repeated --vocab 50 --d 4 --heads softmax,mos --steps 12 --batch 40 --json";
    let straight = STUDIES.objects(path, repeated);
    assert_eq!(timeless(in_pieces(path, repeated, "repeated")), timeless(straight));
}

#[cfg(unix)]
#[test]
fn an_interrupt_saves_the_fit_under_way() {
    use std::process::Stdio;
    let path = &Folder::empty();
    let line =
        "synthetic repeated --vocab 2000 --d 8 --heads softmax --steps 1000000 --batch 100 --out kept --json";
    let mut often = STUDIES.command(path, &format!("{line} --checkpoint-every 0"));
    let child = often.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for(&path.join("kept/unfinished/position.json"));
    STUDIES.refused(path, line, &["`kept` is in use: another process fits there"]);
    child_signal(&child, "INT");
    let errors = stderr(&child.wait_with_output().unwrap(), 130);
    let stopped = "stopped after 0 of 1 fits, the next one saved; the same command goes on";
    assert!(errors.contains(stopped), "{errors}");
    // Damage is found before anything is trained.
    fs::write(path.join("kept/unfinished/optimiser.bin"), "").unwrap();
    STUDIES.refused(path, line, &["kept/unfinished/optimiser.bin` is damaged"]);
}

#[test]
fn repeated_symbols_are_learned_and_bad_sizes_refused() {
    let path = &Folder::empty();
    let line = "synthetic repeated --vocab 20,40 --d 8,4 --heads softmax,mos --components 2 \
                --steps 50 --visits 100 --batch 40 --lr 0.001,0.05 --seeds 1,2";
    let outcomes = STUDIES.objects(path, &format!("{line} --json --out pictures"));
    assert_eq!(outcomes.len(), 2 * 2 * 2);
    for outcome in &outcomes {
        let vocab = number(outcome, "vocab");
        // A hundred visits need more than fifty steps where there are forty symbols.
        assert_eq!((number(outcome, "steps"), number(outcome, "visits")), (vocab * 2.5, 100.0));
        assert_eq!((&outcome["lr"], outcome["fits"].as_array().unwrap().len()), (&0.05.into(), 4));
        assert!((number(outcome, "guessing") - vocab.ln()).abs() < 1e-12 && number(outcome, "floor") == 0.0);
        let (loss, accuracy) = (number(outcome, "loss"), number(outcome, "accuracy"));
        assert!(loss > 0.0 && loss < vocab.ln() && (0.0..=1.0).contains(&accuracy), "{outcome}");
        assert!(number(outcome, "loss_spread") > 0.0 && number(outcome, "accuracy_spread") >= 0.0);
    }
    let softmax =
        outcomes.iter().find(|it| it["head"] == "softmax" && it["d"] == 8 && it["vocab"] == 20).unwrap();
    assert!(number(softmax, "loss") < 0.5 && number(softmax, "accuracy") > 0.9, "{softmax}");
    assert_pictures(&path.join("pictures"), "repeated_loss", &["softmax, d 8", "nats", "even guessing"]);
    assert_pictures(&path.join("pictures"), "repeated_accuracy", &["mos, d 4", "predicted, %"]);
    let table = STUDIES.text(path, &format!("{line} --out pictures"));
    assert!(table.lines().count() == 10 && table.contains("floor is 0") && table.contains(" ± "), "{table}");

    // What was printed gives the same table and pictures, the sizes of a head in any order.
    let (even, odd): (Vec<_>, Vec<_>) = outcomes.iter().cloned().enumerate().partition(|(at, _)| at % 2 == 0);
    save(path, "first.jsonl", &even.into_iter().map(|(_, outcome)| outcome).collect::<Vec<_>>());
    save(path, "second.jsonl", &odd.into_iter().map(|(_, outcome)| outcome).collect::<Vec<_>>());
    let again = STUDIES.text(path, "synthetic repeated --from first.jsonl second.jsonl --out again");
    let sorted = |table: &str| {
        let mut lines: Vec<String> = table.lines().map(str::to_string).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&again), sorted(&table));
    assert_pictures(&path.join("again"), "repeated_loss", &["softmax, d 8", "nats", "even guessing"]);
    assert_eq!(STUDIES.objects(path, "synthetic repeated --from first.jsonl --json").len(), 4);

    for (line, expected) in [
        ("--from first.jsonl --vocab 20", "cannot be used with"),
        ("--from first.jsonl first.jsonl", "has a second result of softmax with 20 symbols and d 8"),
        ("--vocab 1", "vocab is 1, but must be at least 2"),
        ("--vocab 20,20", "`20` is there twice"),
        ("--d 0", "d is 0"),
        ("--heads softmix", "unknown head `softmix`"),
        ("--heads doc", "heads is doc"),
        ("--steps 0", "steps is 0"),
        ("--visits 0", "visits is 0"),
        ("--visits nan", "visits is NaN"),
        ("--batch 0", "batch is 0"),
        ("--lr -0.1", "lr is -0.1"),
        ("--components 0", "components is 0"),
        ("--max-time 5m", "--out"),
        ("--device abacus", "unknown device `abacus`"),
        ("--words 5", "--words"),
    ] {
        STUDIES.refused(path, &format!("synthetic repeated {line}"), &[expected]);
    }
}

#[test]
fn a_mixture_is_timed_beside_a_softmax() {
    let path = &Folder::empty();
    let line =
        "slowdown --text small --vocab 50 --repeats 1 --device cpu --components 2,3 --batches 2,5 --json";
    let rows = STUDIES.objects(path, &format!("{line} --out pictures"));
    let settings: Vec<_> = rows.iter().map(|row| (&row["batch"], &row["components"])).collect();
    let all = [(2, 2), (2, 3), (5, 2), (5, 3)];
    assert_eq!(format!("{settings:?}"), format!("{:?}", all.map(|(b, k)| (json!(b), json!(k)))));
    for row in &rows {
        let speed = |key: &str| row[key].as_f64().unwrap();
        let slowdown = speed("softmax_tokens_per_s") / speed("tokens_per_s");
        assert!((slowdown / speed("slowdown") - 1.0).abs() < 1e-12 && slowdown > 0.0, "{row}");
        assert_eq!(row["published"], json!([]));
    }
    assert_pictures(&path.join("pictures"), "slowdown", &["batch 5"]);
    STUDIES.refused(path, &format!("{line} --out pictures"), &["`pictures/slowdown.svg` exists already"]);
    STUDIES.refused(path, "slowdown --repeats 0", &["--repeats is 0"]);
    STUDIES.refused(path, "slowdown --components 0 --repeats 1", &["components is 0"]);
}

#[test]
fn references_are_retrieved_from_the_training_text() {
    use seq2seq::synthetic::{Language, LanguageConfig, Sizes};

    let path = &Folder::empty();
    let config = LanguageConfig { words: 20, utterances: 24, max_words: 3, ..Default::default() };
    let language = Language::new(config).unwrap();
    language.write_corpus(&path.join("data"), Sizes { train: 24, valid: 3, test: 3 }, 1).unwrap();
    let line = "references --data data --out refs.jsonl";
    STUDIES.refused(path, &format!("{line} --window 0"), &["window is 0"]);
    STUDIES.refused(path, &format!("{line} --extra 0"), &["extra is 0"]);
    STUDIES.refused(path, &line.replace("--data data", "--data nowhere"), &["`nowhere` does not exist"]);
    assert!(!path.join("refs.jsonl").exists());
    let written = STUDIES.objects(path, &format!("{line} --extra 2 --json")).remove(0);
    let text = fs::read_to_string(path.join("refs.jsonl")).unwrap();
    assert_eq!(written["references"], 3 * text.lines().count());
    STUDIES.refused(path, line, &["`refs.jsonl` exists already"]);
    // A name that JSON cannot hold.
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::ffi::OsStrExt;
        let mut command = STUDIES.command(path, "references --data data --json --out");
        let output = command.arg(std::ffi::OsStr::from_bytes(b"refs-\xff.jsonl")).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(lines(&output)[0]["file"], "refs-\u{fffd}.jsonl");
    }
}

#[test]
fn theorems_are_measured_and_drawn() {
    let path = &Folder::empty();
    let lines = STUDIES.objects(path, "theorems --only powers,plif,entropy --out pictures --json");
    let names: Vec<_> = lines.iter().map(|line| line["theorem"].as_str().unwrap()).collect();
    assert_eq!(names, ["powers", "plif", "entropy"]);
    for line in &lines {
        assert_eq!(line["holds"], true, "{line}");
    }
    for name in names {
        assert!(path.join(format!("pictures/theorem-{name}.svg")).metadata().unwrap().len() > 1000);
    }
    // No picture of another is lost.
    let plif = path.join("pictures/theorem-plif.svg");
    fs::write(&plif, "mine").unwrap();
    let line = "theorems --only entropy,plif --out pictures";
    fs::remove_file(path.join("pictures/theorem-entropy.svg")).unwrap();
    STUDIES.refused(path, line, &["`pictures/theorem-plif.svg` exists already", "--force"]);
    assert_eq!(fs::read_to_string(&plif).unwrap(), "mine");
    assert!(!path.join("pictures/theorem-entropy.svg").exists());
    STUDIES.text(path, &format!("{line} --force"));
    assert!(fs::read_to_string(&plif).unwrap().starts_with("<svg"));
    let text = STUDIES.text(path, "theorems --only powers");
    assert!(text.contains("56 (56)") && text.contains("holds"), "{text}");
    STUDIES.refused(path, "theorems --only lemma", &["unknown theorem `lemma`", "rank, floor, entropy"]);
}
