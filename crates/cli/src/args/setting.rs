//! Settings by their places in a `config.json`: `train.lr=15`.

use std::str::FromStr;

use runs::data::TextConfig;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// One setting of a model, a procedure or a text, such as `train.lr=15` or `model.dropouts.latent=0.2`.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    section: String,
    settings: Map<String, Value>,
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || format!("`{text}` is no setting: give its place and its value, such as train.lr=15");
        let (place, value) = text.split_once('=').ok_or_else(form)?;
        let (section, name) = place.split_once('.').ok_or_else(form)?;
        if !["model", "train", "text"].contains(&section) || name.is_empty() {
            return Err(format!("{}; places begin with model, train or text", form()));
        }
        // What is no JSON is a name.
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
        let mut parts = name.rsplit('.');
        let last = parts.next().unwrap_or_default().to_string();
        let inner = parts.fold((last, value), |(name, value), part| {
            (part.to_string(), Value::Object(Map::from_iter([(name, value)])))
        });
        Ok(Self { section: section.to_string(), settings: Map::from_iter([inner]) })
    }
}

/// A setting that exists in a model, a procedure or the reading of a text such as these, with a value of its type.
///
/// # Errors
/// One line that says what is wrong with `text`.
pub fn checked<M, T>(text: &str, model: &M, train: &T) -> Result<Setting, String>
where
    M: Serialize + DeserializeOwned + Clone,
    T: Serialize + DeserializeOwned + Clone,
{
    let setting: Setting = text.parse()?;
    let alone = std::slice::from_ref(&setting);
    apply(alone, "model", model)?;
    apply(alone, "train", train)?;
    apply(alone, "text", &TextConfig::default())?;
    Ok(setting)
}

/// Why a [`checked`] setting cannot be wrong any more.
pub const CHECKED: &str = "settings are checked as they are read";

/// `base` with those of the settings that are of `section`.
///
/// # Errors
/// The first setting with an unknown name or a value of another type.
pub fn apply<T: Serialize + DeserializeOwned + Clone>(
    settings: &[Setting],
    section: &str,
    base: &T,
) -> Result<T, String> {
    let own = settings.iter().filter(|setting| setting.section == section);
    own.into_iter().try_fold(base.clone(), |base, setting| with(&base, section, &setting.settings))
}

/// `base` with the given settings.
///
/// # Errors
/// The first setting with an unknown name or a value of another type.
pub fn with<T: Serialize + DeserializeOwned>(
    base: &T,
    section: &str,
    settings: &Map<String, Value>,
) -> Result<T, String> {
    let failed = |name: &str, error: serde_json::Error| format!("{name}: {error}");
    let mut value = serde_json::to_value(base).map_err(|error| failed(section, error))?;
    for (path, setting) in leaves(&value, settings) {
        let place = path.iter().fold(&mut value, |place, key| &mut place[key.as_str()]);
        *place = setting;
        // One by one, so that the error can name it.
        if let Err(error) = serde_json::from_value::<T>(value.clone()) {
            return Err(failed(&format!("{section}.{}", path.join(".")), error));
        }
    }
    serde_json::from_value(value).map_err(|error| failed(section, error))
}

/// Settings with their places; objects that `base` has are entered.
fn leaves(base: &Value, settings: &Map<String, Value>) -> Vec<(Vec<String>, Value)> {
    let mut leaves = vec![];
    for (key, value) in settings {
        match (base.get(key), value) {
            (Some(base @ Value::Object(_)), Value::Object(inner)) => {
                leaves.extend(self::leaves(base, inner).into_iter().map(|(mut path, value)| {
                    path.insert(0, key.clone());
                    (path, value)
                }));
            }
            _ => leaves.push((vec![key.clone()], value.clone())),
        }
    }
    leaves
}

#[cfg(test)]
mod tests {
    use super::*;
    use awd_lstm::{HeadKind, Preset};

    fn settings(texts: &[&str]) -> Vec<Setting> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn a_setting_is_found_by_its_place() {
        let given =
            settings(&["train.lr=15", "model.dropouts.latent=0.25", "model.precision=bf16", "train.lr=7"]);
        let (model, train) = (Preset::Small.model(HeadKind::Mos, 50), Preset::Small.train());
        let mut expected = model.clone();
        expected.dropouts.latent = 0.25;
        expected.precision = highrank::Precision::Bf16;
        assert_eq!(apply(&given, "model", &model).unwrap(), expected);
        assert_eq!(apply(&given, "train", &train).unwrap().lr, 7.0);
    }

    #[test]
    fn what_is_no_setting_is_one_line() {
        for text in ["lr", "lr=3", "train=3", "head.x=1", "train.=1"] {
            let message = text.parse::<Setting>().unwrap_err();
            assert!(message.contains("is no setting") && !message.contains('\n'), "{message}");
        }
        let train = Preset::Small.train();
        for (text, expected) in [
            ("train.lrr=3", "train.lrr: unknown field `lrr`"),
            ("train.lr=fast", "train.lr: invalid type: string"),
        ] {
            let message = apply(&settings(&[text]), "train", &train).unwrap_err();
            assert!(message.contains(expected) && !message.contains('\n'), "{message}");
        }
    }
}
