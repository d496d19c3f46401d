//! What can go wrong in a program.

/// Anything that can end a program; its `Display` is one line.
pub type Failure = Box<dyn std::error::Error>;
