//! Runs an ONNX model on tensors by the names of its inputs, on the CPU and, if there is one, on a GPU.
//!
//! The inputs are random. Extents that the file leaves open are given as NAME=N.
//!
//!     cargo run --release --example onnx                                       # a small exported Vision Transformer
//!     cargo run --release --example onnx -- model.onnx height=224 width=224
//!     HIPVIT_PROVIDER=emu:gfx1100 cargo run --release --example onnx           # on an emulated GPU

use hipvit::ndarray::{ArrayD, IxDyn};
use hipvit::tensors::ElementType;
use hipvit::{DType, Device, Error, NamedTensors, Result, Session, TensorArray};

/// Number of images.
const BATCH: usize = 2;

/// The results of a model on two devices.
#[derive(Debug)]
pub(crate) struct Compared {
    pub outputs: NamedTensors,
    /// Largest difference between the devices, relative to the largest element of its output. `None` without a GPU.
    pub difference: Option<f64>,
}

/// Runs the model on the CPU in f32, and on `device` in `dtype` if that is a GPU.
pub(crate) fn compare(
    path: &str,
    extents: &[(String, usize)],
    device: Device,
    dtype: DType,
) -> Result<Compared> {
    let builder = extents
        .iter()
        .fold(Session::builder(), |builder, (name, number)| {
            builder.extent(name, *number)
        });
    let on_cpu = builder.clone().device(Device::Cpu).load(path)?;
    let inputs = inputs(&on_cpu);
    let views = || inputs.iter().map(|(name, array)| (name.as_str(), array.view()));
    let outputs = on_cpu.run_tensors(views())?;
    let on_device = builder.device(device).dtype(dtype).load(path)?;
    println!("{} on {}", on_device.name(), on_device.device());
    if on_device.device() == Device::Cpu {
        return Ok(Compared {
            outputs,
            difference: None,
        });
    }
    let other = on_device.run_tensors(views())?;
    let differences = outputs
        .iter()
        .map(|(name, array)| difference(array, other.get(name)));
    Ok(Compared {
        difference: Some(differences.fold(0.0, f64::max)),
        outputs,
    })
}

/// Returns random elements for each input of the model.
fn inputs(session: &Session) -> Vec<(String, TensorArray)> {
    // A linear congruential generator.
    let mut state = 1_u32;
    let mut next = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 8
    };
    let mut array = |info: hipvit::TensorInfo| {
        let shape: Vec<usize> = info.dims.iter().filter_map(|dim| dim.extent(BATCH)).collect();
        let shape = IxDyn(&shape);
        let array = match info.element {
            ElementType::I64 => TensorArray::I64(ArrayD::from_shape_simple_fn(shape, || (next() % 2).into())),
            ElementType::Bool => TensorArray::Bool(ArrayD::from_elem(shape, true)),
            ElementType::U8 => TensorArray::U8(ArrayD::from_shape_simple_fn(shape, || next() as u8)),
            element if element.is_integer() => {
                TensorArray::I32(ArrayD::from_shape_simple_fn(shape, || (next() % 2) as i32))
            }
            _ => TensorArray::F32(ArrayD::from_shape_simple_fn(shape, || {
                next() as f32 / (1 << 23) as f32 - 1.0
            })),
        };
        (info.name, array)
    };
    session.tensor_inputs().into_iter().map(&mut array).collect()
}

/// Returns the largest difference of two outputs, relative to the largest element.
fn difference(expected: &TensorArray, got: Option<&TensorArray>) -> f64 {
    let (Some(expected), Some(got)) = (expected.as_f32(), got.and_then(TensorArray::as_f32)) else {
        return if got == Some(expected) { 0.0 } else { f64::INFINITY };
    };
    let largest = expected
        .iter()
        .fold(f32::MIN_POSITIVE, |largest, x| largest.max(x.abs()));
    let differences = expected.iter().zip(&got).map(|(a, b)| (a - b).abs());
    f64::from(differences.fold(0.0, f32::max) / largest)
}

#[cfg_attr(test, allow(dead_code, reason = "tests call `compare`"))]
fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next();
    let extent = |text: String| {
        let parts = text.split_once('=');
        let extent = parts.and_then(|(name, number)| Some((name.to_owned(), number.parse().ok()?)));
        extent.ok_or_else(|| Error::argument("extent", format!("`{text}` is not NAME=N")))
    };
    let extents = arguments.map(extent).collect::<Result<Vec<_>>>()?;
    let path = path.as_deref().unwrap_or("tests/golden/onnx/vit/model.onnx");
    let compared = compare(path, &extents, Device::Auto, DType::F32)?;
    for (name, array) in compared.outputs.iter() {
        println!("{name}: {} {:?}", array.element(), array.shape());
    }
    if let Some(difference) = compared.difference {
        println!("the devices differ by {difference:.1e} of the largest element");
    }
    Ok(())
}
