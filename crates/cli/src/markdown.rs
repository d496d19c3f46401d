//! Tables in Markdown.

use std::fmt::Write as _;

/// A column: its title, and its text in every line.
pub type Column = (String, Vec<String>);

/// The least length of the rule below a title.
const RULE: usize = 3;

/// A table of columns of equally many lines.
pub fn markdown(columns: &[Column]) -> String {
    table(columns, |_| 0)
}

/// The same table with the texts of a column padded to one width, for reading as it is.
pub fn aligned(columns: &[Column]) -> String {
    let width = |text: &String| text.chars().count();
    table(columns, |(title, texts)| texts.iter().map(width).fold(width(title).max(RULE), usize::max))
}

fn table(columns: &[Column], width: impl Fn(&Column) -> usize) -> String {
    let widths: Vec<usize> = columns.iter().map(width).collect();
    let mut text = String::new();
    let mut line = |parts: &mut dyn Iterator<Item = &str>| {
        let padded = parts.zip(&widths).map(|(part, width)| format!("{part:<width$}"));
        let _ = writeln!(text, "| {} |", padded.collect::<Vec<_>>().join(" | "));
    };
    line(&mut columns.iter().map(|(title, _)| title.as_str()));
    let rules: Vec<String> = widths.iter().map(|width| "-".repeat(*width.max(&RULE))).collect();
    line(&mut rules.iter().map(String::as_str));
    for row in 0..columns.first().map_or(0, |(_, texts)| texts.len()) {
        line(&mut columns.iter().map(|(_, texts)| texts[row].as_str()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_tables_have_lines_of_one_length() {
        let columns = [
            ("head".to_string(), vec!["mos".to_string(), "softmax".into()]),
            ("perplexity".into(), vec!["1.0 ± 0.1".into(), "–".into()]),
        ];
        assert_eq!(
            markdown(&columns),
            "| head | perplexity |\n| --- | --- |\n| mos | 1.0 ± 0.1 |\n| softmax | – |\n"
        );
        assert_eq!(
            aligned(&columns),
            "| head    | perplexity |\n| ------- | ---------- |\n| mos     | 1.0 ± 0.1  |\n| softmax | –          |\n"
        );
        assert_eq!(aligned(&[]), "|  |\n|  |\n");
    }
}
