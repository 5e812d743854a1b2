//! Models exported by torch to ONNX, on the CPU, against ONNX Runtime.

use hipvit::{DType, Device, Session};

use crate::support::onnx::cases;

/// The difference in f32: ONNX Runtime is at most 2e-6 from torch in double precision.
const F32: f64 = 1e-5;

/// A model that was exported in f16: ONNX Runtime rounds every result to 11 bits, and is 6e-4 from torch in double precision.
const EXPORTED_IN_F16: f64 = 2e-3;

/// A model with 8-bit weights and activations: a rounding that falls to the other side is a step of 1/127 of a layer's largest output.
const INT8: f64 = 3e-2;

#[test]
fn exported_models_agree_with_onnx_runtime() {
    let mut failures = Vec::new();
    for case in cases() {
        let tolerance = match case.dtype.as_str() {
            "float32" => F32,
            "float16" => EXPORTED_IN_F16,
            _ => INT8,
        };
        let error = case.error(&Session::builder().device(Device::Cpu).dtype(DType::F32));
        println!("{}: {error:.1e}", case.name);
        // NaN too.
        if error.is_nan() || error > tolerance {
            failures.push(format!(
                "{}: differs by {error:.1e}, allowed {tolerance:.0e}",
                case.name
            ));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
