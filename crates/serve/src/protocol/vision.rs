//! Inputs and outputs of models that find objects, masks or depths.

use hipvit::depth;
use hipvit::detect::Detection;
use hipvit::ndarray::ArrayD;
use hipvit::segment::Segmentation;
use hipvit::tensors::TensorArray;

use super::named::array;
use super::parameters::Parameters;
use super::selection::select;
use super::tensor_error::TensorError;
use super::tensors::{IMAGE, Images, Inputs, PIXELS};
use super::{Datatype, InputTensor, OutputData, OutputTensor, RequestedOutput, TensorMetadata};
use crate::failure::Failure;
use crate::scheduler::{ObjectPrompt, VisionQuery, VisionResult};

const POINTS: &str = "input_points";
const LABELS: &str = "input_labels";
const BOXES: &str = "input_boxes";

/// Score that objects exceed, if a request does not say another one.
const THRESHOLD: f32 = 0.5;

/// Maximum number of objects to segment in an image, and of points of an object.
const MAX_PROMPTS: usize = 64;

/// Bytes that an answer is charged for the label of an object.
const LABEL_BYTES: usize = 128;

/// Bytes that an answer is charged for a pixel of a mask. JSON has a word for it.
const BOOL_BYTES: usize = 2;

/// A model that finds objects, masks or depths.
#[derive(Clone, Debug)]
pub(crate) enum VisionProtocol {
    Detector,
    Segmenter {
        /// Number of masks of each prompt.
        masks: usize,
        /// Number of logits of a mask.
        logits: usize,
    },
    Depth,
}

/// What a request asks for.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) images: Images,
    /// A query for each image.
    pub(crate) queries: Vec<VisionQuery>,
}

/// A tensor with its data type and shape.
type Tensor = (&'static str, Datatype, &'static [i64]);

impl VisionProtocol {
    /// Returns the inputs beside the images.
    fn prompts(&self) -> &'static [Tensor] {
        match self {
            Self::Segmenter { .. } => &[
                (POINTS, Datatype::Fp32, &[-1, -1, -1, 2]),
                (LABELS, Datatype::Int32, &[-1, -1, -1]),
                (BOXES, Datatype::Fp32, &[-1, -1, 4]),
            ],
            Self::Detector | Self::Depth => &[],
        }
    }

    fn outputs(&self) -> &'static [Tensor] {
        match self {
            Self::Detector => &[
                ("boxes", Datatype::Fp32, &[-1, -1, 4]),
                ("scores", Datatype::Fp32, &[-1, -1]),
                ("labels", Datatype::Bytes, &[-1, -1]),
                ("classes", Datatype::Int32, &[-1, -1]),
                ("counts", Datatype::Int32, &[-1]),
            ],
            Self::Segmenter { .. } => &[
                ("masks", Datatype::Bool, &[-1, -1, -1, -1, -1]),
                ("iou_scores", Datatype::Fp32, &[-1, -1, -1]),
            ],
            Self::Depth => &[
                ("predicted_depth", Datatype::Fp32, &[-1, -1, -1]),
                ("depth", Datatype::Fp32, &[-1, -1, -1]),
            ],
        }
    }

    pub(crate) fn input_metadata(&self, images: &Inputs) -> Vec<TensorMetadata> {
        let mut all = images.metadata();
        all.extend(self.prompts().iter().map(metadata));
        all
    }

    pub(crate) fn output_metadata(&self) -> Vec<TensorMetadata> {
        self.outputs().iter().map(metadata).collect()
    }

    /// Returns the names of the requested outputs, or of all.
    pub(crate) fn select(&self, requested: &[RequestedOutput]) -> Result<Vec<&'static str>, Failure> {
        let names: Vec<&str> = self.outputs().iter().map(|(name, ..)| *name).collect();
        select(requested, &names, "the model")
    }

    /// Reads the images of a request, and what is asked of each.
    pub(crate) fn read(
        &self,
        inputs: Vec<InputTensor>,
        of_images: &Inputs,
        parameters: &Parameters,
    ) -> Result<Asked, Failure> {
        let is_prompt = |name: &str| self.prompts().iter().any(|(prompt, ..)| *prompt == name);
        if let Some(unknown) = inputs
            .iter()
            .find(|input| !is_prompt(&input.name) && ![IMAGE, PIXELS].contains(&input.name.as_str()))
        {
            let names = self.input_metadata(of_images);
            let names: Vec<String> = names.iter().map(|tensor| format!("`{}`", tensor.name)).collect();
            let reason = format!("the model has no such input; it has {}", names.join(", "));
            return Err(Failure::input(&unknown.name, reason));
        }
        let (prompts, images): (Vec<_>, Vec<_>) =
            inputs.into_iter().partition(|input| is_prompt(&input.name));
        let no_images = || Failure::invalid(format!("the request has no image. Send one as `{IMAGE}`"));
        if images.is_empty() {
            return Err(no_images());
        }
        let images = of_images.read(images)?.images.ok_or_else(no_images)?;
        let count = images.contents.len();
        let threshold = parameters.number("threshold")?;
        let queries = match self {
            Self::Detector => {
                let threshold = threshold.map_or(THRESHOLD, |threshold| threshold as f32);
                if !(0.0..=1.0).contains(&threshold) {
                    let reason = format!("parameter `threshold`: {threshold} is not from 0 to 1");
                    return Err(Failure::invalid(reason));
                }
                vec![VisionQuery::Objects(threshold); count]
            }
            Self::Segmenter { .. } => {
                let prompts = read_prompts(prompts, count)?.into_iter();
                prompts
                    .map(|prompts| VisionQuery::Masks(prompts.into()))
                    .collect()
            }
            Self::Depth => vec![VisionQuery::Depth; count],
        };
        let is_detector = matches!(self, Self::Detector);
        let is_segmenter = matches!(self, Self::Segmenter { .. });
        for (name, applies) in [("threshold", is_detector), ("best_mask", is_segmenter)] {
            if !applies {
                parameters.only_for(&[name], "models of another task")?;
            }
        }
        parameters.boolean("best_mask")?;
        Ok(Asked { images, queries })
    }

    /// Returns the bytes of the results of queries, but for those that depend on the sizes of the images.
    pub(crate) fn results_size(&self, queries: &[VisionQuery]) -> usize {
        let Self::Segmenter { masks, logits } = self else {
            return 0;
        };
        let prompts = queries.iter().map(|query| match query {
            VisionQuery::Masks(prompts) => prompts.len(),
            VisionQuery::Objects(_) | VisionQuery::Depth => 0,
        });
        let all: usize = prompts.sum();
        all.saturating_mul(masks.saturating_mul(*logits).saturating_mul(size_of::<f32>()))
    }
}

fn metadata(&(name, datatype, shape): &Tensor) -> TensorMetadata {
    TensorMetadata {
        name: name.into(),
        datatype,
        shape: shape.to_vec(),
    }
}

/// Reads the prompts of each of `images` images.
fn read_prompts(inputs: Vec<InputTensor>, images: usize) -> Result<Vec<Vec<ObjectPrompt>>, Failure> {
    let (mut points, mut labels, mut boxes) = (None, None, None);
    for input in inputs {
        input.parameters.check_tensor()?;
        let name = input.name.clone();
        let failed = |reason: TensorError| Failure::input(&name, reason);
        let of_images = |extents: &[usize]| {
            if extents.first() == Some(&images) {
                return Ok(());
            }
            let shape = format!("{extents:?}");
            Err(format!("shape {shape} is of another number of images; the request has {images}").into())
        };
        let again = || Failure::input(&name, "is named more than once. Send all objects in one tensor");
        match name.as_str() {
            POINTS => {
                let found = floats(input, "[images, objects, points, 2]", 4, 2).map_err(failed)?;
                of_images(found.shape()).map_err(failed)?;
                points.replace(found).map_or(Ok(()), |_| Err(again()))?;
            }
            BOXES => {
                let found = floats(input, "[images, objects, 4]", 3, 4).map_err(failed)?;
                of_images(found.shape()).map_err(failed)?;
                boxes.replace(found).map_or(Ok(()), |_| Err(again()))?;
            }
            _ => {
                let found = labels_of(input).map_err(failed)?;
                labels.replace(found).map_or(Ok(()), |_| Err(again()))?;
            }
        }
    }
    prompts_of(points.as_ref(), labels.as_ref(), boxes.as_ref(), images)
}

/// Converts points, their labels and boxes to the prompts of each image.
fn prompts_of(
    points: Option<&ArrayD<f32>>,
    labels: Option<&ArrayD<bool>>,
    boxes: Option<&ArrayD<f32>>,
    images: usize,
) -> Result<Vec<Vec<ObjectPrompt>>, Failure> {
    let objects = |array: &ArrayD<f32>| array.shape()[1];
    let count = match (points, boxes) {
        (Some(points), Some(boxes)) if objects(points) != objects(boxes) => {
            let (of_points, of_boxes) = (objects(points), objects(boxes));
            let reason = format!(
                "has boxes of {of_boxes} objects, but `{POINTS}` has points of {of_points}. Send both for each object"
            );
            return Err(Failure::input(BOXES, reason));
        }
        (Some(prompts), _) | (None, Some(prompts)) => objects(prompts),
        (None, None) => {
            let reason = format!(
                "the request says no object to segment. Send points as `{POINTS}`, or boxes as `{BOXES}`"
            );
            return Err(Failure::invalid(reason));
        }
    };
    let of_point = points.map_or(0, |points| points.shape()[2]);
    match (labels, points) {
        (Some(labels), Some(points)) if labels.shape() != &points.shape()[..3] => {
            let (found, expected) = (labels.shape(), &points.shape()[..3]);
            let reason = format!(
                "shape {found:?} is not {expected:?}, as `{POINTS}` needs it. Send a label for each point"
            );
            return Err(Failure::input(LABELS, reason));
        }
        (Some(_), None) => {
            let reason = format!("the request has no `{POINTS}`. Leave the labels out, or send the points");
            return Err(Failure::input(LABELS, reason));
        }
        _ => {}
    }
    let input = if points.is_some() { POINTS } else { BOXES };
    if count > MAX_PROMPTS || of_point > MAX_PROMPTS {
        let reason = format!(
            "has {count} objects of {of_point} points; the maximum is {MAX_PROMPTS} of each. Send several requests"
        );
        return Err(Failure::input(input, reason));
    }
    if count == 0 || points.is_some() && of_point == 0 && boxes.is_none() {
        return Err(Failure::input(
            input,
            "has no object. Send at least one point or box",
        ));
    }
    let prompt = |image: usize, object: usize| ObjectPrompt {
        points: (0..of_point)
            .filter_map(|point| {
                let coordinate = |axis: usize| points?.get([image, object, point, axis].as_slice()).copied();
                let label = labels.and_then(|labels| labels.get([image, object, point].as_slice()));
                Some((coordinate(0)?, coordinate(1)?, label.copied().unwrap_or(true)))
            })
            .collect(),
        corners: boxes.and_then(|boxes| {
            let edge = |edge: usize| boxes.get([image, object, edge].as_slice()).copied();
            Some([edge(0)?, edge(1)?, edge(2)?, edge(3)?])
        }),
    };
    let of_image = |image| (0..count).map(|object| prompt(image, object)).collect();
    Ok((0..images).map(of_image).collect())
}

/// Converts a tensor of numbers of `rank` dimensions, of which the last has `last` elements. `expected` shows them in an error.
fn floats(input: InputTensor, expected: &str, rank: usize, last: usize) -> Result<ArrayD<f32>, TensorError> {
    let found = match array(input)? {
        TensorArray::F32(array) => array,
        TensorArray::I32(array) => array.mapv(|x| x as f32),
        TensorArray::I64(array) => array.mapv(|x| x as f32),
        TensorArray::U8(array) => array.mapv(f32::from),
        TensorArray::Bool(_) => return Err("is BOOL, expected FP32".into()),
    };
    let shape = found.shape();
    if shape.len() != rank || shape.last() != Some(&last) {
        return Err(format!("shape {shape:?} is not {expected}").into());
    }
    Ok(found)
}

/// Converts labels of points: 1 for a point of the object, and 0 for another one.
fn labels_of(input: InputTensor) -> Result<ArrayD<bool>, TensorError> {
    let numbers = match array(input)? {
        TensorArray::I32(array) => array.mapv(i64::from),
        TensorArray::I64(array) => array,
        TensorArray::U8(array) => array.mapv(i64::from),
        TensorArray::Bool(array) => return Ok(array),
        TensorArray::F32(_) => return Err("has floating-point numbers, expected INT32".into()),
    };
    if let Some(label) = numbers.iter().find(|label| ![0, 1].contains(*label)) {
        let reason =
            format!("has the label {label}. Send 1 for a point of the object, and 0 for another one");
        return Err(reason.into());
    }
    Ok(numbers.mapv(|label| label == 1))
}

/// What a model found in the images of a request, and the outputs that a client gets.
pub(crate) struct Found<'a> {
    selected: &'a [&'static str],
    results: Vec<&'a VisionResult>,
    /// True if only the mask with the highest score of each prompt is returned.
    best_mask: bool,
}

impl<'a> Found<'a> {
    /// Checks that the results fit into tensors.
    ///
    /// # Errors
    ///
    /// [`Failure`] for outputs of the images' size, if the images differ in it.
    pub(crate) fn new(
        selected: &'a [&'static str],
        results: Vec<&'a VisionResult>,
        parameters: &Parameters,
    ) -> Result<Self, Failure> {
        let found = Self {
            selected,
            results,
            best_mask: parameters.boolean("best_mask")?.unwrap_or(false),
        };
        for &name in selected {
            let mut extents = found.results.iter().map(|result| extents(result, name));
            let first = extents.next().flatten();
            if let Some((index, Some([height, width]))) =
                (1..).zip(extents).find(|(_, other)| *other != first)
            {
                let [first_height, first_width] = first.unwrap_or_default();
                let reason = format!(
                    "image 0 has {first_width}×{first_height} values and image {index} has {width}×{height}. Send images of different sizes in separate requests"
                );
                return Err(Failure::output(name, reason));
            }
        }
        Ok(found)
    }

    /// Returns the number of masks of a prompt in the answer.
    fn masks(&self) -> usize {
        let masks = self.segmentations().map(|prompt| prompt.scores().len()).max();
        masks
            .unwrap_or(0)
            .min(if self.best_mask { 1 } else { usize::MAX })
    }

    fn segmentations(&self) -> impl Iterator<Item = &'a Segmentation> {
        self.results.iter().flat_map(|result| match result {
            VisionResult::Masks { prompts, .. } => prompts.as_slice(),
            VisionResult::Objects(_) | VisionResult::Depth { .. } => &[],
        })
    }

    /// Returns the largest number of objects of an image.
    fn most_objects(&self) -> usize {
        self.results
            .iter()
            .map(|result| objects(result).len())
            .max()
            .unwrap_or(0)
    }

    /// Returns the shape of an output.
    fn shape(&self, name: &str) -> Vec<usize> {
        let images = self.results.len();
        let [height, width] = self
            .results
            .first()
            .and_then(|result| extents(result, name))
            .unwrap_or_default();
        let prompts = self.segmentations().count() / images.max(1);
        match name {
            "boxes" => vec![images, self.most_objects(), 4],
            "counts" => vec![images],
            "masks" => vec![images, prompts, self.masks(), height, width],
            "iou_scores" => vec![images, prompts, self.masks()],
            "predicted_depth" | "depth" => vec![images, height, width],
            _ => vec![images, self.most_objects()],
        }
    }

    /// Returns the bytes of the outputs.
    pub(crate) fn size(&self) -> usize {
        let bytes = |name: &&'static str| {
            let each = match *name {
                "masks" => BOOL_BYTES,
                "labels" => LABEL_BYTES,
                _ => size_of::<f32>(),
            };
            let elements = self.shape(name).into_iter().fold(1, usize::saturating_mul);
            elements.saturating_mul(each)
        };
        self.selected.iter().map(bytes).fold(0, usize::saturating_add)
    }

    /// Writes the selected outputs.
    ///
    /// # Errors
    ///
    /// [`Failure`] if a result cannot be interpolated to the size of its image.
    pub(crate) fn write(&self) -> Result<Vec<OutputTensor>, Failure> {
        let write = |&name: &&'static str| {
            Ok(OutputTensor {
                name: name.into(),
                shape: self.shape(name),
                data: self.data(name)?,
            })
        };
        self.selected.iter().map(write).collect()
    }

    fn data(&self, name: &str) -> Result<OutputData, Failure> {
        Ok(match name {
            "boxes" => OutputData::Fp32(self.of_objects(|object| object.corners, [0.0; 4]).concat()),
            "scores" => OutputData::Fp32(self.of_objects(|object| object.score, 0.0)),
            "labels" => OutputData::Bytes(self.of_objects(|object| object.name.clone(), String::new())),
            "classes" => OutputData::Int32(self.of_objects(|object| object.class as i32, -1)),
            "counts" => {
                let counts = self.results.iter().map(|result| objects(result).len() as i32);
                OutputData::Int32(counts.collect())
            }
            "masks" => OutputData::Bool(self.of_masks(|prompt, index| {
                let logits = prompt
                    .logits_of(index)
                    .map_err(|error| Failure::of_model(&error))?;
                Ok(logits.into_iter().map(|logit| logit > 0.0).collect())
            })?),
            "iou_scores" => {
                OutputData::Fp32(self.of_masks(|prompt, index| Ok(vec![prompt.scores()[index]]))?)
            }
            _ => {
                let mut values = Vec::new();
                for result in &self.results {
                    let VisionResult::Depth { predicted, size } = result else {
                        continue;
                    };
                    if name == "depth" {
                        let resized = depth::resize(predicted, *size);
                        values.extend(resized.map_err(|error| Failure::of_model(&error))?);
                    } else {
                        values.extend(predicted);
                    }
                }
                OutputData::Fp32(values)
            }
        })
    }

    /// Returns a property of each object. Images with fewer objects than others are filled up with `none`.
    fn of_objects<T: Clone>(&self, property: impl Fn(&Detection) -> T, none: T) -> Vec<T> {
        let most = self.most_objects();
        let mut all = Vec::with_capacity(self.results.len() * most);
        for result in &self.results {
            all.extend(objects(result).iter().map(&property));
            all.resize(all.len().next_multiple_of(most.max(1)), none.clone());
        }
        all
    }

    /// Returns what `values` gives for the masks of each prompt: for all, or for the one with the highest score.
    fn of_masks<T>(
        &self,
        values: impl Fn(&Segmentation, usize) -> Result<Vec<T>, Failure>,
    ) -> Result<Vec<T>, Failure> {
        let mut all = Vec::new();
        for prompt in self.segmentations() {
            let masks = if self.best_mask {
                prompt.best_index()..prompt.best_index() + 1
            } else {
                0..prompt.scores().len()
            };
            for index in masks {
                all.extend(values(prompt, index)?);
            }
        }
        Ok(all)
    }
}

fn objects(result: &VisionResult) -> &[Detection] {
    match result {
        VisionResult::Objects(objects) => objects,
        VisionResult::Masks { .. } | VisionResult::Depth { .. } => &[],
    }
}

/// Returns height and width of an output with a value for each pixel.
fn extents(result: &VisionResult, name: &str) -> Option<[usize; 2]> {
    match (result, name) {
        (VisionResult::Masks { size, .. }, "masks") | (VisionResult::Depth { size, .. }, "depth") => {
            Some(*size)
        }
        (VisionResult::Depth { predicted, .. }, "predicted_depth") => Some(predicted.dim().into()),
        _ => None,
    }
}
