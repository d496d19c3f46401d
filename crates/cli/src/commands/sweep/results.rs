//! Results that were written, read again.

use std::path::{Path, PathBuf};

use program::files::read_json_lines;
use runs::Error;

use crate::commands::sweep::grid::Axis;
use crate::commands::sweep::outcome::Outcome;

/// The file of results in a sweep's folder.
pub const RESULTS: &str = "results.jsonl";

/// The results in a file, or in the [`RESULTS`] of a folder.
///
/// # Errors
/// A file that cannot be read, or a line that is no result.
pub fn read(path: &Path) -> Result<Vec<Outcome>, Error> {
    let path: PathBuf = if path.is_dir() { path.join(RESULTS) } else { path.to_path_buf() };
    read_json_lines(&path, "result of a sweep")
}

/// The settings that vary, each with its values in the order in which they appear.
pub fn axes<'a>(settings: impl Iterator<Item = &'a (String, String)>) -> Vec<Axis> {
    let mut axes: Vec<Axis> = vec![];
    for (flag, value) in settings {
        match axes.iter_mut().find(|axis| axis.flag == *flag) {
            Some(axis) if axis.values.contains(value) => {}
            Some(axis) => axis.values.push(value.clone()),
            None => axes.push(Axis::new(flag, vec![value.clone()])),
        }
    }
    axes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::sweep::rank::Rank;
    use crate::commands::sweep::table::tests::outcome;
    use awd_lstm::HeadKind;

    #[test]
    fn what_is_written_is_read_back() {
        let plain = outcome(HeadKind::Softmax, &[], 28, 20.0);
        let settings = [("lstm", "9,8"), ("lr", "0.5"), ("components", "5")];
        let rich = Outcome {
            rank: Some(Rank { rank: 40, rank_contexts: 1200, rank_precision: "f64".into() }),
            finetuned: plain.trained.clone(),
            ..outcome(HeadKind::Mos, &settings, 29, 10.0)
        };
        let failed = Outcome { trained: None, failed: Some("too hot".into()), ..plain.clone() };
        let all = [plain, rich, failed];
        let folder = tempfile::tempdir().unwrap();
        let lines: Vec<String> = all.iter().map(|outcome| serde_json::to_string(outcome).unwrap()).collect();
        std::fs::write(folder.path().join(RESULTS), lines.join("\n") + "\n\n").unwrap();
        assert_eq!(read(folder.path()).unwrap(), all);
        assert_eq!(read(&folder.path().join(RESULTS)).unwrap(), all);
        let axes = axes(all.iter().flat_map(|outcome| &outcome.settings));
        assert_eq!(
            axes.iter().map(|axis| axis.flag.as_str()).collect::<Vec<_>>(),
            ["lstm", "lr", "components"]
        );
    }

    #[test]
    fn lines_of_earlier_versions_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("old.jsonl");
        let line = r#"{"head":"mos","seed":28,"parameters":9,"d_embedding":2,"lstm_sizes":[3,2],"components":5,"epochs":4,
            "best_epoch":4,"valid_ppl":134.5,"test_ppl":131.9,"tokens_per_s":2.5,"seconds":176.2}"#;
        std::fs::write(&file, line.replace('\n', " ")).unwrap();
        let read_back = &read(&file).unwrap()[0];
        assert_eq!(
            (read_back.components, read_back.exact.as_ref(), read_back.run.as_str()),
            (Some(5), None, "")
        );
        assert_eq!(read_back.trained.as_ref().unwrap().valid_ppl, 134.5);
        for (text, expected) in
            [("", "it has no result"), ("{\"head\":\"mos\"}", "line 1: no result of a sweep")]
        {
            std::fs::write(&file, text).unwrap();
            let message = read(&file).unwrap_err().to_string();
            assert!(message.contains(expected) && !message.contains('\n'), "{message}");
        }
        assert!(read(&folder.path().join("none")).unwrap_err().to_string().starts_with("cannot read"));
    }
}
