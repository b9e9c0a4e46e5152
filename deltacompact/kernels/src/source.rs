//! The bytes of a Parquet file in any store: the `parquet` crate asks for ranges, the caller fills buffers.

use crate::Refused;
use bytes::Bytes;
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{ChunkReader, Length};
use std::io::{self, BufReader, Read};

/// The bytes of a chunk that are in memory at once. The buffer is small, and reused.
const PIECE_BYTES: usize = 256 << 10;

/// Fills a buffer with the bytes of a source from an offset on.
pub type ReadAt<'a> = dyn Fn(u64, &mut [u8]) -> io::Result<()> + Send + Sync + 'a;

#[derive(Clone, Copy)]
pub struct Source<'a> {
    pub size: u64,
    pub read: &'a ReadAt<'a>,
}

impl Length for Source<'_> {
    fn len(&self) -> u64 {
        self.size
    }
}

impl<'a> ChunkReader for Source<'a> {
    type T = BufReader<From<'a>>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        Ok(BufReader::with_capacity(PIECE_BYTES, From { source: *self, at: start }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        if start.checked_add(length as u64).is_none_or(|end| end > self.size) {
            return Err(ParquetError::EOF(format!("{length} bytes at {start}, the file has {}", self.size)));
        }
        let mut bytes = vec![0; length];
        (self.read)(start, &mut bytes)?;
        Ok(bytes.into())
    }
}

/// A source from an offset on.
pub struct From<'a> {
    source: Source<'a>,
    at: u64,
}

impl Read for From<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let length = out.len().min((self.source.size - self.at.min(self.source.size)) as usize);
        (self.source.read)(self.at, &mut out[..length])?;
        self.at += length as u64;
        Ok(length)
    }
}

pub fn refused(error: ParquetError) -> Refused {
    error.to_string()
}
