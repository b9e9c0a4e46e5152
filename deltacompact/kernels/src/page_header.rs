//! What the header of a Parquet page tells of its bytes.

use crate::thrift::{Compact, I32};

pub struct PageHeader {
    /// Bytes of the header itself. The page follows.
    pub length: usize,
    pub page_bytes: u64,
    /// Bytes of the page when it is decompressed.
    pub plain_bytes: u64,
    pub checksum: Option<u32>,
}

impl PageHeader {
    /// The header at the beginning of these bytes. None: it is not complete, or is not one.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        const PLAIN_SIZE: i16 = 2;
        const COMPRESSED_SIZE: i16 = 3;
        const CRC: i16 = 4;
        let (mut input, mut plain, mut size, mut checksum) = (Compact(bytes), None, None, None);
        input.fields(|input, kind, id| {
            match (kind, id) {
                (I32, PLAIN_SIZE) => plain = Some(unzigzag(input.varint()?)),
                (I32, COMPRESSED_SIZE) => size = Some(unzigzag(input.varint()?)),
                (I32, CRC) => checksum = Some(unzigzag(input.varint()?) as u32),
                _ => return Some(false),
            }
            Some(true)
        })?;
        let page_bytes = u64::try_from(size?).ok()?;
        let plain_bytes = plain.and_then(|plain| u64::try_from(plain).ok()).unwrap_or(u64::MAX);
        Some(Self { length: bytes.len() - input.0.len(), page_bytes, plain_bytes, checksum })
    }
}

fn unzigzag(value: u64) -> i32 {
    (value as u32 >> 1) as i32 ^ -((value & 1) as i32)
}
