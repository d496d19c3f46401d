//! Matrices with a row for each word, of which a model holds all rows or those of its rank.

use burn::module::{Initializer, Module, ModuleVisitor, Param, ParamId};
use burn::tensor::{Device, IndexingUpdateOp, Int, Tensor};
use highrank::shard::{ShardError, ShardedHead, Share, SharedVocabulary};
use highrank::{LogProbOptions, Loss, LossOptions, OutputHead};

/// Rows that are drawn at once for a rank that keeps some of them.
const BLOCK: usize = 1 << 12;

/// The words whose rows of embedding and decoder a model holds.
///
/// In operations on a shared vocabulary all of its ranks take part.
///
/// # Panics
/// All methods but [`share`](Self::share), where operations on whole matrices do, and if ranks cannot reach each other.
#[derive(Clone, Debug)]
pub enum WordRows {
    /// All of them.
    Whole,
    /// Those of one rank.
    Shared(Box<SharedVocabulary>),
}

impl WordRows {
    /// Which rows are this rank's; `None` if all are.
    pub fn share(&self) -> Option<&Share> {
        match self {
            Self::Whole => None,
            Self::Shared(words) => Some(&words.share),
        }
    }

    /// Which rows of embedding, decoder matrix and its bias this rank holds, and those of these parameters that there are; `None` if it
    /// holds all.
    pub fn shared(&self, parameters: [Option<ParamId>; 3]) -> Option<(&Share, Vec<ParamId>)> {
        self.share().map(|share| (share, parameters.into_iter().flatten().collect()))
    }

    /// The rows of tokens `[A, B]` in the whole matrix, `[A, B, d]`.
    pub fn lookup(&self, embedding: Tensor<2>, tokens: Tensor<2, Int>) -> Tensor<3> {
        match self.share() {
            None => burn::tensor::module::embedding(embedding, tokens),
            Some(share) => made(share.lookup(embedding, tokens)),
        }
    }

    /// Adds the gradients of tokens' rows, `[N, d]`, to that of the embedding.
    pub fn add(&self, sum: Tensor<2>, tokens: Tensor<1, Int>, grads: Tensor<2>) -> Tensor<2> {
        match self.share() {
            None => sum.select_assign(0, tokens, grads, IndexingUpdateOp::Add),
            Some(share) => share.add(sum, tokens, grads),
        }
    }

    /// The loss of the output layer whose rows `head` has: as [`OutputHead::loss_with`] of the whole head.
    pub fn loss<const D: usize, const T: usize>(
        &self,
        head: OutputHead,
        hidden: Tensor<D>,
        targets: Tensor<T, Int>,
        options: &LossOptions,
    ) -> Loss<T> {
        match self {
            Self::Whole => head.loss_with(hidden, targets, options),
            Self::Shared(words) => made(sharded(head, words).loss_with(hidden, targets, options)),
        }
    }

    /// The negative log-likelihood of every target, in nats.
    pub fn nll<const D: usize, const T: usize>(
        &self,
        head: OutputHead,
        hidden: Tensor<D>,
        targets: Tensor<T, Int>,
    ) -> Tensor<T> {
        match self {
            Self::Whole => head.nll(hidden, targets),
            Self::Shared(words) => {
                let targets = targets.unsqueeze_dim::<D>(T);
                let options = LogProbOptions::default();
                -made(sharded(head, words).token_log_probs(hidden, targets, &options))
                    .log_probs
                    .squeeze_dim::<T>(T)
            }
        }
    }
}

fn sharded(head: OutputHead, words: &SharedVocabulary) -> ShardedHead {
    ShardedHead { head, shared: words.clone() }
}

fn made<T>(result: Result<T, ShardError>) -> T {
    result.unwrap_or_else(|error| panic!("a shared vocabulary: {error}"))
}

/// A new matrix of this shape, or the rows of a share of it. It is drawn at once, from the device's random numbers.
pub fn drawn_rows(
    initializer: &Initializer,
    [all, width]: [usize; 2],
    share: Option<&Share>,
    device: &Device,
) -> Param<Tensor<2>> {
    let draw = |rows: usize| {
        let matrix: Param<Tensor<2>> = initializer.init([rows, width], device);
        matrix.val();
        matrix
    };
    let Some(share) = share else { return draw(all) };
    // In blocks, so that no rank ever has all rows. On CPUs they are the numbers of a matrix that is drawn at once.
    let (mut own, rows) = (vec![], &share.rows);
    for start in (0..all).step_by(BLOCK) {
        let end = all.min(start + BLOCK);
        let block = draw(end - start).val();
        let (from, to) = (rows.start.max(start), rows.end.min(end));
        if from < to {
            own.push(block.slice_dim(0, from - start..to - start));
        }
    }
    Param::from_tensor(Tensor::cat(own, 0).detach())
}

/// Draws all parameters of a new module, in their order in it. Burn draws each when it is first read otherwise.
pub fn draw_all<M: Module>(module: &M) {
    struct Draw;
    impl ModuleVisitor for Draw {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            param.val();
        }
    }
    module.visit(&mut Draw);
}
