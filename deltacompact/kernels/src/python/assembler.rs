//! `ParquetAssembler` as a Python class. It reads and writes through Python callables, so that any store will do.

use super::arguments::*;
use crate::assembler::{Assembler, Source};
use bytes::Bytes;
use parquet::errors::{ParquetError, Result as ParquetResult};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::io::{self, BufWriter, Write};

const BUFFER_BYTES: usize = 1 << 20;

#[pyclass(module = "deltacompact._kernels")]
pub struct ParquetAssembler(Option<Assembler<BufWriter<Sink>>>);

#[pymethods]
impl ParquetAssembler {
    #[new]
    fn new(template: &[u8], write: Py<PyAny>, created_by: String) -> PyResult<Self> {
        let sink = BufWriter::with_capacity(BUFFER_BYTES, Sink(write));
        Assembler::new(Bytes::copy_from_slice(template), sink, created_by).map(Some).map(Self).map_err(refuse)
    }

    fn append(&mut self, py: Python<'_>, size: u64, read: Py<PyAny>, row_groups: Vec<usize>) -> PyResult<()> {
        let assembler = self.0.as_mut().ok_or_else(|| PyRuntimeError::new_err("this assembler is closed or has failed"))?;
        let mut failed: Option<PyErr> = None;
        let done = {
            let failed = std::sync::Mutex::new(&mut failed);
            py.detach(|| {
                let read = |offset: u64, length: usize| -> ParquetResult<Bytes> {
                    Python::attach(|py| {
                        read_range(read.bind(py), offset, length).map_err(|error| {
                            let why = ParquetError::General(error.to_string());
                            **failed.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(error);
                            why
                        })
                    })
                };
                let source = Source::open(size, &read)?;
                row_groups.iter().try_for_each(|&row_group| assembler.append(&source, row_group))
            })
        };
        done.map_err(|why| {
            self.0 = None;
            failed.unwrap_or_else(|| refuse(why))
        })
    }

    fn close(&mut self, py: Python<'_>) -> PyResult<()> {
        let assembler = self.0.take().ok_or_else(|| PyRuntimeError::new_err("this assembler is closed or has failed"))?;
        py.detach(|| assembler.close()).map_err(|why| PyErr::new::<pyo3::exceptions::PyOSError, _>(why))
    }
}

fn read_range(read: &Bound<'_, PyAny>, offset: u64, length: usize) -> PyResult<Bytes> {
    let buffer = read.call1((offset, length))?;
    let array = read.py().import("numpy")?.call_method1("frombuffer", (buffer, "uint8"))?;
    let array = vector::<u8>("read", &array)?;
    Ok(Bytes::copy_from_slice(array.as_slice()?))
}

struct Sink(Py<PyAny>);

impl Write for Sink {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        Python::attach(|py| self.0.call1(py, (PyBytes::new(py, data),)).map_err(|error| io::Error::other(error.to_string())))?;
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
