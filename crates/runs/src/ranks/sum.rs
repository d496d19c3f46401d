//! Sums over all ranks, in their order.
//!
//! MPI's own all-reduce chooses its algorithm, and with it the order of its sums, by the number of ranks and the size of the message,
//! and knows no bfloat16. So a sum is made of two other collective operations, which move as many bytes as the best all-reduce,
//! `2·(N−1)/N` times the buffer: each rank is sent its piece of all buffers, sums it in the order of the ranks, and sends the
//! sum to all.

use burn::tensor::bf16;

use super::handle::Ranks;
use super::precision::ReducePrecision;
use crate::error::Result;

/// The largest number of values that are summed at once. It bounds the memory that a sum needs, and a message's bytes, which MPI
/// counts in 31 bits.
const BLOCK: usize = 1 << 24;

/// A type in which values travel.
trait Sent: bytemuck::Pod {
    fn send(value: f32) -> Self;
    fn receive(self) -> f32;
}

impl Sent for f32 {
    fn send(value: f32) -> Self {
        value
    }

    fn receive(self) -> f32 {
        self
    }
}

/// The bits of a bfloat16.
impl Sent for u16 {
    fn send(value: f32) -> Self {
        bf16::from_f32(value).to_bits()
    }

    fn receive(self) -> f32 {
        bf16::from_bits(self).to_f32()
    }
}

impl Ranks {
    /// Puts the sum over all ranks, in their order, in the place of each value. Every rank has the same number of values, and then the
    /// same sums.
    ///
    /// # Errors
    /// [`Error::Communication`](crate::Error::Communication).
    pub fn sum(&self, values: &mut [f32]) -> Result<()> {
        if !self.are_several() {
            return Ok(());
        }
        let sum = match self.precision() {
            ReducePrecision::F32 => Self::sum_block::<f32>,
            ReducePrecision::Bf16 => Self::sum_block::<u16>,
        };
        values.chunks_mut(BLOCK).try_for_each(|block| sum(self, block))
    }

    fn sum_block<T: Sent>(&self, values: &mut [f32]) -> Result<()> {
        let piece = values.len().div_ceil(self.size());
        let zero = T::send(0.0);
        let mut pieces: Vec<T> = values.iter().map(|value| T::send(*value)).collect();
        pieces.resize(piece * self.size(), zero);
        let mut received = vec![zero; pieces.len()];
        self.communicator.exchange(bytemuck::cast_slice(&pieces), bytemuck::cast_slice_mut(&mut received))?;

        let mut parts = received.chunks(piece);
        let first = parts.next().expect("there is a first rank");
        let mut sum: Vec<f32> = first.iter().map(|sent| sent.receive()).collect();
        for part in parts {
            sum.iter_mut().zip(part).for_each(|(sum, sent)| *sum += sent.receive());
        }
        let sum: Vec<T> = sum.into_iter().map(T::send).collect();
        let sums = &mut pieces;
        self.communicator.gather(bytemuck::cast_slice(&sum), bytemuck::cast_slice_mut(sums))?;
        values.iter_mut().zip(sums).for_each(|(value, sent)| *value = sent.receive());
        Ok(())
    }
}
