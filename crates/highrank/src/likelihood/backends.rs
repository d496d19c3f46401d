//! The backends that run the portable bodies, one `impl` each.

#[allow(unused_imports)]
use super::LikelihoodBackend;

#[cfg(feature = "ndarray")]
mod ndarray {
    use super::LikelihoodBackend;
    use burn::backend::NdArray;
    use burn::backend::ndarray::{
        FloatNdArrayElement, IntNdArrayElement, NdArrayTensor, QuantElement, SharedArray,
    };

    impl<E, I, Q> LikelihoodBackend for NdArray<E, I, Q>
    where
        E: FloatNdArrayElement,
        I: IntNdArrayElement,
        Q: QuantElement,
        NdArrayTensor: From<SharedArray<E>> + From<SharedArray<I>>,
    {
        fn reads_are_free() -> bool {
            true
        }
    }
}
