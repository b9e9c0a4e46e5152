//! An entry stands for a row in every step before materialize.
//!
//! ```text
//! digest[20] | sort key[S] | file ordinal u32 LE | row u64 LE          W = 32 + S bytes
//!
//! upsert       5d41..  | 01 85 | 07000000 | 0300000000000000     file 7, row 3
//! delete       5d41..  | 01 86 | 08000000 | 0500000000000080     file 8, row 5, bit 63: delete
//! keyless      5d41..  | 00 00 | 08000000 | 06000000000000c0     bits 63 and 62: delete, whatever sort key the key has
//! tombstone    5d41..  | 01 86 | ffffffff | e803000000000000     deleted at stream position 1000 with that sort key
//! ```
//!
//! Only new entries have the flag bits, only a base index and a fold's output have tombstones.

use crate::sha1::{DIGEST_BYTES, Digest};

/// Bytes of digest, ordinal and row. The sort key is in addition.
pub const FIXED_BYTES: usize = 32;
const ROW_BYTES: usize = 8;
const POINTER_BYTES: usize = 12;

pub const TOMBSTONE: u32 = u32::MAX;
/// File number in a newer run of an index: the key is gone, although an older run has an entry for it.
pub const GONE: u32 = u32::MAX - 1;
pub const DELETE: u64 = 1 << 63;
pub const KEYLESS: u64 = 1 << 62;
pub const FLAGS: u64 = DELETE | KEYLESS;

/// One entry, borrowed.
#[derive(Clone, Copy)]
pub struct Entry<'a>(&'a [u8]);

impl<'a> Entry<'a> {
    /// `bytes` is one entry.
    #[inline(always)]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    #[inline(always)]
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    #[inline(always)]
    pub fn digest(self) -> &'a Digest {
        self.0.first_chunk().unwrap_or(&[0; DIGEST_BYTES])
    }

    /// The digest's first eight bytes as a number. It orders like the digest, unless the bytes are equal.
    #[inline(always)]
    pub fn prefix(self) -> u64 {
        u64::from_be_bytes(*self.0.first_chunk().unwrap_or(&[0; 8]))
    }

    /// Digest and sort key.
    #[inline(always)]
    pub fn key(self) -> &'a [u8] {
        &self.0[..self.0.len() - POINTER_BYTES]
    }

    #[inline(always)]
    pub fn sort_key(self) -> &'a [u8] {
        &self.0[DIGEST_BYTES..self.0.len() - POINTER_BYTES]
    }

    #[inline(always)]
    pub fn ordinal(self) -> u32 {
        let pointer: &[u8; POINTER_BYTES] = self.0.last_chunk().unwrap_or(&[0; POINTER_BYTES]);
        u32::from_le_bytes(*pointer.first_chunk().unwrap_or(&[0; 4]))
    }

    /// The row with its flags, or the position of a tombstone.
    #[inline(always)]
    pub fn row(self) -> u64 {
        u64::from_le_bytes(*self.0.last_chunk::<ROW_BYTES>().unwrap_or(&[0; ROW_BYTES]))
    }

    /// File ordinal and row of a new entry, without flags.
    #[inline(always)]
    pub fn row_pointer(self) -> (u32, u64) {
        (self.ordinal(), self.row() & !FLAGS)
    }
}

/// Entries of one width, one after another.
#[derive(Clone, Copy)]
pub struct Entries<'a> {
    bytes: &'a [u8],
    width: usize,
    len: usize,
}

impl<'a> Entries<'a> {
    /// `bytes` holds whole entries of `width`, which is at least 32.
    pub fn new(bytes: &'a [u8], width: usize) -> Self {
        Self::with_len(bytes, width, bytes.len() / width)
    }

    /// The same with a known number of entries. This saves a division, which is slow compared to the work on an entry.
    #[inline(always)]
    pub fn with_len(bytes: &'a [u8], width: usize, len: usize) -> Self {
        debug_assert!(width >= FIXED_BYTES && bytes.len() == len * width);
        Self { bytes, width, len }
    }

    /// The entries from the i-th on.
    #[inline(always)]
    pub fn from(&self, i: usize) -> Self {
        Self { bytes: &self.bytes[i * self.width..], width: self.width, len: self.len - i }
    }

    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    pub fn width(&self) -> usize {
        self.width
    }

    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    pub fn get(&self, i: usize) -> Entry<'a> {
        Entry(&self.bytes[i * self.width..(i + 1) * self.width])
    }

    pub fn iter(&self) -> impl Iterator<Item = Entry<'a>> {
        self.bytes.chunks_exact(self.width).map(Entry)
    }
}

/// Writes entries one after another into a given buffer.
pub struct EntryWriter<'a> {
    room: &'a mut [u8],
    width: usize,
    at: usize,
}

impl<'a> EntryWriter<'a> {
    pub fn new(room: &'a mut [u8], width: usize) -> Self {
        Self { room, width, at: 0 }
    }

    /// The number of written entries.
    pub fn len(&self) -> usize {
        self.at / self.width
    }

    #[inline(always)]
    pub fn push(&mut self, entry: Entry) {
        copy_entry(&mut self.room[self.at..self.at + self.width], entry.bytes());
        self.at += self.width;
    }

    pub fn extend_from(&mut self, entries: &[Entry]) {
        let room = &mut self.room[self.at..self.at + self.width * entries.len()];
        self.at += room.len();
        for (to, entry) in room.chunks_exact_mut(self.width).zip(entries) {
            copy_entry(to, entry.bytes());
        }
    }

    /// An entry with another pointer.
    #[inline(always)]
    pub fn push_pointing(&mut self, entry: Entry, ordinal: u32, row: u64) {
        let to = &mut self.room[self.at..self.at + self.width];
        copy_entry(to, entry.bytes());
        to[self.width - POINTER_BYTES..].copy_from_slice(&pointer(ordinal, row));
        self.at += self.width;
    }

    /// A tombstone with the digest and the sort key of another entry.
    pub fn push_tombstone(&mut self, of: Entry, position: i64) {
        let (key, rest) = self.room[self.at..self.at + self.width].split_at_mut(of.key().len());
        key.copy_from_slice(of.key());
        rest.copy_from_slice(&pointer(TOMBSTONE, position as u64));
        self.at += self.width;
    }

    /// Appends whole entries, unchanged.
    pub fn extend(&mut self, entries: &[u8]) {
        self.room[self.at..self.at + entries.len()].copy_from_slice(entries);
        self.at += entries.len();
    }
}

/// Copies up to 64 bytes as two pieces of 32 bytes, which may overlap: that needs no call of memcpy.
#[inline(always)]
fn copy_entry(to: &mut [u8], from: &[u8]) {
    const HALF: usize = 32;
    if from.len() <= 2 * HALF
        && let (Some(first), Some(last)) = (from.first_chunk::<HALF>(), from.last_chunk::<HALF>())
    {
        let behind = to.len() - HALF;
        to[..HALF].copy_from_slice(first);
        to[behind..].copy_from_slice(last);
    } else {
        to.copy_from_slice(from);
    }
}

/// The last twelve bytes of an entry.
#[inline(always)]
pub fn pointer(ordinal: u32, row: u64) -> [u8; POINTER_BYTES] {
    let mut out = [0; POINTER_BYTES];
    out[..4].copy_from_slice(&ordinal.to_le_bytes());
    out[4..].copy_from_slice(&row.to_le_bytes());
    out
}

/// Fills `out` with one entry per digest; `sort_keys` has `sort_key_bytes` for each.
pub fn pack(digests: &[Digest], sort_keys: &[u8], sort_key_bytes: usize, ordinal: u32, rows: &[u64], out: &mut [u8]) {
    if sort_key_bytes == 0 {
        for ((entry, digest), &row) in out.as_chunks_mut::<FIXED_BYTES>().0.iter_mut().zip(digests).zip(rows) {
            entry[..DIGEST_BYTES].copy_from_slice(digest);
            entry[DIGEST_BYTES..].copy_from_slice(&pointer(ordinal, row));
        }
        return;
    }
    let entries = out.chunks_exact_mut(FIXED_BYTES + sort_key_bytes);
    for (((entry, digest), sort_key), &row) in entries.zip(digests).zip(sort_keys.chunks_exact(sort_key_bytes)).zip(rows) {
        entry[..DIGEST_BYTES].copy_from_slice(digest);
        entry[DIGEST_BYTES..DIGEST_BYTES + sort_key_bytes].copy_from_slice(sort_key);
        entry[DIGEST_BYTES + sort_key_bytes..].copy_from_slice(&pointer(ordinal, row));
    }
}

/// Strictly ascending by digest: sorted, and no key twice.
pub fn is_ascending(entries: &Entries) -> bool {
    (1..entries.len()).all(|i| precedes(entries.get(i - 1), entries.get(i)))
}

#[inline(always)]
pub fn precedes(a: Entry, b: Entry) -> bool {
    let (x, y) = (a.prefix(), b.prefix());
    x < y || (x == y && a.digest() < b.digest())
}
