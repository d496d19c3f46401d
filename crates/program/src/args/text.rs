//! How a command reads text.

use clap::Args;
use runs::data::TextConfig;

/// Options of the commands that number tokens.
#[derive(Debug, Clone, Default, Args)]
pub struct TextArgs {
    /// Characters instead of words as tokens; the folder may then hold one file text8 alone. The text8 presets do it
    /// anyway, unless it is `--characters=false`.
    #[arg(hide = true, long, help_heading = "Text", value_name = "BOOL")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub characters: Option<bool>,
    /// Read all text in lower case. The preset billion-word does it anyway, unless it is `--lower-case=false`.
    #[arg(hide = true, long, help_heading = "Text", value_name = "BOOL")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub lower_case: Option<bool>,
    /// Keep the N most frequent tokens of the training text, `<unk>` and `<eos>` among them; others become `<unk>`. The preset
    /// billion-word, of LSTMs, keeps 100,000.
    #[arg(long, value_name = "N", help_heading = "Text")]
    pub vocab_size: Option<usize>,
}

impl TextArgs {
    /// The configuration that they ask for.
    pub fn config(&self) -> TextConfig {
        let mut text = TextConfig::default();
        self.apply_to(&mut text);
        text
    }

    /// Puts what is given in the place of the settings of `text`.
    pub fn apply_to(&self, text: &mut TextConfig) {
        text.characters = self.characters.unwrap_or(text.characters);
        text.lower_case = self.lower_case.unwrap_or(text.lower_case);
        text.vocab_size = self.vocab_size.or(text.vocab_size);
    }
}
