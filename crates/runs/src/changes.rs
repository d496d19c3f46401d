//! Records of what was changed of a run since it was started.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A setting of a run that was changed after its start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Extended {
    /// Number of epochs that were done.
    pub after_epoch: usize,
    /// The setting, as a path in `config.json`: `train.epochs`, `device`.
    pub setting: String,
    /// Its value before; null if there was none.
    pub from: Value,
    /// Its value since.
    pub to: Value,
}

/// The records of what differs among some settings.
pub(crate) fn differences<C: Serialize>(
    before: &C,
    now: &C,
    settings: &[&str],
    after_epoch: usize,
) -> Vec<Extended> {
    let [before, now] = [json!(before), json!(now)];
    let of = |config: &Value, setting: &str| {
        setting.split('.').fold(config.clone(), |value, name| value[name].clone())
    };
    let all = settings.iter().map(|setting| (*setting, of(&before, setting), of(&now, setting)));
    all.filter(|(_, from, to)| from != to)
        .map(|(setting, from, to)| Extended { after_epoch, setting: setting.into(), from, to })
        .collect()
}

/// A run's procedure, the `train` of its configuration, with what was changed of it since.
pub fn extended(train: &impl Serialize, extensions: &[Extended]) -> Value {
    let mut config = json!({ "train": train });
    for change in extensions.iter().filter(|change| change.setting.starts_with("train.")) {
        let setting = change.setting.split('.').fold(&mut config, |value, name| &mut value[name]);
        *setting = change.to.clone();
    }
    config["train"].take()
}
