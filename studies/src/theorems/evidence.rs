//! What every theorem is shown with.

use serde::Serialize;

use program::chart::Chart;

/// The measurements about one theorem.
pub trait Evidence: Serialize {
    /// Whether every measurement agrees with the theorem.
    fn holds(&self) -> bool;

    /// The measurements as lines of text.
    fn text(&self) -> String;

    /// Their picture.
    fn chart(&self) -> Chart;
}
