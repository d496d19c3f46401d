//! Settings by their places in a `config.json`: `train.lr=15`.

use std::str::FromStr;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Number, Value};

/// One setting of a model, a procedure or a text, such as `train.lr=15` or `model.dropouts.latent=0.2`.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    place: String,
    value: Value,
}

impl Setting {
    /// A setting by its place.
    pub fn new(place: &str, value: Value) -> Result<Self, String> {
        match place.split_once('.') {
            // None is deeper than a few objects.
            Some(("model" | "train" | "text", name)) if !name.is_empty() && name.split('.').count() < 8 => {
                Ok(Self { place: place.to_string(), value })
            }
            _ => Err(format!(
                "`{place}` is no place of a setting, such as train.lr: places begin with model, train or text"
            )),
        }
    }

    /// Its place.
    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// Whether this is the setting of `place`, or of a part of it.
    pub fn is_within(&self, place: &str) -> bool {
        is_within(&self.place, place)
    }

    /// The value, if this is the setting of `place`.
    pub fn value_of(&self, place: &str) -> Option<&Value> {
        (self.place == place).then_some(&self.value)
    }

    /// The part of a configuration that it is in: `model`, `train` or `text`.
    pub(super) fn section(&self) -> &str {
        self.place.split('.').next().unwrap_or_default()
    }

    /// The setting below its section.
    fn below(&self) -> Map<String, Value> {
        let mut parts = self.place.split('.').skip(1).collect::<Vec<_>>().into_iter().rev();
        let last = parts.next().unwrap_or_default().to_string();
        let (name, value) = parts.fold((last, self.value.clone()), |(name, value), part| {
            (part.to_string(), Value::Object(Map::from_iter([(name, value)])))
        });
        Map::from_iter([(name, value)])
    }
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || format!("`{text}` is no setting: give its place and its value, such as train.lr=15");
        let (place, value) = text.split_once('=').ok_or_else(form)?;
        Self::new(place, plain(value))
    }
}

/// Whether `place` is `of`, or a part of it.
pub(super) fn is_within(place: &str, of: &str) -> bool {
    place.strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// A value as JSON has it, a number as programs write it, or else a name.
pub fn plain(text: &str) -> Value {
    let number = || text.parse().ok().and_then(Number::from_f64).map(Value::Number);
    serde_json::from_str(text).ok().or_else(number).unwrap_or_else(|| Value::from(text))
}

/// Checks that a setting exists in a model, a procedure or the reading of a text such as these, with a value of its type, and that it is
/// not the head or the vocabulary.
pub fn checked<M, T, X>(setting: &Setting, model: &M, train: &T, text: &X) -> Result<(), String>
where
    M: Serialize + DeserializeOwned + Clone,
    T: Serialize + DeserializeOwned + Clone,
    X: Serialize + DeserializeOwned + Clone,
{
    if setting.is_within("model.head") {
        return Err(
            "the head is chosen by --head and its options; train --from keeps that of an LSTM's run".into()
        );
    }
    if setting.place == "model.vocab" {
        return Err("the vocabulary is the text's".into());
    }
    let alone = std::slice::from_ref(setting);
    apply(alone, "model", model)?;
    apply(alone, "train", train)?;
    apply(alone, "text", text).map(drop)
}

/// `base` with those of the settings that are of `section`.
pub fn apply<T: Serialize + DeserializeOwned + Clone>(
    settings: &[Setting],
    section: &str,
    base: &T,
) -> Result<T, String> {
    let mut own = settings.iter().filter(|setting| setting.section() == section);
    own.try_fold(base.clone(), |base, setting| with(&base, section, &setting.below()))
}

/// `base` with the given settings.
pub fn with<T: Serialize + DeserializeOwned>(
    base: &T,
    section: &str,
    settings: &Map<String, Value>,
) -> Result<T, String> {
    let failed = |name: &str, error: serde_json::Error| format!("{name}: {error}");
    let mut value = serde_json::to_value(base).map_err(|error| failed(section, error))?;
    for (path, setting) in leaves(&value, settings) {
        let at = |value| path.iter().try_fold(value, |place: &Value, key| place.get(key));
        let name = format!("{section}.{}", path.join("."));
        let is_given = !setting.is_null();
        let place = path.iter().fold(&mut value, |place, key| &mut place[key.as_str()]);
        *place = setting;
        // One by one, so that the error can name it.
        let read: T = serde_json::from_value(value.clone()).map_err(|error| failed(&name, error))?;
        let read = serde_json::to_value(read).map_err(|error| failed(section, error))?;
        // A struct is read from a list of its fields, too, in an order that nothing tells.
        if let (true, Some(read)) = (is_given, at(&read))
            && let Some(given) = at(&value)
            && lists_fields(given, read)
        {
            return Err(format!("{name}: it must be an object, with a name for each value"));
        }
        // Some structs pass over what they do not know; others leave out what is the default.
        if at(&read).is_none() && passes_over_unknown::<T>(&value, &path) {
            let (last, above) = path.split_last().expect("a place has a name");
            let known = above.iter().try_fold(&read, |place, key| place.get(key)).and_then(Value::as_object);
            let known: Vec<String> =
                known.into_iter().flat_map(Map::keys).map(|key| format!("`{key}`")).collect();
            return Err(format!("{name}: unknown field `{last}`, expected one of {}", known.join(", ")));
        }
    }
    serde_json::from_value(value).map_err(|error| failed(section, error))
}

/// Whether a list is given, here or below, where an object was read.
fn lists_fields(given: &Value, read: &Value) -> bool {
    match (given, read) {
        (Value::Array(_), Value::Object(_)) => true,
        (Value::Object(given), Value::Object(read)) => {
            given.iter().any(|(key, given)| read.get(key).is_some_and(|read| lists_fields(given, read)))
        }
        _ => false,
    }
}

/// Whether `T` is read from a value that has an unknown field beside the place `path`.
fn passes_over_unknown<T: DeserializeOwned>(value: &Value, path: &[String]) -> bool {
    let mut probe = value.clone();
    let above = path[..path.len() - 1].iter().fold(&mut probe, |place, key| &mut place[key.as_str()]);
    above["?"] = Value::Null;
    serde_json::from_value::<T>(probe).is_ok()
}

/// Settings with their places; objects that `base` has are entered.
fn leaves(base: &Value, settings: &Map<String, Value>) -> Vec<(Vec<String>, Value)> {
    // An object of one name may be a choice: another name is another choice, not one more.
    let is_other_choice = |base: &Map<String, Value>, given: &Map<String, Value>| {
        base.len() == 1 && given.len() == 1 && base.keys().ne(given.keys())
    };
    let mut leaves = vec![];
    for (key, value) in settings {
        match (base.get(key), value) {
            (Some(base @ Value::Object(names)), Value::Object(inner)) if !is_other_choice(names, inner) => {
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

    #[test]
    fn a_setting_is_found_by_its_place() {
        let texts = ["train.lr=15", "model.dropouts.latent=0.25", "model.precision=bf16", "train.lr=.7e1"];
        let given = texts.map(|text| text.parse().unwrap());
        let (model, train) = (Preset::Small.model(HeadKind::Mos, 50), Preset::Small.train());
        let mut expected = model.clone();
        expected.dropouts.latent = 0.25;
        expected.precision = highrank::Precision::Bf16;
        assert_eq!(apply(&given, "model", &model).unwrap(), expected);
        assert_eq!(apply(&given, "train", &train).unwrap().lr, 7.0);
        // Another choice replaces the one that is there.
        let [decay, other] = [
            "train.lr_decay={\"factor\":0.5,\"when\":{\"from\":{\"epoch\":3}}}",
            "train.lr_decay.when={\"plateau\":null}",
        ]
        .map(|text| text.parse().unwrap());
        let decay = apply(&[decay, other], "train", &train).unwrap().lr_decay.unwrap();
        assert_eq!((decay.factor, decay.when), (0.5, awd_lstm::config::DecayWhen::Plateau));
        // Not even a list as long as the object has fields.
        for text in ["model.dropouts=[0,0,0,0,0,0]", "train.lr_decay=[0.5,\"plateau\"]"] {
            let given = [text.parse().unwrap()];
            let error =
                apply(&given, "model", &model).and_then(|_| apply(&given, "train", &train)).unwrap_err();
            assert!(error.ends_with("it must be an object, with a name for each value"), "{text}: {error}");
        }
        let deep = format!("train{}=1", ".x".repeat(50_000));
        for text in ["lr", "lr=3", "train=3", "head.x=1", "train.=1", &deep] {
            let message = text.parse::<Setting>().unwrap_err();
            assert!(message.contains("train.lr") && !message.contains('\n'), "{message}");
        }
    }
}
