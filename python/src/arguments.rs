//! `hipvit.load` and its options.

use std::collections::BTreeMap;
use std::path::PathBuf;

use hipvit::model::InputKind;
use hipvit::{DType, Device, DtypeChoice, Labels, RunConfig, SessionBuilder};
use hipvit_generate::makes_texts;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyString};
use serde_json::Value;

use crate::error::{argument, convert};
use crate::model::Model;
use crate::process;

/// Loads a model: a directory, a name on the Hugging Face hub that is in its local cache, or, without one, the embedded
/// classifier of handwritten digits. `options` are those of [`RunConfig`].
#[pyfunction]
#[pyo3(signature = (
    model = None, device = None, dtype = None, batch = 8, labels = None, *, input = "images", tokens = false,
    hidden_layers = None, **options,
))]
#[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
pub fn load(
    py: Python<'_>,
    model: Option<PathBuf>,
    device: Option<&Bound<'_, PyAny>>,
    dtype: Option<&Bound<'_, PyAny>>,
    batch: usize,
    labels: Option<&Bound<'_, PyAny>>,
    input: &str,
    tokens: bool,
    hidden_layers: Option<Vec<usize>>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Model> {
    process::check(py)?;
    let fail = |error| convert(py, &error, None);
    // A model that is unpickled is loaded with these.
    let (config, arguments) = config(py, device, dtype, batch, ("load", options))?;
    let hidden_layers = hidden_layers.unwrap_or_default();
    let mut builder: SessionBuilder = config
        .builder()
        .input(parse_input(py, input)?)
        // A decoder of texts reads the tokens.
        .tokens(tokens || model.as_ref().is_some_and(makes_texts))
        .hidden_layers(hidden_layers.iter().copied());
    if let Some(labels) = labels {
        builder = builder.labels(parse_labels(labels)?);
    }
    let source = model.clone();
    let session = py.detach(|| match &source {
        Some(path) => builder.load(path),
        None => builder.tinyvit32(),
    });
    arguments.set_item("model", &model)?;
    arguments.set_item("device", config.device.map(|device| device.to_string()))?;
    arguments.set_item("dtype", config.dtype.to_string())?;
    arguments.set_item("batch", batch)?;
    arguments.set_item("labels", labels)?;
    arguments.set_item("input", input)?;
    arguments.set_item("tokens", tokens)?;
    arguments.set_item("hidden_layers", hidden_layers)?;
    Ok(Model::new(
        session.map_err(fail)?,
        input,
        arguments.unbind(),
        model,
    ))
}

/// Reads the options of a session. Returns those given by name too. `function` has the name of the function that takes them.
pub fn config<'py>(
    py: Python<'py>,
    device: Option<&Bound<'_, PyAny>>,
    dtype: Option<&Bound<'_, PyAny>>,
    batch: usize,
    (function, options): (&str, Option<&Bound<'py, PyDict>>),
) -> PyResult<(RunConfig, Bound<'py, PyDict>)> {
    let fail = |error| convert(py, &error, None);
    let mut config = RunConfig {
        device: Some(match device {
            Some(device) => device.str()?.to_cow()?.parse().map_err(fail)?,
            None => Device::Auto.into(),
        }),
        dtype: dtype.map_or(Ok(DType::F32.into()), parse_dtype_choice)?,
        batch,
        ..RunConfig::default()
    };
    let arguments = PyDict::new(py);
    for (name, value) in options.into_iter().flatten() {
        let text: String = name.extract()?;
        if !RunConfig::OPTIONS.contains(&text.as_str()) {
            let message = format!("{function}() got an unexpected keyword argument '{text}'");
            return Err(PyTypeError::new_err(message));
        }
        config = config.with(&text, option_value(&text, &value)?).map_err(fail)?;
        arguments.set_item(name, value)?;
    }
    Ok((config, arguments))
}

/// Converts the value of an option as [`RunConfig::with`] takes it.
fn option_value(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Value> {
    if value.is_none() {
        return Ok(Value::Null);
    }
    if name == "image_size" {
        let [height, width] = parse_image_size(value)?;
        return Ok(format!("{height}x{width}").into());
    }
    if name == "extent" {
        let extents: BTreeMap<String, usize> = value.extract()?;
        let extents = extents
            .into_iter()
            .map(|(name, number)| format!("{name}={number}"));
        return Ok(extents.collect::<Vec<_>>().into());
    }
    if name == "calibrate" {
        let paths: Vec<PathBuf> = value.extract()?;
        return serde_json::to_value(paths).map_err(|error| PyTypeError::new_err(error.to_string()));
    }
    if ["mean", "std"].contains(&name)
        && let Ok(channels) = value.extract::<Vec<f64>>()
    {
        let channels: Vec<String> = channels.iter().map(ToString::to_string).collect();
        return Ok(channels.join(",").into());
    }
    if value.is_instance_of::<PyBool>() {
        return Ok(value.extract::<bool>()?.into());
    }
    if ["mean", "std"].contains(&name) {
        return Ok(value.str()?.to_string().into());
    }
    if let Ok(number) = value.extract::<u64>() {
        return Ok(number.into());
    }
    if let Ok(number) = value.extract::<f64>() {
        return Ok(number.into());
    }
    Ok(value.str()?.to_string().into())
}

/// Returns the dtype of a name, or of a dtype of numpy or torch.
pub fn parse_dtype(dtype: &Bound<'_, PyAny>) -> PyResult<DType> {
    let choice = parse_dtype_choice(dtype)?;
    choice.fixed().map_err(|error| convert(dtype.py(), &error, None))
}

/// Returns the dtype as [`parse_dtype`] does, or the choice `auto`.
fn parse_dtype_choice(dtype: &Bound<'_, PyAny>) -> PyResult<DtypeChoice> {
    // A name, torch.float16, numpy.float16 or numpy.dtype("float16").
    let text = match dtype.getattr("__name__") {
        Ok(name) => name.str()?.to_string(),
        Err(_) => dtype.str()?.to_string(),
    };
    text.parse::<DtypeChoice>()
        .map_err(|error| convert(dtype.py(), &error, None))
}

/// Returns the form of the images.
pub fn parse_input(py: Python<'_>, input: &str) -> PyResult<InputKind> {
    match input {
        "images" => Ok(InputKind::Pixels),
        "pixel_values" => Ok(InputKind::PixelValues),
        "tensors" => Ok(InputKind::Tensors),
        other => Err(argument(
            py,
            format!("input: {other} is not one of images, pixel_values, tensors"),
        )),
    }
}

/// Returns the height and width of a side or of a pair.
pub fn parse_image_size(size: &Bound<'_, PyAny>) -> PyResult<[usize; 2]> {
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
