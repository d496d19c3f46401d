//! The settings that are tried, and their results.

use awd_lstm::Error;
use awd_lstm::error::check;
use serde::Serialize;

use crate::args::List;
use crate::commands::synthetic::args::SyntheticArgs;
use crate::commands::synthetic::head::Head;

/// One cell of the grid.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Concentration of the Dirichlet law.
    pub alpha: f64,
    /// `M`, the size of the vocabulary.
    pub words: usize,
    /// `d`, the width of a context's vector and of a decoder row.
    pub d: usize,
    /// `N`
    pub contexts: usize,
}

/// The settings that are tried, checked.
pub struct Grid {
    /// Number of contexts.
    pub contexts: usize,
    /// Concentrations of the Dirichlet law.
    pub alphas: Vec<f64>,
    /// Vocabulary sizes.
    pub words: Vec<usize>,
    /// Dimensions.
    pub dims: Vec<usize>,
    /// The heads.
    pub heads: Vec<Head>,
}

impl Grid {
    /// What the arguments ask for.
    ///
    /// # Errors
    /// A number out of range.
    pub fn new(args: &SyntheticArgs) -> Result<Self, Error> {
        let pick = |small: &[usize], full: &[usize]| if args.full { full.to_vec() } else { small.to_vec() };
        let sizes = |given: &Option<List<usize>>, small: &[usize], full: &[usize]| {
            given.clone().map_or_else(|| pick(small, full), |list| list.0)
        };
        let grid = Self {
            contexts: args.contexts.unwrap_or(if args.full { 100_000 } else { 1500 }),
            alphas: args.alphas.clone().map_or(vec![0.01, 0.1, 1.0], |list| list.0),
            words: sizes(&args.words, &[100, 400], &[100, 1000, 10_000]),
            dims: sizes(&args.dims, &[5, 20, 80], &[10, 50, 100, 200]),
            heads: args.heads.clone().map_or(Head::ALL.to_vec(), |list| list.0),
        };
        let counts = [
            ("contexts", grid.contexts, 1),
            ("epochs", args.epochs, 1),
            ("batch", args.batch, 1),
            ("components", args.components, 1),
            ("knots", args.knots, 1),
            ("units", args.units, 1),
        ];
        let words = grid.words.iter().map(|&words| ("words", words, 2));
        let dims = grid.dims.iter().map(|&dims| ("dims", dims, 1));
        for (name, value, least) in counts.into_iter().chain(words).chain(dims) {
            let expected = if least == 1 { "at least 1" } else { "at least 2" };
            check(value >= least, name, value, expected)?;
        }
        let numbers = grid.alphas.iter().map(|&alpha| ("alphas", alpha)).chain([("lr", args.lr)]);
        for (name, value) in numbers {
            check(value > 0.0 && value.is_finite(), name, value, "finite and above 0")?;
        }
        Ok(grid)
    }

    /// Every cell.
    pub fn settings(&self) -> impl Iterator<Item = Setting> + '_ {
        let contexts = self.contexts;
        self.alphas.iter().flat_map(move |&alpha| {
            self.words
                .iter()
                .flat_map(move |&words| self.dims.iter().map(move |&d| Setting { alpha, words, d, contexts }))
        })
    }
}

/// The result of one head in one setting.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// Concentration of the Dirichlet law.
    pub alpha: f64,
    /// `M`, the size of the vocabulary.
    pub words: usize,
    /// `d`, the width of a context's vector and of a decoder row.
    pub d: usize,
    /// The head.
    pub head: Head,
    /// Number of contexts.
    pub contexts: usize,
    /// Learnt scalars, those of the contexts' vectors included.
    pub parameters: usize,
    /// Mean over contexts of `KL(truth ‖ model)` in nats.
    pub kl: f64,
    /// Share of contexts whose most probable word is the true one.
    pub mode_match: f64,
    /// Wall-clock time of the fit.
    pub seconds: f64,
}
