//! Table 4 of Yang et al. (arXiv 1711.03953).

use seq2seq::metrics::BleuScores;

/// A line of the published table.
pub struct Published {
    /// The head.
    pub head: &'static str,
    /// Test perplexity.
    pub ppl: f64,
    /// BLEU of the five best responses of a beam of ten.
    pub bleu: BleuScores,
}

/// The published lines.
pub const TABLE_4: [Published; 3] = [
    Published {
        head: "softmax, published",
        ppl: 34.657,
        bleu: BleuScores { precision: [0.249, 0.193, 0.168, 0.141], recall: [0.188, 0.151, 0.133, 0.111] },
    },
    Published {
        head: "moc, published",
        ppl: 33.291,
        bleu: BleuScores { precision: [0.259, 0.202, 0.176, 0.148], recall: [0.198, 0.159, 0.140, 0.117] },
    },
    Published {
        head: "mos, published",
        ppl: 32.727,
        bleu: BleuScores { precision: [0.272, 0.213, 0.185, 0.157], recall: [0.206, 0.166, 0.146, 0.123] },
    },
];

/// What must be known to read them.
pub const NOTE: &str = "published: Yang et al. 2018, Table 4, trained on twice as much text of other transcripts and scored against \
                        several references by people; their number and the form of BLEU are not known, so compare the \
                        order of the heads, not the figures";
