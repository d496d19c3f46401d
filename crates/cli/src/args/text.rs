//! How a command reads text.

use awd_lstm::data::TextConfig;
use clap::Args;

/// Options of the commands that number tokens.
#[derive(Debug, Clone, Default, Args)]
pub struct TextArgs {
    /// Characters instead of words as tokens; the folder may then hold one file text8 alone.
    #[arg(long, help_heading = "Text")]
    pub characters: bool,
    /// Read all text in lower case.
    #[arg(long, help_heading = "Text")]
    pub lower_case: bool,
    /// Keep the N most frequent tokens of the training text, <unk> and <eos> among them; others become <unk>.
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
        text.characters |= self.characters;
        text.lower_case |= self.lower_case;
        text.vocab_size = self.vocab_size.or(text.vocab_size);
    }
}
