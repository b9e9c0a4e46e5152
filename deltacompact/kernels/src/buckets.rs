//! Hash buckets: the digest as one big number, modulo the bucket count. Also groups entries by bucket.
//!
//! ```text
//! bucket count 3     entries in     a:2  b:0  c:2  d:1         letter: entry, number: its bucket
//!                    entries out    b | d | a c                a before c, as in the input
//!                    offsets        0 1 2 4                    bucket 2 is entries 2 to 3
//! ```
//!
//! A fold copies the entries of a bucket in digest order, from all over the memory. So entries for a fold are also sorted
//! by the first bits of their digests, by as many bits as cost nothing: then the fold finds the next entries in the cache.

use crate::entries::Entries;
use crate::sha1::{DIGEST_BYTES, Digest};

/// x mod count for 160-bit x. With limbs x4..x0 of 32 bits: sum of x_i * (2^(32 i) mod count), which fits 64 bits for
/// counts up to 2^29; above that the limbs are folded in one by one.
pub struct Modulus {
    count: u64,
    powers: [u64; 5],
}

impl Modulus {
    pub fn new(count: u32) -> Self {
        let count = u64::from(count);
        let mut powers = [1 % count; 5];
        for i in 1..5 {
            powers[i] = (powers[i - 1] << 32) % count;
        }
        Self { count, powers }
    }

    #[inline]
    pub fn bucket(&self, digest: &Digest) -> u32 {
        let limbs = digest.as_chunks::<4>().0;
        let limb = |i: usize| u64::from(u32::from_be_bytes(limbs[4 - i]));
        let rest = if self.count.is_power_of_two() {
            limb(0) & (self.count - 1)
        } else if self.count <= 1 << 29 {
            (0..5).map(|i| limb(i) * self.powers[i]).sum::<u64>() % self.count
        } else {
            (0..5).rev().fold(0, |rest, i| (rest << 32 | limb(i)) % self.count)
        };
        rest as u32
    }
}

/// The bucket of each digest.
pub fn fill(digests: &[Digest], count: u32, out: &mut [u32]) {
    let modulus = Modulus::new(count);
    out.iter_mut().zip(digests).for_each(|(bucket, digest)| *bucket = modulus.bucket(digest));
}

/// Copying to so many places at once is as fast as copying to one place: their cache lines fit the first-level cache.
const PLACES: usize = 512;
/// A place gets at least so many entries. With fewer, most of the work would be to find the place.
const PLACE_ENTRIES: usize = 64;

/// The number of leading digest bits to sort by, in addition to the bucket.
pub fn bits_for_fold(entries: usize, count: u32) -> u32 {
    let places = PLACES.min(entries / PLACE_ENTRIES) / (count as usize).max(1);
    places.checked_ilog2().unwrap_or(0)
}

/// Where each entry goes: its bucket, and below that the first `bits` bits of its digest.
pub struct Grouping {
    bits: u32,
    of_entry: Vec<u32>,
    /// The first entry of each place, and the end of the last.
    starts: Vec<usize>,
}

impl Grouping {
    /// `bits` must be small: the number of places, `count << bits`, fits 32 bits.
    pub fn new(parts: &[Entries], count: u32, bits: u32) -> Self {
        let modulus = Modulus::new(count);
        let mut of_entry = Vec::with_capacity(parts.iter().map(Entries::len).sum());
        for part in parts {
            of_entry.extend(part.iter().map(|entry| {
                let first_bits = entry.prefix().checked_shr(64 - bits).unwrap_or(0) as u32;
                modulus.bucket(entry.digest()) << bits | first_bits
            }));
        }
        let mut starts = vec![0; ((count as usize) << bits) + 1];
        of_entry.iter().for_each(|&place| starts[place as usize + 1] += 1);
        for place in 1..starts.len() {
            starts[place] += starts[place - 1];
        }
        Self { bits, of_entry, starts }
    }

    /// The offset of each bucket, and the end of the last.
    pub fn offsets(&self, offsets: &mut [i64]) {
        let first_places = self.starts.iter().step_by(1 << self.bits);
        offsets.iter_mut().zip(first_places).for_each(|(offset, &start)| *offset = start as i64);
    }

    /// Copies every entry to its place. Entries of a place keep the order of the parts.
    pub fn scatter(self, parts: &[Entries], out: &mut [u8]) {
        scatter(parts, &self.of_entry, self.starts, out);
    }
}

fn scatter(parts: &[Entries], of_entry: &[u32], mut next: Vec<usize>, out: &mut [u8]) {
    let mut of_entry = of_entry.iter();
    for part in parts {
        match part.width() {
            32 => scatter_part::<32>(part, &mut of_entry, &mut next, out),
            41 => scatter_part::<41>(part, &mut of_entry, &mut next, out),
            width => {
                for (entry, &place) in part.iter().zip(&mut of_entry) {
                    let to = &mut next[place as usize];
                    out[*to * width..(*to + 1) * width].copy_from_slice(entry.bytes());
                    *to += 1;
                }
            }
        }
    }
}

/// The same with a width that the compiler knows: entries without a sort key, or with one of eight bytes.
fn scatter_part<const W: usize>(part: &Entries, of_entry: &mut std::slice::Iter<u32>, next: &mut [usize], out: &mut [u8]) {
    let from = part.bytes().as_chunks::<W>().0;
    let out = out.as_chunks_mut::<W>().0;
    for (entry, &place) in from.iter().zip(of_entry) {
        let to = &mut next[place as usize];
        out[*to] = *entry;
        *to += 1;
    }
}

/// Digests as they lie in a byte matrix of 20 columns.
pub fn as_digests(bytes: &[u8]) -> &[Digest] {
    bytes.as_chunks::<DIGEST_BYTES>().0
}
