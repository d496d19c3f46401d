//! Tables in Markdown.

/// A column: its title, and its text in every line.
pub type Column = (String, Vec<String>);

/// A table of columns of equally many lines.
pub fn markdown(columns: &[Column]) -> String {
    let line = |parts: Vec<&str>| format!("| {} |\n", parts.join(" | "));
    let mut text = line(columns.iter().map(|(title, _)| title.as_str()).collect());
    text += &line(columns.iter().map(|_| "---").collect());
    for row in 0..columns.first().map_or(0, |(_, texts)| texts.len()) {
        text += &line(columns.iter().map(|(_, texts)| texts[row].as_str()).collect());
    }
    text
}
