#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::sync::Arc;

use hipvit_image::{Filter, Preprocess, Rescale, Resize, RgbImage, ValueRule};

use crate::augment::{RandomCrop, RandomErasing};
use crate::mix::{MixMode, Mixup};
use crate::random::Stream;
use crate::*;

const IMAGES: usize = 23;

/// Images of 8 × 8 pixels. Those whose index is in `broken` cannot be decoded.
#[derive(Debug)]
struct Set {
    images: InMemory,
    broken: Vec<usize>,
}

fn set(broken: &[usize]) -> Arc<dyn Dataset> {
    let pixels = (0..IMAGES * 8 * 8 * 3).map(|at| (at * 31 % 251) as u8).collect();
    let labels = (0..IMAGES).map(|index| index % 5).collect();
    let classes = ["a", "b", "c", "d", "e"].map(String::from).to_vec();
    Arc::new(Set {
        images: InMemory::new("set", [8, 8], pixels, labels, classes).unwrap(),
        broken: broken.to_vec(),
    })
}

impl Dataset for Set {
    fn len(&self) -> usize {
        self.images.len()
    }

    fn classes(&self) -> &[String] {
        self.images.classes()
    }

    fn label(&self, index: usize) -> usize {
        self.images.label(index)
    }

    fn name(&self, index: usize) -> String {
        self.images.name(index)
    }

    fn read(&self, index: usize) -> Result<Content> {
        if self.broken.contains(&index) {
            return Ok(Content::Encoded(b"GIF89a".to_vec()));
        }
        self.images.read(index)
    }
}

fn rule() -> Preprocess {
    let exact = Resize::Exact { height: 8, width: 8 };
    let values = ValueRule {
        rescale: Rescale::DivideBy255,
        normalize: Some(([0.5; 3], [0.25; 3])),
    };
    Preprocess::new(Some((exact, Filter::Bilinear)), None, values).unwrap()
}

fn augmentation() -> Arc<dyn Prepare> {
    let crop = RandomCrop {
        size: [8, 8],
        padding: 2,
        ..RandomCrop::default()
    };
    let transforms = vec![Transform::RandomCrop(crop), Transform::HorizontalFlip(0.5)];
    Arc::new(Augmentation::new(transforms).unwrap())
}

fn options(threads: usize) -> LoaderOptions {
    LoaderOptions {
        threads,
        mixup: Some(Mixup::default()),
        erasing: Some(RandomErasing::default()),
        end: Some(2),
        ..LoaderOptions::default()
    }
}

fn load(sampler: &Sampler, options: LoaderOptions, start: Position) -> Vec<Batch> {
    let loader = Loader::new(set(&[]), sampler.clone(), augmentation(), options, start).unwrap();
    loader.map(Result::unwrap).collect()
}

fn assert_equal(left: &Batch, right: &Batch) {
    assert_eq!(left.samples, right.samples);
    assert_eq!(left.labels, right.labels);
    assert_eq!(left.mixtures, right.mixtures);
    assert_eq!(left.erasures, right.erasures);
    assert_eq!(left.pixels, right.pixels);
}

#[test]
fn threads_do_not_affect_batches() {
    let sampler = Sampler::new(IMAGES, 4, 3).unwrap();
    let one = load(&sampler, options(1), Position::default());
    assert_eq!(one.len(), 10);
    assert_ne!(one[0].samples, one[5].samples);
    for threads in [2, 7] {
        let several = load(&sampler, options(threads), Position::default());
        assert_eq!(several.len(), one.len());
        one.iter()
            .zip(&several)
            .for_each(|(one, several)| assert_equal(one, several));
    }
}

#[test]
fn original_sizes_are_those_before_the_images_are_prepared() {
    let classes = vec![String::from("a")];
    let images = InMemory::new("set", [12, 6], vec![9; 3 * 12 * 6 * 3], vec![0; 3], classes).unwrap();
    let (sampler, rule) = (Sampler::new(3, 3, 3).unwrap(), Arc::new(rule()));
    let options = LoaderOptions::default();
    let mut loader = Loader::new(Arc::new(images), sampler, rule, options, Position::default()).unwrap();
    let batch = loader.next().unwrap().unwrap();
    assert_eq!((batch.size, batch.original_sizes), ([8, 8], vec![[12, 6]; 3]));
}

#[test]
fn loading_resumes_at_any_position() {
    let sampler = Sampler::new(IMAGES, 4, 3).unwrap();
    let all = load(&sampler, options(2), Position::default());
    for stopped in 0..all.len() - 1 {
        let resumed = load(&sampler, options(2), all[stopped].next);
        assert_eq!(resumed.len(), all.len() - stopped - 1);
        assert_eq!(resumed[0].position, all[stopped].next);
        assert_equal(&resumed[0], &all[stopped + 1]);
    }
}

#[test]
fn ranks_load_the_batches_of_one_rank() {
    let sampler = Sampler::new(IMAGES, 4, 3).unwrap();
    let one = load(&sampler, options(2), Position::default());
    for rank in 0..2 {
        let shard = load(
            &sampler.clone().rank(rank, 2).unwrap(),
            options(2),
            Position::default(),
        );
        assert_eq!(shard.len(), 4);
        for (batch, shard) in shard.iter().enumerate() {
            // An epoch of one rank has five batches, the last of which two ranks leave out.
            assert_equal(shard, &one[batch / 2 * 5 + batch % 2 * 2 + rank]);
        }
    }
}

#[test]
fn repeats_are_augmented_differently() {
    let sampler = Sampler::new(IMAGES, 6, 1).unwrap().repeats(3).unwrap();
    let options = LoaderOptions {
        end: Some(1),
        threads: 2,
        ..LoaderOptions::default()
    };
    let batches = load(&sampler, options, Position::default());
    let different = batches
        .iter()
        .flat_map(|batch| batch.pixels.chunks(3 * 8 * 8 * 3))
        .filter(|repeats| {
            let images: Vec<&[u8]> = repeats.chunks(8 * 8 * 3).collect();
            images[0] != images[1] || images[1] != images[2]
        });
    assert_eq!(different.count(), 6);
}

#[test]
fn broken_images_are_named_replaced_or_left_out() {
    let sampler = Sampler::sequential(IMAGES, 4).unwrap();
    let load = |on_broken, broken: &[usize]| -> Vec<Result<Batch>> {
        let options = LoaderOptions {
            on_broken,
            threads: 3,
            end: Some(1),
            ..LoaderOptions::default()
        };
        let loader = Loader::new(
            set(broken),
            sampler.clone(),
            augmentation(),
            options,
            Position::default(),
        );
        loader.unwrap().collect()
    };
    let failed = load(OnBroken::Fail, &[5]);
    assert_eq!(failed.len(), 6);
    let error = failed[1].as_ref().unwrap_err().to_string();
    assert!(error.starts_with("set#5: "), "{error}");
    assert!(failed[0].is_ok() && failed[2].is_ok());

    let places = |batch: &Result<Batch>| -> Vec<usize> {
        let samples = &batch.as_ref().unwrap().samples;
        samples.iter().map(|sample| sample.index).collect()
    };
    let replaced = load(OnBroken::Replace, &[5, 7]);
    assert_eq!(places(&replaced[1]), [4, 6, 6, 4]);
    let batch = replaced[1].as_ref().unwrap();
    assert_eq!(batch.labels, [4, 1, 1, 4]);
    let named: Vec<usize> = batch.broken.iter().map(|broken| broken.index).collect();
    assert_eq!(named, [5, 7]);
    assert!(load(OnBroken::Replace, &[4, 5, 6, 7])[1].is_err());

    let smaller = load(OnBroken::Omit, &[5, 20, 21, 22]);
    assert_eq!(places(&smaller[1]), [4, 6, 7]);
    let last = smaller[5].as_ref().unwrap();
    assert_eq!((last.len(), last.pixels.len(), last.broken.len()), (0, 0, 3));
}

#[test]
fn images_of_different_sizes_are_refused_by_name() {
    #[derive(Debug)]
    struct Grow;
    impl Prepare for Grow {
        fn prepare(&self, image: RgbImage, _: &mut Stream) -> Result<RgbImage> {
            let width = 1 + usize::from(image.data[0] % 8);
            Ok(hipvit_image::resize(&image, width, 4, Filter::Nearest)?)
        }
    }
    let sampler = Sampler::sequential(IMAGES, 8).unwrap();
    let loader = Loader::new(
        set(&[]),
        sampler,
        Arc::new(Grow),
        LoaderOptions::default(),
        Position::default(),
    );
    let error = loader.unwrap().next().unwrap().unwrap_err().to_string();
    assert!(
        error.starts_with("set#1: is ") && error.contains("first image"),
        "{error}"
    );
}

#[test]
fn a_panic_of_a_thread_is_an_error() {
    #[derive(Debug)]
    struct Panic;
    impl Prepare for Panic {
        fn prepare(&self, _: RgbImage, _: &mut Stream) -> Result<RgbImage> {
            panic!("a panic of the test")
        }
    }
    let sampler = Sampler::sequential(IMAGES, 8).unwrap();
    let mut loader = Loader::new(
        set(&[]),
        sampler,
        Arc::new(Panic),
        LoaderOptions::default(),
        Position::default(),
    )
    .unwrap();
    assert!(matches!(loader.next(), Some(Err(Error::Panicked))));
    assert!(loader.next().is_none());
}

#[test]
fn the_queue_is_bounded_and_a_loader_can_be_dropped() {
    let sampler = Sampler::new(IMAGES, 4, 0).unwrap();
    let options = LoaderOptions {
        threads: 2,
        ahead: 2,
        ..LoaderOptions::default()
    };
    let mut loader = Loader::new(
        set(&[]),
        sampler.clone(),
        augmentation(),
        options,
        Position::default(),
    )
    .unwrap();
    // Without an end there are always more batches.
    for _ in 0..12 {
        loader.next().unwrap().unwrap();
        let state = loader.shared.state.lock();
        assert!(state.started - state.taken <= 2);
    }
    drop(loader);
    // A rank without batches evaluates nothing.
    let empty = Sampler::sequential(3, 4).unwrap().rank(1, 2).unwrap();
    let mut loader = Loader::new(
        set(&[]),
        empty,
        augmentation(),
        self::options(1),
        Position::default(),
    )
    .unwrap();
    assert!(loader.next().is_none());
    for (options, sampler) in [
        (self::options(0), sampler),
        (self::options(1), Sampler::new(IMAGES, 5, 0).unwrap()),
        (self::options(1), Sampler::new(IMAGES, IMAGES + 1, 0).unwrap()),
    ] {
        assert!(Loader::new(set(&[]), sampler, augmentation(), options, Position::default()).is_err());
    }
}

#[test]
fn a_batch_becomes_floats_and_targets() {
    let rule = rule();
    let sampler = Sampler::new(IMAGES, 4, 3).unwrap();
    for batch in load(&sampler, options(2), Position::default()) {
        let planes = batch.planes(&rule).unwrap();
        let erased = batch.erasures.iter().flatten().next();
        if let Some(erasure) = erased.filter(|_| !batch.erasures[0].is_empty()) {
            assert_eq!(planes[erasure.top * 8 + erasure.left], 0.0);
        } else {
            let expected = (f32::from(batch.pixels[1]) / 255.0 - 0.5) / 0.25;
            assert!((planes[64] - expected).abs() < 1e-5);
        }
        let targets = batch.targets(5, 0.1);
        assert_eq!(targets.len(), 4 * 5);
        for target in targets.chunks(5) {
            assert!((target.iter().sum::<f32>() - 1.0).abs() < 1e-6);
        }
        let weight = batch.mixtures[0].weight as f32;
        let (own, other) = (batch.labels[0], batch.labels[3]);
        if own != other {
            assert!((targets[own] - (0.9 * weight + 0.02)).abs() < 1e-6);
        }
    }
}

#[test]
fn shares_of_a_batch_are_parts_of_the_whole_batch() {
    let sampler = Sampler::new(IMAGES, 10, 3).unwrap();
    let rule = rule();
    for mixup in [
        None,
        Some(MixMode::Batch),
        Some(MixMode::Pair),
        Some(MixMode::Elem),
    ] {
        let options = |share| LoaderOptions {
            mixup: mixup.map(|mode| Mixup {
                mode,
                ..Mixup::default()
            }),
            share,
            ..options(3)
        };
        let whole = load(&sampler, options(None), Position::default());
        // With five shares, the third one has both images of its pairs.
        for count in [1, 2, 5] {
            let mut shares: Vec<_> = (0..count)
                .map(|number| {
                    let share = Some(Share { number, count });
                    load(&sampler, options(share), Position::default()).into_iter()
                })
                .collect();
            for whole in &whole {
                let parts: Vec<Batch> = shares.iter_mut().map(|share| share.next().unwrap()).collect();
                let what = format!("{mixup:?}, {count} shares");
                let joined =
                    |of: &dyn Fn(&Batch) -> Vec<f32>| parts.iter().flat_map(of).collect::<Vec<f32>>();
                assert!(
                    joined(&|part| part.planes(&rule).unwrap()) == whole.planes(&rule).unwrap(),
                    "{what}"
                );
                assert_eq!(
                    joined(&|part| part.targets(5, 0.1)),
                    whole.targets(5, 0.1),
                    "{what}"
                );
                let samples: Vec<Sample> = parts.iter().flat_map(|part| part.samples.clone()).collect();
                assert_eq!(samples, whole.samples, "{what}");
                assert!(parts.iter().all(|part| part.original_sizes.len() == part.len()));
            }
            assert!(shares.iter_mut().all(|share| share.next().is_none()));
        }
    }
    for share in [Share { number: 0, count: 3 }, Share { number: 2, count: 2 }] {
        let options = LoaderOptions {
            share: Some(share),
            ..options(1)
        };
        let loader = Loader::new(
            set(&[]),
            sampler.clone(),
            augmentation(),
            options,
            Position::default(),
        );
        assert!(loader.is_err());
    }
}

/// A broken image that another share mixes is reported once.
#[test]
fn a_broken_image_is_reported_by_its_share() {
    let sampler = Sampler::new(IMAGES, 10, 3).unwrap();
    let reported = |number| {
        let options = LoaderOptions {
            on_broken: OnBroken::Replace,
            share: Some(Share { number, count: 2 }),
            ..options(2)
        };
        let loader = Loader::new(
            set(&[4]),
            sampler.clone(),
            augmentation(),
            options,
            Position::default(),
        );
        loader
            .unwrap()
            .map(|batch| batch.unwrap().broken.len())
            .sum::<usize>()
    };
    let occurs = (0..2)
        .filter(|&epoch| sampler.order(epoch)[..20].contains(&4))
        .count();
    assert!(occurs > 0);
    assert_eq!(reported(0) + reported(1), occurs);
}
