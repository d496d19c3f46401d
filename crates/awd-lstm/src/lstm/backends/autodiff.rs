//! The LSTM as one node of the autodiff graph, over any backend with kernels for it.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use highrank_kernels::node::{inner, record};
use highrank_kernels::{Floats, Rounding};

use crate::lstm::kernels::LstmKernels;
use crate::lstm::ops::{LstmArgs, LstmCall, LstmGrads, LstmOps, LstmWanted};

impl<B: LstmKernels + LstmOps, C: CheckpointStrategy> LstmOps for Autodiff<B, C> {
    fn lstm(LstmCall(args): LstmCall<Self>) -> FloatTensor<Self> {
        let LstmArgs { x, h0, c0, w_ih, w_hh, b_ih, b_hh, hh_mask: _, precision: _ } = args.clone();
        let args = args.map(inner);
        let packed = record("Lstm", [x, h0, c0, w_ih, w_hh, b_ih, b_hh].map(Some), |tracked| {
            let Some([x, h0, c0, w_ih, w_hh, b_ih, b_hh]) = tracked else {
                return (Floats::new(B::lstm(LstmCall(args))), None);
            };
            let wanted = LstmWanted { x, h0, c0, w_ih, w_hh, bias: b_ih || b_hh };
            let (packed, saved) = B::lstm_with_saved(args.clone());
            let output = packed.clone();
            let backward = move |upstream: Floats<B>| {
                let LstmGrads { x, h0, c0, w_ih, w_hh, bias } =
                    B::lstm_backward(args, packed, saved, upstream, wanted);
                [x, h0, c0, w_ih, w_hh, bias.clone(), bias]
            };
            (output, Some(backward))
        });
        packed.into_primitive()
    }
}

/// For autodiff on top of autodiff: the formulas, differentiable by composition.
impl<B: Rounding, C: CheckpointStrategy> LstmKernels for Autodiff<B, C> {}
