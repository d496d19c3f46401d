//! The NdArray backend runs the portable formulas.

// Burn has deprecated the backend; the feature stays for as long as Burn has it.
#![allow(deprecated)]

use burn::backend::NdArray;
use burn::backend::tensor::FloatTensor;

use crate::lstm::kernels::LstmKernels;
use crate::lstm::ops::{LstmCall, LstmOps};
use crate::lstm::portable;

impl LstmOps for NdArray {
    fn lstm(LstmCall(args): LstmCall<Self>) -> FloatTensor<Self> {
        portable::forward(args).into_primitive()
    }
}

impl LstmKernels for NdArray {}
