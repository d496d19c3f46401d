//! Lists on command lines.

use std::fmt::Display;
use std::str::FromStr;

use runs::text::parse_comma_list;

/// Values written with commas in between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct List<T>(pub Vec<T>);

impl<T: FromStr> FromStr for List<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        parse_comma_list(text).map(Self).map_err(|(_, error)| error)
    }
}

/// Different values, written with commas in between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DistinctList<T>(pub Vec<T>);

impl<T: FromStr<Err: Display> + PartialEq + Display> FromStr for DistinctList<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let values = parse_comma_list(text).map_err(|(part, error)| format!("`{part}`: {error}"))?;
        let repeated = (1..values.len()).find(|&index| values[..index].contains(&values[index]));
        match repeated {
            Some(index) => Err(format!("`{}` is there twice", values[index])),
            None => Ok(Self(values)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use awd_lstm::HeadKind;

    #[test]
    fn lists_keep_their_order() {
        assert_eq!("16, 12,16".parse::<List<usize>>().unwrap(), List(vec![16, 12, 16]));
        assert!("16,".parse::<List<usize>>().is_err());
    }

    #[test]
    fn distinct_lists_are_of_different_values() {
        assert_eq!("28, 29".parse::<DistinctList<u64>>().unwrap(), DistinctList(vec![28, 29]));
        assert_eq!("28,28".parse::<DistinctList<u64>>().unwrap_err(), "`28` is there twice");
        let message = "mos,mix".parse::<DistinctList<HeadKind>>().unwrap_err();
        assert!(message.contains("unknown head `mix`"), "{message}");
        assert!("".parse::<DistinctList<u64>>().is_err());
    }
}
