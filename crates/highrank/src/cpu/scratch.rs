//! Large buffers that outlive a call: a fresh one costs a page fault every four kilobytes.

use std::sync::Mutex;

use super::Real;

/// Buffers that nobody uses at the moment, in words of eight bytes.
static IDLE: Mutex<Vec<Vec<u64>>> = Mutex::new(Vec::new());

/// Idle buffers that are kept; those of the last calls.
const KEPT: usize = 4;

/// A buffer for the length of a call, kept for the next one when dropped.
#[derive(Debug)]
pub struct Scratch(Vec<u64>);

impl Scratch {
    /// A buffer of at least `count` values of the type `T`: the smallest idle one that is large enough, or a new one.
    pub fn new<T: Real>(count: usize) -> Self {
        let words = (count * size_of::<T>()).div_ceil(size_of::<u64>());
        let mut idle = IDLE.lock().expect("nothing panics while it holds the buffers");
        let fitting = idle.iter().enumerate().filter(|(_, buffer)| buffer.len() >= words);
        match fitting.min_by_key(|(_, buffer)| buffer.len()).map(|(index, _)| index) {
            Some(index) => Self(idle.swap_remove(index)),
            None => Self(vec![0; words]),
        }
    }

    /// The buffer as `count` values, whatever they are from earlier use.
    ///
    /// # Panics
    /// If the buffer was made for less.
    pub fn values<T: Real>(&mut self, count: usize) -> &mut [T] {
        &mut bytemuck::cast_slice_mut(&mut self.0)[..count]
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let mut idle = IDLE.lock().expect("nothing panics while it holds the buffers");
        idle.push(std::mem::take(&mut self.0));
        if idle.len() > KEPT {
            idle.remove(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_in_use_are_distinct_and_hold_what_they_were_made_for() {
        let (mut a, mut b) = (Scratch::new::<f32>(1001), Scratch::new::<f64>(77));
        a.values::<f32>(1001).fill(1.0);
        b.values::<f64>(77).fill(2.0);
        assert!(a.values::<f32>(1001).iter().all(|x| *x == 1.0));
        assert!(b.values::<f64>(77).iter().all(|x| *x == 2.0));
    }
}
