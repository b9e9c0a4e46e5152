//! Hash buckets: the digest as one big number, modulo the bucket count. Also groups entries by bucket.
//!
//! ```text
//! bucket count 3     entries in     a:2  b:0  c:2  d:1         letter: entry, number: its bucket
//!                    entries out    b | d | a c                a before c, as they came
//!                    offsets        0 1 2 4                    bucket 2 is entries 2 to 3
//! ```

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

/// The offset of each bucket, with the end of the last. Also the bucket of each entry, in order.
pub fn bucket_offsets(parts: &[Entries], count: u32, offsets: &mut [i64]) -> Vec<u32> {
    let modulus = Modulus::new(count);
    let mut of_entry = Vec::with_capacity(parts.iter().map(Entries::len).sum());
    for part in parts {
        of_entry.extend(part.iter().map(|entry| modulus.bucket(entry.digest())));
    }
    of_entry.iter().for_each(|&bucket| offsets[bucket as usize + 1] += 1);
    for bucket in 1..offsets.len() {
        offsets[bucket] += offsets[bucket - 1];
    }
    of_entry
}

/// Copies every entry to its bucket. Entries of a bucket keep the order of the parts.
pub fn scatter(parts: &[Entries], of_entry: &[u32], offsets: &[i64], out: &mut [u8]) {
    let mut next: Vec<usize> = offsets.iter().map(|&offset| offset as usize).collect();
    let mut of_entry = of_entry.iter();
    for part in parts {
        match part.width() {
            32 => scatter_part::<32>(part, &mut of_entry, &mut next, out),
            41 => scatter_part::<41>(part, &mut of_entry, &mut next, out),
            width => {
                for (entry, &bucket) in part.iter().zip(&mut of_entry) {
                    let to = &mut next[bucket as usize];
                    out[*to * width..(*to + 1) * width].copy_from_slice(entry.bytes());
                    *to += 1;
                }
            }
        }
    }
}

/// The same with a width the compiler knows: no sort key, or one of eight bytes.
fn scatter_part<const W: usize>(part: &Entries, of_entry: &mut std::slice::Iter<u32>, next: &mut [usize], out: &mut [u8]) {
    let from = part.bytes().as_chunks::<W>().0;
    let out = out.as_chunks_mut::<W>().0;
    for (entry, &bucket) in from.iter().zip(of_entry) {
        let to = &mut next[bucket as usize];
        out[*to] = *entry;
        *to += 1;
    }
}

/// Digests as they lie in a byte matrix of 20 columns.
pub fn as_digests(bytes: &[u8]) -> &[Digest] {
    bytes.as_chunks::<DIGEST_BYTES>().0
}
