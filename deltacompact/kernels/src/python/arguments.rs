//! Checks arguments. Raises a `ValueError` that says what was expected and what was passed.
//!
//! ```text
//! matrix("digests", x, Some(20))    x = int64 (3, 20)   ValueError: digests: want a C-contiguous uint8 array (n, 20), got int64 (3, 20)
//! integer("rows", x, 0, ..)         x = -1              ValueError: rows: want an integer from 0 to ..., got -1
//! ```

use crate::Refused;
use crate::columns::Column;
use crate::entries::{Entries, FIXED_BYTES};
use arrow_array::make_array;
use arrow_data::ArrayData;
use arrow_pyarrow::FromPyArrow;
use arrow_schema::{DataType, Field};
use numpy::{
    Element, PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2, PyReadwriteArray2, PyUntypedArrayMethods,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

pub fn refuse(why: Refused) -> PyErr {
    PyValueError::new_err(why)
}

/// Describes the passed value in a few words.
fn describe(value: &Bound<'_, PyAny>) -> String {
    let text = |name: &str| value.getattr(name).and_then(|attribute| attribute.str()).map(|text| text.to_string());
    match (text("dtype"), text("shape")) {
        (Ok(dtype), Ok(shape)) => format!("{dtype} {shape}"),
        _ => value.get_type().to_string(),
    }
}

/// A byte matrix with `width` columns. None: at least as many as an entry without a sort key.
pub fn matrix<'py>(name: &str, value: &Bound<'py, PyAny>, width: Option<usize>) -> PyResult<PyReadonlyArray2<'py, u8>> {
    if let Ok(array) = value.cast::<PyArray2<u8>>()
        && array.is_c_contiguous()
        && width.map_or(array.shape()[1] >= FIXED_BYTES, |width| array.shape()[1] == width)
    {
        return Ok(array.readonly());
    }
    let columns = width.map_or(format!("at least {FIXED_BYTES}"), |width| width.to_string());
    let got = describe(value);
    Err(refuse(format!("{name}: want a C-contiguous uint8 array (n, {columns}), got {got}")))
}

/// An entry matrix to change in place.
pub fn writable<'py>(name: &str, value: &Bound<'py, PyAny>) -> PyResult<PyReadwriteArray2<'py, u8>> {
    matrix(name, value, None)?;
    let array = value.cast::<PyArray2<u8>>()?;
    array.try_readwrite().map_err(|_| refuse(format!("{name}: want an array that may be written to")))
}

pub fn vector<'py, T: Element>(name: &str, value: &Bound<'py, PyAny>) -> PyResult<PyReadonlyArray1<'py, T>> {
    if let Ok(array) = value.cast::<PyArray1<T>>()
        && array.is_c_contiguous()
    {
        return Ok(array.readonly());
    }
    let dtype = T::get_dtype(value.py());
    Err(refuse(format!("{name}: want a contiguous {dtype} array (n,), got {}", describe(value))))
}

pub fn integer<T: TryFrom<i128> + Into<i128>>(name: &str, value: &Bound<'_, PyAny>, from: T, to: T) -> PyResult<T> {
    let (from, to) = (from.into(), to.into());
    let number = value.extract::<i128>().ok().filter(|number| (from..=to).contains(number));
    number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| {
        let got = value.repr().map_or("?".into(), |text| text.to_string());
        refuse(format!("{name}: want an integer from {from} to {to}, got {got}"))
    })
}

pub fn row_count(value: &Bound<'_, PyAny>) -> PyResult<usize> {
    Ok(integer::<u64>("rows", value, 0, 1 << 62)? as usize)
}

/// An integer from 1 on.
pub fn bucket_count(value: &Bound<'_, PyAny>) -> PyResult<u32> {
    integer("hash_bucket_count", value, 1, u32::MAX)
}

/// A pyarrow array, and the field of its type. Only the field has the name of an extension type.
fn imported(value: &Bound<'_, PyAny>) -> PyResult<(ArrayData, Field)> {
    let data = ArrayData::from_pyarrow_bound(value)?;
    Ok((data, Field::from_pyarrow_bound(&value.getattr("type")?)?))
}

/// Imports columns, each with `rows` rows.
pub fn columns(values: &[Bound<'_, PyAny>], rows: usize) -> PyResult<Vec<Column>> {
    let import = |(position, value): (usize, &Bound<'_, PyAny>)| {
        let (data, field) = imported(value)
            .map_err(|error| refuse(format!("column {position}: not an Arrow array: {}", error.value(value.py()))))?;
        if data.len() != rows {
            return Err(refuse(format!("column {position}: {} rows, want {rows}", data.len())));
        }
        Column::new(position, make_array(data).as_ref(), &field).map_err(refuse)
    };
    values.iter().enumerate().map(import).collect()
}

/// Imports rows, a struct array, and their schema, a struct type.
pub fn rows(rows: &Bound<'_, PyAny>, schema: &Bound<'_, PyAny>) -> PyResult<(ArrayData, DataType)> {
    let named = |name: &str, error: PyErr| refuse(format!("{name}: {}", error.value(rows.py())));
    let (data, _) = imported(rows).map_err(|error| named("rows", error))?;
    Ok((data, DataType::from_pyarrow_bound(schema).map_err(|error| named("schema", error))?))
}

/// Entry matrices, all of one width.
pub fn parts<'py>(
    name: &str,
    values: &[Bound<'py, PyAny>],
    width: Option<usize>,
) -> PyResult<(Vec<PyReadonlyArray2<'py, u8>>, usize)> {
    let mut width = width;
    let mut arrays = Vec::with_capacity(values.len());
    for (i, value) in values.iter().enumerate() {
        let array = matrix(&format!("{name}[{i}]"), value, width)?;
        width = Some(array.shape()[1]);
        arrays.push(array);
    }
    Ok((arrays, width.unwrap_or(FIXED_BYTES)))
}

pub fn as_entries<'a>(arrays: &'a [PyReadonlyArray2<'_, u8>]) -> PyResult<Vec<Entries<'a>>> {
    arrays.iter().map(one_as_entries).collect()
}

pub fn one_as_entries<'a>(array: &'a PyReadonlyArray2<'_, u8>) -> PyResult<Entries<'a>> {
    Ok(Entries::new(array.as_slice()?, array.shape()[1]))
}

/// A new array of zeros. numpy makes it, so that too large an array raises `MemoryError`.
pub fn zeros1<'py, T: Element>(py: Python<'py>, rows: usize) -> PyResult<Bound<'py, PyArray1<T>>> {
    zeros(py, PyTuple::new(py, [rows])?, T::get_dtype(py).into_any())
}

pub fn zeros2<'py>(py: Python<'py>, rows: usize, width: usize) -> PyResult<Bound<'py, PyArray2<u8>>> {
    zeros(py, PyTuple::new(py, [rows, width])?, u8::get_dtype(py).into_any())
}

fn zeros<'py, A>(py: Python<'py>, shape: Bound<'py, PyTuple>, dtype: Bound<'py, PyAny>) -> PyResult<Bound<'py, A>>
where
    A: pyo3::PyTypeCheck,
{
    Ok(py.import("numpy")?.call_method1("zeros", (shape, dtype))?.cast_into::<A>()?)
}

/// Whole entries as a numpy array that owns them.
pub fn entries_from(py: Python<'_>, bytes: Vec<u8>, width: usize) -> PyResult<Bound<'_, PyArray2<u8>>> {
    let rows = bytes.len() / width;
    PyArray1::from_vec(py, bytes).reshape([rows, width])
}
