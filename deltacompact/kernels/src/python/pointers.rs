//! `PointerSplit` and `Publisher` as Python classes.

use super::arguments::*;
use crate::entries::EntryWriter;
use crate::pointers::{self, Places, Split};
use numpy::{PyArray1, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PySlice;

/// The Rust `Split`. None: it is finished.
#[pyclass(module = "deltacompact._kernels")]
pub struct PointerSplit(Option<Split>);

type Groups<'py> = (Bound<'py, PyArray1<u32>>, Bound<'py, PyArray1<u64>>, Bound<'py, PyArray1<i64>>);

#[pymethods]
impl PointerSplit {
    #[new]
    fn new(group_of: &Bound<'_, PyAny>, groups: &Bound<'_, PyAny>) -> PyResult<Self> {
        let group_of = vector::<u32>("group_of", group_of)?.as_slice()?.to_vec();
        Ok(Self(Some(Split::new(group_of, integer("groups", groups, 0, pointers::KEPT)?))))
    }

    fn push_entries(&mut self, py: Python<'_>, entries: &Bound<'_, PyAny>) -> PyResult<()> {
        let entries = matrix("entries", entries, None)?;
        let (entries, split) = (one_as_entries(&entries)?, self.open()?);
        py.detach(|| split.push_entries(entries)).map_err(refuse)
    }

    fn push_pointers(&mut self, py: Python<'_>, ordinals: &Bound<'_, PyAny>, rows: &Bound<'_, PyAny>) -> PyResult<()> {
        let (ordinals, rows) = super::ranks::pointers(ordinals, rows)?;
        let (ordinals, rows, split) = (ordinals.as_slice()?, rows.as_slice()?, self.open()?);
        py.detach(|| split.push_pointers(ordinals, rows));
        Ok(())
    }

    fn finish<'py>(&mut self, py: Python<'py>) -> PyResult<Groups<'py>> {
        self.open()?;
        let (ordinals, rows, offsets) = py.detach(|| self.0.take().map(Split::finish)).unwrap_or_default();
        Ok((PyArray1::from_vec(py, ordinals), PyArray1::from_vec(py, rows), PyArray1::from_vec(py, offsets)))
    }
}

impl PointerSplit {
    fn open(&mut self) -> PyResult<&mut Split> {
        self.0.as_mut().ok_or_else(|| refuse("the split is finished".into()))
    }
}

#[pyclass(module = "deltacompact._kernels")]
pub struct Publisher(pointers::Publisher);

#[pymethods]
impl Publisher {
    #[new]
    #[pyo3(signature = (group_of, number_of, first_ranks, marked_from, first_output_number, rows_per_output, ranks, offsets, expired = None))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        group_of: &Bound<'_, PyAny>,
        number_of: &Bound<'_, PyAny>,
        first_ranks: &Bound<'_, PyAny>,
        marked_from: &Bound<'_, PyAny>,
        first_output_number: &Bound<'_, PyAny>,
        rows_per_output: &Bound<'_, PyAny>,
        ranks: &Bound<'_, PyAny>,
        offsets: &Bound<'_, PyAny>,
        expired: Option<i64>,
    ) -> PyResult<Self> {
        let places = Places {
            number_of: vector::<u32>("number_of", number_of)?.as_slice()?.to_vec(),
            first_ranks: vector::<u64>("first_ranks", first_ranks)?.as_slice()?.to_vec(),
            marked_from: integer::<u32>("marked_from", marked_from, 0, u32::MAX)? as usize,
            first_output_number: integer("first_output_number", first_output_number, 0, u32::MAX)?,
            rows_per_output: integer("rows_per_output", rows_per_output, 0, u64::MAX)?,
            expired,
        };
        let group_of = vector::<u32>("group_of", group_of)?.as_slice()?.to_vec();
        let ranks = vector::<u32>("ranks", ranks)?.as_slice()?.to_vec();
        let offsets = vector::<i64>("offsets", offsets)?;
        pointers::Publisher::new(group_of, places, ranks, offsets.as_slice()?).map(Self).map_err(refuse)
    }

    fn publish<'py>(&mut self, py: Python<'py>, chunk: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let chunk = matrix("chunk", chunk, None)?;
        let room = zeros2(py, chunk.shape()[0], chunk.shape()[1])?;
        let mut bytes = room.readwrite();
        let mut out = EntryWriter::new(bytes.as_slice_mut()?, chunk.shape()[1]);
        let (chunk, publisher) = (one_as_entries(&chunk)?, &mut self.0);
        let written = py.detach(|| publisher.publish(chunk, &mut out).map(|()| out.len())).map_err(refuse)?;
        room.get_item(PySlice::new(py, 0, written as isize, 1))
    }

    #[getter]
    fn left(&self) -> usize {
        self.0.left()
    }
}
