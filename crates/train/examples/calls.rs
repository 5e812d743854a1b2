//! Runs each kernel and library call of a training step once on a GPU, and prints its device time in microseconds. On an emulated GPU with
//! `HIP_EMU_PROFILE`, `ci/predict` counts what the kernels do.
//!
//! ```sh
//! cargo run -p hipvit-train --example calls -- MODEL BATCH DTYPE
//! ```

use std::env;
use std::error::Error;
use std::path::Path;

use hipvit::Device;
use hipvit::model::Checkpoint;
use hipvit_train::{TensorRule, TrainOptions, Trainer};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [model, batch, dtype] = &arguments[..] else {
        return Err("usage: calls MODEL BATCH DTYPE".into());
    };
    let checkpoint = Checkpoint::open(Some(Path::new(model)))?;
    let options = TrainOptions {
        device: Device::Hip(0),
        dtype: dtype.parse()?,
        clip_norm: Some(1.0),
        ..TrainOptions::default()
    };
    let mut trainer = Trainer::new(checkpoint, options, &|_| TensorRule::default())?;
    for call in trainer.time_calls(batch.parse()?)? {
        let shape = call.shape.unwrap_or_default();
        println!("{:10.1}  {} {shape}", call.time.as_secs_f64() * 1e6, call.name);
    }
    Ok(())
}
