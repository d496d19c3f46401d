//! The LSTM as one node of the autodiff graph, over any backend with kernels for it.

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend};
use highrank_kernels::node::{Node, inner, record};
use highrank_kernels::{Floats, Rounding};

use crate::lstm::ops::{LstmArgs, LstmCall, LstmGrads, LstmKernels, LstmOps, LstmSaved, LstmWanted};
use crate::lstm::portable;

impl<B: LstmKernels + LstmOps, C: CheckpointStrategy> LstmOps for Autodiff<B, C> {
    fn lstm(LstmCall(args): LstmCall<Self>) -> FloatTensor<Self> {
        let LstmArgs { x, h0, c0, w_ih, w_hh, b_ih, b_hh, hh_mask: _, precision: _ } = args.clone();
        let args = args.map(inner);
        let packed = record::<LstmNode, B, C, 7>([x, h0, c0, w_ih, w_hh, b_ih, b_hh].map(Some), |tracked| {
            if tracked.is_none() {
                return (Floats::new(B::lstm(LstmCall(args))), None);
            }
            let (packed, saved) = B::lstm_with_saved(args.clone());
            (packed.clone(), Some(Kept { args, packed, saved }))
        });
        packed.into_primitive()
    }
}

#[derive(Debug)]
struct LstmNode;

/// All that the backward pass reads.
#[derive(Clone, Debug)]
struct Kept<B: Backend> {
    args: LstmArgs<Floats<B>>,
    packed: Floats<B>,
    saved: LstmSaved<Floats<B>>,
}

impl<B: LstmKernels> Node<B, 7> for LstmNode {
    type State = Kept<B>;

    fn backward(kept: Kept<B>, upstream: Floats<B>, wanted: [bool; 7]) -> [Option<Floats<B>>; 7] {
        let Kept { args, packed, saved } = kept;
        let [x, h0, c0, w_ih, w_hh, b_ih, b_hh] = wanted;
        let wanted = LstmWanted { x, h0, c0, w_ih, w_hh, bias: b_ih || b_hh };
        let LstmGrads { x, h0, c0, w_ih, w_hh, bias } =
            B::lstm_backward(args, packed, saved, upstream, wanted);
        [x, h0, c0, w_ih, w_hh, bias.clone(), bias]
    }
}

/// For autodiff on top of autodiff: the formulas, differentiable by composition.
impl<B: Rounding, C: CheckpointStrategy> LstmKernels for Autodiff<B, C> {
    fn lstm_with_saved(args: LstmArgs<Floats<Self>>) -> (Floats<Self>, LstmSaved<Floats<Self>>) {
        portable::forward_with_saved(args)
    }

    fn lstm_backward(
        args: LstmArgs<Floats<Self>>,
        packed: Floats<Self>,
        saved: LstmSaved<Floats<Self>>,
        grad: Floats<Self>,
        wanted: LstmWanted,
    ) -> LstmGrads<Floats<Self>> {
        portable::backward(args, packed, saved, grad, wanted)
    }
}
