//! The session of `hipvit.Model` and `hipvit.ZeroShot`.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use hipvit::depth::DepthEstimator;
use hipvit::hip::{Device, Stream};
use hipvit::image::{DecodeOptions, RgbImage};
use hipvit::ndarray::Array2;
use hipvit::pipeline::Source;
use hipvit::{Error, Outputs as LibraryOutputs, Pipeline, ResizeOn, RunInput, RunOptions, Session};
use hipvit_generate::GenerateOptions;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::dlpack;
use crate::error::{Kind, argument, convert, raise};
use crate::generation::Generation;
use crate::images::{self, Input, decode};
use crate::outputs::Rows;
use crate::process;
use crate::progress::Progress;

/// A session, and the Python forms of its inputs and outputs.
#[derive(Debug)]
pub struct LoadedModel {
    /// `None` after `close`.
    session: Mutex<Option<Session>>,
    /// Set by the first call of `depth`.
    depth: Mutex<Option<Arc<DepthEstimator>>>,
    pub name: String,
    /// True if the input is `pixel_values`, false if it is `images`.
    pub values: bool,
    /// Stream that reads tensors on the model's GPU.
    reader: OnceLock<Stream>,
    pub options: Py<PyDict>,
    pub generation: Generation,
}

/// Handling of an image that cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnError {
    Raise,
    Skip,
}

impl LoadedModel {
    /// `path` is `None` for the embedded model.
    pub fn new(session: Session, input: &str, options: Py<PyDict>, path: Option<PathBuf>) -> Self {
        Self {
            name: session.name().to_owned(),
            session: Mutex::new(Some(session)),
            depth: Mutex::new(None),
            values: input == "pixel_values",
            reader: OnceLock::new(),
            options,
            generation: Generation::new(path),
        }
    }

    /// Returns a clone of the session, so that the model can be closed while it runs.
    pub fn session(&self, py: Python<'_>) -> PyResult<Session> {
        process::check(py)?;
        let closed = || raise(py, Kind::Closed, &format!("the model {} was closed", self.name));
        self.open().ok_or_else(closed)
    }

    pub fn open(&self) -> Option<Session> {
        // No code panics while the mutex is locked.
        self.session
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Runs an array that needs no preprocessing.
    pub fn run_array<R: Send>(
        &self,
        images: &Bound<'_, PyAny>,
        run: impl FnOnce(&Session, RunInput<'_>) -> hipvit::Result<R> + Send,
    ) -> PyResult<R> {
        let py = images.py();
        let session = self.session(py)?;
        if let Some(gpu) = session.input_gpu()
            && let Some(tensor) = dlpack::on_gpu(images, gpu, || self.reader(py, gpu))?
        {
            images::check_tensor(py, &tensor, self.values, session.info().image_size)?;
            let (memory, dtype) = (&tensor.memory, tensor.dtype);
            let input = RunInput::Device { memory, dtype };
            let outputs = py.detach(|| run(&session, input));
            // No operation reads the tensor any more.
            return outputs.map_err(|error| convert(py, &error, None));
        }
        let array = images::input(images, self.values, session.info().image_size)?;
        let not_row_major = |error| argument(py, format!("images: {error}"));
        let outputs = match &array {
            Input::Pixels(pixels) => {
                let pixels = pixels.as_slice().map_err(not_row_major)?;
                py.detach(|| run(&session, RunInput::Pixels(pixels)))
            }
            Input::Values(values) => {
                let values = values.as_slice().map_err(not_row_major)?;
                py.detach(|| run(&session, RunInput::Values(values)))
            }
        };
        outputs.map_err(|error| convert(py, &error, None))
    }

    fn reader(&self, py: Python<'_>, gpu: &Device) -> PyResult<Stream> {
        if let Some(stream) = self.reader.get() {
            return Ok(stream.clone());
        }
        let made = gpu.stream().map_err(|error| convert(py, &error.into(), None))?;
        Ok(self.reader.get_or_init(|| made).clone())
    }

    pub fn rows(&self, images: &Bound<'_, PyAny>, resize: bool, on_error: OnError) -> PyResult<Rows> {
        self.rows_with(images, resize, on_error, None)
    }

    /// Runs images and calls `progress(done, total)` after each image.
    pub fn rows_with(
        &self,
        images: &Bound<'_, PyAny>,
        resize: bool,
        on_error: OnError,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Rows> {
        let py = images.py();
        let session = self.session(py)?;
        let mut progress = Progress::new(progress);
        let run = if self.values || !resize {
            let outputs = self.run_array(images, |session, input| {
                session.run_with(input, RunOptions::new())
            })?;
            let count = outputs.len() as u64;
            // An array is a single run, which cannot be interrupted.
            let _ = progress.report(count, count);
            Ok(rows(&session, &outputs))
        } else {
            let sources = images::collect(images)?;
            py.detach(|| run(&session, sources, on_error, &mut progress))
        };
        progress.finish()?;
        run.map_err(|(error, index)| convert(py, &error, index))
    }

    /// Returns the text of each image.
    pub fn texts(
        &self,
        images: &Bound<'_, PyAny>,
        options: GenerateOptions,
        draft_model: Option<PathBuf>,
    ) -> PyResult<Vec<String>> {
        let py = images.py();
        let session = self.session(py)?;
        self.check_takes_images(py, "generate")?;
        let sources = images::collect(images)?;
        let texts = py.detach(|| self.generation.texts(&session, sources, &options, draft_model));
        texts.map_err(|(error, index)| convert(py, &error, index))
    }

    /// Estimates the depths of images of any size.
    pub fn depth(&self, images: &Bound<'_, PyAny>) -> PyResult<Vec<Array2<f32>>> {
        let py = images.py();
        let session = self.session(py)?;
        self.check_takes_images(py, "depth")?;
        let sources = images::collect(images)?;
        let depths = py.detach(|| {
            let estimator = self.depth_estimator(&session).map_err(|error| (error, None))?;
            let images = decode(sources)?;
            estimator.estimate(&images).map_err(|error| (error, None))
        });
        depths.map_err(|(error, index)| convert(py, &error, index))
    }

    fn check_takes_images(&self, py: Python<'_>, method: &str) -> PyResult<()> {
        if !self.values {
            return Ok(());
        }
        let message = format!("{method}() takes images. Load the model with input=\"images\"");
        Err(argument(py, message))
    }

    fn depth_estimator(&self, session: &Session) -> hipvit::Result<Arc<DepthEstimator>> {
        let mut depth = self.depth.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(estimator) = &*depth {
            return Ok(estimator.clone());
        }
        let estimator = Arc::new(DepthEstimator::of_session(session)?);
        *depth = Some(estimator.clone());
        Ok(estimator)
    }

    /// Takes the session out, and drops the decoder. Later calls of the model fail.
    pub fn take(&self) -> Option<Session> {
        self.generation.close();
        self.depth.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.session.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

fn rows(session: &Session, outputs: &LibraryOutputs) -> Rows {
    Rows::of(outputs, session.labels().clone(), session.scores())
}

/// Runs images. Decoded images run without the threads of a pipeline. An error has the position of its image.
fn run(
    session: &Session,
    sources: Vec<Source>,
    on_error: OnError,
    progress: &mut Progress,
) -> Result<Rows, (Error, Option<usize>)> {
    let whole_run = |error| (error, None);
    let count = sources.len();
    let decoded = |source: &Source| matches!(source, Source::Decoded(..));
    let few = count == 1 || sources.iter().all(decoded);
    if few && on_error == OnError::Raise {
        let outputs = match &sources[..] {
            [source] if !decoded(source) && session.resize() == ResizeOn::Device => {
                let image = source
                    .decode_for_device(DecodeOptions::default())
                    .map_err(|error| (error, Some(0)))?;
                session.run_with(RunInput::DeviceImages(vec![&image]), RunOptions::new())
            }
            _ => session.run(&decode(sources)?),
        };
        let outputs = outputs.map_err(whole_run)?;
        let _ = progress.report(count as u64, count as u64);
        return Ok(rows(session, &outputs));
    }
    let empty = session.run([] as [RgbImage; 0]).map_err(whole_run)?;
    let mut rows = Rows::missing(&empty, count, session.labels().clone(), session.scores());
    for (done, item) in Pipeline::new(session)
        .run(sources)
        .map_err(whole_run)?
        .enumerate()
    {
        match item {
            Ok(item) => rows.set(item.index(), item.outputs()),
            Err(error) => match (error.index(), on_error) {
                (Some(index), OnError::Skip) => {
                    rows.errors.insert(index, error.into());
                }
                (index, _) => return Err((error.into(), index)),
            },
        }
        if progress.report(done as u64 + 1, count as u64).is_break() {
            break;
        }
    }
    Ok(rows)
}

pub fn parse_on_error(py: Python<'_>, on_error: &str) -> PyResult<OnError> {
    match on_error {
        "raise" => Ok(OnError::Raise),
        "skip" => Ok(OnError::Skip),
        other => Err(argument(
            py,
            format!("on_error: {other} is not one of raise, skip"),
        )),
    }
}
