//! As much of Thrift as it takes to look into Parquet's footers and page headers without decoding them.

/// As much of Thrift's compact protocol as it takes to skip fields.
pub struct Compact<'a>(pub &'a [u8]);

pub const STOP: u8 = 0;
const DEPTH_MAX: u32 = 32;

impl Compact<'_> {
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

    /// The kind and the number of the field after the one of this number.
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
            8 => {
                let length = self.varint()?;
                self.0 = self.0.get(usize::try_from(length).ok()?..)?;
            }
            9 | 10 => {
                let head = self.byte()?;
                let count = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
                for _ in 0..count {
                    self.element(head & 0xf, depth)?;
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
            12 => {
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
