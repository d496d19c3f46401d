//! Large buffers whose memory outlives them: fresh memory costs a page fault every four kilobytes, which is a quarter of
//! the time of an LSTM layer.
//!
//! A [`Buffer`] that is dropped, or a tensor made of one, leaves its memory to the next buffer of its size. All idle memory
//! is at most twice the size of what was in use at one time during the last few hundred requests. Memory that none of as many
//! requests has taken is freed, and [`clear`] frees all.

use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ops::{Deref, DerefMut};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use burn::tensor::{Bytes, Element, Shape, TensorData};
use burn_flex::FlexTensor;
use burn_std::{AccessError, AccessPolicy, AllocationController, AllocationProperty};
use bytemuck::{Pod, Zeroable};

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

static POOL: Mutex<Pool> = Mutex::new(Pool::new());

/// Memory that nobody uses at the moment. Sizes are in lines.
struct Pool {
    /// With the number of the request after which it was left; the longest idle first.
    idle: VecDeque<(u64, Vec<Line>)>,
    requests: u64,
    /// Size of all that is idle.
    kept: usize,
    /// Size of all that is in use.
    used: usize,
    /// The largest size in use at one time, among the current [`PATIENCE`] requests and among those before.
    peaks: [usize; 2],
}

fn pool() -> MutexGuard<'static, Pool> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    const fn new() -> Self {
        Self { idle: VecDeque::new(), requests: 0, kept: 0, used: 0, peaks: [0; 2] }
    }

    /// Lends the smallest idle memory of `lines` to twice as many lines, if there is any, otherwise counts as many new ones; and
    /// what is idle for too long.
    fn take(&mut self, lines: usize) -> (Option<Vec<Line>>, Vec<Vec<Line>>) {
        self.requests += 1;
        if self.requests.is_multiple_of(PATIENCE) {
            self.peaks = [self.used, self.peaks[0]];
        }
        let fitting = |memory: &Vec<Line>| (lines..=2 * lines).contains(&memory.len());
        let candidates = self.idle.iter().enumerate().filter(|(_, (_, memory))| fitting(memory));
        let best = candidates.min_by_key(|(_, (_, memory))| memory.len()).map(|(index, _)| index);
        let found = best.and_then(|index| self.idle.remove(index)).map(|(_, memory)| memory);
        self.kept -= found.as_ref().map_or(0, Vec::len);
        let idle = self.shrink();
        self.used += found.as_ref().map_or(lines, Vec::len);
        self.peaks[0] = self.peaks[0].max(self.used);
        (found, idle)
    }

    /// Keeps memory that is no longer in use; what is too much.
    fn keep(&mut self, memory: Vec<Line>) -> Vec<Vec<Line>> {
        self.used -= memory.len();
        self.kept += memory.len();
        self.idle.push_back((self.requests, memory));
        self.shrink()
    }

    /// All that is idle. What is in use now bounds what is kept next.
    fn clear(&mut self) -> VecDeque<(u64, Vec<Line>)> {
        self.kept = 0;
        self.peaks = [self.used; 2];
        std::mem::take(&mut self.idle)
    }

    /// Takes out what is idle for too long or too much, the longest idle first. It is freed where the pool is not locked.
    fn shrink(&mut self) -> Vec<Vec<Line>> {
        let oldest = self.requests.saturating_sub(PATIENCE);
        let most = 2 * self.peaks[0].max(self.peaks[1]);
        let mut out = vec![];
        while let Some((_, memory)) = self.idle.pop_front_if(|(left, _)| *left < oldest || self.kept > most) {
            self.kept -= memory.len();
            out.push(memory);
        }
        out
    }
}

/// Gives all idle memory back to the allocator, and says how many bytes that were.
///
/// Buffers in use, and tensors made of them, stay as they are; their memory is kept once they are dropped. For a program that
/// has done its computations and goes on with other work: idle memory ages by requests for memory, not by time.
pub fn clear() -> usize {
    let idle = pool().clear();
    idle.iter().map(|(_, memory)| size_of_val(memory.as_slice())).sum()
}

/// Memory that goes back to the pool.
#[derive(Debug)]
struct Memory(Vec<Line>);

impl Memory {
    fn new(bytes: usize) -> Self {
        let lines = bytes.div_ceil(size_of::<Line>());
        if lines < SMALLEST {
            return Self(vec![Line::zeroed(); lines]);
        }
        let (found, _idle) = pool().take(lines);
        Self(found.unwrap_or_else(|| vec![Line::zeroed(); lines]))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.0.len() >= SMALLEST {
            let memory = std::mem::take(&mut self.0);
            let _idle = pool().keep(memory);
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

impl<T: Element + Pod> Buffer<T> {
    /// `len` values with unspecified contents.
    pub fn new(len: usize) -> Self {
        Self { memory: Memory::new(len * size_of::<T>()), len, values: PhantomData }
    }

    /// `len` zeros.
    pub fn zeros(len: usize) -> Self {
        let mut buffer = Self::new(len);
        buffer.fill(T::zeroed());
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
    pub fn into_tensor(self, shape: impl Into<Shape>) -> FlexTensor {
        let shape = shape.into();
        let fits = self.len == shape.num_elements();
        assert!(fits, "buffer: {} values do not make the shape {:?}", self.len, shape.as_slice());
        let len = self.len * size_of::<T>();
        // SAFETY: all of the memory is initialized, and it holds at least `len` bytes.
        let bytes = unsafe { Bytes::from_controller(Box::new(self.memory), len) };
        FlexTensor::from_data(TensorData::from_bytes(bytes, shape, T::dtype()))
    }
}

impl<T: Pod> Deref for Buffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &bytemuck::cast_slice(&self.memory.0)[..self.len]
    }
}

impl<T: Pod> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut bytemuck::cast_slice_mut(&mut self.memory.0)[..self.len]
    }
}

impl AllocationController for Memory {
    /// What a copy of the memory needs: that of the numbers. It lies on cache lines, but copies may not ask for that much.
    fn alloc_align(&self) -> usize {
        align_of::<u128>()
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
        // A size that no other test asks for, and that Miri gets through.
        const LEN: usize = if cfg!(miri) { 33_333 } else { 3_333_333 };
        let mut buffer = Buffer::<f32>::new(LEN);
        buffer.iter_mut().enumerate().for_each(|(i, x)| *x = (i % 1000) as f32);
        let place = buffer.as_ptr();
        let tensor = buffer.into_tensor([LEN / 3, 3]);
        assert_eq!(tensor.as_slice::<f32>().unwrap().as_ptr(), place);
        let copy = tensor.clone().into_data().try_to_vec::<f32>().unwrap();
        drop(tensor);
        assert!(copy.iter().enumerate().all(|(i, x)| *x == (i % 1000) as f32));
        let again = Buffer::<f64>::new(LEN / 2);
        assert_eq!(again.as_ptr().cast(), place);

        // It is idle again, until all idle memory is given back.
        drop(again);
        assert!(clear() >= 4 * LEN);
    }

    #[test]
    fn a_shared_tensor_is_copied_when_written() {
        let tensor = Buffer::of(&[1f32; 9_000]).into_tensor([9_000]);
        let mut other = tensor.clone();
        other.storage_mut::<f32>().fill(2.0);
        assert!(tensor.as_slice::<f32>().unwrap().iter().all(|x| *x == 1.0));
        assert!(other.as_slice::<f32>().unwrap().iter().all(|x| *x == 2.0));
    }

    /// A request, served from the pool or not.
    fn request(pool: &mut Pool, lines: usize) -> Vec<Line> {
        pool.take(lines).0.unwrap_or_else(|| vec![Line::zeroed(); lines])
    }

    #[test]
    fn memory_is_found_by_its_size() {
        let mut pool = Pool::new();
        let [small, large] = [10, 14].map(|lines| request(&mut pool, lines));
        assert!(pool.keep(large).is_empty() && pool.keep(small).is_empty());
        assert!(pool.take(15).0.is_none() && pool.take(4).0.is_none());
        assert_eq!(pool.take(8).0.map(|memory| memory.len()), Some(10), "the smallest that fits");
        assert_eq!(pool.take(8).0.map(|memory| memory.len()), Some(14));
        assert!(pool.take(8).0.is_none());
        assert_eq!(pool.kept, 0);
    }

    #[test]
    fn idle_memory_is_given_back_in_time() {
        let mut pool = Pool::new();
        let once = request(&mut pool, 10);
        pool.keep(once);
        let mut freed = 0;
        for _ in 0..=PATIENCE {
            assert_eq!(freed, 0);
            freed += pool.take(100).1.iter().map(Vec::len).sum::<usize>();
        }
        assert_eq!((freed, pool.kept, pool.idle.len()), (10, 0, 0));
    }

    #[test]
    fn idle_memory_is_bounded_by_what_was_in_use() {
        let mut pool = Pool::new();
        // Ever larger memory, which nothing smaller fits: one at a time.
        let mut size = 1;
        for _ in 0..8 {
            let one = request(&mut pool, size);
            assert_eq!(one.len(), size, "nothing fits");
            pool.keep(one);
            assert!((size..=2 * size).contains(&pool.kept), "{} kept of {size}", pool.kept);
            assert_eq!(pool.kept, pool.idle.iter().map(|(_, memory)| memory.len()).sum::<usize>());
            size = 2 * size + 1;
        }
        // All at once: twice as much may be idle.
        let all: Vec<_> = (0..8).map(|_| request(&mut pool, 3 * size)).collect();
        let used = pool.used;
        assert_eq!(used, all.iter().map(Vec::len).sum::<usize>());
        all.into_iter().for_each(|one| assert!(pool.keep(one).is_empty()));
        assert!((used..=2 * used).contains(&pool.kept));
        assert_eq!(pool.used, 0);
        // A long time without them.
        for _ in 0..2 * PATIENCE {
            let one = request(&mut pool, 1);
            pool.keep(one);
        }
        assert_eq!((pool.kept, pool.peaks), (1, [1; 2]));
    }

    #[test]
    fn a_program_clears_what_is_kept() {
        let mut pool = Pool::new();
        let both = [10, 30].map(|lines| request(&mut pool, lines));
        let held = request(&mut pool, 7);
        both.into_iter().for_each(|one| assert!(pool.keep(one).is_empty()));
        assert_eq!((pool.clear().len(), pool.kept, pool.used), (2, 0, 7));
        // What is in use is known to the pool as before.
        assert!(pool.keep(held).is_empty());
        assert_eq!((pool.kept, pool.used), (7, 0));
    }
}
