//! `hipvit.Detector`: objects in images.

use std::path::PathBuf;

use hipvit::detect::{Detection, Detector as LibraryDetector};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

use crate::arguments::config;
use crate::error::{convert, module};
use crate::images;
use crate::process;

/// A detector of objects. Any number of threads can call it at once. Calls release the GIL.
#[derive(Debug)]
#[pyclass(frozen, module = "hipvit")]
pub struct Detector(LibraryDetector);

#[pymethods]
impl Detector {
    /// Loads a detector from a directory of transformers, by its name on the hub, from the local cache, or from an ONNX file.
    #[new]
    #[pyo3(signature = (model, device = None, dtype = None, batch = 8, **options))]
    fn new(
        py: Python<'_>,
        model: PathBuf,
        device: Option<&Bound<'_, PyAny>>,
        dtype: Option<&Bound<'_, PyAny>>,
        batch: usize,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        process::check(py)?;
        let (config, _) = config(py, device, dtype, batch, ("Detector", options))?;
        let loaded = py.detach(|| LibraryDetector::load(&model, &config.builder()));
        loaded.map(Self).map_err(|error| convert(py, &error, None))
    }

    /// Returns the objects of each image whose score is above `threshold`, the best first.
    #[pyo3(signature = (images, threshold = 0.5))]
    fn detect<'py>(
        &self,
        images: &Bound<'py, PyAny>,
        threshold: f32,
    ) -> PyResult<Vec<Vec<Bound<'py, PyAny>>>> {
        let py = images.py();
        process::check(py)?;
        let sources = images::collect(images)?;
        let found = py.detach(|| {
            let images = images::decode(sources)?;
            self.0.detect(&images, threshold).map_err(|error| (error, None))
        });
        let found = found.map_err(|(error, index)| convert(py, &error, index))?;
        let of_image = |objects: Vec<Detection>| objects.iter().map(|object| result(py, object)).collect();
        found.into_iter().map(of_image).collect()
    }

    /// Names of the classes.
    #[getter]
    fn labels(&self) -> Vec<&str> {
        self.0.labels().iter().collect()
    }

    /// Name of the model.
    #[getter]
    fn name(&self) -> &str {
        self.0.session().name()
    }

    /// Device in use.
    #[getter]
    fn device(&self) -> String {
        self.0.session().device().to_string()
    }
}

/// Returns a `Detection`.
fn result<'py>(py: Python<'py>, object: &Detection) -> PyResult<Bound<'py, PyAny>> {
    static RESULTS: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let class = module(py, &RESULTS, "hipvit._results")?.getattr("Detection")?;
    let [left, top, right, bottom] = object.corners;
    class.call1((
        object.class,
        &object.name,
        object.score,
        (left, top, right, bottom),
    ))
}
