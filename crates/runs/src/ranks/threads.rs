//! Ranks as threads of this process.

use std::collections::HashMap;
use std::sync::{Arc, Barrier, Mutex};

use super::communicator::Communicator;
use super::handle::Ranks;
use crate::error::Result;

/// What every thread has laid down, and when all have.
struct Table {
    sent: Vec<Mutex<Vec<u8>>>,
    all: Barrier,
    /// Those of groups by their colours, while they are made.
    groups: Mutex<HashMap<usize, Arc<Table>>>,
}

impl Table {
    fn new(size: usize) -> Self {
        let sent = (0..size).map(|_| Mutex::default()).collect();
        Self { sent, all: Barrier::new(size), groups: Mutex::default() }
    }
}

struct Thread {
    rank: usize,
    table: Arc<Table>,
}

impl Thread {
    /// Reads what all ranks sent.
    fn share(&self, own: &[u8], mut read: impl FnMut(usize, &[u8])) {
        *self.table.sent[self.rank].lock().unwrap() = own.to_vec();
        self.table.all.wait();
        for (rank, sent) in self.table.sent.iter().enumerate() {
            read(rank, &sent.lock().unwrap());
        }
        self.table.all.wait();
    }
}

impl Communicator for Thread {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.table.sent.len()
    }

    fn gather(&self, own: &[u8], all: &mut [u8]) -> Result<()> {
        let length = own.len();
        self.share(own, |rank, sent| all[rank * length..][..length].copy_from_slice(sent));
        Ok(())
    }

    fn exchange(&self, pieces: &[u8], received: &mut [u8]) -> Result<()> {
        let length = pieces.len() / self.size();
        self.share(pieces, |rank, sent| {
            received[rank * length..][..length].copy_from_slice(&sent[self.rank * length..][..length]);
        });
        Ok(())
    }

    fn split(&self, colour: usize) -> Result<Arc<dyn Communicator>> {
        let mut members = vec![];
        let own = colour.to_ne_bytes();
        self.share(&own, |rank, sent| {
            if sent == own {
                members.push(rank);
            }
        });
        let made = || Arc::new(Table::new(members.len()));
        let table = self.table.groups.lock().unwrap().entry(colour).or_insert_with(made).clone();
        self.table.all.wait();
        self.table.groups.lock().unwrap().clear();
        self.table.all.wait();
        let rank = members.iter().position(|rank| *rank == self.rank).expect("it is one of them");
        Ok(Arc::new(Self { rank, table }))
    }

    fn abort(&self, status: i32) -> ! {
        panic!("aborted with status {status}")
    }
}

/// What `work` returns at each of `size` ranks, which are threads of this process.
///
/// # Panics
/// If `work` does at one of them.
pub fn threads<T: Send>(size: usize, work: impl Fn(Ranks) -> T + Sync) -> Vec<T> {
    let table = Arc::new(Table::new(size));
    let at = &|rank| work(Ranks::new(Thread { rank, table: table.clone() }));
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..size).map(|rank| scope.spawn(move || at(rank))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}
