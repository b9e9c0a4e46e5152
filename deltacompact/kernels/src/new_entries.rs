//! New entries in the order of the fold: by digest, and for one key by (ordinal, row).
//!
//! ```text
//! parts           [ 9c@f7.r0  03@f7.r1  9c@f7.r2 ]  [ 41@f8.r0  9c@f8.r1 ]
//! numbers              0         1         2             3         4
//! partitions      by the first bits of the digest: { 03.1 41.3 } { 9c.0 9c.2 9c.4 }      8 bytes an entry
//! one at a time   a partition is sorted and copied when the fold reaches it: 03 41 | 9c@f7.r0 9c@f7.r2 9c@f8.r1
//! ```
//!
//! Digests are uniform, so partitions are small and of similar size. The entries stay in the caller's arrays, and only
//! one partition at a time is copied. A hot key makes its partition large: sorting that one costs n log n.

use crate::Refused;
use crate::entries::{Entries, Entry, EntryWriter, FLAGS, KEYLESS};
use crate::sha1::Digest;

/// Entries of a partition, if there are enough entries: its copy fits the first-level cache.
const PARTITION_ENTRIES: usize = 128;
const PARTITION_BITS_MAX: u32 = 16;

pub struct NewEntries {
    width: usize,
    places: Places,
    /// The number of first bits of the digest that select the partition.
    bits: u32,
    /// By partition: the 32 bits of the digest after those that select the partition, then the entry's number.
    order: Vec<u64>,
    /// Where the next partition ends in `order`, last one first.
    ends: Vec<u32>,
    /// Where the next partition begins.
    from: usize,
    /// The current partition, in order.
    sorted: Vec<u8>,
    /// The number of entries in the current partition, and of those that were taken.
    len: usize,
    taken: usize,
}

impl NewEntries {
    /// Checks every entry: its ordinal is below `ordinals`, and only deletes are keyless.
    pub fn new(parts: &[Entries], width: usize, ordinals: usize) -> Result<Self, Refused> {
        let places = Places::new(parts)?;
        let n = places.total();
        let bits = (n / PARTITION_ENTRIES).checked_ilog2().map_or(0, |log| log + 1).min(PARTITION_BITS_MAX);

        let mut next = vec![0u32; (1 << bits) + 1];
        for (i, part) in parts.iter().enumerate() {
            for (row, entry) in part.iter().enumerate() {
                check(entry, ordinals).map_err(|why| format!("new entries, part {i}, row {row}: {why}"))?;
                next[partition(entry.prefix(), bits) + 1] += 1;
            }
        }
        for i in 1..next.len() {
            next[i] += next[i - 1];
        }
        let mut order = vec![0; n];
        let entries = parts.iter().flat_map(Entries::iter);
        for (number, entry) in entries.enumerate() {
            let to = &mut next[partition(entry.prefix(), bits)];
            order[*to as usize] = (entry.prefix() << bits) & !u64::from(u32::MAX) | number as u64;
            *to += 1;
        }
        // each partition is full, so its next free place is its end
        next.pop();
        next.reverse();
        Ok(Self { width, places, bits, order, ends: next, from: 0, sorted: Vec::new(), len: 0, taken: 0 })
    }

    /// Advances by `taken` entries. False: no entry is left.
    #[inline(always)]
    pub fn advance(&mut self, taken: usize, parts: &[Entries]) -> Result<bool, Refused> {
        self.taken += taken;
        while self.taken == self.len {
            let Some(end) = self.ends.pop() else { return Ok(false) };
            self.load(end as usize, parts)?;
        }
        Ok(true)
    }

    /// Checks that the parts have as many entries as when the fold was made.
    pub fn check_parts(&self, parts: &[Entries]) -> Result<(), Refused> {
        let n: usize = parts.iter().map(Entries::len).sum();
        if n == self.order.len() { Ok(()) } else { Err(changed()) }
    }

    /// An upper bound of the number of entries with a prefix up to this one.
    pub fn count_to(&self, prefix: u64) -> usize {
        // `ends` has the last partition first, and lacks the partitions that are done
        let end = self.ends.get((1usize << self.bits) - 1 - partition(prefix, self.bits));
        let later = end.map_or(0, |&end| (end as usize).saturating_sub(self.from));
        self.at_hand().len() + later
    }

    /// The rest of the current partition, beginning with the next entry.
    #[inline(always)]
    pub fn at_hand(&self) -> Entries<'_> {
        Entries::with_len(&self.sorted, self.width, self.len).from(self.taken)
    }

    /// Sorts and copies the next partition.
    fn load(&mut self, end: usize, parts: &[Entries]) -> Result<(), Refused> {
        let keys = &mut self.order[self.from..end];
        self.from = end;
        keys.sort_unstable();
        (self.len, self.taken) = (keys.len(), 0);
        self.sorted.resize(self.len * self.width, 0);
        self.places.copy(keys, parts, &mut EntryWriter::new(&mut self.sorted, self.width));

        let mut from = 0;
        for alike in keys.chunk_by_mut(|a, b| a >> 32 == b >> 32) {
            let bytes = &mut self.sorted[from * self.width..(from + alike.len()) * self.width];
            from += alike.len();
            if alike.len() > 1 && !Entries::new(bytes, self.width).iter().is_sorted_by_key(order) {
                alike.sort_by(|&a, &b| {
                    let entry = |key: u64| self.places.entry(key as u32, parts);
                    order(entry(a)).cmp(&order(entry(b)))
                });
                self.places.copy(alike, parts, &mut EntryWriter::new(bytes, self.width));
            }
        }
        self.check_partition()
    }

    /// Checks that the current partition still agrees with the caller's arrays.
    fn check_partition(&self) -> Result<(), Refused> {
        let sorted = self.at_hand();
        let Some(last) = sorted.len().checked_sub(1) else { return Ok(()) };
        // `ends` has one element less for each partition up to this one
        let this = (1 << self.bits) - 1 - self.ends.len();
        let is_here = |entry: Entry| partition(entry.prefix(), self.bits) == this;
        if is_here(sorted.get(0)) && is_here(sorted.get(last)) { Ok(()) } else { Err(changed()) }
    }
}

fn order(entry: Entry<'_>) -> (&Digest, (u32, u64)) {
    (entry.digest(), entry.row_pointer())
}

/// Finds the part that has an entry by its number. For each block of numbers, a table gives the first part to look at.
struct Places {
    /// The first number after each part.
    behind: Vec<u32>,
    /// For each block of 2^`block_bits` numbers, the part with its first number.
    part_of_block: Vec<u32>,
    block_bits: u32,
}

impl Places {
    fn new(parts: &[Entries]) -> Result<Self, Refused> {
        let n: usize = parts.iter().map(Entries::len).sum();
        u32::try_from(n).map_err(|_| format!("{n} new entries, a fold takes at most {}", u32::MAX))?;
        let mut behind = Vec::with_capacity(parts.len());
        let mut part_of_block = Vec::new();
        let block_bits = (n / parts.len().max(1)).checked_ilog2().unwrap_or(0);
        let mut first = 0;
        for (i, part) in parts.iter().enumerate() {
            first += part.len();
            behind.push(first as u32);
            part_of_block.resize(first.div_ceil(1 << block_bits), i as u32);
        }
        Ok(Self { behind, part_of_block, block_bits })
    }

    fn total(&self) -> usize {
        self.behind.last().map_or(0, |&behind| behind as usize)
    }

    #[inline(always)]
    fn entry<'a>(&self, number: u32, parts: &[Entries<'a>]) -> Entry<'a> {
        let mut part = self.part_of_block[(number >> self.block_bits) as usize] as usize;
        while number >= self.behind[part] {
            part += 1;
        }
        let from_the_end = (self.behind[part] - number) as usize;
        parts[part].get(parts[part].len() - from_the_end)
    }

    /// Copies the entries of these keys. They are far apart in memory, and waiting for them takes most of a fold's time.
    /// The second loop does nothing but copy, so that the processor waits for many of them at once.
    fn copy(&self, keys: &[u64], parts: &[Entries], out: &mut EntryWriter) {
        let mut found = [Entry::new(&[]); COPIES_AT_ONCE];
        for keys in keys.chunks(COPIES_AT_ONCE) {
            let found = &mut found[..keys.len()];
            found.iter_mut().zip(keys).for_each(|(entry, &key)| *entry = self.entry(key as u32, parts));
            out.extend_from(found);
        }
    }
}

/// How many entries to fetch at once.
const COPIES_AT_ONCE: usize = 128;

/// The error that the caller's arrays have changed since the fold was made.
pub fn changed() -> Refused {
    "new entries: they were written to while the fold was using them".into()
}

#[inline(always)]
fn partition(prefix: u64, bits: u32) -> usize {
    prefix.checked_shr(64 - bits).unwrap_or(0) as usize
}

#[inline(always)]
fn check(entry: Entry, ordinals: usize) -> Result<(), Refused> {
    if entry.ordinal() as usize >= ordinals {
        return Err(format!("file ordinal {} has no position, there are {ordinals}", entry.ordinal()));
    }
    if entry.row() & FLAGS == KEYLESS {
        return Err(format!("row {:#x} is keyless (bit 62) but no delete (bit 63)", entry.row()));
    }
    Ok(())
}
