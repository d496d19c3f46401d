//! Settings of one head.

use std::str::FromStr;

use awd_lstm::HeadKind;

use crate::commands::sweep::grid::{self, Axis};

/// Settings of one head, which replace those of all heads.
///
/// Written as `mos:dropout-latent=0.2,lr=15`. A value may hold commas: `mos:lstm=96,64,lr=15`. A setting may have several values,
/// with colons between them, as in a sweep's own options.
#[derive(Debug, Clone, PartialEq)]
pub struct PerHead {
    pub head: HeadKind,
    pub settings: Vec<Axis>,
}

impl FromStr for PerHead {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const FORM: &str = "it should be HEAD:SETTING=VALUE, as in mos:dropout-latent=0.2,lr=15";
        let (head, rest) = text.split_once(':').ok_or(FORM)?;
        let head = head.trim().parse::<HeadKind>().map_err(|error| error.to_string())?;
        let mut settings: Vec<(String, String)> = vec![];
        for part in rest.split(',') {
            match (part.split_once('='), settings.last_mut()) {
                (Some((name, value)), _) => {
                    settings.push((name.trim().to_string(), value.trim().to_string()));
                }
                // The rest of a value with commas.
                (None, Some((_, value))) => *value = format!("{value},{}", part.trim()),
                (None, None) => return Err(FORM.into()),
            }
        }
        let mut axes: Vec<Axis> = vec![];
        for (name, value) in settings {
            if axes.iter().any(|axis| axis.flag == name) {
                return Err(format!("it has {name} twice"));
            }
            axes.push(grid::axis(&name, &value)?);
        }
        Ok(Self { head, settings: axes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_a_head_are_read() {
        let read: PerHead = "mos:lstm=96,64, lr=15".parse().unwrap();
        let settings =
            [("lstm", "96,64"), ("lr", "15")].map(|(name, value)| Axis::new(name, vec![value.into()]));
        assert_eq!(read, PerHead { head: HeadKind::Mos, settings: settings.into() });
        let read: PerHead = "mos:lr=10,components=3:5:10".parse().unwrap();
        assert_eq!(read.settings[1].values, ["3", "5", "10"]);
        for (text, expected) in [
            ("lr=15", "HEAD:SETTING=VALUE"),
            ("mos", "HEAD:SETTING=VALUE"),
            ("mos:15", "HEAD:SETTING=VALUE"),
            ("mox:lr=15", "unknown head `mox`"),
            ("mos:rate=15", "unknown setting `rate`"),
            ("mos:seed=15", "unknown setting `seed`"),
            ("mos:lr=fast", "'fast' for '--lr <LR>'"),
            ("mos:lr=1,lr=2", "lr twice"),
        ] {
            let message = text.parse::<PerHead>().unwrap_err();
            assert!(message.contains(expected), "{text}: {message}");
        }
    }
}
