//! Ranks as threads of this process.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::group::{GroupHandle, ShardError, ShardGroup};

/// What `work` returns on each of `size` ranks, which are threads of this process, in the order of the ranks.
///
/// A rank whose work has ended, by an error or a panic too, is gone: others that wait for it get [`ShardError::Gone`].
///
/// Ranks must not share tensors that are tracked by autodiff: a backward pass locks its graph, and one that waits for another rank
/// would wait forever. A [`ShardedHead`](super::ShardedHead) has parameters of its own.
///
/// ```
/// use highrank::shard::on_threads;
///
/// let sums = on_threads(3, |group| {
///     let mut numbers = [group.rank() as f32, 1.0];
///     group.sum_f32(&mut numbers).map(|()| numbers)
/// });
/// assert!(sums.iter().all(|sum| *sum == Ok([3.0, 3.0])));
/// ```
///
/// # Panics
/// If `size` is 0, or `work` panics: with the panic of the rank that was first.
pub fn on_threads<T: Send>(size: usize, work: impl Fn(GroupHandle) -> T + Sync) -> Vec<T> {
    assert!(size > 0, "on_threads: size is 0, expected at least one rank");
    let table = Arc::new(Table::new(size));
    let first_panic = Mutex::new(None::<Box<dyn Any + Send>>);
    let on_rank = |rank| {
        let group = Arc::new(Thread { rank, table: table.clone() });
        let made = catch_unwind(AssertUnwindSafe(|| work(group)));
        let made = made.map_err(|panic| {
            locked(&first_panic).get_or_insert(panic);
        });
        // After the panic has been kept: others panic because of it.
        table.leave(rank);
        made.ok()
    };
    let made: Vec<Option<T>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..size)
            .map(|rank| {
                let on_rank = &on_rank;
                scope.spawn(move || on_rank(rank))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("panics are caught")).collect()
    });
    if let Some(panic) = first_panic.into_inner().unwrap_or_else(PoisonError::into_inner) {
        resume_unwind(panic);
    }
    made.into_iter().map(|made| made.expect("no rank has panicked")).collect()
}

/// What the ranks have laid down.
#[derive(Debug)]
struct Table {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// Of this round.
    laid: Vec<Option<Vec<u8>>>,
    /// How many have read this round.
    read: usize,
    /// Who takes no part any more.
    gone: Vec<bool>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Table {
    fn new(size: usize) -> Self {
        let state = State { laid: vec![None; size], read: 0, gone: vec![false; size] };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn leave(&self, rank: usize) {
        locked(&self.state).gone[rank] = true;
        self.changed.notify_all();
    }

    /// Waits until `is_ready`, unless a rank that has yet to lay something down is gone.
    fn wait(&self, is_ready: impl Fn(&State) -> bool) -> Result<MutexGuard<'_, State>, ShardError> {
        let mut state = locked(&self.state);
        loop {
            if is_ready(&state) {
                return Ok(state);
            }
            let awaited = |rank: &usize| state.gone[*rank] && state.laid[*rank].is_none();
            if let Some(rank) = (0..state.laid.len()).find(awaited) {
                return Err(ShardError::Gone { rank });
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// What all ranks lay down, in their order.
    fn gather(&self, rank: usize, own: &[u8]) -> Result<Vec<u8>, ShardError> {
        // The round before has ended when all have read it.
        let mut state = self.wait(|state| state.laid[rank].is_none())?;
        state.laid[rank] = Some(own.to_vec());
        self.changed.notify_all();
        drop(state);
        let mut state = self.wait(|state| state.laid.iter().all(Option::is_some))?;
        let lengths = state.laid.iter().map(|laid| laid.as_ref().map_or(0, Vec::len));
        let differs = lengths.enumerate().find(|(_, length)| *length != own.len());
        let all = state.laid.iter().flatten().flatten().copied().collect();
        state.read += 1;
        if state.read == state.laid.len() {
            state.laid.fill(None);
            state.read = 0;
            self.changed.notify_all();
        }
        match differs {
            Some((rank, got)) => Err(ShardError::Mismatch { rank, got, expected: own.len() }),
            None => Ok(all),
        }
    }
}

/// One of the threads.
#[derive(Debug)]
struct Thread {
    rank: usize,
    table: Arc<Table>,
}

/// Gathers numbers as bytes.
macro_rules! gather {
    ($self:ident, $own:ident, $Number:ty) => {{
        let bytes: Vec<u8> = $own.iter().flat_map(|number| number.to_ne_bytes()).collect();
        let all = $self.table.gather($self.rank, &bytes)?;
        Ok(all.as_chunks().0.iter().map(|bytes| <$Number>::from_ne_bytes(*bytes)).collect())
    }};
}

impl ShardGroup for Thread {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        locked(&self.table.state).laid.len()
    }

    fn gather_f32(&self, own: &[f32]) -> Result<Vec<f32>, ShardError> {
        gather!(self, own, f32)
    }

    fn gather_f64(&self, own: &[f64]) -> Result<Vec<f64>, ShardError> {
        gather!(self, own, f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_in_the_order_of_the_ranks_round_after_round() {
        let gathered = on_threads(4, |group| {
            let rounds = 0..200;
            rounds.map(|round| group.gather_f64(&[f64::from(round), group.rank() as f64])).collect::<Vec<_>>()
        });
        for rounds in gathered {
            for (round, all) in rounds.into_iter().enumerate() {
                let want: Vec<f64> = (0..4).flat_map(|rank| [round as f64, f64::from(rank)]).collect();
                assert_eq!(all, Ok(want));
            }
        }
    }

    #[test]
    fn a_rank_that_ends_is_an_error_of_the_others() {
        let made = on_threads(3, |group| match group.rank() {
            1 => Err(ShardError::Group("wrong".into())),
            _ => group.gather_f32(&[1.0]),
        });
        let gone = Err(ShardError::Gone { rank: 1 });
        assert_eq!(made, [gone.clone(), Err(ShardError::Group("wrong".into())), gone]);
    }

    #[test]
    fn a_panic_is_that_of_the_rank_that_was_first() {
        let panic = catch_unwind(|| {
            on_threads(2, |group| match group.rank() {
                0 => panic!("the first"),
                _ => group.gather_f32(&[1.0]).unwrap(),
            })
        });
        assert_eq!(panic.unwrap_err().downcast_ref::<&str>(), Some(&"the first"));
    }

    #[test]
    fn ranks_that_send_other_counts_are_refused() {
        let made = on_threads(2, |group| group.gather_f32(&vec![0.0; 1 + group.rank()]));
        assert_eq!(made[0], Err(ShardError::Mismatch { rank: 1, got: 8, expected: 4 }));
        assert_eq!(made[1], Err(ShardError::Mismatch { rank: 0, got: 4, expected: 8 }));
    }
}
