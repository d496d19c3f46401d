//! Numbers of parameters that the papers print, beside those of the presets.

use std::fmt::Write as _;

use super::head::HeadKind;
use super::model::ModelConfig;
use super::preset::Preset;

/// A model whose number of parameters a paper prints.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PublishedSize {
    /// The preset.
    pub preset: Preset,
    /// The output layer.
    pub head: HeadKind,
    /// V, the size of the text's vocabulary.
    pub vocab: usize,
    /// The paper's number of parameters, in millions.
    pub millions: f64,
    /// Decimals that the paper prints of it.
    pub decimals: usize,
    /// The paper, by its arXiv number, and the table.
    pub source: &'static str,
    /// Why the preset's number, rounded, is not the printed one. Empty where it is.
    pub remark: &'static str,
}

impl PublishedSize {
    /// The preset's model.
    pub fn model(&self) -> ModelConfig {
        self.preset.model(self.head, self.vocab)
    }

    /// How far the preset's number of parameters is from the printed one, as a share of the latter.
    pub fn deviation(&self) -> f64 {
        self.model().num_params() as f64 / (self.millions * 1e6) - 1.0
    }

    /// Whether `parameters`, rounded as the paper rounds, are the printed number.
    pub fn rounds_to_printed(&self, parameters: usize) -> bool {
        format!("{:.*}", self.decimals, parameters as f64 / 1e6) == self.printed()
    }

    /// The number as the paper prints it, without its M.
    fn printed(&self) -> String {
        format!("{:.*}", self.decimals, self.millions)
    }
}

const MOS: &str = "1711.03953, tables 1 – 3";
const DOC: &str = "1808.10143, results on PTB and WikiText-2";
const LMS: &str = "1902.08077, table 1";
const CHARACTERS: &str = "1711.03953, table 12";
/// Table 1 of LMS-PLIF fits to every digit if a knot counts as two numbers: 24.42 and 28.63 million.
const KNOTS: &str = "the paper's number fits two scalars a knot; here a knot is one slope";

/// Every number of parameters that the papers print for the models of the presets.
pub const PUBLISHED_SIZES: &[PublishedSize] = &[
    row(Preset::Paper, HeadKind::Mos, 10_000, (22.0, 0), MOS, ""),
    row(Preset::Doc, HeadKind::Doc, 10_000, (23.0, 0), DOC, ""),
    row(Preset::AwdLstm, HeadKind::Softmax, 10_000, (24.0, 0), "1708.02182, table 1", ""),
    row(Preset::Wikitext2, HeadKind::Mos, 33_278, (35.0, 0), MOS, ""),
    row(Preset::DocWikitext2, HeadKind::Doc, 33_278, (37.0, 0), DOC, ""),
    row(
        Preset::AwdLstmWikitext2,
        HeadKind::Softmax,
        33_278,
        (33.0, 0),
        "1708.02182, table 2",
        "the paper cuts 33.56 to 33",
    ),
    row(Preset::LmsPlif, HeadKind::Softmax, 10_000, (24.2, 1), LMS, ""),
    row(Preset::LmsPlif, HeadKind::Plif, 10_000, (24.4, 1), LMS, KNOTS),
    row(Preset::LmsPlif, HeadKind::Mos, 10_000, (26.6, 1), LMS, ""),
    row(Preset::LmsPlif, HeadKind::MosPlif, 10_000, (28.6, 1), LMS, KNOTS),
    row(Preset::BillionWord, HeadKind::Softmax, 100_000, (119.0, 0), MOS, ""),
    row(Preset::BillionWord, HeadKind::Mos, 100_000, (113.0, 0), MOS, ""),
    row(Preset::Text8, HeadKind::Softmax, 27, (8.42, 2), CHARACTERS, ""),
    row(Preset::Text8, HeadKind::Mos, 27, (8.45, 2), CHARACTERS, ""),
    row(
        Preset::Text8Mos7Square,
        HeadKind::Mos,
        27,
        (8.45, 2),
        CHARACTERS,
        "not explained by the printed sizes",
    ),
    row(Preset::Text8Mos10, HeadKind::Mos, 27, (8.43, 2), CHARACTERS, ""),
    row(Preset::Text8Mos10Square, HeadKind::Mos, 27, (8.43, 2), CHARACTERS, ""),
];

const fn row(
    preset: Preset,
    head: HeadKind,
    vocab: usize,
    (millions, decimals): (f64, usize),
    source: &'static str,
    remark: &'static str,
) -> PublishedSize {
    PublishedSize { preset, head, vocab, millions, decimals, source, remark }
}

/// [`PUBLISHED_SIZES`] as a Markdown table, with the presets' numbers of parameters.
pub fn published_table() -> String {
    let mut table = String::from(
        "| preset | head | V | parameters | the paper's | difference | paper | |\n|---|---|---|---|---|---|---|---|\n",
    );
    for size in PUBLISHED_SIZES {
        let PublishedSize { preset, head, vocab, source, remark, .. } = size;
        let (count, printed) = (grouped(size.model().num_params()), size.printed());
        let percent = 100.0 * size.deviation();
        let vocab = grouped(*vocab);
        writeln!(
            table,
            "| `{preset}` | {head} | {vocab} | {count} | {printed}M | {percent:+.1} % | {source} | {remark} |"
        )
        .expect("a string takes everything");
    }
    table
}

/// A number with commas between thousands.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
