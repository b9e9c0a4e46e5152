//! Canonical key bytes: two rows have the same bytes exactly when their keys are equal, whatever types carry them.
//!
//! ```text
//! tags [1, 9], columns id int32 and name large_utf8
//!   (42, "ab")   01 01 01 000000000000002a  01 09 00000002 6162
//!   (-1, "")     01 01 00 ffffffffffffffff  01 09 00000000
//!   (null, null) 00                         00
//! ```
//!
//! Each column has a presence byte, a class tag and the value. A null has only the presence byte, so its bytes are the same
//! before the column's class is known. Still, key bytes decode in only one way.
//! A whole row (`rows.rs`) has a label before each value, and nothing for a null:
//!
//! ```text
//! ids 1 and 2  (42, "ab")   00000001 01 01 01 000000000000002a  00000002 01 09 00000002 6162
//!              (42, null)   00000001 01 01 01 000000000000002a
//! ```
//!
//! Rows are encoded in batches, column by column, into an arena: the lengths of all rows are computed first, then each
//! column writes its part of each row and advances the row's cursor.

use crate::Refused;
use crate::columns::{Column, Variable};
use arrow_schema::{DataType, TimeUnit};
use half::f16;
use std::ops::Range;

const CLASS_NAMES: [&str; 15] = [
    "?",
    "integer",
    "float",
    "decimal",
    "naive timestamp",
    "zoned timestamp",
    "date",
    "time",
    "duration",
    "string",
    "binary",
    "bool",
    "list",
    "map",
    "struct",
];
const INTEGER: u8 = 1;
const FLOAT: u8 = 2;
const DECIMAL: u8 = 3;
const NAIVE_TIMESTAMP: u8 = 4;
const ZONED_TIMESTAMP: u8 = 5;
const DATE: u8 = 6;
const TIME: u8 = 7;
const DURATION: u8 = 8;
const STRING: u8 = 9;
const BINARY: u8 = 10;
const BOOL: u8 = 11;
pub const LIST: u8 = 12;
pub const MAP: u8 = 13;
pub const STRUCT: u8 = 14;

const PREFIX_BYTES: usize = 2;
const NULL_BYTES: usize = 1;
const LENGTH_BYTES: usize = 4;
const DAY_MS: i64 = 86_400_000;

/// The columns of one call, checked against their class tags.
pub struct KeyColumns<'a> {
    columns: Vec<KeyColumn<'a>>,
}

struct KeyColumn<'a> {
    position: usize,
    /// Bytes before each value that is not null.
    label: &'a [u8],
    null_bytes: usize,
    tag: u8,
    column: &'a Column,
    form: Form<'a>,
}

/// The form of a value in the key bytes.
enum Form<'a> {
    AllNull,
    Fixed {
        bytes: usize,
    },
    /// The length, in `length_bytes`, comes before the value. A nested value needs none.
    Variable {
        values: Variable<'a>,
        length_bytes: usize,
    },
}

impl<'a> KeyColumns<'a> {
    pub fn new(columns: &'a [Column], tags: &[u8]) -> Result<Self, Refused> {
        let columns = columns.iter().zip(tags).enumerate();
        let checked = columns.map(|(position, (column, &tag))| KeyColumn::new(position, column, tag, &[], NULL_BYTES));
        Ok(Self { columns: checked.collect::<Result<_, Refused>>()? })
    }

    /// The columns of whole rows: a label before each value, nothing for a null.
    pub fn labelled(columns: &'a [Column], tags: &[u8], labels: &'a [Vec<u8>]) -> Result<Self, Refused> {
        let columns = columns.iter().zip(tags).zip(labels).enumerate();
        let checked = columns.map(|(position, ((column, &tag), label))| KeyColumn::new(position, column, tag, label, 0));
        Ok(Self { columns: checked.collect::<Result<_, Refused>>()? })
    }

    /// Whether the key bytes of all rows have the same length.
    pub fn have_one_length(&self) -> bool {
        self.columns.iter().all(|column| match column.form {
            Form::AllNull => true,
            Form::Fixed { .. } => column.column.nulls().is_none(),
            Form::Variable { .. } => false,
        })
    }

    /// Adds this column's bytes of each row to `lengths`.
    pub fn lengths(&self, rows: Range<usize>, lengths: &mut [usize]) -> Result<(), Refused> {
        self.columns.iter().try_for_each(|column| column.lengths(rows.clone(), lengths))
    }

    /// Writes each row's bytes at its cursor, and moves the cursor to their end.
    pub fn write(&self, rows: Range<usize>, arena: &mut [u8], cursors: &mut [usize]) -> Result<(), Refused> {
        self.columns.iter().try_for_each(|column| column.write(rows.clone(), arena, cursors))
    }
}

fn form<'a>(column: &'a Column, tag: u8) -> Option<Form<'a>> {
    use DataType::*;
    let fixed = |bytes| Some(Form::Fixed { bytes });
    match (tag, column.data_type()) {
        (INTEGER..=BOOL, Null) => Some(Form::AllNull),
        (INTEGER, Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64) => fixed(9),
        (FLOAT, Float16 | Float32 | Float64) => fixed(8),
        (DECIMAL, Decimal32(..) | Decimal64(..) | Decimal128(..) | Decimal256(..)) => fixed(32),
        (NAIVE_TIMESTAMP, Timestamp(_, None)) | (ZONED_TIMESTAMP, Timestamp(_, Some(_))) | (DURATION, Duration(_)) => fixed(12),
        (DATE, Date32 | Date64) | (TIME, Time32(_) | Time64(_)) => fixed(8),
        (BOOL, Boolean) => fixed(1),
        (STRING, Utf8 | LargeUtf8 | Utf8View) | (BINARY, Binary | LargeBinary | BinaryView | FixedSizeBinary(_)) => {
            column.variable().map(|values| Form::Variable { values, length_bytes: LENGTH_BYTES })
        }
        (LIST..=STRUCT, LargeBinary) => column.variable().map(|values| Form::Variable { values, length_bytes: 0 }),
        _ => None,
    }
}

/// The class tag of values of this type. None: the type is nested, or has no class.
pub fn tag_of(data_type: &DataType) -> Option<u8> {
    use DataType::*;
    Some(match data_type {
        Null | Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64 => INTEGER,
        Float16 | Float32 | Float64 => FLOAT,
        Decimal32(..) | Decimal64(..) | Decimal128(..) | Decimal256(..) => DECIMAL,
        Timestamp(_, None) => NAIVE_TIMESTAMP,
        Timestamp(_, Some(_)) => ZONED_TIMESTAMP,
        Date32 | Date64 => DATE,
        Time32(_) | Time64(_) => TIME,
        Duration(_) => DURATION,
        Utf8 | LargeUtf8 | Utf8View => STRING,
        Binary | LargeBinary | BinaryView | FixedSizeBinary(_) => BINARY,
        Boolean => BOOL,
        _ => return None,
    })
}

impl<'a> KeyColumn<'a> {
    fn new(position: usize, column: &'a Column, tag: u8, label: &'a [u8], null_bytes: usize) -> Result<Self, Refused> {
        let form = form(column, tag).ok_or_else(|| {
            let class = CLASS_NAMES.get(tag as usize).unwrap_or(&"?");
            format!("column {position}: Arrow type {} does not belong to class tag {tag} ({class})", column.data_type())
        })?;
        Ok(Self { position, label, null_bytes, tag, column, form })
    }

    fn lengths(&self, rows: Range<usize>, lengths: &mut [usize]) -> Result<(), Refused> {
        let (prefix, null) = (self.label.len() + PREFIX_BYTES, self.null_bytes);
        match (&self.form, self.column.nulls()) {
            (Form::AllNull, _) => lengths.iter_mut().for_each(|length| *length += null),
            (Form::Fixed { bytes }, None) => lengths.iter_mut().for_each(|length| *length += prefix + bytes),
            (Form::Fixed { bytes }, Some(nulls)) => {
                for (row, length) in rows.zip(lengths) {
                    *length += if nulls.is_valid(row) { prefix + *bytes } else { null };
                }
            }
            (Form::Variable { values, length_bytes }, nulls) => {
                for (row, length) in rows.zip(lengths) {
                    *length += if nulls.is_none_or(|nulls| nulls.is_valid(row)) {
                        prefix + length_bytes + self.variable_bytes(values, row)?.len()
                    } else {
                        null
                    };
                }
            }
        }
        Ok(())
    }

    fn variable_bytes<'v>(&self, values: &Variable<'v>, row: usize) -> Result<&'v [u8], Refused> {
        let bytes = values
            .bytes_at(row)
            .ok_or_else(|| format!("column {}, row {row}: the array's offsets lead outside of its data", self.position))?;
        if bytes.len() > u32::MAX as usize {
            return Err(format!(
                "column {}, row {row}: a value of {} bytes is longer than {}",
                self.position,
                bytes.len(),
                u32::MAX
            ));
        }
        Ok(bytes)
    }

    fn write(&self, rows: Range<usize>, arena: &mut [u8], cursors: &mut [usize]) -> Result<(), Refused> {
        use DataType::*;
        self.write_labels(rows.clone(), arena, cursors);
        let mut to = Target { rows, arena, cursors, tag: self.tag, null_bytes: self.null_bytes, column: self.column };
        let failed = match self.column.data_type() {
            Null => to.write(|_| Some([]), |_| false),
            Int8 => to.fixed(|v| Some(signed(i8::from_le_bytes(v).into()))),
            Int16 => to.fixed(|v| Some(signed(i16::from_le_bytes(v).into()))),
            Int32 => to.fixed(|v| Some(signed(i32::from_le_bytes(v).into()))),
            Int64 => to.fixed(|v| Some(signed(i64::from_le_bytes(v)))),
            UInt8 => to.fixed(|v| Some(unsigned(u8::from_le_bytes(v).into()))),
            UInt16 => to.fixed(|v| Some(unsigned(u16::from_le_bytes(v).into()))),
            UInt32 => to.fixed(|v| Some(unsigned(u32::from_le_bytes(v).into()))),
            UInt64 => to.fixed(|v| Some(unsigned(u64::from_le_bytes(v)))),
            Float16 => to.fixed(|v| Some(float(f16::from_le_bytes(v).to_f64()))),
            Float32 => to.fixed(|v| Some(float(f32::from_le_bytes(v).into()))),
            Float64 => to.fixed(|v| Some(float(f64::from_le_bytes(v)))),
            Decimal32(..) => to.fixed(|v: [u8; 4]| Some(decimal(v))),
            Decimal64(..) => to.fixed(|v: [u8; 8]| Some(decimal(v))),
            Decimal128(..) => to.fixed(|v: [u8; 16]| Some(decimal(v))),
            Decimal256(..) => to.fixed(|v: [u8; 32]| Some(decimal(v))),
            Timestamp(unit, _) | Duration(unit) => {
                let (per_second, nanoseconds) = (per_second(*unit), nanoseconds(*unit));
                to.fixed(|v| Some(instant(i64::from_le_bytes(v), per_second, nanoseconds)))
            }
            Date32 => to.fixed(|v| Some(i64::from(i32::from_le_bytes(v)).to_be_bytes())),
            Date64 => to.fixed(|v| {
                let ms = i64::from_le_bytes(v);
                (ms % DAY_MS == 0).then(|| (ms / DAY_MS).to_be_bytes())
            }),
            Time32(unit) => {
                let nanoseconds = nanoseconds(*unit);
                to.fixed(|v| Some((i64::from(i32::from_le_bytes(v)) * nanoseconds).to_be_bytes()))
            }
            Time64(unit) => {
                let nanoseconds = nanoseconds(*unit);
                to.fixed(|v| Some(i64::from_le_bytes(v).checked_mul(nanoseconds)?.to_be_bytes()))
            }
            Boolean => to.write(|row| Some([u8::from(self.column.bit(row))]), |row| to_valid(self.column, row)),
            _ => match &self.form {
                Form::Variable { values, length_bytes } => to.variable(values, *length_bytes),
                _ => None,
            },
        };
        failed.map_or(Ok(()), |row| Err(self.unencodable(row)))
    }

    fn write_labels(&self, rows: Range<usize>, arena: &mut [u8], cursors: &mut [usize]) {
        if self.label.is_empty() || matches!(self.form, Form::AllNull) {
            return;
        }
        for (row, cursor) in rows.zip(cursors) {
            if to_valid(self.column, row) {
                arena[*cursor..*cursor + self.label.len()].copy_from_slice(self.label);
                *cursor += self.label.len();
            }
        }
    }

    fn unencodable(&self, row: usize) -> Refused {
        let value = self.column.fixed::<8>().get(row).map_or(0, |v| i64::from_le_bytes(*v));
        let why = match self.column.data_type() {
            DataType::Date64 => format!("date64 value {value} ms is not a whole day"),
            _ => format!("time value {value} does not fit nanoseconds of the day"),
        };
        format!("column {}, row {row}: {why}", self.position)
    }
}

fn to_valid(column: &Column, row: usize) -> bool {
    column.nulls().is_none_or(|nulls| nulls.is_valid(row))
}

/// Where one column's part of a batch goes.
struct Target<'a> {
    rows: Range<usize>,
    arena: &'a mut [u8],
    cursors: &'a mut [usize],
    tag: u8,
    null_bytes: usize,
    column: &'a Column,
}

impl Target<'_> {
    /// Writes values of W bytes as V bytes. Returns the first row whose value cannot be written, if any.
    #[inline(always)]
    fn fixed<const W: usize, const V: usize>(&mut self, encode: impl Fn([u8; W]) -> Option<[u8; V]>) -> Option<usize> {
        let column = self.column;
        let values = column.fixed::<W>();
        match column.nulls() {
            None => self.write(|row| encode(values[row]), |_| true),
            Some(nulls) => self.write(|row| encode(values[row]), |row| nulls.is_valid(row)),
        }
    }

    #[inline(always)]
    fn write<const V: usize>(
        &mut self,
        encode: impl Fn(usize) -> Option<[u8; V]>,
        valid: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        for (row, cursor) in self.rows.clone().zip(self.cursors.iter_mut()) {
            if valid(row) {
                let Some(value) = encode(row) else { return Some(row) };
                let slot = &mut self.arena[*cursor..*cursor + PREFIX_BYTES + V];
                slot[0] = 1;
                slot[1] = self.tag;
                slot[PREFIX_BYTES..].copy_from_slice(&value);
                *cursor += PREFIX_BYTES + V;
            } else {
                if self.null_bytes > 0 {
                    self.arena[*cursor] = 0;
                    *cursor += NULL_BYTES;
                }
            }
        }
        None
    }

    /// Writes length, if any, and bytes. `lengths` has already refused values that are too long.
    fn variable(&mut self, values: &Variable, length_bytes: usize) -> Option<usize> {
        for (row, cursor) in self.rows.clone().zip(self.cursors.iter_mut()) {
            if to_valid(self.column, row) {
                let Some(bytes) = values.bytes_at(row) else { return Some(row) };
                let begin = PREFIX_BYTES + length_bytes;
                let slot = &mut self.arena[*cursor..*cursor + begin + bytes.len()];
                slot[0] = 1;
                slot[1] = self.tag;
                slot[PREFIX_BYTES..begin].copy_from_slice(&(bytes.len() as u32).to_be_bytes()[LENGTH_BYTES - length_bytes..]);
                slot[begin..].copy_from_slice(bytes);
                *cursor += slot.len();
            } else {
                if self.null_bytes > 0 {
                    self.arena[*cursor] = 0;
                    *cursor += NULL_BYTES;
                }
            }
        }
        None
    }
}

/// Sign, then two's complement: -1 is 00 ffffffffffffffff and the greatest uint64 is 01 ffffffffffffffff.
#[inline(always)]
fn signed(value: i64) -> [u8; 9] {
    sign_and(u8::from(value >= 0), value as u64)
}

#[inline(always)]
fn unsigned(value: u64) -> [u8; 9] {
    sign_and(1, value)
}

#[inline(always)]
fn sign_and(sign: u8, value: u64) -> [u8; 9] {
    let mut out = [sign; 9];
    out[1..].copy_from_slice(&value.to_be_bytes());
    out
}

#[inline(always)]
fn float(value: f64) -> [u8; 8] {
    let bits = if value.is_nan() {
        0x7ff8_0000_0000_0000
    } else if value == 0.0 {
        0
    } else {
        value.to_bits()
    };
    bits.to_be_bytes()
}

/// Little-endian two's complement of any width to 32 bytes big-endian.
#[inline(always)]
fn decimal<const W: usize>(value: [u8; W]) -> [u8; 32] {
    let mut out = [if value[W - 1] >= 0x80 { 0xff } else { 0 }; 32];
    for (to, from) in out.iter_mut().rev().zip(value) {
        *to = from;
    }
    out
}

fn per_second(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}

fn nanoseconds(unit: TimeUnit) -> i64 {
    1_000_000_000 / per_second(unit)
}

/// Seconds rounded down, and nanoseconds: half a second before the epoch is -1 s and 500,000,000 ns.
#[inline(always)]
fn instant(value: i64, per_second: i64, nanoseconds: i64) -> [u8; 12] {
    let mut out = [0; 12];
    out[..8].copy_from_slice(&value.div_euclid(per_second).to_be_bytes());
    out[8..].copy_from_slice(&((value.rem_euclid(per_second) * nanoseconds) as u32).to_be_bytes());
    out
}
