//! Conversion of the library's errors to the exceptions in `hipvit/_errors.py`.

use std::path::Path;

use hipvit::{Error, ErrorKind, ImageErrorKind, hip};
use hipvit_data::Error as DataError;
use hipvit_train::fit::FitError;
use hipvit_train::recipe::RecipeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyModule;

/// Classes of exceptions.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Argument,
    Closed,
    Config,
    Device,
    Fork,
    Graph,
    Hub,
    Image,
    Internal,
    Io,
    NonFinite,
    NotFound,
    OutOfMemory,
    Weights,
}

impl Kind {
    fn class(self) -> &'static str {
        match self {
            Self::Argument => "ArgumentError",
            Self::Closed => "ClosedError",
            Self::Config => "ConfigError",
            Self::Device => "DeviceError",
            Self::Fork => "ForkError",
            Self::Graph => "GraphError",
            Self::Hub => "HubError",
            Self::Image => "ImageError",
            Self::Internal => "InternalError",
            Self::Io => "InputOutputError",
            Self::NonFinite => "NonFiniteError",
            Self::NotFound => "NotFoundError",
            Self::OutOfMemory => "OutOfMemoryError",
            Self::Weights => "WeightsError",
        }
    }
}

/// Returns the package's Python module `name`, imported once.
pub fn module<'py>(
    py: Python<'py>,
    cell: &'static PyOnceLock<Py<PyModule>>,
    name: &str,
) -> PyResult<&'py Bound<'py, PyModule>> {
    let module = cell.get_or_try_init(py, || PyModule::import(py, name).map(Bound::unbind))?;
    Ok(module.bind(py))
}

fn exception<'py>(py: Python<'py>, kind: Kind, message: &str) -> PyResult<Bound<'py, PyAny>> {
    static ERRORS: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    module(py, &ERRORS, "hipvit._errors")?
        .getattr(kind.class())?
        .call1((message,))
}

/// Returns an exception with this message.
pub fn raise(py: Python<'_>, kind: Kind, message: &str) -> PyErr {
    exception(py, kind, message).map_or_else(|error| error, PyErr::from_value)
}

/// Returns the exception for an invalid argument.
pub fn argument(py: Python<'_>, message: impl AsRef<str>) -> PyErr {
    raise(py, Kind::Argument, message.as_ref())
}

/// Converts the library's error to an exception. `index` is the position of the failed image.
pub fn convert(py: Python<'_>, error: &Error, index: Option<usize>) -> PyErr {
    let build = || {
        let value = exception(py, kind(error), &error.to_string())?;
        match error {
            Error::Io { path, source } => files(&value, path, source)?,
            Error::Hip(hip::Error::Io { path, source }) => files(&value, path, source)?,
            Error::Image { name, kind, .. } => {
                value.setattr("name", name)?;
                value.setattr("kind", image_kind(*kind))?;
            }
            Error::Tensor { tensor, .. } => value.setattr("tensor", tensor)?,
            _ => {}
        }
        if let Some(index) = index {
            value.setattr("index", index)?;
        }
        Ok::<_, PyErr>(PyErr::from_value(value))
    };
    build().unwrap_or_else(|error| error)
}

/// Converts the error of a training run to an exception.
pub fn convert_fit(py: Python<'_>, error: FitError) -> PyErr {
    let message = error.to_string();
    let kind = match error {
        FitError::Engine(error) => return convert(py, &error, None),
        FitError::Data(DataError::Image(error)) => return convert(py, &error.into(), None),
        FitError::Data(DataError::Io { path, source })
        | FitError::Recipe(RecipeError::Io { file: path, source }) => {
            return convert(py, &Error::Io { path, source }, None);
        }
        FitError::Data(DataError::Dataset { .. }) => Kind::Config,
        FitError::Data(DataError::Prepare { .. }) => Kind::Image,
        FitError::Data(DataError::Argument { .. }) | FitError::Recipe(_) => Kind::Argument,
        FitError::NonFinite { .. } => Kind::NonFinite,
        _ => Kind::Internal,
    };
    raise(py, kind, &message)
}

/// Sets the attributes of Python's `OSError`.
fn files(value: &Bound<'_, PyAny>, path: &Path, source: &std::io::Error) -> PyResult<()> {
    value.setattr("filename", path)?;
    value.setattr("errno", source.raw_os_error())
}

fn kind(error: &Error) -> Kind {
    let io = |source: &std::io::Error| match source.kind() {
        std::io::ErrorKind::NotFound => Kind::NotFound,
        _ => Kind::Io,
    };
    match error {
        Error::Io { source, .. } => io(source),
        Error::Image { .. } => Kind::Image,
        Error::LabelledSet { .. } | Error::Config { .. } => Kind::Config,
        Error::Hub { .. } => Kind::Hub,
        Error::Weights { .. } | Error::Tensor { .. } => Kind::Weights,
        Error::NonFinite { .. } => Kind::NonFinite,
        Error::Hip(hip::Error::Io { source, .. }) => io(source),
        Error::Hip(hip::Error::OutOfMemory { .. }) => Kind::OutOfMemory,
        Error::Step { source, .. } if matches!(**source, Error::Hip(hip::Error::OutOfMemory { .. })) => {
            Kind::OutOfMemory
        }
        other => match other.kind() {
            ErrorKind::Usage => Kind::Argument,
            ErrorKind::Device => Kind::Device,
            ErrorKind::Internal => Kind::Internal,
            _ => Kind::Graph,
        },
    }
}

fn image_kind(kind: ImageErrorKind) -> &'static str {
    match kind {
        ImageErrorKind::Unsupported => "unsupported",
        ImageErrorKind::Truncated => "truncated",
        ImageErrorKind::TooLarge => "too_large",
        ImageErrorKind::Size => "size",
        _ => "damaged",
    }
}
