//! Sort keys as bytes: of two rows with one key, the greater byte string wins, for all types and directions.
//!
//! ```text
//! int8 ascending     -3 -> 01 7d    5 -> 01 85    null -> 00 00     5 wins
//! int8 descending    -3 -> 01 82    5 -> 01 7a    null -> 00 00     -3 wins, null still loses
//! string, width 3    "a" -> 01 610000 01    "a\0" -> 01 610000 02    "ab" -> 01 616200 02    "ab" wins
//! ```
//!
//! Each column has a presence byte (never inverted), then the value in a form that compares byte by byte: integers are
//! big-endian with the sign bit flipped; negative floats have all bits flipped, -0.0 is 0.0 and one NaN is above +inf;
//! strings and binaries are padded with zeros to the caller's width, then comes their length; descending inverts all.

use crate::Refused;
use crate::columns::{Column, Variable};
use arrow_schema::DataType;

/// The longest string or binary: its length takes one byte, and a sort key has at most so many bytes of values.
pub const WIDTH_MAX: usize = 32;
const LENGTH_BYTES: usize = 1;

/// One sort column of a call. `width`: the bytes for each value of a column of variable width.
pub struct SortColumn<'a> {
    pub column: &'a Column,
    pub descending: bool,
    pub width: Option<usize>,
}

impl SortColumn<'_> {
    /// Bytes of the column's part of a sort key.
    fn bytes(&self, position: usize) -> Result<usize, Refused> {
        let data_type = self.column.data_type();
        if let (Some(width), true) = (self.width, self.column.variable().is_some()) {
            return Ok(1 + width + LENGTH_BYTES);
        }
        let value = value_bytes(data_type);
        value.map(|bytes| 1 + bytes).ok_or_else(|| match self.column.variable() {
            Some(_) => format!("column {position}: Arrow type {data_type} needs a width to be a sort key"),
            None => format!("column {position}: Arrow type {data_type} cannot be a sort key"),
        })
    }
}

/// Bytes of a column's values. None: the type has no fixed width, or cannot be a sort key.
fn value_bytes(data_type: &DataType) -> Option<usize> {
    use DataType::*;
    Some(match data_type {
        Boolean | Int8 | UInt8 => 1,
        Int16 | UInt16 | Float16 => 2,
        Int32 | UInt32 | Float32 | Decimal32(..) | Date32 | Time32(_) => 4,
        Int64 | UInt64 | Float64 | Decimal64(..) | Date64 | Time64(_) | Timestamp(..) | Duration(_) => 8,
        Decimal128(..) => 16,
        Decimal256(..) => 32,
        FixedSizeBinary(width) => usize::try_from(*width).ok()?,
        _ => return None,
    })
}

/// Bytes of a sort key: for each column its presence byte and its value.
pub fn sort_key_bytes(columns: &[SortColumn]) -> Result<usize, Refused> {
    columns.iter().enumerate().map(|(position, column)| column.bytes(position)).sum()
}

/// Fills `out`, rows of `width` zero bytes each. Refuses a string or binary that is longer than its column's width.
pub fn write_sort_keys(columns: &[SortColumn], width: usize, out: &mut [u8]) -> Result<(), Refused> {
    let mut from = 0;
    for (position, each) in columns.iter().enumerate() {
        let invert = if each.descending { 0xff } else { 0 };
        let mut to = Target { column: each.column, invert, from, width, out };
        match (each.width, each.column.variable()) {
            (Some(value_width), Some(values)) => {
                to.variable(&values, value_width).map_err(|(row, why)| format!("column {position}, row {row}: {why}"))?
            }
            _ => write_column(&mut to),
        }
        from += each.bytes(position)?;
    }
    Ok(())
}

fn write_column(to: &mut Target) {
    use DataType::*;
    let column = to.column;
    match column.data_type() {
        Boolean => to.write(|row| [u8::from(column.bit(row))]),
        UInt8 => to.fixed(|v: [u8; 1]| v),
        UInt16 => to.fixed(big_endian::<2>),
        UInt32 => to.fixed(big_endian::<4>),
        UInt64 => to.fixed(big_endian::<8>),
        Int8 => to.fixed(signed::<1>),
        Int16 => to.fixed(signed::<2>),
        Int32 | Decimal32(..) | Date32 | Time32(_) => to.fixed(signed::<4>),
        Int64 | Decimal64(..) | Date64 | Time64(_) | Timestamp(..) | Duration(_) => to.fixed(signed::<8>),
        Decimal128(..) => to.fixed(signed::<16>),
        Decimal256(..) => to.fixed(signed::<32>),
        Float16 => {
            to.fixed(|v| ordered(u16::from_le_bytes(v).into(), 0x7c00, 1 << 15).to_be_bytes()[6..].try_into().unwrap_or([0; 2]))
        }
        Float32 => to.fixed(|v| {
            ordered(u32::from_le_bytes(v).into(), 0x7f80_0000, 1 << 31).to_be_bytes()[4..].try_into().unwrap_or([0; 4])
        }),
        Float64 => to.fixed(|v| ordered(u64::from_le_bytes(v), 0x7ff0 << 48, 1 << 63).to_be_bytes()),
        FixedSizeBinary(width) => to.binary(*width as usize),
        _ => {}
    }
}

#[inline(always)]
fn big_endian<const W: usize>(mut value: [u8; W]) -> [u8; W] {
    value.reverse();
    value
}

#[inline(always)]
fn signed<const W: usize>(value: [u8; W]) -> [u8; W] {
    let mut out = big_endian(value);
    out[0] ^= 0x80;
    out
}

/// The bits of a float of any width: inverted if it is negative, otherwise with the sign bit set. Above `infinity` is NaN.
#[inline(always)]
fn ordered(bits: u64, infinity: u64, sign: u64) -> u64 {
    let magnitude = bits & (sign - 1);
    if magnitude > infinity {
        // the quiet NaN: infinity's exponent and the first bit of the fraction
        let quiet = infinity | ((infinity & infinity.wrapping_neg()) >> 1);
        quiet | sign
    } else if magnitude == 0 {
        sign
    } else if bits & sign != 0 {
        !bits & (sign | (sign - 1))
    } else {
        bits | sign
    }
}

/// Where one column's part of each sort key goes.
struct Target<'a> {
    column: &'a Column,
    invert: u8,
    from: usize,
    width: usize,
    out: &'a mut [u8],
}

impl Target<'_> {
    #[inline(always)]
    fn fixed<const W: usize>(&mut self, encode: impl Fn([u8; W]) -> [u8; W]) {
        let values = self.column.fixed::<W>();
        self.write(|row| encode(values[row]));
    }

    #[inline(always)]
    fn write<const W: usize>(&mut self, encode: impl Fn(usize) -> [u8; W]) {
        let nulls = self.column.nulls();
        for (row, key) in self.out.chunks_exact_mut(self.width).enumerate() {
            if nulls.is_none_or(|nulls| nulls.is_valid(row)) {
                let slot = &mut key[self.from..self.from + 1 + W];
                slot[0] = 1;
                slot[1..].copy_from_slice(&encode(row).map(|byte| byte ^ self.invert));
            }
        }
    }

    fn binary(&mut self, value_width: usize) {
        let nulls = self.column.nulls();
        let values = self.column.fixed_bytes(value_width);
        for (row, key) in self.out.chunks_exact_mut(self.width).enumerate() {
            if nulls.is_none_or(|nulls| nulls.is_valid(row)) {
                let slot = &mut key[self.from..self.from + 1 + value_width];
                slot[0] = 1;
                let value = &values[row * value_width..(row + 1) * value_width];
                slot[1..].iter_mut().zip(value).for_each(|(to, byte)| *to = byte ^ self.invert);
            }
        }
    }

    /// Writes values padded with zeros to `value_width`, then their length. Returns a row that cannot be written, and why.
    fn variable(&mut self, values: &Variable, value_width: usize) -> Result<(), (usize, String)> {
        let nulls = self.column.nulls();
        for (row, key) in self.out.chunks_exact_mut(self.width).enumerate() {
            if nulls.is_some_and(|nulls| nulls.is_null(row)) {
                continue;
            }
            let Some(value) = values.bytes_at(row) else {
                return Err((row, "the array's offsets lead outside of its data".into()));
            };
            if value.len() > value_width {
                return Err((row, format!("a value of {} bytes is longer than {value_width}", value.len())));
            }
            let slot = &mut key[self.from..self.from + 1 + value_width + LENGTH_BYTES];
            slot[0] = 1;
            slot[1..1 + value.len()].copy_from_slice(value);
            slot[1 + value_width] = value.len() as u8;
            if self.invert != 0 {
                slot[1..].iter_mut().for_each(|byte| *byte ^= self.invert);
            }
        }
        Ok(())
    }
}
