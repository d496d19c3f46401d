//! What can go wrong in a program.

/// Anything that can end a program; its `Display` is one line.
pub type Failure = Box<dyn std::error::Error>;

/// The end of a program that did all it could, but not all of its work. The line says what is missing.
#[derive(Debug)]
pub struct Incomplete(pub String);

impl std::fmt::Display for Incomplete {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Incomplete {}
