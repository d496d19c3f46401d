//! Ctrl-C, the system's request to end, and a terminal that closes: work is saved first.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

#[cfg(unix)]
use signal_hook::consts::{SIGHUP, SIGUSR1};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::failure::Failure;

/// Notes the first interrupt; a second one ends the program at once.
#[derive(Debug, Clone, Default)]
pub struct Interrupt {
    /// The signal, 0 before any.
    signal: Arc<AtomicUsize>,
    /// Whether [`notice`](Self::notice) was asked after it.
    said: Arc<AtomicBool>,
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
        let noted = Arc::new(AtomicBool::new(false));
        for signal in signals() {
            // Handlers run in this order: the first signal finds the flag unset and sets it.
            flag::register_conditional_shutdown(signal, status(signal), noted.clone())?;
            flag::register(signal, noted.clone())?;
            flag::register_usize(signal, interrupt.signal.clone(), signal as usize)?;
        }
        Ok(INSTALLED.get_or_init(|| interrupt).clone())
    }

    /// Whether there was an interrupt.
    pub fn is_noted(&self) -> bool {
        self.signal.load(Ordering::Relaxed) != 0
    }

    /// What to tell the user when an interrupt is seen for the first time.
    pub fn notice(&self) -> Option<&'static str> {
        let first = self.is_noted() && !self.said.swap(true, Ordering::Relaxed);
        first.then_some(
            "stopping after this step to save; a second interrupt ends the program at once, unsaved",
        )
    }

    /// The end of a program that was interrupted, with a line that says how to go on.
    pub fn end(&self, line: String) -> Interrupted {
        Interrupted { signal: self.signal.load(Ordering::Relaxed) as i32, line }
    }
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
