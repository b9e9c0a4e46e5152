//! Work on an index that is made of runs: find the newest entries of some keys, and compute what a fold changed.
//!
//! ```text
//! runs, newest first     41@f9.r2  9c@gone  |  03@f1.r0  41@f1.r1  80@f1.r2  9c@f1.r3
//! keys of a delta        41 52 9c
//! Touched.find           41@f9.r2                                41 of the newer run wins, 9c is gone
//! folded by the delta    41@f12.r0  52@f12.r1
//! changes                the run 41@f12.r0 52@f12.r1, and f9.r2 has died
//! ```
//!
//! If an older run has a key that is gone, the newer run has an entry for it with the file GONE.

use crate::Refused;
use crate::entries::{Entries, Entry, GONE, TOMBSTONE, pointer, precedes};
use crate::sha1::Digest;

/// Distinct digests in order, and the entries found for them so far.
pub struct Touched {
    prefixes: Vec<u64>,
    digests: Vec<Digest>,
    /// By digest: number of its entry in `entries`, or NOT_FOUND.
    places: Vec<u32>,
    entries: Vec<u8>,
    width: usize,
}

const NOT_FOUND: u32 = u32::MAX;

impl Touched {
    /// `width` is the width of the index's entries. The parts' entries may have another.
    pub fn new(parts: &[Entries], width: usize) -> Self {
        let mut order: Vec<(u64, Digest)> = Vec::with_capacity(parts.iter().map(Entries::len).sum());
        order.extend(parts.iter().flat_map(Entries::iter).map(|entry| (entry.prefix(), *entry.digest())));
        order.sort_unstable();
        order.dedup();
        let prefixes = order.iter().map(|each| each.0).collect();
        let digests: Vec<Digest> = order.into_iter().map(|each| each.1).collect();
        Self { prefixes, places: vec![NOT_FOUND; digests.len()], digests, entries: Vec::new(), width }
    }

    /// Takes the entries of keys that were not found before from a strictly ascending chunk.
    pub fn find(&mut self, chunk: Entries) -> Result<(), Refused> {
        if chunk.width() != self.width {
            return Err(format!("chunk: entries of {} bytes, want {}", chunk.width(), self.width));
        }
        let Some(last) = chunk.len().checked_sub(1) else { return Ok(()) };
        let (low, high) = (chunk.get(0).prefix(), chunk.get(last).prefix());
        let from = self.prefixes.partition_point(|&prefix| prefix < low);
        let to = self.prefixes.partition_point(|&prefix| prefix <= high);
        // digests are uniform, so we can guess the distance to the next key within a few entries
        let density = last as f64 / (high.wrapping_sub(low).max(1)) as f64;
        let mut at = 0;
        for i in from..to {
            let digest = &self.digests[i];
            let guess = at + ((self.prefixes[i] - chunk.get(at).prefix().min(self.prefixes[i])) as f64 * density) as usize;
            at = first_not_before(&chunk, digest, self.prefixes[i], at, guess.min(last));
            if at > last {
                break;
            }
            if chunk.get(at).digest() == digest && self.places[i] == NOT_FOUND {
                self.places[i] = (self.entries.len() / self.width) as u32;
                self.entries.extend_from_slice(chunk.get(at).bytes());
            }
        }
        Ok(())
    }

    /// The entries found, in order; keys that are gone are left out.
    pub fn found(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.entries.len());
        for &place in self.places.iter().filter(|&&place| place != NOT_FOUND) {
            let entry = &self.entries[place as usize * self.width..(place as usize + 1) * self.width];
            if Entry::new(entry).ordinal() != GONE {
                out.extend_from_slice(entry);
            }
        }
        out
    }
}

/// The first entry from `from` on whose digest is not below `digest`, searched for outwards from `guess`.
fn first_not_before(chunk: &Entries, digest: &Digest, prefix: u64, from: usize, guess: usize) -> usize {
    let is_before = |i: usize| {
        let entry = chunk.get(i);
        entry.prefix() < prefix || (entry.prefix() == prefix && entry.digest() < digest)
    };
    let (mut low, mut high, mut step) = (from, chunk.len(), 4);
    // all entries before `low` have smaller digests, the entry at `high` does not
    if is_before(guess) {
        low = guess + 1;
        while low + step < high {
            if is_before(low + step) {
                low += step + 1;
                step *= 2;
            } else {
                high = low + step;
            }
        }
    } else {
        high = guess;
        while high > low + step {
            if is_before(high - step) {
                low = high - step + 1;
            } else {
                high -= step;
                step *= 2;
            }
        }
    }
    while low < high {
        let middle = low + (high - low) / 2;
        if is_before(middle) { low = middle + 1 } else { high = middle }
    }
    low
}

/// The entries to write, and the rows that died.
#[derive(Default)]
pub struct Changes {
    pub run: Vec<u8>,
    pub dead_ordinals: Vec<u32>,
    pub dead_rows: Vec<u64>,
}

impl Changes {
    /// `found`: the index's entries of some keys. `folded`: the entries of these and of new keys after the fold. Both
    /// ascend.
    pub fn between(found: Entries, folded: Entries) -> Result<Self, Refused> {
        if found.width() != folded.width() {
            return Err(format!("found has entries of {} bytes, folded of {}", found.width(), folded.width()));
        }
        let mut changes = Self { run: Vec::with_capacity(folded.bytes().len()), ..Self::default() };
        let (mut i, mut j) = (0, 0);
        while i < found.len() || j < folded.len() {
            let before = (i < found.len()).then(|| found.get(i));
            let after = (j < folded.len()).then(|| folded.get(j));
            match (before, after) {
                (Some(before), Some(after)) if before.digest() == after.digest() => {
                    (i, j) = (i + 1, j + 1);
                    if before.bytes() != after.bytes() {
                        changes.died(before);
                        changes.run.extend_from_slice(after.bytes());
                    }
                }
                (Some(before), after) if after.is_none_or(|after| precedes(before, after)) => {
                    i += 1;
                    changes.died(before);
                    let key = changes.run.len() + before.sort_key().len() + before.digest().len();
                    changes.run.extend_from_slice(before.digest());
                    changes.run.resize(key, 0);
                    changes.run.extend_from_slice(&pointer(GONE, 0));
                }
                (_, Some(after)) => {
                    j += 1;
                    changes.run.extend_from_slice(after.bytes());
                }
                (_, None) => unreachable!("an entry that nothing comes before is handled above"),
            }
        }
        Ok(changes)
    }

    fn died(&mut self, before: Entry) {
        if before.ordinal() != TOMBSTONE {
            self.dead_ordinals.push(before.ordinal());
            self.dead_rows.push(before.row());
        }
    }
}

/// Merges two runs. The newer entry of a key wins. Entries of gone keys stay, because a still older run may have the key.
pub fn merge(older: Entries, newer: Entries) -> Result<Vec<u8>, Refused> {
    if older.width() != newer.width() {
        return Err(format!("older has entries of {} bytes, newer of {}", older.width(), newer.width()));
    }
    let width = older.width();
    let mut out = Vec::with_capacity(older.bytes().len() + newer.bytes().len());
    let mut from = 0;
    for entry in newer.iter() {
        let guess = from.min(older.len().saturating_sub(1));
        let at = if from < older.len() { first_not_before(&older, entry.digest(), entry.prefix(), from, guess) } else { from };
        out.extend_from_slice(&older.bytes()[from * width..at * width]);
        out.extend_from_slice(entry.bytes());
        from = at + usize::from(at < older.len() && older.get(at).digest() == entry.digest());
    }
    out.extend_from_slice(&older.bytes()[from * width..]);
    Ok(out)
}

/// The number of entries, which ascend strictly, with a digest up to this one.
pub fn count_to(entries: Entries, digest: &Digest) -> usize {
    let (mut low, mut high) = (0, entries.len());
    while low < high {
        let middle = low + (high - low) / 2;
        if entries.get(middle).digest() <= digest { low = middle + 1 } else { high = middle }
    }
    low
}

/// Whether an entry points into one of these files, which ascend strictly.
pub fn points_into(entries: Entries, files: &[u32]) -> bool {
    let (Some(&first), Some(&last)) = (files.first(), files.last()) else { return false };
    entries.iter().map(Entry::ordinal).any(|file| first <= file && file <= last && files.binary_search(&file).is_ok())
}

/// The entries of keys that are not gone.
pub fn present(entries: Entries) -> Vec<u8> {
    let mut out = Vec::with_capacity(entries.bytes().len());
    entries.iter().filter(|entry| entry.ordinal() != GONE).for_each(|entry| out.extend_from_slice(entry.bytes()));
    out
}
