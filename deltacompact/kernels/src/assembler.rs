//! A Parquet file made of row groups that are encoded already: their bytes are copied, nothing is decoded.
//!
//! ```text
//! source A   [g0][g1][g2] footer          template: a file without rows, of the schema and metadata that are wanted
//! source B   [g0] footer
//! append(A, 2), append(B, 0)  ->  [A.g2][B.g0] footer with the offsets of the new place
//! ```
//!
//! Statistics, column and offset indexes and histograms go with their chunks. A row group whose columns are not exactly
//! those of the template is refused.

use crate::Refused;
use bytes::Bytes;
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ColumnChunkMetaData, PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::writer::SerializedFileWriter;
use std::io::{self, BufReader, Read, Write};
use std::sync::Arc;

/// Fills a buffer with the bytes of a source from an offset on.
pub type ReadAt<'a> = dyn Fn(u64, &mut [u8]) -> io::Result<()> + Send + Sync + 'a;

/// How much of a chunk is in memory at a time: small, and the same memory again and again.
const PIECE_BYTES: usize = 256 << 10;

pub struct Assembler<W: Write + Send> {
    writer: SerializedFileWriter<W>,
}

impl<W: Write + Send> Assembler<W> {
    /// `template` is a whole Parquet file; only its footer is looked at.
    pub fn new(template: Bytes, sink: W, created_by: String) -> std::result::Result<Self, Refused> {
        let metadata = ParquetMetaDataReader::new().parse_and_finish(&template).map_err(refused)?;
        let file = metadata.file_metadata();
        let properties = WriterProperties::builder()
            .set_created_by(created_by)
            .set_key_value_metadata(file.key_value_metadata().cloned())
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_offset_index_disabled(false)
            .build();
        let schema = file.schema_descr().root_schema_ptr();
        Ok(Self { writer: SerializedFileWriter::new(sink, schema, Arc::new(properties)).map_err(refused)? })
    }

    /// Copies one row group of a source.
    pub fn append(&mut self, source: &Source, row_group: usize) -> std::result::Result<(), Refused> {
        let place = |error| format!("row group {row_group}: {}", refused(error));
        let metadata = &source.metadata;
        let group = metadata.row_groups().get(row_group).ok_or_else(|| format!("row group {row_group}: there is none"))?;
        self.copy(source, group, row_group).map_err(place)
    }

    fn copy(&mut self, source: &Source, group: &RowGroupMetaData, place: usize) -> Result<()> {
        let mut out = self.writer.next_row_group()?;
        let pages = source.metadata.page_index();
        for (column, chunk) in group.columns().iter().enumerate() {
            let length = check_range(chunk, source.file.size)?;
            let close = ColumnCloseResult {
                bytes_written: length,
                rows_written: group.num_rows() as u64,
                metadata: chunk.clone(),
                bloom_filter: None,
                column_index: pages.and_then(|pages| pages.column_index(place, column)).cloned(),
                offset_index: pages.and_then(|pages| pages.offset_index(place, column)).cloned(),
            };
            out.append_column(&source.file, close)?;
        }
        out.close()?;
        Ok(())
    }

    /// Writes the footer and what is buffered.
    pub fn close(mut self) -> std::result::Result<(), Refused> {
        self.writer.finish().map_err(refused)?;
        self.writer.inner_mut().flush().map_err(|error| error.to_string())
    }
}

/// A Parquet file that row groups are copied from.
pub struct Source<'a> {
    metadata: Arc<ParquetMetaData>,
    file: File<'a>,
}

impl<'a> Source<'a> {
    /// Reads the footer, and the page indexes where there are any.
    pub fn open(size: u64, read: &'a ReadAt<'a>) -> std::result::Result<Self, Refused> {
        let file = File { size, read };
        let mut reader = ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Optional);
        reader.try_parse(&file).map_err(refused)?;
        Ok(Self { metadata: Arc::new(reader.finish().map_err(refused)?), file })
    }
}

/// The bytes that a chunk has, all inside the file. A dictionary page that is not before the data pages would be lost.
fn check_range(chunk: &ColumnChunkMetaData, size: u64) -> Result<u64> {
    let start = chunk.dictionary_page_offset().unwrap_or(chunk.data_page_offset());
    let end = start.checked_add(chunk.compressed_size()).unwrap_or(i64::MAX);
    if start < 4 || start > chunk.data_page_offset() || end < start || end as u64 > size {
        return Err(ParquetError::General(format!("column {}: its pages are in no known order", chunk.column_path())));
    }
    Ok((end - start) as u64)
}

#[derive(Clone, Copy)]
struct File<'a> {
    size: u64,
    read: &'a ReadAt<'a>,
}

impl Length for File<'_> {
    fn len(&self) -> u64 {
        self.size
    }
}

impl<'a> ChunkReader for File<'a> {
    type T = BufReader<From<'a>>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        Ok(BufReader::with_capacity(PIECE_BYTES, From { file: *self, at: start }))
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

/// A file from some place on.
struct From<'a> {
    file: File<'a>,
    at: u64,
}

impl Read for From<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let length = out.len().min((self.file.size - self.at.min(self.file.size)) as usize);
        (self.file.read)(self.at, &mut out[..length])?;
        self.at += length as u64;
        Ok(length)
    }
}

fn refused(error: ParquetError) -> Refused {
    error.to_string()
}
