//! Lengths of slices and tensors.

use std::mem;

use burn_flex::FlexTensor;

/// Takes the first values, or as many as there are.
pub(super) fn take<'a, X>(slice: &mut &'a mut [X], count: usize) -> &'a mut [X] {
    let count = count.min(slice.len());
    let (taken, rest) = mem::take(slice).split_at_mut(count);
    *slice = rest;
    taken
}

/// # Panics
/// If a tensor has more values than the others ask for, or less.
pub(super) fn assert_length(name: &str, tensor: Option<&FlexTensor>, expected: usize) {
    let Some(tensor) = tensor else { return };
    let shape = tensor.layout().shape().clone();
    assert_eq!(shape.num_elements(), expected, "likelihood: values of {name}, of shape {shape:?}");
}
