//! The backends that run the portable bodies of an operation, one `impl` each.

#[cfg(feature = "ndarray")]
mod ndarray {
    use burn::backend::NdArray;
    use burn::backend::ndarray::{
        FloatNdArrayElement, IntNdArrayElement, NdArrayTensor, QuantElement, SharedArray,
    };

    use crate::lstm::LstmBackend;
    use crate::optim::UpdateBackend;

    impl<E, I, Q> LstmBackend for NdArray<E, I, Q>
    where
        E: FloatNdArrayElement,
        I: IntNdArrayElement,
        Q: QuantElement,
        NdArrayTensor: From<SharedArray<E>> + From<SharedArray<I>>,
    {
    }

    impl<E, I, Q> UpdateBackend for NdArray<E, I, Q>
    where
        E: FloatNdArrayElement,
        I: IntNdArrayElement,
        Q: QuantElement,
        NdArrayTensor: From<SharedArray<E>> + From<SharedArray<I>>,
    {
    }
}

/// Fusion makes one kernel of each update as it is.
#[cfg(feature = "gpu")]
mod cube {
    use burn_cubecl::{BoolElement, CubeBackend, CubeRuntime, FloatElement, IntElement};
    use burn_fusion::{Fusion, FusionBackend};

    use crate::optim::UpdateBackend;

    impl<R, F, I, BT> UpdateBackend for CubeBackend<R, F, I, BT>
    where
        R: CubeRuntime,
        F: FloatElement,
        I: IntElement,
        BT: BoolElement,
    {
    }

    impl<B: FusionBackend> UpdateBackend for Fusion<B> {}
}
