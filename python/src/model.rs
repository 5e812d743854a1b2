//! `hipvit.Model`: a session of the library.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use hipvit::hip::Device;
use hipvit::image::{DecodeOptions, RgbImage};
use hipvit::ndarray::Array2;
use hipvit::pipeline::Source;
use hipvit::{Error, RunInput, RunOptions, Session};
use hipvit_generate::{GenerateOptions, Sampling};
use numpy::{IntoPyArray, PyArray2, PyArray3, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyModule, PyTuple};
use rayon::prelude::*;

use crate::dtype::long_name;
use crate::error::{argument, convert, module};
use crate::gpu_outputs::GpuOutputs;
use crate::images;
use crate::loaded_model::{LoadedModel, OnError, parse_on_error};
use crate::outputs::Outputs;
use crate::tensors;
use crate::zero_shot::{self, ZeroShot};

/// A loaded model. Any number of threads can call it at once. Calls release the GIL.
#[derive(Debug)]
#[pyclass(frozen, module = "hipvit")]
pub struct Model(Arc<LoadedModel>);

impl Model {
    pub fn new(session: Session, input: &str, options: Py<PyDict>, path: Option<PathBuf>) -> Self {
        Self(Arc::new(LoadedModel::new(session, input, options, path)))
    }
}

impl Deref for Model {
    type Target = LoadedModel;

    fn deref(&self) -> &LoadedModel {
        &self.0
    }
}

fn normalize_rows(embeddings: &mut Array2<f32>) {
    for row in embeddings.rows_mut() {
        hipvit::outputs::normalize(row);
    }
}

/// Decodes and runs images, and leaves the results on the GPU. An error has the position of its image.
fn run_on_gpu(session: &Session, sources: Vec<Source>) -> Result<hipvit::GpuOutputs, (Error, Option<usize>)> {
    let images = sources.into_par_iter().enumerate().map(|(index, source)| {
        let image = source.decode(DecodeOptions::default());
        image.map_err(|error| (error, Some(index)))
    });
    let images: Vec<RgbImage> = images.collect::<Result<_, _>>()?;
    let outputs = session.run_on_gpu(&images, RunOptions::new());
    outputs.map_err(|error| (error, None))
}

#[pymethods]
impl Model {
    /// Returns the logits, `[B, classes]`.
    #[pyo3(signature = (images, *, resize = true))]
    fn __call__(&self, images: &Bound<'_, PyAny>, resize: bool) -> PyResult<Py<PyArray2<f32>>> {
        let py = images.py();
        let headless = self.session(py)?.info().classes == 0;
        if headless {
            let message = format!("{} has no classification head; use embed()", self.name);
            return Err(argument(py, message));
        }
        let outputs = Outputs::new(py, self.rows(images, resize, OnError::Raise)?);
        outputs
            .logits(py)
            .ok_or_else(|| argument(py, "the model gave no logits"))
    }

    /// Returns all results for the images. A dictionary of arrays by the names of the model's inputs gives one by those of its outputs.
    #[pyo3(signature = (images, *, resize = true, on_error = "raise", progress = None))]
    fn run<'py>(
        &self,
        images: &Bound<'py, PyAny>,
        resize: bool,
        on_error: &str,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = images.py();
        if let Ok(inputs) = images.cast::<PyDict>() {
            return Ok(tensors::run(self, inputs)?.into_any());
        }
        let on_error = parse_on_error(py, on_error)?;
        let rows = self.rows_with(images, resize, on_error, progress)?;
        Ok(Bound::new(py, Outputs::new(py, rows))?.into_any())
    }

    /// Inputs of the model by name: dtype and shape of each. For an ONNX model, those of its file.
    #[getter]
    fn inputs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        tensors::describe(py, &self.session(py)?.tensor_inputs())
    }

    /// Outputs of the model by name: dtype and shape of each. For an ONNX model, those of its file.
    #[getter]
    fn outputs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        tensors::describe(py, &self.session(py)?.tensor_outputs())
    }

    /// Runs images like `run`, and leaves the results on the model's GPU.
    #[pyo3(signature = (images, *, resize = true))]
    fn run_on_gpu(&self, images: &Bound<'_, PyAny>, resize: bool) -> PyResult<GpuOutputs> {
        let py = images.py();
        if self.values || !resize {
            let run = |session: &Session, input: RunInput<'_>| session.run_on_gpu(input, RunOptions::new());
            return self.run_array(images, run).map(GpuOutputs);
        }
        let session = self.session(py)?;
        let sources = images::collect(images)?;
        py.detach(|| run_on_gpu(&session, sources))
            .map(GpuOutputs)
            .map_err(|(error, index)| convert(py, &error, index))
    }

    /// Returns the embeddings, `[B, D]`: the input of the classification head.
    #[pyo3(signature = (images, *, resize = true, normalize = false))]
    fn embed(&self, images: &Bound<'_, PyAny>, resize: bool, normalize: bool) -> PyResult<Py<PyArray2<f32>>> {
        let py = images.py();
        let mut rows = self.rows(images, resize, OnError::Raise)?;
        if normalize {
            normalize_rows(&mut rows.embeddings);
        }
        Ok(Outputs::new(py, rows).embeddings(py))
    }

    /// Returns the depths of each image, `[H, W]`, in the image's size. Images may have any sizes.
    fn depth<'py>(&self, images: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyArray2<f32>>>> {
        let py = images.py();
        let depths = LoadedModel::depth(self, images)?.into_iter();
        Ok(depths.map(|depth| depth.into_pyarray(py)).collect())
    }

    /// Returns the patch tokens, `[B, patches, D]`. Requires `tokens=True` when the model is loaded.
    #[pyo3(signature = (images, *, resize = true))]
    fn tokens(&self, images: &Bound<'_, PyAny>, resize: bool) -> PyResult<Py<PyArray3<f32>>> {
        let py = images.py();
        let outputs = Outputs::new(py, self.rows(images, resize, OnError::Raise)?);
        let missing = || argument(py, "tokens: load the model with tokens=True");
        outputs.tokens(py).ok_or_else(missing)
    }

    /// Returns the `k` most likely classes of each image, best first.
    #[pyo3(signature = (images, k = 5, *, resize = true))]
    fn top<'py>(
        &self,
        images: &Bound<'py, PyAny>,
        k: usize,
        resize: bool,
    ) -> PyResult<Vec<Vec<Bound<'py, PyAny>>>> {
        let py = images.py();
        Outputs::new(py, self.rows(images, resize, OnError::Raise)?).top(py, k)
    }

    /// Embeds labels to classify images by. Requires a model with a text tower.
    #[pyo3(signature = (labels, templates = None))]
    fn zero_shot(
        &self,
        labels: &Bound<'_, PyAny>,
        templates: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<ZeroShot> {
        ZeroShot::new(&self.0, labels, templates)
    }

    /// Returns the embeddings of texts, `[texts, D]`, in the space of the images' embeddings. Requires a model with a text tower.
    #[pyo3(signature = (texts, *, normalize = false))]
    fn embed_texts<'py>(
        &self,
        texts: &Bound<'py, PyAny>,
        normalize: bool,
    ) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let py = texts.py();
        let session = self.session(py)?;
        let texts = zero_shot::texts(texts, "texts")?;
        let embedded = py.detach(|| session.embed_texts(&texts));
        let mut embedded = embedded.map_err(|error| convert(py, &error, None))?;
        if normalize {
            normalize_rows(&mut embedded.embeddings);
        }
        Ok(embedded.embeddings.into_pyarray(py))
    }

    /// Returns the text of each image. Requires a model with a decoder of texts.
    #[pyo3(signature = (images, max_tokens = None, *, temperature = None, top_k = None, top_p = None, seed = 0, speculate = 0, draft_model = None, beams = None, prompt = None))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn generate(
        &self,
        images: &Bound<'_, PyAny>,
        max_tokens: Option<usize>,
        temperature: Option<f64>,
        top_k: Option<usize>,
        top_p: Option<f64>,
        seed: u64,
        speculate: usize,
        draft_model: Option<PathBuf>,
        beams: Option<usize>,
        prompt: Option<String>,
    ) -> PyResult<Vec<String>> {
        let options = GenerateOptions {
            max_tokens,
            prompt,
            sampling: Sampling::by_rules(temperature, top_k, top_p, seed),
            beams,
            draft: speculate,
            first_index: 0,
        };
        self.texts(images, options, draft_model)
    }

    /// Returns the model's input for the images: float32 `[B, 3, H, W]`, or uint8 `[B, H, W, 3]` without normalisation. A model for images
    /// of any aspect ratio gets float32 `[B, patches, p·p·3]`, as from transformers' processor.
    #[pyo3(signature = (images, *, normalize = true))]
    fn preprocess<'py>(&self, images: &Bound<'py, PyAny>, normalize: bool) -> PyResult<Bound<'py, PyAny>> {
        let py = images.py();
        let session = self.session(py)?;
        let sources = images::collect(images)?;
        let (count, [height, width]) = (sources.len(), session.info().image_size);
        let pixels = py.detach(|| pixels(&session, &sources, height * width * 3));
        let pixels = pixels.map_err(|(error, index)| convert(py, &error, Some(index)))?;
        if !normalize {
            let array = numpy::PyArray1::from_vec(py, pixels);
            return Ok(array.reshape([count, height, width, 3])?.into_any());
        }
        let rule = session.preprocess();
        if session.info().any_aspect_ratio {
            let each = (height * width * 3).max(1);
            let values = py.detach(|| {
                let images = pixels.par_chunks(each);
                images
                    .map(|pixels| Ok(rule.normalize_patches(pixels)?.0))
                    .collect::<hipvit::Result<Vec<_>>>()
            });
            let values = values.map_err(|error| convert(py, &error, None))?;
            let array = numpy::PyArray1::from_vec(py, values.concat());
            return Ok(array
                .reshape([count, height / width, width * width * 3])?
                .into_any());
        }
        let values = py.detach(|| {
            let mut values = vec![0.0; pixels.len()];
            let each = (height * width * 3).max(1);
            let images = values.par_chunks_mut(each).zip(pixels.par_chunks(each));
            images.try_for_each(|(values, pixels)| rule.normalize(pixels, values))?;
            Ok(values)
        });
        let array = numpy::PyArray1::from_vec(py, values.map_err(|error| convert(py, &error, None))?);
        Ok(array.reshape([count, 3, height, width])?.into_any())
    }

    /// Frees the model's memory. Later calls fail.
    fn close(&self, py: Python<'_>) {
        let session = self.take();
        py.detach(|| drop(session));
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) {
        self.close(py);
    }

    fn __repr__(&self) -> String {
        let Some(session) = self.open() else {
            return format!("<hipvit.Model {} (closed)>", self.name);
        };
        let [height, width] = session.info().image_size;
        format!(
            "<hipvit.Model {}: {}, {height}x{width}, {} classes, {} on {}, batch {}>",
            self.name,
            session.info().architecture,
            session.info().classes,
            long_name(session.dtype()),
            session.device(),
            session.batch()
        )
    }

    /// Unpickling loads the model again.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (Py<PyDict>,))> {
        static PACKAGE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
        let load = module(py, &PACKAGE, "hipvit._results")?.getattr("load_again")?;
        Ok((load, (self.options.clone_ref(py),)))
    }

    /// Name of the model: its name on the hub, or the name of its directory.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// Name of the architecture in timm, or of the class in transformers.
    #[getter]
    fn architecture(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.session(py)?.info().architecture.clone())
    }

    /// Names of the classes in the order of the logits. Empty without a classification head.
    #[getter]
    fn labels(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        Ok(self.session(py)?.labels().iter().map(str::to_owned).collect())
    }

    /// Number of classes. 0 without a classification head.
    #[getter]
    fn num_classes(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.session(py)?.info().classes)
    }

    /// The model's GPU as a DLPack device. `None` if results cannot stay on a GPU.
    #[getter]
    fn dlpack_device(&self, py: Python<'_>) -> PyResult<Option<(i32, i32)>> {
        Ok(self.session(py)?.output_gpu().map(Device::dlpack))
    }

    /// Length of an embedding.
    #[getter]
    fn num_features(&self, py: Python<'_>) -> PyResult<usize> {
        let session = self.session(py)?;
        let empty = if self.values {
            session.run_with(RunInput::Values(&[]), RunOptions::new())
        } else {
            session.run([] as [RgbImage; 0])
        };
        let empty = empty.map_err(|error| convert(py, &error, None))?;
        Ok(empty.embeddings().ncols())
    }

    /// Height and width of the input, in pixels.
    #[getter]
    fn image_size(&self, py: Python<'_>) -> PyResult<(usize, usize)> {
        let [height, width] = self.session(py)?.info().image_size;
        Ok((height, width))
    }

    /// Device: `cpu` or `hip:N`.
    #[getter]
    fn device(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.session(py)?.device().to_string())
    }

    /// Reason why `device="auto"` selected the CPU. `None` for any other device, and on a GPU.
    #[getter]
    fn no_gpu(&self, py: Python<'_>) -> PyResult<Option<String>> {
        Ok(self.session(py)?.no_gpu().map(ToString::to_string))
    }

    /// Compute precision: `float32`, `float16` or `bfloat16`.
    #[getter]
    fn dtype(&self, py: Python<'_>) -> PyResult<&'static str> {
        Ok(long_name(self.session(py)?.dtype()))
    }

    /// Maximum batch size.
    #[getter]
    fn batch(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.session(py)?.batch())
    }

    /// Input of the model: `images`, `pixel_values`, or `tensors` of an ONNX model without preprocessing.
    #[getter]
    fn input(&self, py: Python<'_>) -> PyResult<&'static str> {
        Ok(if self.values {
            "pixel_values"
        } else if self.session(py)?.check_takes_images().is_ok() {
            "images"
        } else {
            "tensors"
        })
    }

    /// Facts about the model, such as its sizes and the number of its parameters.
    #[getter]
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let session = self.session(py)?;
        let info = session.info();
        let facts = PyDict::new(py);
        facts.set_item("library", info.library.to_string())?;
        facts.set_item("family", info.family.to_string())?;
        facts.set_item("architecture", &info.architecture)?;
        facts.set_item("image_size", (info.image_size[0], info.image_size[1]))?;
        facts.set_item("patch_size", (info.patch[0], info.patch[1]))?;
        facts.set_item("tokens", info.tokens)?;
        facts.set_item("prefix_tokens", info.prefix_tokens)?;
        facts.set_item("depth", info.depth)?;
        facts.set_item("dim", info.dim)?;
        facts.set_item("heads", info.heads)?;
        facts.set_item("classes", info.classes)?;
        facts.set_item("parameters", info.parameters)?;
        facts.set_item("preprocessing", session.preprocess().to_string())?;
        Ok(facts)
    }
}

/// Returns the images at the model's size, `[images, H, W, 3]`.
fn pixels(session: &Session, sources: &[Source], each: usize) -> Result<Vec<u8>, (Error, usize)> {
    let mut pixels = vec![0; sources.len() * each];
    let slots = pixels.par_chunks_mut(each.max(1));
    let failed: BTreeMap<usize, Error> = sources
        .par_iter()
        .zip(slots)
        .enumerate()
        .filter_map(|(index, (source, slot))| {
            let mut fill = || {
                let image = source.decode(DecodeOptions::default())?;
                let resized = source.resize(&image, session.preprocess())?;
                if resized.data.len() != slot.len() {
                    let [rows, columns] = session.info().image_size;
                    let reason = format!(
                        "resizes an image of {}×{} to {}×{}, but the session takes {rows}×{columns}",
                        image.height, image.width, resized.height, resized.width
                    );
                    return Err(Error::argument("preprocessing", reason));
                }
                slot.copy_from_slice(&resized.data);
                Ok(())
            };
            fill().err().map(|error| (index, error))
        })
        .collect();
    match failed.into_iter().next() {
        Some((index, error)) => Err((error, index)),
        None => Ok(pixels),
    }
}
