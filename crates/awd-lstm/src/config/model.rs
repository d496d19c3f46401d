//! The shape of a model.

use std::num::Saturating;

use highrank::context::MixtapeConfig;
use highrank::{AdaptiveConfig, ContextConfig, HeadConfig, LogitMapConfig, Precision, TimeAxis};
use serde::{Deserialize, Serialize};

use super::dropouts::Dropouts;
use super::head::HeadKind;
use runs::error::{Error, Result, check};

/// The shape of a language model: embedding, LSTM layers, output layer, dropouts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// V, the number of words.
    pub vocab: usize,
    /// d, the width of the embedding, and of the decoder matrix: see [`d_decoder`](Self::d_decoder).
    pub d_embedding: usize,
    /// Hidden size of every LSTM, first to last. The last must be `d_embedding` for a tied head without mixture.
    pub lstm_sizes: Vec<usize>,
    /// The output layer.
    pub head: HeadKind,
    /// K, the number of mixture components, of a direct output connection those from the last LSTM. Heads without mixture ignore
    /// it.
    pub components: usize,
    /// Components of a direct output connection that come from below: from the layer under the last LSTM, the one under that, and
    /// so on down to the embedding. A layer with 0 gives none. Heads without such a connection ignore it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lower_components: Vec<usize>,
    /// The first word of each cluster of rare words, ascending: any head becomes the head cluster of an
    /// [adaptive softmax](highrank::HeadConfig::with_adaptive). None means no clusters, but for the head `adaptive` those of
    /// [`AdaptiveConfig::for_vocab`]. Words with small numbers should be the frequent ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cutoffs: Vec<usize>,
    /// S, the words `0..S` of a Mixtape have a gate of their own. `None` means a twentieth of the vocabulary. Words with small numbers
    /// should be the frequent ones. Heads without gates ignore it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frequent: Option<usize>,
    /// G, the width of a Mixtape's gates. Heads without gates ignore it.
    #[serde(default = "d_gate", skip_serializing_if = "is_d_gate")]
    pub d_gate: usize,
    /// Makes the contexts of a mixture linear and lets them [start at the softmax](highrank::HeadConfig::starting_at_softmax), as the
    /// first `d_embedding` features of the last LSTM's output, with noise of this spread on their weights. `None` means the papers'
    /// tanh contexts, which start at random. For the heads moc, mos and mos-plif.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_spread: Option<f64>,
    /// Number of pieces of the PLIF. Heads without one ignore it.
    pub knots: usize,
    /// T: the PLIF is piecewise linear on [-T, T]. Heads without one ignore it.
    pub plif_bound: f64,
    /// The dropouts, active in training only.
    pub dropouts: Dropouts,
    /// Whether the decoder matrix of the output layer is the embedding matrix. If a file does not say, it is.
    #[serde(default = "tied")]
    pub tied: bool,
    /// What the inputs of matrix products are rounded to.
    #[serde(default)]
    pub precision: Precision,
}

fn tied() -> bool {
    true
}

fn d_gate() -> usize {
    ModelConfig::D_GATE
}

// As the attribute hands it over.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_d_gate(width: &usize) -> bool {
    *width == ModelConfig::D_GATE
}

/// K of a Mixtape.
const MIXTAPE_CONTEXTS: usize = 4;

/// A layer that the output layer reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Connection {
    /// 0 for the embedding, otherwise the number of the LSTM, counted from 1.
    pub(crate) layer: usize,
    /// Width of its output.
    pub(crate) d_hidden: usize,
    /// Components that come from it.
    pub(crate) components: usize,
}

impl ModelConfig {
    /// The most learned scalars that a model may have: 2^40, in f32 four tebibytes.
    pub const MAX_PARAMETERS: usize = 1 << 40;

    /// The width of a Mixtape's gates if nothing else is said.
    pub const D_GATE: usize = 32;

    /// A model that trains in seconds, for tests and small studies: d = 8, two LSTM layers, a mixture of two components, no
    /// dropout, one tied matrix.
    ///
    /// Other sizes take the place of these one by one:
    ///
    /// ```
    /// use awd_lstm::{HeadKind, ModelConfig};
    ///
    /// let config = ModelConfig { components: 3, ..ModelConfig::tiny(HeadKind::Mos, 100) };
    /// config.validate().unwrap();
    /// ```
    pub fn tiny(head: HeadKind, vocab: usize) -> Self {
        Self {
            vocab,
            d_embedding: 8,
            lstm_sizes: vec![12, 8],
            head,
            components: 2,
            lower_components: if head.reads_layers() { vec![1] } else { vec![] },
            cutoffs: vec![],
            frequent: None,
            d_gate: Self::D_GATE,
            start_spread: None,
            knots: 100,
            plif_bound: 20.0,
            dropouts: Dropouts::NONE,
            tied: true,
            precision: Precision::Full,
        }
    }

    /// Checks every size, their [number of parameters](Self::num_params) and every probability, so that [`ModelConfig::try_init`] cannot fail on them.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidSetting`] names the first setting that is out of range and the range,
    /// [`Error::Settings`] the two sizes that a tied head without mixture needs to be equal, and [`Error::Head`] what the output
    /// layer cannot take.
    pub fn validate(&self) -> Result<()> {
        check(self.vocab > 0, "vocab", self.vocab, "at least 1")?;
        check(self.d_embedding > 0, "d_embedding", self.d_embedding, "at least 1")?;
        check(!self.lstm_sizes.is_empty(), "lstm_sizes", "[]", "at least one layer")?;
        let sizes = &self.lstm_sizes;
        check(!sizes.contains(&0), "lstm_sizes", format!("{sizes:?}"), "without zeros")?;
        if self.head.is_mixture() {
            check(self.components > 0, "components", self.components, "at least 1")?;
            self.validate_lower_components()?;
        } else if self.head == HeadKind::Mixtape {
            check(self.d_gate > 0, "d_gate", self.d_gate, "at least 1")?;
            let expected = "less than the words of the decoder: at least one shares its gate";
            check(self.frequent_words() < self.decoder_rows(), "frequent", self.frequent_words(), expected)?;
        } else if self.tied && self.last_lstm() != self.d_embedding {
            let (last, head) = (self.last_lstm(), self.head.name());
            let reason = format!(
                "the last LSTM has size {last}, but the {head} head has no mixture: tied to the embedding, it needs d_embedding = {}",
                self.d_embedding
            );
            return Err(Error::Settings { reason });
        }
        if let Some(spread) = self.start_spread {
            let ok = spread.is_finite() && spread >= 0.0;
            check(ok, "start_spread", spread, "finite and not below 0")?;
            if !matches!(self.head, HeadKind::Moc | HeadKind::Mos | HeadKind::MosPlif) {
                let head = self.head.name();
                let reason = format!(
                    "start_spread is {spread}, but the {head} head does not start at the softmax: moc, mos and mos-plif can"
                );
                return Err(Error::Settings { reason });
            }
        }
        if let Some(clusters) = self.clusters() {
            // Without the vocabulary: what is wrong with any is said before the text is read.
            let first = clusters.cutoffs.first().is_none_or(|first| *first > 0);
            let ascend = clusters.cutoffs.windows(2).all(|pair| pair[0] < pair[1]);
            let written = format!("{:?}", clusters.cutoffs);
            check(first && ascend, "cutoffs", written, "in ascending order, each above 0")?;
            HeadConfig::softmax(1, self.vocab).with_adaptive(clusters).validate()?;
        }
        if self.head.has_plif() {
            check((1..=1_000_000).contains(&self.knots), "knots", self.knots, "from 1 to 1000000")?;
            let ok = self.plif_bound.is_finite() && self.plif_bound > 0.0;
            check(ok, "plif_bound", self.plif_bound, "finite and above 0")?;
        }
        let parameters = self.num_params();
        check(parameters <= Self::MAX_PARAMETERS, "parameters", parameters, "at most 2^40")?;
        self.dropouts.validate()?;
        Ok(self.head_config().validate()?)
    }

    fn validate_lower_components(&self) -> Result<()> {
        if !self.head.reads_layers() {
            return Ok(());
        }
        let (lower, layers) = (&self.lower_components, self.lstm_sizes.len());
        let written = || format!("{lower:?}");
        let expected = "one number for each layer below the last LSTM, the embedding included, at most";
        check(lower.len() <= layers, "lower_components", written(), expected)?;
        let expected = "above 0 for at least one layer; without any, it is the head mos";
        check(lower.iter().any(|components| *components > 0), "lower_components", written(), expected)
    }

    /// The layers whose outputs the output layer reads, lowest first.
    pub(crate) fn connections(&self) -> Vec<Connection> {
        let last = self.lstm_sizes.len();
        let below: &[usize] = if self.head.reads_layers() { &self.lower_components } else { &[] };
        let below = below.iter().zip((0..last).rev()).filter(|(components, _)| **components > 0);
        let of_layer = |layer: usize, components| Connection {
            layer,
            d_hidden: if layer == 0 { self.d_embedding } else { self.lstm_sizes[layer - 1] },
            components,
        };
        let mut connections: Vec<Connection> =
            below.map(|(&components, layer)| of_layer(layer, components)).collect();
        connections.reverse();
        let contexts = if self.head == HeadKind::Mixtape { MIXTAPE_CONTEXTS } else { self.components };
        connections.push(of_layer(last, contexts));
        connections
    }

    /// S, the words of a Mixtape with a gate of their own.
    pub fn frequent_words(&self) -> usize {
        self.frequent.unwrap_or(self.vocab / 20)
    }

    /// Learned scalars of a mixture's prior, or a Mixtape's gates, and of its contexts; those of the other heads are 0.
    ///
    /// ```text
    /// K·H_last and Σ_l K_l·d·(H_l + 1), K = Σ_l K_l        l the layers that contexts come from
    /// 3·(G + 1)·H_last + (S + 1)·(G + 3), and K = 4        of a Mixtape
    /// ```
    pub fn mixture_params(&self) -> (usize, usize) {
        if !self.head.has_contexts() || self.lstm_sizes.is_empty() {
            return (0, 0);
        }
        let (d, one) = (Saturating(self.d_embedding), Saturating(1));
        let (mut components, mut latent) = (Saturating(0), Saturating(0));
        for connection in self.connections() {
            let k = Saturating(connection.components);
            components += k;
            latent += k * d * (Saturating(connection.d_hidden) + one);
        }
        let last = Saturating(self.last_lstm());
        let prior = match self.head {
            HeadKind::Mixtape => {
                let [gate, frequent, three] = [self.d_gate, self.frequent_words(), 3].map(Saturating);
                three * (gate + one) * last + (frequent + one) * (gate + three)
            }
            _ => components * last,
        };
        (prior.0, latent.0)
    }

    /// The configuration of the output layer. Its decoder matrix always comes from the model, which holds the embedding and,
    /// if `tied` is false, a separate decoder matrix.
    pub fn head_config(&self) -> HeadConfig {
        let (hidden, d, v, k) = (self.last_lstm(), self.d_decoder(), self.vocab, self.components);
        let plif = LogitMapConfig::Plif { knots: self.knots, bound: self.plif_bound };
        let head = match self.head {
            HeadKind::Softmax | HeadKind::Adaptive => HeadConfig::softmax(d, v),
            HeadKind::Moc => HeadConfig::moc(hidden, d, v, k),
            HeadKind::Mos => HeadConfig::mos(hidden, d, v, k),
            HeadKind::Doc => {
                let layers = self.connections();
                let layers: Vec<(usize, usize)> =
                    layers.iter().map(|layer| (layer.d_hidden, layer.components)).collect();
                HeadConfig::direct_output_connection(&layers, d, v)
            }
            HeadKind::Mixtape => {
                let mixtape = MixtapeConfig::new(self.frequent_words(), self.d_gate);
                HeadConfig::new(hidden, d, v).with_context(ContextConfig::Mixtape(mixtape))
            }
            HeadKind::Sigsoftmax => HeadConfig::sigsoftmax(d, v),
            HeadKind::Gss => HeadConfig::generalised_sigsoftmax(d, v),
            HeadKind::Plif => HeadConfig::softmax(d, v).with_logit_map(plif),
            HeadKind::MosPlif => HeadConfig::mos(hidden, d, v, k).with_logit_map(plif),
        };
        let head = match self.start_spread {
            Some(spread) => head.starting_at_softmax(spread),
            None => head,
        };
        let head = match self.head.has_contexts() {
            true => head.with_latent_dropout(self.dropouts.latent, TimeAxis::First),
            false => head,
        };
        let head = match self.clusters() {
            Some(clusters) => head.with_adaptive(clusters),
            None => head,
        };
        head.with_tied(true).with_precision(self.precision)
    }

    /// The clusters of rare words, if there are any.
    pub fn clusters(&self) -> Option<AdaptiveConfig> {
        match (self.cutoffs.as_slice(), self.head) {
            ([], HeadKind::Adaptive) => Some(AdaptiveConfig::for_vocab(self.vocab)),
            ([], _) => None,
            (cutoffs, _) => Some(AdaptiveConfig::new(cutoffs.to_vec())),
        }
    }

    /// How many words, the first of the vocabulary, the head treats as frequent: those in no cluster, or those of a Mixtape with a gate
    /// of their own. None where all words are alike.
    pub fn favoured_words(&self) -> Option<usize> {
        match (self.clusters(), self.head) {
            (Some(clusters), _) => clusters.cutoffs.first().copied(),
            (None, HeadKind::Mixtape) => Some(self.frequent_words()),
            (None, _) => None,
        }
    }

    /// The smallest vocabulary that has every word which the settings name and two words at least: with a larger one they are as
    /// right or wrong as with this.
    pub fn least_vocab(&self) -> usize {
        let named = self.cutoffs.iter().chain(&self.frequent).max();
        named.map_or(2, |word| word.saturating_add(1)).max(2)
    }

    /// Rows of the decoder matrix and its bias: V, or with clusters c_1 + C, the words below the first cutoff and one for each
    /// cluster.
    pub fn decoder_rows(&self) -> usize {
        HeadConfig { adaptive: self.clusters(), ..HeadConfig::softmax(1, self.vocab) }.decoder_rows()
    }

    /// Shape of the decoder matrix that the model has beside the embedding. A tied one has the rows that the embedding lacks, those
    /// of clusters; `None` if there are none.
    pub fn decoder_shape(&self) -> Option<[usize; 2]> {
        match (self.tied, self.clusters()) {
            (false, _) => Some([self.decoder_rows(), self.d_decoder()]),
            (true, Some(clusters)) => Some([clusters.cutoffs.len(), self.d_embedding]),
            (true, None) => None,
        }
    }

    /// Learned scalars of the clusters' tails, `Σ_i d_i (H + words of cluster i)` with H the width of the output layer's input.
    fn tail_params(&self) -> Saturating<usize> {
        let none = Saturating(0);
        let Some(clusters) = self.clusters() else { return none };
        let hidden =
            self.connections().iter().fold(none, |sum, connection| sum + Saturating(connection.d_hidden));
        let tails = clusters.tails(hidden.0, self.vocab);
        let params = tails.map(|(words, width)| Saturating(width) * (hidden + Saturating(words.len())));
        params.fold(none, |sum, tail| sum + tail)
    }

    /// Number of learned scalars, in closed form. A tied matrix counts once. A number that is too large for its type is that type's
    /// largest.
    ///
    /// ```text
    /// V·d + Σ_layers 4H(I + H + 2) + R [+ R·d_decoder if not tied, C·d if tied] + Σ_i d_i·(H + words of cluster i)
    ///     + K·H_last + Σ_l K_l·d·(H_l + 1)   (mixtures)    + knots + 1   (PLIF)    + 2   (GSS)
    /// ```
    ///
    /// R is V, or c_1 + C with C [clusters](Self::clusters) of rare words, which the last sum is over.
    /// The contexts of a mixture come from the last LSTM, those of a direct output connection from several layers l.
    pub fn num_params(&self) -> usize {
        let [none, one, two, four] = [0, 1, 2, 4].map(Saturating);
        let [d, v, knots] = [self.d_embedding, self.vocab, self.knots].map(Saturating);
        let sizes = || self.lstm_sizes.iter().copied().map(Saturating);
        let inputs = std::iter::once(d).chain(sizes());
        let lstm = inputs.zip(sizes()).fold(none, |sum, (i, h)| sum + four * h * (i + h + two));
        let matrix = self.decoder_shape().map_or(none, |[rows, width]| Saturating(rows) * Saturating(width));
        let decoder = matrix + Saturating(self.decoder_rows()) + self.tail_params();
        let (prior, latent) = self.mixture_params();
        let mixture = Saturating(prior) + Saturating(latent);
        let plif = if self.head.has_plif() { knots + one } else { none };
        let gss = if self.head == HeadKind::Gss { two } else { none };
        (v * d + lstm + decoder + mixture + plif + gss).0
    }

    /// Width of the decoder matrix, which bounds the rank of a head without mixture: `d_embedding`, but the last LSTM's size for
    /// an untied head without mixture, as in the AWD-LSTM programs.
    pub fn d_decoder(&self) -> usize {
        if self.tied || self.head.has_contexts() { self.d_embedding } else { self.last_lstm() }
    }

    /// Hidden size of the last LSTM, the width of the output layer's input. 0 without any layer.
    pub fn last_lstm(&self) -> usize {
        self.lstm_sizes.last().copied().unwrap_or(0)
    }
}
