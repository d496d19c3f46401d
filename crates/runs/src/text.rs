//! Lists separated by commas, in messages and on command lines, and words of messages.

use std::fmt::Display;
use std::str::FromStr;

/// The items in one string, separated by commas: `a, b, c`.
pub fn comma_list<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    items.join(", ")
}

/// What is wrong with one line of JSON lines, without the number that JSON gives that line, which is always 1.
pub fn line_fault(error: &serde_json::Error) -> String {
    error.to_string().replace(" at line 1 column ", " at column ")
}

/// A place in training, after so many steps of an epoch or at its end: `step 5 of epoch 3`, `epoch 3`.
pub(crate) fn place(epoch: usize, step: Option<usize>) -> String {
    match step {
        Some(step) => format!("step {step} of epoch {epoch}"),
        None => format!("epoch {epoch}"),
    }
}

/// Reads a list whose items are separated by commas; blanks around an item are ignored.
///
/// ```
/// use runs::text::parse_comma_list;
///
/// assert_eq!(parse_comma_list::<usize>("960, 960,620").unwrap(), [960, 960, 620]);
/// let (item, error) = parse_comma_list::<usize>("960,x").unwrap_err();
/// assert_eq!((item.as_str(), error.to_string().as_str()), ("x", "invalid digit found in string"));
/// ```
///
/// # Errors
/// The first item that cannot be read, and why. An empty string is a list with one empty item.
pub fn parse_comma_list<T: FromStr>(text: &str) -> Result<Vec<T>, (String, T::Err)> {
    let items = text.split(',').map(str::trim);
    items.map(|item| item.parse().map_err(|error| (item.to_string(), error))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_list_is_read_back() {
        for list in [vec![7], vec![3, 1, 4, 1, 5]] {
            assert_eq!(parse_comma_list::<i32>(&comma_list(&list)).unwrap(), list);
        }
        assert_eq!(comma_list(["softmax", "mos"]), "softmax, mos");
        assert_eq!(comma_list::<i32>([]), "");
        assert_eq!(parse_comma_list::<i32>("").unwrap_err().0, "");
        assert_eq!(parse_comma_list::<i32>("1,,2").unwrap_err().0, "");
    }
}
