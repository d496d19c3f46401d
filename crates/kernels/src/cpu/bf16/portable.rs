//! The twin of the instructions in plain Rust, one number after the other: what they are compared with.

use burn::tensor::bf16;
use faer::MatMut;

use super::{Instructions, LANES, Left, LeftLayout, PANEL, Tiles, WIDTH, pairs, right_len};
use crate::cpu::matrix::Factor;
use crate::cpu::matrix::testing::at;

/// Works on every processor, with tiles of a height and pairs taken some at a time as those of its twin.
#[derive(Debug, Clone, Copy)]
pub(super) struct Portable<const HEIGHT: usize, const STEP: usize>;

/// The twin of vectors of sums.
pub(super) const VECTORS: Portable<8, 1> = Portable;

/// The twin of tiles of sums.
pub(super) const TILES: Portable<32, 16> = Portable;

/// An element of a factor, rounded; 0 outside.
fn element(factor: Factor<'_, f32>, row: usize, column: usize) -> bf16 {
    if row >= factor.rows() || column >= factor.columns() {
        return bf16::ZERO;
    }
    match factor {
        Factor::Wide(matrix) => bf16::from_f32(at(matrix, row, column)),
        Factor::Short(matrix) => at(matrix, row, column),
    }
}

fn word(even: bf16, odd: bf16) -> u32 {
    u32::from(even.to_bits()) | u32::from(odd.to_bits()) << 16
}

fn products(a: u32, b: u32) -> f32 {
    let halves = |word: u32| [word << 16, word & 0xffff_0000].map(f32::from_bits);
    let ([a, c], [b, d]) = (halves(a), halves(b));
    a * b + c * d
}

impl<const HEIGHT: usize, const STEP: usize> Instructions for Portable<HEIGHT, STEP> {
    const HEIGHT: usize = HEIGHT;
    const STEP: usize = STEP;
    const DEPTH: usize = 320;

    fn pack_left(self, words: &mut [u32], a: Factor<'_, f32>) {
        let layout = LeftLayout::of::<Self>(a);
        assert_eq!(words.len(), layout.len);
        for row in 0..a.rows() {
            for pair in 0..pairs::<Self>(a.columns()) {
                let place = row / PANEL * layout.panel + row % PANEL * layout.row + pair * layout.pair;
                words[place] = word(element(a, row, 2 * pair), element(a, row, 2 * pair + 1));
            }
        }
    }

    fn pack_right(self, words: &mut [u32], b: Factor<'_, f32>) {
        assert_eq!(words.len(), right_len::<Self>(b.rows(), b.columns()));
        let pairs = pairs::<Self>(b.rows());
        for first in (0..b.columns()).step_by(WIDTH) {
            let width = WIDTH.min(b.columns() - first).next_multiple_of(LANES);
            let panel = &mut words[first * pairs..][..pairs * width];
            for (place, out) in panel.iter_mut().enumerate() {
                let (pair, column) = (place / width, first + place % width);
                *out = word(element(b, 2 * pair, column), element(b, 2 * pair + 1, column));
            }
        }
    }

    fn few_rows(self, mut out: MatMut<'_, f32>, left: Left<'_>, b: Factor<'_, f32>, accumulate: bool) {
        assert!(b.is_transposed() && left.layout.pair == 1);
        for row in 0..out.nrows() {
            let words = &left.words[row * left.layout.row..];
            for column in 0..b.columns() {
                let pairs = (0..b.rows().div_ceil(2)).zip(words);
                let sum: f32 = pairs
                    .map(|(pair, left)| {
                        products(*left, word(element(b, 2 * pair, column), element(b, 2 * pair + 1, column)))
                    })
                    .sum();
                out[(row, column)] = if accumulate { out[(row, column)] + sum } else { sum };
            }
        }
    }

    fn make(self, tiles: Tiles<'_, Self>) {
        tiles.each(|tile| {
            let width = tile.columns.next_multiple_of(LANES);
            for row in 0..tile.rows {
                for column in 0..tile.columns {
                    let mut sum = 0.0;
                    for pair in 0..tile.pairs {
                        // SAFETY: a word of the tile.
                        sum += unsafe {
                            products(
                                tile.left.add(row * tile.left_row + pair * tile.left_pair).read(),
                                tile.right.add(pair * width + column).read(),
                            )
                        };
                    }
                    // SAFETY: a sum of the tile.
                    unsafe {
                        let out = tile.out.add(row * tile.out_row + column * tile.out_column);
                        out.write(if tile.accumulate { out.read() + sum } else { sum });
                    }
                }
            }
        });
    }
}
