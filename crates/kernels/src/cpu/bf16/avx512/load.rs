//! Loading f32 or bfloat16 from memory as pairs of bfloat16 in vectors.

use core::arch::x86_64::*;
use core::mem::transmute;

use burn::tensor::bf16;

use crate::cpu::bf16::LANES;

/// f32 or bfloat16 in memory.
pub(super) trait Load: Copy {
    /// `count` numbers, at most 32, as pairs of neighbours; 0 for those behind.
    ///
    /// # Safety
    /// The numbers must be readable, and the processor have the instructions.
    unsafe fn pairs(numbers: *const Self, count: usize) -> __m512i;

    /// `count` numbers of two lines, at most 16 of each, as pairs of one from either; 0 for those behind.
    ///
    /// # Safety
    /// As for [`pairs`](Self::pairs).
    unsafe fn from_lines(even: *const Self, odd: *const Self, count: usize) -> __m512i;
}

/// The first `count` lanes of sixteen, or all.
#[inline(always)]
pub(in crate::cpu::bf16) fn first(count: usize) -> u16 {
    if count >= LANES { u16::MAX } else { (1 << count) - 1 }
}

impl Load for f32 {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
    unsafe fn pairs(numbers: *const Self, count: usize) -> __m512i {
        // SAFETY: lanes that are switched off are not read; the others are the caller's.
        unsafe {
            let low = _mm512_maskz_loadu_ps(first(count), numbers);
            let high = _mm512_maskz_loadu_ps(first(count.saturating_sub(LANES)), numbers.wrapping_add(LANES));
            transmute(_mm512_cvtne2ps_pbh(high, low))
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
    unsafe fn from_lines(even: *const Self, odd: *const Self, count: usize) -> __m512i {
        // SAFETY: as above.
        unsafe {
            let even = _mm512_maskz_loadu_ps(first(count), even);
            let odd = _mm512_maskz_loadu_ps(first(count), odd);
            interleaved(transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(odd, even)))
        }
    }
}

impl Load for bf16 {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
    unsafe fn pairs(numbers: *const Self, count: usize) -> __m512i {
        let mask = if count >= 2 * LANES { u32::MAX } else { (1 << count) - 1 };
        // SAFETY: lanes that are switched off are not read; the others are the caller's.
        unsafe { _mm512_maskz_loadu_epi16(mask, numbers.cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
    unsafe fn from_lines(even: *const Self, odd: *const Self, count: usize) -> __m512i {
        // SAFETY: as above.
        unsafe {
            let even = _mm256_maskz_loadu_epi16(first(count), even.cast());
            let odd = _mm256_maskz_loadu_epi16(first(count), odd.cast());
            interleaved(_mm512_inserti64x4::<1>(_mm512_castsi256_si512(even), odd))
        }
    }
}

/// The first sixteen of 32 numbers, each followed by its partner among the last sixteen.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn interleaved(halves: __m512i) -> __m512i {
    let places = _mm512_set_epi16(
        31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18,
        2, 17, 1, 16, 0,
    );
    _mm512_permutexvar_epi16(places, halves)
}
