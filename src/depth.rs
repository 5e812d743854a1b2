//! Depth of images: [`DepthEstimator`] runs models of transformers (Depth Anything, DPT) and ONNX files with one output of depths.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use ndarray::{Array2, ArrayView3, Axis, Ix3};
use parking_lot::Mutex;
use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::image::{Preprocess, RgbImage};
use crate::model::{self, Checkpoint, DepthSource, LoadOptions, PixelInput, TensorValues};
use crate::session::{LoadSized, Session, SessionBuilder};
use crate::tensors::{TensorArray, TensorInfo};

/// Maximum number of sessions for images of different sizes. Each has its own copy of the weights on its device.
const MAX_SESSIONS: usize = 4;

/// Estimates the depth of each pixel of an image.
///
/// Images are prepared as transformers' processor does. If it keeps their aspect ratio, the model's size differs from image to image. The
/// model is then loaded for each size, and kept for the latest four.
///
/// ```
/// use hipvit::Session;
/// use hipvit::depth::DepthEstimator;
/// use hipvit::image::{Limits, open};
///
/// # fn main() -> hipvit::Result<()> {
/// let estimator = DepthEstimator::load("tests/golden/depth/depth_anything", &Session::builder())?;
/// let image = open("tests/golden/images/small.png", Limits::default())?;
/// let depths = estimator.estimate(&[&image])?;
/// assert_eq!(depths[0].dim(), (image.height, image.width));
/// # Ok(()) }
/// ```
pub struct DepthEstimator {
    load: Arc<LoadSized>,
    source: DepthSource,
    /// The sessions for the latest sizes, the most recent last.
    sessions: Mutex<Vec<([usize; 2], Session)>>,
}

impl DepthEstimator {
    /// Reads how images are prepared for the model at `path`, a directory, an `.onnx` file or a name on the hub. The weights are loaded with
    /// the first image.
    ///
    /// # Errors
    ///
    /// - [`Error::Config`] for a model that estimates no depth, or whose configuration is not supported.
    /// - [`Error::Argument`] for an ONNX model that takes no images, which says why, or whose images would be cropped.
    /// - The errors of [`SessionBuilder::load`] about files.
    pub fn load(path: impl AsRef<Path>, builder: &SessionBuilder) -> Result<Self> {
        let path = path.as_ref();
        Self::of(path, builder.load_options(), builder.load_sized(path))
    }

    /// Returns an estimator of a checkpoint's model.
    ///
    /// # Errors
    ///
    /// The errors of [`load`](Self::load).
    pub fn of_checkpoint(checkpoint: Checkpoint, builder: &SessionBuilder) -> Result<Self> {
        let values = TensorValues::new();
        let preprocess = checkpoint.model_with(&values, builder.load_options())?.preprocess;
        let source = DepthSource {
            preprocess,
            input: None,
        };
        let (place, builder) = (checkpoint.place().to_owned(), builder.clone());
        let load = move |size: [usize; 2], _: Option<&PixelInput>| {
            let builder = builder.clone().image_size(size);
            builder.of_model(checkpoint.model_with(&values, builder.load_options())?)
        };
        Self::with_source(&place, source, Arc::new(load))
    }

    fn of(path: &Path, options: &LoadOptions, load: Arc<LoadSized>) -> Result<Self> {
        Self::with_source(path, model::depth_source(path, options)?, load)
    }

    fn with_source(path: &Path, source: DepthSource, load: Arc<LoadSized>) -> Result<Self> {
        if source.preprocess.crop().is_some() {
            let reason = format!(
                "{} ({}) crops images, whose depths would be those of a part. Use a processor without a crop",
                path.display(),
                source.preprocess
            );
            return Err(Error::argument("preprocessing", reason));
        }
        Ok(Self {
            load,
            source,
            sessions: Mutex::default(),
        })
    }

    /// Returns an estimator with the model and the options of a session.
    ///
    /// # Errors
    ///
    /// The errors of [`load`](Self::load), and [`Error::Argument`] for a session whose model was not loaded from a path.
    pub fn of_session(session: &Session) -> Result<Self> {
        let Some((path, options, load)) = session.reloading() else {
            let reason =
                "was not loaded from a path: load it from its files to estimate depths of images of any size";
            return Err(Error::argument("session", reason));
        };
        let estimator = Self::of(path, options, load.clone())?;
        if session.info().depth_map.is_some() {
            let size = session.info().image_size;
            estimator.sessions.lock().push((size, session.clone()));
        }
        Ok(estimator)
    }

    /// Returns the rule that converts an image to the model's input. Its size may [depend on the image](Preprocess::for_image).
    pub fn preprocess(&self) -> &Preprocess {
        &self.source.preprocess
    }

    /// Returns the session for images of the same size as `image`. Loads it if none of the latest four is.
    ///
    /// # Errors
    ///
    /// - [`Error::Argument`] for an image that preprocessing cannot resize.
    /// - The errors of [`SessionBuilder::load`].
    pub fn session(&self, image: &RgbImage) -> Result<Session> {
        let (height, width) = self.rule(image)?.output_size();
        self.session_for([height, width])
    }

    /// Returns the depths of each pixel of each image, `[height, width]`, in the order of the images.
    ///
    /// Depths of a metric model are in metres. A relative model gives larger values to nearer points, up to scale and shift. The model's
    /// depths are interpolated to the image's size like `post_process_depth_estimation` of transformers does, by cubic convolution.
    ///
    /// # Errors
    ///
    /// - The errors of [`session`](Self::session).
    /// - [`Error::Argument`] for an ONNX model without a single output of depths.
    /// - [`Error::NonFinite`] for a [strict](SessionBuilder::strict) session.
    /// - A device error.
    pub fn estimate<T: AsRef<RgbImage> + Sync>(&self, images: &[T]) -> Result<Vec<Array2<f32>>> {
        let depths = self.predict(images)?;
        let resized = images.par_iter().zip(depths).map(|(image, depth)| {
            let image = image.as_ref();
            resize(&depth, [image.height, image.width])
        });
        resized.collect()
    }

    /// Returns the depths that the model predicts for each image, of the model's size.
    ///
    /// # Errors
    ///
    /// The errors of [`estimate`](Self::estimate).
    pub fn predict<T: AsRef<RgbImage> + Sync>(&self, images: &[T]) -> Result<Vec<Array2<f32>>> {
        let mut by_size: BTreeMap<(usize, usize), (Preprocess, Vec<usize>)> = BTreeMap::new();
        for (index, image) in images.iter().enumerate() {
            let rule = self.rule(image.as_ref())?;
            let group = by_size.entry(rule.output_size());
            group.or_insert_with(|| (rule, Vec::new())).1.push(index);
        }
        let mut depths = vec![Array2::zeros((0, 0)); images.len()];
        for ((height, width), (rule, indices)) in by_size {
            let session = self.session_for([height, width])?;
            for part in indices.chunks(session.batch()) {
                let batch: Vec<&RgbImage> = part.iter().map(|&index| images[index].as_ref()).collect();
                let maps = self.run(&session, &rule, &batch)?;
                for (&index, map) in part.iter().zip(maps) {
                    depths[index] = map;
                }
            }
        }
        Ok(depths)
    }

    fn rule(&self, image: &RgbImage) -> Result<Preprocess> {
        Ok(self.source.preprocess.for_image(image.height, image.width)?)
    }

    fn session_for(&self, [height, width]: [usize; 2]) -> Result<Session> {
        let size = [height, width];
        let mut sessions = self.sessions.lock();
        let known = sessions.iter().position(|(known, _)| *known == size);
        let session = match known {
            Some(index) => sessions.remove(index).1,
            None => {
                // Free the memory of the oldest before the new one needs it.
                let excess = (sessions.len() + 1).saturating_sub(MAX_SESSIONS);
                sessions.drain(..excess);
                (self.load)(size, self.source.input.as_ref())?
            }
        };
        sessions.push((size, session.clone()));
        Ok(session)
    }

    /// Runs the model on images of one size, which fit a batch.
    fn run(&self, session: &Session, rule: &Preprocess, images: &[&RgbImage]) -> Result<Vec<Array2<f32>>> {
        let outputs = session.tensor_outputs();
        let output = depth_output(session.name(), &outputs)?;
        let results = session.run_images(self.source.input.as_ref(), rule, images)?;
        let Some(TensorArray::F32(depths)) = results.get(&output.name) else {
            return Err(Error::internal("depths", "are missing"));
        };
        let mut depths = depths.view();
        if depths.ndim() == 4 {
            depths = depths.index_axis_move(Axis(1), 0);
        }
        let depths: ArrayView3<'_, f32> = depths
            .into_dimensionality::<Ix3>()
            .map_err(|e| Error::internal("depths", e))?;
        if depths.dim().0 != images.len() {
            let reason = format!(
                "{} returns depths of {} images for {}. Export it with an open batch size",
                session.name(),
                depths.dim().0,
                images.len()
            );
            return Err(Error::argument("model", reason));
        }
        Ok(depths.outer_iter().map(|map| map.to_owned()).collect())
    }
}

/// Interpolates depths to a height and a width, as [`DepthEstimator::estimate`] does for those of [`DepthEstimator::predict`].
///
/// # Errors
///
/// None for sides above 0.
pub fn resize(depth: &Array2<f32>, size: [usize; 2]) -> Result<Array2<f32>> {
    let (height, width) = depth.dim();
    let values: Vec<f32> = depth.iter().copied().collect();
    let values = model::resample_cubic(&values, [height, width], size);
    Array2::from_shape_vec(size, values).map_err(|e| Error::internal("depths", e))
}

impl fmt::Debug for DepthEstimator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DepthEstimator")
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

/// Finds the output of depths, `[B, h, w]` or `[B, 1, h, w]`: the only one of this form, or the only one of these with `depth` in its name.
fn depth_output<'a>(model: &str, outputs: &'a [TensorInfo]) -> Result<&'a TensorInfo> {
    let is_map = |output: &&TensorInfo| {
        let axes = output.dims.len();
        output.element.is_float() && (axes == 3 || axes == 4 && output.extent(1) == Some(1))
    };
    let maps: Vec<&TensorInfo> = outputs.iter().filter(is_map).collect();
    let mut named = maps
        .iter()
        .filter(|map| map.name.to_lowercase().contains("depth"));
    match (maps.as_slice(), named.next(), named.next()) {
        ([only], ..) => Ok(only),
        (_, Some(only), None) => Ok(only),
        _ => {
            let all: Vec<String> = outputs.iter().map(ToString::to_string).collect();
            let reason = format!(
                "{model} has no single output of depths, [B, h, w] or [B, 1, h, w]: its outputs are {}",
                all.join("; ")
            );
            Err(Error::argument("model", reason))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensors::{Dim, ElementType};

    fn output(name: &str, dims: &[usize]) -> TensorInfo {
        let dims = dims.iter().enumerate().map(|(axis, &extent)| match axis {
            0 => Dim::Batch(extent),
            _ => Dim::Fixed(extent),
        });
        TensorInfo::new(name, ElementType::F32, dims.collect::<Vec<_>>())
    }

    #[test]
    fn the_output_of_depths_is_found_by_form_and_name() {
        let found = |outputs: &[TensorInfo]| {
            let found = depth_output("model", outputs).map(|output| output.name.clone());
            found.map_err(|error| error.to_string())
        };
        let (logits, map) = (output("logits", &[1, 9]), output("x", &[1, 1, 4, 5]));
        assert_eq!(found(&[logits.clone(), map.clone()]).unwrap(), "x");
        let depth = output("Depth_map", &[1, 4, 5]);
        assert_eq!(found(&[map.clone(), depth.clone()]).unwrap(), "Depth_map");
        let colours = output("depth_rgb", &[1, 3, 4, 5]);
        assert!(found(std::slice::from_ref(&colours)).is_err());
        let error = found(&[map.clone(), output("y", &[1, 4, 5])]).unwrap_err();
        assert!(error.contains("x: f32 [B, 1, 4, 5]; y: f32 [B, 4, 5]"), "{error}");
        assert!(found(&[depth.clone(), output("inverse_depth", &[1, 4, 5])]).is_err());
    }
}
