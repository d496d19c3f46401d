//! Large buffers whose memory outlives them: fresh memory costs a page fault every four kilobytes, which is a quarter of
//! the time of an LSTM layer.
//!
//! A [`Buffer`] that is dropped, or a tensor made of one, leaves its memory to the next buffer of its size.

use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use burn::tensor::{Bytes, TensorData};
use burn_flex::FlexTensor;
use burn_std::{AccessError, AccessPolicy, AllocationController, AllocationProperty};
use bytemuck::{Pod, Zeroable};

use super::Real;

/// The unit of allocation: a cache line, so that every buffer begins on one.
#[repr(C, align(64))]
#[derive(Debug, Clone, Copy)]
struct Line([u64; 8]);

// SAFETY: eight u64 without padding, for which all bits are valid.
unsafe impl Zeroable for Line {}
// SAFETY: as above.
unsafe impl Pod for Line {}

/// Smaller memory is left to the allocator, which keeps it by itself.
const SMALLEST: usize = (32 << 10) / size_of::<Line>();

/// Requests after which idle memory is given back: a training step makes some sixty.
const PATIENCE: u64 = 256;

/// Memory that nobody uses at the moment.
static POOL: Mutex<Pool> = Mutex::new(Pool { idle: Vec::new(), requests: 0 });

struct Pool {
    /// With the number of the request after which it was left.
    idle: Vec<(u64, Vec<Line>)>,
    requests: u64,
}

fn pool() -> MutexGuard<'static, Pool> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// The smallest idle memory of `lines` to twice as many lines.
    fn take(&mut self, lines: usize) -> Option<Vec<Line>> {
        self.requests += 1;
        let oldest = self.requests.saturating_sub(PATIENCE);
        self.idle.retain(|(left, _)| *left >= oldest);
        let fitting = |memory: &Vec<Line>| (lines..=2 * lines).contains(&memory.len());
        let candidates = self.idle.iter().enumerate().filter(|(_, (_, memory))| fitting(memory));
        let (index, _) = candidates.min_by_key(|(_, (_, memory))| memory.len())?;
        Some(self.idle.swap_remove(index).1)
    }
}

/// Memory that goes back to the pool.
#[derive(Debug)]
struct Memory(Vec<Line>);

impl Memory {
    fn new(bytes: usize) -> Self {
        let lines = bytes.div_ceil(size_of::<Line>());
        let reused = if lines < SMALLEST { None } else { pool().take(lines) };
        Self(reused.unwrap_or_else(|| vec![Line::zeroed(); lines]))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.0.len() >= SMALLEST {
            let mut pool = pool();
            let left = pool.requests;
            pool.idle.push((left, std::mem::take(&mut self.0)));
        }
    }
}

/// Values that a kernel works with or gives away as a tensor; read and written as a slice.
#[derive(Debug)]
pub struct Buffer<T> {
    memory: Memory,
    len: usize,
    values: PhantomData<T>,
}

impl<T: Real> Buffer<T> {
    /// `len` values, whatever they are from earlier use.
    pub fn new(len: usize) -> Self {
        Self { memory: Memory::new(len * size_of::<T>()), len, values: PhantomData }
    }

    /// `len` zeros.
    pub fn zeros(len: usize) -> Self {
        let mut buffer = Self::new(len);
        buffer.fill(T::ZERO);
        buffer
    }

    /// A copy of `values`.
    pub fn of(values: &[T]) -> Self {
        let mut buffer = Self::new(values.len());
        buffer.copy_from_slice(values);
        buffer
    }

    /// The tensor of these values, row-major, in the same memory.
    ///
    /// # Panics
    /// If the shape has another number of elements.
    pub fn into_tensor<const D: usize>(self, shape: [usize; D]) -> FlexTensor {
        let elements: usize = shape.iter().product();
        assert_eq!(self.len, elements, "buffer: {} values do not make the shape {shape:?}", self.len);
        let len = self.len * size_of::<T>();
        // SAFETY: all of the memory is initialized, and it holds at least `len` bytes.
        let bytes = unsafe { Bytes::from_controller(Box::new(self.memory), len) };
        FlexTensor::from_data(TensorData::from_bytes(bytes, shape, T::dtype()))
    }
}

impl<T: Real> Deref for Buffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &bytemuck::cast_slice(&self.memory.0)[..self.len]
    }
}

impl<T: Real> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut bytemuck::cast_slice_mut(&mut self.memory.0)[..self.len]
    }
}

impl AllocationController for Memory {
    fn alloc_align(&self) -> usize {
        align_of::<Line>()
    }

    fn property(&self) -> AllocationProperty {
        AllocationProperty::Other
    }

    unsafe fn memory_mut(&mut self, _: AccessPolicy) -> Result<&mut [MaybeUninit<u8>], AccessError> {
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut self.0);
        // SAFETY: the same bytes; the caller writes initialized data only.
        Ok(unsafe { core::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), bytes.len()) })
    }

    fn memory(&self, _: AccessPolicy) -> Result<&[MaybeUninit<u8>], AccessError> {
        let bytes: &[u8] = bytemuck::cast_slice(&self.0);
        // SAFETY: the same bytes, initialized.
        Ok(unsafe { core::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_in_use_are_distinct_and_hold_what_they_were_made_for() {
        let (mut a, mut b) = (Buffer::<f32>::new(10_001), Buffer::<f64>::new(7_777));
        a.fill(1.0);
        b.fill(2.0);
        assert!((a.len(), b.len()) == (10_001, 7_777));
        assert!(a.iter().all(|x| *x == 1.0) && b.iter().all(|x| *x == 2.0));
        assert!(Buffer::<f32>::zeros(10_001).iter().all(|x| *x == 0.0));
        assert_eq!((a.as_ptr() as usize % 64, b.as_ptr() as usize % 64), (0, 0));
    }

    #[test]
    fn a_tensor_keeps_the_memory_and_leaves_it_to_the_next_buffer() {
        // A size that no other test asks for.
        const LEN: usize = 3_333_333;
        let mut buffer = Buffer::<f32>::new(LEN);
        buffer.iter_mut().enumerate().for_each(|(i, x)| *x = (i % 1000) as f32);
        let place = buffer.as_ptr();
        let tensor = buffer.into_tensor([LEN / 3, 3]);
        assert_eq!(tensor.as_slice::<f32>().unwrap().as_ptr(), place);
        let copy = tensor.clone().into_data().try_to_vec::<f32>().unwrap();
        drop(tensor);
        assert!(copy.iter().enumerate().all(|(i, x)| *x == (i % 1000) as f32));
        assert_eq!(Buffer::<f64>::new(LEN / 2).as_ptr().cast(), place);
    }

    #[test]
    fn a_shared_tensor_is_copied_when_written() {
        let tensor = Buffer::of(&[1f32; 9_000]).into_tensor([9_000]);
        let mut other = tensor.clone();
        other.storage_mut::<f32>().fill(2.0);
        assert!(tensor.as_slice::<f32>().unwrap().iter().all(|x| *x == 1.0));
        assert!(other.as_slice::<f32>().unwrap().iter().all(|x| *x == 2.0));
    }

    #[test]
    fn idle_memory_is_given_back_in_time() {
        let mut pool = Pool { idle: vec![(0, vec![Line::zeroed(); 10])], requests: 0 };
        assert!(pool.take(11).is_none() && pool.take(4).is_none());
        (0..PATIENCE).for_each(|_| assert!(pool.take(100).is_none()));
        assert!(pool.idle.is_empty());
    }
}
