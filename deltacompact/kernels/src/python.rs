//! The door to Python: arguments are checked here, work is done without the GIL, results are new numpy arrays.
//!
//! ```text
//! key_digests([pa.array([42])], [1], 1)    Arrow column -> Column -> KeyColumns -> digest_rows -> uint8 (1, 20)
//! key_digests([pa.array([42])], [9], 1)    ValueError: column 0: Arrow type Int64 does not belong to class tag 9 (string)
//! ```

mod arguments;
mod assembler;
mod changes;
mod fold;
mod functions;
mod pointers;
mod ranks;

use pyo3::prelude::*;

#[pymodule]
mod _kernels {
    /// The version of the package. It is written only in `Cargo.toml`.
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    #[pymodule_export]
    use super::assembler::{ParquetAssembler, ParquetFooter};
    #[pymodule_export]
    use super::changes::{Touched, changes, count_to, merge_entries, points_into, present_entries};
    #[pymodule_export]
    use super::fold::Fold;
    #[pymodule_export]
    use super::functions::{
        buckets, crc32, group_entries, is_ascending, key_bytes, key_digests, pack_entries, readable_footer, row_bytes, row_sum,
        sha1_backend, sort_keys,
    };
    #[pymodule_export]
    use super::pointers::{PointerSplit, Publisher};
    #[pymodule_export]
    use super::ranks::SurvivorRanks;
}
