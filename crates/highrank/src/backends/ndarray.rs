//! NdArray takes the portable bodies.

// Burn has deprecated the backend; the feature stays for as long as Burn has it.
#![allow(deprecated)]

use burn::backend::NdArray;

use crate::likelihood::LikelihoodKernels;
use crate::ops::Kernels;

dispatch_to_kernels!(NdArray);

impl Kernels for NdArray {}

impl LikelihoodKernels for NdArray {}
