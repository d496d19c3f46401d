//! The LSTM as one operation of Burn's fusion in each direction, run on the backend below.

use burn::backend::tensor::FloatTensor;
use burn::tensor::{DType, Shape};
use highrank_kernels::Floats;
use highrank_kernels::gpu::fused::{Fusion, FusionBackend, Inputs, Taken, operation};

use crate::lstm::kernels::LstmKernels;
use crate::lstm::ops::{LstmArgs, LstmCall, LstmGrads, LstmOps, LstmSaved, LstmWanted};

impl<B: FusionBackend + LstmOps> LstmOps for Fusion<B> {
    fn lstm(LstmCall(args): LstmCall<Self>) -> FloatTensor<Self> {
        let [packed, ..] = shapes(&args);
        let inputs = Inputs::<B>::default();
        let args = args.map(|tensor| inputs.float(tensor));
        let run =
            move |taken: &Taken<B>| vec![Floats::new(B::lstm(LstmCall(args.map(|slot| taken.float(slot)))))];
        operation("awd_lstm_forward", inputs, &[packed], run).remove(0).into_primitive()
    }
}

impl<B: FusionBackend + LstmKernels> LstmKernels for Fusion<B> {
    fn lstm_with_saved(args: LstmArgs<Floats<Self>>) -> (Floats<Self>, LstmSaved<Floats<Self>>) {
        let outputs = shapes(&args);
        let inputs = Inputs::<B>::default();
        let args = args.map(|tensor| inputs.float(tensor));
        let run = move |taken: &Taken<B>| {
            let (packed, LstmSaved { gates, cells, recurrent }) =
                B::lstm_with_saved(args.map(|slot| taken.float(slot)));
            vec![packed, gates, cells, recurrent]
        };
        let made = operation("awd_lstm_forward_with_saved", inputs, &outputs, run);
        let [packed, gates, cells, recurrent] = made.try_into().expect("as many tensors as announced");
        (packed, LstmSaved { gates, cells, recurrent })
    }

    fn lstm_backward(
        args: LstmArgs<Floats<Self>>,
        packed: Floats<Self>,
        saved: LstmSaved<Floats<Self>>,
        grad: Floats<Self>,
        wanted: LstmWanted,
    ) -> LstmGrads<Floats<Self>> {
        let of = |tensor: &Floats<Self>, wanted: bool| wanted.then(|| (tensor.shape(), tensor.dtype()));
        let shapes = [
            of(&args.x, wanted.x),
            of(&args.h0, wanted.h0),
            of(&args.c0, wanted.c0),
            of(&args.w_ih, wanted.w_ih),
            of(&args.w_hh, wanted.w_hh),
            of(&args.b_ih, wanted.bias),
        ];
        let outputs: Vec<(Shape, DType)> = shapes.iter().flatten().cloned().collect();
        let inputs = Inputs::<B>::default();
        let args = args.map(|tensor| inputs.float(tensor));
        let saved = saved.map(|tensor| inputs.float(tensor));
        let [packed, grad] = [packed, grad].map(|tensor| inputs.float(tensor));
        let run = move |taken: &Taken<B>| {
            let args = args.map(|slot| taken.float(slot));
            let saved = saved.map(|slot| taken.float(slot));
            let packed = taken.float(packed);
            let LstmGrads { x, h0, c0, w_ih, w_hh, bias } =
                B::lstm_backward(args, packed, saved, taken.float(grad), wanted);
            [x, h0, c0, w_ih, w_hh, bias].into_iter().flatten().collect()
        };
        let mut made = operation("awd_lstm_backward", inputs, &outputs, run).into_iter();
        let [x, h0, c0, w_ih, w_hh, bias] = shapes.map(|shape| shape.and_then(|_| made.next()));
        LstmGrads { x, h0, c0, w_ih, w_hh, bias }
    }
}

/// Shapes of the packed result, the gates, the cells and the recurrent weights.
fn shapes<B: FusionBackend>(args: &LstmArgs<Floats<Fusion<B>>>) -> [(Shape, DType); 4] {
    let dtype = args.x.dtype();
    let [steps, batch, _] = args.x.dims();
    let [rows, units] = args.w_hh.dims();
    [
        (Shape::new([steps + 1, batch, units]), dtype),
        (Shape::new([steps, batch, rows]), dtype),
        (Shape::new([steps, batch, units]), dtype),
        (Shape::new([rows, units]), dtype),
    ]
}
