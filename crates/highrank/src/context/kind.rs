//! What a context's file provides, and the macro that turns the list of contexts into every choice among them.

use burn::module::Content;
use burn::tensor::Device;
use highrank_kernels::{Floats, Precision};

use super::context_path::ContextPath;
use super::dropout::{Latent, LatentDropout};
use super::start::Start;
use super::tokens::Tokens;
use crate::checks::TensorChecks;
use crate::error::HeadError;
use crate::ops::{Activation, ContextSource};

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

/// The configuration of a context.
pub(super) trait ContextSettings {
    type Module;

    /// Checks it for a head, but for its latent dropout.
    fn validate(&self, sizes: Sizes) -> Result<(), HeadError>;

    fn init(&self, sizes: Sizes, device: &Device) -> Self::Module;

    /// What can be set of it.
    fn options(&mut self) -> ContextOptions<'_> {
        ContextOptions::default()
    }

    /// `K`, the number of latent contexts, mixed into one row of logits or not.
    fn components(&self) -> usize;
}

/// The places of a context's options; none of an option that it does not have.
#[derive(Default)]
pub(crate) struct ContextOptions<'a> {
    /// Of its latent features.
    pub(crate) dropout: Option<&'a mut Option<LatentDropout>>,
    pub(crate) activation: Option<&'a mut Activation>,
    pub(crate) start: Option<&'a mut Start>,
}

/// Whether a setting is the default, which files need not say.
pub(super) fn is_default<T: Default + PartialEq>(setting: &T) -> bool {
    *setting == T::default()
}

/// The parameters of a context.
pub(super) trait ContextModule {
    /// Width of a hidden state, if the module has weights that say it.
    fn d_hidden(&self) -> Option<usize>;

    /// Its latent features, if it has any.
    fn latent(&self) -> Option<Latent<'_>> {
        None
    }

    /// Checks them for a decoder of a width.
    fn check(&self, d_embedding: usize, checks: &TensorChecks) -> Result<(), HeadError>;

    /// Adds their sizes to a display.
    fn display(&self, content: Content) -> Content;
}

/// Contexts of a run of tokens, ready for the decoder.
#[derive(Debug, Clone)]
pub(crate) struct Contexts {
    /// `h_k`.
    pub contexts: ContextSource,
    /// `log π_k`, shape `[N, K]`; `None` where there is one component only.
    pub log_prior: Option<Floats>,
    /// `log π_k` of the latent contexts, shape `[N, K]`, also where they have been mixed into one; `None` without a mixture.
    pub component_log_prior: Option<Floats>,
}

/// What a context makes of hidden states by its parameters.
pub(super) trait ContextKind<Module> {
    /// Whether there are components whose priors are those of all words.
    const HAS_PRIORS: bool;

    /// The article and name of a context whose logits are no products with the decoder alone.
    const NOT_LINEAR: Option<&str> = None;

    /// Rows of logits that each token has.
    fn distributions(_module: &Module) -> usize {
        1
    }

    /// The contexts of tokens, ready for the decoder.
    fn contexts(module: &Module, tokens: Tokens, precision: Precision, path: ContextPath) -> Contexts;
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
            ///
            /// [`OutputHead::components`](crate::OutputHead::components) counts the rows of logits instead: one row for a
            /// Mixture of Contexts and for a Mixtape, which mix their contexts before the softmax.
            pub fn components(&self) -> usize {
                match self { $(Self::$Name(config) => ContextSettings::components(config),)+ }
            }

            /// What can be set of it.
            pub(crate) fn options(&mut self) -> ContextOptions<'_> {
                match self { $(Self::$Name(config) => ContextSettings::options(config),)+ }
            }

            /// Checks the configuration for a head of some sizes.
            pub(crate) fn validate(&self, sizes: Sizes) -> Result<(), HeadError> {
                match self { $(Self::$Name(config) => ContextSettings::validate(config, sizes),)+ }?;
                self.latent_dropout().map_or(Ok(()), |dropout| dropout.validate())
            }

            pub(crate) fn init(&self, sizes: Sizes, device: &Device) -> Context {
                match self {
                    $(Self::$Name(config) => Context::$Name(ContextSettings::init(config, sizes, device)),)+
                }
            }
        }

        impl Context {
            /// Width of a hidden state, if the context has weights that say it.
            pub(crate) fn d_hidden(&self) -> Option<usize> {
                match self { $(Self::$Name(module) => ContextModule::d_hidden(module),)+ }
            }

            /// Its latent features, if it has any.
            fn latent(&self) -> Option<Latent<'_>> {
                match self { $(Self::$Name(module) => ContextModule::latent(module),)+ }
            }

            /// Whether there are components whose priors are those of all words, as
            /// [`LossOptions::with_prior_cv`](crate::LossOptions::with_prior_cv) needs them.
            pub fn has_priors(&self) -> bool {
                match self { $(Self::$Name(_) => <$kind as ContextKind<$Module>>::HAS_PRIORS,)+ }
            }

            /// What it is, if its logits are no products with the decoder alone.
            pub(crate) fn not_linear(&self) -> Option<&'static str> {
                match self { $(Self::$Name(_) => <$kind as ContextKind<$Module>>::NOT_LINEAR,)+ }
            }

            /// Rows of logits that each token has.
            pub(crate) fn distributions(&self) -> usize {
                match self { $(Self::$Name(module) => <$kind>::distributions(module),)+ }
            }

            /// Checks the parameters for a decoder of a width, and the dropout.
            pub(crate) fn check(&self, d_embedding: usize, checks: &TensorChecks) -> Result<(), HeadError> {
                match self { $(Self::$Name(module) => ContextModule::check(module, d_embedding, checks),)+ }?;
                self.latent_dropout().map_or(Ok(()), |dropout| dropout.validate())
            }

            /// The contexts of tokens, ready for the decoder; products are of the given precision.
            pub(crate) fn of_tokens(&self, tokens: Tokens, precision: Precision, path: ContextPath) -> Contexts {
                match self {
                    $(Self::$Name(module) => <$kind>::contexts(module, tokens, precision, path),)+
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
                        ContextModule::display(module, content)
                    })+
                }
                .optional()
            }
        }
    };
}
pub(super) use contexts;
