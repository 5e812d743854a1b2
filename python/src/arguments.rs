//! `hipvit.load` and its options.

use std::path::PathBuf;

use hipvit::model::InputKind;
use hipvit::{DType, Device, Labels, ResizeOn, Session, SessionBuilder};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::error::{argument, convert};
use crate::model::Model;
use crate::process;

/// Loads a model: a directory, a name on the Hugging Face hub that is in its local cache, or, without one, the embedded
/// classifier of handwritten digits.
#[pyfunction]
#[pyo3(signature = (
    model = None, device = None, dtype = None, batch = 8, labels = None, *, image_size = None, input = "images",
    tokens = false, hidden_layers = None, threads = None, resize = "host", reproducible = false, strict = false,
))]
#[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
pub fn load(
    py: Python<'_>,
    model: Option<PathBuf>,
    device: Option<&Bound<'_, PyAny>>,
    dtype: Option<&Bound<'_, PyAny>>,
    batch: usize,
    labels: Option<&Bound<'_, PyAny>>,
    image_size: Option<&Bound<'_, PyAny>>,
    input: &str,
    tokens: bool,
    hidden_layers: Option<Vec<usize>>,
    threads: Option<usize>,
    resize: &str,
    reproducible: bool,
    strict: bool,
) -> PyResult<Model> {
    process::check(py)?;
    let fail = |error| convert(py, &error, None);
    let device: Device = match device {
        Some(device) => device.str()?.to_cow()?.parse().map_err(fail)?,
        None => Device::Auto,
    };
    let precision = dtype.map_or(Ok(DType::F32), parse_dtype)?;
    let hidden_layers = hidden_layers.unwrap_or_default();
    let mut builder: SessionBuilder = Session::builder()
        .device(device)
        .dtype(precision)
        .batch(batch)
        .input(parse_input(py, input)?)
        .tokens(tokens)
        .hidden_layers(hidden_layers.iter().copied())
        .resize(resize.parse::<ResizeOn>().map_err(fail)?)
        .reproducible(reproducible)
        .strict(strict);
    if let Some(threads) = threads {
        builder = builder.threads(threads);
    }
    if let Some(size) = image_size {
        builder = builder.image_size(parse_image_size(size)?);
    }
    if let Some(labels) = labels {
        builder = builder.labels(parse_labels(labels)?);
    }
    let source = model.clone();
    let session = py.detach(|| match &source {
        Some(path) => builder.load(path),
        None => builder.tinyvit32(),
    });
    // Whoever unpickles a model loads it with these.
    let options = PyDict::new(py);
    options.set_item("model", model)?;
    options.set_item("device", device.to_string())?;
    options.set_item("dtype", precision.to_string())?;
    options.set_item("batch", batch)?;
    options.set_item("labels", labels)?;
    options.set_item("image_size", image_size)?;
    options.set_item("input", input)?;
    options.set_item("tokens", tokens)?;
    options.set_item("hidden_layers", hidden_layers)?;
    options.set_item("threads", threads)?;
    options.set_item("resize", resize)?;
    options.set_item("reproducible", reproducible)?;
    options.set_item("strict", strict)?;
    Ok(Model::new(session.map_err(fail)?, input, options.unbind()))
}

fn parse_dtype(dtype: &Bound<'_, PyAny>) -> PyResult<DType> {
    // A name, torch.float16, numpy.float16 or numpy.dtype("float16").
    let text = match dtype.getattr("__name__") {
        Ok(name) => name.str()?.to_string(),
        Err(_) => dtype.str()?.to_string(),
    };
    text.parse::<DType>()
        .map_err(|error| convert(dtype.py(), &error.into(), None))
}

fn parse_input(py: Python<'_>, input: &str) -> PyResult<InputKind> {
    match input {
        "images" => Ok(InputKind::Pixels),
        "pixel_values" => Ok(InputKind::PixelValues),
        other => Err(argument(
            py,
            format!("input: {other} is not one of images, pixel_values"),
        )),
    }
}

fn parse_image_size(size: &Bound<'_, PyAny>) -> PyResult<[usize; 2]> {
    if let Ok(side) = size.extract::<usize>() {
        return Ok([side, side]);
    }
    let (height, width) = size.extract::<(usize, usize)>().map_err(|_| {
        let message = "image_size: is neither a number of pixels nor (height, width)";
        argument(size.py(), message)
    })?;
    Ok([height, width])
}

/// The path of a file of labels, or the labels.
fn parse_labels(labels: &Bound<'_, PyAny>) -> PyResult<Labels> {
    let is_path = labels.is_instance_of::<PyString>() || labels.hasattr("__fspath__")?;
    if is_path {
        let path: PathBuf = labels.extract()?;
        return Labels::from_file(path).map_err(|error| convert(labels.py(), &error, None));
    }
    let names = labels.try_iter()?.map(|name| name?.extract::<String>());
    Ok(Labels::from_iter(names.collect::<PyResult<Vec<_>>>()?))
}
