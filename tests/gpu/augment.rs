//! Training images that the GPU makes, beside those of the host.

use std::sync::Arc;

use hipvit::hip::{Device as Gpu, ForeignMemory};
use hipvit::image::{Filter, Preprocess, Rescale, Resize, RgbImage, ValueRule};
use hipvit::kernels::{AugmentKernels, AugmentOperands, PixelOp};
use hipvit_data::augment::{
    AffineStyle, Augmentation, AutoAugment, ColorJitter, EraseMode, Interpolation, PaddingMode, RandAugment,
    RandomCrop, RandomErasing, RandomResizedCrop, TimmRandAugment, Transform, TrivialAugmentWide,
};
use hipvit_data::mix::{MixMode, Mixup};
use hipvit_data::{
    Batch, Content, Dataset, Loader, LoaderOptions, Position, Prepare, Result, Sampler, Share,
};
use hipvit_train::{DeviceAugmentation, TrainingImages, recipe};

use crate::host::train::Set;
use crate::support::gpu::{device, gpu};
use crate::support::program::{hipvit, json, stderr, stdout};

/// Noise, gradients and flat images of all sizes up to 70 × 70 pixels. Every fifth one is grey.
#[derive(Debug)]
struct Images {
    count: usize,
    /// Height and width, if all images have the same.
    size: Option<[usize; 2]>,
    classes: Vec<String>,
}

impl Images {
    fn new(count: usize, size: Option<[usize; 2]>) -> Arc<Self> {
        let classes = vec!["one".into(), "two".into()];
        Arc::new(Self { count, size, classes })
    }
}

impl Dataset for Images {
    fn len(&self) -> usize {
        self.count
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn label(&self, index: usize) -> usize {
        index % 2
    }

    fn name(&self, index: usize) -> String {
        format!("image {index}")
    }

    fn read(&self, index: usize) -> Result<Content> {
        let mut state = index as u64 + 1;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 40) as usize
        };
        let awkward = [1, 63, 64, 65];
        let side = |random: usize| {
            if random.is_multiple_of(5) {
                awkward[random / 5 % 4]
            } else {
                random / 5 % 40 + 2
            }
        };
        let [height, width] = self.size.unwrap_or([side(random()), side(random())]);
        let (low, range) = (random() % 256, random() % 256 + 1);
        let data = (0..height * width * 3).map(|at| {
            let (pixel, channel) = if index.is_multiple_of(5) {
                (at / 3, 0)
            } else {
                (at, at % 3)
            };
            match index % 4 {
                0 => (low + pixel * 2654435761 / 65536 % range).min(255) as u8,
                1 => (random() % 256) as u8,
                2 => (at / 3 / width * 255 / height + channel * 40).min(255) as u8,
                _ => (low + channel * range / 4).min(255) as u8,
            }
        });
        let mut data: Vec<u8> = data.collect();
        if index.is_multiple_of(5) {
            data.as_chunks_mut::<3>()
                .0
                .iter_mut()
                .for_each(|pixel| *pixel = [pixel[0]; 3]);
        }
        Ok(Content::Decoded(RgbImage::new(width, height, data)?))
    }
}

fn rule([height, width]: [usize; 2]) -> Preprocess {
    let values = ValueRule {
        rescale: Rescale::DivideBy255,
        normalize: Some(([0.5, 0.4, 0.3], [0.2, 0.3, 0.4])),
    };
    Preprocess::new(
        Some((Resize::Exact { height, width }, Filter::Bicubic)),
        None,
        values,
    )
    .unwrap()
}

/// Returns the batches of an epoch.
fn batches(
    images: &Arc<Images>,
    batch: usize,
    prepare: Arc<dyn Prepare>,
    options: &LoaderOptions,
    draws: bool,
) -> Vec<Batch> {
    let options = LoaderOptions {
        threads: 2,
        end: Some(1),
        draws,
        ..options.clone()
    };
    let sampler = Sampler::new(images.count, batch, 5).unwrap();
    let loader = Loader::new(images.clone(), sampler, prepare, options, Position::default()).unwrap();
    loader.map(|batch| batch.unwrap()).collect()
}

/// Reads back what a GPU has made, with bytes before and after it that must stay.
fn read(gpu: &Gpu, memory: &ForeignMemory) -> Vec<u8> {
    const BESIDE: usize = 64;
    let stream = gpu.stream().unwrap();
    let mut buffer = stream
        .upload(&vec![0xA5_u8; memory.bytes() + 2 * BESIDE])
        .unwrap();
    let mut copies = buffer.uploads_on(memory.stream()).unwrap();
    copies.push_foreign(BESIDE, memory).unwrap();
    copies.finish().unwrap().wait().unwrap();
    let bytes = buffer.read().unwrap();
    let (before, rest) = bytes.split_at(BESIDE);
    let (made, after) = rest.split_at(memory.bytes());
    assert!(before.iter().chain(after).all(|&byte| byte == 0xA5));
    made.to_vec()
}

/// Compares all batches, of which each has the mixtures and rectangles of `options`. Returns the number of images.
#[track_caller]
fn compare(
    gpu: &Gpu,
    images: &Arc<Images>,
    (batch, size): (usize, [usize; 2]),
    prepare: impl Prepare + 'static,
    options: &LoaderOptions,
) -> usize {
    let (rule, prepare) = (rule(size), Arc::new(prepare));
    let mut bytes = DeviceAugmentation::new(gpu, &rule, false).unwrap();
    let mut planes = DeviceAugmentation::new(gpu, &rule, true).unwrap();
    let host = batches(images, batch, prepare.clone(), options, false);
    let drawn = batches(images, batch, prepare, options, true);
    assert_eq!(host.len(), drawn.len());
    for (number, (host, mut drawn)) in host.iter().zip(drawn).enumerate() {
        assert!(drawn.pixels.is_empty() && drawn.drawn.is_some());
        assert_eq!((host.size, &host.labels), (drawn.size, &drawn.labels));
        if options.erasing.is_some() {
            let got = read(gpu, &planes.images(&drawn).unwrap());
            let expected = host.planes(&rule).unwrap();
            assert_eq!(
                got,
                bytemuck::cast_slice::<f32, u8>(&expected),
                "planes of batch {number}"
            );
            drawn.erasures.clear();
        }
        let got = read(gpu, &bytes.images(&drawn).unwrap());
        let wrong = got.iter().zip(&host.pixels).position(|(a, b)| a != b);
        let place = wrong.map(|at| {
            let image = at / (size[0] * size[1] * 3);
            let operations = &drawn.drawn.as_ref().unwrap().images[image].operations;
            (
                image,
                at % (size[0] * size[1] * 3),
                got[at],
                host.pixels[at],
                operations.clone(),
            )
        });
        assert_eq!(
            (got.len(), place),
            (host.pixels.len(), None),
            "batch {number}: image, byte, got, expected, operations"
        );
    }
    host.iter().map(Batch::len).sum()
}

fn resized(size: [usize; 2], filter: Filter) -> Transform {
    Transform::RandomResizedCrop(RandomResizedCrop {
        size,
        filter,
        ..RandomResizedCrop::default()
    })
}

/// Every transform of a recipe, and more interpolations than recipes have.
fn transforms(size: [usize; 2]) -> Vec<Vec<Transform>> {
    let styles = [
        Interpolation::Nearest,
        Interpolation::Bilinear,
        Interpolation::Bicubic,
    ];
    let styles = styles.map(|interpolation| AffineStyle {
        interpolation,
        fill: [12, 34, 250],
    });
    let crop = Transform::RandomCrop(RandomCrop {
        size,
        padding: 4,
        mode: PaddingMode::Constant,
        fill: [0; 3],
    });
    let jitter = Transform::ColorJitter(ColorJitter {
        brightness: 0.9,
        contrast: 2.0,
        saturation: 1.5,
        hue: 0.5,
    });
    let mut all = vec![
        vec![],
        vec![
            Transform::HorizontalFlip(0.5),
            crop.clone(),
            Transform::HorizontalFlip(0.5),
            Transform::VerticalFlip(0.5),
            crop,
        ],
        vec![jitter],
        vec![Transform::TimmRandAugment(
            TimmRandAugment::parse("rand-m9-n3-mstd0.5-inc1").unwrap(),
        )],
        vec![Transform::TimmRandAugment(
            TimmRandAugment::parse("rand-m10-n2-mstd101").unwrap(),
        )],
    ];
    for style in styles {
        all.extend([
            vec![Transform::RandAugment(RandAugment {
                operations: 3,
                style,
                ..RandAugment::default()
            })],
            vec![Transform::AutoAugment(AutoAugment { style })],
            vec![Transform::TrivialAugmentWide(TrivialAugmentWide {
                style,
                ..TrivialAugmentWide::default()
            })],
        ]);
    }
    all
}

/// 1,000 draws of each transform. `HIPVIT_TEST_DRAWS` names another number.
#[test]
fn a_thousand_draws_of_each_transform_have_the_hosts_bytes() {
    let Some((device, _shared)) = device() else { return };
    let gpu = gpu(device);
    let draws = std::env::var("HIPVIT_TEST_DRAWS").map_or(1000, |draws| draws.parse().unwrap());
    let (images, size) = (Images::new(draws, None), [9, 14]);
    for (number, transforms) in transforms(size).into_iter().enumerate() {
        let filter = [Filter::Bilinear, Filter::Bicubic][number % 2];
        let all = std::iter::once(resized(size, filter)).chain(transforms).collect();
        let prepare = Augmentation::new(all).unwrap();
        let count = compare(&gpu, &images, (50, size), prepare, &LoaderOptions::default());
        assert_eq!(count, draws);
    }
}

/// One pixel, and sides beside the size of a wave; the resampling of evaluation instead of a random one.
#[test]
fn images_of_awkward_sizes_have_the_hosts_bytes() {
    let Some((device, _shared)) = device() else { return };
    let gpu = gpu(device);
    for size in [[1, 1], [1, 65], [63, 1], [2, 2], [64, 63], [65, 64]] {
        for (number, transforms) in transforms(size)
            .into_iter()
            .enumerate()
            .filter(|(n, _)| n % 2 == 0)
        {
            let images = Images::new(8, (number % 4 == 0).then_some(size));
            let all = std::iter::once(resized(size, Filter::Lanczos))
                .chain(transforms)
                .collect();
            let prepare = Augmentation::new(all).unwrap();
            compare(&gpu, &images, (4, size), prepare, &LoaderOptions::default());
        }
        let keys = recipe::Augmentation {
            crop: recipe::Crop::Padded,
            flip: 0.5,
            color_jitter: [0.4, 0.4, 0.4, 0.1],
            ..recipe::Augmentation::default()
        };
        let prepare = TrainingImages::new(&keys, &rule(size)).unwrap();
        compare(
            &gpu,
            &Images::new(8, None),
            (4, size),
            prepare,
            &LoaderOptions::default(),
        );
    }
}

/// Mixtures, also of a rank's share, and rectangles of all contents in normalised planes.
#[test]
fn mixtures_and_erased_rectangles_have_the_hosts_bits() {
    let Some((device, _shared)) = device() else { return };
    let gpu = gpu(device);
    let (images, size) = (Images::new(48, None), [13, 17]);
    let share = |number| Some(Share { number, count: 3 });
    for (mode, content, share) in [
        (MixMode::Batch, EraseMode::Const, None),
        (MixMode::Pair, EraseMode::Rand, share(0)),
        (MixMode::Elem, EraseMode::Pixel, share(1)),
        (MixMode::Elem, EraseMode::Rand, share(2)),
    ] {
        let options = LoaderOptions {
            mixup: Some(Mixup {
                probability: 0.8,
                mode,
                ..Mixup::default()
            }),
            erasing: Some(RandomErasing {
                probability: 0.8,
                mode: content,
                count: [1, 3],
                ..RandomErasing::default()
            }),
            share,
            ..LoaderOptions::default()
        };
        let transforms = vec![resized(size, Filter::Bilinear), Transform::HorizontalFlip(0.5)];
        let prepare = Augmentation::new(transforms).unwrap();
        let count = compare(&gpu, &images, (12, size), prepare, &options);
        assert_eq!(count, 48 / share.map_or(1, |share| share.count));
    }
}

/// Each operation writes its own image only, whatever is beside the memory.
#[test]
fn operations_write_nothing_beside_the_images() {
    const BESIDE: usize = 192;
    let Some((device, _shared)) = device() else { return };
    let gpu = gpu(device);
    let (stream, kernels) = (gpu.stream().unwrap(), AugmentKernels::load(&gpu).unwrap());
    let (fill, matrix) = ([1, 2, 3], [0.9, 0.2, -1.5, -0.3, 1.1, 2.5]);
    let operations = [
        PixelOp::Move {
            mirrored: [true, false],
            origin: [70, -3],
            fill,
        },
        PixelOp::Nearest {
            steps: [70_000, -9_000, 5_000, 60_000],
            start: [-80_000, 90_000],
            fill,
        },
        PixelOp::Bilinear { matrix, fill },
        PixelOp::Bicubic { matrix, fill },
        PixelOp::Sharpness(1.9),
        PixelOp::Brightness(0.5),
        PixelOp::Contrast(1.5),
        PixelOp::Saturation(0.5),
        PixelOp::Hue(200),
        PixelOp::Posterize(0xE0),
        PixelOp::Solarize(128.0),
        PixelOp::SolarizeAdd(30),
        PixelOp::Invert,
        PixelOp::Equalize,
        PixelOp::AutoContrast,
    ];
    for [height, width] in [[1, 1], [1, 63], [64, 1], [65, 2]] {
        let bytes = operations.len() * height * width * 3;
        let pixels: Vec<u8> = (0..bytes + 2 * BESIDE).map(|at| (at * 37 % 251) as u8).collect();
        let words: Vec<u64> = operations.iter().flat_map(PixelOp::words).collect();
        let starts: Vec<u32> = (0..=operations.len() as u32).collect();
        let mut input = stream.upload(&pixels).unwrap();
        let mut output = stream.upload(&pixels).unwrap();
        let [words, starts] = [
            bytemuck::cast_slice::<u64, u8>(&words),
            bytemuck::cast_slice(&starts),
        ]
        .map(|bytes| stream.upload(bytes).unwrap());
        let images = BESIDE..BESIDE + bytes;
        let operands = AugmentOperands {
            pixels: input.writing().part(images.clone()).unwrap(),
            out: output.writing().part(images.clone()).unwrap(),
            operations: words.reading(),
            starts: starts.reading(),
        };
        let geometry = [operations.len(), height, width];
        let fewer = AugmentOperands {
            starts: starts.reading().part(0..4).unwrap(),
            ..operands
        };
        assert!(kernels.augment(&stream, fewer, geometry).is_err());
        kernels.augment(&stream, operands, geometry).unwrap();
        let beside = |bytes: &[u8]| [&bytes[..BESIDE], &bytes[images.end..]].concat();
        let output = output.read().unwrap();
        assert_eq!(beside(&output), beside(&pixels));
        assert_eq!(beside(&input.read().unwrap()), beside(&pixels));
        // The image that is inverted.
        let image = height * width * 3;
        let inverted = BESIDE + 12 * image..BESIDE + 13 * image;
        let expected: Vec<u8> = pixels[inverted.clone()].iter().map(|byte| 255 - byte).collect();
        assert_eq!(output[inverted], expected);
    }
}

/// A run has the losses of the host bit for bit, with mixtures, erased rectangles, micro-batches and a broken image.
#[test]
fn runs_have_the_hosts_losses() {
    let Some((device, _shared)) = device() else { return };
    let set = Set::new();
    std::fs::write(set.path("data/train/1/05.png"), "broken").unwrap();
    let train = |name: &str, more: &[&str]| {
        let mut arguments = set.arguments(name, more);
        let on = arguments.iter_mut().find(|argument| **argument == *"cpu");
        *on.unwrap() = device.to_string().into();
        hipvit(arguments)
    };
    let common = "epochs = 2\nbatch = 16\n[schedule]\nwarmup_epochs = 0\n[augmentation]\nflip = 0.5\nmixup = 0.4\ncutmix = 0.5\n";
    for (name, keys, more) in [
        (
            "bytes",
            "crop = \"random_resized\"\npolicy = \"rand-m9-mstd0.5-inc1\"\n",
            "",
        ),
        (
            "planes",
            "crop = \"padded\"\ncolor_jitter = [0.4, 0.4, 0.4, 0.1]\nerasing = 0.5\n",
            "accumulate = 2\n",
        ),
    ] {
        let mut logs = Vec::new();
        for on in ["host", "device", "auto"] {
            set.write_recipe(&format!("{more}{common}{keys}on = \"{on}\"\n"));
            let name = format!("{name}-{on}");
            let output = train(&name, &["--skip-broken", "--json"]);
            // The broken image alone.
            assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
            assert!(stderr(&output).contains("1/05.png"), "{}", stderr(&output));
            assert_eq!(json(stdout(&output))["skipped"], 2);
            let is_noted = stderr(&output).contains("the GPU resizes and changes");
            assert_eq!(is_noted, on != "host", "{}", stderr(&output));
            logs.push(set.log(&name));
        }
        assert_eq!(logs[0].0.len(), 6);
        assert!(logs.iter().all(|log| *log == logs[0]), "{logs:?}");
    }
    let output = train("strict", &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("1/05.png"), "{}", stderr(&output));
    let output = set.train("cpu", &["--augment-on", "device"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("augmentation.on"), "{}", stderr(&output));
}
