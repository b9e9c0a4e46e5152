//! `Touched` as a Python class, and the functions on runs.

use super::arguments::*;
use crate::changes::{self as runs, Changes};
use crate::entries::FIXED_BYTES;
use numpy::{PyArray1, PyArray2};
use pyo3::prelude::*;

#[pyclass(module = "deltacompact._kernels")]
pub struct Touched {
    touched: runs::Touched,
    width: usize,
}

#[pymethods]
impl Touched {
    #[new]
    fn new(py: Python<'_>, new_entries: Vec<Bound<'_, PyAny>>, entry_bytes: &Bound<'_, PyAny>) -> PyResult<Self> {
        let width = integer::<u32>("entry_bytes", entry_bytes, FIXED_BYTES as u32, 1 << 16)? as usize;
        let (arrays, _) = parts("new_entries", &new_entries, None)?;
        let entries = as_entries(&arrays)?;
        Ok(Self { touched: py.detach(|| runs::Touched::new(&entries, width)), width })
    }

    fn find(&mut self, py: Python<'_>, chunk: &Bound<'_, PyAny>) -> PyResult<()> {
        let chunk = matrix("chunk", chunk, Some(self.width))?;
        let chunk = one_as_entries(&chunk)?;
        py.detach(|| self.touched.find(chunk)).map_err(refuse)
    }

    fn found<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<u8>>> {
        entries_from(py, py.detach(|| self.touched.found()), self.width)
    }
}

type Changed<'py> = (Bound<'py, PyArray2<u8>>, Bound<'py, PyArray1<u32>>, Bound<'py, PyArray1<u64>>);

#[pyfunction]
pub fn changes<'py>(py: Python<'py>, found: &Bound<'py, PyAny>, folded: &Bound<'py, PyAny>) -> PyResult<Changed<'py>> {
    let (found, folded) = (matrix("found", found, None)?, matrix("folded", folded, None)?);
    let (found, folded) = (one_as_entries(&found)?, one_as_entries(&folded)?);
    let made = py.detach(|| Changes::between(found, folded)).map_err(refuse)?;
    let run = entries_from(py, made.run, folded.width())?;
    Ok((run, PyArray1::from_vec(py, made.dead_ordinals), PyArray1::from_vec(py, made.dead_rows)))
}

#[pyfunction]
pub fn merge_entries<'py>(
    py: Python<'py>,
    older: &Bound<'py, PyAny>,
    newer: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyArray2<u8>>> {
    let (older, newer) = (matrix("older", older, None)?, matrix("newer", newer, None)?);
    let (older, newer) = (one_as_entries(&older)?, one_as_entries(&newer)?);
    let merged = py.detach(|| runs::merge(older, newer)).map_err(refuse)?;
    entries_from(py, merged, newer.width())
}

#[pyfunction]
pub fn count_to(py: Python<'_>, entries: &Bound<'_, PyAny>, last: &Bound<'_, PyAny>) -> PyResult<usize> {
    let (entries, last) = (matrix("entries", entries, None)?, matrix("last", last, None)?);
    let (entries, last) = (one_as_entries(&entries)?, one_as_entries(&last)?);
    if last.len() != 1 {
        return Err(refuse(format!("last: want one entry, got {}", last.len())));
    }
    Ok(py.detach(|| runs::count_to(entries, last.get(0).digest())))
}

#[pyfunction]
pub fn present_entries<'py>(py: Python<'py>, entries: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyArray2<u8>>> {
    let entries = matrix("entries", entries, None)?;
    let entries = one_as_entries(&entries)?;
    entries_from(py, py.detach(|| runs::present(entries)), entries.width())
}

#[pyfunction]
pub fn points_into(py: Python<'_>, entries: &Bound<'_, PyAny>, files: &Bound<'_, PyAny>) -> PyResult<bool> {
    let (entries, files) = (matrix("entries", entries, None)?, vector::<u32>("files", files)?);
    let (entries, files) = (one_as_entries(&entries)?, files.as_slice()?);
    Ok(py.detach(|| runs::points_into(entries, files)))
}
