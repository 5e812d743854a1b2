//! Measures how many training images per second a loader prepares, with random crops of padded images and flips.
//!
//! ```sh
//! cargo run --release -p hipvit-data --example feed -- DATA [THREADS] [BATCH]
//! ```

use std::env;
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hipvit_data::augment::{Augmentation, PaddingMode, RandomCrop, Transform};
use hipvit_data::{Loader, LoaderOptions, Position, Sampler, open};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [data, rest @ ..] = &arguments[..] else {
        return Err("usage: feed DATA [THREADS] [BATCH]".into());
    };
    let mut options = LoaderOptions::default();
    if let Some(threads) = rest.first() {
        options.threads = threads.parse()?;
    }
    let batch = rest.get(1).map_or(Ok(128), |batch| batch.parse())?;
    let train = open(data)?.train;
    let size = train.decode(0, options.decode)?;
    let crop = RandomCrop {
        size: [size.height, size.width],
        padding: 2,
        mode: PaddingMode::Constant,
        fill: [0; 3],
    };
    let transforms = vec![Transform::RandomCrop(crop), Transform::HorizontalFlip(0.5)];
    let sampler = Sampler::new(train.len(), batch, 0)?;
    let prepare = Arc::new(Augmentation::new(transforms)?);
    let threads = options.threads;
    let loader = Loader::new(train, sampler, prepare, options, Position::default())?;
    let (mut images, begun) = (0, Instant::now());
    for batch in loader {
        images += batch?.len();
        if begun.elapsed() >= Duration::from_secs(3) {
            break;
        }
    }
    let rate = images as f64 / begun.elapsed().as_secs_f64();
    println!("{threads} threads, batches of {batch}: {rate:.0} images/s");
    Ok(())
}
