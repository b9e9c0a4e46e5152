//! Verifies the checksums of pages, if a file has them, while their bytes are copied.
//!
//! ```text
//! the bytes of a chunk    header: 900 bytes follow, CRC-32 5c0f…   900 bytes   header: 870 follow, no CRC   870 bytes …
//!                         compared with the CRC-32 of these 900               nothing to compare
//! ```
//!
//! The bytes come in pieces of any size. A header that cannot be parsed ends the verification of its chunk: there may be
//! bytes after the last page of a chunk, which readers ignore.

use crate::page_header::PageHeader;
use crc32fast::Hasher;

/// The longest header, with the statistics of its page. Longer bytes are not a header.
const HEADER_BYTES_MAX: usize = 8 << 20;

/// The pages of consecutive chunks.
#[derive(Default)]
pub struct Pages {
    /// The number of bytes of each chunk that are still to come, the next chunk first.
    chunks: std::collections::VecDeque<u64>,
    header: Vec<u8>,
    /// The number of bytes of the page that are still to come.
    page: u64,
    checksum: Option<(u32, Hasher)>,
    /// Whether the rest of the chunk is skipped.
    passing: bool,
}

impl Pages {
    /// For chunks of these lengths.
    pub fn of(chunks: impl Iterator<Item = u64>) -> Self {
        Self { chunks: chunks.filter(|&length| length > 0).collect(), ..Self::default() }
    }

    /// Takes the next bytes. False: the bytes of a page that ends here do not match its checksum.
    pub fn take(&mut self, mut bytes: &[u8]) -> bool {
        while let (false, Some(left)) = (bytes.is_empty(), self.chunks.front().copied()) {
            let (now, rest) = bytes.split_at(bytes.len().min(left as usize));
            if !self.of_chunk(now) {
                return false;
            }
            bytes = rest;
            self.chunks[0] = left - now.len() as u64;
            if self.chunks[0] == 0 {
                self.chunks.pop_front();
                *self = Self { chunks: std::mem::take(&mut self.chunks), ..Self::default() };
            }
        }
        true
    }

    fn of_chunk(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() && !self.passing {
            if self.page == 0 {
                let known = self.header.len();
                self.header.extend_from_slice(&bytes[..bytes.len().min(HEADER_BYTES_MAX)]);
                let Some(header) = PageHeader::parse(&self.header) else {
                    self.passing = self.header.len() >= HEADER_BYTES_MAX;
                    return true;
                };
                bytes = &bytes[header.length - known..];
                self.header.clear();
                self.page = header.page_bytes;
                self.checksum = header.checksum.map(|checksum| (checksum, Hasher::new()));
            }
            let (now, rest) = bytes.split_at(bytes.len().min(self.page as usize));
            if let Some((_, hasher)) = &mut self.checksum {
                hasher.update(now);
            }
            bytes = rest;
            self.page -= now.len() as u64;
            if self.page == 0 && self.checksum.take().is_some_and(|(told, found)| told != found.finalize()) {
                return false;
            }
        }
        true
    }
}
