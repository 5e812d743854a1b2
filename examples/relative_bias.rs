//! Learns the relative bias of attention on a GPU: a table with an element for each distance of two patches, and each head.
//!
//! The target is attention with another table. Each step computes attention, the gradient of the mean squared error, and the derivative of
//! attention, which includes the gradient of the table. The kernels are compiled on first use.
//!
//!     cargo run --release --example relative_bias
//!     HIPVIT_PROVIDER=emu:gfx1100 cargo run --release --example relative_bias    # on an emulated GPU

use std::error::Error;

use hipvit::DType;
use hipvit::attention::{GpuAttention, Pattern, scores};
use hipvit::hip::{Device, Runtime};
use hipvit::ops::{AttentionOperands, PatternAttention};

const IMAGES: usize = 4;
const GRID: usize = 4;
const TOKENS: usize = GRID * GRID;
const HEADS: usize = 2;
const CHANNELS: usize = HEADS * 16;
/// Elements of the table.
const TABLE: usize = (2 * GRID - 1) * (2 * GRID - 1) * HEADS;

/// Returns values between −1 and 1.
fn noise(count: usize, seed: usize) -> Vec<f32> {
    let value = |i: usize| ((i + seed * 1013) * 7919 % 1009) as f32 / 504.5 - 1.0;
    (0..count).map(value).collect()
}

/// Trains for some steps. Returns the mean squared error before each.
///
/// # Errors
///
/// Errors of the compiler and the driver.
pub(crate) fn train(device: &Device, steps: usize) -> Result<Vec<f32>, Box<dyn Error>> {
    let grid = [GRID as i32; 2];
    let pattern = Pattern::new().with_score(scores::relative_bias(scores::score(), "table", grid));
    let op = PatternAttention {
        log_sum_exp: true,
        ..PatternAttention::new((HEADS, 16), 0.25, AttentionOperands::PackedQkv, &pattern)?
    };
    let shapes: [&[usize]; 2] = [&[IMAGES, TOKENS, 3 * CHANNELS], &[TABLE / HEADS, HEADS]];
    let attention = GpuAttention::new(device, DType::F32, &op, &shapes)?;

    let stream = device.stream()?;
    let elements = IMAGES * TOKENS * CHANNELS;
    let qkv = stream.upload(&noise(3 * elements, 1))?;
    let mut out = stream.allocate::<f32>(elements)?;
    let mut log_sum_exp = stream.allocate::<f32>(IMAGES * HEADS * TOKENS)?;
    let mut d_qkv = stream.allocate::<f32>(3 * elements)?;
    let mut d_table = stream.allocate::<f32>(TABLE)?;

    let target = stream.upload(&noise(TABLE, 2))?;
    let operands = [qkv.reading(), target.reading()];
    attention.forward(&stream, &operands, &[out.writing(), log_sum_exp.writing()])?;
    let target = out.read()?;

    let mut table = vec![0.0; TABLE];
    let mut errors = Vec::with_capacity(steps);
    for _ in 0..steps {
        let on_gpu = stream.upload(&table)?;
        let operands = [qkv.reading(), on_gpu.reading()];
        attention.forward(&stream, &operands, &[out.writing(), log_sum_exp.writing()])?;
        let differences: Vec<f32> = out.read()?.iter().zip(&target).map(|(a, b)| a - b).collect();
        errors.push(differences.iter().map(|d| d * d).sum::<f32>() / elements as f32);
        let scale = 2.0 / elements as f32;
        let d_out = stream.upload(&differences.iter().map(|d| scale * d).collect::<Vec<f32>>())?;
        let operands = [
            qkv.reading(),
            on_gpu.reading(),
            out.reading(),
            log_sum_exp.reading(),
            d_out.reading(),
        ];
        attention.backward(&stream, &operands, &[d_qkv.writing(), d_table.writing()])?;
        let gradient = d_table.read()?;
        table
            .iter_mut()
            .zip(&gradient)
            .for_each(|(x, dx)| *x -= RATE * dx);
    }
    Ok(errors)
}

const RATE: f32 = 100.0;

#[allow(dead_code, reason = "tests include this file")]
fn main() -> Result<(), Box<dyn Error>> {
    let device = Runtime::open()?.device(0)?;
    println!("{}", device.name());
    for (step, error) in train(&device, 100)?.iter().enumerate().step_by(10) {
        println!("step {step:3}: mean squared error {error:.6}");
    }
    Ok(())
}
