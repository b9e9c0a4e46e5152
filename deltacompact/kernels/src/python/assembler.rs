//! `ParquetFooter` and `ParquetAssembler` as Python classes. They read and write through Python callables, so they work
//! with any store. They raise the callable's exceptions unchanged.

use super::arguments::*;
use crate::assembler::{Assembler, CopyRange};
use crate::parquet_footer::{ChunkKind, Footer};
use crate::source::{ReadAt, Source};
use crate::widest_row::widest_row;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::io::{self, BufWriter, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const BUFFER_BYTES: usize = 256 << 10;

/// The first exception of a callable.
#[derive(Clone, Default)]
struct Raised(Arc<Mutex<Option<PyErr>>>);

impl Raised {
    fn slot(&self) -> MutexGuard<'_, Option<PyErr>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, error: PyErr) -> io::Error {
        let told = io::Error::other(error.to_string());
        self.slot().get_or_insert(error);
        told
    }

    fn or<T>(&self, done: Result<T, String>) -> PyResult<T> {
        match self.slot().take() {
            Some(error) => Err(error),
            None => done.map_err(refuse),
        }
    }
}

#[pyclass(module = "deltacompact._kernels", frozen)]
pub struct ParquetFooter(Footer);

#[pymethods]
impl ParquetFooter {
    #[new]
    #[pyo3(signature = (size, read, page_indexes=true))]
    fn new(py: Python<'_>, size: u64, read: Py<PyAny>, page_indexes: bool) -> PyResult<Self> {
        let raised = Raised::default();
        let done = py.detach(|| Footer::read(size, &reading(&read, &raised), page_indexes));
        raised.or(done).map(Self)
    }

    /// For each row group its rows, and the estimated decoded bytes of the columns of these names.
    fn decoded(&self, columns: Vec<String>) -> Vec<(i64, i64)> {
        self.0.decoded(&columns)
    }

    /// At least the decoded bytes of the widest row of the file. Reads the headers of large pages with text.
    fn widest_row(&self, py: Python<'_>, size: u64, read: Py<PyAny>) -> PyResult<i64> {
        let raised = Raised::default();
        let widest = py.detach(|| widest_row(&self.0, &Source { size, read: &reading(&read, &raised) }));
        raised.or(Ok(widest))
    }

    /// For each row group the chunks of the columns of these names, by their places: first byte and length.
    fn chunks(&self, columns: Vec<String>) -> Vec<Vec<(i64, i64)>> {
        self.0.chunks(&columns)
    }

    /// The bytes of these row groups, in their order: first byte and length of each run of chunks.
    fn runs(&self, row_groups: Vec<usize>) -> PyResult<Vec<(u64, u64)>> {
        let count = self.0.metadata.num_row_groups();
        match row_groups.iter().find(|&&place| place >= count) {
            Some(place) => Err(refuse(format!("row group {place}: there is none"))),
            None => Ok(self.0.runs(&row_groups)),
        }
    }

    /// The writer of the file. Empty: unknown.
    #[getter]
    fn created_by(&self) -> &str {
        self.0.created_by()
    }

    /// For each row group the kinds of its chunks, each once: physical type, encodings, types of pages, codec.
    fn kinds(&self) -> Vec<Vec<ChunkKind>> {
        self.0.kinds()
    }

    /// Whether some pages of the file are encrypted, though the footer is not.
    #[getter]
    fn encrypted(&self) -> bool {
        self.0.encrypted
    }

    /// For each row group the reason why it cannot be copied into a file that is begun with this template, or None.
    fn refusals(&self, template: &[u8]) -> PyResult<Vec<Option<String>>> {
        let template = Footer::of_template(template).map_err(refuse)?;
        Ok(self.0.refusals(&template))
    }
}

#[pyclass(module = "deltacompact._kernels")]
pub struct ParquetAssembler(Option<Assembler<BufWriter<Sink>>>, Raised);

#[pymethods]
impl ParquetAssembler {
    #[new]
    fn new(template: &[u8], write: Py<PyAny>, created_by: String) -> PyResult<Self> {
        let raised = Raised::default();
        let sink = BufWriter::with_capacity(BUFFER_BYTES, Sink { write, raised: raised.clone() });
        Assembler::new(template, sink, created_by).map(|made| Self(Some(made), raised)).map_err(refuse)
    }

    #[pyo3(signature = (footer, size, read, row_groups, copy=None))]
    fn append(
        &mut self,
        py: Python<'_>,
        footer: &ParquetFooter,
        size: u64,
        read: Py<PyAny>,
        row_groups: Vec<usize>,
        copy: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let Self(assembler, raised) = self;
        let made = assembler.as_mut().ok_or_else(closed)?;
        let copy = copy.as_ref().map(|copy| copying(copy, raised));
        let done = py.detach(|| made.append(&footer.0, size, &reading(&read, raised), &row_groups, copy.as_deref()));
        if done.is_err() {
            *assembler = None;
        }
        raised.or(done)
    }

    fn close(&mut self, py: Python<'_>) -> PyResult<()> {
        let assembler = self.0.take().ok_or_else(closed)?;
        let done = py.detach(|| assembler.close());
        self.1.or(done)
    }
}

fn closed() -> PyErr {
    PyRuntimeError::new_err("this assembler is closed or has failed")
}

fn reading<'a>(read: &'a Py<PyAny>, raised: &'a Raised) -> Box<ReadAt<'a>> {
    Box::new(|offset, out| Python::attach(|py| read_at(read.bind(py), offset, out).map_err(|error| raised.remember(error))))
}

fn copying<'a>(copy: &'a Py<PyAny>, raised: &'a Raised) -> Box<CopyRange<'a>> {
    Box::new(|offset, length| {
        Python::attach(|py| copy.call1(py, (offset, length))?.extract(py)).map_err(|error| raised.remember(error))
    })
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

struct Sink {
    write: Py<PyAny>,
    raised: Raised,
}

impl Write for Sink {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let written = Python::attach(|py| self.write.call1(py, (PyBytes::new(py, data),)).map(drop));
        written.map(|()| data.len()).map_err(|error| self.raised.remember(error))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
