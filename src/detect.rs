//! Objects in images: [`Detector`] runs RT-DETR, and ONNX files of other detectors, and returns their boxes as transformers does.

use std::path::Path;

use ndarray::{ArrayView1, ArrayView2, Axis, Ix3};

use crate::error::{Error, Result};
use crate::image::{Preprocess, RgbImage};
use crate::labels::Labels;
use crate::model::{self, BOXES, BoxScoring, DetectSource, LOGITS};
use crate::outputs::Scores;
use crate::session::{Session, SessionBuilder};
use crate::tensors::{NamedTensors, TensorArray};

/// Detects objects in images.
///
/// ```
/// use hipvit::Session;
/// use hipvit::detect::Detector;
/// use hipvit::image::{Limits, open};
///
/// # fn main() -> hipvit::Result<()> {
/// let detector = Detector::load("tests/golden/detect/rt_detr/model.onnx", &Session::builder())?;
/// let image = open("tests/golden/images/small.png", Limits::default())?;
/// for object in &detector.detect(&[&image], 0.5)?[0] {
///     println!("{} {:.2} {:?}", object.name, object.score, object.corners);
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Detector {
    session: Session,
    source: DetectSource,
    labels: Labels,
}

/// An object in an image.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Detection {
    /// Index of the class.
    pub class: usize,
    /// Name of the class.
    pub name: String,
    /// Score of the class, from 0 to 1.
    pub score: f32,
    /// Corners of the box in pixels: left, top, right, bottom. A box may extend beyond the image.
    pub corners: [f32; 4],
}

impl Detector {
    /// Loads a detector. `path` is one of these:
    ///
    /// - A directory of transformers' RT-DETR or RT-DETRv2, or its name on the hub, such as `PekingU/rtdetr_r50vd`.
    /// - An `.onnx` file with the outputs `logits`, `[B, queries, classes]`, and `pred_boxes`, `[B, queries, 4]`. The boxes are centres, widths
    ///   and heights relative to the image. `config.json` and `preprocessor_config.json` of transformers must be in the same directory.
    ///
    /// # Errors
    ///
    /// - [`Error::Argument`] for an ONNX file whose type is not supported, that takes no images of one size, or without these outputs.
    /// - [`Error::Config`] for a directory of a model of another type, or whose configuration is not supported.
    /// - The errors of [`SessionBuilder::load`].
    pub fn load(path: impl AsRef<Path>, builder: &SessionBuilder) -> Result<Self> {
        let path = path.as_ref();
        let mut source = model::detect_source(path, builder.load_options())?;
        let session = match source.model.take() {
            Some(model) => builder.of_model(model)?,
            None => {
                let size = source.preprocess.output_size().into();
                builder.load_sized(path)(size, source.input.as_ref())?
            }
        };
        let classes = classes(&session)?;
        // The last class of a softmax is no object.
        let named = classes - usize::from(source.scoring == BoxScoring::Softmax);
        Ok(Self {
            labels: (source.labels)(named)?,
            session,
            source,
        })
    }

    /// Returns the session of the model.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Returns the rule that converts an image to the model's input.
    pub fn preprocess(&self) -> &Preprocess {
        &self.source.preprocess
    }

    /// Returns the names of the classes.
    pub fn labels(&self) -> &Labels {
        &self.labels
    }

    /// Returns the objects in each image whose score is above `threshold`, the best first, in the order of the images.
    ///
    /// Scores and boxes are those of `post_process_object_detection` of transformers.
    ///
    /// # Errors
    ///
    /// - [`Error::Argument`] for an image that preprocessing cannot resize, or a threshold that is not from 0 to 1.
    /// - [`Error::NonFinite`] for a [strict](SessionBuilder::strict) session.
    /// - A device error.
    pub fn detect<T: AsRef<RgbImage> + Sync>(
        &self,
        images: &[T],
        threshold: f32,
    ) -> Result<Vec<Vec<Detection>>> {
        if !(0.0..=1.0).contains(&threshold) {
            let reason = format!("{threshold} is not from 0 to 1");
            return Err(Error::argument("threshold", reason));
        }
        let (rule, input) = (&self.source.preprocess, &self.source.input);
        let mut all = Vec::with_capacity(images.len());
        for images in images.chunks(self.session.batch()) {
            let batch: Vec<&RgbImage> = images.iter().map(AsRef::as_ref).collect();
            let results = self.session.run_images(input.as_ref(), rule, &batch)?;
            let (logits, boxes) = (output(&results, LOGITS)?, output(&results, BOXES)?);
            if logits.dim().0 != images.len() || boxes.dim().0 != images.len() {
                let reason = format!(
                    "{} returns `{LOGITS}` and `{BOXES}` of {} and {} images for {}. Export it with an open batch size",
                    self.session.name(),
                    logits.dim().0,
                    boxes.dim().0,
                    images.len()
                );
                return Err(Error::argument("model", reason));
            }
            for (index, image) in batch.iter().enumerate() {
                let [logits, boxes] = [logits, boxes].map(|output| output.index_axis_move(Axis(0), index));
                let found = scored(self.source.scoring, logits);
                let kept = found.into_iter().filter(|object| object.score > threshold);
                let objects = kept.map(|object| Detection {
                    class: object.class,
                    name: self.labels.get(object.class).to_owned(),
                    score: object.score,
                    corners: corners(boxes.row(object.query).as_slice(), image),
                });
                all.push(objects.collect());
            }
        }
        Ok(all)
    }
}

/// Returns the number of classes of the logits, after a check of the outputs.
fn classes(session: &Session) -> Result<usize> {
    let outputs = session.tensor_outputs();
    let extents = |name: &str| {
        let output = outputs.iter().find(|output| output.name == name)?;
        let is_rows = output.element.is_float() && output.dims.len() == 3;
        is_rows
            .then(|| Some([output.extent(1)?, output.extent(2)?]))
            .flatten()
    };
    match (extents(LOGITS), extents(BOXES)) {
        (Some([queries, classes]), Some([boxes, 4])) if queries == boxes && classes > 0 => Ok(classes),
        _ => {
            let all: Vec<String> = outputs.iter().map(ToString::to_string).collect();
            let reason = format!(
                "{} has no outputs `{LOGITS}` [B, queries, classes] and `{BOXES}` [B, queries, 4]: its outputs are {}",
                session.name(),
                all.join("; ")
            );
            Err(Error::argument("model", reason))
        }
    }
}

fn output<'a>(results: &'a NamedTensors, name: &str) -> Result<ndarray::ArrayView3<'a, f32>> {
    let Some(TensorArray::F32(output)) = results.get(name) else {
        return Err(Error::internal("output", format!("{name} is missing")));
    };
    let output = output.view().into_dimensionality::<Ix3>();
    output.map_err(|e| Error::internal("output", e))
}

/// A class of a query.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Scored {
    query: usize,
    class: usize,
    score: f32,
}

/// Returns the pairs of query and class that are considered, in descending order of their scores. `logits` are `[queries, classes]`.
fn scored(scoring: BoxScoring, logits: ArrayView2<'_, f32>) -> Vec<Scored> {
    let queries = logits.outer_iter().enumerate();
    let mut all: Vec<Scored> = match scoring {
        BoxScoring::Sigmoid { .. } => {
            let pairs = queries.flat_map(|(query, logits)| {
                let scores = Scores::Sigmoid.probabilities(logits).into_iter();
                scores
                    .enumerate()
                    .map(move |(class, score)| Scored { query, class, score })
            });
            pairs.collect()
        }
        BoxScoring::Softmax => queries
            .filter_map(|(query, logits)| best(query, logits))
            .collect(),
    };
    all.sort_by(|a, b| b.score.total_cmp(&a.score));
    if let BoxScoring::Sigmoid { most } = scoring {
        all.truncate(most.unwrap_or(logits.nrows()));
    }
    all
}

/// Returns the best class of a query by a softmax, whose last class is no object. Among equals, the lower index is returned.
fn best(query: usize, logits: ArrayView1<'_, f32>) -> Option<Scored> {
    let mut scores = Scores::Softmax.probabilities(logits);
    scores.pop();
    let scores = scores.into_iter().enumerate();
    let (class, score) = scores.reduce(|best, next| if next.1 > best.1 { next } else { best })?;
    Some(Scored { query, class, score })
}

/// Converts a centre, width and height relative to an image to corners in its pixels.
fn corners(relative: Option<&[f32]>, image: &RgbImage) -> [f32; 4] {
    let Some(&[x, y, width, height]) = relative else {
        return [f32::NAN; 4];
    };
    let (image_width, image_height) = (image.width as f32, image.height as f32);
    [
        (x - 0.5 * width) * image_width,
        (y - 0.5 * height) * image_height,
        (x + 0.5 * width) * image_width,
        (y + 0.5 * height) * image_height,
    ]
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::*;

    #[test]
    fn sigmoids_take_as_many_pairs_as_queries() {
        let logits = array![[2.0, 1.5, -9.0], [-3.0, f32::NEG_INFINITY, 0.0]];
        let found = scored(BoxScoring::Sigmoid { most: None }, logits.view());
        let pairs: Vec<_> = found.iter().map(|object| (object.query, object.class)).collect();
        assert_eq!(pairs, [(0, 0), (0, 1)]);
        assert!((found[0].score - 0.880_797).abs() < 1e-6);
        let more = scored(BoxScoring::Sigmoid { most: Some(100) }, logits.view());
        assert_eq!(more.len(), 6);
        assert_eq!(more[5].score, 0.0);
    }

    #[test]
    fn a_softmax_leaves_out_the_class_for_no_object() {
        let logits = array![[0.0, 1.0, 5.0], [3.0, 3.0, 0.0]];
        let found = scored(BoxScoring::Softmax, logits.view());
        let pairs: Vec<_> = found.iter().map(|object| (object.query, object.class)).collect();
        assert_eq!(pairs, [(1, 0), (0, 1)]);
        let expected = 1f64.exp() / (1.0 + 1f64.exp() + 5f64.exp());
        assert!((f64::from(found[1].score) - expected).abs() < 1e-7);
        assert_eq!(best(0, array![1.0].view()), None);
    }

    #[test]
    fn boxes_are_scaled_to_the_image() {
        let image = RgbImage::new(200, 100, vec![0; 60_000]).unwrap();
        assert_eq!(
            corners(Some(&[0.5, 0.5, 1.0, 0.5]), &image),
            [0.0, 25.0, 200.0, 75.0]
        );
        assert_eq!(
            corners(Some(&[0.0, 1.0, 0.5, 0.5]), &image),
            [-50.0, 75.0, 50.0, 125.0]
        );
    }
}
