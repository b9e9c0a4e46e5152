//! New entries in the order in which a fold wants them: by digest, and for one key by (ordinal, row).
//!
//! ```text
//! parts           [ 9c@f7.r0  03@f7.r1  9c@f7.r2 ]  [ 41@f8.r0  9c@f8.r1 ]
//! partitions      by the first bits of the digest: { 03 41 }  { 9c 9c 9c }        where each lies: 4 bytes an entry
//! one at a time   sorted when the fold comes to it: 03  41 | 9c@f7.r0  9c@f7.r2  9c@f8.r1
//! ```
//!
//! Digests are uniform, so that partitions are small and alike; the entries stay where the caller has them, and only
//! one partition at a time is copied. One hot key makes a large partition, and costs n log n for that one.

use crate::Refused;
use crate::entries::{Entries, Entry, EntryWriter, FLAGS, KEYLESS};

/// Entries of a partition where there are enough of them: a copy that fits the first-level cache.
const PARTITION_ENTRIES: usize = 128;
const PARTITION_BITS_MAX: u32 = 16;

pub struct NewEntries {
    width: usize,
    /// A partition is so many first bits of the digest.
    bits: u32,
    /// Entries by partition, each as its number among all parts' entries.
    order: Vec<u32>,
    /// Where the next partition ends in `order`, last one first.
    ends: Vec<u32>,
    /// Where it begins.
    from: usize,
    /// The partition at hand, as it came.
    copies: Vec<u8>,
    /// Its entries in order: digest prefix in the high bits, place in `copies` in the low 32.
    sorted: Vec<u128>,
    at: usize,
}

impl NewEntries {
    /// Checks every entry: its ordinal is below `ordinals`, and it is keyless only where it is a delete.
    pub fn new(parts: &[Entries], width: usize, ordinals: usize) -> Result<Self, Refused> {
        let n: usize = parts.iter().map(Entries::len).sum();
        u32::try_from(n).map_err(|_| format!("{n} new entries, a fold takes at most {}", u32::MAX))?;
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
            order[*to as usize] = number as u32;
            *to += 1;
        }
        // each partition's next free place is where it ends now
        next.pop();
        next.reverse();
        Ok(Self { width, bits, order, ends: next, from: 0, copies: Vec::new(), sorted: Vec::new(), at: 0 })
    }

    /// Makes the next entry available, `taken` behind the last one; false where there is none left.
    #[inline(always)]
    pub fn advance(&mut self, taken: usize, parts: &[Entries]) -> Result<bool, Refused> {
        self.at += taken;
        while self.at == self.sorted.len() {
            let Some(end) = self.ends.pop() else { return Ok(false) };
            self.load(end as usize, parts)?;
        }
        Ok(true)
    }

    /// At most so many entries have a prefix up to this one.
    pub fn count_to(&self, prefix: u64) -> usize {
        // `ends` has the last partition first, and no longer those that were at hand
        let end = self.ends.get((1usize << self.bits) - 1 - self.partition(prefix));
        let later = end.map_or(0, |&end| (end as usize).saturating_sub(self.from));
        self.sorted.len() - self.at + later
    }

    fn partition(&self, prefix: u64) -> usize {
        partition(prefix, self.bits)
    }

    /// The i-th entry from here, within the partition at hand.
    #[inline(always)]
    pub fn get(&self, i: usize) -> Entry<'_> {
        let place = self.sorted[self.at + i] as u32 as usize;
        Entries::new(&self.copies, self.width).get(place)
    }

    /// How many entries from here have the digest of the next one.
    #[inline(always)]
    pub fn same_key(&self) -> usize {
        let prefix = |i: usize| self.sorted.get(self.at + i).map(|key| key >> 32);
        let first = prefix(0);
        (1..).find(|&i| prefix(i) != first || self.get(i).digest() != self.get(0).digest()).unwrap_or(1)
    }

    fn load(&mut self, end: usize, parts: &[Entries]) -> Result<(), Refused> {
        let numbers = &self.order[self.from..end];
        self.from = end;
        self.at = 0;
        self.sorted.clear();
        self.copies.resize(numbers.len() * self.width, 0);
        let mut copies = EntryWriter::new(&mut self.copies, self.width);
        // numbers ascend within a partition: those of one part come together
        let (mut rest, mut first) = (numbers, 0);
        for part in parts {
            let behind = first + part.len();
            let (these, later) = rest.split_at(rest.partition_point(|&number| (number as usize) < behind));
            rest = later;
            // entries are far apart in memory: asking for all prefixes at once lets the processor wait for many together
            let place = self.sorted.len() as u128;
            let prefixes = these.iter().map(|&number| part.get(number as usize - first).prefix());
            self.sorted.extend(prefixes.zip(place..).map(|(prefix, place)| u128::from(prefix) << 32 | place));
            these.iter().for_each(|&number| copies.push(part.get(number as usize - first)));
            first = behind;
        }
        if rest.is_empty() { self.sort() } else { Err(changed()) }
    }

    fn sort(&mut self) -> Result<(), Refused> {
        self.sorted.sort_unstable();
        let copies = Entries::new(&self.copies, self.width);
        for run in self.sorted.chunk_by_mut(|a, b| a >> 32 == b >> 32).filter(|run| run.len() > 1) {
            let key = |sorted: &u128| {
                let entry = copies.get(*sorted as u32 as usize);
                (entry.digest(), entry.row_pointer())
            };
            run.sort_by(|a, b| key(a).cmp(&key(b)));
        }
        // `ends` has one element less for each partition up to this one
        let this = (1 << self.bits) - 1 - self.ends.len();
        let bounds = [self.sorted.first(), self.sorted.last()];
        let is_here = |sorted: &u128| self.partition((sorted >> 32) as u64) == this;
        if bounds.into_iter().flatten().all(is_here) { Ok(()) } else { Err(changed()) }
    }
}

/// The caller's arrays are not what they were when the fold was made.
pub fn changed() -> Refused {
    "new entries: they were written to while the fold was using them".into()
}

#[inline(always)]
fn partition(prefix: u64, bits: u32) -> usize {
    prefix.checked_shr(64 - bits).unwrap_or(0) as usize
}

fn check(entry: Entry, ordinals: usize) -> Result<(), Refused> {
    if entry.ordinal() as usize >= ordinals {
        return Err(format!("file ordinal {} has no position, there are {ordinals}", entry.ordinal()));
    }
    if entry.row() & FLAGS == KEYLESS {
        return Err(format!("row {:#x} is keyless (bit 62) but no delete (bit 63)", entry.row()));
    }
    Ok(())
}
