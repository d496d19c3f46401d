//! Processes that `mpirun` started.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use mpi::environment::Universe;
use mpi::{Threading, ffi};

use super::communicator::Communicator;
use crate::error::{Error, Result};

/// How long a short message is waited for without rest.
const AWAKE: Duration = Duration::from_millis(1);
/// How long a process that waits for a short message rests: its core may be what the others compute with.
const REST: Duration = Duration::from_micros(50);
/// Between two rests MPI is asked so often: Open MPI looks at its sockets once in eight times.
const ASKED: u64 = 16;
/// How long the others may be silent after an interrupt, besides twice the longest time that anything took so far: a step, an
/// evaluation, rank 0's writing of a checkpoint.
const GRACE: Duration = Duration::from_secs(10);

/// The processes of an MPI job, or some of them.
///
/// An error of MPI comes back as [`Error::Communication`] with this process's rank: end the job by
/// [`abort`](Communicator::abort) then, as after any other error that the other ranks do not have. Dropping the last of a process
/// waits for the other processes to drop theirs, but for a panic.
pub struct Mpi {
    job: Arc<Job>,
    group: Group,
    rank: usize,
    size: usize,
}

/// A communicator of MPI.
struct Group(ffi::MPI_Comm);

// SAFETY: a handle is a number or an address that MPI alone looks behind, which one thread at a time calls.
unsafe impl Send for Group {}
// SAFETY: as above.
unsafe impl Sync for Group {}

/// What this process has once, whatever the group.
struct Job {
    /// `None` once it is dropped.
    universe: Option<Universe>,
    /// This process's number in the job.
    rank: usize,
    local_rank: usize,
    /// The only thread that may call MPI; `None` if any may, one at a time.
    thread: Option<ThreadId>,
    /// Whether this process was asked to end.
    interrupted: Box<dyn Fn() -> bool + Send + Sync>,
    /// Told why the job is ended.
    last_words: Box<dyn Fn(&str) + Send + Sync>,
    /// When the last operation ended, and the longest time from one to the next or that one took. Held while an operation is under way:
    /// one thread at a time calls MPI.
    pauses: Mutex<(Option<Instant>, Duration)>,
}

impl Mpi {
    /// Joins the job that this process was started in. To be called once, on the main thread.
    ///
    /// # Errors
    /// [`Error::Communication`] if MPI was joined before, or refuses.
    pub fn join() -> Result<Self> {
        let refused = |reason: &str| Error::Communication { rank: 0, reason: reason.to_string() };
        let (universe, threading) = mpi::initialize_with_threading(Threading::Serialized)
            .ok_or_else(|| refused("this process has joined its MPI job already"))?;
        let mut job = Job {
            universe: Some(universe),
            rank: 0,
            local_rank: 0,
            thread: match threading {
                Threading::Serialized | Threading::Multiple => None,
                Threading::Single | Threading::Funneled => Some(thread::current().id()),
            },
            interrupted: Box::new(|| false),
            last_words: Box::new(|_| ()),
            pauses: Mutex::new((None, Duration::ZERO)),
        };
        let (mut rank, mut size, mut local) = (0, 0, 0);
        // SAFETY: MPI is initialised, and all pointers are to variables that outlive the calls.
        let world = unsafe {
            let world = ffi::RSMPI_COMM_WORLD;
            job.check(ffi::MPI_Comm_set_errhandler(world, ffi::RSMPI_ERRORS_RETURN))?;
            job.check(ffi::MPI_Comm_rank(world, &mut rank))?;
            job.check(ffi::MPI_Comm_size(world, &mut size))?;
            let mut machine = ffi::RSMPI_COMM_NULL;
            let (kind, info) = (ffi::RSMPI_COMM_TYPE_SHARED, ffi::RSMPI_INFO_NULL);
            job.check(ffi::MPI_Comm_split_type(world, kind, rank, info, &mut machine))?;
            job.check(ffi::MPI_Comm_rank(machine, &mut local))?;
            job.check(ffi::MPI_Comm_free(&mut machine))?;
            world
        };
        (job.rank, job.local_rank) = (rank as usize, local as usize);
        Ok(Self { rank: job.rank, size: size as usize, group: Group(world), job: Arc::new(job) })
    }

    /// Gives up waiting for the others some seconds after `interrupted` says so: tells `last_words` why, and ends the job. An
    /// interrupt is sent to all processes, also because one of them died, and that one will not answer.
    pub fn until(
        mut self,
        interrupted: impl Fn() -> bool + Send + Sync + 'static,
        last_words: impl Fn(&str) + Send + Sync + 'static,
    ) -> Self {
        let job = Arc::get_mut(&mut self.job).expect("it is called before any split");
        (job.interrupted, job.last_words) = (Box::new(interrupted), Box::new(last_words));
        self
    }
}

impl Job {
    fn check(&self, code: c_int) -> Result<()> {
        if code == ffi::MPI_SUCCESS as c_int {
            return Ok(());
        }
        let mut text: [c_char; ffi::MPI_MAX_ERROR_STRING as usize + 1] =
            [0; ffi::MPI_MAX_ERROR_STRING as usize + 1];
        let mut length = 0;
        // SAFETY: the text has the length that MPI asks for, and a zero after it.
        let reason = unsafe {
            ffi::MPI_Error_string(code, text.as_mut_ptr(), &mut length);
            CStr::from_ptr(text.as_ptr()).to_string_lossy().into_owned()
        };
        Err(self.failed(format!("MPI: {reason}")))
    }

    fn failed(&self, reason: String) -> Error {
        Error::Communication { rank: self.rank, reason }
    }

    /// Starts an operation and waits for its end. With `rest`, at the price of some microseconds, this process leaves its core to
    /// others meanwhile.
    ///
    /// # Safety
    /// `start` starts an operation on buffers that are not touched before this function returns.
    unsafe fn complete(&self, rest: bool, start: impl FnOnce(*mut ffi::MPI_Request) -> c_int) -> Result<()> {
        assert!(self.thread.is_none_or(|own| own == thread::current().id()), "MPI is for one thread here");
        // A thread that panicked with it has left numbers as good as any.
        let mut pauses = self.pauses.lock().unwrap_or_else(PoisonError::into_inner);
        let began = Instant::now();
        let (last, mut longest) = *pauses;
        longest = longest.max(last.map_or(Duration::ZERO, |last| began - last));
        // SAFETY: a constant of the library.
        let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
        self.check(start(&mut request))?;
        let mut noticed: Option<Instant> = None;
        for asked in 1u64.. {
            let mut done = 0;
            // SAFETY: the request was started above, and is this function's alone.
            self.check(unsafe { ffi::MPI_Test(&mut request, &mut done, ffi::RSMPI_STATUS_IGNORE) })?;
            if done != 0 {
                break;
            }
            if began.elapsed() < AWAKE {
                std::hint::spin_loop();
                continue;
            }
            if (self.interrupted)()
                && noticed.get_or_insert_with(Instant::now).elapsed() > GRACE + 2 * longest
            {
                // No error: the caller's buffers must outlive the operation.
                self.give_up(
                    "another rank did not answer after an interrupt; the last checkpoint is untouched",
                );
            }
            match rest {
                true if asked.is_multiple_of(ASKED) => thread::sleep(REST),
                true => {}
                false => thread::yield_now(),
            }
        }
        let now = Instant::now();
        *pauses = (Some(now), longest.max(now - began));
        Ok(())
    }

    fn give_up(&self, reason: &str) -> ! {
        (self.last_words)(reason);
        abort(2)
    }
}

fn abort(status: i32) -> ! {
    // SAFETY: MPI is initialised. This ends the processes of the job.
    unsafe { ffi::MPI_Abort(ffi::RSMPI_COMM_WORLD, status) };
    std::process::exit(status)
}

/// A number of bytes as MPI counts them.
fn count(bytes: usize) -> c_int {
    c_int::try_from(bytes).expect("messages are below 2 GiB")
}

/// Bytes of a message that others wait for more than they send it.
const SHORT: usize = 1 << 16;

impl Communicator for Mpi {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn local_rank(&self) -> usize {
        self.job.local_rank
    }

    fn gather(&self, own: &[u8], all: &mut [u8]) -> Result<()> {
        assert!(own.len() * self.size == all.len(), "gather: {} bytes of {} ranks", all.len(), self.size);
        let count = count(own.len());
        let (own, all, rest) = (own.as_ptr(), all.as_mut_ptr(), own.len() <= SHORT);
        // SAFETY: `own` holds `count` bytes and `all` that many of every rank; both are borrowed until the operation is complete.
        unsafe {
            let (byte, group) = (ffi::RSMPI_UINT8_T, self.group.0);
            self.job.complete(rest, |request| {
                ffi::MPI_Iallgather(own.cast(), count, byte, all.cast(), count, byte, group, request)
            })
        }
    }

    fn exchange(&self, pieces: &[u8], received: &mut [u8]) -> Result<()> {
        let whole = pieces.len() == received.len() && pieces.len().is_multiple_of(self.size);
        assert!(whole, "exchange: {} and {} bytes of {} ranks", pieces.len(), received.len(), self.size);
        let count = count(pieces.len() / self.size);
        let (pieces, received): (*const c_void, *mut c_void) =
            (pieces.as_ptr().cast(), received.as_mut_ptr().cast());
        // SAFETY: both hold `count` bytes of every rank, and are borrowed until the operation is complete.
        unsafe {
            let (byte, group) = (ffi::RSMPI_UINT8_T, self.group.0);
            self.job.complete(false, |request| {
                ffi::MPI_Ialltoall(pieces, count, byte, received, count, byte, group, request)
            })
        }
    }

    fn split(&self, colour: usize) -> Result<Arc<dyn Communicator>> {
        let colour = c_int::try_from(colour).expect("a colour is at most the number of processes");
        let (mut rank, mut size) = (0, 0);
        // SAFETY: MPI is initialised, and all pointers are to variables that outlive the calls.
        let group = unsafe {
            let mut group = ffi::RSMPI_COMM_NULL;
            self.job.check(ffi::MPI_Comm_split(self.group.0, colour, self.rank as c_int, &mut group))?;
            self.job.check(ffi::MPI_Comm_rank(group, &mut rank))?;
            self.job.check(ffi::MPI_Comm_size(group, &mut size))?;
            Group(group)
        };
        Ok(Arc::new(Self { job: self.job.clone(), group, rank: rank as usize, size: size as usize }))
    }

    fn abort(&self, status: i32) -> ! {
        abort(status)
    }

    fn give_up(&self, reason: &str) -> ! {
        self.job.give_up(reason)
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // Ending MPI waits for the other processes, which may wait for this one somewhere else.
        if thread::panicking() {
            std::mem::forget(self.universe.take());
        }
    }
}
