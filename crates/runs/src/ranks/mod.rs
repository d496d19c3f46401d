//! Processes that train one model together, each on its columns of the batch.
//!
//! [`Ranks`] is what training asks: which columns are this process's, the sum of all gradients, and what the others said. It is built
//! on a [`Communicator`], two collective operations on bytes: [`Alone`] for one process, and with the feature `mpi` `Mpi` for those
//! that `mpirun` started.
//!
//! Sums are made in the order of the ranks, whatever their number and the size of what is summed: N ranks that cut the batch in N
//! parts make the same bits as one process that takes it in N slices.
//!
//! A [`Grid`] is for models whose vocabulary is shared out: each group of ranks has one copy of the model, and groups share the batch.

mod communicator;
mod gradients;
mod grid;
mod handle;
#[cfg(feature = "mpi")]
mod mpi;
mod precision;
mod shard_group;
mod sum;
#[cfg(all(test, feature = "flex"))]
mod tests;
mod threads;

pub use communicator::{Alone, Communicator};
pub use grid::Grid;
pub use handle::{Ranks, cut, started_as_one_of};
#[cfg(feature = "mpi")]
pub use mpi::Mpi;
pub use precision::ReducePrecision;
pub use threads::threads;
