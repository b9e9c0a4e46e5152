//! Finds footers that would abort the process: pyarrow reads facts of a column chunk that a damaged footer lacks.
//!
//! ```text
//! schema     id: INT64, optional           s: BYTE_ARRAY, optional
//! group 0    id: INT64, levels 0 12        s: BYTE_ARRAY, levels 0 12       -> the footer: pyarrow can read all facts
//! group 0    id: INT32, levels 0 12                                         -> "column id: its type is another …"
//! group 0    id: INT64, levels 0 12 3                                       -> "column id: its levels are not …"
//! ```
//!
//! Some writers cut the least and greatest value of a long FIXED_LEN_BYTE_ARRAY, on which pyarrow aborts, too. The footer
//! comes back without the statistics of such a chunk.
//!
//! This module reads the Thrift bytes itself, because the `parquet` crate skips some fields, and refuses some footers that
//! pyarrow reads.

use crate::Refused;
use crate::thrift::{Compact, I32, I64, LIST, STRUCT, TEXT};

const OPTIONAL: i32 = 1;
const REPEATED: i32 = 2;
const BYTE_ARRAY: i32 = 6;
const FIXED_LEN_BYTE_ARRAY: i32 = 7;
const CODECS: std::ops::Range<i32> = 0..8;

/// The end of a struct.
const STOP_BYTES: usize = 1;

/// The footer, of which pyarrow can read all column chunks. Or else why it would abort.
pub fn readable(footer: &[u8]) -> Result<Vec<u8>, Refused> {
    read(footer).unwrap_or_else(|| Err("it cannot be understood".into()))
}

fn read(footer: &[u8]) -> Option<Result<Vec<u8>, Refused>> {
    let (mut elements, mut groups) = (Vec::new(), Vec::new());
    Compact(footer).fields(|input, kind, id| match (kind, id) {
        (LIST, 2) => input.list(SchemaElement::read).map(|found| elements = found).map(|()| true),
        (LIST, 4) => input.list(row_group).map(|found| groups = found).map(|()| true),
        _ => Some(false),
    })?;
    let leaves = leaves(&elements)?;
    let (mut readable, mut from) = (Vec::with_capacity(footer.len()), 0);
    for (place, chunks) in groups.iter().enumerate() {
        if chunks.len() != leaves.len() {
            let (found, wanted) = (chunks.len(), leaves.len());
            return Some(Err(format!("row group {place} has {found} column chunks, the schema {wanted} columns")));
        }
        for (leaf, chunk) in leaves.iter().zip(chunks) {
            if let Some(why) = chunk.doubt(leaf) {
                return Some(Err(format!("row group {place}, column {}: {why}", leaf.name)));
            }
            if chunk.has_short_bounds(leaf) {
                readable.extend(&footer[from..footer.len() - chunk.statistics.0]);
                from = footer.len() - chunk.statistics.1;
            }
        }
    }
    readable.extend(&footer[from..]);
    Some(Ok(readable))
}

#[derive(Default)]
struct SchemaElement {
    physical: Option<i32>,
    length: i32,
    repetition: i32,
    name: String,
    children: i32,
}

impl SchemaElement {
    fn read(input: &mut Compact) -> Option<Self> {
        let mut found = Self::default();
        input.fields(|input, kind, id| {
            match (kind, id) {
                (I32, 1) => found.physical = Some(input.number()? as i32),
                (I32, 2) => found.length = input.number()? as i32,
                (I32, 3) => found.repetition = input.number()? as i32,
                (TEXT, 4) => found.name = String::from_utf8_lossy(input.text()?).into_owned(),
                (I32, 5) => found.children = input.number()? as i32,
                _ => return Some(false),
            }
            Some(true)
        })?;
        Some(found)
    }
}

/// A column, with its greatest definition and repetition level.
struct Leaf<'a> {
    name: &'a str,
    physical: i32,
    length: i32,
    definition: usize,
    repetition: usize,
}

/// The columns of a schema that is stored depth first. None: the schema ends too early.
fn leaves(elements: &[SchemaElement]) -> Option<Vec<Leaf<'_>>> {
    let (root, rest) = elements.split_first()?;
    let (mut above, mut found) = (vec![(root.children, 0, 0)], Vec::new());
    for element in rest {
        while above.last()?.0 <= 0 {
            above.pop();
        }
        let group = above.last_mut()?;
        group.0 -= 1;
        let definition = group.1 + usize::from(matches!(element.repetition, OPTIONAL | REPEATED));
        let repetition = group.2 + usize::from(element.repetition == REPEATED);
        match element.physical {
            Some(physical) if element.children == 0 => {
                found.push(Leaf { name: &element.name, physical, length: element.length, definition, repetition });
            }
            _ => above.push((element.children, definition, repetition)),
        }
    }
    above.iter().all(|group| group.0 <= 0).then_some(found)
}

impl Leaf<'_> {
    /// The bytes of each value, if all values have the same number.
    fn value_bytes(&self) -> usize {
        const WIDTHS: [usize; 6] = [1, 4, 8, 12, 4, 8];
        match usize::try_from(self.physical).ok().and_then(|place| WIDTHS.get(place)) {
            Some(&width) => width,
            None if self.physical == BYTE_ARRAY => 0,
            None => usize::try_from(self.length).unwrap_or(0),
        }
    }
}

#[derive(Default)]
struct Bounds {
    many: usize,
    shortest: Option<usize>,
}

impl Bounds {
    fn add(&mut self, bound: &[u8]) {
        self.many += 1;
        self.shortest = Some(self.shortest.unwrap_or(usize::MAX).min(bound.len()));
    }

    fn are_below(&self, bytes: usize) -> bool {
        self.shortest.is_some_and(|shortest| shortest < bytes)
    }
}

/// The facts of a column chunk. `bounds`, for the current fields of least and greatest value and for the old ones: how many
/// there are, and the bytes of the shorter one. `statistics`: how many bytes of the footer follow where their fields begin,
/// and where they end. `levels`: the numbers of counted repetition and definition levels, 0 for none.
#[derive(Default)]
struct Chunk {
    has_metadata: bool,
    physical: Option<i32>,
    codec: Option<i32>,
    statistics: (usize, usize),
    bounds: Bounds,
    former_bounds: Bounds,
    has_characters: bool,
    levels: [usize; 2],
}

fn row_group(input: &mut Compact) -> Option<Vec<Chunk>> {
    let mut chunks = Vec::new();
    input.fields(|input, kind, id| match (kind, id) {
        (LIST, 1) => input.list(Chunk::read).map(|found| chunks = found).map(|()| true),
        _ => Some(false),
    })?;
    Some(chunks)
}

impl Chunk {
    fn read(input: &mut Compact) -> Option<Self> {
        let mut found = Self::default();
        input.fields(|input, kind, id| match (kind, id) {
            (STRUCT, 3) => found.read_metadata(input).map(|()| true),
            _ => Some(false),
        })?;
        Some(found)
    }

    fn read_metadata(&mut self, input: &mut Compact) -> Option<()> {
        self.has_metadata = true;
        input.fields(|input, kind, id| {
            match (kind, id) {
                (I32, 1) => self.physical = Some(input.number()? as i32),
                (I32, 4) => self.codec = Some(input.number()? as i32),
                (STRUCT, 12) => self.read_statistics(input)?,
                (STRUCT, 16) => self.read_sizes(input)?,
                _ => return Some(false),
            }
            Some(true)
        })
    }

    fn read_statistics(&mut self, input: &mut Compact) -> Option<()> {
        if self.statistics != (0, 0) {
            return None; // pyarrow would take the fields of both
        }
        let begin = input.0.len();
        input.fields(|input, kind, id| {
            match (kind, id) {
                (TEXT, 1 | 2) => self.former_bounds.add(input.text()?),
                (TEXT, 5 | 6) => self.bounds.add(input.text()?),
                _ => return Some(false),
            }
            Some(true)
        })?;
        self.statistics = (begin, input.0.len() + STOP_BYTES);
        Some(())
    }

    fn read_sizes(&mut self, input: &mut Compact) -> Option<()> {
        input.fields(|input, kind, id| {
            match (kind, id) {
                (I64, 1) => self.has_characters = input.number().is_some(),
                (LIST, 2 | 3) => self.levels[id as usize - 2] = input.list(|input| input.number().map(drop))?.len(),
                _ => return Some(false),
            }
            Some(true)
        })
    }

    fn has_short_bounds(&self, leaf: &Leaf) -> bool {
        let width = leaf.value_bytes();
        self.bounds.are_below(width) || self.bounds.many < 2 && self.former_bounds.are_below(width)
    }

    fn doubt(&self, leaf: &Leaf) -> Option<&'static str> {
        let is_wrong = |counted: usize, greatest: usize| counted != 0 && counted != greatest + 1;
        if !self.has_metadata {
            Some("it has no metadata")
        } else if self.physical != Some(leaf.physical) {
            Some("its type is another one than in the schema")
        } else if !self.codec.is_some_and(|codec| CODECS.contains(&codec)) {
            Some("its codec is none")
        } else if is_wrong(self.levels[0], leaf.repetition) || is_wrong(self.levels[1], leaf.definition) {
            Some("its levels are not those of the schema")
        } else if self.has_characters && leaf.physical != BYTE_ARRAY {
            Some("it counts characters, and is no text")
        } else if leaf.physical != FIXED_LEN_BYTE_ARRAY && self.has_short_bounds(leaf) {
            Some("its least or greatest value is cut short")
        } else {
            None
        }
    }
}
