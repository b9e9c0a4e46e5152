//! A column from Arrow's C data interface, as plain bytes. Row 0 is the first row of the slice.
//!
//! ```text
//! pa.array([7, None, 9, 4], int16()).slice(1, 2)   rows() = 2, valid(0) = false, fixed::<2>() = [[?, ?], [9, 0]]
//! pa.array(["ab", "", "c"]).slice(1)               bytes_at(0) = "", bytes_at(1) = "c"
//! ```
//!
//! Offsets and views are checked before they are followed. The C data interface does not carry the true length of a
//! buffer, so that cannot be checked: we trust the producer of the array.

use crate::Refused;
use arrow_array::Array;
use arrow_buffer::NullBuffer;
use arrow_data::ArrayData;
use arrow_schema::{DataType, Field};

pub struct Column {
    data: ArrayData,
}

impl Column {
    /// Takes over an imported array. Refuses an extension array: the caller must pass its storage.
    pub fn new(position: usize, array: &dyn Array, field: &Field) -> Result<Self, Refused> {
        if let Some(name) = field.metadata().get("ARROW:extension:name") {
            return Err(format!("column {position}: extension type {name} must be cast to its storage type first"));
        }
        Ok(Self::of(array.to_data()))
    }

    /// A column of an array that is no extension array, or whose extension type does not matter.
    pub fn of(data: ArrayData) -> Self {
        Self { data }
    }

    pub fn data_type(&self) -> &DataType {
        self.data.data_type()
    }

    pub fn rows(&self) -> usize {
        self.data.len()
    }

    /// None: no row is null.
    pub fn nulls(&self) -> Option<&NullBuffer> {
        self.data.nulls().filter(|nulls| nulls.null_count() > 0)
    }

    /// The values of a column whose values have W bytes each.
    pub fn fixed<const W: usize>(&self) -> &[[u8; W]] {
        self.fixed_bytes(W).as_chunks().0
    }

    /// The same for a width that the compiler does not know (fixed-size binary).
    pub fn fixed_bytes(&self, width: usize) -> &[u8] {
        let from = self.data.offset() * width;
        self.data.buffers().first().map_or(&[], |buffer| &buffer.as_slice()[from..from + self.rows() * width])
    }

    /// The value of a bool column.
    pub fn bit(&self, row: usize) -> bool {
        let at = self.data.offset() + row;
        self.data.buffers()[0].as_slice()[at / 8] >> (at % 8) & 1 == 1
    }

    /// The layout of a variable-width column. None: the column has another type.
    pub fn variable(&self) -> Option<Variable<'_>> {
        let buffer = |i: usize| self.data.buffers().get(i).map_or(&[][..], |b| b.as_slice());
        let from = self.data.offset();
        Some(match self.data_type() {
            DataType::Utf8 | DataType::Binary => {
                Variable::Small { offsets: buffer(0).as_chunks().0.get(from..).unwrap_or(&[]), bytes: buffer(1) }
            }
            DataType::LargeUtf8 | DataType::LargeBinary => {
                Variable::Large { offsets: buffer(0).as_chunks().0.get(from..).unwrap_or(&[]), bytes: buffer(1) }
            }
            DataType::Utf8View | DataType::BinaryView => Variable::View {
                views: buffer(0).as_chunks().0.get(from..).unwrap_or(&[]),
                buffers: self.data.buffers().iter().skip(1).map(|b| b.as_slice()).collect(),
            },
            DataType::FixedSizeBinary(width) => {
                let width = *width as usize;
                Variable::Fixed { width, bytes: self.fixed_bytes(width) }
            }
            _ => return None,
        })
    }
}

/// Finds a row's bytes, for Arrow's four layouts.
pub enum Variable<'a> {
    Small { offsets: &'a [[u8; 4]], bytes: &'a [u8] },
    Large { offsets: &'a [[u8; 8]], bytes: &'a [u8] },
    View { views: &'a [[u8; 16]], buffers: Vec<&'a [u8]> },
    Fixed { width: usize, bytes: &'a [u8] },
}

impl<'a> Variable<'a> {
    /// None: the array's own offsets lead outside of it.
    #[inline]
    pub fn bytes_at(&self, row: usize) -> Option<&'a [u8]> {
        match self {
            Self::Small { offsets, bytes } => {
                let from = u32::from_le_bytes(*offsets.get(row)?) as usize;
                let to = u32::from_le_bytes(*offsets.get(row + 1)?) as usize;
                bytes.get(from..to)
            }
            Self::Large { offsets, bytes } => {
                let from = u64::from_le_bytes(*offsets.get(row)?) as usize;
                let to = u64::from_le_bytes(*offsets.get(row + 1)?) as usize;
                bytes.get(from..to)
            }
            Self::View { views, buffers } => {
                // length, then either up to 12 bytes, or a 4-byte prefix, a buffer number and an offset
                let view = views.get(row)?;
                let word = |i: usize| u32::from_le_bytes([view[i], view[i + 1], view[i + 2], view[i + 3]]) as usize;
                let length = word(0);
                if length <= 12 {
                    return view.get(4..4 + length);
                }
                buffers.get(word(8))?.get(word(12)..word(12).checked_add(length)?)
            }
            Self::Fixed { width, bytes } => bytes.get(row * width..(row + 1) * width),
        }
    }
}
