//! Sums over all ranks, in their order.
//!
//! MPI's own all-reduce chooses its algorithm, and with it the order of its sums, by the number of ranks and the size of the message,
//! and knows no bfloat16. So a sum is made of two other collective operations, which move as many bytes as the best all-reduce,
//! `2·(N−1)/N` times the buffer: each rank is sent its piece of all buffers, sums it in the order of the ranks, and sends the
//! sum to all.

use std::convert::identity;

use burn::tensor::bf16;

use super::handle::Ranks;
use super::precision::ReducePrecision;
use crate::error::Result;

/// The largest number of values that are summed at once. It bounds the memory that a sum needs, and a message's bytes, which MPI
/// counts in 31 bits.
const BLOCK: usize = 1 << 24;

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
        let mut blocks = values.chunks_mut(BLOCK);
        match self.precision() {
            ReducePrecision::F32 => {
                blocks.try_for_each(|block| self.sum_block(block, identity::<f32>, identity))
            }
            ReducePrecision::Bf16 => {
                let send = |value: f32| bf16::from_f32(value).to_bits();
                let receive = |sent: u16| bf16::from_bits(sent).to_f32();
                blocks.try_for_each(|block| self.sum_block(block, send, receive))
            }
        }
    }

    /// The same of one block, whose values travel as what `send` makes of them.
    fn sum_block<T: bytemuck::Pod>(
        &self,
        values: &mut [f32],
        send: impl Fn(f32) -> T,
        receive: impl Fn(T) -> f32,
    ) -> Result<()> {
        let piece = values.len().div_ceil(self.size());
        let mut pieces: Vec<T> = values.iter().map(|value| send(*value)).collect();
        pieces.resize(piece * self.size(), T::zeroed());
        let mut received = vec![T::zeroed(); pieces.len()];
        self.communicator.exchange(bytemuck::cast_slice(&pieces), bytemuck::cast_slice_mut(&mut received))?;

        let mut parts = received.chunks(piece);
        let first = parts.next().expect("there is a first rank");
        let mut sum: Vec<f32> = first.iter().map(|sent| receive(*sent)).collect();
        for part in parts {
            sum.iter_mut().zip(part).for_each(|(sum, sent)| *sum += receive(*sent));
        }
        let sum: Vec<T> = sum.into_iter().map(send).collect();
        let sums = &mut pieces;
        self.communicator.gather(bytemuck::cast_slice(&sum), bytemuck::cast_slice_mut(sums))?;
        values.iter_mut().zip(sums).for_each(|(value, sent)| *value = receive(*sent));
        Ok(())
    }
}
