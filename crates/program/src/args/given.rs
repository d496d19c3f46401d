//! Settings of a run under names of their own, such as `--lr 15` for `train.lr`, and `--set` for all of them.

use std::fmt::Debug;
use std::marker::PhantomData;

use super::time::minutes;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use runs::text::parse_comma_list;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::setting::{Setting, apply, is_within, plain};

/// An option that is one setting.
#[derive(Debug, Clone, Copy)]
pub struct Knob {
    /// The name of the option, without dashes.
    pub name: &'static str,
    /// The place of the setting in `config.json`.
    pub place: &'static str,
    /// How a value is written.
    pub form: Form,
    /// What stands for a value in help.
    pub value: &'static str,
    /// Whether help leaves it out, for it is rare.
    pub hidden: bool,
    /// Its line in help.
    pub help: &'static str,
}

/// How the value of an option is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// As in `config.json`.
    Plain,
    /// Several values with commas between them.
    List,
    /// The option alone, or with `=true` or `=false`.
    Switch,
    /// The same, and the setting is the other way round.
    Inverse,
    /// A time with its unit; the setting is in minutes.
    Minutes,
}

/// The settings of a kind of run, with those that have options.
pub trait Knobs: Debug + Clone + Default + Send + Sync + 'static {
    /// The title of the options in help.
    const HEADING: &'static str;
    /// The options, in the order of help.
    const ALL: &'static [Knob];
    /// What `--set` is for, with an example.
    const SET: &'static str;

    /// Checks that there is such a setting, with a value of its type.
    fn check(setting: &Setting) -> Result<(), String>;
}

/// Settings that a command line gives: those of options first, then those of `--set`, which have the last word.
#[derive(Debug, Clone, Default)]
pub struct Given<K> {
    settings: Vec<Setting>,
    of: PhantomData<K>,
}

/// Why a setting that was read cannot be wrong any more.
const CHECKED: &str = "settings are checked as they are read";
/// The name of the option for any setting.
pub const SET: &str = "set";

impl<K: Knobs> Given<K> {
    /// The same with a further setting, if there is a value.
    #[must_use]
    pub fn with(mut self, place: &str, value: Option<impl Into<Value>>) -> Self {
        let setting = value.map(|value| Setting::new(place, value.into()).expect("the place is a constant"));
        self.settings.extend(setting);
        self
    }

    /// The settings of `--set` alone.
    pub fn of_set(matches: &ArgMatches) -> Self {
        let settings = matches.get_many::<Setting>(SET).into_iter().flatten().cloned().collect();
        Self { settings, of: PhantomData }
    }

    /// The same with further settings, which have the last word.
    #[must_use]
    pub fn and(mut self, others: &Self) -> Self {
        self.settings.extend_from_slice(&others.settings);
        self
    }

    /// The value that a place is given, if it is; none for null, which optional settings take.
    pub fn value<T: DeserializeOwned>(&self, place: &str) -> Option<T> {
        let found = self.found(place).filter(|value| !value.is_null())?;
        Some(serde_json::from_value(found.clone()).expect(CHECKED))
    }

    /// Whether a place is given null.
    pub fn is_null(&self, place: &str) -> bool {
        self.found(place).is_some_and(Value::is_null)
    }

    /// Whether a setting of `section` is given.
    pub fn has_section(&self, section: &str) -> bool {
        self.settings.iter().any(|setting| setting.section() == section)
    }

    /// The place of a setting that is given for `place`, for a part of it or for all that it is a part of.
    pub fn overlapping(&self, place: &str) -> Option<&str> {
        let mut places = self.settings.iter().map(Setting::place);
        places.find(|given| is_within(given, place) || is_within(place, given))
    }

    fn found(&self, place: &str) -> Option<&Value> {
        self.settings.iter().rev().find_map(|setting| setting.value_of(place))
    }

    /// The same without the settings of some places.
    #[must_use]
    pub fn without(&self, places: &[&str]) -> Self {
        let mut rest = self.clone();
        rest.settings.retain(|setting| places.iter().all(|place| setting.value_of(place).is_none()));
        rest
    }

    /// `base` with those of the settings that are of `section`.
    pub fn apply<T: Serialize + DeserializeOwned + Clone>(&self, section: &str, base: &T) -> T {
        apply(&self.settings, section, base).expect(CHECKED)
    }
}

impl Knob {
    /// An option that help lists.
    pub const fn new(
        name: &'static str,
        place: &'static str,
        form: Form,
        value: &'static str,
        help: &'static str,
    ) -> Self {
        Self { name, place, form, value, hidden: false, help }
    }

    /// The same option, which help leaves out.
    pub const fn rare(self) -> Self {
        Self { hidden: true, ..self }
    }

    fn read<K: Knobs>(&self, text: &str) -> Result<Setting, String> {
        let value = match self.form {
            Form::Plain => plain(text),
            Form::List => {
                let parts: Vec<String> = parse_comma_list(text).map_err(|_| "a part is empty")?;
                Value::from_iter(parts.iter().map(|part| plain(part)))
            }
            Form::Switch | Form::Inverse => {
                let on: bool = text.parse().map_err(|_| "it is true or false")?;
                Value::from(on == (self.form == Form::Switch))
            }
            Form::Minutes => Value::from(minutes(text)?),
        };
        let setting = Setting::new(self.place, value)?;
        K::check(&setting)?;
        Ok(setting)
    }

    fn arg<K: Knobs>(&'static self) -> Arg {
        let arg = Arg::new(self.name)
            .long(self.name)
            .value_name(self.value)
            .help(self.help)
            .help_heading(K::HEADING)
            .hide(self.hidden)
            .value_parser(move |text: &str| self.read::<K>(text));
        match self.form {
            Form::Switch | Form::Inverse => {
                arg.num_args(0..=1).require_equals(true).default_missing_value("true")
            }
            // `-5s` is no negative number to the parser; it is refused as a time.
            Form::Minutes => arg.allow_hyphen_values(true),
            _ => arg,
        }
    }
}

impl<K: Knobs> Args for Given<K> {
    fn augment_args(command: Command) -> Command {
        let set = Arg::new(SET)
            .long(SET)
            .value_name("KEY=VALUE")
            .action(ArgAction::Append)
            .help(K::SET)
            .value_parser(|text: &str| {
                let setting: Setting = text.parse()?;
                K::check(&setting)?;
                Ok::<_, String>(setting)
            });
        command.args(K::ALL.iter().map(Knob::arg::<K>)).arg(set)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<K: Knobs> FromArgMatches for Given<K> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let options =
            K::ALL.iter().filter_map(|knob| matches.get_one::<Setting>(knob.name)).cloned().collect();
        Ok(Self { settings: options, of: PhantomData }.and(&Self::of_set(matches)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
