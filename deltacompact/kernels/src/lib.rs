//! The row-by-row work of deltacompact. Everything here is a function of its arguments: no files, no clock, no threads.
//!
//! One key on its way through the kernels (S = 0, so an entry is 32 bytes):
//!
//! ```text
//! delta file 7, row 3:  {"id": 42}
//!   key_bytes     01 01 01 000000000000002a                   presence, class tag, sign, value
//!   key_digests   SHA-1 of that: 20 bytes
//!   pack_entries  digest | sort key (none) | 07000000 | 0300000000000000
//!   group_entries ... entries of one hash bucket side by side
//!   Fold          in base, the digest points to file 2 row 9: that row is dead now, file 7 row 3 lives
//!   PointerSplit  file 7 row 3 is sent to the group of files with file 7
//!   SurvivorRanks file 7 row 3 is the 1,204th surviving row of that group
//!   Publisher     file 14 row 1203: where the row will be, in the index that is published
//! ```
//!
//! `python.rs` is the only door to Python, `columns.rs` the only door to Arrow; only `sha1_simd.rs` and
//! `sha1_avx512.rs` have `unsafe`.

mod assembler;
mod buckets;
mod changes;
mod columns;
mod digests;
mod entries;
mod fold;
mod footer_guard;
mod key_bytes;
mod key_state;
mod new_entries;
mod page_checksums;
mod page_header;
mod parquet_footer;
mod parquet_schema;
mod pointers;
mod python;
mod ranks;
mod rows;
mod sha1;
#[cfg(target_arch = "x86_64")]
mod sha1_avx512;
mod sha1_backend;
#[cfg(target_arch = "x86_64")]
mod sha1_simd;
mod sort_keys;
mod source;
mod thrift;
mod widest_row;

/// Why an input is refused, as a text for the caller. It becomes a Python `ValueError`.
pub type Refused = String;
