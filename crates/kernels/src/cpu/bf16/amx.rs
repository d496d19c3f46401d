//! AMX: `tdpbf16ps` multiplies sixteen rows of sixteen pairs with sixteen columns of them, and adds to a tile of 256 sums.
//!
//! There are eight tiles: six for sums of 32 rows and [`WIDTH`] columns, one for either factor. A tile is read from memory as it
//! is packed, the left factor from lines, the right one from a panel; rounding and packing are those of vectors. The products
//! take so little time that reading and writing take most of it: hence [`turns`](super::product::turns), the [depth](Instructions::DEPTH) and
//! what is fetched ahead.

use core::arch::asm;
use core::arch::x86_64::*;
use core::mem::MaybeUninit;
use std::sync::OnceLock;

use faer::MatMut;

use super::avx512::{Avx512, first, transposed};
use super::{Instructions, LANES, Left, Tile, Tiles, WIDTH};
use crate::cpu::matrix::{Factor, fetch_ahead};

/// Rows of a tile register, and pairs of one of its rows.
const SIDE: usize = 16;

/// Rows of two tile registers.
const HEIGHT: usize = 2 * SIDE;

/// Bytes of a line of cache, and of a row of a tile register.
const LINE: usize = 64;

/// Proof that the processor has the instructions, and that this process may use them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cpu) struct Amx(Avx512);

impl Amx {
    /// The instructions, if this processor has them and the system allows their use.
    pub(in crate::cpu) fn new() -> Option<Self> {
        static FOUND: OnceLock<bool> = OnceLock::new();
        let vectors = Avx512::new()?;
        FOUND.get_or_init(|| has_instructions() && is_allowed()).then_some(Self(vectors))
    }
}

/// Whether the processor multiplies tiles of bfloat16.
fn has_instructions() -> bool {
    const BF16: u32 = 1 << 22;
    const TILES: u32 = 1 << 24;
    __cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx & (BF16 | TILES) == BF16 | TILES
}

/// Asks the system for the tiles, whose eight kilobytes it saves for threads that have used them. Granted for all threads of
/// the process, once and for all.
#[cfg(all(target_os = "linux", not(miri)))]
fn is_allowed() -> bool {
    /// `ARCH_REQ_XCOMP_PERM`, and the number of the state.
    const REQUEST: libc::c_long = 0x1023;
    const TILES: libc::c_long = 18;
    // SAFETY: the call reads and writes no memory of this process.
    unsafe { libc::syscall(libc::SYS_arch_prctl, REQUEST, TILES) == 0 }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn is_allowed() -> bool {
    false
}

/// What the processor is told of its tiles.
#[repr(C, align(64))]
struct Config {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    bytes: [u16; 16],
    rows: [u8; 16],
}

/// Eight tiles of the full size.
static CONFIG: Config = {
    let (mut bytes, mut rows) = ([0; 16], [0; 16]);
    let mut tile = 0;
    while tile < 8 {
        bytes[tile] = LINE as u16;
        rows[tile] = SIDE as u8;
        tile += 1;
    }
    Config { palette: 1, start_row: 0, reserved: [0; 14], bytes, rows }
};

/// Gives the tiles back when it is dropped: the system then saves them no more.
struct Release;

impl Drop for Release {
    fn drop(&mut self) {
        // SAFETY: made where the tiles are in use.
        unsafe { asm!("tilerelease", options(nomem, nostack, preserves_flags)) };
    }
}

impl Instructions for Amx {
    const HEIGHT: usize = HEIGHT;
    const STEP: usize = SIDE;
    // Sums are read and written again for every part, which costs more than a panel that is not in the first level of cache.
    const DEPTH: usize = 640;

    fn pack_left(self, words: &mut [u32], a: Factor<'_, f32>) {
        self.0.pack_left_for::<Self>(words, a);
    }

    fn pack_right(self, words: &mut [u32], b: Factor<'_, f32>) {
        self.0.pack_right_for::<Self>(words, b);
    }

    fn few_rows(self, out: MatMut<'_, f32>, left: Left<'_>, b: Factor<'_, f32>, accumulate: bool) {
        self.0.few_rows(out, left, b, accumulate);
    }

    fn make(self, tiles: Tiles<'_, Self>) {
        // SAFETY: the processor has the instruction, and the process may use tiles.
        unsafe {
            asm!("ldtilecfg [{config}]", config = in(reg) &raw const CONFIG, options(readonly, nostack, preserves_flags));
        }
        let _configured = Release;
        // SAFETY: the processor has the instructions, the words and sums are those of `tiles`, and the configuration stays:
        // nothing but tiles is made before it is released.
        tiles.each(|tile| unsafe { make(tile) });
    }
}

/// Makes a tile.
///
/// # Safety
/// The processor must have the instructions and tiles be configured. The words that the tile describes must be readable, and
/// its sums readable and writable.
#[inline(always)]
unsafe fn make(tile: &Tile) {
    let mut room = Room([MaybeUninit::uninit(); HEIGHT * WIDTH]);
    let beside = Tile { out: room.0.as_mut_ptr().cast(), out_row: WIDTH, out_column: 1, ..*tile };
    // SAFETY: the caller's; there is room for a tile.
    unsafe {
        if tile.out_column != 1 {
            sums(&Tile { accumulate: false, ..beside });
            return turn(tile, beside.out);
        }
        // A row of a register across two lines of cache takes several times as long.
        let aligned = tile.out.addr().is_multiple_of(LINE) && (4 * tile.out_row).is_multiple_of(LINE);
        if aligned && tile.rows.is_multiple_of(SIDE) && tile.columns.is_multiple_of(LANES) {
            // The next tile's lines: they are far apart, so the processor does not see them come.
            let next = tile.out.wrapping_add(HEIGHT * tile.out_row);
            for row in 0..HEIGHT {
                fetch_ahead(next.wrapping_add(row * tile.out_row), tile.columns);
            }
            return sums(tile);
        }
        // Whole registers beside the result, added to what was there: the order of sums is the same.
        if tile.accumulate {
            copy_in(tile, beside.out);
        }
        sums(&beside);
        copy_out(tile, beside.out);
    }
}

/// Room for a tile of the result.
#[repr(C, align(64))]
struct Room([MaybeUninit<f32>; HEIGHT * WIDTH]);

/// Copies a tile's sums to rows of [`WIDTH`], with zeros in the rest of the registers that read them.
///
/// # Safety
/// The processor must have the instructions, the sums be readable, and a tile of whole registers be writable at `to`.
#[target_feature(enable = "avx512f")]
unsafe fn copy_in(tile: &Tile, to: *mut f32) {
    for row in 0..tile.rows.next_multiple_of(SIDE) {
        for column in (0..tile.columns).step_by(LANES) {
            let mask = if row < tile.rows { first(tile.columns - column) } else { 0 };
            // SAFETY: the caller's; other lanes are not read.
            unsafe {
                let sums = _mm512_maskz_loadu_ps(mask, tile.out.wrapping_add(row * tile.out_row + column));
                _mm512_storeu_ps(to.add(row * WIDTH + column), sums);
            }
        }
    }
}

/// Copies a tile's sums from rows of [`WIDTH`] to the result.
///
/// # Safety
/// The processor must have the instructions, the sums be readable at `from`, and those of the result writable.
#[target_feature(enable = "avx512f")]
unsafe fn copy_out(tile: &Tile, from: *const f32) {
    for row in 0..tile.rows {
        for column in (0..tile.columns).step_by(LANES) {
            // SAFETY: the caller's; registers are whole, and lanes outside of the tile are not written.
            unsafe {
                let sums = _mm512_loadu_ps(from.add(row * WIDTH + column));
                let mask = first(tile.columns - column);
                _mm512_mask_storeu_ps(tile.out.add(row * tile.out_row + column), mask, sums);
            }
        }
    }
}

/// Writes or adds a tile's sums, which are in rows of [`WIDTH`], to a result whose rows are contiguous.
///
/// # Safety
/// The processor must have the instructions, and the sums be readable and the result's writable.
#[target_feature(enable = "avx512f")]
unsafe fn turn(tile: &Tile, sums: *const f32) {
    for top in (0..tile.rows).step_by(LANES) {
        let mask = first(tile.rows - top);
        for left in (0..tile.columns).step_by(LANES) {
            let mut rows = [_mm512_setzero_si512(); LANES];
            for (row, lanes) in rows.iter_mut().enumerate() {
                // SAFETY: the caller's; registers are whole.
                *lanes = unsafe { _mm512_loadu_si512(sums.add((top + row) * WIDTH + left).cast()) };
            }
            for (column, lanes) in (left..tile.columns).zip(transposed(rows)) {
                // SAFETY: the caller's; other lanes are switched off.
                unsafe {
                    let out = tile.out.add(top + column * tile.out_column);
                    let before =
                        if tile.accumulate { _mm512_maskz_loadu_ps(mask, out) } else { _mm512_setzero_ps() };
                    _mm512_mask_storeu_ps(out, mask, _mm512_add_ps(before, _mm512_castsi512_ps(lanes)));
                }
            }
        }
    }
}

/// Makes a tile of whole registers, as many as it takes to cover its rows and columns.
///
/// # Safety
/// As for [`make`], for all of these rows and columns.
unsafe fn sums(tile: &Tile) {
    // SAFETY: the caller's.
    unsafe {
        match (tile.rows.div_ceil(SIDE), tile.columns.div_ceil(LANES)) {
            (1, 1) => sums_1_1(tile),
            (1, 2) => sums_1_2(tile),
            (1, _) => sums_1_3(tile),
            (_, 1) => sums_2_1(tile),
            (_, 2) => sums_2_2(tile),
            _ => sums_2_3(tile),
        }
    }
}

/// A line of assembly: a tile from or to memory, whose rows are so far apart.
macro_rules! moved {
    (load $tile:literal $from:literal $row:literal $offset:literal) => {
        concat!("tileloadd tmm", $tile, ", [{", $from, "} + {", $row, "}*1 + ", $offset, "]")
    };
    (store $tile:literal $to:literal $row:literal $offset:literal) => {
        concat!("tilestored [{", $to, "} + {", $row, "}*1 + ", $offset, "], tmm", $tile)
    };
}

/// A line of assembly of a step along the inner product: the left factor's next tile (6) of the upper or lower rows, the right
/// factor's (7) of some columns, or a product.
macro_rules! step {
    (upper) => {
        moved!(load 6 "left" "left_row" 0)
    };
    (lower) => {
        moved!(load 6 "lower_left" "left_row" 0)
    };
    (column $offset:literal) => {
        moved!(load 7 "right" "right_row" $offset)
    };
    (sum $tile:literal) => {
        concat!("tdpbf16ps tmm", $tile, ", tmm6, tmm7")
    };
}

/// The function of a size: its tiles of sums, with their rows' place and columns' offset in bytes, and what a step does.
macro_rules! sums {
    ($name:ident, columns $columns:literal, [$($sum:literal $at:literal $offset:literal),+], [$($step:ident $($place:literal)?),+]) => {
        /// # Safety
        /// As [`sums`].
        unsafe fn $name(tile: &Tile) {
            let (left_row, out_row) = (4 * tile.left_row, 4 * tile.out_row);
            let lower_left = tile.left.cast::<u8>().wrapping_add(SIDE * left_row);
            let lower_out = tile.out.cast::<u8>().wrapping_add(SIDE * out_row);
            // SAFETY: the caller vouches for what is read and written, and has configured the tiles.
            unsafe {
                asm!(
                    "test {add:e}, {add:e}",
                    "jnz 2f",
                    $(concat!("tilezero tmm", $sum),)+
                    "jmp 3f",
                    "2:",
                    $(moved!(load $sum $at "out_row" $offset),)+
                    "3:",
                    $(step!($step $($place)?),)+
                    "add {left}, 64",
                    "add {lower_left}, 64",
                    concat!("add {right}, 1024*", $columns),
                    "dec {steps}",
                    "jnz 3b",
                    $(moved!(store $sum $at "out_row" $offset),)+
                    // Not every size has lower rows.
                    "/* {lower_out} */",
                    add = in(reg) u32::from(tile.accumulate),
                    left = inout(reg) tile.left => _,
                    lower_left = inout(reg) lower_left => _,
                    left_row = in(reg) left_row,
                    right = inout(reg) tile.right => _,
                    right_row = in(reg) 64usize * $columns,
                    out = in(reg) tile.out,
                    lower_out = in(reg) lower_out,
                    out_row = in(reg) out_row,
                    steps = inout(reg) tile.pairs / SIDE => _,
                    out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                    out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                    options(nostack),
                );
            }
        }
    };
}

sums!(sums_1_1, columns 1, [0 "out" 0], [upper, column 0, sum 0]);
sums!(sums_1_2, columns 2, [0 "out" 0, 1 "out" 64], [upper, column 0, sum 0, column 64, sum 1]);
sums!(
    sums_1_3, columns 3,
    [0 "out" 0, 1 "out" 64, 2 "out" 128],
    [upper, column 0, sum 0, column 64, sum 1, column 128, sum 2]
);
sums!(sums_2_1, columns 1, [0 "out" 0, 3 "lower_out" 0], [upper, column 0, sum 0, lower, sum 3]);
sums!(
    sums_2_2, columns 2,
    [0 "out" 0, 1 "out" 64, 3 "lower_out" 0, 4 "lower_out" 64],
    [upper, column 0, sum 0, column 64, sum 1, lower, sum 4, column 0, sum 3]
);
sums!(
    sums_2_3, columns 3,
    [0 "out" 0, 1 "out" 64, 2 "out" 128, 3 "lower_out" 0, 4 "lower_out" 64, 5 "lower_out" 128],
    [
        upper, column 0, sum 0, column 64, sum 1, column 128, sum 2,
        lower, sum 5, column 64, sum 4, column 0, sum 3
    ]
);

#[cfg(test)]
mod tests {
    use core::ptr::null;

    use super::*;

    /// The registers of a tile at an edge read more than its sums.
    #[test]
    fn what_registers_read_beside_a_tile_is_zero() {
        if Avx512::new().is_none() {
            return;
        }
        let mut out = [7.0f32; HEIGHT * WIDTH];
        for (rows, columns) in [(1, 1), (3, 17), (16, 33), (17, 48), (31, 5)] {
            let tile = Tile {
                rows,
                columns,
                pairs: SIDE,
                left: null(),
                left_row: SIDE,
                left_pair: 1,
                right: null(),
                out: out.as_mut_ptr(),
                out_row: WIDTH,
                out_column: 1,
                accumulate: true,
            };
            let mut room = [f32::NAN; HEIGHT * WIDTH];
            // SAFETY: the processor has the instructions, and both places have room for any tile.
            unsafe { copy_in(&tile, room.as_mut_ptr()) };
            for (i, x) in room.into_iter().enumerate() {
                let (row, column) = (i / WIDTH, i % WIDTH);
                if row < rows && column < columns {
                    assert_eq!(x, 7.0, "row {row}, column {column} of {rows} × {columns}");
                } else if row < rows.next_multiple_of(SIDE) && column < columns.next_multiple_of(LANES) {
                    assert_eq!(x, 0.0, "row {row}, column {column} of {rows} × {columns}");
                }
            }
        }
    }
}
