//! Settings from a file.

use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};

use awd_lstm::train::AwdLstm;
use awd_lstm::{HeadKind, ModelConfig, Preset, TrainConfig};
use program::args::with;
use program::device::DeviceName;
use program::failure::Failure;
use runs::data::TextConfig;
use runs::{Error, Settings};
use serde::de::{Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// Settings of a JSON file: a run's own `config.json`, or an object with only some of its settings.
///
/// ```json
/// {"preset": "paper", "head": "mos", "data": "ptb", "device": "cuda",
///  "text": {"lower_case": true}, "model": {"components": 10, "dropouts": {"latent": 0.2}}, "train": {"lr": 15}}
/// ```
///
/// Names and values are those of `config.json`; the order of precedence is command line, file, preset. The size of the
/// vocabulary comes from the text.
#[derive(Debug, Clone, PartialEq)]
pub struct SettingsFile {
    pub path: PathBuf,
    pub preset: Option<Preset>,
    pub head: Option<HeadKind>,
    pub device: Option<DeviceName>,
    pub data: Option<PathBuf>,
    text: Map<String, Value>,
    model: Map<String, Value>,
    train: Map<String, Value>,
}

/// The file as it is.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    preset: Option<String>,
    head: Option<HeadKind>,
    device: Option<String>,
    data: Option<PathBuf>,
    #[serde(default)]
    text: Map<String, Value>,
    #[serde(default)]
    model: Map<String, Value>,
    #[serde(default)]
    train: Map<String, Value>,
    /// The rest of a run's own file says what became of that run.
    versions: Option<Value>,
    #[serde(rename = "corpus")]
    _corpus: Option<IgnoredAny>,
    #[serde(rename = "extensions")]
    _extensions: Option<IgnoredAny>,
    #[serde(rename = "tokens")]
    _tokens: Option<IgnoredAny>,
    finetunes: Option<PathBuf>,
}

impl SettingsFile {
    /// Reads and checks a file: its names and the types of its values. What is wrong is one line that names the file.
    pub fn read(path: &str) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).map_err(Error::io("read", Path::new(path)));
        let text = text.map_err(|error| error.to_string())?;
        Self::of(path.into(), &text).map_err(|error| format!("`{path}`: {error}"))
    }

    /// The settings in the text of the file `path`, checked.
    fn of(path: PathBuf, text: &str) -> Result<Self, Failure> {
        // Editors of Windows put a mark of the encoding in front.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        // Readers take the last of two values, and a list in place of an object.
        serde_json::from_str::<Unambiguous>(text)?;
        if !text.trim_start().starts_with('{') {
            return Err("it must hold an object, such as {\"train\": {\"lr\": 15}}".into());
        }
        let content: Content = serde_json::from_str(text)?;
        let kind = content.versions.as_ref().and_then(|versions| versions["kind"].as_str());
        if let Some(kind) = kind.filter(|kind| *kind != AwdLstm::KIND) {
            return Err(format!("a run of {kind}, but --config takes settings of {}", AwdLstm::KIND).into());
        }
        if let Some(origin) = content.finetunes {
            let origin = origin.display();
            return Err(format!("a run that was finetuned from `{origin}`; use train --from RUN").into());
        }
        let preset: Option<Preset> = content.preset.as_deref().map(str::parse).transpose()?;
        let device: Option<DeviceName> = content.device.as_deref().map(str::parse).transpose()?;
        let Content { data, text, model, train, .. } = content;
        let base = preset.unwrap_or(Preset::Small);
        // The types of settings do not depend on the preset: what is good here is good for all.
        let of_model = with(&base.model(HeadKind::Mos, 1), "model", &model)?.head;
        with(&base.train(), "train", &train)?;
        with(&base.text(), "text", &text)?;
        let of_model = model.contains_key("head").then_some(of_model);
        if let (Some(head), Some(other)) = (content.head, of_model)
            && head != other
        {
            return Err(format!("head is {head}, but model.head is {other}").into());
        }
        Ok(Self { path, preset, head: content.head.or(of_model), device, data, text, model, train })
    }

    /// `base` with the file's settings of the model. The head and the vocabulary stay.
    pub fn model(&self, base: &ModelConfig) -> ModelConfig {
        let merged = with(base, "model", &self.model).expect("checked by read");
        let (head, vocab) = (base.head, base.vocab);
        let mut model = ModelConfig { head, vocab, ..merged };
        // As in presets: sizes of another head, or only the width given, take the last LSTM along.
        let own = self.head.is_none_or(|own| own == head) && self.model.contains_key("lstm_sizes");
        if let (false, false, Some(last)) = (head.has_contexts(), own, model.lstm_sizes.last_mut()) {
            *last = model.d_embedding;
        }
        model
    }

    pub fn train(&self, base: &TrainConfig) -> TrainConfig {
        with(base, "train", &self.train).expect("checked by read")
    }

    pub fn text(&self, base: &TextConfig) -> TextConfig {
        with(base, "text", &self.text).expect("checked by read")
    }
}

/// JSON in which no object has a key twice. It also is what visits a value and those below it.
struct Unambiguous;

impl<'de> Deserialize<'de> for Unambiguous {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Unambiguous {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of JSON")
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Self, A::Error> {
        while values.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self, A::Error> {
        let mut keys = HashSet::new();
        while let Some(key) = fields.next_key::<String>()? {
            if keys.contains(&key) {
                return Err(A::Error::custom(format_args!("`{key}` is given twice")));
            }
            fields.next_value::<Self>()?;
            keys.insert(key);
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<SettingsFile, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        SettingsFile::read(file.path().to_str().unwrap())
    }

    #[test]
    fn some_settings_replace_the_presets() {
        let file = read(
            r#"{"preset": "paper", "head": "plif", "data": "d", "model": {"knots": 9, "dropouts": {"weight": 0.25}},
                "train": {"lr": 7, "small_batch": 4}, "text": {"lower_case": true}}"#,
        )
        .unwrap();
        assert_eq!((file.preset, file.head, file.device), (Some(Preset::Paper), Some(HeadKind::Plif), None));
        let base = Preset::Paper.model(HeadKind::Plif, 50);
        let mut expected = ModelConfig { knots: 9, ..base.clone() };
        expected.dropouts.weight = 0.25;
        assert_eq!(file.model(&base), expected);
        let base = Preset::Paper.train();
        assert_eq!(file.train(&base), TrainConfig { lr: 7.0, small_batch: Some(4), ..base });
        let text = TextConfig::default();
        assert_eq!(file.text(&text), TextConfig { lower_case: true, ..text });
        // An empty object changes nothing.
        let base = Preset::Small.model(HeadKind::Mos, 50);
        assert_eq!(read("{}").unwrap().model(&base), base);
        // Nor does a mark of the encoding.
        assert_eq!(read("\u{feff}{}").unwrap().model(&base), base);
    }

    #[test]
    fn the_last_lstm_goes_with_the_width_of_another_head() {
        let sizes = |text: &str, head| read(text).unwrap().model(&Preset::Small.model(head, 50)).lstm_sizes;
        let width = r#"{"model": {"d_embedding": 20}}"#;
        assert_eq!(sizes(width, HeadKind::Softmax), [256, 20]);
        assert_eq!(sizes(width, HeadKind::Mos), [256, 128]);
        let of_mos = r#"{"head": "mos", "model": {"d_embedding": 20, "lstm_sizes": [30, 40]}}"#;
        assert_eq!(sizes(of_mos, HeadKind::Mos), [30, 40]);
        assert_eq!(sizes(of_mos, HeadKind::Gss), [30, 20]);
        // Sizes that are said for this head are taken as they are, right or wrong.
        let of_any = r#"{"model": {"d_embedding": 20, "lstm_sizes": [30, 40]}}"#;
        assert_eq!(sizes(of_any, HeadKind::Gss), [30, 40]);
    }

    #[test]
    fn what_is_wrong_is_one_line_with_the_name() {
        for (text, expected) in [
            (r#"{"model": {"dropouts": {"all": 0.1}}}"#, "model.dropouts.all: unknown field `all`"),
            (r#"{"train": {"lr": "fast"}}"#, "train.lr: invalid type: string \"fast\""),
            (r#"{"text": {"characters": 1}}"#, "text.characters: invalid type"),
            (r#"{"preset": "huge"}"#, "unknown preset `huge`"),
            (
                r#"{"preset": "softmax", "versions": {"kind": "gpt"}}"#,
                "a run of gpt, but --config takes settings of awd-lstm",
            ),
            (r#"{"device": "abacus"}"#, "unknown device `abacus`"),
            (r#"{"head": "mos", "model": {"head": "gss"}}"#, "head is mos, but model.head is gss"),
            (r#"{"finetunes": "first"}"#, "a run that was finetuned from `first`"),
            ("[]", "it must hold an object"),
            (
                r#"["small", "mos", null, null, {}, {}, {"lr": 3}, null, null, null, null, null]"#,
                "it must hold an object",
            ),
            (r#"{"train": {"lr": 3, "lr": 30}}"#, "`lr` is given twice at line 1"),
            (r#"{"model": {"dropouts": {"input": 0, "output": 0, "input": 0.5}}}"#, "`input` is given twice"),
            (r#"{"train": {}, "train": {"lr": 30}}"#, "`train` is given twice"),
            (r#"{"model": {"dropouts": [0, 0, 0, 0, 0, 0]}}"#, "model.dropouts: it must be an object"),
        ] {
            let message = read(text).unwrap_err();
            assert!(message.contains(expected) && !message.contains('\n'), "{text}: {message}");
        }
    }
}
