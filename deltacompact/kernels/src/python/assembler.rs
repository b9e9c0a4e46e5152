//! `ParquetAssembler` as a Python class. It reads and writes through Python callables, so that any store will do.

use super::arguments::*;
use crate::assembler::{Assembler, Source};
use bytes::Bytes;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::io::{self, BufWriter, Write};

const BUFFER_BYTES: usize = 256 << 10;

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
                let read = |offset: u64, out: &mut [u8]| -> io::Result<()> {
                    Python::attach(|py| {
                        read_at(read.bind(py), offset, out).map_err(|error| {
                            let why = io::Error::other(error.to_string());
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
        py.detach(|| assembler.close()).map_err(PyErr::new::<pyo3::exceptions::PyOSError, _>)
    }
}

fn read_at(read: &Bound<'_, PyAny>, offset: u64, out: &mut [u8]) -> PyResult<()> {
    let buffer = read.call1((offset, out.len()))?;
    let array = read.py().import("numpy")?.call_method1("frombuffer", (buffer, "uint8"))?;
    let array = vector::<u8>("read", &array)?;
    let bytes = array.as_slice()?;
    if bytes.len() != out.len() {
        return Err(refuse(format!("read: {} bytes at {offset}, want {}", bytes.len(), out.len())));
    }
    out.copy_from_slice(bytes);
    Ok(())
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
