//! The backends that run the portable bodies of the LSTM operation, one `impl` each.

#[cfg(feature = "ndarray")]
mod ndarray {
    use burn::backend::NdArray;
    use burn::backend::ndarray::{
        FloatNdArrayElement, IntNdArrayElement, NdArrayTensor, QuantElement, SharedArray,
    };

    use crate::lstm::LstmBackend;

    impl<E, I, Q> LstmBackend for NdArray<E, I, Q>
    where
        E: FloatNdArrayElement,
        I: IntNdArrayElement,
        Q: QuantElement,
        NdArrayTensor: From<SharedArray<E>> + From<SharedArray<I>>,
    {
    }
}

#[cfg(any(feature = "wgpu", feature = "cuda"))]
mod cube {
    use burn_cubecl::{BoolElement, CubeBackend, CubeRuntime, FloatElement, IntElement};
    use burn_fusion::{Fusion, FusionBackend};

    use crate::lstm::LstmBackend;

    impl<R, F, I, BT> LstmBackend for CubeBackend<R, F, I, BT>
    where
        R: CubeRuntime,
        F: FloatElement,
        I: IntElement,
        BT: BoolElement,
    {
    }

    impl<B: FusionBackend + LstmBackend> LstmBackend for Fusion<B> {}
}
