//! What connects processes.

use std::sync::Arc;

use crate::error::Result;

/// Collective operations between processes. All of them call the same ones in the same order.
///
/// The processes are numbered from 0, by their *rank*.
pub trait Communicator: Send + Sync {
    /// This process's number.
    fn rank(&self) -> usize;

    /// Number of processes.
    fn size(&self) -> usize;

    /// This process's number among those on the same machine, from 0.
    fn local_rank(&self) -> usize {
        self.rank()
    }

    /// Fills `all` with the bytes of every rank, in rank order (MPI's all-gather). All give as many.
    ///
    /// # Errors
    /// [`Error::Communication`](crate::Error::Communication).
    ///
    /// # Panics
    /// If `all` is not `size` times as long as `own`.
    fn gather(&self, own: &[u8], all: &mut [u8]) -> Result<()>;

    /// Sends piece n of `pieces` to rank n, and fills `received` with the pieces that are for this rank, in the order of those who
    /// sent them (MPI's all-to-all). All pieces are of one length.
    ///
    /// # Errors
    /// [`Error::Communication`](crate::Error::Communication).
    ///
    /// # Panics
    /// If the lengths differ, or are no multiple of `size`.
    fn exchange(&self, pieces: &[u8], received: &mut [u8]) -> Result<()>;

    /// The processes that name the same `colour`, in the order of their ranks here, as a group of their own. All processes call it.
    ///
    /// # Errors
    /// [`Error::Communication`](crate::Error::Communication).
    fn split(&self, colour: usize) -> Result<Arc<dyn Communicator>>;

    /// Ends all processes at once with this exit status.
    fn abort(&self, status: i32) -> !;

    /// Says why and [ends](Self::abort) all processes, where an error cannot be returned: in a backward pass.
    fn give_up(&self, _reason: &str) -> ! {
        self.abort(2)
    }
}

/// One process.
#[derive(Debug, Clone, Copy, Default)]
pub struct Alone {
    /// Its number among those on its machine, of which it is independent.
    pub local_rank: usize,
}

impl Communicator for Alone {
    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn local_rank(&self) -> usize {
        self.local_rank
    }

    fn gather(&self, own: &[u8], all: &mut [u8]) -> Result<()> {
        all.copy_from_slice(own);
        Ok(())
    }

    fn exchange(&self, pieces: &[u8], received: &mut [u8]) -> Result<()> {
        received.copy_from_slice(pieces);
        Ok(())
    }

    fn split(&self, _colour: usize) -> Result<Arc<dyn Communicator>> {
        Ok(Arc::new(*self))
    }

    fn abort(&self, status: i32) -> ! {
        std::process::exit(status)
    }
}
