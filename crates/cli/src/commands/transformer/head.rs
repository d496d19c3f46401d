//! The output layer that a command line asks for.

use awd_lstm::HeadKind;
use clap::Args;
use highrank::context::FacetsConfig;
use highrank::{Activation, ContextConfig, HeadConfig, LogitMapConfig, Precision, Start, TimeAxis};
use program::args::{Head, HeadSizes, finite};
use program::failure::Failure;

/// The output layer and its settings.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Output layer")]
pub struct HeadArgs {
    /// Output layer: softmax, moc, mos, mixtape, sigsoftmax, gss, plif, mos-plif, soft-cap or monotonic-net.
    #[arg(long, default_value = "mos")]
    pub head: Head,
    /// Components of a mixture [default: 4].
    #[arg(long, value_name = "K")]
    pub components: Option<usize>,
    /// Contexts of a mixture: linear or residual, which start at the softmax, or tanh, the papers', which start at random
    /// [default: linear].
    #[arg(hide = true, long)]
    pub activation: Option<Activation>,
    /// Where the contexts of a mixture start that are not tanh: at the softmax, with noise of this spread on their weights, or
    /// random [default: 0.02].
    #[arg(hide = true, long, value_name = "SPREAD", value_parser = start)]
    pub start: Option<Start>,
    /// What the contexts of a mixture read beside the hidden state: the states of so many layers, the embedding counting as one,
    /// at so many positions (a multi-facet softmax), or none [default: 3x3, or fewer where there are fewer; none with tanh].
    #[arg(long, value_name = "LAYERSxPOSITIONS", value_parser = facets)]
    pub facets: Option<Facets>,
    /// Give the output layer a matrix of its own instead of the embedding's.
    #[arg(long)]
    pub untied: bool,
    /// Dropout on the latent contexts of a mixture [default: 0; with --from and the run's head, the run's].
    #[arg(hide = true, long, value_name = "P", value_parser = finite)]
    pub dropout_latent: Option<f64>,
    /// Pieces of a PLIF [default: 1000].
    #[arg(hide = true, long)]
    pub knots: Option<usize>,
    /// T of a PLIF, which bends on [-T, T] [default: 20].
    #[arg(hide = true, long, value_name = "T", value_parser = finite)]
    pub plif_bound: Option<f64>,
    /// Largest logit of a soft cap [default: 30].
    #[arg(hide = true, long, value_name = "C", value_parser = finite)]
    pub cap: Option<f64>,
    /// Sigmoids of a monotonic network [default: 16].
    #[arg(hide = true, long, value_name = "N")]
    pub units: Option<usize>,
    /// What the inputs of the output layer's matrix products are rounded to: full (nothing), tf32 or bf16. Faster where the
    /// hardware multiplies such numbers [default: full; with --from and the run's head, the run's].
    #[arg(long)]
    pub precision: Option<Precision>,
}

impl HeadArgs {
    /// Refuses settings of other heads than the one asked for.
    pub fn validate(&self) -> Result<(), Failure> {
        let head = self.head;
        if head.reads_layers() {
            return Err(format!(
                "--head is {head}, which reads several layers, but here a head reads the last one"
            )
            .into());
        }
        if head == Head::Common(HeadKind::Adaptive) {
            return Err("--head is adaptive, but the transformer's head shares the embedding, which has no rows for clusters".into());
        }
        let settings = [
            ("--components", self.components.is_some(), head.is_mixture(), "mixture"),
            ("--activation", self.activation.is_some(), head.is_mixture(), "mixture"),
            ("--start", self.start.is_some(), head.is_mixture(), "mixture"),
            ("--facets", matches!(self.facets, Some(Facets(Some(_)))), head.is_mixture(), "mixture"),
            ("--dropout-latent", self.dropout_latent.is_some(), head.has_contexts(), "latent contexts"),
            ("--knots", self.knots.is_some(), head.has_plif(), "PLIF"),
            ("--plif-bound", self.plif_bound.is_some(), head.has_plif(), "PLIF"),
            ("--cap", self.cap.is_some(), head == Head::SoftCap, "soft cap"),
            ("--units", self.units.is_some(), head == Head::MonotonicNet, "monotonic network"),
        ];
        if self.start.is_some() && self.activation == Some(Activation::Tanh) {
            return Err("--start is given, but tanh contexts start at random".into());
        }
        match settings.into_iter().find(|(_, given, used, _)| *given && !used) {
            Some((option, _, _, part)) => {
                Err(format!("{option} is given, but the {head} head has no {part}").into())
            }
            None => Ok(()),
        }
    }

    /// The same with the settings of a head of the same kind where none are given.
    pub fn or_those_of(&self, head: &HeadConfig) -> Self {
        let mut all = self.clone();
        all.precision.get_or_insert(head.precision);
        all.dropout_latent = all.dropout_latent.or(head.context.latent_dropout().map(|it| it.probability));
        if let ContextConfig::MixtureOfContexts(mixture) | ContextConfig::MixtureOfSoftmaxes(mixture) =
            &head.context
        {
            all.components.get_or_insert(mixture.components);
            all.activation.get_or_insert(mixture.activation);
            all.start.get_or_insert(mixture.start);
        }
        match head.logit_map {
            LogitMapConfig::Plif { knots, bound } => {
                all.knots.get_or_insert(knots);
                all.plif_bound.get_or_insert(bound);
            }
            LogitMapConfig::SoftCap { cap } => _ = all.cap.get_or_insert(cap),
            LogitMapConfig::MonotonicNet { units } => _ = all.units.get_or_insert(units),
            _ => {}
        }
        all
    }

    /// What the contexts read under a transformer of so many layers and such a context.
    pub fn facets(&self, layers: usize, context: usize) -> Option<FacetsConfig> {
        let FacetsConfig { layers: most, window } = FacetsConfig::default();
        match self.facets {
            Some(Facets(given)) => given,
            None if !self.head.is_mixture() || self.activation == Some(Activation::Tanh) => None,
            None => {
                Some(FacetsConfig { layers: most.min(layers.saturating_add(1)), window: window.min(context) })
            }
        }
    }

    /// The configuration over an embedding `[rows, d_embedding]`, under a transformer of width `d_model` whose contexts read `facets`. Rows
    /// after the `words` stand for none.
    pub fn config(
        &self,
        d_model: usize,
        d_embedding: usize,
        facets: Option<FacetsConfig>,
        words: usize,
        rows: usize,
    ) -> HeadConfig {
        let knots = self.knots.unwrap_or(1000);
        let mut config = self.head.config(&HeadSizes {
            d_hidden: if facets.is_some() { d_model.saturating_mul(2) } else { d_model },
            d_embedding,
            vocab: words,
            components: self.components.unwrap_or(4),
            // No head here reads it.
            lower: (0, 0),
            knots,
            cap: self.cap.unwrap_or(HeadSizes::CAP),
            units: self.units.unwrap_or(HeadSizes::UNITS),
        });
        let activation = self.activation.unwrap_or(Activation::Linear);
        if self.head.is_mixture() && activation != Activation::Tanh {
            config = config.with_activation(activation);
            if let Start::Softmax { spread } = self.start.unwrap_or(Start::Softmax { spread: Start::SPREAD })
            {
                config = config.starting_at_softmax(spread);
            }
        }
        if let Some(bound) = self.plif_bound {
            config = config.with_logit_map(LogitMapConfig::Plif { knots, bound });
        }
        if let Some(dropout) = self.dropout_latent {
            config = config.with_latent_dropout(dropout, TimeAxis::Second);
        }
        if rows > words {
            config = config.with_vocab_multiple(rows);
        }
        config.with_tied(!self.untied).with_precision(self.precision.unwrap_or_default())
    }
}

/// Where contexts start, on a command line.
fn start(text: &str) -> Result<Start, String> {
    match finite(text) {
        Ok(spread) => Ok(Start::Softmax { spread }),
        Err(_) if text == "random" => Ok(Start::Random),
        Err(_) => Err(format!("`{text}` is neither a spread, such as 0.02, nor random")),
    }
}

/// What contexts read beside the hidden state, on a command line.
#[derive(Debug, Clone, Copy)]
pub struct Facets(pub Option<FacetsConfig>);

/// A number of layers and of positions, or none.
fn facets(text: &str) -> Result<Facets, String> {
    if text == "none" {
        return Ok(Facets(None));
    }
    let number = |text: &str| text.parse().ok().filter(|number| *number > 0);
    let sizes = text.split_once('x').and_then(|(layers, window)| Some((number(layers)?, number(window)?)));
    match sizes {
        Some((layers, window)) => Ok(Facets(Some(FacetsConfig { layers, window }))),
        None => {
            Err(format!("`{text}` is neither a number of layers and of positions, such as 3x3, nor none"))
        }
    }
}
