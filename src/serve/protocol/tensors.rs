//! From input tensors to images, with every shape, data type and length checked.

use bytes::Bytes;
use half::{bf16, f16};

use super::base64::mistaken_for_image;
use super::{Data, Datatype, ELEMENT_BYTES, InputTensor, TensorMetadata, binary};
use crate::image::RgbImage;
use crate::serve::failure::Failure;
use crate::serve::scheduler::Content;

pub(in crate::serve) const IMAGE: &str = "image";
pub(in crate::serve) const PIXELS: &str = "pixels";
pub(in crate::serve) const PIXEL_VALUES: &str = "pixel_values";
pub(in crate::serve) const TEXT: &str = "text";

/// Maximum size of a text. Contexts have some 70 tokens: the rest of a longer text would not count.
pub(in crate::serve) const MAX_TEXT_BYTES: usize = 4096;

/// The inputs that a model takes.
#[derive(Clone, Debug)]
pub(in crate::serve) struct Inputs {
    /// Height and width.
    pub(in crate::serve) image_size: [usize; 2],
    /// Whether it takes normalised values.
    pub(in crate::serve) values: bool,
    /// The maximum number of pixels of a decoded image.
    pub(in crate::serve) max_pixels: u64,
    /// Why it takes no texts; `None` if it takes them.
    pub(in crate::serve) no_texts: Option<String>,
}

/// Which inputs a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::serve) struct Given {
    pub(in crate::serve) images: bool,
    pub(in crate::serve) texts: bool,
}

impl Given {
    pub(in crate::serve) fn of(inputs: &[InputTensor]) -> Self {
        let texts = inputs.iter().any(|input| input.name == TEXT);
        Self {
            // Without any input the request is about images, as far as its outputs are concerned.
            images: !texts || inputs.iter().any(|input| input.name != TEXT),
            texts,
        }
    }
}

/// What a request sends.
#[derive(Clone, Debug)]
pub(in crate::serve) struct Sent {
    pub(in crate::serve) images: Option<Images>,
    pub(in crate::serve) texts: Option<Vec<String>>,
}

/// The images of a request.
#[derive(Clone, Debug)]
pub(in crate::serve) struct Images {
    /// The tensor that they came in.
    pub(in crate::serve) tensor: &'static str,
    pub(in crate::serve) contents: Vec<Content>,
}

/// Returns how many bytes binary tensors take at most when they are images or texts, beside themselves. Other tensors were counted when
/// they were parsed.
pub(in crate::serve) fn decoded_size(inputs: &[InputTensor]) -> usize {
    let size = |input: &InputTensor| match &input.data {
        Data::Raw(bytes) => match input.datatype.parse() {
            Ok(Datatype::Bytes) => binary::count_elements(bytes).saturating_mul(ELEMENT_BYTES),
            // Each value as an f32, in the tensor and then in its image.
            Ok(Datatype::Fp16 | Datatype::Bf16) => 4 * bytes.len(),
            _ => 2 * bytes.len(),
        },
        Data::Numbers(_) | Data::Bytes(_) => 0,
    };
    inputs.iter().map(size).fold(0, usize::saturating_add)
}

impl Inputs {
    pub(in crate::serve) fn metadata(&self) -> Vec<TensorMetadata> {
        let tensor = |name, datatype, shape: &[i64]| TensorMetadata {
            name,
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
    pub(in crate::serve) fn read(&self, inputs: Vec<InputTensor>) -> Result<Sent, Failure> {
        let (mut images, mut texts) = (None, None);
        for input in inputs {
            self.check(&input)?;
            let slot = if input.name == TEXT {
                &mut texts
            } else {
                &mut images
            };
            if slot.is_some() {
                let reason = format!("is one of several inputs; a request has one of {}", self.names());
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

    fn pixels(&self, input: InputTensor) -> Result<Images, String> {
        datatype(&input, &[Datatype::Uint8])?;
        let shape = dimensions(&input.shape)?;
        let &[images, height, width, 3] = &shape[..] else {
            return Err(format!("shape {shape:?} is not [n, height, width, 3]"));
        };
        let pixels = (height as u64).saturating_mul(width as u64);
        if pixels > self.max_pixels {
            let most = self.max_pixels;
            return Err(format!("{width}×{height} pixels exceed the limit of {most}"));
        }
        let bytes = match input.data {
            Data::Raw(bytes) => bytes,
            Data::Numbers(numbers) => {
                let byte = |&number: &f32| match number.fract() == 0.0 && (0.0..=255.0).contains(&number) {
                    true => Ok(number as u8),
                    false => Err(format!("{number} is not a whole number from 0 to 255")),
                };
                numbers
                    .iter()
                    .map(byte)
                    .collect::<Result<Vec<u8>, String>>()?
                    .into()
            }
            Data::Bytes(_) => return Err("has strings for numbers".into()),
        };
        let each = check_length(bytes.len(), &shape)? / images.max(1);
        let contents = bytes.chunks(each.max(1)).map(|pixels| {
            let image = RgbImage::new(width, height, pixels.to_vec());
            image.map(Content::Decoded).map_err(|e| e.to_string())
        });
        Ok(Images {
            tensor: PIXELS,
            contents: contents.collect::<Result<_, String>>()?,
        })
    }

    fn values(&self, input: InputTensor) -> Result<Images, String> {
        let datatype = datatype(&input, &[Datatype::Fp32, Datatype::Fp16, Datatype::Bf16])?;
        let shape = dimensions(&input.shape)?;
        let [height, width] = self.image_size;
        if shape.len() != 4 || shape[1..] != [3, height, width] {
            return Err(format!("shape {shape:?} is not [n, 3, {height}, {width}]"));
        }
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

fn encoded(input: InputTensor) -> Result<Images, String> {
    datatype(&input, &[Datatype::Bytes])?;
    let shape = dimensions(&input.shape)?;
    if !matches!(shape[..], [_] | [_, 1]) {
        return Err(format!("shape {shape:?} is not [n]"));
    }
    let files = match input.data {
        Data::Raw(bytes) => binary::split_elements(bytes)?,
        Data::Bytes(elements) => elements,
        Data::Numbers(_) => return Err("has numbers for encoded images".into()),
    };
    check_length(files.len(), &shape)?;
    for (index, file) in files.iter().enumerate() {
        if let Some(mistake) = mistaken_for_image(file) {
            return Err(format!("image {index} {mistake}"));
        }
    }
    Ok(Images {
        tensor: IMAGE,
        contents: files.into_iter().map(Content::Encoded).collect(),
    })
}

fn read_texts(input: InputTensor) -> Result<Vec<String>, String> {
    datatype(&input, &[Datatype::Bytes])?;
    let shape = dimensions(&input.shape)?;
    if !matches!(shape[..], [_] | [_, 1]) {
        return Err(format!("shape {shape:?} is not [n]"));
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
                "text {index} has {bytes} bytes, and {MAX_TEXT_BYTES} are the most. Send its beginning: the model reads a few dozen words"
            ));
        }
        let text = String::from_utf8(text.to_vec());
        text.map_err(|_| {
            format!("text {index} is not UTF-8. Is it an image? Images go into the input `{IMAGE}`")
        })
    };
    texts.into_iter().enumerate().map(text).collect()
}

fn datatype(input: &InputTensor, accepted: &[Datatype]) -> Result<Datatype, String> {
    let datatype: Datatype = input.datatype.parse()?;
    match accepted.contains(&datatype) {
        true => Ok(datatype),
        false => {
            let names: Vec<&str> = accepted.iter().map(|datatype| datatype.name()).collect();
            Err(format!("is {datatype}, expected {}", names.join(" or ")))
        }
    }
}

fn dimensions(shape: &[i64]) -> Result<Vec<usize>, String> {
    let dimension =
        |&side: &i64| usize::try_from(side).map_err(|_| format!("shape {shape:?} has a negative dimension"));
    shape.iter().map(dimension).collect()
}

/// Whether a tensor has as many elements as its shape says.
fn check_length(elements: usize, shape: &[usize]) -> Result<usize, String> {
    let expected = shape
        .iter()
        .try_fold(1usize, |product, &side| product.checked_mul(side));
    match expected {
        Some(expected) if expected == elements => Ok(elements),
        Some(expected) => Err(format!(
            "shape {shape:?} has {expected} elements, the data has {elements}"
        )),
        None => Err(format!("shape {shape:?} is too large")),
    }
}

fn floats(data: Data, datatype: Datatype) -> Result<Vec<f32>, String> {
    let bytes = match data {
        Data::Numbers(_) if datatype != Datatype::Fp32 => {
            return Err(format!("{datatype} can only be sent as binary data"));
        }
        Data::Numbers(numbers) => return Ok(numbers),
        Data::Bytes(_) => return Err("has strings for numbers".into()),
        Data::Raw(bytes) => bytes,
    };
    fn elements<const N: usize>(bytes: &Bytes, value: fn([u8; N]) -> f32) -> Result<Vec<f32>, String> {
        let (elements, rest) = bytes.as_chunks::<N>();
        match rest {
            [] => Ok(elements.iter().map(|&element| value(element)).collect()),
            _ => Err(format!(
                "{} bytes are no whole number of elements of {N} bytes",
                bytes.len()
            )),
        }
    }
    match datatype {
        Datatype::Fp16 => elements(&bytes, |b| f16::from_le_bytes(b).to_f32()),
        Datatype::Bf16 => elements(&bytes, |b| bf16::from_le_bytes(b).to_f32()),
        _ => elements(&bytes, f32::from_le_bytes),
    }
}

#[cfg(test)]
mod tests {
    use bytes::{BufMut, BytesMut};

    use super::*;
    use crate::serve::protocol::parameters::Parameters;

    const INPUTS: Inputs = Inputs {
        image_size: [2, 4],
        values: true,
        max_pixels: 100,
        no_texts: None,
    };

    fn tensor(name: &str, datatype: &str, shape: &[i64], data: Data) -> InputTensor {
        InputTensor {
            name: name.into(),
            datatype: datatype.into(),
            shape: shape.into(),
            parameters: Parameters::default(),
            data,
        }
    }

    fn values(images: Images) -> Vec<Vec<f32>> {
        let value = |content| match content {
            Content::Values(values) => values,
            other => panic!("{other:?}"),
        };
        images.contents.into_iter().map(value).collect()
    }

    #[test]
    fn half_precision_comes_as_raw_contents() {
        let numbers: Vec<f32> = (0..48).map(|n| n as f32 / 8.0 - 3.0).collect();
        let raw = |put: &dyn Fn(&mut BytesMut, f32)| {
            let mut bytes = BytesMut::new();
            numbers.iter().for_each(|&number| put(&mut bytes, number));
            Data::Raw(bytes.freeze())
        };
        // The numbers have few bits: each type holds them exactly.
        for (datatype, data) in [
            ("FP16", raw(&|b, x| b.put_slice(&f16::from_f32(x).to_le_bytes()))),
            ("BF16", raw(&|b, x| b.put_slice(&bf16::from_f32(x).to_le_bytes()))),
            ("FP32", raw(&|b, x| b.put_f32_le(x))),
            ("FP32", Data::Numbers(numbers.clone())),
        ] {
            let read = INPUTS
                .read(vec![tensor(PIXEL_VALUES, datatype, &[2, 3, 2, 4], data)])
                .unwrap();
            let read = values(read.images.unwrap());
            assert_eq!(read.len(), 2);
            assert_eq!(read.concat(), numbers, "{datatype}");
        }
        let json = tensor(
            PIXEL_VALUES,
            "FP16",
            &[2, 3, 2, 4],
            Data::Numbers(numbers.clone()),
        );
        let error = INPUTS.read(vec![json]).unwrap_err();
        assert_eq!(
            error.message(),
            "input `pixel_values`: FP16 can only be sent as binary data"
        );
    }

    #[test]
    fn an_error_names_the_tensor_and_what_is_wrong() {
        let raw = |bytes: usize| Data::Raw(vec![0; bytes].into());
        for (input, expected) in [
            (
                tensor("images", "BYTES", &[1], raw(4)),
                "input `images`: the model has no such input; it has `image`, `pixels`, `pixel_values`, `text`",
            ),
            (
                tensor(IMAGE, "FP32", &[1], raw(4)),
                "input `image`: is FP32, expected BYTES",
            ),
            (
                tensor(IMAGE, "STRING", &[1], raw(4)),
                "input `image`: `STRING` is not a data type of the protocol",
            ),
            (
                tensor(IMAGE, "BYTES", &[1, 2], raw(8)),
                "input `image`: shape [1, 2] is not [n]",
            ),
            (
                tensor(IMAGE, "BYTES", &[2], raw(4)),
                "input `image`: shape [2] has 2 elements, the data has 1",
            ),
            (
                tensor(IMAGE, "BYTES", &[-1], raw(4)),
                "input `image`: shape [-1] has a negative dimension",
            ),
            (
                tensor(IMAGE, "BYTES", &[1], Data::Numbers(vec![1.0])),
                "input `image`: has numbers for encoded images",
            ),
            (
                tensor(PIXELS, "UINT8", &[1, 2, 2, 4], raw(16)),
                "input `pixels`: shape [1, 2, 2, 4] is not [n, height, width, 3]",
            ),
            (
                tensor(PIXELS, "UINT8", &[1, 11, 10, 3], raw(330)),
                "input `pixels`: 10×11 pixels exceed the limit of 100",
            ),
            (
                tensor(PIXELS, "UINT8", &[1, i64::MAX, i64::MAX, 3], raw(3)),
                "input `pixels`: 9223372036854775807×9223372036854775807 pixels exceed the limit of 100",
            ),
            (
                tensor(PIXELS, "UINT8", &[i64::MAX, 1, 1, 3], raw(3)),
                "input `pixels`: shape [9223372036854775807, 1, 1, 3] is too large",
            ),
            (
                tensor(
                    PIXELS,
                    "UINT8",
                    &[1, 1, 1, 3],
                    Data::Numbers(vec![1.0, 2.0, 256.0]),
                ),
                "input `pixels`: 256 is not a whole number from 0 to 255",
            ),
            (
                tensor(PIXELS, "UINT8", &[1, 0, 1, 3], raw(3)),
                "input `pixels`: shape [1, 0, 1, 3] has 0 elements, the data has 3",
            ),
            (
                tensor(PIXEL_VALUES, "FP32", &[1, 3, 4, 2], raw(96)),
                "input `pixel_values`: shape [1, 3, 4, 2] is not [n, 3, 2, 4]",
            ),
            (
                tensor(PIXEL_VALUES, "FP32", &[1, 3, 2, 4], raw(95)),
                "input `pixel_values`: 95 bytes are no whole number of elements of 4 bytes",
            ),
            (
                tensor(PIXEL_VALUES, "FP64", &[1, 3, 2, 4], raw(192)),
                "input `pixel_values`: is FP64, expected FP32 or FP16 or BF16",
            ),
        ] {
            let error = INPUTS.read(vec![input]).unwrap_err();
            assert_eq!(error.message(), expected);
        }
    }

    #[test]
    fn a_request_has_one_input() {
        let image = || tensor(IMAGE, "BYTES", &[1], Data::Bytes(vec![Bytes::from_static(b"x")]));
        assert_eq!(
            INPUTS.read(vec![image()]).unwrap().images.unwrap().contents.len(),
            1
        );
        let none = INPUTS.read(Vec::new()).unwrap_err();
        assert!(none.message().starts_with("the request has no input"), "{none}");
        let two = INPUTS.read(vec![image(), image()]).unwrap_err();
        assert!(
            two.message().starts_with("input `image`: is one of several"),
            "{two}"
        );
        let without = Inputs {
            values: false,
            ..INPUTS
        };
        let values = tensor(PIXEL_VALUES, "FP32", &[1, 3, 2, 4], Data::Numbers(vec![0.0; 24]));
        let error = without.read(vec![values]).unwrap_err();
        assert!(error.message().contains("--pixel-values"), "{error}");
    }

    #[test]
    fn binary_tensors_count_for_what_they_become() {
        let size = |datatype: &str, bytes: usize| {
            decoded_size(&[tensor(IMAGE, datatype, &[1], Data::Raw(vec![0; bytes].into()))])
        };
        // Elements without contents: four bytes each.
        assert_eq!(size("BYTES", 4000), 1000 * ELEMENT_BYTES);
        assert_eq!(
            ["UINT8", "FP32", "FP16", "BF16", "?"].map(|datatype| size(datatype, 100)),
            [200, 200, 400, 400, 200]
        );
    }

    #[test]
    fn no_image_is_none() {
        for input in [
            tensor(IMAGE, "BYTES", &[0], Data::Bytes(Vec::new())),
            tensor(PIXELS, "UINT8", &[0, 1, 1, 3], Data::Numbers(Vec::new())),
        ] {
            assert_eq!(
                INPUTS.read(vec![input]).unwrap().images.unwrap().contents.len(),
                0
            );
        }
    }

    #[test]
    fn texts_are_read_alone_or_beside_images() {
        let texts = |texts: &[&'static str]| {
            let elements = texts.iter().map(|text| Bytes::from_static(text.as_bytes()));
            tensor(
                TEXT,
                "BYTES",
                &[texts.len() as i64],
                Data::Bytes(elements.collect()),
            )
        };
        let image = tensor(IMAGE, "BYTES", &[1], Data::Bytes(vec![Bytes::from_static(b"x")]));
        let alone = INPUTS.read(vec![texts(&["a", "é"])]).unwrap();
        assert!(alone.images.is_none());
        assert_eq!(alone.texts.unwrap(), ["a", "é"]);
        let both = INPUTS.read(vec![texts(&["a"]), image.clone()]).unwrap();
        assert!(both.images.is_some() && both.texts.is_some());
        let given = |inputs: &[InputTensor]| {
            let Given { images, texts } = Given::of(inputs);
            (images, texts)
        };
        assert_eq!(given(&[texts(&["a"])]), (false, true));
        assert_eq!(given(&[texts(&["a"]), image.clone()]), (true, true));
        assert_eq!(given(&[image]), (true, false));
        assert_eq!(given(&[]), (true, false));

        let error = |inputs| INPUTS.read(inputs).unwrap_err().message().to_owned();
        assert_eq!(error(vec![texts(&[])]), "input `text`: has no text");
        assert!(error(vec![texts(&["a"]), texts(&["b"])]).starts_with("input `text`: is one of several"));
        let long = tensor(
            TEXT,
            "BYTES",
            &[1],
            Data::Bytes(vec![vec![b'a'; MAX_TEXT_BYTES + 1].into()]),
        );
        assert!(error(vec![long]).contains("4097 bytes"));
        let binary = tensor(
            TEXT,
            "BYTES",
            &[1],
            Data::Bytes(vec![Bytes::from_static(b"\x89PNG")]),
        );
        assert!(error(vec![binary]).contains("not UTF-8"));
        let without = Inputs {
            no_texts: Some("the model has no text tower".into()),
            ..INPUTS
        };
        let refused = without.read(vec![texts(&["a"])]).unwrap_err();
        assert_eq!(refused.message(), "input `text`: the model has no text tower");
    }

    #[test]
    fn what_is_mistaken_for_an_image_or_ignored_elsewhere_is_said() {
        let image = |bytes: &'static [u8]| {
            let data = Data::Bytes(vec![Bytes::from_static(bytes)]);
            INPUTS.read(vec![tensor(IMAGE, "BYTES", &[1], data)]).unwrap_err()
        };
        let url = image(b"https://example.com/cat.png");
        assert_eq!(
            url.message(),
            "input `image`: image 0 is a URL. The server fetches nothing: send the bytes of the file"
        );
        let mut shared = tensor(IMAGE, "BYTES", &[1], Data::Bytes(Vec::new()));
        let map = serde_json::json!({"shared_memory_region": "r"});
        shared.parameters = map.as_object().unwrap().clone().into();
        let error = INPUTS.read(vec![shared]).unwrap_err();
        assert!(
            error
                .message()
                .starts_with("input `image`: parameter `shared_memory_region`"),
            "{error}"
        );
    }
}
