//! An operation of a backend as one node in the stream of Burn's fusion over it.
//!
//! Fusion records operations and runs them later, so its tensors have no memory to launch a kernel on. An operation put
//! into the stream by [`operation`] gets the tensors of the backend below when its turn comes.
//!
//! The arguments of a call travel as they are, with a slot in the place of each tensor: [`Inputs`] takes a tensor and gives
//! its slot, [`Taken`] takes a slot and gives the tensor of the backend below.

pub use burn_fusion::{Fusion, FusionBackend};

use std::cell::RefCell;
use std::fmt;

use burn::backend::ExecutionError;
use burn::tensor::{DType, Shape};
use burn_fusion::custom::{CustomOpIr, HandleContainer, Operation, OperationIr, StreamId, TensorIr};
use burn_fusion::{FusionRuntime, FusionTensor};

use crate::tensor::{Floats, Ints};

/// The place of a tensor among the inputs of an operation.
#[derive(Clone, Copy, Debug)]
pub struct Slot(usize);

/// The tensors that an operation reads.
pub struct Inputs<B: FusionBackend>(RefCell<Vec<FusionTensor<B::FusionRuntime>>>);

impl<B: FusionBackend> Default for Inputs<B> {
    fn default() -> Self {
        Self(RefCell::default())
    }
}

impl<B: FusionBackend> Inputs<B> {
    /// Adds a tensor of floats.
    pub fn float(&self, tensor: Floats<Fusion<B>>) -> Slot {
        self.add(tensor.into_primitive())
    }

    /// Adds a tensor of integers.
    pub fn int(&self, tensor: Ints<Fusion<B>>) -> Slot {
        self.add(tensor.into_primitive())
    }

    fn add(&self, tensor: FusionTensor<B::FusionRuntime>) -> Slot {
        let mut all = self.0.borrow_mut();
        all.push(tensor);
        Slot(all.len() - 1)
    }
}

/// The same tensors on the backend below, when the operation runs.
pub struct Taken<B: FusionBackend>(RefCell<Vec<Option<Input<B>>>>);

enum Input<B: FusionBackend> {
    Float(Floats<B>),
    Int(Ints<B>),
}

impl<B: FusionBackend> Taken<B> {
    /// The tensor of floats that was given this slot.
    ///
    /// # Panics
    /// If it was taken before: an operation gives up its inputs, so that the memory of one that nothing else needs is free
    /// for its results. If it is a tensor of integers.
    pub fn float(&self, Slot(slot): Slot) -> Floats<B> {
        match self.0.borrow_mut()[slot].take() {
            Some(Input::Float(tensor)) => tensor,
            _ => panic!("input {slot} of an operation is not there as floats"),
        }
    }

    /// The tensor of integers that was given this slot.
    ///
    /// # Panics
    /// If it was taken before, or is a tensor of floats.
    pub fn int(&self, Slot(slot): Slot) -> Ints<B> {
        match self.0.borrow_mut()[slot].take() {
            Some(Input::Int(tensor)) => tensor,
            _ => panic!("input {slot} of an operation is not there as integers"),
        }
    }
}

/// Puts `run` into the stream of the calling thread; the tensors that it will give, of the announced shapes and types.
///
/// # Panics
/// Without inputs; when its turn comes, if `run` gives another number of tensors than announced.
pub fn operation<B, F>(
    name: &'static str,
    inputs: Inputs<B>,
    outputs: &[(Shape, DType)],
    run: F,
) -> Vec<Floats<Fusion<B>>>
where
    B: FusionBackend,
    F: Fn(&Taken<B>) -> Vec<Floats<B>> + Send + Sync + 'static,
{
    let inputs = inputs.0.into_inner();
    let client = inputs.first().expect("an operation has inputs").client.clone();
    let inputs: Vec<TensorIr> = inputs.into_iter().map(FusionTensor::into_ir).collect();
    let outputs: Vec<TensorIr> = outputs
        .iter()
        .map(|(shape, dtype)| TensorIr::uninit(client.create_empty_handle(), shape.clone(), *dtype))
        .collect();
    let node = CustomOpIr::new(name, &inputs, &outputs);
    let operation = Node::<B, F> { node: node.clone(), run, backend: std::marker::PhantomData };
    let made = client.register(StreamId::current(), OperationIr::Custom(node), operation);
    made.into_iter().map(Floats::new).collect()
}

struct Node<B, F> {
    node: CustomOpIr,
    run: F,
    backend: std::marker::PhantomData<B>,
}

impl<B, F> fmt::Debug for Node<B, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Node").field(&self.node).finish()
    }
}

type Handles<B> = HandleContainer<<<B as FusionBackend>::FusionRuntime as FusionRuntime>::FusionHandle>;

impl<B, F> Operation<B::FusionRuntime> for Node<B, F>
where
    B: FusionBackend,
    F: Fn(&Taken<B>) -> Vec<Floats<B>> + Send + Sync,
{
    fn execute(&self, handles: &mut Handles<B>) -> Result<(), ExecutionError> {
        // All inputs, in their order: a tensor that comes twice is given up the second time.
        let inputs = self.node.inputs.iter().map(|input| match input.dtype.is_float() {
            true => Some(Input::Float(Floats::new(handles.get_float_tensor::<B>(input)))),
            false => Some(Input::Int(Ints::new(handles.get_int_tensor::<B>(input)))),
        });
        let made = (self.run)(&Taken(RefCell::new(inputs.collect())));
        assert_eq!(made.len(), self.node.outputs.len(), "{}: number of results", self.node.id);
        for (output, tensor) in self.node.outputs.iter().zip(made) {
            handles.register_float_tensor::<B>(&output.id, tensor.into_primitive());
        }
        Ok(())
    }
}

#[cfg(all(test, any(feature = "wgpu", feature = "cuda")))]
mod tests {
    use super::*;
    use crate::gpu::testing::{Fused, Plain, integers, spread, values};

    #[test]
    fn an_operation_gets_its_inputs_by_their_slots() {
        let (x, y) = (spread::<Fused, 2>([3, 2], 1), spread::<Fused, 2>([3, 2], 2));
        let inputs = Inputs::<Plain>::default();
        // One tensor twice, and last where nothing else needs it any more.
        let slots = [inputs.float(x.clone()), inputs.float(y.clone()), inputs.float(x.clone())];
        let rows = inputs.int(integers(&[2, 0]));
        let run = move |taken: &Taken<Plain>| {
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
}
