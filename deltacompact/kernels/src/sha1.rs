//! SHA-1 of many short messages, which share the lanes of one processor; `sha1_backend.rs` selects the code.
//!
//! A padded message is a whole number of 64-byte blocks. A kernel works on N messages at once, one block of each per step,
//! so messages of similar length are processed together. Sorted by length, with N = 4:
//!
//! ```text
//! blocks:   a 1   b 1   c 2   d 2
//! step 1    a1    b1    c1    d1      a and b are done, their digests are taken
//! step 2    a1    b1    c2    d2      c and d are done; the lanes of a and b idle
//! ```

pub const DIGEST_BYTES: usize = 20;
pub const BLOCK_BYTES: usize = 64;
pub const INITIAL: [u32; 5] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];

pub type Digest = [u8; DIGEST_BYTES];
pub type Block = [u8; BLOCK_BYTES];

/// One padded message: where its blocks are in the arena, and which digest it makes.
#[derive(Clone, Copy)]
pub struct Message {
    pub first_block: u32,
    pub blocks: u32,
    pub digest: u32,
}

/// A compression function over N messages at once.
pub trait Lanes<const N: usize>: Sized {
    fn start() -> Self;
    fn step(&mut self, blocks: [&Block; N]);
    fn words(&self, lane: usize) -> [u32; 5];
}

/// Digests messages that are sorted by their number of blocks.
pub fn digest_with<const N: usize, L: Lanes<N>>(arena: &[Block], messages: &[Message], out: &mut [Digest]) {
    for group in messages.chunks(N) {
        let mut lanes = L::start();
        let lane = |i: usize| group.get(i).unwrap_or(&group[0]);
        for step in 0..group[group.len() - 1].blocks {
            lanes.step(std::array::from_fn(|i| {
                let message = lane(i);
                &arena[(message.first_block + step.min(message.blocks - 1)) as usize]
            }));
            for (i, message) in group.iter().enumerate() {
                if message.blocks == step + 1 {
                    out[message.digest as usize] = to_bytes(lanes.words(i));
                }
            }
        }
    }
}

#[inline(always)]
fn to_bytes(words: [u32; 5]) -> Digest {
    let mut out = [0; DIGEST_BYTES];
    for (to, word) in out.as_chunks_mut::<4>().0.iter_mut().zip(words) {
        *to = word.to_be_bytes();
    }
    out
}

/// Portable code for any processor: one message at a time.
pub struct Portable([u32; 5]);

impl Lanes<1> for Portable {
    fn start() -> Self {
        Self(INITIAL)
    }

    fn step(&mut self, [block]: [&Block; 1]) {
        let mut w = [0u32; 80];
        for (word, bytes) in w.iter_mut().zip(block.as_chunks::<4>().0) {
            *word = u32::from_be_bytes(*bytes);
        }
        for t in 16..80 {
            w[t] = (w[t - 3] ^ w[t - 8] ^ w[t - 14] ^ w[t - 16]).rotate_left(1);
        }
        let [mut a, mut b, mut c, mut d, mut e] = self.0;
        for (t, word) in w.into_iter().enumerate() {
            let (f, k) = match t / 20 {
                0 => ((b & c) | (!b & d), 0x5a82_7999),
                1 => (b ^ c ^ d, 0x6ed9_eba1),
                2 => ((b & c) | (b & d) | (c & d), 0x8f1b_bcdc),
                _ => (b ^ c ^ d, 0xca62_c1d6u32),
            };
            let next = a.rotate_left(5).wrapping_add(f).wrapping_add(e).wrapping_add(k).wrapping_add(word);
            (e, d, c, b, a) = (d, c, b.rotate_left(30), a, next);
        }
        for (word, add) in self.0.iter_mut().zip([a, b, c, d, e]) {
            *word = word.wrapping_add(add);
        }
    }

    fn words(&self, _lane: usize) -> [u32; 5] {
        self.0
    }
}
