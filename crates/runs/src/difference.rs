//! Where two settings differ.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// The path of the first difference of two values below `name`, and what they have there; `None` if they are the same.
pub(crate) fn difference(name: &str, before: &Value, now: &Value) -> Option<(String, String, String)> {
    /// Reals of 17 digits are read to within a unit in the last place.
    fn is_rounding(a: f64, b: f64) -> bool {
        a.fract() != 0.0 && (a - b).abs() <= 2.0 * f64::EPSILON * a.abs()
    }
    if let (Value::Object(before), Value::Object(now)) = (before, now) {
        let mut keys = before.keys().chain(now.keys().filter(|key| !before.contains_key(*key)));
        return keys.find_map(|key| {
            let of = |object: &Map<String, Value>| object.get(key).cloned().unwrap_or(Value::Null);
            difference(&format!("{name}.{key}"), &of(before), &of(now))
        });
    }
    if let (Value::Array(before), Value::Array(now)) = (before, now) {
        let length = |list: &[Value]| format!("a list of {}", list.len());
        if before.len() != now.len() {
            return Some((name.to_string(), length(before), length(now)));
        }
        let mut pairs = before.iter().zip(now).enumerate();
        return pairs.find_map(|(index, (before, now))| difference(&format!("{name}[{index}]"), before, now));
    }
    if before == now || before.as_f64().zip(now.as_f64()).is_some_and(|(a, b)| is_rounding(a, b)) {
        return None;
    }
    Some((name.to_string(), before.to_string(), now.to_string()))
}

/// Whether two values are the same.
///
/// # Errors
/// [`Error::ConfigChanged`] with the path of the first difference below `name`.
pub fn unchanged(name: &str, before: &impl Serialize, now: &impl Serialize) -> Result<()> {
    let value =
        |value: Result<Value, serde_json::Error>| value.expect("configurations are plain numbers and names");
    match difference(name, &value(serde_json::to_value(before)), &value(serde_json::to_value(now))) {
        None => Ok(()),
        Some((setting, before, now)) => Err(Error::ConfigChanged { setting, before, now }),
    }
}
