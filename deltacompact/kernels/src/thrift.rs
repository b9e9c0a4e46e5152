//! The part of Thrift that is needed to read some facts of Parquet's footers and page headers without decoding them.

/// Thrift's compact protocol: skips fields, and reads some.
pub struct Compact<'a>(pub &'a [u8]);

pub const STOP: u8 = 0;
pub const I32: u8 = 5;
pub const I64: u8 = 6;
pub const TEXT: u8 = 8;
pub const LIST: u8 = 9;
pub const STRUCT: u8 = 12;
const DEPTH_MAX: u32 = 32;

impl<'a> Compact<'a> {
    /// Reads the fields of a struct. `take` gets the kind and number of each field, and returns whether it has read it.
    pub fn fields(&mut self, mut take: impl FnMut(&mut Self, u8, i16) -> Option<bool>) -> Option<()> {
        let mut field = 0;
        loop {
            let (kind, id) = self.field(field)?;
            if kind == STOP {
                return Some(());
            }
            if !take(self, kind, id)? {
                self.skip(kind, 0)?;
            }
            field = id;
        }
    }

    /// The elements of a list. The kind that it declares is ignored, as by readers that know its elements.
    pub fn list<T>(&mut self, mut element: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.count()?.1;
        (0..count).map(|_| element(self)).collect()
    }

    pub fn number(&mut self) -> Option<i64> {
        let zigzag = self.varint()?;
        Some((zigzag >> 1) as i64 ^ -((zigzag & 1) as i64))
    }

    pub fn text(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.varint()?).ok()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(text)
    }

    /// The head of a list: the kind and the number of its elements.
    fn count(&mut self) -> Option<(u8, u64)> {
        let head = self.byte()?;
        Some((head & 0xf, if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) }))
    }

    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    pub fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    /// The kind and the number of the next field. `before`: the number of the field before it.
    pub fn field(&mut self, before: i16) -> Option<(u8, i16)> {
        let head = self.byte()?;
        if head & 0xf == STOP {
            return Some((STOP, 0));
        }
        let id = match i16::from(head >> 4) {
            0 => {
                let zigzag = self.varint()? as i16;
                (zigzag as u16 >> 1) as i16 ^ -(zigzag & 1)
            }
            delta => before.checked_add(delta)?,
        };
        Some((head & 0xf, id))
    }

    pub fn skip(&mut self, kind: u8, depth: u32) -> Option<()> {
        if depth > DEPTH_MAX {
            return None;
        }
        match kind {
            1 | 2 => {} // the kind is the boolean's value
            3 => drop(self.byte()?),
            4..=6 => drop(self.varint()?),
            7 => self.0 = self.0.get(8..)?,
            TEXT => drop(self.text()?),
            LIST | 10 => {
                let (kind, count) = self.count()?;
                for _ in 0..count {
                    self.element(kind, depth)?;
                }
            }
            11 => {
                let count = self.varint()?;
                let kinds = if count == 0 { 0 } else { self.byte()? };
                for _ in 0..count {
                    self.element(kinds >> 4, depth)?;
                    self.element(kinds & 0xf, depth)?;
                }
            }
            STRUCT => {
                let mut field = 0;
                loop {
                    let (kind, id) = self.field(field)?;
                    if kind == STOP {
                        break;
                    }
                    self.skip(kind, depth + 1)?;
                    field = id;
                }
            }
            _ => return None,
        }
        Some(())
    }

    /// In a list, a boolean takes a byte.
    fn element(&mut self, kind: u8, depth: u32) -> Option<()> {
        if kind == 1 || kind == 2 { self.byte().map(drop) } else { self.skip(kind, depth + 1) }
    }
}
