//! Sums that do not depend on the order of their terms: floats as integers of 64 bits, in two atomic words.
//!
//! The sum counts units of 2⁻⁴⁰, so a term of 1 has 40 binary digits behind the point and 2²³ such terms fit. When the low
//! word overflows, the one unit of the device whose addition did it carries over into the high word.

// `#[cube]` makes a module beside each function, which cannot have documentation.
#![allow(missing_docs)]

use cubecl::prelude::*;

/// Words of memory that a sum takes.
pub const WORDS: usize = 2;

/// Units of the high and the low word in 1.
const HIGH: f32 = 256.0;
const LOW: f32 = 4_294_967_296.0;

/// Adds `term`, whose size is about 1 at most, to sum number `slot`.
#[cube]
pub fn add(sums: &[Atomic<u32>], slot: usize, term: f32) {
    // Both steps are exact: the product by a power of two, and what is behind the point of a number that is not negative.
    let scaled = term.abs() * HIGH;
    let whole = scaled.floor();
    let mut high = u32::cast_from(whole);
    let mut low = u32::cast_from((scaled - whole) * LOW);
    if term < 0.0 {
        // Two's complement of both words as one number.
        high = u32::MAX - high;
        low = u32::MAX - low + 1;
        if low == 0 {
            high += 1;
        }
    }
    if low != 0 {
        let before = sums[WORDS * slot].fetch_add(low);
        if before > u32::MAX - low {
            high += 1;
        }
    }
    // A small negative term that is taken from a positive sum needs no change of the high word.
    if high != 0 {
        sums[WORDS * slot + 1].fetch_add(high);
    }
}

/// The value of sum number `slot`.
#[cube]
pub fn value(sums: &[u32], slot: usize) -> f32 {
    let mut low = sums[WORDS * slot];
    let mut high = sums[WORDS * slot + 1];
    let mut sign = 1.0f32;
    if high >= 0x8000_0000u32 {
        sign = -1.0f32;
        high = u32::MAX - high;
        low = u32::MAX - low + 1;
        if low == 0 {
            high += 1;
        }
    }
    sign * (f32::cast_from(high) / HIGH + f32::cast_from(low) / (HIGH * LOW))
}
