//! 8-bit kernels executed on a GPU, compared bit for bit if their arithmetic is defined to the bit.
//!
//! With `HIPVIT_TEST_DEVICE`, they run on the first GPU of the provider in `HIPVIT_PROVIDER`. Otherwise two tests run the others in
//! separate processes on emulated AMD GPUs. Without LLVM's disassembler and a clang for AMD GPUs they are skipped, unless
//! `HIPVIT_REQUIRE_EMU` is 1.

use std::env;
use std::path::Path;
use std::process::Command;

use half::{bf16, f16};

use super::{KernelCall, KernelError, Kernels};
use crate::hip::{Device, DeviceAddress, Runtime, Stream};
use crate::tensor::DType;

mod attention;
mod attention_backward;
mod float8;
mod gemv;
mod int8;
mod norm_quantize;
mod paged_attention;
mod round_float8;
mod sample;
mod token_scores;
mod top_k;
mod wire;

const DTYPES: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

/// Awkward `[rows, channels]`.
const EXTENTS: [[usize; 2]; 9] = [
    [1, 1],
    [1, 257],
    [257, 1],
    [63, 65],
    [64, 64],
    [65, 63],
    [3, 200],
    [197, 256],
    [257, 197],
];

const DEVICE: &str = "HIPVIT_TEST_DEVICE";

fn pass_on(arch: &str) {
    if env::var_os(DEVICE).is_some() {
        return;
    }
    let test = env::current_exe().unwrap();
    let folders = || test.ancestors().skip(1).take(2);
    let library = folders()
        .map(|folder| folder.join("libhip_emu.so"))
        .find(|file| file.exists());
    let library = library.expect("Cargo builds hip-emu's library for the tests");
    // Cargo's CARGO_TARGET_TMPDIR, which is only set for integration tests. They share the compiled kernels.
    let target = test.ancestors().nth(3).unwrap_or(Path::new("."));
    let cache = target.join("tmp/emu-cache");
    let output = Command::new(&test)
        .arg("kernels::device_tests::")
        .env("HIPVIT_PROVIDER", library)
        .env("HIP_EMU_ARCH", arch)
        .env("HIPVIT_CACHE_DIR", cache)
        .env(DEVICE, "hip:0")
        .output()
        .unwrap();
    let text = [&output.stdout[..], &output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let missing = [
        "llvm-objdump was not found",
        "no clang that targets AMD GPUs was found",
    ];
    if missing.iter().any(|tool| text.contains(tool))
        && env::var_os("HIPVIT_REQUIRE_EMU").is_none_or(|v| v != "1")
    {
        eprintln!(
            "skipped: the kernels' tests on an emulated {arch}: LLVM's disassembler or clang is missing"
        );
        return;
    }
    assert!(
        output.status.success() && text.contains("test result: ok"),
        "{arch}:\n{text}"
    );
    // No report of the emulated GPU.
    assert!(
        !text.contains("hip-emu: ") && !text.contains("skipped: "),
        "{arch}:\n{text}"
    );
}

#[test]
fn pass_on_gfx942() {
    pass_on("gfx942");
}

#[test]
fn pass_on_gfx1100() {
    pass_on("gfx1100");
}

/// An operand or a result: its bytes, and the size of an element.
#[derive(Clone, Debug)]
struct Part {
    bytes: Vec<u8>,
    element: usize,
    is_result: bool,
}

impl Part {
    fn operand<T: bytemuck::NoUninit>(values: &[T]) -> Self {
        Self {
            bytes: bytemuck::cast_slice(values).to_vec(),
            element: size_of::<T>(),
            is_result: false,
        }
    }

    /// Rounds to the numbers of the dtype.
    fn numbers(values: &[f32], dtype: DType) -> Self {
        match dtype {
            DType::F16 => Self::operand(&values.iter().map(|&v| f16::from_f32(v)).collect::<Vec<_>>()),
            DType::BF16 => Self::operand(&values.iter().map(|&v| bf16::from_f32(v)).collect::<Vec<_>>()),
            _ => Self::operand(values),
        }
    }

    fn result(elements: usize, element: usize) -> Self {
        Self {
            bytes: vec![Gpu::FILL; elements * element],
            element,
            is_result: true,
        }
    }
}

/// Converts elements of a dtype.
fn numbers(bytes: &[u8], dtype: DType) -> Vec<f32> {
    let halves = || bytes.as_chunks().0.iter().map(|&b| u16::from_ne_bytes(b));
    match dtype {
        DType::F16 => halves().map(|b| f16::from_bits(b).to_f32()).collect(),
        DType::BF16 => halves().map(|b| bf16::from_bits(b).to_f32()).collect(),
        _ => bytemuck::pod_collect_to_vec(bytes),
    }
}

/// Rounds the values to the dtype.
fn rounded(values: &[f32], dtype: DType) -> Vec<f32> {
    numbers(&Part::numbers(values, dtype).bytes, dtype)
}

/// Returns pseudo-random values in ±`spread`.
fn random(count: usize, seed: usize, spread: f32) -> Vec<f32> {
    let mut state = seed as u64 * 0x9e37_79b9 + 1;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((state >> 40) as f32 / (1 << 23) as f32 - 1.0) * spread
    };
    (0..count).map(|_| next()).collect()
}

struct Gpu {
    device: Device,
    stream: Stream,
}

impl Gpu {
    /// Bytes between parts that must not be written.
    const GUARD: usize = 256;
    const FILL: u8 = 0xa5;

    /// Returns the GPU that the environment names.
    fn get() -> Option<Self> {
        if env::var_os(DEVICE).is_none() {
            eprintln!("skipped: {DEVICE} is not set");
            return None;
        }
        let device = Runtime::open().unwrap().device(0).unwrap();
        let stream = device.stream().unwrap();
        Some(Self { device, stream })
    }

    /// Returns true if the GPU's E4M3 is FNUZ.
    fn is_fnuz(&self) -> bool {
        matches!(self.device.properties().arch(), "gfx940" | "gfx941" | "gfx942")
    }

    /// Launches `call` with the addresses of `parts`, each `shift` elements beyond an aligned address. Returns the results.
    fn run<const N: usize>(
        &self,
        dtype: DType,
        parts: &[Part; N],
        shift: usize,
        call: impl FnOnce([DeviceAddress; N]) -> Result<KernelCall, KernelError>,
    ) -> Vec<Vec<u8>> {
        let mut memory = Vec::new();
        let at = parts.each_ref().map(|part| {
            memory.resize(
                memory.len().next_multiple_of(256) + Self::GUARD + shift * part.element,
                Self::FILL,
            );
            memory.extend_from_slice(&part.bytes);
            memory.len() - part.bytes.len()
        });
        memory.resize(memory.len() + Self::GUARD, Self::FILL);
        let mut buffer = self.stream.upload(&memory).unwrap();
        let call = call(at.map(|at| buffer.address().offset(at))).unwrap();
        let kernels = Kernels::load(&self.device, dtype, [call.unit().unwrap()]).unwrap();
        call.launch(&kernels, &self.stream, &[buffer.writing()]).unwrap();
        let mut left = buffer.read().unwrap();
        let mut results = Vec::new();
        for (part, at) in parts.iter().zip(at).filter(|(part, _)| part.is_result) {
            let range = at..at + part.bytes.len();
            results.push(left[range.clone()].to_vec());
            left[range.clone()].copy_from_slice(&memory[range]);
        }
        let changed = left.iter().zip(&memory).position(|(left, before)| left != before);
        assert_eq!(
            changed, None,
            "{call:?} changed a byte that is no result, parts at {at:?}"
        );
        results
    }
}
