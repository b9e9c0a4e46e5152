//! How wide a row of a Parquet file can be, from its footer and page headers. Nothing is decoded.
//!
//! ```text
//! id       INT64                                                    16 bytes
//! note     BYTE_ARRAY, pages of 900 KB, 1 MB and 200 KB             1 MB: a value does not cross pages
//! tags     BYTE_ARRAY, in lists                                     all of the row group: a list may have them all
//! ```

use crate::page_header::PageHeader;
use crate::parquet_footer::{Footer, chunk_begin, decoded_bytes};
use crate::source::Source;
use parquet::basic::Type as Physical;
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use parquet::file::reader::ChunkReader;

/// Every value that is no text takes so much, at most, or its type's own length.
const VALUE_BYTES: i32 = 16;

/// A smaller chunk is as good as its largest page.
const CHUNK_BYTES_MIN: i64 = 64 << 10;

/// Headers have statistics, so most are this long at most, and hardly one is longer than the other.
const HEADER_BYTES: [u64; 2] = [256, 64 << 10];

const PAGES_MAX: usize = 10_000;

/// At least the decoded bytes of the widest row.
pub fn widest_row(footer: &Footer, file: &Source) -> i64 {
    let widest =
        |group: &RowGroupMetaData| group.columns().iter().map(|chunk| widest_value(chunk, file)).fold(0, i64::saturating_add);
    footer.metadata.row_groups().iter().map(widest).max().unwrap_or(0)
}

/// A text is in its page once, in whatever encoding: even a prefix that is shared with the text before is there.
fn widest_value(chunk: &ColumnChunkMetaData, file: &Source) -> i64 {
    let column = chunk.column_descr();
    if column.max_rep_level() > 0 {
        return decoded_bytes(chunk);
    }
    let whole = chunk.uncompressed_size().max(0);
    let text = match column.physical_type() {
        Physical::BYTE_ARRAY if whole > CHUNK_BYTES_MIN => largest_page(chunk, file).map_or(whole, |page| page.min(whole)),
        Physical::BYTE_ARRAY => whole,
        _ => 0,
    };
    i64::from(column.type_length().max(VALUE_BYTES)).saturating_add(text)
}

/// The bytes of the largest page. None: the headers do not lead from page to page up to the end of the chunk.
fn largest_page(chunk: &ColumnChunkMetaData, file: &Source) -> Option<i64> {
    let mut at = u64::try_from(chunk_begin(chunk)).ok()?;
    let end = at.checked_add(u64::try_from(chunk.compressed_size()).ok()?)?;
    let mut largest = 0;
    for _ in 0..PAGES_MAX {
        if at == end {
            return i64::try_from(largest).ok();
        }
        let header = HEADER_BYTES.iter().find_map(|&most| header_at(file, at, end.checked_sub(at)?.min(most)))?;
        largest = largest.max(header.plain_bytes);
        at = at.checked_add(header.length as u64)?.checked_add(header.page_bytes)?;
    }
    None
}

fn header_at(file: &Source, at: u64, length: u64) -> Option<PageHeader> {
    PageHeader::parse(&file.get_bytes(at, usize::try_from(length).ok()?).ok()?)
}
