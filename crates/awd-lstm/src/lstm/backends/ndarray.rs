//! The NdArray backend runs the portable formulas.

// Burn has deprecated the backend; the feature stays for as long as Burn has it.
#![allow(deprecated)]

use burn::backend::NdArray;
use burn::backend::tensor::FloatTensor;
use highrank_kernels::Floats;

use crate::lstm::ops::{LstmArgs, LstmCall, LstmGrads, LstmKernels, LstmOps, LstmSaved, LstmWanted};
use crate::lstm::portable;

impl LstmOps for NdArray {
    fn lstm(LstmCall(args): LstmCall<Self>) -> FloatTensor<Self> {
        portable::forward(args).into_primitive()
    }
}

impl LstmKernels for NdArray {
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
