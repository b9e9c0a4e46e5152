//! Makes a Parquet file of row groups that are encoded already: their bytes are copied, nothing is decoded.
//!
//! ```text
//! source A   [g0][g1][g2] footer          template: a file without rows, with the schema and metadata of the new file
//! source B   [g0] footer
//! append(A, 2), append(B, 0)  ->  [A.g2][B.g0] footer with the offsets of the new place
//! ```
//!
//! Statistics and histograms go with their chunks. So do column and offset indexes, if every chunk of the new file has
//! them: some readers expect an index for all chunks if one has it. `parquet_footer.rs` decides what can be copied.

use crate::Refused;
use crate::page_checksums::Pages;
use crate::parquet_footer::{Footer, chunk_begin, dictionary_begin};
use crate::source::{ReadAt, Source, refused};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{
    ColumnChunkMetaData, FileMetaData, ParquetMetaDataBuilder, ParquetMetaDataWriter, RowGroupMetaData,
};
use parquet::file::page_index::offset_index::OffsetIndexMetaData;
use parquet::file::reader::ChunkReader;
use parquet::file::writer::TrackedWrite;
use parquet::schema::types::SchemaDescPtr;
use std::io::{self, BufRead, Read, Write};

/// Asks the sink to append bytes of the source by itself: offset and length. False: it cannot.
pub type CopyRange<'a> = dyn Fn(u64, u64) -> io::Result<bool> + Send + Sync + 'a;

/// The least part of a multipart upload on S3. The sink is not asked to copy less.
const COPIED_BYTES_MIN: u64 = 5 << 20;

/// The bounds of a chunk's pages, encoded, and their places.
type PageIndexes = (Option<Vec<u8>>, OffsetIndexMetaData);

pub struct Assembler<W: Write> {
    sink: TrackedWrite<Sink<W>>,
    template: Footer,
    created_by: String,
    groups: Vec<RowGroupMetaData>,
    /// By row group, the page indexes of its chunks. None: some chunk has no indexes.
    indexes: Option<Vec<Vec<PageIndexes>>>,
}

impl<W: Write> Assembler<W> {
    /// `template` is a whole Parquet file; only its footer is looked at.
    pub fn new(template: &[u8], sink: W, created_by: String) -> std::result::Result<Self, Refused> {
        let template = Footer::of_template(template)?;
        let mut sink = TrackedWrite::new(Sink { inner: sink, has_them: false });
        sink.write_all(b"PAR1").map_err(|error| error.to_string())?;
        Ok(Self { sink, template, created_by, groups: Vec::new(), indexes: Some(Vec::new()) })
    }

    /// Copies row groups of a source. If it refuses one of them, it copies none. With `copy`, the sink may append long
    /// runs of bytes by itself.
    pub fn append(
        &mut self,
        footer: &Footer,
        size: u64,
        read: &ReadAt,
        row_groups: &[usize],
        copy: Option<&CopyRange>,
    ) -> std::result::Result<(), Refused> {
        let refusals = footer.refusals(&self.template);
        for &place in row_groups {
            match refusals.get(place) {
                Some(None) => {}
                Some(Some(why)) => return Err(why.clone()),
                None => return Err(format!("row group {place}: there is none")),
            }
        }
        let file = Source { size, read };
        let mut at = self.sink.bytes_written() as i64;
        let mut pages = footer.lengths(row_groups);
        for run in footer.runs(row_groups) {
            self.bring(&file, run, &mut pages, copy).map_err(refused)?;
        }
        row_groups.iter().try_for_each(|&place| self.describe(footer, place, &mut at)).map_err(refused)
    }

    /// Appends bytes of the source: whole chunks, whose lengths are the next ones of `lengths`.
    fn bring(
        &mut self,
        file: &Source,
        (begin, length): (u64, u64),
        lengths: &mut impl Iterator<Item = u64>,
        copy: Option<&CopyRange>,
    ) -> Result<()> {
        let mut rest = length;
        let mut pages = Pages::of(std::iter::from_fn(|| {
            let next = (rest > 0).then(|| lengths.next()).flatten()?;
            rest = rest.saturating_sub(next);
            Some(next)
        }));
        if self.is_copied(begin, length, copy)? {
            return Ok(());
        }
        let only = Source { size: file.size.min(begin.saturating_add(length)), ..*file };
        let mut source = only.get_read(begin)?;
        let mut copied = 0;
        loop {
            let bytes = source.fill_buf()?;
            if bytes.is_empty() {
                break;
            }
            if !pages.take(bytes) {
                return Err(ParquetError::General(format!("the checksum of a page from {begin} on is wrong")));
            }
            self.sink.write_all(bytes)?;
            let taken = bytes.len();
            source.consume(taken);
            copied += taken as u64;
        }
        if copied == length {
            return Ok(());
        }
        Err(ParquetError::EOF(format!("the pages from {begin} on end after {copied} of {length} bytes")))
    }

    /// Whether the sink appended the bytes by itself.
    fn is_copied(&mut self, begin: u64, length: u64, copy: Option<&CopyRange>) -> Result<bool> {
        let Some(copy) = copy.filter(|_| length >= COPIED_BYTES_MIN) else { return Ok(false) };
        self.sink.flush()?;
        if !copy(begin, length)? {
            return Ok(false);
        }
        self.sink.inner_mut().has_them = true;
        io::copy(&mut io::repeat(0).take(length), &mut self.sink)?;
        self.sink.flush()?;
        self.sink.inner_mut().has_them = false;
        Ok(true)
    }

    /// Describes a row group whose bytes are in the sink from `at` on, and moves `at` behind them.
    fn describe(&mut self, footer: &Footer, place: usize, at: &mut i64) -> Result<()> {
        let group = footer.metadata.row_group(place);
        let schema = self.schema();
        let mut made = RowGroupMetaData::builder(schema.clone())
            .set_num_rows(group.num_rows())
            .set_total_byte_size(group.columns().iter().map(ColumnChunkMetaData::uncompressed_size).sum())
            .set_file_offset(*at);
        let mut indexes = Some(Vec::new());
        for (column, chunk) in group.columns().iter().enumerate() {
            let moved = *at - chunk_begin(chunk);
            *at += chunk.compressed_size();
            made = made.add_column_metadata(described(chunk, &schema, column, footer, moved)?);
            let found = footer.page_indexes(place, column, group.num_rows());
            keep(&mut indexes, found.map(|(bounds, offsets)| (bounds, at_new_place(offsets, moved))));
        }
        self.groups.push(made.build()?);
        keep(&mut self.indexes, indexes);
        Ok(())
    }

    fn schema(&self) -> SchemaDescPtr {
        self.template.metadata.file_metadata().schema_descr_ptr()
    }

    /// Writes the footer. An error of the sink on the last bytes is lost here, so the sink must remember it.
    pub fn close(mut self) -> std::result::Result<(), Refused> {
        let indexes = self.indexes.take().filter(|groups| !groups.is_empty());
        let offsets = indexes.map(|groups| self.write_bounds(groups)).transpose().map_err(refused)?;
        let file = self.template.metadata.file_metadata();
        let rows = self.groups.iter().map(RowGroupMetaData::num_rows).sum();
        let pairs = file.key_value_metadata().cloned();
        let described = FileMetaData::new(file.version(), rows, Some(self.created_by), pairs, file.schema_descr_ptr(), None);
        let metadata = ParquetMetaDataBuilder::new(described).set_row_groups(self.groups).set_offset_index(offsets).build();
        ParquetMetaDataWriter::new_with_tracked(self.sink, &metadata).finish().map_err(refused)
    }

    /// Writes the bounds of pages, records their offsets in the chunks, and returns the locations of all pages.
    fn write_bounds(&mut self, indexes: Vec<Vec<PageIndexes>>) -> Result<Vec<Vec<OffsetIndexMetaData>>> {
        let mut offsets = Vec::with_capacity(indexes.len());
        for (group, of_group) in self.groups.iter_mut().zip(indexes) {
            let mut of_chunks = Vec::with_capacity(of_group.len());
            for (chunk, (bounds, places)) in group.columns_mut().iter_mut().zip(of_group) {
                if let Some(bounds) = bounds {
                    let made = chunk.clone().into_builder().set_column_index_offset(Some(self.sink.bytes_written() as i64));
                    *chunk = made.set_column_index_length(Some(bounds.len() as i32)).build()?;
                    self.sink.write_all(&bounds)?;
                }
                of_chunks.push(places);
            }
            offsets.push(of_chunks);
        }
        Ok(offsets)
    }
}

/// A sink that counts bytes. Bytes that the inner sink has already are counted and not written.
struct Sink<W: Write> {
    inner: W,
    has_them: bool,
}

impl<W: Write> Write for Sink<W> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.has_them { Ok(data.len()) } else { self.inner.write(data) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Adds `next` to `all`. If either is None, `all` becomes None.
fn keep<T>(all: &mut Option<Vec<T>>, next: Option<T>) {
    *all = all.take().zip(next).map(|(mut all, next)| {
        all.push(next);
        all
    });
}

/// The metadata of a chunk that moved by some bytes, for the new footer.
fn described(
    chunk: &ColumnChunkMetaData,
    schema: &SchemaDescPtr,
    column: usize,
    footer: &Footer,
    moved: i64,
) -> Result<ColumnChunkMetaData> {
    let mut made = ColumnChunkMetaData::builder(schema.column(column))
        .set_compression_codec(chunk.compression_codec())
        .set_encodings_mask(*chunk.encodings_mask())
        .set_total_compressed_size(chunk.compressed_size())
        .set_total_uncompressed_size(chunk.uncompressed_size())
        .set_num_values(chunk.num_values())
        .set_data_page_offset(chunk.data_page_offset() + moved)
        .set_dictionary_page_offset(dictionary_begin(chunk).map(|at| at + moved))
        .set_unencoded_byte_array_data_bytes(chunk.unencoded_byte_array_data_bytes())
        .set_repetition_level_histogram(chunk.repetition_level_histogram().cloned())
        .set_definition_level_histogram(chunk.definition_level_histogram().cloned());
    if let Some(statistics) = footer.statistics(chunk) {
        made = made.set_statistics(statistics);
    }
    if let Some(pages) = chunk.page_encoding_stats() {
        made = made.set_page_encoding_stats(pages.clone());
    }
    made.build()
}

fn at_new_place(mut offsets: OffsetIndexMetaData, moved: i64) -> OffsetIndexMetaData {
    for page in &mut offsets.page_locations {
        page.offset += moved;
    }
    offsets
}
