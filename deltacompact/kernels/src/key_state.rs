//! Applies the events of one key: which row lives afterwards, and which rows died.
//!
//! ```text
//! key   base              events in order                      then
//! k1    Live s1 @f0.r4    upsert s3 @f7.r0                     Live s3 @f7.r0    f0.r4 superseded, dead
//! k2    Live s5 @f0.r5    upsert s3 @f7.r1                     Live s5 @f0.r5    f7.r1 superseded
//! k3    Live s1 @f0.r6    delete s2, upsert s1 @f9.r0          Tomb s2           f0.r6 deleted, dead; f9.r0 deleted
//! k4    none              delete s9, keyless delete, upsert s1 @f9.r1            Live s1 @f9.r1
//! k5    Tomb s4 at 100    upsert s1 @f9.r2, position 250       Live s1 @f9.r2    if tombstone_retention is below 150
//! ```
//!
//! Sort keys are compared byte by byte. Of two events with equal sort keys, the later one wins. Every row that goes in is
//! counted once on its way out: live in base + upserts == live + superseded + deleted.

use crate::entries::{DELETE, Entry, EntryWriter, FLAGS, TOMBSTONE};

#[derive(Clone, Copy)]
pub enum State<'a> {
    None,
    Live {
        entry: Entry<'a>,
        in_base: bool,
    },
    /// The entry has the digest and the sort key. If it is an event, its pointer is not a tombstone's.
    Tomb {
        entry: Entry<'a>,
        position: i64,
    },
}

/// Counts of the rows that went in and came out.
#[derive(Default)]
pub struct Tally {
    pub base_live: u64,
    pub upserts: u64,
    pub deletes: u64,
    pub superseded: u64,
    pub deleted: u64,
    pub live: u64,
    pub tombstones: u64,
    /// Rows that were live in base and died.
    pub dead_ordinals: Vec<u32>,
    pub dead_rows: Vec<u64>,
}

impl<'a> State<'a> {
    #[inline(always)]
    pub fn of_base(entry: Entry<'a>) -> Self {
        match entry.ordinal() {
            TOMBSTONE => Self::Tomb { entry, position: entry.row() as i64 },
            _ => Self::Live { entry, in_base: true },
        }
    }

    /// The state after one more event.
    #[inline(always)]
    pub fn after(self, event: Entry<'a>, position: i64, tombstone_retention: Option<i64>, tally: &mut Tally) -> Self {
        let now = match (self, tombstone_retention) {
            (Self::Tomb { position: since, .. }, Some(retention))
                if i128::from(position) - i128::from(since) > i128::from(retention) =>
            {
                Self::None
            }
            _ => self,
        };
        match event.row() & FLAGS {
            0 => now.upserted(event, tally),
            DELETE if !event.sort_key().is_empty() => now.deleted(event, position, tally),
            _ => now.cleared(tally),
        }
    }

    #[inline(always)]
    fn upserted(self, event: Entry<'a>, tally: &mut Tally) -> Self {
        tally.upserts += 1;
        let live = Self::Live { entry: event, in_base: false };
        match self {
            Self::None => live,
            Self::Live { entry, in_base } => {
                tally.superseded += 1;
                if event.sort_key() < entry.sort_key() {
                    return self;
                }
                tally.dies(entry, in_base);
                live
            }
            Self::Tomb { entry, .. } if event.sort_key() >= entry.sort_key() => live,
            Self::Tomb { .. } => {
                tally.deleted += 1;
                self
            }
        }
    }

    fn deleted(self, event: Entry<'a>, position: i64, tally: &mut Tally) -> Self {
        match self {
            Self::Live { entry, .. } | Self::Tomb { entry, .. } if event.sort_key() < entry.sort_key() => {
                tally.deletes += 1;
                self
            }
            _ => {
                self.cleared(tally);
                Self::Tomb { entry: event, position }
            }
        }
    }

    /// Applies a delete that wins over any state.
    fn cleared(self, tally: &mut Tally) -> Self {
        tally.deletes += 1;
        if let Self::Live { entry, in_base } = self {
            tally.deleted += 1;
            tally.dies(entry, in_base);
        }
        Self::None
    }

    /// Writes the key's entry, if it has one.
    #[inline(always)]
    pub fn write(self, tally: &mut Tally, out: &mut EntryWriter) {
        match self {
            Self::None => {}
            Self::Live { entry, .. } => {
                tally.live += 1;
                out.push(entry);
            }
            Self::Tomb { entry, position } => {
                tally.tombstones += 1;
                out.push_tombstone(entry, position);
            }
        }
    }
}

impl Tally {
    #[inline(always)]
    fn dies(&mut self, entry: Entry, in_base: bool) {
        if in_base {
            self.dead_ordinals.push(entry.ordinal());
            self.dead_rows.push(entry.row());
        }
    }

    /// Checks that no row was lost or invented.
    pub fn check_conservation(&self) -> Result<(), String> {
        let Self { base_live, upserts, live, superseded, deleted, .. } = self;
        if base_live + upserts == live + superseded + deleted {
            return Ok(());
        }
        Err(format!("{base_live} live + {upserts} upserts != {live} live + {superseded} superseded + {deleted} deleted"))
    }
}
