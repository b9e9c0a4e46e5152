//! The kernels that are plain functions. `_kernels.pyi` documents them.

use super::arguments::*;
use crate::buckets::{Grouping, bits_for_fold};
use crate::columns::Column;
use crate::key_bytes::KeyColumns;
use crate::sha1::DIGEST_BYTES;
use crate::sha1_backend::Backend;
use crate::sort_keys::{SortColumn, WIDTH_MAX, sort_key_bytes, write_sort_keys};
use crate::{digests, entries, footer_guard};
use numpy::{PyArray1, PyArray2, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

fn tag_list(tags: &[Bound<'_, PyAny>], columns: usize) -> PyResult<Vec<u8>> {
    if tags.len() != columns {
        return Err(refuse(format!("{columns} columns but {} tags", tags.len())));
    }
    tags.iter().map(|tag| integer("tags", tag, 1, 11)).collect()
}

fn backend_named(name: Option<&str>) -> PyResult<Backend> {
    let Some(name) = name else { return Ok(Backend::detect()) };
    let known = Backend::ALL.into_iter().find(|backend| backend.name() == name);
    let known = known.ok_or_else(|| refuse(format!("backend: no such backend {name:?}")))?;
    if !known.is_supported() {
        return Err(refuse(format!("backend: this processor does not support {name:?}")));
    }
    Ok(known)
}

#[pyfunction]
#[pyo3(signature = (columns, tags, rows, *, backend = None))]
pub fn key_digests<'py>(
    py: Python<'py>,
    columns: Vec<Bound<'py, PyAny>>,
    tags: Vec<Bound<'py, PyAny>>,
    rows: &Bound<'py, PyAny>,
    backend: Option<&str>,
) -> PyResult<Bound<'py, PyArray2<u8>>> {
    let rows = row_count(rows)?;
    let tags = tag_list(&tags, columns.len())?;
    let columns: Vec<Column> = super::arguments::columns(&columns, rows)?;
    let backend = backend_named(backend)?;
    let result = zeros2(py, rows, DIGEST_BYTES)?;
    let mut out = result.readwrite();
    let out = out.as_slice_mut()?;
    py.detach(|| digests::digest_rows(&KeyColumns::new(&columns, &tags)?, backend, out.as_chunks_mut().0)).map_err(refuse)?;
    Ok(result)
}

#[pyfunction]
pub fn key_bytes<'py>(
    py: Python<'py>,
    columns: Vec<Bound<'py, PyAny>>,
    tags: Vec<Bound<'py, PyAny>>,
    rows: &Bound<'py, PyAny>,
) -> PyResult<Vec<Bound<'py, PyBytes>>> {
    let rows = row_count(rows)?;
    let tags = tag_list(&tags, columns.len())?;
    let columns: Vec<Column> = super::arguments::columns(&columns, rows)?;
    let keys = py.detach(|| {
        let mut keys: Vec<Vec<u8>> = Vec::new();
        digests::each_row_bytes(&KeyColumns::new(&columns, &tags)?, rows, |bytes| keys.push(bytes.to_vec()))?;
        Ok(keys)
    });
    Ok(keys.map_err(refuse)?.iter().map(|key| PyBytes::new(py, key)).collect())
}

#[pyfunction]
pub fn row_sum(py: Python<'_>, rows: &Bound<'_, PyAny>, schema: &Bound<'_, PyAny>) -> PyResult<u128> {
    let (rows, schema) = super::arguments::rows(rows, schema)?;
    py.detach(|| crate::rows::row_sum(&rows, &schema)).map_err(refuse)
}

#[pyfunction]
pub fn row_bytes<'py>(
    py: Python<'py>,
    rows: &Bound<'py, PyAny>,
    schema: &Bound<'py, PyAny>,
) -> PyResult<Vec<Bound<'py, PyBytes>>> {
    let (rows, schema) = super::arguments::rows(rows, schema)?;
    let all = py.detach(|| crate::rows::row_bytes(&rows, &schema)).map_err(refuse)?;
    Ok(all.iter().map(|row| PyBytes::new(py, row)).collect())
}

#[pyfunction]
pub fn buckets<'py>(
    py: Python<'py>,
    digests: &Bound<'py, PyAny>,
    hash_bucket_count: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyArray1<u32>>> {
    let digests = matrix("digests", digests, Some(DIGEST_BYTES))?;
    let count = bucket_count(hash_bucket_count)?;
    let result = zeros1(py, digests.shape()[0])?;
    let mut out = result.readwrite();
    let (digests, out) = (digests.as_slice()?, out.as_slice_mut()?);
    py.detach(|| crate::buckets::fill(crate::buckets::as_digests(digests), count, out));
    Ok(result)
}

#[pyfunction]
#[pyo3(signature = (columns, descending, rows, widths = None))]
pub fn sort_keys<'py>(
    py: Python<'py>,
    columns: Vec<Bound<'py, PyAny>>,
    descending: Vec<bool>,
    rows: &Bound<'py, PyAny>,
    widths: Option<Vec<Option<Bound<'py, PyAny>>>>,
) -> PyResult<Bound<'py, PyArray2<u8>>> {
    if columns.len() != descending.len() {
        return Err(refuse(format!("{} columns but {} directions", columns.len(), descending.len())));
    }
    let widths = widths.unwrap_or_else(|| columns.iter().map(|_| None).collect());
    if columns.len() != widths.len() {
        return Err(refuse(format!("{} columns but {} widths", columns.len(), widths.len())));
    }
    let rows = row_count(rows)?;
    let imported = super::arguments::columns(&columns, rows)?;
    let mut chosen = Vec::with_capacity(imported.len());
    for ((column, descending), width) in imported.iter().zip(descending).zip(&widths) {
        let width = width.as_ref().map(|width| integer::<u64>("widths", width, 0, WIDTH_MAX as u64)).transpose()?;
        chosen.push(SortColumn { column, descending, width: width.map(|width| width as usize) });
    }
    let width = sort_key_bytes(&chosen).map_err(refuse)?;
    let result = zeros2(py, rows, width)?;
    let mut out = result.readwrite();
    let out = out.as_slice_mut()?;
    py.detach(|| write_sort_keys(&chosen, width, out)).map_err(refuse)?;
    Ok(result)
}

#[pyfunction]
pub fn pack_entries<'py>(
    py: Python<'py>,
    digests: &Bound<'py, PyAny>,
    sort_keys: &Bound<'py, PyAny>,
    ordinal: &Bound<'py, PyAny>,
    rows: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyArray2<u8>>> {
    let digests = matrix("digests", digests, Some(DIGEST_BYTES))?;
    let width = sort_keys.getattr("shape").and_then(|shape| shape.get_item(1)).and_then(|width| width.extract());
    let sort_keys = matrix("sort_keys", sort_keys, Some(width.unwrap_or(0)))?;
    let ordinal = integer("ordinal", ordinal, 0, u32::MAX)?;
    let rows = vector::<u64>("rows", rows)?;
    let (n, sort_key_bytes) = (digests.shape()[0], sort_keys.shape()[1]);
    if sort_keys.shape()[0] != n || rows.shape()[0] != n {
        let (keys, rows) = (sort_keys.shape()[0], rows.shape()[0]);
        return Err(refuse(format!("{n} digests, {keys} sort keys, {rows} rows: want as many of each")));
    }
    let result = zeros2(py, n, entries::FIXED_BYTES + sort_key_bytes)?;
    let mut out = result.readwrite();
    let (digests, sort_keys, rows, out) = (digests.as_slice()?, sort_keys.as_slice()?, rows.as_slice()?, out.as_slice_mut()?);
    py.detach(|| entries::pack(crate::buckets::as_digests(digests), sort_keys, sort_key_bytes, ordinal, rows, out));
    Ok(result)
}

type Grouped<'py> = (Bound<'py, PyArray2<u8>>, Bound<'py, PyArray1<i64>>);

#[pyfunction]
#[pyo3(signature = (parts, hash_bucket_count, *, for_fold = false))]
pub fn group_entries<'py>(
    py: Python<'py>,
    parts: Vec<Bound<'py, PyAny>>,
    hash_bucket_count: &Bound<'py, PyAny>,
    for_fold: bool,
) -> PyResult<Grouped<'py>> {
    let (arrays, width) = super::arguments::parts("parts", &parts, None)?;
    let parts = as_entries(&arrays)?;
    let count = bucket_count(hash_bucket_count)?;
    let grouped = zeros2(py, parts.iter().map(|part| part.len()).sum(), width)?;
    let offsets = zeros1(py, count as usize + 1)?;
    {
        let (mut out, mut ends) = (grouped.readwrite(), offsets.readwrite());
        let (out, ends) = (out.as_slice_mut()?, ends.as_slice_mut()?);
        py.detach(|| {
            let entries = parts.iter().map(|part| part.len()).sum();
            let bits = if for_fold { bits_for_fold(entries, count) } else { 0 };
            let grouping = Grouping::new(&parts, count, bits);
            grouping.offsets(ends);
            grouping.scatter(&parts, out);
        });
    }
    Ok((grouped, offsets))
}

#[pyfunction]
pub fn is_ascending(py: Python<'_>, entries: &Bound<'_, PyAny>) -> PyResult<bool> {
    let array = matrix("entries", entries, None)?;
    let entries = one_as_entries(&array)?;
    Ok(py.detach(|| entries::is_ascending(&entries)))
}

#[pyfunction]
pub fn crc32(py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<u32> {
    let memory = py
        .import("builtins")?
        .call_method1("memoryview", (buffer,))
        .map_err(|error| refuse(format!("buffer: want an object with the buffer protocol: {}", error.value(py))))?;
    if !memory.getattr("c_contiguous")?.extract::<bool>()? {
        return Err(refuse("buffer: want a C-contiguous buffer".into()));
    }
    if memory.getattr("nbytes")?.extract::<usize>()? == 0 {
        return Ok(0);
    }
    let bytes = py.import("numpy")?.call_method1("frombuffer", (memory, "uint8"))?;
    let bytes = vector::<u8>("buffer", &bytes)?;
    let bytes = bytes.as_slice()?;
    Ok(py.detach(|| crc32fast::hash(bytes)))
}

#[pyfunction]
pub fn readable_footer<'py>(py: Python<'py>, footer: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    Ok(PyBytes::new(py, &footer_guard::readable(footer).map_err(refuse)?))
}

#[pyfunction]
pub fn sha1_backend() -> &'static str {
    Backend::detect().name()
}
