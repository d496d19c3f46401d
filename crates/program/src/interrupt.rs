//! Ctrl-C, the system's request to end, and a terminal that closes: work is saved first.

use std::fmt;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use runs::ranks::started_as_one_of;
#[cfg(unix)]
use signal_hook::consts::{SIGHUP, SIGUSR1};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level;

use crate::failure::Failure;

/// What the first interrupt of a training is answered with.
const NOTICE: &str = "stopping after this step, then saving; press again to quit at once\n";
/// The same below a bar, whose lines are drawn anew there.
const NOTICE_BELOW_BAR: &str = "\nstopping after this step, then saving; press again to quit at once\n\n";

/// After so long another interrupt is one of its own. `timeout` sends the same one twice, to the program and to its process group.
const AGAIN_MILLIS: u64 = 500;

/// Notes the first interrupt; a second one ends the program at once, if it comes half a second later or more.
#[derive(Debug, Clone, Default)]
pub struct Interrupt {
    /// The first signal, 0 before any.
    signal: Arc<AtomicUsize>,
    /// Whether the first interrupt is answered with a [`NOTICE`].
    answers: Arc<AtomicBool>,
}

impl Interrupt {
    /// Takes over SIGINT, SIGTERM and SIGUSR1, which `mpirun` hands on and batch systems send before the end of a job's time; and SIGHUP
    /// unless it is to be ignored, as `nohup` asks for. The same for all who ask.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn install() -> Result<Self, Failure> {
        static INSTALLED: OnceLock<Interrupt> = OnceLock::new();
        if let Some(installed) = INSTALLED.get() {
            return Ok(installed.clone());
        }
        let interrupt = Self::default();
        let (installed, first) = (Instant::now(), Arc::new(AtomicU64::new(0)));
        let notice = if std::io::stderr().is_terminal() { NOTICE_BELOW_BAR } else { NOTICE };
        let are_several = started_as_one_of().is_some_and(|size| size > 1);
        for signal in signals() {
            let (first, noted, answers) =
                (first.clone(), interrupt.signal.clone(), interrupt.answers.clone());
            // `mpirun` also sends SIGTERM because another process failed, and then nothing is saved.
            let is_stop = signal != SIGTERM || !are_several;
            let answer = move || match press(&first, installed.elapsed().as_millis() as u64) {
                Press::First => {
                    // Before the line, which may have to wait for who reads it.
                    noted.store(signal as usize, Ordering::Relaxed);
                    if is_stop && answers.load(Ordering::Relaxed) {
                        write_in_handler(notice);
                    }
                }
                Press::Same => {}
                Press::Again => low_level::exit(status(signal)),
            };
            // SAFETY: the handler does nothing but read the clock, operate on atomics, and call `write` or `_exit`, which are safe in
            // handlers of signals.
            unsafe { low_level::register(signal, answer) }?;
        }
        Ok(INSTALLED.get_or_init(|| interrupt).clone())
    }

    /// As [`install`](Self::install), for a training, which saves its work. The first interrupt is answered at once, for its step may
    /// take long; of several processes the `first` answers, but not to SIGTERM.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn of_training(first: bool) -> Result<Self, Failure> {
        let interrupt = Self::install()?;
        interrupt.answers.store(first, Ordering::Relaxed);
        Ok(interrupt)
    }

    /// Whether there was an interrupt.
    pub fn is_noted(&self) -> bool {
        self.signal.load(Ordering::Relaxed) != 0
    }

    /// The end of a program that was interrupted, this process or another that works with it, with a line that says how to go on.
    pub fn end(&self, line: String) -> Interrupted {
        let signal = match self.signal.load(Ordering::Relaxed) {
            // It was another process's, which did not say which.
            0 => SIGINT,
            signal => signal as i32,
        };
        Interrupted { signal, line }
    }
}

/// What a signal is, after those before it.
#[derive(Debug, PartialEq, Eq)]
enum Press {
    First,
    /// The first one, which was sent more than once.
    Same,
    Again,
}

/// What a signal is that comes after so many milliseconds; `first` notes the first one, and is 0 before it.
fn press(first: &AtomicU64, millis: u64) -> Press {
    let now = millis + 1;
    match first.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => Press::First,
        Err(first) if now < first + AGAIN_MILLIS => Press::Same,
        Err(_) => Press::Again,
    }
}

/// Writes to standard error what cannot wait until a handler has returned. A terminal that was closed is no fault.
#[cfg(unix)]
fn write_in_handler(text: &str) {
    // SAFETY: the pointer and the length are those of `text`.
    unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
}

/// The same where handlers run in a thread of their own.
#[cfg(not(unix))]
fn write_in_handler(text: &str) {
    let _ = std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes());
}

/// The signals that are taken over.
fn signals() -> Vec<i32> {
    let mut signals = vec![SIGINT, SIGTERM];
    #[cfg(unix)]
    {
        signals.push(SIGUSR1);
        if !ignored(SIGHUP) {
            signals.push(SIGHUP);
        }
    }
    signals
}

/// Whether the process ignores a signal.
#[cfg(unix)]
fn ignored(signal: i32) -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action, `sigaction` only writes the present one to `action`, for which all zeros are a valid value.
    let action = unsafe {
        match libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) {
            0 => action.assume_init(),
            _ => return false,
        }
    };
    action.sa_sigaction == libc::SIG_IGN
}

/// A program was interrupted and has saved its work.
#[derive(Debug)]
pub struct Interrupted {
    signal: i32,
    line: String,
}

impl Interrupted {
    /// The exit status: 128 and the number of the signal, as shells report it.
    pub fn status(&self) -> u8 {
        status(self.signal) as u8
    }
}

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

impl std::error::Error for Interrupted {}

fn status(signal: i32) -> i32 {
    128 + signal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_another_stopped_ends_as_at_ctrl_c() {
        let noted = |signal: i32| {
            let interrupt = Interrupt::default();
            interrupt.signal.store(signal as usize, Ordering::Relaxed);
            interrupt.end(String::new()).status()
        };
        assert_eq!([noted(0), noted(SIGINT), noted(SIGTERM)], [130, 130, 143]);
    }

    #[test]
    fn only_a_later_signal_is_another() {
        let first = AtomicU64::new(0);
        let presses = [0, 0, 499, 500].map(|millis| press(&first, millis));
        assert_eq!(presses, [Press::First, Press::Same, Press::Same, Press::Again]);
    }

    #[test]
    #[cfg(unix)]
    fn a_signal_is_noted() {
        let interrupt = Interrupt::install().unwrap();
        low_level::raise(SIGTERM).unwrap();
        assert!(interrupt.is_noted());
        assert_eq!(interrupt.end(String::new()).status(), 143);
    }
}
