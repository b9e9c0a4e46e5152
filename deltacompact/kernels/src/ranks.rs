//! Survivors of a group of files, and the rank of each: the row it becomes when the files are written as one.
//!
//! ```text
//! files           7 (3 rows), 9 (2 rows)
//! marked          7.r0  7.r2  9.r1              bits 101 | 01
//! ranks           7.r0 -> 0   7.r2 -> 1   9.r1 -> 2
//! ```
//!
//! Each row has a bit. Each line of 512 bits has the number of set bits before it, and each word of 64 bits the number of
//! set bits before it in its line. So a rank only needs to count the bits of one word.

use crate::Refused;
use crate::entries::{Entry, GONE, pointer};

const LINE_WORDS: usize = 8;
/// So many entries are relocated together: their rows may be anywhere, so the words of all of them are fetched at once.
const BLOCK: usize = 256;
const ELSEWHERE: usize = usize::MAX;

pub struct SurvivorRanks {
    ordinals: Vec<u32>,
    rows: Vec<u64>,
    /// The first word of each file's bits, and the end of the last file's.
    first_word: Vec<usize>,
    words: Vec<u64>,
    /// Set bits before each line. Empty: not counted since the last mark.
    before: Vec<u64>,
    /// By word: the set bits before it in its line.
    within: Vec<u16>,
}

impl SurvivorRanks {
    /// `ordinals` ascend strictly; `file_rows` has the row count of each.
    pub fn new(ordinals: Vec<u32>, file_rows: &[i64]) -> Result<Self, Refused> {
        if ordinals.len() != file_rows.len() {
            return Err(format!("{} ordinals but {} row counts", ordinals.len(), file_rows.len()));
        }
        if let Some(i) = (1..ordinals.len()).find(|&i| ordinals[i - 1] >= ordinals[i]) {
            return Err(format!("ordinals are not strictly ascending: {} before {}", ordinals[i - 1], ordinals[i]));
        }
        let mut rows = Vec::with_capacity(file_rows.len());
        let mut first_word = vec![0usize];
        for (ordinal, &count) in ordinals.iter().zip(file_rows) {
            let count = u64::try_from(count).map_err(|_| format!("file ordinal {ordinal} has {count} rows"))?;
            let end = first_word[rows.len()].checked_add(count.div_ceil(64) as usize);
            first_word.push(end.ok_or("too many rows in all")?);
            rows.push(count);
        }
        let total = first_word[rows.len()];
        let mut words = Vec::new();
        words.try_reserve_exact(total).map_err(|_| format!("no memory for the bits of {total} x 64 rows"))?;
        words.resize(total, 0);
        Ok(Self { ordinals, rows, first_word, words, before: Vec::new(), within: Vec::new() })
    }

    /// The bit of a row: its word and its place in it.
    #[inline(always)]
    fn find(&self, ordinal: u32, row: u64) -> Result<(usize, u32), Refused> {
        self.bit(self.file(ordinal)?, row)
    }

    /// The same for a file by its place in the group.
    #[inline(always)]
    fn bit(&self, file: usize, row: u64) -> Result<(usize, u32), Refused> {
        if row >= self.rows[file] {
            return Err(format!("file ordinal {} has {} rows, no row {row}", self.ordinals[file], self.rows[file]));
        }
        Ok((self.first_word[file] + (row / 64) as usize, (row % 64) as u32))
    }

    #[inline(always)]
    fn file(&self, ordinal: u32) -> Result<usize, Refused> {
        self.member(ordinal).ok_or_else(|| format!("file ordinal {ordinal} is not in this group"))
    }

    #[inline(always)]
    fn member(&self, ordinal: u32) -> Option<usize> {
        // ordinals of a group are mostly neighbours
        let guess = ordinal.wrapping_sub(*self.ordinals.first()?) as usize;
        if self.ordinals.get(guess) == Some(&ordinal) {
            return Some(guess);
        }
        self.ordinals.binary_search(&ordinal).ok()
    }

    pub fn mark(&mut self, ordinals: &[u32], rows: &[u64]) -> Result<(), Refused> {
        self.before.clear();
        for (&ordinal, &row) in ordinals.iter().zip(rows) {
            let (word, bit) = self.find(ordinal, row)?;
            if self.words[word] >> bit & 1 == 1 {
                return Err(format!("file ordinal {ordinal} row {row} is marked twice"));
            }
            self.words[word] |= 1 << bit;
        }
        Ok(())
    }

    /// Marks the rows of a file that a mask sets (row r is bit r % 8 of byte r / 8). None: all rows.
    pub fn fill(&mut self, ordinal: u32, mask: Option<&[u8]>) -> Result<(), Refused> {
        self.before.clear();
        let file = self.file(ordinal)?;
        let (rows, from) = (self.rows[file] as usize, self.first_word[file]);
        if let Some(mask) = mask
            && mask.len() != rows.div_ceil(8)
        {
            return Err(format!("file ordinal {ordinal} has {rows} rows, its mask {} bytes", mask.len()));
        }
        let words = &mut self.words[from..from + rows.div_ceil(64)];
        for (i, word) in words.iter_mut().enumerate() {
            let mut bytes = [0xff; 8];
            if let Some(mask) = mask {
                let here = &mask[i * 8..mask.len().min(i * 8 + 8)];
                bytes = [0; 8];
                bytes[..here.len()].copy_from_slice(here);
            }
            *word |= u64::from_le_bytes(bytes);
        }
        if rows % 64 > 0
            && let Some(last) = words.last_mut()
        {
            *last &= (1 << (rows % 64)) - 1;
        }
        Ok(())
    }

    /// Removes marks.
    pub fn unmark(&mut self, ordinals: &[u32], rows: &[u64]) -> Result<(), Refused> {
        self.before.clear();
        for (&ordinal, &row) in ordinals.iter().zip(rows) {
            let (word, bit) = self.find(ordinal, row)?;
            if self.words[word] >> bit & 1 == 0 {
                return Err(format!("file ordinal {ordinal} row {row} is not marked"));
            }
            self.words[word] &= !(1 << bit);
        }
        Ok(())
    }

    pub fn ranks(&mut self, ordinals: &[u32], rows: &[u64], out: &mut [u64]) -> Result<(), Refused> {
        self.count();
        for ((&ordinal, &row), rank) in ordinals.iter().zip(rows).zip(out) {
            *rank = self.rank(ordinal, row)?;
        }
        Ok(())
    }

    /// Rewrites the pointers into these files: a survivor's rank gives its output, and its row there. Outputs have
    /// `rows_per_output` rows and are numbered from `first_output` on. Other entries stay unchanged.
    pub fn relocate(
        &mut self,
        entries: &mut [u8],
        width: usize,
        first_output: u32,
        rows_per_output: u64,
    ) -> Result<(), Refused> {
        self.count();
        let (mut at, mut found) = ([(0, 0); BLOCK], [(0, 0); BLOCK]);
        for block in entries.chunks_mut(width * BLOCK) {
            for (at, bytes) in at.iter_mut().zip(block.chunks_exact(width)) {
                let entry = Entry::new(bytes);
                *at = match self.member(entry.ordinal()) {
                    Some(file) => self.bit(file, entry.row())?,
                    None => (ELSEWHERE, 0),
                };
            }
            for (found, at) in found.iter_mut().zip(at) {
                if at.0 != ELSEWHERE {
                    *found = self.word(at.0);
                }
            }
            for ((bytes, at), found) in block.chunks_exact_mut(width).zip(at).zip(found) {
                if at.0 == ELSEWHERE {
                    continue;
                }
                let Some(rank) = rank_in(found, at.1) else {
                    let entry = Entry::new(bytes);
                    return Err(format!("file ordinal {} row {} is not marked", entry.ordinal(), entry.row()));
                };
                let output = u64::from(first_output) + rank / rows_per_output;
                if output >= u64::from(GONE) {
                    return Err(format!("output {output} is not a file number"));
                }
                let moved = pointer(output as u32, rank % rows_per_output);
                bytes[width - moved.len()..].copy_from_slice(&moved);
            }
        }
        Ok(())
    }

    /// The bits must have been counted.
    #[inline(always)]
    fn rank(&self, ordinal: u32, row: u64) -> Result<u64, Refused> {
        let (word, bit) = self.find(ordinal, row)?;
        rank_in(self.word(word), bit).ok_or_else(|| format!("file ordinal {ordinal} row {row} is not marked"))
    }

    /// A word, and the number of set bits before it.
    #[inline(always)]
    fn word(&self, word: usize) -> (u64, u64) {
        (self.words[word], self.before[word / LINE_WORDS] + u64::from(self.within[word]))
    }

    /// Counts the set bits before each line, unless no mark has changed since the last count.
    fn count(&mut self) {
        if !self.before.is_empty() {
            return;
        }
        self.within.clear();
        let mut before = 0;
        for line in self.words.chunks(LINE_WORDS) {
            self.before.push(before);
            let mut within = 0;
            for word in line {
                self.within.push(within);
                within += word.count_ones() as u16;
            }
            before += u64::from(within);
        }
    }

    /// A file's bits in Arrow's layout: row r is bit r % 8 of byte r / 8.
    pub fn mask(&self, ordinal: u32) -> Result<Vec<u8>, Refused> {
        let file = self.file(ordinal)?;
        let mut bytes: Vec<u8> = self.words_of(file).iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.truncate(self.rows[file].div_ceil(8) as usize);
        Ok(bytes)
    }

    pub fn live(&self, ordinal: u32) -> Result<u64, Refused> {
        Ok(count_ones(self.words_of(self.file(ordinal)?)))
    }

    pub fn total(&self) -> u64 {
        count_ones(&self.words)
    }

    fn words_of(&self, file: usize) -> &[u64] {
        &self.words[self.first_word[file]..self.first_word[file + 1]]
    }
}

fn count_ones(words: &[u64]) -> u64 {
    words.iter().map(|word| u64::from(word.count_ones())).sum()
}

/// The rank of a bit, if it is set, in a word with a known number of set bits before it.
#[inline(always)]
fn rank_in((word, before): (u64, u64), bit: u32) -> Option<u64> {
    let part = (word & ((1 << bit) - 1)).count_ones();
    (word >> bit & 1 == 1).then_some(before + u64::from(part))
}
