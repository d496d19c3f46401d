//! The LSTM as one operation of Burn's fusion in each direction, run on the backend below.

use burn::tensor::TensorMetadata;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, Shape};
use burn_fusion::{Fusion, FusionBackend};
use highrank::Precision;
use highrank::gpu::fused::{Inputs, Taken, operation};

use crate::lstm::{LstmArgs, LstmBackend, LstmGrads, LstmSaved, LstmWanted};

impl<B: FusionBackend + LstmBackend> LstmBackend for Fusion<B> {
    fn lstm(args: LstmArgs<Self>) -> FloatTensor<Self> {
        let [packed, ..] = shapes(&args);
        let (masked, precision) = (args.hh_mask.is_some(), args.precision);
        let run = move |taken: &mut Taken<'_, B>| vec![B::lstm(rebuild(masked, precision, taken))];
        operation("awd_lstm_forward", gather(args), &[packed], run).remove(0)
    }

    fn lstm_with_saved(args: LstmArgs<Self>) -> (FloatTensor<Self>, LstmSaved<Self>) {
        let shapes = shapes(&args);
        let (masked, precision) = (args.hh_mask.is_some(), args.precision);
        let run = move |taken: &mut Taken<'_, B>| {
            let (packed, LstmSaved { gates, cells, recurrent }) =
                B::lstm_with_saved(rebuild(masked, precision, taken));
            vec![packed, gates, cells, recurrent]
        };
        let made = operation("awd_lstm_forward_with_saved", gather(args), &shapes, run);
        let [packed, gates, cells, recurrent] = made.try_into().expect("as many tensors as announced");
        (packed, LstmSaved { gates, cells, recurrent })
    }

    fn lstm_backward(
        args: LstmArgs<Self>,
        packed: FloatTensor<Self>,
        saved: LstmSaved<Self>,
        grad: FloatTensor<Self>,
        wanted: LstmWanted,
    ) -> LstmGrads<Self> {
        let of = |tensor: &FloatTensor<Self>, wanted: bool| wanted.then(|| (tensor.shape(), tensor.dtype()));
        let shapes = [
            of(&args.x, wanted.x),
            of(&args.h0, wanted.h0),
            of(&args.c0, wanted.c0),
            of(&args.w_ih, wanted.w_ih),
            of(&args.w_hh, wanted.w_hh),
            of(&args.b_ih, wanted.bias),
        ];
        let outputs: Vec<(Shape, DType)> = shapes.iter().flatten().cloned().collect();
        let (masked, precision) = (args.hh_mask.is_some(), args.precision);
        let mut inputs = gather(args);
        [packed, saved.gates, saved.cells, saved.recurrent, grad]
            .into_iter()
            .for_each(|tensor| inputs.primitive(tensor));
        let run = move |taken: &mut Taken<'_, B>| {
            let args = rebuild(masked, precision, taken);
            let packed = taken.primitive();
            let saved = LstmSaved {
                gates: taken.primitive(),
                cells: taken.primitive(),
                recurrent: taken.primitive(),
            };
            let LstmGrads { x, h0, c0, w_ih, w_hh, bias } =
                B::lstm_backward(args, packed, saved, taken.primitive(), wanted);
            [x, h0, c0, w_ih, w_hh, bias].into_iter().flatten().collect()
        };
        let mut made = operation("awd_lstm_backward", inputs, &outputs, run).into_iter();
        let [x, h0, c0, w_ih, w_hh, bias] = shapes.map(|shape| shape.and_then(|_| made.next()));
        LstmGrads { x, h0, c0, w_ih, w_hh, bias }
    }
}

/// Shapes of the packed result, the gates, the cells and the recurrent weights.
fn shapes<B: FusionBackend>(args: &LstmArgs<Fusion<B>>) -> [(Shape, DType); 4] {
    let dtype = args.x.dtype();
    let [steps, batch, _] = args.x.shape().dims();
    let [rows, units] = args.w_hh.shape().dims();
    [
        (Shape::new([steps + 1, batch, units]), dtype),
        (Shape::new([steps, batch, rows]), dtype),
        (Shape::new([steps, batch, units]), dtype),
        (Shape::new([rows, units]), dtype),
    ]
}

/// The arguments in the order in which [`rebuild`] takes them.
fn gather<B: FusionBackend>(args: LstmArgs<Fusion<B>>) -> Inputs<B> {
    let LstmArgs { x, h0, c0, w_ih, w_hh, b_ih, b_hh, hh_mask, precision: _ } = args;
    let mut inputs = Inputs::new();
    [x, h0, c0, w_ih, w_hh, b_ih, b_hh]
        .into_iter()
        .chain(hh_mask)
        .for_each(|tensor| inputs.primitive(tensor));
    inputs
}

fn rebuild<B: FusionBackend>(masked: bool, precision: Precision, taken: &mut Taken<'_, B>) -> LstmArgs<B> {
    LstmArgs {
        x: taken.primitive(),
        h0: taken.primitive(),
        c0: taken.primitive(),
        w_ih: taken.primitive(),
        w_hh: taken.primitive(),
        b_ih: taken.primitive(),
        b_hh: taken.primitive(),
        hh_mask: masked.then(|| taken.primitive()),
        precision,
    }
}
