//! An operation of our own in the stream of fusion, on any adapter there is.

use burn::tensor::{DType, Shape};

use super::fused::{Inputs, Taken, operation};
use super::testing::{Fused, Plain, integers, spread, values};

#[test]
fn an_operation_gets_its_inputs_by_their_slots() {
    let (x, y) = (spread::<Fused, 2>([3, 2], 1), spread::<Fused, 2>([3, 2], 2));
    let mut inputs = Inputs::<Plain>::default();
    // One tensor twice, and last where nothing else needs it any more.
    let slots = [inputs.float(x.clone()), inputs.float(y.clone()), inputs.float(x.clone())];
    let rows = inputs.int(integers(&[2, 0]));
    let run = move |taken: &mut Taken<Plain>| {
        let [again, y, x] = [slots[2], slots[1], slots[0]].map(|slot| taken.float(slot));
        vec![(x + again) * y.clone(), y.select(0, taken.int(rows))]
    };
    let outputs = [(Shape::new([3, 2]), DType::F32), (Shape::new([2, 2]), DType::F32)];
    let made = operation("test", inputs, &outputs, run);
    let [product, selected] = made.try_into().expect("two results");
    let (x, y) = (values(x), values(y));
    let want: Vec<f32> = x.iter().zip(&y).map(|(x, y)| (x + x) * y).collect();
    assert_eq!(values(product), want);
    assert_eq!(values(selected), [y[4], y[5], y[0], y[1]]);
}
