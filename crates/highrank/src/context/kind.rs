//! What a context's file provides, and the macro that turns the list of contexts into every choice among them.

use burn::module::Content;
use burn::tensor::{Device, Tensor};
use highrank_kernels::Precision;

use super::bodies::Bodies;
use super::contexts::Contexts;
use super::dropout::LatentDropout;
use super::tokens::Tokens;
use crate::error::HeadError;
use crate::fit::Fit;

/// The sizes of the head that a context is for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    /// `H`.
    pub(crate) d_hidden: usize,
    /// `d`.
    pub(crate) d_embedding: usize,
    /// Words of the decoder.
    pub(crate) vocab: usize,
}

/// A way from hidden states to contexts: its configuration, its module, and what it computes.
pub(super) trait ContextKind {
    type Config;
    type Module;

    /// Whether there are components whose priors are those of all words.
    const HAS_PRIORS: bool;

    /// Checks the configuration for a head, but for its latent dropout.
    fn validate(config: &Self::Config, sizes: Sizes) -> Result<(), HeadError>;

    fn init(config: &Self::Config, sizes: Sizes, device: &Device) -> Self::Module;

    /// The place of the latent dropout; `None` without latent features.
    fn dropout(_config: &mut Self::Config) -> Option<&mut Option<LatentDropout>> {
        None
    }

    /// `K`, the number of latent contexts.
    fn components(config: &Self::Config) -> usize;

    /// Width of a hidden state, if the module has weights that say it.
    fn d_hidden(module: &Self::Module) -> Option<usize>;

    /// `K·d`, the number of latent features, and their dropout.
    fn latent(_module: &Self::Module) -> (usize, Option<LatentDropout>) {
        (0, None)
    }

    /// A mask for the latent dropout of so many sequences, `[sequences, K·d]`; `None` if nothing is dropped.
    fn draw_mask(_module: &Self::Module, _sequences: usize) -> Option<Tensor<2>> {
        None
    }

    /// Rows of logits that each token has.
    fn distributions(_module: &Self::Module) -> usize {
        1
    }

    /// Checks the parameters for a decoder of a width.
    fn check(module: &Self::Module, d_embedding: usize, fit: &Fit) -> Result<(), HeadError>;

    /// The contexts of tokens, ready for the decoder.
    fn contexts(module: &Self::Module, tokens: Tokens, precision: Precision, bodies: Bodies) -> Contexts;

    /// Adds the module's sizes to a display.
    fn display(module: &Self::Module, content: Content) -> Content;
}

/// Generates [`ContextConfig`](super::ContextConfig), [`Context`](super::Context) and what these ask of the one context that
/// they hold. A line reads `Name(Config, Module): kind, "doc";`.
macro_rules! contexts {
    ($($Name:ident($Config:ident, $Module:ident): $kind:path, $doc:literal;)+) => {
        /// Which context a head uses.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[non_exhaustive]
        pub enum ContextConfig {
            $(#[doc = $doc] $Name($Config),)+
        }

        /// The map from hidden states to contexts.
        #[derive(Module, Debug)]
        #[module(custom_display)]
        #[non_exhaustive]
        // A model has one of them.
        #[allow(clippy::large_enum_variant)]
        pub enum Context {
            $(#[doc = $doc] $Name($Module),)+
        }

        impl ContextConfig {
            /// `K`, the number of latent contexts: 1 for a direct head.
            pub fn components(&self) -> usize {
                match self { $(Self::$Name(config) => <$kind as ContextKind>::components(config),)+ }
            }

            /// The place of the latent dropout; `None` without latent features.
            pub(crate) fn dropout_mut(&mut self) -> Option<&mut Option<LatentDropout>> {
                match self { $(Self::$Name(config) => <$kind as ContextKind>::dropout(config),)+ }
            }

            /// Checks the configuration for a head of some sizes.
            pub(crate) fn validate(&self, sizes: Sizes) -> Result<(), HeadError> {
                match self { $(Self::$Name(config) => <$kind as ContextKind>::validate(config, sizes),)+ }?;
                self.latent_dropout().map_or(Ok(()), |dropout| dropout.validate())
            }

            pub(crate) fn init(&self, sizes: Sizes, device: &Device) -> Context {
                match self {
                    $(Self::$Name(config) => {
                        Context::$Name(<$kind as ContextKind>::init(config, sizes, device))
                    })+
                }
            }
        }

        impl Context {
            /// Width of a hidden state, if the context has weights that say it.
            pub(crate) fn d_hidden(&self) -> Option<usize> {
                match self { $(Self::$Name(module) => <$kind as ContextKind>::d_hidden(module),)+ }
            }

            /// `K·d`, the number of latent features, and their dropout.
            fn latent(&self) -> (usize, Option<LatentDropout>) {
                match self { $(Self::$Name(module) => <$kind as ContextKind>::latent(module),)+ }
            }

            /// A mask for the latent dropout of so many sequences, `[sequences, K·d]`; `None` if nothing is dropped.
            pub(crate) fn draw_mask(&self, sequences: usize) -> Option<Tensor<2>> {
                match self { $(Self::$Name(module) => <$kind as ContextKind>::draw_mask(module, sequences),)+ }
            }

            /// Whether there are components whose priors are those of all words, as
            /// [`LossOptions::with_prior_cv`](crate::LossOptions::with_prior_cv) needs them.
            pub fn has_priors(&self) -> bool {
                match self { $(Self::$Name(_) => <$kind as ContextKind>::HAS_PRIORS,)+ }
            }

            /// Rows of logits that each token has.
            pub(crate) fn distributions(&self) -> usize {
                match self { $(Self::$Name(module) => <$kind as ContextKind>::distributions(module),)+ }
            }

            /// Checks the parameters for a decoder of a width.
            pub(crate) fn check(&self, d_embedding: usize, fit: &Fit) -> Result<(), HeadError> {
                match self { $(Self::$Name(module) => <$kind as ContextKind>::check(module, d_embedding, fit),)+ }
            }

            /// The contexts of tokens, ready for the decoder; products are of the given precision.
            pub(crate) fn of_tokens(&self, tokens: Tokens, precision: Precision, bodies: Bodies) -> Contexts {
                match self {
                    $(Self::$Name(module) => {
                        <$kind as ContextKind>::contexts(module, tokens, precision, bodies)
                    })+
                }
            }
        }

        impl ModuleDisplay for Context {
            fn custom_settings(&self) -> Option<DisplaySettings> {
                DisplaySettings::new().with_new_line_after_attribute(false).optional()
            }

            fn custom_content(&self, content: Content) -> Option<Content> {
                match self {
                    $(Self::$Name(module) => {
                        let content = content.set_top_level_type(stringify!($Name));
                        <$kind as ContextKind>::display(module, content)
                    })+
                }
                .optional()
            }
        }
    };
}
pub(super) use contexts;
