//! An operation of a backend as one node in the stream of Burn's fusion over it.
//!
//! Fusion records operations and runs them later, so its tensors have no memory to launch a kernel on. An operation put
//! into the stream by [`operation`] gets the tensors of the backend below when its turn comes.

use std::fmt;

use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, Int, Shape, Tensor, TensorPrimitive};
use burn_fusion::stream::{Operation, OperationStreams};
use burn_fusion::{Fusion, FusionBackend, FusionTensor};
use burn_ir::{CustomOpIr, HandleContainer, OperationIr, TensorIr};

/// The tensors that an operation reads, in the order in which it takes them.
pub struct Inputs<B: FusionBackend>(Vec<FusionTensor<B::FusionRuntime>>);

impl<B: FusionBackend> Inputs<B> {
    /// None yet.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self(vec![])
    }

    /// The next one, of floats.
    pub fn float<const D: usize>(&mut self, tensor: Tensor<Fusion<B>, D>) {
        self.0.push(tensor.into_primitive().tensor());
    }

    /// The next one, of floats, as a primitive.
    pub fn primitive(&mut self, tensor: FloatTensor<Fusion<B>>) {
        self.0.push(tensor);
    }

    /// The next one, of integers.
    pub fn int<const D: usize>(&mut self, tensor: Tensor<Fusion<B>, D, Int>) {
        self.0.push(tensor.into_primitive());
    }
}

/// The same tensors on the backend below, when the operation runs.
pub struct Taken<'a, B: FusionBackend> {
    handles: &'a mut HandleContainer<B::Handle>,
    inputs: std::slice::Iter<'a, TensorIr>,
}

impl<B: FusionBackend> Taken<'_, B> {
    /// The next one, of floats.
    pub fn float<const D: usize>(&mut self) -> Tensor<B, D> {
        Tensor::from_primitive(TensorPrimitive::Float(self.primitive()))
    }

    /// The next one, of floats, as a primitive.
    pub fn primitive(&mut self) -> FloatTensor<B> {
        let input = self.inputs.next().expect("an operation takes the inputs that it was given");
        self.handles.get_float_tensor::<B>(input)
    }

    /// The next one, of integers.
    pub fn int<const D: usize>(&mut self) -> Tensor<B, D, Int> {
        let input = self.inputs.next().expect("an operation takes the inputs that it was given");
        Tensor::from_primitive(self.handles.get_int_tensor::<B>(input))
    }
}

/// Puts `run` into the stream of the inputs; the tensors that it will give, of the announced shapes.
///
/// # Panics
/// Without inputs; when its turn comes, if `run` gives another number of tensors than announced.
pub fn operation<B, F>(
    name: &'static str,
    inputs: Inputs<B>,
    outputs: &[(Shape, DType)],
    run: F,
) -> Vec<FloatTensor<Fusion<B>>>
where
    B: FusionBackend,
    F: Fn(&mut Taken<'_, B>) -> Vec<FloatTensor<B>> + Send + Sync + 'static,
{
    let Inputs(inputs) = inputs;
    let client = inputs.first().expect("an operation has inputs").client.clone();
    let streams = OperationStreams::with_inputs(&inputs);
    let inputs: Vec<TensorIr> = inputs.into_iter().map(FusionTensor::into_ir).collect();
    let outputs: Vec<TensorIr> = outputs
        .iter()
        .map(|(shape, dtype)| TensorIr::uninit(client.create_empty_handle(), shape.clone(), *dtype))
        .collect();
    let node = CustomOpIr::new(name, &inputs, &outputs);
    let operation = Node::<B, F> { node: node.clone(), run, backend: std::marker::PhantomData };
    client.register(streams, OperationIr::Custom(node), operation)
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

impl<B, F> Operation<B::FusionRuntime> for Node<B, F>
where
    B: FusionBackend,
    F: Fn(&mut Taken<'_, B>) -> Vec<FloatTensor<B>> + Send + Sync,
{
    fn execute(&self, handles: &mut HandleContainer<B::Handle>) {
        let made = (self.run)(&mut Taken { handles: &mut *handles, inputs: self.node.inputs.iter() });
        assert_eq!(made.len(), self.node.outputs.len(), "{}: number of results", self.node.id);
        for (output, tensor) in self.node.outputs.iter().zip(made) {
            handles.register_float_tensor::<B>(&output.id, tensor);
        }
    }
}
