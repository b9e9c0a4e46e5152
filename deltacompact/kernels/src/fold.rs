//! The fold: applies new events to a base index that is streamed in digest order, chunk by chunk. `key_state.rs` has
//! the rules for one key.
//!
//! ```text
//! base, two chunks      03 11 41 | 80 9c
//! new entries           11 41 52 9c 9c ff
//! push(03 11 41)        03 copied, 11 and 41 folded into base's entries
//! push(80 9c)           52 folded without a base entry, 80 copied, 9c folded twice
//! finish()              ff folded without a base entry
//! ```

use crate::Refused;
use crate::entries::{Entries, Entry, EntryWriter, FLAGS, TOMBSTONE, precedes};
use crate::key_state::{State, Tally};
use crate::new_entries::{NewEntries, changed};
use crate::sha1::Digest;

pub struct Fold {
    new_entries: NewEntries,
    rules: Rules,
    /// The last digest of base so far.
    last: Option<Digest>,
    tally: Tally,
}

struct Rules {
    /// Stream position of each file ordinal.
    positions: Vec<i64>,
    tombstone_retention: Option<i64>,
}

impl Fold {
    pub fn new(new_entries: NewEntries, positions: Vec<i64>, tombstone_retention: Option<i64>) -> Self {
        let rules = Rules { positions, tombstone_retention };
        Self { new_entries, rules, last: None, tally: Tally::default() }
    }

    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Room for the entries that the next step writes: a chunk of base, or the rest.
    pub fn entries_max(&self, chunk: Option<Entries>) -> usize {
        let Some(chunk) = chunk else { return self.new_entries.count_to(u64::MAX) };
        let last = chunk.len().checked_sub(1).map(|last| chunk.get(last).prefix());
        chunk.len() + last.map_or(0, |prefix| self.new_entries.count_to(prefix))
    }

    /// Folds the events of all keys up to the last key of `chunk`. `parts` has the same new entries as at the start.
    pub fn push(&mut self, parts: &[Entries], chunk: Entries, out: &mut EntryWriter) -> Result<(), Refused> {
        let Some(last) = chunk.len().checked_sub(1) else { return Ok(()) };
        let events = &mut self.new_entries;
        events.check_parts(parts)?;
        let mut base = Base::new(chunk, self.last.as_ref())?;
        let mut taken = 0;
        while events.advance(taken, parts)? {
            let events = events.at_hand();
            base.copy_before(Some(events.get(0)), &mut self.tally, out);
            if base.is_at_end() {
                break;
            }
            let state = base.take(events.get(0).digest(), &mut self.tally);
            taken = self.rules.fold_key(state, events, &mut self.tally, out)?;
        }
        base.copy_before(None, &mut self.tally, out);
        self.last = Some(*chunk.get(last).digest());
        Ok(())
    }

    /// Folds the events of keys after the last key of base.
    pub fn finish(&mut self, parts: &[Entries], out: &mut EntryWriter) -> Result<(), Refused> {
        self.new_entries.check_parts(parts)?;
        let mut taken = 0;
        while self.new_entries.advance(taken, parts)? {
            taken = self.rules.fold_key(State::None, self.new_entries.at_hand(), &mut self.tally, out)?;
        }
        Ok(())
    }
}

impl Rules {
    /// Applies the events of the first key and writes its entry, if one is left. Returns the number of events.
    #[inline(always)]
    fn fold_key<'a>(
        &self,
        mut state: State<'a>,
        events: Entries<'a>,
        tally: &mut Tally,
        out: &mut EntryWriter,
    ) -> Result<usize, Refused> {
        let mut count = 0;
        while count == 0 || (count < events.len() && events.get(count).digest() == events.get(0).digest()) {
            let event = events.get(count);
            if count > 0 && event.row_pointer() == events.get(count - 1).row_pointer() {
                let (ordinal, row) = event.row_pointer();
                return Err(format!("new entries: file ordinal {ordinal} row {row} is there twice"));
            }
            count += 1;
            let position = *self.positions.get(event.ordinal() as usize).ok_or_else(changed)?;
            state = state.after(event, position, self.tombstone_retention, tally);
        }
        state.write(tally, out);
        Ok(count)
    }
}

/// A chunk of the base index.
struct Base<'a> {
    chunk: Entries<'a>,
    at: usize,
}

impl<'a> Base<'a> {
    /// Checks that base is strictly ascending, also from the last chunk to this one, and that live rows have no flags.
    fn new(chunk: Entries<'a>, last: Option<&Digest>) -> Result<Self, Refused> {
        let mut before: Option<Entry> = None;
        for (row, entry) in chunk.iter().enumerate() {
            let is_above = match before {
                Some(before) => precedes(before, entry),
                None => last.is_none_or(|last| last < entry.digest()),
            };
            if !is_above {
                return Err(format!("base, row {row} of this chunk: its digest is not above the one before it"));
            }
            if entry.row() & FLAGS != 0 && entry.ordinal() != TOMBSTONE {
                return Err(format!("base, row {row} of this chunk: row number {:#x} is not below 2^62", entry.row()));
            }
            before = Some(entry);
        }
        Ok(Self { chunk, at: 0 })
    }

    fn is_at_end(&self) -> bool {
        self.at == self.chunk.len()
    }

    /// Copies the entries before `until` (None: all) unchanged.
    #[inline(always)]
    fn copy_before(&mut self, until: Option<Entry>, tally: &mut Tally, out: &mut EntryWriter) {
        let from = self.at;
        let mut tombstones = 0;
        let until_prefix = until.map_or(u64::MAX, Entry::prefix);
        while !self.is_at_end() {
            let entry = self.chunk.get(self.at);
            let may_be_behind = entry.prefix() >= until_prefix;
            if may_be_behind && until.is_some_and(|until| entry.digest() >= until.digest()) {
                break;
            }
            tombstones += u64::from(entry.ordinal() == TOMBSTONE);
            self.at += 1;
        }
        let width = self.chunk.width();
        out.extend(&self.chunk.bytes()[from * width..self.at * width]);
        let live = (self.at - from) as u64 - tombstones;
        tally.base_live += live;
        tally.live += live;
        tally.tombstones += tombstones;
    }

    /// The state of the key with this digest. All entries with smaller digests are copied already.
    #[inline(always)]
    fn take(&mut self, digest: &Digest, tally: &mut Tally) -> State<'a> {
        let entry = self.chunk.get(self.at);
        if entry.digest() != digest {
            return State::None;
        }
        self.at += 1;
        let state = State::of_base(entry);
        tally.base_live += u64::from(matches!(state, State::Live { .. }));
        state
    }
}
