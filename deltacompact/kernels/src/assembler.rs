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
use bytes::{Buf, Bytes};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ColumnChunkMetaData, PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::writer::SerializedFileWriter;
use std::io::Write;
use std::sync::Arc;

/// Reads a range of a source: (offset, length).
pub type ReadRange<'a> = dyn Fn(u64, usize) -> Result<Bytes> + Send + Sync + 'a;

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
            let (start, length) = byte_range(chunk)?;
            let bytes = (source.read)(start, length)?;
            if bytes.len() != length {
                return Err(ParquetError::EOF(format!("{} bytes at {start}, want {length}", bytes.len())));
            }
            let close = ColumnCloseResult {
                bytes_written: length as u64,
                rows_written: group.num_rows() as u64,
                metadata: chunk.clone(),
                bloom_filter: None,
                column_index: pages.and_then(|pages| pages.column_index(place, column)).cloned(),
                offset_index: pages.and_then(|pages| pages.offset_index(place, column)).cloned(),
            };
            out.append_column(&Chunk { start, bytes }, close)?;
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
    read: &'a ReadRange<'a>,
}

impl<'a> Source<'a> {
    /// Reads the footer, and the page indexes where there are any.
    pub fn open(size: u64, read: &'a ReadRange<'a>) -> std::result::Result<Self, Refused> {
        let mut reader = ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Optional);
        reader.try_parse(&WholeFile { size, read }).map_err(refused)?;
        Ok(Self { metadata: Arc::new(reader.finish().map_err(refused)?), read })
    }
}

/// Where a chunk's pages lie. A dictionary page that is not before the data pages would be lost.
fn byte_range(chunk: &ColumnChunkMetaData) -> Result<(u64, usize)> {
    let start = chunk.dictionary_page_offset().unwrap_or(chunk.data_page_offset());
    if start < 4 || start > chunk.data_page_offset() || chunk.compressed_size() < 0 {
        return Err(ParquetError::General(format!("column {}: its pages are in no known order", chunk.column_path())));
    }
    Ok((start as u64, chunk.compressed_size() as usize))
}

/// One chunk's bytes, addressed as in the file.
struct Chunk {
    start: u64,
    bytes: Bytes,
}

impl Length for Chunk {
    fn len(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

impl ChunkReader for Chunk {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        Ok(self.bytes.slice((start - self.start) as usize..).reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        let from = (start - self.start) as usize;
        Ok(self.bytes.slice(from..from + length))
    }
}

struct WholeFile<'a> {
    size: u64,
    read: &'a ReadRange<'a>,
}

impl Length for WholeFile<'_> {
    fn len(&self) -> u64 {
        self.size
    }
}

impl ChunkReader for WholeFile<'_> {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        Ok((self.read)(start, (self.size - start) as usize)?.reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        (self.read)(start, length)
    }
}

fn refused(error: ParquetError) -> Refused {
    error.to_string()
}
