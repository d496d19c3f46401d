//! The name that was meant where an unknown one was given.

/// How a suggestion begins.
const MEANT: &str = "; did you mean ";

/// The line of an error with the known name at its end that is nearest to the unknown one, if it is near.
///
/// Such lines are this program's (``unknown head `mox`; known: moc, mos``) and serde's
/// (``unknown field `lrr`, expected one of `lr`, `clip` ``).
pub fn with_suggestion(line: String) -> String {
    if line.contains(MEANT) {
        return line;
    }
    match meant(&line) {
        Some(name) => format!("{line}{MEANT}`{name}`?"),
        None => line,
    }
}

/// The same for a name that is known.
pub fn suggest(line: &str, name: &str) -> String {
    format!("{line}{MEANT}`{name}`?")
}

fn meant(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("unknown ")?;
    let mut quoted = rest.split('`').skip(1).step_by(2);
    let given = quoted.next()?;
    match rest.split_once("known: ") {
        Some((_, known)) => nearest(given, known.split(", ")),
        None => nearest(given, quoted),
    }
}

/// The name that the fewest edits make of `given`, if these are at most a third of its letters, or one.
fn nearest<'a>(given: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let given = given.to_lowercase();
    let edits = known.map(|name| (strsim::osa_distance(&given, name), name));
    let (fewest, name) = edits.min_by_key(|(edits, _)| *edits)?;
    (fewest <= (given.chars().count() / 3).max(1)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_suggested_where_there_is_one() {
        for (line, name) in [
            ("unknown head `sofmax`; known: softmax, moc, mos", Some("softmax")),
            ("unknown head `MOS`; known: softmax, moc, mos", Some("mos")),
            ("unknown head `best`; known: softmax, moc, mos", None),
            (
                "invalid value 'papper' for '--preset <PRESET>': unknown preset `papper`; known: small, paper, doc",
                Some("paper"),
            ),
            ("`a.json`: train.lrr: unknown field `lrr`, expected one of `lr`, `clip` at line 1", Some("lr")),
            ("`a.json`: unknown variant `sofmax`, expected `softmax` or `mos`", Some("softmax")),
            ("data folder `nowhere` does not exist", None),
        ] {
            let expected = name.map_or(line.to_string(), |name| format!("{line}; did you mean `{name}`?"));
            assert_eq!(with_suggestion(line.to_string()), expected);
            assert_eq!(with_suggestion(expected.clone()), expected);
        }
    }
}
