//! Numbers of parameters that the papers print, beside those of the presets.

use std::fmt::Write as _;

use crate::config::{HeadKind, ModelConfig, Preset};

/// A model whose number of parameters a paper prints.
pub(super) struct PublishedSize {
    pub(super) preset: Preset,
    pub(super) head: HeadKind,
    pub(super) vocab: usize,
    /// The paper's number of parameters, in millions.
    printed: &'static str,
    /// The paper, by its arXiv number, and the table.
    source: &'static str,
    /// Why the preset's number, rounded, is not the printed one. Empty where it is.
    pub(super) remark: &'static str,
}

impl PublishedSize {
    pub(super) fn model(&self) -> ModelConfig {
        self.preset.model(self.head, self.vocab)
    }

    /// How far the preset's number of parameters is from the printed one, as a share of the latter.
    pub(super) fn deviation(&self) -> f64 {
        self.model().num_params() as f64 / (self.printed.parse::<f64>().unwrap() * 1e6) - 1.0
    }

    /// Whether `parameters`, rounded as the paper rounds, are the printed number.
    pub(super) fn rounds_to_printed(&self, parameters: usize) -> bool {
        let decimals = self.printed.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        format!("{:.decimals$}", parameters as f64 / 1e6) == self.printed
    }
}

const MOS: &str = "1711.03953, tables 1 – 3";
const DOC: &str = "1808.10143, results on PTB and WikiText-2";
const LMS: &str = "1902.08077, table 1";
const CHARACTERS: &str = "1711.03953, table 12";
const CUT: &str = "the paper cuts 33.56 to 33";
/// Table 1 of LMS-PLIF fits to every digit if a knot counts as two numbers: 24.42 and 28.63 million.
const KNOTS: &str = "the paper's number fits two scalars a knot; here a knot is one slope";

/// Every number of parameters that the papers print for the models of the presets.
pub(super) const PUBLISHED_SIZES: &[PublishedSize] = &[
    row(Preset::Paper, HeadKind::Mos, 10_000, "22", MOS, ""),
    row(Preset::Doc, HeadKind::Doc, 10_000, "23", DOC, ""),
    row(Preset::AwdLstm, HeadKind::Softmax, 10_000, "24", "1708.02182, table 1", ""),
    row(Preset::Wikitext2, HeadKind::Mos, 33_278, "35", MOS, ""),
    row(Preset::DocWikitext2, HeadKind::Doc, 33_278, "37", DOC, ""),
    row(Preset::AwdLstmWikitext2, HeadKind::Softmax, 33_278, "33", "1708.02182, table 2", CUT),
    row(Preset::LmsPlif, HeadKind::Softmax, 10_000, "24.2", LMS, ""),
    row(Preset::LmsPlif, HeadKind::Plif, 10_000, "24.4", LMS, KNOTS),
    row(Preset::LmsPlif, HeadKind::Mos, 10_000, "26.6", LMS, ""),
    row(Preset::LmsPlif, HeadKind::MosPlif, 10_000, "28.6", LMS, KNOTS),
    row(Preset::BillionWord, HeadKind::Softmax, 100_000, "119", MOS, ""),
    row(Preset::BillionWord, HeadKind::Mos, 100_000, "113", MOS, ""),
    row(Preset::Text8, HeadKind::Softmax, 27, "8.42", CHARACTERS, ""),
    row(Preset::Text8, HeadKind::Mos, 27, "8.45", CHARACTERS, ""),
    row(Preset::Text8Mos7Square, HeadKind::Mos, 27, "8.45", CHARACTERS, "not explained by the printed sizes"),
    row(Preset::Text8Mos10, HeadKind::Mos, 27, "8.43", CHARACTERS, ""),
    row(Preset::Text8Mos10Square, HeadKind::Mos, 27, "8.43", CHARACTERS, ""),
];

const fn row(
    preset: Preset,
    head: HeadKind,
    vocab: usize,
    printed: &'static str,
    source: &'static str,
    remark: &'static str,
) -> PublishedSize {
    PublishedSize { preset, head, vocab, printed, source, remark }
}

/// [`PUBLISHED_SIZES`] as a Markdown table, with the presets' numbers of parameters.
pub(super) fn published_table() -> String {
    let mut table = String::from(
        "| preset | head | V | parameters | the paper's | difference | paper | |\n|---|---|---|---|---|---|---|---|\n",
    );
    for size in PUBLISHED_SIZES {
        let PublishedSize { preset, head, vocab, printed, source, remark } = size;
        let (vocab, count) = (grouped(*vocab), grouped(size.model().num_params()));
        let percent = 100.0 * size.deviation();
        writeln!(
            table,
            "| `{preset}` | {head} | {vocab} | {count} | {printed}M | {percent:+.1} % | {source} | {remark} |"
        )
        .unwrap();
    }
    table
}

/// A number with commas between thousands.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| str::from_utf8(group).unwrap()).collect();
    groups.join(",")
}
