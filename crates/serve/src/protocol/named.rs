//! Tensors of models that take and return them by name, such as ONNX models without preprocessing.

use bytes::Bytes;
use half::{bf16, f16};
use hipvit::ndarray::{ArrayD, IxDyn};
use hipvit::tensors::{ElementType, NamedTensors, TensorArray, TensorInfo};

use super::selection::select;
use super::tensor_error::TensorError;
use super::{Data, Datatype, InputTensor, OutputData, OutputTensor, RequestedOutput, TensorMetadata};
use crate::failure::Failure;

/// The inputs and outputs of a model that takes tensors by name.
#[derive(Clone, Debug)]
pub(crate) struct NamedProtocol {
    pub(crate) inputs: Vec<TensorInfo>,
    pub(crate) outputs: Vec<TensorInfo>,
}

/// Maximum bytes of an element of an output: in the results of the run, and in the answer.
const OUTPUT_BYTES: usize = 16;

fn datatype(element: ElementType) -> Datatype {
    match element {
        ElementType::I64 | ElementType::U64 | ElementType::U32 => Datatype::Int64,
        ElementType::I32 | ElementType::I16 | ElementType::I8 | ElementType::U16 => Datatype::Int32,
        ElementType::U8 => Datatype::Uint8,
        ElementType::Bool => Datatype::Bool,
        _ => Datatype::Fp32,
    }
}

fn metadata(infos: &[TensorInfo]) -> Vec<TensorMetadata> {
    let extent = |info: &TensorInfo, axis| info.extent(axis).map_or(-1, |extent| extent as i64);
    let tensor = |info: &TensorInfo| TensorMetadata {
        name: info.name.clone().into(),
        datatype: datatype(info.element),
        shape: (0..info.dims.len()).map(|axis| extent(info, axis)).collect(),
    };
    infos.iter().map(tensor).collect()
}

impl NamedProtocol {
    pub(crate) fn input_metadata(&self) -> Vec<TensorMetadata> {
        metadata(&self.inputs)
    }

    pub(crate) fn output_metadata(&self) -> Vec<TensorMetadata> {
        metadata(&self.outputs)
    }

    /// Reads the inputs of a request. The session checks their names and extents.
    pub(crate) fn read(&self, inputs: Vec<InputTensor>) -> Result<Vec<(String, TensorArray)>, Failure> {
        let read = |input: InputTensor| {
            input.parameters.check_tensor()?;
            let name = input.name.clone();
            let array = array(input).map_err(|reason| Failure::input(&name, reason))?;
            Ok((name, array))
        };
        inputs.into_iter().map(read).collect()
    }

    /// Returns the names of the requested outputs, or of all.
    pub(crate) fn select(&self, requested: &[RequestedOutput]) -> Result<Vec<String>, Failure> {
        let names: Vec<String> = self.outputs.iter().map(|info| info.name.clone()).collect();
        select(requested, &names, "the model")
    }

    /// Returns the maximum memory of the results and the answer for inputs of these shapes.
    pub(crate) fn output_size(&self, inputs: &[(String, TensorArray)]) -> usize {
        let rows = inputs
            .iter()
            .filter_map(|(_, array)| array.shape().first().copied());
        let batch = rows.max().unwrap_or(1).max(1);
        let elements = |info: &TensorInfo| {
            let mut extents = info
                .dims
                .iter()
                .map(|dim| dim.extent(batch).unwrap_or(usize::MAX));
            extents
                .try_fold(1_usize, usize::checked_mul)
                .unwrap_or(usize::MAX)
        };
        let all = self.outputs.iter().map(elements).fold(0, usize::saturating_add);
        all.saturating_mul(OUTPUT_BYTES)
    }

    /// Writes the selected outputs.
    pub(crate) fn write(&self, selected: &[String], outputs: &NamedTensors) -> Vec<OutputTensor> {
        let write = |name: &String| {
            let array = outputs.get(name)?;
            Some(OutputTensor {
                name: name.clone().into(),
                shape: array.shape().to_vec(),
                data: match array {
                    TensorArray::F32(array) => OutputData::Fp32(array.iter().copied().collect()),
                    TensorArray::I32(array) => OutputData::Int32(array.iter().copied().collect()),
                    TensorArray::I64(array) => OutputData::Int64(array.iter().copied().collect()),
                    TensorArray::U8(array) => OutputData::Uint8(array.iter().copied().collect()),
                    TensorArray::Bool(array) => OutputData::Bool(array.iter().copied().collect()),
                },
            })
        };
        selected.iter().filter_map(write).collect()
    }
}

/// Converts a tensor of any data type of numbers.
pub(super) fn array(input: InputTensor) -> Result<TensorArray, TensorError> {
    let datatype: Datatype = input.datatype.parse()?;
    let extent = |&side: &i64| usize::try_from(side).ok();
    let shape: Option<Vec<usize>> = input.shape.iter().map(extent).collect();
    let shape = shape.ok_or_else(|| format!("shape {:?} has a negative dimension", input.shape))?;
    let data = input.data;
    Ok(match datatype {
        Datatype::Fp32 => TensorArray::F32(shaped(shape, elements(data, f32::from_le_bytes, Some)?)?),
        Datatype::Fp64 => {
            let value = |bytes| f64::from_le_bytes(bytes) as f32;
            TensorArray::F32(shaped(shape, elements(data, value, Some)?)?)
        }
        Datatype::Fp16 => {
            let value = |bytes| f16::from_le_bytes(bytes).to_f32();
            TensorArray::F32(shaped(shape, elements(data, value, |_| None)?)?)
        }
        Datatype::Bf16 => {
            let value = |bytes| bf16::from_le_bytes(bytes).to_f32();
            TensorArray::F32(shaped(shape, elements(data, value, |_| None)?)?)
        }
        Datatype::Int64 => TensorArray::I64(shaped(shape, elements(data, i64::from_le_bytes, whole)?)?),
        Datatype::Uint32 => {
            let value = |bytes| i64::from(u32::from_le_bytes(bytes));
            TensorArray::I64(shaped(shape, elements(data, value, whole)?)?)
        }
        Datatype::Int32 => {
            let number = |x| i32::try_from(whole(x)?).ok();
            TensorArray::I32(shaped(shape, elements(data, i32::from_le_bytes, number)?)?)
        }
        Datatype::Uint8 => {
            let number = |x| u8::try_from(whole(x)?).ok();
            TensorArray::U8(shaped(shape, elements(data, |[byte]: [u8; 1]| byte, number)?)?)
        }
        Datatype::Bool => {
            let number = |x| [0.0, 1.0].contains(&x).then_some(x == 1.0);
            TensorArray::Bool(shaped(
                shape,
                elements(data, |[byte]: [u8; 1]| byte != 0, number)?,
            )?)
        }
        other => return Err(format!("is {other}, which models do not take. Convert it").into()),
    })
}

/// Returns a number of JSON as an integer. Numbers above 2²⁴ are not exact, and refused.
fn whole(number: f32) -> Option<i64> {
    const EXACT: f32 = (1 << 24) as f32;
    (number.fract() == 0.0 && number.abs() <= EXACT).then_some(number as i64)
}

fn elements<T, const N: usize>(
    data: Data,
    element: impl Fn([u8; N]) -> T,
    number: impl Fn(f32) -> Option<T>,
) -> Result<Vec<T>, TensorError> {
    let of_bytes = |bytes: &Bytes| {
        let (elements, rest) = bytes.as_chunks::<N>();
        if !rest.is_empty() {
            let length = bytes.len();
            return Err(format!("{length} bytes are no whole number of elements of {N} bytes").into());
        }
        Ok(elements.iter().map(|&bytes| element(bytes)).collect())
    };
    match data {
        Data::Raw(bytes) => of_bytes(&bytes),
        Data::Numbers(numbers) => {
            let converted: Option<Vec<T>> = numbers.iter().map(|&x| number(x)).collect();
            let reason = "has numbers that its data type does not have, or that JSON cannot send exactly. Send it as binary data";
            converted.ok_or_else(|| TensorError::from(reason.to_owned()))
        }
        Data::Bytes(_) => Err("has strings for numbers".into()),
    }
}

fn shaped<T>(shape: Vec<usize>, elements: Vec<T>) -> Result<ArrayD<T>, TensorError> {
    let count = elements.len();
    let reason = format!("shape {shape:?} does not have {count} elements, as the data has");
    ArrayD::from_shape_vec(IxDyn(&shape), elements).map_err(|_| reason.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::parameters::Parameters;

    fn tensor(datatype: &str, shape: &[i64], data: Data) -> InputTensor {
        InputTensor {
            name: "x".into(),
            datatype: datatype.into(),
            shape: shape.to_vec(),
            parameters: Parameters::default(),
            data,
        }
    }

    fn raw(bytes: &[u8]) -> Data {
        Data::Raw(Bytes::copy_from_slice(bytes))
    }

    #[test]
    fn numbers_of_each_type_are_read() {
        let read = |datatype, data| array(tensor(datatype, &[1, 2], data)).unwrap();
        let floats = TensorArray::F32(hipvit::ndarray::arr2(&[[1.0, -2.0]]).into_dyn());
        let longs = TensorArray::I64(hipvit::ndarray::arr2(&[[1_i64, -2]]).into_dyn());
        assert_eq!(read("FP32", Data::Numbers(vec![1.0, -2.0])), floats);
        assert_eq!(read("FP16", raw(&[0x00, 0x3c, 0x00, 0xc0])), floats);
        assert_eq!(read("BF16", raw(&[0x80, 0x3f, 0x00, 0xc0])), floats);
        let bytes: Vec<u8> = [1.0_f64, -2.0].iter().flat_map(|x| x.to_le_bytes()).collect();
        assert_eq!(read("FP64", raw(&bytes)), floats);
        assert_eq!(read("INT64", Data::Numbers(vec![1.0, -2.0])), longs);
        let bytes: Vec<u8> = [1_i64, -2].iter().flat_map(|x| x.to_le_bytes()).collect();
        assert_eq!(read("INT64", raw(&bytes)), longs);
    }

    #[test]
    fn wrong_tensors_are_refused() {
        let refused =
            |datatype, shape: &[i64], data| array(tensor(datatype, shape, data)).unwrap_err().to_string();
        for (message, error) in [
            ("whole number of elements", refused("INT64", &[1], raw(&[0; 7]))),
            ("does not have 2 elements", refused("UINT8", &[3], raw(&[0; 2]))),
            ("negative dimension", refused("UINT8", &[-1], raw(&[0]))),
            (
                "JSON cannot send exactly",
                refused("INT64", &[1], Data::Numbers(vec![1e9])),
            ),
            (
                "JSON cannot send exactly",
                refused("UINT8", &[1], Data::Numbers(vec![256.0])),
            ),
            (
                "JSON cannot send exactly",
                refused("BOOL", &[1], Data::Numbers(vec![2.0])),
            ),
            (
                "strings for numbers",
                refused("FP32", &[1], Data::Bytes(vec![Bytes::new()])),
            ),
            (
                "models do not take",
                refused("BYTES", &[1], Data::Bytes(vec![Bytes::new()])),
            ),
            (
                "does not have 0 elements",
                refused("FP32", &[i64::MAX, i64::MAX], raw(&[])),
            ),
        ] {
            assert!(error.contains(message), "{error}");
        }
    }
}
