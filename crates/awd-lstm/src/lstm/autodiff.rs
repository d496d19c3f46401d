//! The backward pass of the LSTM operation as one node of the autodiff graph, over any inner backend.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::tensor::DType;
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::ops::FloatTensor;

use super::{LstmArgs, LstmBackend, LstmSaved, LstmWanted};

#[derive(Debug)]
struct LstmOp;

/// All that the backward pass reads. The tensors are shared with the graph, not copied.
#[derive(Clone, Debug)]
struct LstmNode<B: LstmBackend> {
    args: LstmArgs<B>,
    packed: FloatTensor<B>,
    saved: LstmSaved<B>,
}

impl<B: LstmBackend> Backward<B, 7> for LstmOp {
    type State = LstmNode<B>;

    fn backward(self, ops: Ops<Self::State, 7>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let grad = grads.consume::<B>(&ops.node);
        let LstmNode { args, packed, saved } = ops.state;
        let [x, h0, c0, w_ih, w_hh, b_ih, b_hh] = ops.parents;
        let wanted = LstmWanted {
            x: x.is_some(),
            h0: h0.is_some(),
            c0: c0.is_some(),
            w_ih: w_ih.is_some(),
            w_hh: w_hh.is_some(),
            bias: b_ih.is_some() || b_hh.is_some(),
        };
        let made = B::lstm_backward(args, packed, saved, grad, wanted);
        let pairs = [
            (x, made.x),
            (h0, made.h0),
            (c0, made.c0),
            (w_ih, made.w_ih),
            (w_hh, made.w_hh),
            (b_ih, made.bias.clone()),
            (b_hh, made.bias),
        ];
        for (parent, gradient) in pairs {
            if let (Some(node), Some(gradient)) = (parent, gradient) {
                grads.register::<B>(node.id, gradient);
            }
        }
    }
}

impl<B: LstmBackend, C: CheckpointStrategy> LstmBackend for Autodiff<B, C> {
    fn lstm(args: LstmArgs<Self>) -> FloatTensor<Self> {
        let LstmArgs { x, h0, c0, w_ih, w_hh, b_ih, b_hh, hh_mask, precision } = args;
        let nodes = [
            x.node.clone(),
            h0.node.clone(),
            c0.node.clone(),
            w_ih.node.clone(),
            w_hh.node.clone(),
            b_ih.node.clone(),
            b_hh.node.clone(),
        ];
        let inner = LstmArgs {
            x: x.primitive,
            h0: h0.primitive,
            c0: c0.primitive,
            w_ih: w_ih.primitive,
            w_hh: w_hh.primitive,
            b_ih: b_ih.primitive,
            b_hh: b_hh.primitive,
            hh_mask: hh_mask.map(|mask| mask.primitive),
            precision,
        };
        match LstmOp.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let (packed, saved) = B::lstm_with_saved(inner.clone());
                prep.finish(LstmNode { args: inner, packed: packed.clone(), saved }, packed)
            }
            OpsKind::UnTracked(prep) => prep.finish(B::lstm(inner)),
        }
    }

    fn drop_connect_mask(
        shape: [usize; 2],
        p: f64,
        device: &Self::Device,
        dtype: DType,
    ) -> FloatTensor<Self> {
        Self::from_inner(B::drop_connect_mask(shape, p, device, dtype))
    }
}
