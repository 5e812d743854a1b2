//! Times what feeds the steps of a training: `cargo bench -p hipvit-train --bench feed -- MODEL DATA [BATCH [SECONDS [DTYPE [DEVICE
//! [RECIPE]]]]]`. Prints a line of JSON with images per second for each of:
//!
//! | `feed` | what is timed |
//! | --- | --- |
//! | `decode` | the loader's threads decode |
//! | `host` | they decode and augment; with erasing, the consumer normalises |
//! | `device` | they decode and draw parameters; the GPU augments, and computes no steps |
//! | `step` | steps on images in the memory of the GPU |
//! | `train host`, `train device` | all of it, one step ahead of the GPU, as `hipvit train` |
//!
//! The images of DATA are repeated until they are at least 64 batches. Without RECIPE the augmentation is timm's of ViTs: random crops,
//! flips, `rand-m9-mstd0.5-inc1`, erasing, mixup and CutMix.

use std::env;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hipvit::Device;
use hipvit::hip::{ForeignMemory, Runtime};
use hipvit::image::{Preprocess, RgbImage};
use hipvit::model::{Checkpoint, InputKind};
use hipvit::tensor::Input;
use hipvit_data::random::Stream;
use hipvit_data::{Batch, Content, Dataset, Loader, LoaderOptions, Position, Prepare, Sampler, open};
use hipvit_train::recipe::{Augmentation, Crop, Policy, Recipe};
use hipvit_train::{DeviceAugmentation, StepImages, TensorRule, TrainOptions, Trainer, TrainingImages};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const DEFAULTS: [&str; 4] = ["128", "10", "bf16", "hip"];

fn main() -> Result<()> {
    // Cargo passes --bench.
    let arguments: Vec<String> = env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
        .collect();
    let [model, data, rest @ ..] = arguments.as_slice() else {
        println!("skipped: no model and no data were given");
        return Ok(());
    };
    let argument = |index: usize| rest.get(index).map_or(DEFAULTS[index], String::as_str);
    let keys = match rest.get(4) {
        Some(recipe) => Recipe::open(Path::new(recipe))?.augmentation,
        None => augmentation()?,
    };
    let device: Device = argument(3).parse()?;
    let options = TrainOptions {
        dtype: argument(2).parse()?,
        device,
        input: if keys.erasing > 0.0 {
            InputKind::PixelValues
        } else {
            InputKind::Pixels
        },
        clip_norm: Some(1.0),
        ..TrainOptions::default()
    };
    let trainer = Trainer::new(Checkpoint::open(Some(Path::new(model)))?, options, &|_| {
        TensorRule::default()
    })?;
    let (height, width) = trainer.preprocess().output_size();
    let rule = trainer.preprocess().for_image(height, width)?;
    let batch = argument(0).parse()?;
    let dataset = open(data)?.train;
    let mut feed = Feed {
        dataset: Arc::new(Repeated {
            len: dataset.len().max(64 * batch),
            dataset,
        }),
        prepare: Arc::new(TrainingImages::new(&keys, &rule)?),
        rule,
        keys,
        batch,
        time: Duration::from_secs_f64(argument(1).parse()?),
        trainer,
    };
    feed.print("decode", feed.decode()?);
    feed.print("host", feed.host()?);
    let gpu = match device {
        Device::Hip(number) => Some(Runtime::open()?.device(number)?),
        _ => None,
    };
    let Some(gpu) = gpu else {
        let rate = feed.train(None)?;
        feed.print("train host", rate);
        return Ok(());
    };
    let mut augment = DeviceAugmentation::new(&gpu, &feed.rule, feed.keys.erasing > 0.0)?;
    let (rate, images) = feed.device(&mut augment)?;
    feed.print("device", rate);
    let rate = feed.steps(&images)?;
    feed.print("step", rate);
    for (what, augment) in [("train host", None), ("train device", Some(&mut augment))] {
        let rate = feed.train(augment)?;
        feed.print(what, rate);
    }
    Ok(())
}

/// Returns the augmentation of timm's recipes for ViTs.
fn augmentation() -> Result<Augmentation> {
    Ok(Augmentation {
        crop: Crop::RandomResized,
        flip: 0.5,
        policy: Policy::try_from("rand-m9-mstd0.5-inc1".to_owned())?,
        erasing: 0.25,
        mixup: 0.8,
        cutmix: 1.0,
        ..Augmentation::default()
    })
}

/// What is timed.
struct Feed {
    dataset: Arc<dyn Dataset>,
    prepare: Arc<TrainingImages>,
    rule: Preprocess,
    keys: Augmentation,
    batch: usize,
    time: Duration,
    trainer: Trainer,
}

/// Time since the first batches.
struct Rate {
    images: usize,
    warm_up: usize,
    begun: Instant,
    time: Duration,
}

impl Rate {
    /// Counts a batch. Returns the images per second once the time is over.
    fn add(&mut self, images: usize) -> Option<f64> {
        if self.warm_up > 0 {
            self.warm_up -= 1;
            self.begun = Instant::now();
            return None;
        }
        self.images += images;
        let elapsed = self.begun.elapsed();
        (elapsed >= self.time).then(|| self.images as f64 / elapsed.as_secs_f64())
    }
}

impl Feed {
    fn print(&self, what: &str, rate: f64) {
        let threads = LoaderOptions::default().threads;
        println!(
            r#"{{"feed": "{what}", "batch": {}, "threads": {threads}, "images_per_second": {rate:.0}}}"#,
            self.batch
        );
    }

    fn rate(&self, warm_up: usize) -> Rate {
        Rate {
            images: 0,
            warm_up,
            begun: Instant::now(),
            time: self.time,
        }
    }

    fn loader(&self, prepare: Arc<dyn Prepare>, options: LoaderOptions) -> Result<Loader> {
        let sampler = Sampler::new(self.dataset.len(), self.batch, 0)?;
        let dataset = self.dataset.clone();
        Ok(Loader::new(
            dataset,
            sampler,
            prepare,
            options,
            Position::default(),
        )?)
    }

    fn augmenting(&self, draws: bool) -> Result<Loader> {
        let options = LoaderOptions {
            draws,
            ..TrainingImages::loader_options(&self.keys)
        };
        self.loader(self.prepare.clone(), options)
    }

    fn decode(&self) -> Result<f64> {
        let mut rate = self.rate(2);
        for batch in self.loader(Arc::new(Forget), LoaderOptions::default())? {
            if let Some(rate) = rate.add(batch?.len()) {
                return Ok(rate);
            }
        }
        Err("the loader has ended".into())
    }

    fn host(&self) -> Result<f64> {
        let mut rate = self.rate(2);
        for batch in self.augmenting(false)? {
            let batch = batch?;
            if self.keys.erasing > 0.0 {
                batch.planes(&self.rule)?;
            }
            if let Some(rate) = rate.add(batch.len()) {
                return Ok(rate);
            }
        }
        Err("the loader has ended".into())
    }

    /// Returns the rate, and the images of the last batch.
    fn device(&self, augment: &mut DeviceAugmentation) -> Result<(f64, ForeignMemory)> {
        let mut rate = self.rate(4);
        for batch in self.augmenting(true)? {
            let batch = batch?;
            let images = augment.images(&batch)?;
            images.stream().synchronize()?;
            if let Some(rate) = rate.add(batch.len()) {
                return Ok((rate, images));
            }
        }
        Err("the loader has ended".into())
    }

    fn steps(&mut self, images: &ForeignMemory) -> Result<f64> {
        let classes = self.trainer.classes();
        let mut targets = vec![0.0; self.batch * classes];
        targets
            .iter_mut()
            .step_by(classes)
            .for_each(|target| *target = 1.0);
        // Beyond the sixteenth replay, which is checked.
        let mut rate = self.rate(20);
        loop {
            self.trainer.submit(images.clone(), &targets, 1e-5)?;
            if self.trainer.in_flight() > 1 {
                self.trainer.finish()?;
                if let Some(rate) = rate.add(self.batch) {
                    self.trainer.finish()?;
                    return Ok(rate);
                }
            }
        }
    }

    fn train(&mut self, mut augment: Option<&mut DeviceAugmentation>) -> Result<f64> {
        let mut rate = self.rate(20);
        for batch in self.augmenting(augment.is_some())? {
            let batch: Batch = batch?;
            let targets = batch.targets(self.trainer.classes(), 0.1);
            let planes;
            let images: StepImages<'_> = match &mut augment {
                Some(augment) => augment.images(&batch)?.into(),
                None if self.keys.erasing > 0.0 => {
                    planes = batch.planes(&self.rule)?;
                    Input::Values(&planes).into()
                }
                None => Input::Pixels(&batch.pixels).into(),
            };
            self.trainer.submit(images, &targets, 1e-5)?;
            if self.trainer.in_flight() > 1 {
                self.trainer.finish()?;
                if let Some(rate) = rate.add(batch.len()) {
                    self.trainer.finish()?;
                    return Ok(rate);
                }
            }
        }
        Err("the loader has ended".into())
    }
}

/// Drops each image.
#[derive(Debug)]
struct Forget;

impl Prepare for Forget {
    fn prepare(&self, _: RgbImage, _: &mut Stream) -> hipvit_data::Result<RgbImage> {
        Ok(RgbImage::new(1, 1, vec![0; 3])?)
    }
}

/// A dataset that is repeated up to a length.
#[derive(Debug)]
struct Repeated {
    dataset: Arc<dyn Dataset>,
    len: usize,
}

impl Dataset for Repeated {
    fn len(&self) -> usize {
        self.len
    }

    fn classes(&self) -> &[String] {
        self.dataset.classes()
    }

    fn label(&self, index: usize) -> usize {
        self.dataset.label(index % self.dataset.len())
    }

    fn name(&self, index: usize) -> String {
        self.dataset.name(index % self.dataset.len())
    }

    fn read(&self, index: usize) -> hipvit_data::Result<Content> {
        self.dataset.read(index % self.dataset.len())
    }
}
