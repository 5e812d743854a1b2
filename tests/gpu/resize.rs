//! Images that the GPU resizes.

use hipvit::exec::HipPreprocess;
use hipvit::image::{Crop, Filter, Limits, Preprocess, Rescale, Resize, RgbImage, Rounding, ValueRule};
use hipvit::pipeline::{Pipeline, Source};
use hipvit::timing::{Phase, Timing};
use hipvit::{ResizeOn, RunOptions, Session, digits};

use crate::support::gpu::{device, dtypes, gpu};
use crate::support::session::{pixels, run_pixels, same};

/// The place of resizing changes no bit: one by one in a pipeline, in batches, timed or not, for many sizes.
#[test]
fn images_resized_on_the_device_give_the_same_results() {
    let Some((device, _shared)) = device() else { return };
    let mut sources: Vec<Source> = digits::samples().collect();
    let sizes = [(257, 197), (63, 64), (1, 1), (65, 400), (500, 40)];
    sources.extend(sizes.map(|(width, height)| {
        let random = std::iter::successors(Some(1u32), |x| Some(x * 48_271 % 65_521)).map(|x| x as u8);
        let data = random.take(width * height * 3).collect();
        Source::Decoded("noise".into(), RgbImage::new(width, height, data).unwrap())
    }));
    let decoded = sources.iter().map(|s| s.decode(Limits::default()).unwrap());
    let images: Vec<RgbImage> = decoded.collect();
    for dtype in dtypes() {
        let builder = Session::builder().device(device).dtype(dtype).batch(5);
        let expected = builder.tinyvit32().unwrap().run(&images).unwrap();
        let session = builder.resize(ResizeOn::Device).tinyvit32().unwrap();
        assert_eq!(session.resize(), ResizeOn::Device);
        same(&session.run(&images).unwrap(), &expected);
        let mut timing = Timing::default();
        let options = RunOptions::new().timing(&mut timing);
        same(&session.run_with(&images, options).unwrap(), &expected);
        let phases = |timing: &Timing| timing.phases().map(|(phase, _)| phase).collect::<Vec<_>>();
        assert_eq!(phases(&timing)[0], Phase::DeviceResize);
        let mut results = Pipeline::new(&session).timed(true).run(sources.clone()).unwrap();
        let rows: Vec<_> = results
            .by_ref()
            .map(|item| item.unwrap().logits().unwrap().to_vec())
            .collect();
        let expected: Vec<_> = expected
            .logits()
            .unwrap()
            .rows()
            .into_iter()
            .map(|r| r.to_vec())
            .collect();
        assert_eq!(rows, expected);
        let phases = phases(results.timing());
        assert!(
            phases.contains(&Phase::DeviceResize) && !phases.contains(&Phase::Resize),
            "{phases:?}"
        );
        // Pixels of the model's size are copied as usual.
        let input = pixels(&session, 2);
        assert_eq!(run_pixels(&session, &input).len(), 2);
        println!("PASS {dtype:<4} resized on the device");
    }
}

/// Batches with more images than a slab of pinned memory holds, with an image that exceeds a slab, and with
/// images that cannot be decoded.
#[test]
fn decoded_images_of_any_size_are_resized_on_the_device() {
    let Some((device, _shared)) = device() else { return };
    let image = |width: usize, height: usize| {
        let data = (0..width * height * 3)
            .map(|at| (at * 7 + at / 911) as u8)
            .collect();
        RgbImage::new(width, height, data).unwrap()
    };
    let mut sources: Vec<Source> = Vec::new();
    for (width, height) in [
        (1500, 1000),
        (1024, 1024),
        (2100, 1400),
        (33, 20),
        (1201, 999),
        (64, 64),
    ] {
        sources.push(Source::Decoded("image".into(), image(width, height)));
        sources.push(Source::Bytes("damaged".into(), b"no image".as_slice().into()));
    }
    let results = |resize| {
        let session = Session::builder().device(device).batch(9).resize(resize);
        let session = session.tinyvit32().unwrap();
        // The second run uses the first one's memory again.
        let runs = [1, 2].map(|_| {
            let items = Pipeline::new(&session).run(sources.clone()).unwrap();
            items
                .map(|item| item.ok().map(|item| item.logits().unwrap().to_vec()))
                .collect::<Vec<_>>()
        });
        assert_eq!(runs[0], runs[1]);
        runs.into_iter().next().unwrap()
    };
    let expected = results(ResizeOn::Host);
    assert_eq!(expected.iter().flatten().count(), 6);
    assert_eq!(results(ResizeOn::Device), expected);
}

/// Sizes that shrink, grow, stay and are padded; both orders of the passes; every filter.
#[test]
fn images_are_resized_to_the_same_bytes() {
    let Some((device, _shared)) = device() else { return };
    let stream = gpu(device).stream().unwrap();
    let values = ValueRule {
        rescale: Rescale::DivideBy255,
        normalize: None,
    };
    let crop = |rounding, fill| Crop {
        height: 63,
        width: 65,
        rounding,
        fill,
    };
    let torch = crop(Rounding::Torchvision, [0; 3]);
    let hugging_face = crop(Rounding::Transformers, [7, 130, 255]);
    let shortest = Resize::Shortest {
        edge: 64,
        longest: None,
    };
    let cover = Resize::Cover {
        height: 70,
        width: 65,
    };
    let small = Resize::Contain {
        height: 40,
        width: 64,
    };
    let exact = Resize::Exact {
        height: 64,
        width: 65,
    };
    let thumbnail = Resize::Thumbnail {
        height: 63,
        width: 65,
        rotate: true,
    };
    let mut state = 1u64;
    let images: Vec<RgbImage> = [
        (257, 197),
        (63, 64),
        (1, 1),
        (64, 400),
        (65, 63),
        (257, 197),
        (500, 40),
    ]
    .into_iter()
    .map(|(width, height)| {
        let byte = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        let data = std::iter::repeat_with(byte).take(width * height * 3).collect();
        RgbImage::new(width, height, data).unwrap()
    })
    .collect();
    for filter in Filter::ALL {
        for (resize, crop) in [
            (Some(shortest), Some(torch)),
            (Some(cover), Some(torch)),
            (Some(small), Some(hugging_face)),
            (Some(exact), None),
            (None, Some(hugging_face)),
            (Some(thumbnail), Some(torch)),
        ] {
            let rule = Preprocess::new(resize.map(|r| (r, filter)), crop, values.clone()).unwrap();
            let expected = rule.apply_batch(&images).unwrap();
            let mut on_device = HipPreprocess::new(&rule, &stream).unwrap();
            let got = on_device.apply_batch(&images).unwrap().read().unwrap();
            let wrong = got.iter().zip(&expected).position(|(a, b)| a != b);
            assert_eq!((got.len(), wrong), (expected.len(), None), "{rule}");
        }
    }
}
