//! NdArray takes the portable bodies.

// Burn has deprecated the backend; the feature stays for as long as Burn has it.
#![allow(deprecated)]

use burn::backend::NdArray;
use burn::backend::tensor::Device;

use super::dispatched::dispatch_to_kernels;
use super::portable_kernels::portable_kernels;
use crate::likelihood::default_memory_budget;
use crate::ops::Kernels;

dispatch_to_kernels!(NdArray);

impl Kernels for NdArray {
    portable_kernels!();

    fn memory_budget(decoder_bytes: usize, _device: &Device<Self>) -> usize {
        default_memory_budget(decoder_bytes)
    }
}
