//! Every setting of a model and its training with any number of values, of all heads or of one.

use std::str::FromStr;

use awd_lstm::HeadKind;
use clap::builder::{Resettable, ValueParser};
use clap::error::{Error, ErrorKind};
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use program::args::{Given, SET};
use runs::text::comma_list;

use crate::args::{LstmKnobs, Overrides};

/// Settings that were given, each with its values as text.
///
/// The options are those of [`Overrides`], read from its definition: a name, range or message exists there alone. Every
/// combination of values is read by it, so a sweep accepts exactly what training does.
#[derive(Debug, Clone, Default)]
pub struct Grid {
    /// The settings, in the order of their definition.
    pub axes: Vec<Axis>,
    /// Settings of all runs, which have the last word.
    pub set: Given<LstmKnobs>,
}

/// Settings that vary, with their values as they were given.
pub type Varying = Vec<(String, String)>;

/// A setting and the values it takes.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// The name of its option, without dashes.
    pub flag: String,
    /// Its values as they were written; at least one.
    pub values: Vec<String>,
}

/// Title of these options in help texts.
const HEADING: &str = "Instead of the preset's settings (several values with commas between them: all are tried; lists such \
                       as those of --lstm with colons between them)";

impl Axis {
    pub fn new(flag: &str, values: impl IntoIterator<Item: Into<String>>) -> Self {
        Self { flag: flag.to_string(), values: values.into_iter().map(Into::into).collect() }
    }

    /// The settings that vary, each with its values in the order in which they appear.
    pub fn all<'a>(settings: impl Iterator<Item = &'a (String, String)>) -> Vec<Self> {
        let mut axes: Vec<Self> = vec![];
        for (flag, value) in settings {
            match axes.iter_mut().find(|axis| axis.flag == *flag) {
                Some(axis) if axis.values.contains(value) => {}
                Some(axis) => axis.values.push(value.clone()),
                None => axes.push(Self::new(flag, [value])),
            }
        }
        axes
    }

    /// Whether every value is a number.
    pub fn is_numeric(&self) -> bool {
        self.values.iter().all(|value| number(value).is_some())
    }
}

/// A value as a finite number, if it is one.
pub fn number(value: &str) -> Option<f64> {
    value.parse().ok().filter(|number: &f64| number.is_finite())
}

/// The options of [`Overrides`] but the seed, of which a sweep has a list of its own.
fn settings() -> impl Iterator<Item = Arg> {
    options().into_iter().filter(|arg| arg.get_id() != "seed" && arg.get_id() != SET)
}

fn options() -> Vec<Arg> {
    Overrides::augment_args(Command::new("settings")).get_arguments().cloned().collect()
}

/// The name of an option, without dashes.
fn flag(setting: &Arg) -> &str {
    setting.get_long().expect("every setting has a long name")
}

/// An option on its own, whatever other options it needs or excludes.
fn lone(setting: Arg) -> Arg {
    setting.requires(Resettable::Reset).conflicts_with(Resettable::Reset)
}

/// Reads one value as the setting itself would.
fn read(setting: &Arg, value: &str) -> Result<(), Error> {
    let command = Command::new("sweep").no_binary_name(true).disable_help_flag(true);
    let word = format!("--{}={value}", flag(setting));
    command.arg(lone(setting.clone())).try_get_matches_from([word]).map(|_| ())
}

/// The axis of the setting with the option `name` and the values in `text`.
fn axis(name: &str, text: &str) -> Result<Axis, String> {
    let Some(setting) = settings().find(|setting| flag(setting) == name) else {
        let known = comma_list(settings().map(|setting| flag(&setting).to_string()));
        return Err(format!("unknown setting `{name}`; known: {known}"));
    };
    axis_of(&setting, text).map_err(|error| program::exit::line_of(&error))
}

/// The values in `text`: one if the setting takes it as it is, or those between colons, or else commas.
fn axis_of(setting: &Arg, text: &str) -> Result<Axis, Error> {
    let flag = flag(setting);
    if read(setting, text).is_ok() {
        return Ok(Axis::new(flag, [text]));
    }
    let between = if text.contains(':') { ':' } else { ',' };
    let mut values: Vec<&str> = vec![];
    for value in text.split(between).map(str::trim) {
        read(setting, value)?;
        if values.contains(&value) {
            let message = format!("--{flag} has the value `{value}` twice\n");
            return Err(Error::raw(ErrorKind::InvalidValue, message));
        }
        values.push(value);
    }
    Ok(Axis::new(flag, values))
}

/// The settings of one run, from pairs of option and value.
pub fn overrides<'a>(settings: impl Iterator<Item = (&'a str, &'a str)>) -> Result<Overrides, String> {
    let words = settings.map(|(flag, value)| format!("--{flag}={value}"));
    let command = Command::new("sweep").no_binary_name(true).disable_help_flag(true);
    let matches = Overrides::augment_args(command).try_get_matches_from(words);
    let read = matches.and_then(|matches| Overrides::from_arg_matches(&matches));
    read.map_err(|error| program::exit::line_of(&error))
}

/// The settings that help lists.
const SHOWN: [&str; 5] = ["epochs", "lr", "d-embedding", "lstm", "components"];

impl Args for Grid {
    fn augment_args(command: Command) -> Command {
        let set = options().into_iter().filter(|arg| arg.get_id() == SET);
        settings().fold(command.args(set), |command, setting| {
            let hidden = setting.is_hide_set() || !SHOWN.contains(&flag(&setting));
            let listed = lone(setting).value_parser(ValueParser::string()).help_heading(HEADING);
            command.arg(listed.hide(hidden))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Grid {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut axes = vec![];
        for setting in settings() {
            if let Some(text) = matches.get_one::<String>(setting.get_id().as_str()) {
                axes.push(axis_of(&setting, text)?);
            }
        }
        Ok(Self { axes, set: Given::of_set(matches) })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

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
        let mut given: Vec<(&str, String)> = vec![];
        for part in rest.split(',') {
            match (part.split_once('='), given.last_mut()) {
                (Some((name, value)), _) => given.push((name.trim(), value.trim().to_string())),
                // The rest of a value with commas.
                (None, Some((_, value))) => *value = format!("{value},{}", part.trim()),
                (None, None) => return Err(FORM.into()),
            }
        }
        let mut settings: Vec<Axis> = vec![];
        for (name, value) in given {
            if settings.iter().any(|axis| axis.flag == name) {
                return Err(format!("it has {name} twice"));
            }
            settings.push(axis(name, &value)?);
        }
        Ok(Self { head, settings })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(line: &str) -> Result<Grid, Error> {
        let command = Grid::augment_args(Command::new("sweep").no_binary_name(true));
        Grid::from_arg_matches(&command.try_get_matches_from(line.split_whitespace())?)
    }

    #[test]
    fn every_setting_has_a_name_and_one_value() {
        assert!(settings().count() > 15);
        for setting in settings() {
            assert!(setting.get_action().takes_values() && setting.get_long().is_some(), "{setting:?}");
            assert!(setting.get_short().is_none() && setting.get_default_values().is_empty(), "{setting:?}");
        }
    }

    #[test]
    fn values_are_those_between_commas_or_of_lists_colons() {
        let axes = grid("--lr 10,20 --components 3 --lstm 9,8").unwrap().axes;
        let expected =
            [Axis::new("lstm", ["9,8"]), Axis::new("lr", ["10", "20"]), Axis::new("components", ["3"])];
        assert_eq!(axes, expected);
        let axes = grid("--lstm 9,8:7 --precision full,bf16").unwrap().axes;
        assert_eq!(axes, [Axis::new("lstm", ["9,8", "7"]), Axis::new("precision", ["full", "bf16"])]);
        assert!(!axes[0].is_numeric() && Axis::new("lr", ["1e1", "20"]).is_numeric());
        for (line, expected) in [
            ("--lr 10,", "'--lr <LR>'"),
            ("--components 3,3.5", "'3.5' for '--components <K>'"),
            ("--lstm 9:8,x", "'8,x' for '--lstm <SIZES>'"),
        ] {
            let message = program::exit::line_of(&grid(line).unwrap_err());
            assert!(message.contains(expected) && !message.contains('\n'), "{line}: {message}");
        }
    }

    #[test]
    fn combinations_are_read_by_the_settings_themselves() {
        let read = overrides([("lr", "15"), ("lstm", "9,8"), ("dropout-latent", "0.2")].into_iter()).unwrap();
        let setting = |place: &str| read.given.value::<f64>(place);
        assert_eq!(
            (setting("train.lr"), setting("model.dropouts.latent"), read.d_embedding),
            (Some(15.0), Some(0.2), None)
        );
        assert_eq!(read.lstm.unwrap().0, [9, 8]);
        assert!(overrides([("lr", "much")].into_iter()).unwrap_err().contains("much"));
    }

    #[test]
    fn settings_of_a_head_are_read() {
        let read: PerHead = "mos:lstm=96,64, lr=15".parse().unwrap();
        let settings = vec![Axis::new("lstm", ["96,64"]), Axis::new("lr", ["15"])];
        assert_eq!(read, PerHead { head: HeadKind::Mos, settings });
        let read: PerHead = "mos:lr=10,components=3:5:10".parse().unwrap();
        assert_eq!(read.settings[1].values, ["3", "5", "10"]);
        for (text, expected) in [
            ("lr=15", "HEAD:SETTING=VALUE"),
            ("mos:15", "HEAD:SETTING=VALUE"),
            ("mox:lr=15", "unknown head `mox`"),
            ("mos:seed=15", "unknown setting `seed`"),
            ("mos:lr=fast", "'fast' for '--lr <LR>'"),
            ("mos:lr=1,lr=2", "lr twice"),
        ] {
            let message = text.parse::<PerHead>().unwrap_err();
            assert!(message.contains(expected), "{text}: {message}");
        }
    }
}
