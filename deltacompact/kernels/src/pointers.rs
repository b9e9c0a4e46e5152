//! Sends pointers to the groups of files that they point into, and puts the ranks that come back into entries.
//!
//! ```text
//! entries            a@7.r2  b@8.r1  c@7.r0  d@tombstone        group_of: 7 -> 0, 8 -> 1, 9 kept
//! Split              group 0: 7.r2 7.r0      group 1: 8.r1
//! ranks come back    group 0: 2 0            group 1: 0         (group 1 begins at rank 3)
//! Publisher          a@14.r2  b@14.r3  c@14.r0  d@tombstone     output 14 gets ranks 0 to 3
//! ```
//!
//! A rank finds its entry by order: each group gets its pointers, and returns its ranks, in the order of the entries.

use crate::Refused;
use crate::entries::{Entries, Entry, EntryWriter, GONE, TOMBSTONE};

/// In `group_of`: a file that is kept; its rows stay where they are.
pub const KEPT: u32 = u32::MAX;

/// Which group a file belongs to, by its ordinal.
struct GroupOf {
    group_of: Vec<u32>,
    groups: u32,
}

impl GroupOf {
    #[inline(always)]
    fn find(&self, ordinal: u32) -> Result<Option<usize>, Refused> {
        match self.group_of.get(ordinal as usize) {
            Some(&group) if group < self.groups => Ok(Some(group as usize)),
            Some(&KEPT) => Ok(None),
            Some(_) => Err(format!("file ordinal {ordinal} is in no group")),
            None => Err(format!("there is no file ordinal {ordinal}")),
        }
    }
}

/// Pointers by group, in the order in which they came.
pub struct Split {
    group_of: GroupOf,
    ordinals: Vec<Vec<u32>>,
    rows: Vec<Vec<u64>>,
}

impl Split {
    pub fn new(group_of: Vec<u32>, groups: u32) -> Self {
        let (ordinals, rows) = (vec![Vec::new(); groups as usize], vec![Vec::new(); groups as usize]);
        Self { group_of: GroupOf { group_of, groups }, ordinals, rows }
    }

    /// Adds the rows that entries point to. Tombstones, and entries of gone keys, point to none.
    pub fn push_entries(&mut self, entries: Entries) -> Result<(), Refused> {
        for entry in entries.iter().filter(|entry| entry.ordinal() < GONE) {
            if let Some(group) = self.group_of.find(entry.ordinal())? {
                self.push(group, entry.ordinal(), entry.row());
            }
        }
        Ok(())
    }

    /// Adds rows that died. Rows of files without a group are ignored.
    pub fn push_pointers(&mut self, ordinals: &[u32], rows: &[u64]) {
        for (&ordinal, &row) in ordinals.iter().zip(rows) {
            match self.group_of.group_of.get(ordinal as usize) {
                Some(&group) if group < self.group_of.groups => self.push(group as usize, ordinal, row),
                _ => {}
            }
        }
    }

    #[inline(always)]
    fn push(&mut self, group: usize, ordinal: u32, row: u64) {
        self.ordinals[group].push(ordinal);
        self.rows[group].push(row);
    }

    /// All groups one after another, and the offset of each group, with the end of the last.
    pub fn finish(self) -> (Vec<u32>, Vec<u64>, Vec<i64>) {
        let mut offsets = vec![0];
        for group in &self.ordinals {
            offsets.push(offsets[offsets.len() - 1] + group.len() as i64);
        }
        (joined(self.ordinals), joined(self.rows), offsets)
    }
}

/// Concatenates the pieces. Each piece is freed as soon as it is copied: there are as many pointers as rows.
fn joined<T: Copy>(groups: Vec<Vec<T>>) -> Vec<T> {
    let mut all = Vec::with_capacity(groups.iter().map(Vec::len).sum());
    for group in groups {
        all.extend_from_slice(&group);
    }
    all
}

/// Where the rows of each group go: to outputs by rank, or nowhere, if the file stays.
pub struct Places {
    /// By ordinal: the file number of a file that stays.
    pub number_of: Vec<u32>,
    /// By group: the live rows of all earlier groups.
    pub first_ranks: Vec<u64>,
    /// Files of the groups from here on stay.
    pub marked_from: usize,
    pub first_output_number: u32,
    pub rows_per_output: u64,
    /// Tombstones at or below this position are dropped.
    pub expired: Option<i64>,
}

/// Writes published pointers into entries, chunk by chunk.
pub struct Publisher {
    group_of: GroupOf,
    places: Places,
    /// The ranks of all groups, one after another. Each counts within its group.
    ranks: Vec<u32>,
    /// By group: the place of its next rank, and the end of its ranks.
    next: Vec<usize>,
    ends: Vec<usize>,
}

impl Publisher {
    /// `offsets`: where the ranks of each group begin, and the end of the last group's.
    pub fn new(group_of: Vec<u32>, places: Places, ranks: Vec<u32>, offsets: &[i64]) -> Result<Self, Refused> {
        let groups = places.first_ranks.len();
        let ascending = offsets.windows(2).all(|pair| pair[0] <= pair[1]);
        let whole = offsets.first() == Some(&0) && offsets.last() == Some(&(ranks.len() as i64));
        if offsets.len() != groups + 1 || !ascending || !whole {
            return Err(format!("offsets: they do not divide {} ranks into {groups} groups", ranks.len()));
        }
        if places.rows_per_output == 0 {
            return Err("rows_per_output: an output of no rows".into());
        }
        let at = |range: &[i64]| range.iter().map(|&offset| offset as usize).collect();
        let (next, ends) = (at(&offsets[..groups]), at(&offsets[1..]));
        Ok(Self { group_of: GroupOf { group_of, groups: groups as u32 }, places, ranks, next, ends })
    }

    /// `out` has room for as many entries as the chunk has.
    pub fn publish(&mut self, chunk: Entries, out: &mut EntryWriter) -> Result<(), Refused> {
        for entry in chunk.iter() {
            if entry.ordinal() >= GONE {
                if !self.is_expired(entry) {
                    out.push(entry);
                }
                continue;
            }
            let (number, row) = self.place(entry.ordinal(), entry.row())?;
            out.push_pointing(entry, number, row);
        }
        Ok(())
    }

    #[inline(always)]
    fn place(&mut self, ordinal: u32, row: u64) -> Result<(u32, u64), Refused> {
        let stays = self.places.number_of.get(ordinal as usize);
        let Some(group) = self.group_of.find(ordinal)? else {
            return Ok((*stays.ok_or_else(|| format!("file ordinal {ordinal} has no number"))?, row));
        };
        let at = self.next[group];
        if at == self.ends[group] {
            return Err(format!("group {group}: more entries than ranks"));
        }
        self.next[group] += 1;
        if group >= self.places.marked_from {
            return Ok((*stays.ok_or_else(|| format!("file ordinal {ordinal} has no number"))?, row));
        }
        let rank = self.places.first_ranks[group] + u64::from(self.ranks[at]);
        let (output, row) = (rank / self.places.rows_per_output, rank % self.places.rows_per_output);
        let number = u32::try_from(output).ok().and_then(|output| self.places.first_output_number.checked_add(output));
        Ok((number.filter(|&number| number < GONE).ok_or("more outputs than file numbers")?, row))
    }

    fn is_expired(&self, entry: Entry) -> bool {
        entry.ordinal() == TOMBSTONE && self.places.expired.is_some_and(|position| entry.row() as i64 <= position)
    }

    /// The number of ranks for which no entry has come.
    pub fn left(&self) -> usize {
        self.ends.iter().zip(&self.next).map(|(end, next)| end - next).sum()
    }
}
