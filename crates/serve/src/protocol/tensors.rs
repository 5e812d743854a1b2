//! Converts input tensors to images, and checks every shape, data type and length.

use bytes::Bytes;
use half::{bf16, f16};

use super::base64::mistaken_for_image;
use super::tensor_error::TensorError;
use super::{Data, Datatype, ELEMENT_BYTES, InputTensor, TensorMetadata, binary};
use crate::failure::Failure;
use crate::scheduler::Content;
use hipvit::image::RgbImage;

pub(crate) const IMAGE: &str = "image";
pub(crate) const PIXELS: &str = "pixels";
pub(crate) const PIXEL_VALUES: &str = "pixel_values";
pub(crate) const TEXT: &str = "text";

/// Maximum size of a text. Contexts have some 70 tokens, and the rest of a longer text would be ignored.
pub(crate) const MAX_TEXT_BYTES: usize = 4096;

/// The inputs that a model takes.
#[derive(Clone, Debug)]
pub(crate) struct Inputs {
    /// Height and width.
    pub(crate) image_size: [usize; 2],
    /// True if the model takes normalised values.
    pub(crate) values: bool,
    /// The maximum number of pixels of a decoded image.
    pub(crate) max_pixels: u64,
    /// Maximum number of images of a request: the size of the queue.
    pub(crate) max_images: usize,
    /// Reason if the model takes no texts; `None` if it takes them.
    pub(crate) no_texts: Option<String>,
}

/// Inputs that a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) images: bool,
    pub(crate) texts: bool,
}

impl Given {
    pub(crate) fn of(inputs: &[InputTensor]) -> Self {
        let texts = inputs.iter().any(|input| input.name == TEXT);
        Self {
            // For the selection of outputs, a request without any input is about images.
            images: !texts || inputs.iter().any(|input| input.name != TEXT),
            texts,
        }
    }
}

/// Content of a request.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) images: Option<Images>,
    pub(crate) texts: Option<Vec<String>>,
}

/// The images of a request.
#[derive(Clone, Debug)]
pub(crate) struct Images {
    /// Name of the tensor with the images.
    pub(crate) tensor: &'static str,
    pub(crate) contents: Vec<Content>,
}

/// Returns the maximum memory of binary tensors after their conversion to images or texts, without the
/// tensors themselves. Other tensors were counted while parsing.
pub(crate) fn decoded_size(inputs: &[InputTensor]) -> usize {
    let size = |input: &InputTensor| match &input.data {
        Data::Raw(bytes) => match input.datatype.parse() {
            Ok(Datatype::Bytes) => binary::count_elements(bytes).saturating_mul(ELEMENT_BYTES),
            // Each value becomes an f32, in the tensor and then in its image.
            Ok(Datatype::Fp16 | Datatype::Bf16) => 4 * bytes.len(),
            _ => 2 * bytes.len(),
        },
        Data::Numbers(_) | Data::Bytes(_) => 0,
    };
    inputs.iter().map(size).fold(0, usize::saturating_add)
}

impl Inputs {
    pub(crate) fn metadata(&self) -> Vec<TensorMetadata> {
        let tensor = |name: &'static str, datatype, shape: &[i64]| TensorMetadata {
            name: name.into(),
            datatype,
            shape: shape.to_vec(),
        };
        let [height, width] = self.image_size.map(|side| side as i64);
        let mut all = vec![
            tensor(IMAGE, Datatype::Bytes, &[-1]),
            tensor(PIXELS, Datatype::Uint8, &[-1, -1, -1, 3]),
        ];
        if self.values {
            all.push(tensor(PIXEL_VALUES, Datatype::Fp32, &[-1, 3, height, width]));
        }
        if self.no_texts.is_none() {
            all.push(tensor(TEXT, Datatype::Bytes, &[-1]));
        }
        all
    }

    fn names(&self) -> String {
        let all = self.metadata();
        let names: Vec<String> = all.iter().map(|t| format!("`{}`", t.name)).collect();
        names.join(", ")
    }

    /// Reads the inputs of a request: images in one input, texts, or both.
    pub(crate) fn read(&self, inputs: Vec<InputTensor>) -> Result<Sent, Failure> {
        let (mut images, mut texts) = (None, None);
        for input in inputs {
            self.check(&input)?;
            let slot = if input.name == TEXT {
                &mut texts
            } else {
                &mut images
            };
            if slot.is_some() {
                let reason = format!("is one of several inputs. Send only one of {}", self.names());
                return Err(Failure::input(&input.name, reason));
            }
            *slot = Some(input);
        }
        if images.is_none() && texts.is_none() {
            return Err(Failure::invalid(format!(
                "the request has no input; it needs one of {}",
                self.names()
            )));
        }
        let read_images = |input: InputTensor| {
            let name = input.name.clone();
            let read = match name.as_str() {
                IMAGE => encoded(input),
                PIXELS => self.pixels(input),
                _ => self.values(input),
            };
            read.map_err(|reason| Failure::input(&name, reason))
        };
        let read_texts = |input| read_texts(input).map_err(|reason| Failure::input(TEXT, reason));
        Ok(Sent {
            images: images.map(read_images).transpose()?,
            texts: texts.map(read_texts).transpose()?,
        })
    }

    /// Checks the name and the parameters of an input.
    fn check(&self, input: &InputTensor) -> Result<(), Failure> {
        let refused = |reason: &str| Err(Failure::input(&input.name, reason));
        match (input.name.as_str(), &self.no_texts) {
            (IMAGE | PIXELS, _) | (TEXT, None) => {}
            (TEXT, Some(reason)) => return refused(reason),
            (PIXEL_VALUES, _) if self.values => {}
            (PIXEL_VALUES, _) => {
                return refused(
                    "the server was not started with --pixel-values, which loads the model for it",
                );
            }
            _ => {
                return refused(&format!("the model has no such input; it has {}", self.names()));
            }
        }
        let checked = input.parameters.check_tensor();
        checked.map_err(|failure| {
            Failure::new(
                failure.kind(),
                format!("input `{}`: {}", input.name, failure.message()),
            )
        })
    }

    /// Refuses more images than the queue takes, before each of them takes memory.
    fn check_images(&self, images: usize) -> Result<(), TensorError> {
        let most = self.max_images;
        if images > most {
            return Err(format!(
                "has {images} images; the queue (--queue) holds {most}. Send at most {most} at once"
            )
            .into());
        }
        Ok(())
    }

    fn pixels(&self, input: InputTensor) -> Result<Images, TensorError> {
        datatype(&input, &[Datatype::Uint8])?;
        let shape = dimensions(&input.shape)?;
        let &[images, height, width, 3] = &shape[..] else {
            return Err(format!("shape {shape:?} is not [n, height, width, 3]").into());
        };
        self.check_images(images)?;
        let pixels = (height as u64).saturating_mul(width as u64);
        if pixels > self.max_pixels {
            let most = self.max_pixels;
            return Err(format!("{width}×{height} pixels exceed the limit of {most}").into());
        }
        let bytes = match input.data {
            Data::Raw(bytes) => bytes,
            Data::Numbers(numbers) => {
                let byte = |&number: &f32| {
                    if number.fract() == 0.0 && (0.0..=255.0).contains(&number) {
                        Ok(number as u8)
                    } else {
                        Err(format!("{number} is not a whole number from 0 to 255").into())
                    }
                };
                numbers
                    .iter()
                    .map(byte)
                    .collect::<Result<Vec<u8>, TensorError>>()?
                    .into()
            }
            Data::Bytes(_) => return Err("has strings for numbers".into()),
        };
        let each = check_length(bytes.len(), &shape)? / images.max(1);
        let contents = bytes.chunks(each.max(1)).map(|pixels| {
            let image = RgbImage::new(width, height, pixels.to_vec());
            image.map(Content::Decoded).map_err(|e| e.to_string().into())
        });
        Ok(Images {
            tensor: PIXELS,
            contents: contents.collect::<Result<_, TensorError>>()?,
        })
    }

    fn values(&self, input: InputTensor) -> Result<Images, TensorError> {
        let datatype = datatype(&input, &[Datatype::Fp32, Datatype::Fp16, Datatype::Bf16])?;
        let shape = dimensions(&input.shape)?;
        let [height, width] = self.image_size;
        if shape.len() != 4 || shape[1..] != [3, height, width] {
            return Err(format!("shape {shape:?} is not [n, 3, {height}, {width}]").into());
        }
        self.check_images(shape[0])?;
        let values = floats(input.data, datatype)?;
        let each = check_length(values.len(), &shape)? / shape[0].max(1);
        Ok(Images {
            tensor: PIXEL_VALUES,
            contents: values
                .chunks(each.max(1))
                .map(|values| Content::Values(values.to_vec()))
                .collect(),
        })
    }
}

fn encoded(input: InputTensor) -> Result<Images, TensorError> {
    datatype(&input, &[Datatype::Bytes])?;
    let shape = dimensions(&input.shape)?;
    if !matches!(shape[..], [_] | [_, 1]) {
        return Err(format!("shape {shape:?} is not [n]").into());
    }
    let files = match input.data {
        Data::Raw(bytes) => binary::split_elements(bytes)?,
        Data::Bytes(elements) => elements,
        Data::Numbers(_) => return Err("has numbers instead of encoded images".into()),
    };
    check_length(files.len(), &shape)?;
    for (index, file) in files.iter().enumerate() {
        if let Some(mistake) = mistaken_for_image(file) {
            return Err(format!("image {index} {mistake}").into());
        }
    }
    Ok(Images {
        tensor: IMAGE,
        contents: files.into_iter().map(Content::Encoded).collect(),
    })
}

fn read_texts(input: InputTensor) -> Result<Vec<String>, TensorError> {
    datatype(&input, &[Datatype::Bytes])?;
    let shape = dimensions(&input.shape)?;
    if !matches!(shape[..], [_] | [_, 1]) {
        return Err(format!("shape {shape:?} is not [n]").into());
    }
    let texts = match input.data {
        Data::Raw(bytes) => binary::split_elements(bytes)?,
        Data::Bytes(elements) => elements,
        Data::Numbers(_) => return Err("has numbers for texts".into()),
    };
    check_length(texts.len(), &shape)?;
    if texts.is_empty() {
        return Err("has no text".into());
    }
    let text = |(index, text): (usize, Bytes)| {
        if text.len() > MAX_TEXT_BYTES {
            let bytes = text.len();
            return Err(format!(
                "text {index} has {bytes} bytes; the maximum is {MAX_TEXT_BYTES}. Send its beginning: the model reads a few dozen words"
            ).into());
        }
        let text = String::from_utf8(text.to_vec());
        text.map_err(|_| {
            format!("text {index} is not UTF-8. Is it an image? Images go into the input `{IMAGE}`").into()
        })
    };
    texts.into_iter().enumerate().map(text).collect()
}

fn datatype(input: &InputTensor, accepted: &[Datatype]) -> Result<Datatype, TensorError> {
    let datatype: Datatype = input.datatype.parse()?;
    if accepted.contains(&datatype) {
        Ok(datatype)
    } else {
        let names: Vec<&str> = accepted.iter().map(|datatype| datatype.name()).collect();
        Err(format!("is {datatype}, expected {}", names.join(" or ")).into())
    }
}

fn dimensions(shape: &[i64]) -> Result<Vec<usize>, TensorError> {
    let dimension = |&side: &i64| {
        usize::try_from(side).map_err(|_| format!("shape {shape:?} has a negative dimension").into())
    };
    shape.iter().map(dimension).collect()
}

/// Fails unless a tensor has as many elements as its shape.
fn check_length(elements: usize, shape: &[usize]) -> Result<usize, TensorError> {
    let expected = shape
        .iter()
        .try_fold(1usize, |product, &side| product.checked_mul(side));
    match expected {
        Some(expected) if expected == elements => Ok(elements),
        Some(expected) => {
            Err(format!("shape {shape:?} has {expected} elements, the data has {elements}").into())
        }
        None => Err(format!("shape {shape:?} is too large").into()),
    }
}

fn floats(data: Data, datatype: Datatype) -> Result<Vec<f32>, TensorError> {
    let bytes = match data {
        Data::Numbers(_) if datatype != Datatype::Fp32 => {
            return Err(format!("{datatype} can only be sent as binary data").into());
        }
        Data::Numbers(numbers) => return Ok(numbers),
        Data::Bytes(_) => return Err("has strings for numbers".into()),
        Data::Raw(bytes) => bytes,
    };
    fn elements<const N: usize>(bytes: &Bytes, value: fn([u8; N]) -> f32) -> Result<Vec<f32>, TensorError> {
        let (elements, rest) = bytes.as_chunks::<N>();
        match rest {
            [] => Ok(elements.iter().map(|&element| value(element)).collect()),
            _ => Err(format!(
                "{} bytes are no whole number of elements of {N} bytes",
                bytes.len()
            )
            .into()),
        }
    }
    match datatype {
        Datatype::Fp16 => elements(&bytes, |b| f16::from_le_bytes(b).to_f32()),
        Datatype::Bf16 => elements(&bytes, |b| bf16::from_le_bytes(b).to_f32()),
        _ => elements(&bytes, f32::from_le_bytes),
    }
}

#[cfg(test)]
mod tests;
