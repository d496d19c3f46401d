//! The processes of a training as one of them sees them.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use burn::tensor::Device;
use serde::Serialize;
use serde_json::Value;

use super::communicator::{Alone, Communicator};
use super::precision::ReducePrecision;
use crate::difference::difference;
use crate::error::{Error, Result};
use crate::seed::mix_seed;

/// Bytes of a message, at most: MPI counts them in 31 bits.
const MESSAGE: usize = 1 << 30;

/// The processes of a training, as one of them sees them.
#[derive(Clone)]
pub struct Ranks {
    pub(super) communicator: Arc<dyn Communicator>,
    precision: ReducePrecision,
}

impl fmt::Debug for Ranks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ranks").field("rank", &self.rank()).field("size", &self.size()).finish()
    }
}

impl Default for Ranks {
    fn default() -> Self {
        Self::alone()
    }
}

impl Ranks {
    /// This process and no other.
    pub fn alone() -> Self {
        Self::new(Alone::default())
    }

    /// This process without the others, which do something else meanwhile. It keeps its number on its machine, hence its device.
    pub fn apart(&self) -> Self {
        Self::new(Alone { local_rank: self.local_rank() })
    }

    /// The processes that name the same `colour`, in the order of their ranks. All processes call it.
    ///
    /// # Errors
    /// [`Error::Communication`].
    pub fn split(&self, colour: usize) -> Result<Self> {
        Ok(Self { communicator: self.communicator.split(colour)?, ..self.clone() })
    }

    /// The processes that `communicator` connects. Gradients are summed in f32.
    pub fn new(communicator: impl Communicator + 'static) -> Self {
        Self { communicator: Arc::new(communicator), precision: ReducePrecision::default() }
    }

    /// The same processes, which send gradients in this precision.
    pub fn with_precision(self, precision: ReducePrecision) -> Self {
        Self { precision, ..self }
    }

    /// The precision in which gradients are sent.
    pub fn precision(&self) -> ReducePrecision {
        self.precision
    }

    /// This process's number, from 0.
    pub fn rank(&self) -> usize {
        self.communicator.rank()
    }

    /// Number of processes.
    pub fn size(&self) -> usize {
        self.communicator.size()
    }

    /// This process's number among those on its machine, from 0.
    pub fn local_rank(&self) -> usize {
        self.communicator.local_rank()
    }

    /// Whether this is the process that writes and prints.
    pub fn is_first(&self) -> bool {
        self.rank() == 0
    }

    /// Whether there are other processes.
    pub fn are_several(&self) -> bool {
        self.size() > 1
    }

    /// This process's part of `columns` columns. The parts are in the order of the ranks, and equal to within one column.
    pub fn part(&self, columns: usize) -> Range<usize> {
        self.part_of(self.rank(), columns)
    }

    /// The part of another process.
    pub fn part_of(&self, rank: usize, columns: usize) -> Range<usize> {
        cut(columns, self.size(), rank)
    }

    /// Seeds `device` for a step in which each process draws for its own part of the batch: the first draws as one process does, and the
    /// others draw other numbers.
    pub fn seed_own_part(&self, device: &Device, seed: u64, epoch: u64, step: u64) {
        if self.rank() > 0 {
            device.seed(mix_seed(seed.wrapping_add(self.rank() as u64), epoch, step));
        }
    }

    /// Bytes of every rank, in rank order; they may differ in length.
    ///
    /// # Errors
    /// [`Error::Communication`].
    pub fn gather(&self, own: &[u8]) -> Result<Vec<Vec<u8>>> {
        if !self.are_several() {
            return Ok(vec![own.to_vec()]);
        }
        let lengths: Vec<u64> = self.gather_equal(&[own.len() as u64])?;
        let longest = lengths.iter().max().map_or(0, |length| *length as usize);
        let mut padded = own.to_vec();
        padded.resize(longest, 0);
        let all = if longest > 0 { self.gather_equal(&padded)? } else { vec![] };
        let of = |(rank, length): (usize, &u64)| all[rank * longest..][..*length as usize].to_vec();
        Ok(lengths.iter().enumerate().map(of).collect())
    }

    /// As [`gather`](Self::gather), of as many numbers of every rank, end to end.
    pub fn gather_equal<T: bytemuck::Pod>(&self, own: &[T]) -> Result<Vec<T>> {
        self.gather_blocks(own, (MESSAGE / size_of::<T>()).max(1))
    }

    /// As [`gather_equal`](Self::gather_equal), in messages of at most `block` numbers of a rank.
    pub(super) fn gather_blocks<T: bytemuck::Pod>(&self, own: &[T], block: usize) -> Result<Vec<T>> {
        let mut all = vec![T::zeroed(); own.len() * self.size()];
        if own.len() <= block {
            self.communicator.gather(bytemuck::cast_slice(own), bytemuck::cast_slice_mut(&mut all))?;
            return Ok(all);
        }
        let mut of_ranks = vec![T::zeroed(); block * self.size()];
        for (at, values) in own.chunks(block).enumerate() {
            let of_ranks = &mut of_ranks[..values.len() * self.size()];
            self.communicator.gather(bytemuck::cast_slice(values), bytemuck::cast_slice_mut(of_ranks))?;
            for (rank, values) in of_ranks.chunks_exact(values.len()).enumerate() {
                all[rank * own.len() + at * block..][..values.len()].copy_from_slice(values);
            }
        }
        Ok(all)
    }

    /// Waits until every rank has come here.
    ///
    /// # Errors
    /// [`Error::Communication`].
    pub fn wait(&self) -> Result<()> {
        self.gather_equal(&[0u8]).map(drop)
    }

    /// Whether rank 0 says yes.
    ///
    /// # Errors
    /// [`Error::Communication`].
    pub fn first_says(&self, yes: bool) -> Result<bool> {
        Ok(self.gather_equal(&[u8::from(yes)])?[0] != 0)
    }

    /// Whether any rank says yes.
    ///
    /// # Errors
    /// [`Error::Communication`].
    pub fn any_says(&self, yes: bool) -> Result<bool> {
        match self.are_several() {
            true => Ok(self.gather_equal(&[u8::from(yes)])?.contains(&1)),
            false => Ok(yes),
        }
    }

    /// `own` if no rank failed.
    ///
    /// # Errors
    /// The same at every rank: this rank's error if all ranks have that; otherwise [`Error::RankFailed`] with the first rank's that failed.
    pub fn all_good<T, E: fmt::Display + From<Error>>(&self, own: Result<T, E>) -> Result<T, E> {
        if !self.are_several() {
            return own;
        }
        // Empty: it is good.
        let text = own.as_ref().err().map_or(String::new(), ToString::to_string);
        let texts = self.gather(text.as_bytes())?;
        let Some(rank) = texts.iter().position(|text| !text.is_empty()) else { return own };
        match own {
            Err(own) if texts.iter().all(|other| *other == texts[0]) => Err(own),
            _ => {
                let reason = String::from_utf8_lossy(&texts[rank]).into_owned();
                Err(Error::RankFailed { rank, reason }.into())
            }
        }
    }

    /// Checks that every rank has the same `value`, which is called `name`.
    ///
    /// # Errors
    /// [`Error::RankDiffers`] with the first rank that has another value than rank 0, and the path of the first difference below
    /// `name`; the same at every rank.
    pub fn check_same(&self, name: &str, value: &impl Serialize) -> Result<()> {
        if !self.are_several() {
            return Ok(());
        }
        let own = serde_json::to_string(value).expect("configurations are plain numbers and names");
        let all = self.gather(own.as_bytes())?;
        let value = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap_or_default();
        let first = value(&all[0]);
        for (rank, bytes) in all.iter().enumerate() {
            if let Some((setting, first, other)) = difference(name, &first, &value(bytes)) {
                return Err(Error::RankDiffers { rank, setting, first, other });
            }
        }
        Ok(())
    }

    /// Ends all processes at once with this exit status.
    pub fn abort(&self, status: i32) -> ! {
        self.communicator.abort(status)
    }
}

/// As how many processes this one was started with others by `mpirun` or the like, as far as its environment tells; `None` if it
/// was started by itself.
pub fn started_as_one_of() -> Option<usize> {
    // Of Open MPI; of MPICH and its kin.
    let sizes = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"];
    sizes.into_iter().find_map(|name| std::env::var(name).ok()?.parse().ok())
}

/// Part `index` of `columns` columns in so many parts, which are equal to within one column, the larger ones first.
pub fn cut(columns: usize, parts: usize, index: usize) -> Range<usize> {
    let (size, larger) = (columns / parts, columns % parts);
    let start = index * size + index.min(larger);
    start..start + size + usize::from(index < larger)
}
