//! The footer of any Parquet file. Decides which of its row groups can be copied into another file.
//!
//! ```text
//! footer of a source    group 0: its chunks end where others begin               -> None: can be copied
//!                       group 1: 40 bytes more than the footer counts            -> "column a: its pages do not end …"
//! ```
//!
//! Footers are wrong in many ways that readers tolerate. A group is copied if the footer leaves no doubt about its bytes.
//! Statements about values are kept if they are true for every reader. Everything else is left out.

use crate::Refused;
use crate::parquet_schema;
use crate::source::{ReadAt, Source, refused};
use crate::thrift::{Compact, STRUCT};
use bytes::Bytes;
use parquet::basic::{CompressionCodec, ConvertedType, Encoding, LogicalType, SortOrder, Type as Physical};
use parquet::data_type::AsBytes;
use parquet::file::metadata::{
    ColumnChunkMetaData, PageIndexPolicy, ParquetMetaData, ParquetMetaDataOptions, ParquetMetaDataReader, RowGroupMetaData,
};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::page_index::offset_index::OffsetIndexMetaData;
use parquet::file::reader::ChunkReader;
use parquet::file::statistics::{Statistics, ValueStatistics};
use parquet::schema::types::ColumnDescriptor;
use std::collections::{BTreeSet, HashSet};

const TAIL_BYTES: u64 = 8;
const MAGIC_BYTES: u64 = 4;

/// Larger page indexes are left out: a wrong offset could make us read much of the file.
const PAGE_INDEX_BYTES_MAX: u64 = 64 << 20;

pub struct Footer {
    pub metadata: ParquetMetaData,
    pub encrypted: bool,
    /// Where chunks begin in the file.
    chunks: BTreeSet<i64>,
    /// Where something else begins: a bloom filter, a page index, a copy of a chunk's metadata, the footer.
    others: BTreeSet<i64>,
    /// The bytes of all page indexes, and where they begin.
    page_indexes: Option<(u64, Bytes)>,
}

impl Footer {
    /// Reads the footer from the end of a file. With `page_indexes`, reads these, too, if they can be parsed.
    pub fn read(size: u64, read: &ReadAt, page_indexes: bool) -> Result<Self, Refused> {
        let file = Source { size, read };
        let get = |at, length| file.get_bytes(at, length as usize).map_err(refused);
        if size < TAIL_BYTES + MAGIC_BYTES {
            return Err(format!("{size} bytes are no Parquet file"));
        }
        let tail = get(size - TAIL_BYTES, TAIL_BYTES)?;
        let length = u64::from(u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]));
        match &tail[4..] {
            b"PAR1" if length <= size - TAIL_BYTES - MAGIC_BYTES => {}
            b"PARE" => return Err("the file is encrypted".into()),
            _ => return Err("the file does not end as a Parquet file does".into()),
        }
        Self::decode(&get(size - TAIL_BYTES - length, length)?, size - TAIL_BYTES - length, &file, page_indexes)
    }

    /// Reads the footer of a file without rows that is in memory.
    pub fn of_template(template: &[u8]) -> Result<Self, Refused> {
        let read = |at: u64, out: &mut [u8]| {
            out.copy_from_slice(&template[at as usize..at as usize + out.len()]);
            Ok(())
        };
        Self::read(template.len() as u64, &read, false)
    }

    fn decode(footer: &Bytes, at: u64, file: &Source, page_indexes: bool) -> Result<Self, Refused> {
        let encrypted = is_encrypted(footer).ok_or("its footer cannot be understood")?;
        let options = ParquetMetaDataOptions::new().with_encoding_stats_as_mask(false);
        let bare = ParquetMetaDataReader::decode_metadata_with_options(footer, Some(&options)).map_err(refused)?;
        let chunks = all_chunks(&bare).map(chunk_begin).collect();
        let others = other_beginnings(&bare, at);
        let (metadata, page_indexes) =
            if encrypted || !page_indexes { (bare, None) } else { with_page_indexes(bare, at, file) };
        Ok(Self { metadata, encrypted, chunks, others, page_indexes })
    }

    /// For each row group the reason why it cannot be copied into a file with the footer of `template`, or None.
    pub fn refusals(&self, template: &Self) -> Vec<Option<Refused>> {
        let file = self.unfit(template);
        let groups = self.metadata.row_groups().iter().enumerate();
        groups.map(|(place, group)| file.clone().or_else(|| self.doubt(place, group))).collect()
    }

    /// For each row group its rows, and the decoded bytes of these columns, estimated: never too few if the footer is right.
    pub fn decoded(&self, columns: &[String]) -> Vec<(i64, i64)> {
        let columns: HashSet<&String> = columns.iter().collect();
        let wanted =
            |chunk: &&ColumnChunkMetaData| chunk.column_path().parts().first().is_some_and(|name| columns.contains(name));
        let group = |group: &RowGroupMetaData| {
            let bytes = group.columns().iter().filter(wanted).map(decoded_bytes).fold(0, i64::saturating_add);
            (group.num_rows(), bytes)
        };
        self.metadata.row_groups().iter().map(group).collect()
    }

    /// For each row group the chunks of these columns, by their places in the file: first byte and length.
    pub fn chunks(&self, columns: &[String]) -> Vec<Vec<(i64, i64)>> {
        let columns: HashSet<&String> = columns.iter().collect();
        let wanted =
            |chunk: &&ColumnChunkMetaData| chunk.column_path().parts().first().is_some_and(|name| columns.contains(name));
        let group = |group: &RowGroupMetaData| {
            let mut found: Vec<_> =
                group.columns().iter().filter(wanted).map(|chunk| (chunk_begin(chunk), chunk.compressed_size())).collect();
            found.sort_unstable();
            found
        };
        self.metadata.row_groups().iter().map(group).collect()
    }

    /// The lengths of the chunks of these row groups, in the order of `runs`.
    pub fn lengths(&self, row_groups: &[usize]) -> impl Iterator<Item = u64> {
        let of = |&place: &usize| self.metadata.row_group(place).columns().iter();
        row_groups.iter().flat_map(of).map(|chunk| chunk.compressed_size() as u64)
    }

    /// The writer of the file. Empty: unknown.
    pub fn created_by(&self) -> &str {
        self.metadata.file_metadata().created_by().unwrap_or("")
    }

    /// For each row group the kinds of its chunks, each once.
    pub fn kinds(&self) -> Vec<Vec<ChunkKind>> {
        let group = |group: &RowGroupMetaData| group.columns().iter().map(kind_of).collect::<BTreeSet<_>>();
        self.metadata.row_groups().iter().map(|of| group(of).into_iter().collect()).collect()
    }

    /// The chunks of these row groups, in order. Chunks that follow each other in the file are one run of bytes.
    pub fn runs(&self, row_groups: &[usize]) -> Vec<(u64, u64)> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for chunk in row_groups.iter().flat_map(|&place| self.metadata.row_group(place).columns()) {
            let (begin, length) = (chunk_begin(chunk) as u64, chunk.compressed_size() as u64);
            match runs.last_mut() {
                Some(run) if run.0 + run.1 == begin => run.1 += length,
                _ => runs.push((begin, length)),
            }
        }
        runs
    }

    fn unfit(&self, template: &Self) -> Option<Refused> {
        if self.encrypted {
            return Some("the file is encrypted".into());
        }
        let schema = |footer: &Self| footer.metadata.file_metadata().schema_descr().root_schema_ptr();
        parquet_schema::difference(&schema(template), &schema(self))
    }

    fn doubt(&self, place: usize, group: &RowGroupMetaData) -> Option<Refused> {
        let doubt = |(column, chunk): (usize, &ColumnChunkMetaData)| {
            let pages_are_told = self.offsets(place, column, group.num_rows()).is_some();
            let why = self.chunk_doubt(chunk, group.num_rows(), pages_are_told)?;
            Some(format!("row group {place}: column {}: {why}", chunk.column_path()))
        };
        group.columns().iter().enumerate().find_map(doubt)
    }

    /// `pages_are_told`: an offset index agrees with the footer. Otherwise the chunk must end where something begins.
    fn chunk_doubt(&self, chunk: &ColumnChunkMetaData, rows: i64, pages_are_told: bool) -> Option<&'static str> {
        let (begin, data) = (chunk_begin(chunk), chunk.data_page_offset());
        let end = begin.checked_add(chunk.compressed_size()).unwrap_or(-1);
        let flat = chunk.column_descr().max_rep_level() == 0;
        if chunk.file_path().is_some() {
            Some("its pages are in another file")
        } else if begin < MAGIC_BYTES as i64 || begin > data || end < data {
            Some("its pages are in no known order")
        } else if !(pages_are_told || self.chunks.contains(&end) || self.others.contains(&end))
            || self.chunks.range(begin + 1..end.max(begin + 1)).next().is_some()
        {
            Some("its pages do not end where the footer says")
        } else if rows < 0 || if flat { chunk.num_values() != rows } else { chunk.num_values() < rows } {
            Some("it has another number of values than rows")
        } else if matches!(chunk.compression_codec(), CompressionCodec::LZO | CompressionCodec::LZ4) {
            Some("its codec is one that readers disagree on")
        } else if chunk.encodings().any(|encoding| encoding == Encoding::DELTA_BYTE_ARRAY)
            && self.writer_is("parquet-mr", (1, 8))
        {
            Some("its encoding is one that its writer got wrong")
        } else {
            None
        }
    }

    /// Whether a writer of this name wrote the file, in an unknown version or one before `before`.
    fn writer_is(&self, name: &str, before: (u32, u32)) -> bool {
        let Some(rest) = self.created_by().strip_prefix(name) else { return false };
        let mut numbers = rest.trim_start_matches(" version ").split('.').map(|number| number.parse::<u32>().ok());
        match (numbers.next().flatten(), numbers.next().flatten()) {
            (Some(major), Some(minor)) => (major, minor) < before,
            _ => true,
        }
    }

    /// A chunk's statistics, without those that would mislead a reader of the new footer.
    ///
    /// Writers of the old fields for least and greatest value compared signed numbers for every type. Old releases of
    /// parquet-cpp compared decimals as bytes. NaN has no place in the order of a type. On values of a fixed length that are
    /// cut, pyarrow ends the process.
    pub fn statistics(&self, chunk: &ColumnChunkMetaData) -> Option<Statistics> {
        let found = chunk.statistics()?;
        let column = chunk.column_descr();
        let signed_number = column.sort_order() == SortOrder::SIGNED && !is_bytes(column);
        let trusted = (signed_number || !found.is_min_max_deprecated()) && !self.distrusts_bounds(column);
        Some(rebuilt(found, trusted && !has_nan(found, column) && !is_cut(found, column)))
    }

    fn distrusts_bounds(&self, column: &ColumnDescriptor) -> bool {
        let decimal = matches!(column.logical_type_ref(), Some(LogicalType::Decimal(_)))
            || column.converted_type() == ConvertedType::DECIMAL;
        decimal && is_bytes(column) && (self.writer_is("parquet-cpp-arrow", (4, 0)) || self.writer_is("parquet-cpp", (4, 0)))
    }

    /// The page indexes of a chunk, if they describe these pages. The index of bounds stays encoded, and is left out if
    /// it cannot be trusted.
    pub fn page_indexes(&self, place: usize, column: usize, rows: i64) -> Option<(Option<Vec<u8>>, OffsetIndexMetaData)> {
        let offsets = self.offsets(place, column, rows)?;
        let chunk = self.metadata.row_group(place).column(column);
        let bounds = self.metadata.column_index().and_then(|groups| groups.get(place)?.get(column));
        let trusted = bounds.is_some_and(|index| {
            let of_these =
                !matches!(index, ColumnIndexMetaData::NONE) && index.num_pages() == offsets.page_locations().len() as u64;
            of_these && !self.distrusts_bounds(chunk.column_descr()) && !index_has_nan(index, chunk.column_descr())
        });
        Some((if trusted { self.encoded_bounds(chunk) } else { None }, offsets.clone()))
    }

    /// Some writers give a list of booleans another type than old readers know. All other bytes are the same.
    fn encoded_bounds(&self, chunk: &ColumnChunkMetaData) -> Option<Vec<u8>> {
        const FIELD_1_IS_A_LIST: u8 = 0x19;
        let (begin, bytes) = self.page_indexes.as_ref()?;
        let from = usize::try_from(u64::try_from(chunk.column_index_offset()?).ok()?.checked_sub(*begin)?).ok()?;
        let mut encoded = bytes.get(from..from + usize::try_from(chunk.column_index_length()?).ok()?)?.to_vec();
        match encoded.as_mut_slice() {
            [FIELD_1_IS_A_LIST, head, ..] if matches!(*head & 0xf, 1 | 2) => *head = *head & 0xf0 | 1,
            _ => return None,
        }
        Some(encoded)
    }

    fn offsets(&self, place: usize, column: usize, rows: i64) -> Option<&OffsetIndexMetaData> {
        let offsets = self.metadata.offset_index()?.get(place)?.get(column)?;
        covers(offsets, self.metadata.row_group(place).column(column), rows).then_some(offsets)
    }
}

/// Bytes of values with their offsets. A chunk may be little more than a dictionary, whose values are used any number
/// of times. If the footer does not tell the bytes of all values, assume that each byte of the chunk is used many times.
pub fn decoded_bytes(chunk: &ColumnChunkMetaData) -> i64 {
    const USES_OF_A_DICTIONARY: i64 = 256;
    let (values, encoded) = (chunk.num_values().max(0), chunk.uncompressed_size().max(0));
    let column = chunk.column_descr();
    let width = match column.physical_type() {
        Physical::BOOLEAN => 1,
        Physical::INT32 | Physical::FLOAT => 4,
        Physical::INT64 | Physical::DOUBLE | Physical::INT96 => 8,
        Physical::FIXED_LEN_BYTE_ARRAY => i64::from(column.type_length().max(1)),
        Physical::BYTE_ARRAY => 4,
    };
    let characters = match (column.physical_type(), chunk.unencoded_byte_array_data_bytes()) {
        (Physical::BYTE_ARRAY, Some(bytes)) => bytes.max(0),
        (Physical::BYTE_ARRAY, None) if dictionary_begin(chunk).is_some() => {
            encoded.saturating_mul(values.clamp(1, USES_OF_A_DICTIONARY))
        }
        (Physical::BYTE_ARRAY, None) => encoded,
        _ => 0,
    };
    values.saturating_mul(width).saturating_add(characters)
}

/// How a chunk is stored: physical type, encodings, types of pages (none: the footer does not tell), codec.
pub type ChunkKind = (String, Vec<String>, Vec<String>, String);

fn kind_of(chunk: &ColumnChunkMetaData) -> ChunkKind {
    let stats = chunk.page_encoding_stats().map(Vec::as_slice).unwrap_or_default();
    let encodings: BTreeSet<_> =
        chunk.encodings().chain(stats.iter().map(|of| of.encoding)).map(|encoding| encoding.to_string()).collect();
    let pages: BTreeSet<_> = stats.iter().map(|of| of.page_type.to_string()).collect();
    let (physical, codec) = (chunk.column_descr().physical_type(), chunk.compression_codec());
    (physical.to_string(), encodings.into_iter().collect(), pages.into_iter().collect(), codec.to_string())
}

/// The first byte of a chunk: that of its dictionary page, if it has one. Some writers store 0 if it has none.
pub fn chunk_begin(chunk: &ColumnChunkMetaData) -> i64 {
    dictionary_begin(chunk).unwrap_or(chunk.data_page_offset())
}

pub fn dictionary_begin(chunk: &ColumnChunkMetaData) -> Option<i64> {
    chunk.dictionary_page_offset().filter(|&at| at > 0)
}

fn all_chunks(metadata: &ParquetMetaData) -> impl Iterator<Item = &ColumnChunkMetaData> {
    metadata.row_groups().iter().flat_map(RowGroupMetaData::columns)
}

fn other_beginnings(metadata: &ParquetMetaData, footer: u64) -> BTreeSet<i64> {
    let mut found = BTreeSet::from([footer as i64]);
    for chunk in all_chunks(metadata) {
        found.extend(
            [chunk.bloom_filter_offset(), chunk.column_index_offset(), chunk.offset_index_offset()].into_iter().flatten(),
        );
        // some writers repeat a chunk's metadata after its pages, and the footer says where
        let end = chunk_begin(chunk).checked_add(chunk.compressed_size());
        found.extend(end.filter(|&end| end == chunk.file_offset()));
    }
    found
}

fn with_page_indexes(bare: ParquetMetaData, footer: u64, file: &Source) -> (ParquetMetaData, Option<(u64, Bytes)>) {
    let Some(Some((begin, end))) = page_index_extent(&bare) else { return (bare, None) };
    if end > footer || end - begin > PAGE_INDEX_BYTES_MAX {
        return (bare, None);
    }
    let Ok(bytes) = file.get_bytes(begin, (end - begin) as usize) else { return (bare, None) };
    if !all_chunks(&bare).all(|chunk| has_sound_offsets(chunk, begin, &bytes)) {
        return (bare, None);
    }
    let mut reader = ParquetMetaDataReader::new_with_metadata(bare.clone()).with_page_index_policy(PageIndexPolicy::Optional);
    match reader.read_page_indexes(file).and_then(|()| reader.finish()) {
        Ok(metadata) => (metadata, Some((begin, bytes))),
        Err(_) => (bare, None),
    }
}

/// Whether the lists of a chunk's offset index have their elements: the `parquet` crate allocates what a list claims.
fn has_sound_offsets(chunk: &ColumnChunkMetaData, begin: u64, indexes: &Bytes) -> bool {
    let (Some(at), Some(length)) = (chunk.offset_index_offset(), chunk.offset_index_length()) else { return true };
    let from = (at as u64 - begin) as usize;
    Compact(&indexes[from..from + length as usize]).skip(STRUCT, 0).is_some()
}

/// The range of bytes of the page indexes; Some(None): the range is impossible; None: there are no such indexes.
fn page_index_extent(metadata: &ParquetMetaData) -> Option<Option<(u64, u64)>> {
    let mut found: Option<(u64, u64)> = None;
    for chunk in all_chunks(metadata) {
        let indexes = [
            (chunk.column_index_offset(), chunk.column_index_length()),
            (chunk.offset_index_offset(), chunk.offset_index_length()),
        ];
        for index in indexes {
            let (begin, length) = match index {
                (None, None) => continue,
                (Some(begin), Some(length)) if begin >= 0 && length >= 0 => (begin as u64, length as u64),
                _ => return Some(None),
            };
            let (first, last) = found.unwrap_or((begin, begin));
            found = Some((first.min(begin), last.max(begin + length)));
        }
    }
    found.map(Some)
}

/// Whether the pages are those of the chunk: one after the other, from the first data page to the end.
fn covers(offsets: &OffsetIndexMetaData, chunk: &ColumnChunkMetaData, rows: i64) -> bool {
    let (mut at, mut row) = (chunk.data_page_offset(), -1);
    for page in offsets.page_locations() {
        let starts = if row < 0 { page.first_row_index == 0 } else { page.first_row_index >= row };
        if page.offset != at || page.compressed_page_size <= 0 || !starts || page.first_row_index >= rows.max(1) {
            return false;
        }
        at += i64::from(page.compressed_page_size);
        row = page.first_row_index;
    }
    !offsets.page_locations().is_empty() && chunk_begin(chunk).checked_add(chunk.compressed_size()) == Some(at)
}

fn is_bytes(column: &ColumnDescriptor) -> bool {
    matches!(column.physical_type(), Physical::BYTE_ARRAY | Physical::FIXED_LEN_BYTE_ARRAY)
}

fn is_half(column: &ColumnDescriptor) -> bool {
    matches!(column.logical_type_ref(), Some(LogicalType::Float16))
}

fn half_is_nan(bytes: &[u8]) -> bool {
    bytes.len() == 2 && u16::from_le_bytes([bytes[0], bytes[1]]) & 0x7fff > 0x7c00
}

fn is_cut(statistics: &Statistics, column: &ColumnDescriptor) -> bool {
    let Statistics::FixedLenByteArray(of) = statistics else { return false };
    let bounds = [of.min_bytes_opt(), of.max_bytes_opt()];
    bounds.into_iter().flatten().any(|bound| (bound.len() as i64) < i64::from(column.type_length()))
}

fn has_nan(statistics: &Statistics, column: &ColumnDescriptor) -> bool {
    match statistics {
        Statistics::Float(of) => [of.min_opt(), of.max_opt()].into_iter().flatten().any(|value| value.is_nan()),
        Statistics::Double(of) => [of.min_opt(), of.max_opt()].into_iter().flatten().any(|value| value.is_nan()),
        Statistics::FixedLenByteArray(of) if is_half(column) => {
            [of.min_opt(), of.max_opt()].into_iter().flatten().any(|value| half_is_nan(value.as_bytes()))
        }
        _ => false,
    }
}

fn index_has_nan(index: &ColumnIndexMetaData, column: &ColumnDescriptor) -> bool {
    match index {
        ColumnIndexMetaData::FLOAT(of) => of.min_values().iter().chain(of.max_values()).any(|value| value.is_nan()),
        ColumnIndexMetaData::DOUBLE(of) => of.min_values().iter().chain(of.max_values()).any(|value| value.is_nan()),
        ColumnIndexMetaData::FIXED_LEN_BYTE_ARRAY(of) if is_half(column) => {
            of.min_values_iter().chain(of.max_values_iter()).flatten().any(half_is_nan)
        }
        _ => false,
    }
}

/// The same statistics in the current fields, with or without least and greatest value.
fn rebuilt(given: &Statistics, bounds: bool) -> Statistics {
    macro_rules! rebuilt {
        ($kind:ident, $of:expr) => {
            Statistics::$kind(
                ValueStatistics::new(
                    $of.min_opt().filter(|_| bounds).cloned(),
                    $of.max_opt().filter(|_| bounds).cloned(),
                    $of.distinct_count(),
                    $of.null_count_opt(),
                    false,
                )
                .with_min_is_exact($of.min_is_exact())
                .with_max_is_exact($of.max_is_exact())
                .with_backwards_compatible_min_max($of.is_min_max_backwards_compatible()),
            )
        };
    }
    match given {
        Statistics::Boolean(of) => rebuilt!(Boolean, of),
        Statistics::Int32(of) => rebuilt!(Int32, of),
        Statistics::Int64(of) => rebuilt!(Int64, of),
        Statistics::Int96(of) => rebuilt!(Int96, of),
        Statistics::Float(of) => rebuilt!(Float, of),
        Statistics::Double(of) => rebuilt!(Double, of),
        Statistics::ByteArray(of) => rebuilt!(ByteArray, of),
        Statistics::FixedLenByteArray(of) => rebuilt!(FixedLenByteArray, of),
    }
}

/// Whether a footer names an encryption: its columns may look normal, but their pages are encrypted. None: a list lacks
/// elements, or something else does not end. The `parquet` crate would allocate all row groups that a footer claims.
fn is_encrypted(footer: &[u8]) -> Option<bool> {
    const ENCRYPTION_ALGORITHM: i16 = 8;
    let mut found = false;
    Compact(footer).fields(|_, _, id| {
        found |= id == ENCRYPTION_ALGORITHM;
        Some(false)
    })?;
    Some(found)
}
