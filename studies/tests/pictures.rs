//! The pictures of the documentation.

use std::fs;
use std::path::{Path, PathBuf};

/// Where the repository is.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn pictures() -> Vec<PathBuf> {
    let folders = ["results", "benches/results"].map(|folder| root().join(folder));
    let entries = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|ending| ending == "svg")).collect()
}

#[test]
fn pictures_are_described_and_legible_on_dark_pages() {
    let pictures = pictures();
    assert!(pictures.len() >= 5, "{pictures:?}");
    for path in pictures {
        let text = fs::read_to_string(&path).unwrap();
        let tags: Vec<&str> = text.split('<').skip(1).collect();
        let size = tags[0].split("viewBox").next().unwrap().strip_prefix("svg role=\"img\" ").unwrap();
        let told = [tags[1].strip_prefix("title>"), tags[3].strip_prefix("desc>")];
        assert!(told.iter().all(|told| told.is_some_and(|told| !told.is_empty())), "{}", path.display());
        // White becomes black on dark pages, by one rule for all that follows.
        assert!(tags[5].contains("dark") && tags[5].contains("invert(1)"), "{}: {}", path.display(), tags[5]);
        // All of it is white before anything else is drawn.
        let white = format!("rect x=\"0\" y=\"0\" {size}opacity=\"1\" fill=\"#FFFFFF\"");
        assert!(tags[7].starts_with(&white), "{}: {}", path.display(), tags[7]);
        // The letters say what colour they have, and are of one kind.
        for words in text.split("<text ").skip(1) {
            let words = words.split('>').next().unwrap();
            assert!(words.contains("font-family=\"sans-serif\"") && words.contains("fill=\"#"), "{words}");
        }
    }
}

#[cfg(unix)]
mod redrawn {
    use std::process::{Command, Output};

    use super::*;

    /// The script of a copy of what it reads, so that nothing here is written.
    fn script(root: &Path, options: &[&str]) -> Output {
        // A file that was just written cannot always be run: another test's process may still hold it open.
        let mut command = Command::new("bash");
        command
            .arg(root.join("scripts/pictures.sh"))
            .args(options)
            .env("PROGRAMS", Path::new(env!("CARGO_BIN_EXE_studies")).parent().unwrap());
        command.output().expect("bash is there")
    }

    fn text(bytes: &[u8]) -> String {
        String::from_utf8_lossy(bytes).into_owned()
    }

    #[test]
    fn one_command_draws_them_as_they_are() {
        let output = script(&root(), &["--check"]);
        assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
        let lines = text(&output.stdout);
        for path in pictures() {
            let name = path.file_name().unwrap().to_string_lossy();
            assert!(lines.contains(&format!("results/{name}: ")), "{name} in {lines}");
        }
    }

    #[test]
    fn another_picture_is_named_and_drawn_anew() {
        let copy = tempfile::tempdir().unwrap();
        for folder in ["scripts", "results", "benches/results"] {
            fs::create_dir_all(copy.path().join(folder)).unwrap();
        }
        fs::copy(root().join("scripts/pictures.sh"), copy.path().join("scripts/pictures.sh")).unwrap();
        let write = |name: &str, text: &str| fs::write(copy.path().join("results").join(name), text).unwrap();
        let line = |head: &str, seed: usize, ppl: f64| {
            format!(
                r#"{{"head":"{head}","seed":{seed},"parameters":9,"d_embedding":2,"lstm_sizes":[3,2],"components":5,"epochs":4,"best_epoch":4,"valid_ppl":{ppl},"test_ppl":{ppl},"tokens_per_s":2.5,"seconds":176.2}}"#
            )
        };
        write("heads.jsonl", &[line("softmax", 1, 20.0), line("mos", 1, 10.0)].join("\n"));
        write("heads.svg", "<svg/>");
        write(
            "steps.jsonl",
            "{\"head\": \"mos\", \"step\": 1, \"valid_ppl\": 9}\n{\"head\": \"mos\", \"step\": 2, \"valid_ppl\": 8}\n",
        );
        let epoch = |epoch: usize, ppl: f64| {
            format!("{{\"head\": \"softmax\", \"epoch\": {epoch}, \"valid_ppl\": {ppl}}}\n")
        };
        write("learning.jsonl", &(epoch(1, 9.0) + &epoch(2, 7.0)));
        write("alone.svg", "<svg/>");
        write("other.jsonl", "{\"x\":1}\n");
        let seed = |seed| line("mos", seed, 10.0).replace(r#""parameters""#, r#""settings":{},"parameters""#);
        write("seeds.jsonl", &[seed(1), seed(2)].join("\n"));
        write(
            "values.jsonl",
            r#"{"run":"a","head":"mos","d_embedding":2,"contexts":3,"vocab":3,"bound":null,"precision":"f64","rank":2,"rank_f32":2,"threshold":1e-15,"threshold_f32":1e-6,"singular_values":[4.0,2.0,0.0]}"#,
        );
        write(
            "symbols.jsonl",
            r#"{"vocab":20,"d":4,"head":"mos","steps":5,"visits":10.0,"parameters":9,"lr":0.1,"loss":0.5,"loss_spread":0.0,"floor":0.0,"guessing":3.0,"accuracy":0.9,"accuracy_spread":0.0,"seconds":1.0,"fits":[{"lr":0.1,"seed":1,"accuracy":0.9,"loss":0.5,"parameters":9,"seconds":1.0}]}"#,
        );
        let page =
            ["steps", "learning", "values", "symbols-loss"].map(|name| format!("![](results/{name}.svg)\n"));
        fs::write(copy.path().join("README.md"), page.concat()).unwrap();
        let picture = copy.path().join("results/heads.svg");

        let output = script(copy.path(), &["--check"]);
        assert_eq!(output.status.code(), Some(1));
        let (lines, errors) = (text(&output.stdout), text(&output.stderr));
        assert!(lines.contains("results/alone.svg: left alone, for no file gives it"), "{lines}");
        assert!(lines.contains("results/other.jsonl: no picture"), "{lines}");
        assert!(lines.contains("results/seeds.jsonl: one model, nothing to compare"), "{lines}");
        assert_eq!(errors.lines().count(), 5, "{errors}");
        assert!(errors.starts_with("error: `results/heads.svg` is not what its file gives"), "{errors}");
        assert_eq!(fs::read_to_string(&picture).unwrap(), "<svg/>");

        assert!(script(copy.path(), &[]).status.success());
        let drawn = fs::read_to_string(&picture).unwrap();
        assert!(drawn.contains("softmax") && drawn.contains("mos"), "{drawn}");
        assert!(fs::read_to_string(copy.path().join("results/steps.svg")).unwrap().contains("mos, best 8.0"));
        let learning = fs::read_to_string(copy.path().join("results/learning.svg")).unwrap();
        assert!(learning.contains("softmax, best 7.0") && learning.contains("epoch"), "{learning}");
        let values = fs::read_to_string(copy.path().join("results/values.svg")).unwrap();
        assert!(values.contains("a (mos)") && values.contains("singular value"), "{values}");
        let symbols = fs::read_to_string(copy.path().join("results/symbols-loss.svg")).unwrap();
        assert!(symbols.contains("mos, d 4") && symbols.contains("even guessing"), "{symbols}");
        assert!(!copy.path().join("results/symbols-accuracy.svg").exists(), "no page shows it");
        assert!(script(copy.path(), &["--check"]).status.success());
        // Damaged results end it before anything is written.
        write("heads.jsonl", "{\"best_epoch\":1}\n");
        let output = script(copy.path(), &[]);
        assert!(!output.status.success() && text(&output.stderr).contains("line 1"), "{output:?}");
        assert_eq!(fs::read_to_string(&picture).unwrap(), drawn);
        assert_eq!(script(copy.path(), &["--all"]).status.code(), Some(2));
    }
}
