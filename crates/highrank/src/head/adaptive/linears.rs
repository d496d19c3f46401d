//! An adaptive head from the linear layers of another program, such as PyTorch's `AdaptiveLogSoftmaxWithLoss`.

use burn::module::{Param, ParamId};
use burn::nn::Linear;

use crate::error::{HeadError, OrPanic, expect_shape};
use crate::head::clusters::{Clusters, Tail};
use crate::head::config::HeadConfig;
use crate::head::output::OutputHead;
use crate::parameters::{cast_parameters, is_trained, value};

impl HeadConfig {
    /// Creates an [adaptive](Self::with_adaptive) head on the device of linear layers, whose parameters become those of its
    /// clusters.
    ///
    /// - head: `d → c_1 + C`, the shortlist's words and then a word for each cluster
    /// - tails: for each cluster the projection `H → d_i` and the decoder `d_i → words`, both without bias
    ///
    /// They are the layers of PyTorch's `AdaptiveLogSoftmaxWithLoss`, of which a head of [`softmax`](Self::softmax) has the
    /// values. Its tensors are transposed, as those of all of PyTorch's linear layers:
    ///
    /// | PyTorch | here | shape here |
    /// |---|---|---|
    /// | `head.weight` | `decoder.weight` | `[c_1 + C, d]`, as there |
    /// | `head.bias`, with `head_bias=True` | `decoder.bias` | `[c_1 + C]` |
    /// | `tail.i.0.weight` | `clusters.tails[i].projection` | `[H, d_i]`, there `[d_i, H]` |
    /// | `tail.i.1.weight` | `clusters.tails[i].decoder.weight` | `[words, d_i]`, as there |
    ///
    /// ```
    /// use burn::nn::LinearConfig;
    /// use burn::tensor::{Device, Tensor};
    /// use highrank::{AdaptiveConfig, HeadConfig};
    ///
    /// let device = Device::default();
    /// let linear = |from, to| LinearConfig::new(from, to).with_bias(false).init(&device);
    /// // 10 words of the shortlist and 2 clusters; 20 and 70 words, of width 16/4 and 16/16.
    /// let (short, tails) = (linear(16, 12), vec![[linear(16, 4), linear(4, 20)], [linear(16, 1), linear(1, 70)]]);
    /// let config = HeadConfig::softmax(16, 100).with_adaptive(AdaptiveConfig::new(vec![10, 30])).with_bias(false);
    /// let head = config.init_from_linears(short, tails);
    /// assert_eq!(head.forward(Tensor::<2>::ones([1, 16], &device)).dims(), [1, 100]);
    /// ```
    ///
    /// # Panics
    /// With the message of [`validate`](Self::validate) if the configuration is invalid, if it is tied or without clusters, or
    /// if a layer does not fit (both shapes are in the message).
    #[track_caller]
    pub fn init_from_linears(&self, head: Linear, tails: Vec<[Linear; 2]>) -> OutputHead {
        self.checked_init_from_linears(head, tails).or_panic("HeadConfig::init_from_linears")
    }

    pub(super) fn checked_init_from_linears(
        &self,
        head: Linear,
        tails: Vec<[Linear; 2]>,
    ) -> Result<OutputHead, HeadError> {
        self.validate()?;
        let Some(adaptive) = &self.adaptive else { return Err(HeadError::NoClusters) };
        let dtype = value(&head.weight).dtype();
        let cutoffs = adaptive.cutoffs.len();
        expect_shape("the list of tails", &[tails.len()], &[cutoffs], "the number of cutoffs")?;
        let tails =
            self.tail_shapes(adaptive).into_iter().zip(tails).map(|(shape, [projection, decoder])| {
                let (got, want) = (projection.weight.shape(), [self.d_hidden, shape.d_embedding]);
                expect_shape("a tail's projection", &got, &want, "[d_hidden, width] of the cluster")?;
                if projection.bias.is_some() {
                    return Err(HeadError::LinearBias { linear: true, head: false });
                }
                let trained = is_trained(&projection.weight);
                let weight = value(&projection.weight).detach();
                let projection = Param::initialized(ParamId::new(), weight).set_require_grad(trained);
                Ok(cast_parameters(Tail { projection, decoder: shape.of_linear(decoder)? }, dtype))
            });
        let clusters = Clusters::new(adaptive, self.vocab, tails.collect::<Result<_, HeadError>>()?);
        let head_cluster =
            HeadConfig { vocab: adaptive.head_words(), adaptive: None, masked_words: vec![], ..self.clone() };
        let head = head_cluster.checked_init_from_linear(head)?;
        OutputHead { clusters: Some(clusters), ..head }.masking(&self.masked_words)
    }
}
