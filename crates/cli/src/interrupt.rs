//! Ctrl-C and the system's request to end: work is saved first.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::failure::Failure;

/// Notes the first interrupt; a second one ends the program at once.
#[derive(Debug, Clone, Default)]
pub struct Interrupt {
    /// The signal, 0 before any.
    signal: Arc<AtomicUsize>,
}

impl Interrupt {
    /// Takes over SIGINT and SIGTERM.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn install() -> Result<Self, Failure> {
        let interrupt = Self::default();
        let noted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // Handlers run in this order: the first signal finds the flag unset and sets it.
            flag::register_conditional_shutdown(signal, status(signal), noted.clone())?;
            flag::register(signal, noted.clone())?;
            flag::register_usize(signal, interrupt.signal.clone(), signal as usize)?;
        }
        Ok(interrupt)
    }

    /// Whether there was an interrupt.
    pub fn is_noted(&self) -> bool {
        self.signal.load(Ordering::Relaxed) != 0
    }

    /// The end of a program that was interrupted, with a line that says how to go on.
    pub fn end(&self, line: String) -> Interrupted {
        Interrupted { signal: self.signal.load(Ordering::Relaxed) as i32, line }
    }
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
