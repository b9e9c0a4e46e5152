//! Canonical bytes of whole rows, and the sum of their hashes. They do not depend on the types and files of the rows.
//!
//! ```text
//! {1: id 42, 2: note null, 3: tags ["a", null]}
//!   00000001 01 01 01 000000000000002a                  id: label, presence, class tag, value, as in keys
//!                                                       a null has no bytes, so a column that was added later has none
//!   00000003 01 0c 00000002  01 09 00000001 61  00      tags: their number, then each as in keys
//!
//! map        0d, the number of items, then the key and the value of each
//! struct     0e, its children with their labels, then ffffffff
//! sum        the first 16 bytes of each row's SHA-1, added modulo 2^128
//! ```
//!
//! A label is the field id; for columns without ids, the length of the name in 4 bytes, and the name. Columns are in the
//! order of their labels' bytes. A nested column is first turned into a binary column of its bytes.

use crate::Refused;
use crate::columns::Column;
use crate::digests::{digest_rows, each_row_bytes};
use crate::key_bytes::{KeyColumns, LIST, MAP, STRUCT, tag_of};
use crate::sha1::DIGEST_BYTES;
use crate::sha1_backend::Backend;
use arrow_array::{Array, LargeBinaryArray};
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_data::ArrayData;
use arrow_schema::{DataType, Field, Fields};
use std::ops::Range;

const FIELD_ID: &str = "PARQUET:field_id";
const END_OF_STRUCT: [u8; 4] = [0xff; 4];
const SUM_BYTES: usize = 16;

/// The sum of the hashes of all rows of a struct array. Its fields may lack ids: those of `schema` count, at any depth.
pub fn row_sum(rows: &ArrayData, schema: &DataType) -> Result<u128, Refused> {
    let columns = RowColumns::new(rows, 0..rows.len(), schema)?;
    let mut digests = vec![[0; DIGEST_BYTES]; rows.len()];
    digest_rows(&columns.labelled()?, Backend::detect(), &mut digests)?;
    let first = digests.iter().filter_map(|digest| digest.first_chunk::<SUM_BYTES>());
    Ok(first.fold(0, |sum, bytes| sum.wrapping_add(u128::from_be_bytes(*bytes))))
}

/// The bytes of each row, as they are hashed.
pub fn row_bytes(rows: &ArrayData, schema: &DataType) -> Result<Vec<Vec<u8>>, Refused> {
    let columns = RowColumns::new(rows, 0..rows.len(), schema)?;
    let mut all = Vec::with_capacity(rows.len());
    each_row_bytes(&columns.labelled()?, rows.len(), |bytes| all.push(bytes.to_vec()))?;
    Ok(all)
}

/// The columns of a struct in the order of their labels, none of them nested.
struct RowColumns {
    columns: Vec<Column>,
    tags: Vec<u8>,
    labels: Vec<Vec<u8>>,
}

impl RowColumns {
    fn new(data: &ArrayData, rows: Range<usize>, schema: &DataType) -> Result<Self, Refused> {
        let (DataType::Struct(fields), DataType::Struct(own)) = (schema, data.data_type()) else {
            return Err(format!("want a struct array and a struct as its schema, got {} and {schema}", data.data_type()));
        };
        let names = |fields: &Fields| fields.iter().map(|field| field.name().clone()).collect::<Vec<_>>();
        if names(fields) != names(own) {
            return Err(format!("want the schema's fields {:?}, got {:?}", names(fields), names(own)));
        }
        let mut made = Self { columns: vec![], tags: vec![], labels: vec![] };
        for (place, label) in ordered(fields)? {
            let named = |why: Refused| format!("column {:?}: {why}", fields[place].name());
            let rows = shifted(&rows, data.offset());
            let (column, tag) = flat(&data.child_data()[place], rows, fields[place].data_type()).map_err(named)?;
            made.columns.push(column);
            made.tags.push(tag);
            made.labels.push(label);
        }
        Ok(made)
    }

    fn labelled(&self) -> Result<KeyColumns<'_>, Refused> {
        KeyColumns::labelled(&self.columns, &self.tags, &self.labels)
    }
}

/// The same rows in a child of the array: in the C data interface, the array's offset applies to its children, too.
fn shifted(rows: &Range<usize>, offset: usize) -> Range<usize> {
    rows.start + offset..rows.end + offset
}

/// (place, label) of each field, in the order of labels.
fn ordered(fields: &Fields) -> Result<Vec<(usize, Vec<u8>)>, Refused> {
    let have_ids = fields.iter().all(|field| field.metadata().contains_key(FIELD_ID));
    let label = |field: &Field| if have_ids { id_label(field) } else { Ok(name_label(field)) };
    let labelled = fields.iter().enumerate().map(|(place, field)| Ok((place, label(field)?)));
    let mut labels = labelled.collect::<Result<Vec<_>, Refused>>()?;
    labels.sort_by(|one, other| one.1.cmp(&other.1));
    Ok(labels)
}

fn id_label(field: &Field) -> Result<Vec<u8>, Refused> {
    let text = &field.metadata()[FIELD_ID];
    let id = text.parse::<i32>().ok().filter(|id| *id >= 0);
    let id = id.ok_or_else(|| format!("column {:?}: {text:?} is no field id", field.name()))?;
    Ok(id.to_be_bytes().to_vec())
}

fn name_label(field: &Field) -> Vec<u8> {
    let mut label = (field.name().len() as u32).to_be_bytes().to_vec();
    label.extend_from_slice(field.name().as_bytes());
    label
}

/// Rows of a column as a column without nesting, and its class tag.
fn flat(data: &ArrayData, rows: Range<usize>, type_: &DataType) -> Result<(Column, u8), Refused> {
    use DataType::*;
    let small = |bytes: [u8; 4]| i32::from_le_bytes(bytes) as usize;
    let (packed, tag) = match data.data_type() {
        Struct(_) => (structs(data, rows, type_)?, STRUCT),
        List(_) => (lists(data, offsets(data, &rows, small), rows, type_)?, LIST),
        LargeList(_) => (lists(data, offsets(data, &rows, |bytes| i64::from_le_bytes(bytes) as usize), rows, type_)?, LIST),
        FixedSizeList(_, width) => {
            let here = shifted(&rows, data.offset());
            (lists(data, (here.start..=here.end).map(|row| row * *width as usize).collect(), rows, type_)?, LIST)
        }
        Map(..) => (lists(data, offsets(data, &rows, small), rows, type_)?, MAP),
        other => {
            let tag = tag_of(other).ok_or_else(|| format!("Arrow type {other} has no canonical form"))?;
            return Ok((Column::of(data.slice(rows.start, rows.len())), tag));
        }
    };
    Ok((Column::of(packed.to_data()), tag))
}

/// Where the items of each row begin, and the end of the last row's.
fn offsets<const W: usize>(data: &ArrayData, rows: &Range<usize>, number: impl Fn([u8; W]) -> usize) -> Vec<usize> {
    let all: &[[u8; W]] = data.buffers()[0].as_slice().as_chunks().0;
    let here = shifted(rows, data.offset());
    let found = all.get(here.start..=here.end); // an empty array may lack even the first
    found.map_or(vec![0], |found| found.iter().map(|bytes| number(*bytes)).collect())
}

fn structs(data: &ArrayData, rows: Range<usize>, type_: &DataType) -> Result<LargeBinaryArray, Refused> {
    let columns = RowColumns::new(data, rows.clone(), type_)?;
    let inside = Packed::new(&columns.labelled()?, rows.len())?;
    Ok(joined(nulls(data, &rows), rows.len(), |row, out| {
        out.extend_from_slice(inside.of(row..row + 1));
        out.extend_from_slice(&END_OF_STRUCT);
    }))
}

/// The number of items, then the bytes of each, as in keys. An item of a map is two values: key and value.
fn lists(data: &ArrayData, offsets: Vec<usize>, rows: Range<usize>, type_: &DataType) -> Result<LargeBinaryArray, Refused> {
    let items = &data.child_data()[0];
    let used = offsets[0]..offsets[offsets.len() - 1];
    let parts = match (data.data_type(), type_) {
        (DataType::Map(..), DataType::Map(entries, _)) => {
            let DataType::Struct(sides) = entries.data_type() else { return Err(format!("{type_} is no map")) };
            let rows = shifted(&used, items.offset());
            let side = |place: usize| flat(&items.child_data()[place], rows.clone(), sides[place].data_type());
            vec![side(0)?, side(1)?]
        }
        (_, DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _)) => {
            vec![flat(items, used.clone(), item.data_type())?]
        }
        (own, _) => return Err(format!("{own} does not fit the schema's {type_}")),
    };
    let (columns, tags): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
    let inside = Packed::new(&KeyColumns::new(&columns, &tags)?, used.len())?;
    Ok(joined(nulls(data, &rows), rows.len(), |row, out| {
        let (from, to) = (offsets[row] - used.start, offsets[row + 1] - used.start);
        out.extend_from_slice(&((to - from) as u32).to_be_bytes());
        out.extend_from_slice(inside.of(from..to));
    }))
}

fn nulls(data: &ArrayData, rows: &Range<usize>) -> Option<NullBuffer> {
    data.nulls().map(|nulls| nulls.slice(rows.start, rows.len()))
}

/// The bytes of rows, one after another.
struct Packed {
    ends: Vec<usize>,
    bytes: Vec<u8>,
}

impl Packed {
    fn new(columns: &KeyColumns, rows: usize) -> Result<Self, Refused> {
        let mut lengths = vec![0; rows];
        columns.lengths(0..rows, &mut lengths)?;
        let mut cursors = Vec::with_capacity(rows);
        let mut total = 0;
        for length in lengths {
            cursors.push(total);
            total += length;
        }
        let mut bytes = vec![0; total];
        columns.write(0..rows, &mut bytes, &mut cursors)?;
        Ok(Self { ends: cursors, bytes })
    }

    fn of(&self, rows: Range<usize>) -> &[u8] {
        let end = |rows: usize| if rows == 0 { 0 } else { self.ends[rows - 1] };
        &self.bytes[end(rows.start)..end(rows.end)]
    }
}

/// A binary column: `write` appends the bytes of each row that is not null.
fn joined(nulls: Option<NullBuffer>, rows: usize, write: impl Fn(usize, &mut Vec<u8>)) -> LargeBinaryArray {
    let mut bytes = Vec::new();
    let mut offsets = vec![0i64];
    for row in 0..rows {
        if nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)) {
            write(row, &mut bytes);
        }
        offsets.push(bytes.len() as i64);
    }
    LargeBinaryArray::new(OffsetBuffer::new(ScalarBuffer::from(offsets)), bytes.into(), nulls)
}
