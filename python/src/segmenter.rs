//! `hipvit.Segmenter`: masks of objects at points and in boxes.

use std::path::PathBuf;

use hipvit::image::DecodeOptions;
use hipvit::ndarray::{Array2, Array4, s};
use hipvit::segment::{ImageEmbedding as LibraryEmbedding, Prompt, Segmenter as LibrarySegmenter};
use numpy::{IntoPyArray, PyArray2, PyArray4, ToPyArray};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arguments::config;
use crate::error::{argument, convert};
use crate::images;
use crate::process;

/// SAM. Any number of threads can call it at once. Calls release the GIL.
#[derive(Debug)]
#[pyclass(frozen, module = "hipvit")]
pub struct Segmenter(LibrarySegmenter);

/// An encoded image, for any number of prompts.
#[derive(Debug)]
#[pyclass(frozen, module = "hipvit")]
pub struct ImageEmbedding(LibraryEmbedding);

#[pymethods]
impl ImageEmbedding {
    /// Height and width of the image.
    #[getter]
    fn size(&self) -> (usize, usize) {
        self.0.size().into()
    }

    /// Returns the channels of each patch, `[patches, channels]`.
    fn values<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray2<f32>> {
        self.0.values().to_pyarray(py)
    }
}

type MasksAndScores<'py> = (Bound<'py, PyArray4<bool>>, Bound<'py, PyArray2<f32>>);

#[pymethods]
impl Segmenter {
    /// Loads SAM from a directory of transformers, or by its name on the hub, from the local cache.
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
        let (config, _) = config(py, device, dtype, batch, ("Segmenter", options))?;
        let loaded = py.detach(|| LibrarySegmenter::load(&model, &config.builder()));
        loaded.map(Self).map_err(|error| convert(py, &error, None))
    }

    /// Encodes an image of any size.
    fn encode(&self, image: &Bound<'_, PyAny>) -> PyResult<ImageEmbedding> {
        let py = image.py();
        process::check(py)?;
        let sources = images::collect(image)?;
        let [source] = <[_; 1]>::try_from(sources).map_err(|several| {
            let message = format!("image: {} were given, expected one image", several.len());
            argument(py, message)
        })?;
        let encoded = py.detach(|| self.0.encode(&source.decode(DecodeOptions::default())?));
        encoded
            .map(ImageEmbedding)
            .map_err(|error| convert(py, &error, None))
    }

    /// Returns the masks of each object, `[objects, masks, H, W]`, and their scores, `[objects, masks]`.
    #[pyo3(signature = (image, *, points = None, labels = None, boxes = None))]
    fn segment<'py>(
        &self,
        image: &Bound<'py, PyAny>,
        points: Option<Vec<[f32; 2]>>,
        labels: Option<Vec<i64>>,
        boxes: Option<Vec<[f32; 4]>>,
    ) -> PyResult<MasksAndScores<'py>> {
        let py = image.py();
        process::check(py)?;
        let points = points.unwrap_or_default();
        let labels = labels.unwrap_or_else(|| vec![1; points.len()]);
        let prompts = prompts(&points, &labels, &boxes.unwrap_or_default());
        let prompts = prompts.map_err(|message| argument(py, message))?;
        let encoded;
        let embedding = match image.cast::<ImageEmbedding>() {
            Ok(embedding) => embedding.get(),
            Err(_) => {
                encoded = self.encode(image)?;
                &encoded
            }
        };
        let masks = py.detach(|| {
            let found = self.0.segment(&embedding.0, &prompts)?;
            let ([height, width], count) = (embedding.0.size(), self.0.masks_per_prompt());
            let mut masks = Array4::from_elem((found.len(), count, height, width), false);
            let mut scores = Array2::zeros((found.len(), count));
            for (object, found) in found.iter().enumerate() {
                for (index, mask) in found.masks().into_iter().enumerate() {
                    masks.slice_mut(s![object, index, .., ..]).assign(&mask.pixels);
                    scores[[object, index]] = mask.score;
                }
            }
            Ok((masks, scores))
        });
        let (masks, scores) = masks.map_err(|error| convert(py, &error, None))?;
        Ok((masks.into_pyarray(py), scores.into_pyarray(py)))
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

/// Returns the prompt of each object, or what is wrong.
fn prompts(points: &[[f32; 2]], labels: &[i64], boxes: &[[f32; 4]]) -> Result<Vec<Prompt>, String> {
    if points.len() != labels.len() {
        return Err(format!(
            "labels: are {}, but there are {} points",
            labels.len(),
            points.len()
        ));
    }
    if let Some(label) = labels.iter().find(|label| !(0..=1).contains(*label)) {
        return Err(format!(
            "labels: {label} is neither 1 (of the object) nor 0 (not of it)"
        ));
    }
    let pointed = points.iter().zip(labels);
    let pointed = pointed.fold(Prompt::new(), |prompt, (&[x, y], &label)| {
        prompt.point(x, y, label == 1)
    });
    match boxes {
        [] => Ok(vec![pointed]),
        &[corners] => Ok(vec![pointed.within(corners)]),
        several if points.is_empty() => Ok(several
            .iter()
            .map(|&corners| Prompt::new().within(corners))
            .collect()),
        _ => Err("points: it is not known to which of several boxes they belong".to_owned()),
    }
}
