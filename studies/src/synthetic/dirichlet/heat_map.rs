//! The grid's outcomes as heat maps: one a head and concentration, vocabulary by dimension.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::synthetic::dirichlet::grid::{Outcome, contexts};
use crate::synthetic::report::distinct;
use program::args::Head;
use program::failure::Failure;
use program::picture::{Area, CAPTION, FONT, Picture, TEXT};

/// What is drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Quantity {
    /// Mean divergence in nats: the lighter the better.
    Kl,
    /// Share of contexts with the true mode: the lighter the better.
    ModeMatch,
}

/// A column of maps for every concentration, a row for every head. Every cell has its number in it.
pub struct HeatMaps<'a> {
    outcomes: &'a [Outcome],
    quantity: Quantity,
    alphas: Vec<f64>,
    words: Vec<usize>,
    dims: Vec<usize>,
    heads: Vec<Head>,
}

const CELL: (i32, i32) = (62, 28);
/// Room for a head's name and the dimensions on the left, for caption and concentrations above, for the words below.
const LEFT: i32 = 150;
const TOP: i32 = 76;
const BELOW: i32 = 30;
const GAP: i32 = 26;

impl<'a> HeatMaps<'a> {
    /// The maps of one of the results; heads in the order in which they come.
    pub fn new(outcomes: &'a [Outcome], quantity: Quantity) -> Self {
        let sizes = |of: fn(&Outcome) -> usize| {
            let mut sizes = distinct(outcomes.iter().map(of));
            sizes.sort_unstable();
            sizes
        };
        let mut alphas = distinct(outcomes.iter().map(|outcome| outcome.alpha));
        alphas.sort_by(f64::total_cmp);
        Self {
            outcomes,
            quantity,
            alphas,
            words: sizes(|outcome| outcome.words),
            dims: sizes(|outcome| outcome.d),
            heads: distinct(outcomes.iter().map(|outcome| outcome.head)),
        }
    }

    fn map_size(&self) -> (i32, i32) {
        (CELL.0 * self.words.len() as i32, CELL.1 * self.dims.len() as i32)
    }

    fn outcome(&self, head: Head, alpha: f64, words: usize, d: usize) -> Option<&Outcome> {
        let same = |it: &&Outcome| (it.head, it.alpha, it.words, it.d) == (head, alpha, words, d);
        self.outcomes.iter().find(same)
    }

    /// The cell's text, and its darkness in [0, 1]; none of a fit that diverged.
    fn look(&self, outcome: &Outcome) -> Option<(String, f64)> {
        match self.quantity {
            // From the smallest, white, to the largest, dark, on a logarithmic scale.
            Quantity::Kl => {
                let place = |kl: f64| kl.max(1e-9).ln();
                let all = || self.outcomes.iter().filter_map(|outcome| outcome.kl.map(place));
                let (low, high) =
                    (all().fold(f64::INFINITY, f64::min), all().fold(f64::NEG_INFINITY, f64::max));
                let kl = outcome.kl?;
                Some((format!("{kl:.3}"), (place(kl) - low) / (high - low).max(f64::MIN_POSITIVE)))
            }
            Quantity::ModeMatch => outcome.mode_match.map(|share| (format!("{share:.3}"), 1.0 - share)),
        }
    }
}

impl Picture for HeatMaps<'_> {
    fn size(&self) -> (u32, u32) {
        let (width, height) = self.map_size();
        let (columns, rows) = (self.alphas.len() as i32, self.heads.len() as i32);
        ((LEFT + columns * (width + GAP)) as u32, (TOP + rows * (height + GAP) + BELOW) as u32)
    }

    fn draw(&self, area: &Area<'_>) -> Result<(), Failure> {
        let write = |text: &str, place: (i32, i32), size: u32, h: HPos, color: RGBColor| {
            let style = (FONT, size).into_font().color(&color).pos(Pos::new(h, VPos::Center));
            area.draw(&Text::new(text.to_string(), place, style))
        };
        let (width, height) = self.map_size();
        let caption = match self.quantity {
            Quantity::Kl => "Mean KL(truth || model), nats (less is better)",
            Quantity::ModeMatch => "Share of contexts whose mode is right (more is better)",
        };
        write(caption, (12, 20), CAPTION, HPos::Left, BLACK)?;
        let sides = format!("{} contexts; rows: dimension d; columns: words M", contexts(self.outcomes));
        write(&sides, (12, 42), TEXT, HPos::Left, BLACK)?;
        for (column, &alpha) in self.alphas.iter().enumerate() {
            let x = LEFT + column as i32 * (width + GAP);
            write(&format!("alpha = {alpha}"), (x + width / 2, TOP - 12), TEXT, HPos::Center, BLACK)?;
            for (row, &head) in self.heads.iter().enumerate() {
                let y = TOP + row as i32 * (height + GAP);
                if column == 0 {
                    write(head.name(), (12, y + height / 2), TEXT, HPos::Left, BLACK)?;
                }
                for (i, &d) in self.dims.iter().enumerate() {
                    let top = y + i as i32 * CELL.1;
                    if column == 0 {
                        write(&format!("{d}"), (x - 8, top + CELL.1 / 2), TEXT, HPos::Right, BLACK)?;
                    }
                    for (j, &words) in self.words.iter().enumerate() {
                        let left = x + j as i32 * CELL.0;
                        let outcome = self.outcome(head, alpha, words, d);
                        let Some((text, darkness)) = outcome.and_then(|it| self.look(it)) else { continue };
                        let shade = (255.0 - 200.0 * darkness) as u8;
                        let corners = [(left, top), (left + CELL.0, top + CELL.1)];
                        let grey = RGBColor(shade, shade, shade);
                        area.draw(&Rectangle::new(corners, grey.filled()))?;
                        area.draw(&Rectangle::new(corners, BLACK.stroke_width(1)))?;
                        let ink = if shade < 130 { WHITE } else { BLACK };
                        let middle = (left + CELL.0 / 2, top + CELL.1 / 2);
                        write(&text, middle, TEXT, HPos::Center, ink)?;
                    }
                }
                for (j, words) in self.words.iter().enumerate() {
                    let middle = x + j as i32 * CELL.0 + CELL.0 / 2;
                    write(&format!("{words}"), (middle, y + height + 10), TEXT - 2, HPos::Center, BLACK)?;
                }
            }
        }
        Ok(())
    }
}
