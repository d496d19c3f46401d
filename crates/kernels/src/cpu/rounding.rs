//! Rounding to fewer digits on Flex, straight on the memory.

use burn::backend::Flex;
use burn::tensor::DType;
use burn_flex::FlexTensor;
use rayon::prelude::*;

use super::{Buffer, Real};
use crate::rounding::{Number, Rounding};
use crate::tensor::Floats;

/// Numbers that a thread takes at a time, some ten microseconds' work; fewer wake no other thread.
const BLOCK: usize = 1 << 15;

impl Rounding for Flex {
    fn nearest(x: Floats<Self>, digits: u32) -> Floats<Self> {
        let tensor = x.into_primitive();
        Floats::new(match tensor.dtype() {
            DType::F64 => nearest::<f64>(tensor, digits),
            _ => nearest::<f32>(tensor, digits),
        })
    }
}

/// The result keeps the layout, so a transpose stays one. Memory that nobody else reads is written over.
fn nearest<T: Real + Number>(mut tensor: FlexTensor, digits: u32) -> FlexTensor {
    let elements = tensor.layout().num_elements();
    // A part of a larger tensor leaves the rest of its memory alone.
    if tensor.storage::<T>().len() > elements {
        tensor = match tensor.as_slice::<T>() {
            Some(part) => {
                let shape = tensor.layout().shape().clone();
                return copied(part, digits).into_tensor([elements]).reshape(shape);
            }
            None => tensor.to_contiguous(),
        };
    }
    if let Some(values) = tensor.try_storage_mut::<T>() {
        let work = |block: &mut [T]| block.iter_mut().for_each(|x| *x = x.nearest(digits));
        match values.len() > BLOCK {
            true => values.par_chunks_mut(BLOCK).for_each(work),
            false => work(values),
        }
        return tensor;
    }
    let values = copied(tensor.storage::<T>(), digits);
    let stored = values.len();
    values.into_tensor([stored]).with_layout(tensor.layout().clone())
}

fn copied<T: Real + Number>(values: &[T], digits: u32) -> Buffer<T> {
    let mut out = Buffer::new(values.len());
    let work = |(out, values): (&mut [T], &[T])| {
        out.iter_mut().zip(values).for_each(|(out, x)| *out = x.nearest(digits));
    };
    match values.len() > BLOCK {
        true => out.par_chunks_mut(BLOCK).zip(values.par_chunks(BLOCK)).for_each(work),
        false => work((&mut out, values)),
    }
    out
}
