//! JSON of every configuration: what is valid can be counted, and what is written can be read.

#![no_main]

use awd_lstm::data::TextConfig;
use libfuzzer_sys::fuzz_target;
use seq2seq::data::DialogConfig;
use serde::Serialize;
use serde::de::DeserializeOwned;

fn check<T: DeserializeOwned + Serialize>(input: &[u8], valid: impl FnOnce(&T)) {
    let Ok(config) = serde_json::from_slice::<T>(input) else { return };
    valid(&config);
    let text = serde_json::to_string(&config).expect("plain data");
    // Not always the same: reals are read to within a unit in the last place.
    let _: T = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
}

fuzz_target!(|input: &[u8]| {
    check::<awd_lstm::ModelConfig>(input, |config| {
        if config.validate().is_ok() {
            assert!(config.num_params() <= awd_lstm::ModelConfig::MAX_PARAMETERS);
        }
    });
    check::<awd_lstm::TrainConfig>(input, |config| drop(config.validate()));
    check::<TextConfig>(input, |config| drop(config.validate()));
    check::<seq2seq::ModelConfig>(input, |config| {
        if config.validate().is_ok() {
            config.num_params();
        }
    });
    check::<seq2seq::TrainConfig>(input, |config| drop(config.validate()));
    check::<DialogConfig>(input, |config| drop(config.validate()));
    check::<gpt::GptConfig>(input, |config| drop(config.validate()));
    check::<gpt::TrainConfig>(input, |config| drop(config.validate()));
});
