//! `SurvivorRanks` as a Python class.

use super::arguments::*;
use crate::entries::GONE;
use crate::ranks;
use numpy::{PyArray1, PyArrayMethods, PyReadonlyArray1, PyUntypedArrayMethods};
use pyo3::prelude::*;

#[pyclass(module = "deltacompact._kernels")]
pub struct SurvivorRanks(ranks::SurvivorRanks);

/// (ordinals, rows). Refuses arrays of different lengths.
pub fn pointers<'py>(
    ordinals: &Bound<'py, PyAny>,
    rows: &Bound<'py, PyAny>,
) -> PyResult<(PyReadonlyArray1<'py, u32>, PyReadonlyArray1<'py, u64>)> {
    let (ordinals, rows) = (vector::<u32>("ordinals", ordinals)?, vector::<u64>("rows", rows)?);
    if ordinals.shape() != rows.shape() {
        return Err(refuse(format!("{} ordinals but {} rows", ordinals.shape()[0], rows.shape()[0])));
    }
    Ok((ordinals, rows))
}

#[pymethods]
impl SurvivorRanks {
    #[new]
    fn new(py: Python<'_>, ordinals: &Bound<'_, PyAny>, file_rows: &Bound<'_, PyAny>) -> PyResult<Self> {
        let (ordinals, file_rows) = (vector::<u32>("ordinals", ordinals)?, vector::<i64>("file_rows", file_rows)?);
        let (ordinals, file_rows) = (ordinals.as_slice()?.to_vec(), file_rows.as_slice()?);
        py.detach(|| ranks::SurvivorRanks::new(ordinals, file_rows)).map(Self).map_err(refuse)
    }

    fn mark(&mut self, py: Python<'_>, ordinals: &Bound<'_, PyAny>, rows: &Bound<'_, PyAny>) -> PyResult<()> {
        let (ordinals, rows) = pointers(ordinals, rows)?;
        let (ordinals, rows, ranks) = (ordinals.as_slice()?, rows.as_slice()?, &mut self.0);
        py.detach(|| ranks.mark(ordinals, rows)).map_err(refuse)
    }

    #[pyo3(signature = (ordinal, mask = None))]
    fn fill(&mut self, py: Python<'_>, ordinal: &Bound<'_, PyAny>, mask: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let ordinal = integer("ordinal", ordinal, 0, u32::MAX)?;
        let mask = mask.map(|mask| vector::<u8>("mask", mask)).transpose()?;
        let mask = mask.as_ref().map(|mask| mask.as_slice()).transpose()?;
        py.detach(|| self.0.fill(ordinal, mask)).map_err(refuse)
    }

    fn unmark(&mut self, py: Python<'_>, ordinals: &Bound<'_, PyAny>, rows: &Bound<'_, PyAny>) -> PyResult<()> {
        let (ordinals, rows) = pointers(ordinals, rows)?;
        let (ordinals, rows, ranks) = (ordinals.as_slice()?, rows.as_slice()?, &mut self.0);
        py.detach(|| ranks.unmark(ordinals, rows)).map_err(refuse)
    }

    fn ranks<'py>(
        &mut self,
        py: Python<'py>,
        ordinals: &Bound<'py, PyAny>,
        rows: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyArray1<u64>>> {
        let (ordinals, rows) = pointers(ordinals, rows)?;
        let result = zeros1(py, rows.shape()[0])?;
        let mut out = result.readwrite();
        let (ordinals, rows, out, ranks) = (ordinals.as_slice()?, rows.as_slice()?, out.as_slice_mut()?, &mut self.0);
        py.detach(|| ranks.ranks(ordinals, rows, out)).map_err(refuse)?;
        Ok(result)
    }

    fn relocate(
        &mut self,
        py: Python<'_>,
        entries: &Bound<'_, PyAny>,
        first_output: &Bound<'_, PyAny>,
        rows_per_output: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let first_output = integer("first_output", first_output, 0, GONE - 1)?;
        let rows_per_output = integer("rows_per_output", rows_per_output, 1, u64::MAX)?;
        let mut entries = writable("entries", entries)?;
        let width = entries.shape()[1];
        let (bytes, ranks) = (entries.as_slice_mut()?, &mut self.0);
        py.detach(|| ranks.relocate(bytes, width, first_output, rows_per_output)).map_err(refuse)
    }

    fn mask<'py>(&self, py: Python<'py>, ordinal: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyArray1<u8>>> {
        let ordinal = integer("ordinal", ordinal, 0, u32::MAX)?;
        let mask = py.detach(|| self.0.mask(ordinal)).map_err(refuse)?;
        Ok(PyArray1::from_vec(py, mask))
    }

    fn live(&self, py: Python<'_>, ordinal: &Bound<'_, PyAny>) -> PyResult<u64> {
        let ordinal = integer("ordinal", ordinal, 0, u32::MAX)?;
        py.detach(|| self.0.live(ordinal)).map_err(refuse)
    }

    #[getter]
    fn total(&self, py: Python<'_>) -> u64 {
        py.detach(|| self.0.total())
    }
}
