//! NdArray takes the portable bodies.

// Burn has deprecated the backend; the feature stays for as long as Burn has it.
#![allow(deprecated)]

use burn::backend::NdArray;

use crate::likelihood::{LikelihoodKernels, OutputOps};
use crate::ops::Kernels;

impl OutputOps for NdArray {}

impl Kernels for NdArray {}

impl LikelihoodKernels for NdArray {}
