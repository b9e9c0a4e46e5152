//! SHA-1 with vector instructions, which are called only if the processor has them.
//!
//! ```text
//! ShaNi   two messages at once; one SHA instruction does four rounds of one message, and while it works the other's run
//! Avx2    eight messages at once; word t of all eight is one register, so a block of eight messages is transposed
//!         message 0   w0 w1 w2 ... w15          register 0   w0 of messages 0 1 2 3 4 5 6 7
//!         message 1   w0 w1 w2 ... w15    ->    register 1   w1 of messages 0 1 2 3 4 5 6 7
//! ```
#![allow(unsafe_code)]

use crate::sha1::{Block, INITIAL, Lanes};
use std::arch::x86_64::*;

pub fn sha_ni_is_supported() -> bool {
    is_x86_feature_detected!("sha") && is_x86_feature_detected!("sse4.1") && is_x86_feature_detected!("ssse3")
}

pub fn avx2_is_supported() -> bool {
    is_x86_feature_detected!("avx2")
}

pub struct ShaNi {
    states: [[u32; 5]; 2],
}

impl Lanes<2> for ShaNi {
    fn start() -> Self {
        assert!(sha_ni_is_supported());
        Self { states: [INITIAL; 2] }
    }

    #[inline]
    fn step(&mut self, blocks: [&Block; 2]) {
        // SAFETY: `start` has asserted that the instructions exist.
        unsafe { sha_ni_two_blocks(&mut self.states, blocks) }
    }

    #[inline]
    fn words(&self, lane: usize) -> [u32; 5] {
        self.states[lane]
    }
}

/// Four rounds of each message: `$i` counts the groups of four, 0 to 19.
macro_rules! sha_ni_group {
    ($i:expr, $abcd:ident, $previous:ident, $w:ident) => {
        for s in 0..2 {
            if $i >= 4 {
                let mixed = _mm_xor_si128(_mm_sha1msg1_epu32($w[s][$i % 4], $w[s][($i + 1) % 4]), $w[s][($i + 2) % 4]);
                $w[s][$i % 4] = _mm_sha1msg2_epu32(mixed, $w[s][($i + 3) % 4]);
            }
            let e =
                if $i == 0 { _mm_add_epi32($previous[s], $w[s][0]) } else { _mm_sha1nexte_epu32($previous[s], $w[s][$i % 4]) };
            $previous[s] = $abcd[s];
            $abcd[s] = _mm_sha1rnds4_epu32::<{ $i / 5 }>($abcd[s], e);
        }
    };
}

#[target_feature(enable = "sha,sse2,ssse3,sse4.1")]
fn sha_ni_two_blocks(states: &mut [[u32; 5]; 2], blocks: [&Block; 2]) {
    let big_endian = _mm_set_epi64x(0x0001_0203_0405_0607, 0x0809_0a0b_0c0d_0e0f);
    let mut w = [[_mm_setzero_si128(); 4]; 2];
    let mut abcd = [_mm_setzero_si128(); 2];
    let mut previous = [_mm_setzero_si128(); 2];
    for s in 0..2 {
        w[s] = [0, 16, 32, 48].map(|at| {
            // SAFETY: a block is 64 bytes, the load takes 16 of them unaligned.
            let words = unsafe { _mm_loadu_si128(blocks[s].as_ptr().add(at).cast()) };
            _mm_shuffle_epi8(words, big_endian)
        });
        let [a, b, c, d, e] = states[s].map(|word| word as i32);
        abcd[s] = _mm_set_epi32(a, b, c, d);
        previous[s] = _mm_set_epi32(e, 0, 0, 0);
    }
    let (abcd_before, e_before) = (abcd, previous);
    sha_ni_group!(0, abcd, previous, w);
    sha_ni_group!(1, abcd, previous, w);
    sha_ni_group!(2, abcd, previous, w);
    sha_ni_group!(3, abcd, previous, w);
    sha_ni_group!(4, abcd, previous, w);
    sha_ni_group!(5, abcd, previous, w);
    sha_ni_group!(6, abcd, previous, w);
    sha_ni_group!(7, abcd, previous, w);
    sha_ni_group!(8, abcd, previous, w);
    sha_ni_group!(9, abcd, previous, w);
    sha_ni_group!(10, abcd, previous, w);
    sha_ni_group!(11, abcd, previous, w);
    sha_ni_group!(12, abcd, previous, w);
    sha_ni_group!(13, abcd, previous, w);
    sha_ni_group!(14, abcd, previous, w);
    sha_ni_group!(15, abcd, previous, w);
    sha_ni_group!(16, abcd, previous, w);
    sha_ni_group!(17, abcd, previous, w);
    sha_ni_group!(18, abcd, previous, w);
    sha_ni_group!(19, abcd, previous, w);
    for s in 0..2 {
        let e = _mm_sha1nexte_epu32(previous[s], e_before[s]);
        let sum = _mm_add_epi32(abcd[s], abcd_before[s]);
        states[s] = [
            _mm_extract_epi32::<3>(sum) as u32,
            _mm_extract_epi32::<2>(sum) as u32,
            _mm_extract_epi32::<1>(sum) as u32,
            _mm_extract_epi32::<0>(sum) as u32,
            _mm_extract_epi32::<3>(e) as u32,
        ];
    }
}

pub struct Avx2 {
    /// Word, then lane.
    state: [[u32; 8]; 5],
}

impl Lanes<8> for Avx2 {
    fn start() -> Self {
        assert!(avx2_is_supported());
        Self { state: INITIAL.map(|word| [word; 8]) }
    }

    #[inline]
    fn step(&mut self, blocks: [&Block; 8]) {
        // SAFETY: `start` has asserted that the instructions exist.
        unsafe { avx2_eight_blocks(&mut self.state, blocks) }
    }

    #[inline]
    fn words(&self, lane: usize) -> [u32; 5] {
        self.state.map(|word| word[lane])
    }
}

#[target_feature(enable = "avx2")]
fn avx2_eight_blocks(state: &mut [[u32; 8]; 5], blocks: [&Block; 8]) {
    let mut w = [_mm256_setzero_si256(); 16];
    for half in 0..2 {
        // SAFETY: a block is 64 bytes, the load takes 32 of them unaligned.
        let rows = blocks.map(|block| unsafe { _mm256_loadu_si256(block.as_ptr().add(32 * half).cast()) });
        w[8 * half..8 * half + 8].copy_from_slice(&big_endian_columns(rows));
    }
    // SAFETY: eight words are the 32 bytes that are loaded.
    let before = state.map(|word| unsafe { _mm256_loadu_si256(word.as_ptr().cast()) });
    let after = avx2_rounds(before, &mut w);
    for i in 0..5 {
        // SAFETY: eight words are the 32 bytes that are stored.
        unsafe { _mm256_storeu_si256(state[i].as_mut_ptr().cast(), _mm256_add_epi32(before[i], after[i])) };
    }
}

/// Transposes eight rows of eight words, each word big-endian.
#[target_feature(enable = "avx2")]
#[inline]
fn big_endian_columns(rows: [__m256i; 8]) -> [__m256i; 8] {
    let swap = _mm256_set_epi64x(0x0c0d_0e0f_0809_0a0b, 0x0405_0607_0001_0203, 0x0c0d_0e0f_0809_0a0b, 0x0405_0607_0001_0203);
    let [r0, r1, r2, r3, r4, r5, r6, r7] = rows.map(|row| _mm256_shuffle_epi8(row, swap));
    let pairs = |a, b| (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    let ((a0, a1), (a2, a3)) = (pairs(r0, r1), pairs(r2, r3));
    let ((b0, b1), (b2, b3)) = (pairs(r4, r5), pairs(r6, r7));
    let fours = |a, b| (_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
    let ((c0, c1), (c2, c3)) = (fours(a0, a2), fours(a1, a3));
    let ((d0, d1), (d2, d3)) = (fours(b0, b2), fours(b1, b3));
    let low = |a, b| _mm256_permute2x128_si256::<0x20>(a, b);
    let high = |a, b| _mm256_permute2x128_si256::<0x31>(a, b);
    [low(c0, d0), low(c1, d1), low(c2, d2), low(c3, d3), high(c0, d0), high(c1, d1), high(c2, d2), high(c3, d3)]
}

/// Twenty rounds with one function of b, c, d and one constant, in steps of five, after which the five words are in
/// their places again. `$w` gives the message word of a round.
macro_rules! avx2_quarter {
    ($from:expr, $k:expr, $f:ident, $s:ident, $w:ident) => {
        let k = _mm256_set1_epi32($k as i32);
        for t in ($from..$from + 20).step_by(5) {
            let [mut a, mut b, mut c, mut d, mut e] = $s;
            (e, b) = avx2_round(a, b, e, $f(b, c, d), k, word(&mut $w, t));
            (d, a) = avx2_round(e, a, d, $f(a, b, c), k, word(&mut $w, t + 1));
            (c, e) = avx2_round(d, e, c, $f(e, a, b), k, word(&mut $w, t + 2));
            (b, d) = avx2_round(c, d, b, $f(d, e, a), k, word(&mut $w, t + 3));
            (a, c) = avx2_round(b, c, a, $f(c, d, e), k, word(&mut $w, t + 4));
            $s = [a, b, c, d, e];
        }
    };
}

#[target_feature(enable = "avx2")]
#[inline]
fn avx2_rounds(mut s: [__m256i; 5], w: &mut [__m256i; 16]) -> [__m256i; 5] {
    let mut w = *w;
    avx2_quarter!(0, 0x5a82_7999u32, choose, s, w);
    avx2_quarter!(20, 0x6ed9_eba1u32, parity, s, w);
    avx2_quarter!(40, 0x8f1b_bcdcu32, majority, s, w);
    avx2_quarter!(60, 0xca62_c1d6u32, parity, s, w);
    s
}

/// Returns the new word (in the place of e) and b rotated.
#[target_feature(enable = "avx2")]
#[inline]
fn avx2_round(a: __m256i, b: __m256i, e: __m256i, f: __m256i, k: __m256i, w: __m256i) -> (__m256i, __m256i) {
    let sum = _mm256_add_epi32(_mm256_add_epi32(e, _mm256_add_epi32(k, w)), f);
    (_mm256_add_epi32(sum, rotate::<5, 27>(a)), rotate::<30, 2>(b))
}

/// The message word of round t; sixteen are kept.
#[target_feature(enable = "avx2")]
#[inline]
fn word(w: &mut [__m256i; 16], t: usize) -> __m256i {
    if t >= 16 {
        let early = _mm256_xor_si256(w[(t + 13) & 15], w[(t + 8) & 15]);
        let late = _mm256_xor_si256(w[(t + 2) & 15], w[t & 15]);
        w[t & 15] = rotate::<1, 31>(_mm256_xor_si256(early, late));
    }
    w[t & 15]
}

#[target_feature(enable = "avx2")]
#[inline]
fn rotate<const LEFT: i32, const RIGHT: i32>(x: __m256i) -> __m256i {
    _mm256_or_si256(_mm256_slli_epi32::<LEFT>(x), _mm256_srli_epi32::<RIGHT>(x))
}

#[target_feature(enable = "avx2")]
#[inline]
fn choose(b: __m256i, c: __m256i, d: __m256i) -> __m256i {
    _mm256_xor_si256(d, _mm256_and_si256(b, _mm256_xor_si256(c, d)))
}

#[target_feature(enable = "avx2")]
#[inline]
fn parity(b: __m256i, c: __m256i, d: __m256i) -> __m256i {
    _mm256_xor_si256(b, _mm256_xor_si256(c, d))
}

#[target_feature(enable = "avx2")]
#[inline]
fn majority(b: __m256i, c: __m256i, d: __m256i) -> __m256i {
    _mm256_or_si256(_mm256_and_si256(b, c), _mm256_and_si256(d, _mm256_or_si256(b, c)))
}
