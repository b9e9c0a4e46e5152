//! `Fold` as a Python class: it keeps the caller's arrays of new entries, not copies of them.

use super::arguments::*;
use crate::Refused;
use crate::entries::{Entries, EntryWriter, FIXED_BYTES};
use crate::fold;
use crate::new_entries::NewEntries;
use numpy::{PyArray1, PyArrayMethods};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PySlice};

#[pyclass(module = "deltacompact._kernels")]
pub struct Fold {
    new_entries: Vec<Py<PyAny>>,
    width: usize,
    fold: fold::Fold,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq)]
enum Stage {
    Open,
    Finished,
    Failed,
}

#[pymethods]
impl Fold {
    #[new]
    #[pyo3(signature = (new_entries, sort_key_bytes, positions, tombstone_retention = None))]
    fn new(
        py: Python<'_>,
        new_entries: Vec<Bound<'_, PyAny>>,
        sort_key_bytes: &Bound<'_, PyAny>,
        positions: &Bound<'_, PyAny>,
        tombstone_retention: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let width = FIXED_BYTES + integer::<u32>("sort_key_bytes", sort_key_bytes, 0, 1 << 16)? as usize;
        let positions = vector::<i64>("positions", positions)?.as_slice()?.to_vec();
        let retention = tombstone_retention.map(|value| integer("tombstone_retention", value, 0, i64::MAX)).transpose()?;
        let (arrays, _) = parts("new_entries", &new_entries, Some(width))?;
        let entries = as_entries(&arrays)?;
        let sorted = py.detach(|| NewEntries::new(&entries, width, positions.len())).map_err(refuse)?;
        let fold = fold::Fold::new(sorted, positions, retention);
        let new_entries = new_entries.into_iter().map(Bound::unbind).collect();
        Ok(Self { new_entries, width, fold, stage: Stage::Open })
    }

    fn push<'py>(&mut self, py: Python<'py>, base: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let base = matrix("base", base, Some(self.width))?;
        let base = one_as_entries(&base)?;
        self.run(py, Some(base), |fold, parts, out| fold.push(parts, base, out))
    }

    fn finish<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let rest = self.run(py, None, |fold, parts, out| fold.finish(parts, out))?;
        self.stage = Stage::Failed;
        self.fold.tally().check_conservation().map_err(PyRuntimeError::new_err)?;
        self.stage = Stage::Finished;
        self.new_entries.clear();
        Ok(rest)
    }

    #[getter]
    fn counts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        if self.stage != Stage::Finished {
            return Err(PyRuntimeError::new_err("counts are valid after finish()"));
        }
        let counts = self.fold.tally();
        let out = PyDict::new(py);
        out.set_item("upserts", counts.upserts)?;
        out.set_item("deletes", counts.deletes)?;
        out.set_item("superseded", counts.superseded)?;
        out.set_item("deleted", counts.deleted)?;
        out.set_item("live", counts.live)?;
        out.set_item("tombstones", counts.tombstones)?;
        Ok(out)
    }

    fn dead<'py>(&self, py: Python<'py>) -> (Bound<'py, PyArray1<u32>>, Bound<'py, PyArray1<u64>>) {
        let tally = self.fold.tally();
        (PyArray1::from_slice(py, &tally.dead_ordinals), PyArray1::from_slice(py, &tally.dead_rows))
    }
}

impl Fold {
    /// One step of the fold. After a failure no step may follow.
    fn run<'py>(
        &mut self,
        py: Python<'py>,
        base: Option<Entries>,
        step: impl FnOnce(&mut fold::Fold, &[Entries], &mut EntryWriter) -> Result<(), Refused> + Send,
    ) -> PyResult<Bound<'py, PyAny>> {
        match self.stage {
            Stage::Open => {}
            Stage::Finished => return Err(PyRuntimeError::new_err("this fold is finished")),
            Stage::Failed => return Err(PyRuntimeError::new_err("this fold has failed before")),
        }
        self.stage = Stage::Failed;
        let values: Vec<Bound<'py, PyAny>> = self.new_entries.iter().map(|part| part.bind(py).clone()).collect();
        let (arrays, _) = parts("new_entries", &values, Some(self.width))?;
        let entries = as_entries(&arrays)?;
        let room = zeros2(py, self.fold.entries_max(base), self.width)?;
        let mut bytes = room.readwrite();
        let mut out = EntryWriter::new(bytes.as_slice_mut()?, self.width);
        let fold = &mut self.fold;
        let out = py.detach(|| step(fold, &entries, &mut out).map(|()| out.len())).map_err(refuse)?;
        self.stage = Stage::Open;
        // the rest of the buffer was never touched, so it takes no memory
        room.get_item(PySlice::new(py, 0, out as isize, 1))
    }
}
