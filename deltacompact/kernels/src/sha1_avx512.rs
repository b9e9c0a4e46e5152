//! SHA-1 of sixteen messages at once, with AVX-512: one instruction for a rotation, one for each function of three words.
//!
//! ```text
//! message 0   w0 w1 w2 ... w15          register 0   w0 of messages 0 1 2 ... 15
//! message 1   w0 w1 w2 ... w15    ->    register 1   w1 of messages 0 1 2 ... 15
//! ```
//!
//! A message's block fits one register, so sixteen of them are transposed without going through memory.
#![allow(unsafe_code)]

use crate::sha1::{Block, INITIAL, Lanes};
use std::arch::x86_64::*;

pub fn avx512_is_supported() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw")
}

pub struct Avx512 {
    /// Word, then lane.
    state: [[u32; 16]; 5],
}

impl Lanes<16> for Avx512 {
    fn start() -> Self {
        assert!(avx512_is_supported());
        Self { state: INITIAL.map(|word| [word; 16]) }
    }

    #[inline]
    fn step(&mut self, blocks: [&Block; 16]) {
        // SAFETY: `start` has asserted that the instructions exist.
        unsafe { sixteen_blocks(&mut self.state, blocks) }
    }

    #[inline]
    fn words(&self, lane: usize) -> [u32; 5] {
        self.state.map(|word| word[lane])
    }
}

#[target_feature(enable = "avx512f,avx512bw")]
fn sixteen_blocks(state: &mut [[u32; 16]; 5], blocks: [&Block; 16]) {
    // SAFETY: a block is the 64 bytes that are loaded, unaligned.
    let mut w = big_endian_columns(blocks.map(|block| unsafe { _mm512_loadu_si512(block.as_ptr().cast()) }));
    // SAFETY: sixteen words are the 64 bytes that are loaded.
    let before = state.map(|word| unsafe { _mm512_loadu_si512(word.as_ptr().cast()) });
    let after = rounds(before, &mut w);
    for i in 0..5 {
        // SAFETY: sixteen words are the 64 bytes that are stored.
        unsafe { _mm512_storeu_si512(state[i].as_mut_ptr().cast(), _mm512_add_epi32(before[i], after[i])) };
    }
}

/// Transposes sixteen rows of sixteen words, each word big-endian.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn big_endian_columns(rows: [__m512i; 16]) -> [__m512i; 16] {
    let swap = _mm512_broadcast_i32x4(_mm_set_epi64x(0x0c0d_0e0f_0809_0a0b, 0x0405_0607_0001_0203));
    let rows = rows.map(|row| _mm512_shuffle_epi8(row, swap));
    // lane l of fours[4 g + c] has the words 4 l + c of the rows 4 g to 4 g + 3
    let mut fours = rows;
    for g in [0, 4, 8, 12] {
        let (low, high) = (_mm512_unpacklo_epi32(rows[g], rows[g + 1]), _mm512_unpackhi_epi32(rows[g], rows[g + 1]));
        let (low2, high2) = (_mm512_unpacklo_epi32(rows[g + 2], rows[g + 3]), _mm512_unpackhi_epi32(rows[g + 2], rows[g + 3]));
        fours[g] = _mm512_unpacklo_epi64(low, low2);
        fours[g + 1] = _mm512_unpackhi_epi64(low, low2);
        fours[g + 2] = _mm512_unpacklo_epi64(high, high2);
        fours[g + 3] = _mm512_unpackhi_epi64(high, high2);
    }
    const EVEN: i32 = 0x88;
    const ODD: i32 = 0xdd;
    let mut columns = rows;
    for c in 0..4 {
        let (even, odd) =
            (_mm512_shuffle_i32x4::<EVEN>(fours[c], fours[4 + c]), _mm512_shuffle_i32x4::<ODD>(fours[c], fours[4 + c]));
        let (even2, odd2) = (
            _mm512_shuffle_i32x4::<EVEN>(fours[8 + c], fours[12 + c]),
            _mm512_shuffle_i32x4::<ODD>(fours[8 + c], fours[12 + c]),
        );
        columns[c] = _mm512_shuffle_i32x4::<EVEN>(even, even2);
        columns[4 + c] = _mm512_shuffle_i32x4::<EVEN>(odd, odd2);
        columns[8 + c] = _mm512_shuffle_i32x4::<ODD>(even, even2);
        columns[12 + c] = _mm512_shuffle_i32x4::<ODD>(odd, odd2);
    }
    columns
}

/// Which bit comes out, for the eight cases of b, c, d.
const CHOOSE: i32 = 0xca;
const PARITY: i32 = 0x96;
const MAJORITY: i32 = 0xe8;

/// Twenty rounds with one function of b, c, d and one constant, in steps of five, after which the five words are in
/// their places again.
macro_rules! quarter {
    ($from:expr, $k:expr, $f:ident, $s:ident, $w:ident) => {
        let k = _mm512_set1_epi32($k as i32);
        for t in ($from..$from + 20).step_by(5) {
            let [mut a, mut b, mut c, mut d, mut e] = $s;
            (e, b) = round::<$f>([a, b, c, d, e], k, word($w, t));
            (d, a) = round::<$f>([e, a, b, c, d], k, word($w, t + 1));
            (c, e) = round::<$f>([d, e, a, b, c], k, word($w, t + 2));
            (b, d) = round::<$f>([c, d, e, a, b], k, word($w, t + 3));
            (a, c) = round::<$f>([b, c, d, e, a], k, word($w, t + 4));
            $s = [a, b, c, d, e];
        }
    };
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn rounds(mut s: [__m512i; 5], w: &mut [__m512i; 16]) -> [__m512i; 5] {
    quarter!(0, 0x5a82_7999u32, CHOOSE, s, w);
    quarter!(20, 0x6ed9_eba1u32, PARITY, s, w);
    quarter!(40, 0x8f1b_bcdcu32, MAJORITY, s, w);
    quarter!(60, 0xca62_c1d6u32, PARITY, s, w);
    s
}

/// Returns the new word (in the place of e) and b rotated.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn round<const F: i32>([a, b, c, d, e]: [__m512i; 5], k: __m512i, w: __m512i) -> (__m512i, __m512i) {
    let sum = _mm512_add_epi32(_mm512_add_epi32(e, _mm512_add_epi32(k, w)), _mm512_ternarylogic_epi32::<F>(b, c, d));
    (_mm512_add_epi32(sum, _mm512_rol_epi32::<5>(a)), _mm512_rol_epi32::<30>(b))
}

/// The message word of round t; sixteen are kept.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn word(w: &mut [__m512i; 16], t: usize) -> __m512i {
    if t >= 16 {
        let three = _mm512_ternarylogic_epi32::<PARITY>(w[(t + 13) & 15], w[(t + 8) & 15], w[(t + 2) & 15]);
        w[t & 15] = _mm512_rol_epi32::<1>(_mm512_xor_si512(three, w[t & 15]));
    }
    w[t & 15]
}
