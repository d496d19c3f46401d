//! Real numbers in JSON that may be infinite.
//!
//! JSON has no infinity, and `serde_json` writes `null` for one. The sums of a diverging training can be infinite, and its resumption
//! needs them, so they are written as strings.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

/// For `#[serde(with = "runs::exact")]` on an `f64`.
///
/// # Errors
/// The serialiser's.
pub fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{value:?}"))
}

/// Reads what [`serialize`] wrote.
///
/// # Errors
/// The deserialiser's, or if it is no number in a string.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    parse(&String::deserialize(deserializer)?)
}

fn parse<E: Error>(text: &str) -> Result<f64, E> {
    text.parse().map_err(|_| E::custom(format!("`{text}` is no number")))
}

/// For `#[serde(with = "runs::exact::list")]` on a `Vec<f64>`.
pub mod list {
    use super::{Deserialize, Deserializer, Serializer, parse};

    /// Writes exact strings.
    ///
    /// # Errors
    /// The serialiser's.
    pub fn serialize<S: Serializer>(values: &[f64], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(values.iter().map(|value| format!("{value:?}")))
    }

    /// Reads what [`serialize`] wrote.
    ///
    /// # Errors
    /// The deserialiser's, or if one is no number in a string.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f64>, D::Error> {
        let texts = Vec::<String>::deserialize(deserializer)?;
        texts.iter().map(|text| parse(text)).collect()
    }
}

/// For `#[serde(with = "runs::exact::option")]` on an `Option<f64>`.
pub mod option {
    use super::{Deserialize, Deserializer, Serializer, parse};

    /// Writes exact strings.
    ///
    /// # Errors
    /// The serialiser's.
    pub fn serialize<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => super::serialize(value, serializer),
            None => serializer.serialize_none(),
        }
    }

    /// Reads what [`serialize`] wrote.
    ///
    /// # Errors
    /// The deserialiser's, or if one is no number in a string.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| parse(&text)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use serde::{Deserialize, Serialize};

    #[derive(Serialize, Deserialize)]
    struct Reals {
        #[serde(with = "crate::exact")]
        one: f64,
        #[serde(with = "crate::exact::list")]
        many: Vec<f64>,
        #[serde(with = "crate::exact::option")]
        some: Option<f64>,
        #[serde(with = "crate::exact::option")]
        none: Option<f64>,
    }

    #[test]
    fn every_real_comes_back_bit_for_bit() {
        let mut rng = rand_pcg::Pcg64Mcg::seed_from_u64(1);
        let mut many: Vec<f64> = (0..10_000).map(|_| f64::from_bits(rng.random())).collect();
        many.retain(|value| !value.is_nan());
        let reals = Reals { one: 1.0 / 3.0, many, some: Some(0.1 + 0.2), none: None };
        let back: Reals = serde_json::from_str(&serde_json::to_string(&reals).unwrap()).unwrap();
        assert_eq!((back.one, back.many), (reals.one, reals.many));
        assert_eq!((back.some, back.none), (reals.some, None));
        let damaged = serde_json::from_str::<Reals>(r#"{"one":"x","many":[],"some":null,"none":null}"#);
        assert!(damaged.err().unwrap().to_string().contains("`x` is no number"));
    }
}
