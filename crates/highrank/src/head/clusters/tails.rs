//! The parameters of an adaptive head beyond those of its head cluster.

use std::ops::Range;

use burn::module::{Content, DisplaySettings, Initializer, Module, ModuleDisplay, Param};
use burn::tensor::{Device, Tensor};

use super::config::{AdaptiveConfig, ranges};
use crate::checks::TensorChecks;
use crate::context::linear_initializer;
use crate::decoder::{Decoder, DecoderShape, merged_masks};
use crate::error::HeadError;
use crate::parameters::float_type;

/// The clusters of rare words of an [adaptive softmax](crate::HeadConfig::with_adaptive). The other parameters of the
/// [`OutputHead`](crate::OutputHead) are those of its head cluster, whose decoder has a row for each word of the shortlist and then for each cluster.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct Clusters {
    /// One a cluster, the most frequent words first.
    pub tails: Vec<Tail>,
    /// The first word of each cluster.
    cutoffs: Vec<usize>,
    /// `V`, the number of all words.
    pub(in crate::head) vocab: usize,
    /// Of the whole vocabulary, in ascending order.
    pub(in crate::head) masked_words: Vec<usize>,
}

/// The softmax over the words of a cluster, `softmax(W_i · P_i g)`, without a bias.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct Tail {
    /// `P_i` transposed, shape `[H, d_i]`.
    pub projection: Param<Tensor<2>>,
    /// `W_i`, a row for each word of the cluster.
    pub decoder: Decoder,
}

impl Clusters {
    /// New tails: decoders by the initialiser, projections uniform in `±1/√H`.
    ///
    /// - shapes: of each tail's decoder
    pub(in crate::head) fn init(
        config: &AdaptiveConfig,
        vocab: usize,
        d_hidden: usize,
        shapes: Vec<DecoderShape<'_>>,
        initializer: &Initializer,
        device: &Device,
    ) -> Result<Self, HeadError> {
        let tails = shapes.into_iter().map(|shape| {
            let (h, width) = (d_hidden, shape.d_embedding);
            let projection = linear_initializer().init_with([h, width], Some(h), Some(width), device);
            Ok(Tail { projection, decoder: shape.init(Some(initializer), device)? })
        });
        let tails = tails.collect::<Result<_, HeadError>>()?;
        Ok(Self { tails, cutoffs: config.cutoffs.clone(), vocab, masked_words: vec![] })
    }

    /// Number of words in the shortlist, those in front of the first cluster.
    pub(crate) fn shortlist(&self) -> usize {
        self.cutoffs[0]
    }

    /// The cluster of a word; none if it is in the shortlist.
    fn cluster_of(&self, word: usize) -> Option<usize> {
        self.cutoffs.partition_point(|cutoff| *cutoff <= word).checked_sub(1)
    }

    /// The words of each cluster.
    pub(in crate::head) fn ranges(&self) -> impl Iterator<Item = Range<usize>> {
        ranges(&self.cutoffs, self.vocab)
    }

    /// Checks the parameters for hidden states of width `H`.
    pub(in crate::head) fn check(&self, d_hidden: usize, checks: &TensorChecks) -> Result<(), HeadError> {
        self.tails.iter().try_for_each(|tail| {
            checks.param("a tail's projection", &tail.projection, [d_hidden, tail.decoder.d_embedding])?;
            tail.decoder.check(checks)?;
            let weight = tail.decoder.weight.as_ref();
            weight.map_or(Ok(()), |weight| checks.same_sums("a tail's decoder", float_type(weight)))
        })
    }

    /// The word of the head cluster that stands for a word: itself, or that of its cluster.
    pub(in crate::head) fn head_word(&self, word: usize) -> usize {
        self.cluster_of(word).map_or(word, |cluster| self.shortlist() + cluster)
    }

    /// Words masked in addition to those that are: in the head cluster those of the shortlist and of clusters without any word left.
    pub(in crate::head) fn masking(
        mut self,
        head_cluster: Decoder,
        words: &[usize],
    ) -> Result<(Self, Decoder), HeadError> {
        self.masked_words = merged_masks(&self.masked_words, words, self.vocab)?;
        let (mut in_head, mut in_tails) = (vec![], vec![vec![]; self.tails.len()]);
        for &word in &self.masked_words {
            match self.cluster_of(word) {
                Some(cluster) => in_tails[cluster].push(word - self.cutoffs[cluster]),
                None => in_head.push(word),
            }
        }
        let shortlist = self.shortlist();
        let tails = self.tails.into_iter().zip(in_tails).enumerate().map(|(cluster, (tail, words))| {
            if words.len() == tail.decoder.vocab {
                in_head.push(shortlist + cluster);
                return Ok(tail);
            }
            Ok(Tail { decoder: tail.decoder.masking(&words)?, ..tail })
        });
        let tails = tails.collect::<Result<_, HeadError>>()?;
        Ok((Self { tails, ..self }, head_cluster.masking(&in_head)?))
    }
}

impl ModuleDisplay for Clusters {
    fn custom_content(&self, content: Content) -> Option<Content> {
        let content = content.add_debug_attribute("cutoffs", &self.cutoffs).add("vocab", &self.vocab);
        let masked = self.masked_words.len();
        let content = if masked > 0 { content.add("masked_words", &masked) } else { content };
        content.add("tails", &self.tails).optional()
    }
}

impl ModuleDisplay for Tail {
    fn custom_settings(&self) -> Option<DisplaySettings> {
        DisplaySettings::new().with_new_line_after_attribute(false).optional()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        let [d_hidden, width] = self.projection.shape().dims();
        content.add("d_hidden", &d_hidden).add("width", &width).add("words", &self.decoder.vocab).optional()
    }
}
