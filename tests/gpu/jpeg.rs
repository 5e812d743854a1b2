//! JPEGs whose pixels the GPU computes from their coefficients.

use std::path::PathBuf;

use hipvit::hip::{Device as Gpu, Stream};
use hipvit::image::{
    Cancellation, DecodeBuffers, DecodeOptions, DeviceImage, JpegCoefficients, Limits, RgbImage, decode,
    decode_for_device,
};
use hipvit::kernels::{DeviceJpeg, JpegKernels, jpeg_samples};
use hipvit::pipeline::{Pipeline, Source};
use hipvit::{ResizeOn, RunInput, RunOptions, Session};

use crate::support::at;
use crate::support::gpu::{device, gpu};
use crate::support::session::same;

/// Returns the names and bytes of all JPEGs among the samples, by name.
fn jpegs() -> Vec<(String, Vec<u8>)> {
    let mut jpegs = Vec::new();
    for folder in ["samples", "jpeg"] {
        for entry in std::fs::read_dir(at("tests/data/image").join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "jpg") {
                jpegs.push((name(&path), std::fs::read(path).unwrap()));
            }
        }
    }
    jpegs.sort();
    jpegs
}

fn name(path: &std::path::Path) -> String {
    PathBuf::from(path.file_name().unwrap()).display().to_string()
}

fn coefficients(name: &str, bytes: &[u8]) -> Option<JpegCoefficients> {
    let mut buffers = DecodeBuffers::default();
    let never = Cancellation::never();
    match decode_for_device(name, bytes, Limits::default(), &mut buffers, never).unwrap() {
        DeviceImage::Jpeg(jpeg) => Some(jpeg),
        DeviceImage::Pixels(_) => None,
    }
}

/// Computes the pixels of several JPEGs in one call.
fn pixels(stream: &Stream, kernels: &JpegKernels, jpegs: &[JpegCoefficients]) -> Vec<Vec<u8>> {
    let bytes = |jpeg: &JpegCoefficients| jpeg.geometry.size.iter().product::<usize>() * 3;
    let mut memory: Vec<_> = jpegs
        .iter()
        .map(|jpeg| {
            let words: Vec<u8> = jpeg.words().iter().flat_map(|word| word.to_ne_bytes()).collect();
            let samples = stream.allocate::<u8>(jpeg_samples(&jpeg.geometry)).unwrap();
            // Bytes that the kernels must overwrite, or leave alone.
            let pixels = stream.upload(&vec![0xA5_u8; bytes(jpeg) + 64]).unwrap();
            (stream.upload(&words).unwrap(), samples, pixels)
        })
        .collect();
    let images: Vec<_> = memory
        .iter_mut()
        .zip(jpegs)
        .map(|((words, samples, pixels), jpeg)| DeviceJpeg {
            geometry: jpeg.geometry,
            words: words.reading(),
            samples: samples.writing(),
            pixels: pixels.writing().part(0..bytes(jpeg)).unwrap(),
        })
        .collect();
    kernels.launch(stream, &images).unwrap();
    let results = memory.into_iter().zip(jpegs).map(|((_, _, pixels), jpeg)| {
        let mut pixels = pixels.read().unwrap();
        let rest = pixels.split_off(bytes(jpeg));
        assert!(rest.iter().all(|&byte| byte == 0xA5), "wrote beyond the pixels");
        pixels
    });
    results.collect()
}

fn check(gpu: &Gpu, jpegs: &[(String, Vec<u8>)]) -> usize {
    let stream = gpu.stream().unwrap();
    let kernels = JpegKernels::load(gpu).unwrap();
    let (mut names, mut images, mut expected) = (Vec::new(), Vec::new(), Vec::new());
    for (name, bytes) in jpegs {
        if let Some(image) = coefficients(name, bytes) {
            names.push(name);
            images.push(image);
            expected.push(decode(name, bytes, Limits::default()).unwrap());
        }
    }
    let got = pixels(&stream, &kernels, &images);
    for ((name, got), RgbImage { data, width, .. }) in names.iter().zip(&got).zip(&expected) {
        let wrong = got.iter().zip(data).position(|(a, b)| a != b);
        let place = wrong.map(|at| (at / 3 % width, at / 3 / width, got[at], data[at]));
        assert_eq!(
            (got.len(), place),
            (data.len(), None),
            "{name}: x, y, got, expected"
        );
    }
    images.len()
}

/// Every subsampling, coding, quality and awkward size, in launches of many images.
#[test]
fn jpegs_have_the_hosts_pixels() {
    let Some((device, _shared)) = device() else { return };
    let count = check(&gpu(device), &jpegs());
    assert!(count > 80, "{count}");
}

/// With random quantisation steps, sums and products leave 16 bits and samples saturate.
#[test]
fn coefficients_beyond_any_encoders_have_the_hosts_pixels() {
    let Some((device, _shared)) = device() else { return };
    let mut state = 1_u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    let mut jpegs = jpegs();
    for (index, (_, bytes)) in jpegs.iter_mut().enumerate() {
        let tables = bytes
            .windows(2)
            .position(|marker| marker == [0xFF, 0xDB])
            .unwrap()
            + 4;
        let length = usize::from(u16::from_be_bytes([bytes[tables - 2], bytes[tables - 1]])) - 2;
        for table in bytes[tables..tables + length].chunks_exact_mut(65) {
            for step in &mut table[1..] {
                *step = [random(), 255, 0][index % 3 * usize::from(random() > 40)];
            }
        }
    }
    check(&gpu(device), &jpegs);
}

/// Sources of all kinds, in batches of mixed sizes: a run on the host, one whose host computes the pixels, and one whose GPU does.
#[test]
fn pipelines_give_the_same_results_wherever_jpegs_are_decoded() {
    let Some((device, _shared)) = device() else { return };
    let mut sources: Vec<Source> = Vec::new();
    for (index, (name, bytes)) in jpegs()
        .into_iter()
        .enumerate()
        .filter(|(index, _)| index % 3 == 0)
    {
        if index % 9 == 0 {
            sources.push(Source::Bytes(
                "damaged".into(),
                bytes[..bytes.len() / 2].to_vec().into(),
            ));
            sources.push(at("assets/samples/3.png").into());
        }
        sources.push(Source::Bytes(name, bytes.into()));
    }
    for name in [
        "rotated-by-exif.jpg",
        "cmyk.jpg",
        "progressive-420.jpg",
        "missing.jpg",
    ] {
        sources.push(at("tests/data/image/samples").join(name).into());
    }
    let results = |sources: &[Source], resize, device_jpeg, upright| {
        let session = Session::builder().device(device).batch(7).resize(resize);
        let session = session.tinyvit32().unwrap();
        let pipeline = Pipeline::new(&session)
            .device_jpeg(device_jpeg)
            .decode_options(DecodeOptions::default().exif_orientation(upright));
        let items = pipeline.run(sources.to_vec()).unwrap();
        let result = items.map(|item| match item {
            Ok(item) => Ok(item.logits().unwrap().to_vec()),
            Err(error) => Err(error.to_string()),
        });
        result.collect::<Vec<_>>()
    };
    let file = at("tests/data/image/samples/progressive-420.jpg");
    let source = Source::from(file.as_path());
    let one = |resize| {
        Session::builder()
            .device(device)
            .resize(resize)
            .tinyvit32()
            .unwrap()
    };
    let expected = one(ResizeOn::Host)
        .run(&[source.decode(Limits::default()).unwrap()])
        .unwrap();
    let image = source.decode_for_device(Limits::default()).unwrap();
    let input = || RunInput::DeviceImages(vec![&image]);
    same(
        &one(ResizeOn::Device)
            .run_with(input(), RunOptions::new())
            .unwrap(),
        &expected,
    );
    let error = one(ResizeOn::Host)
        .run_with(input(), RunOptions::new())
        .unwrap_err();
    assert!(error.to_string().contains("ResizeOn::Device"), "{error}");
    // Orientation is a matter of the last files alone.
    let last = &sources[sources.len() - 12..];
    for (sources, upright, most) in [(&sources[..], false, 30), (last, true, 6)] {
        let expected = results(sources, ResizeOn::Host, true, upright);
        assert!(expected.iter().filter(|result| result.is_ok()).count() > most);
        assert!(expected.iter().any(Result::is_err));
        assert!(upright || expected.iter().filter(|result| result.is_err()).count() > 3);
        assert_eq!(results(sources, ResizeOn::Device, true, upright), expected);
        assert_eq!(results(sources, ResizeOn::Device, false, upright), expected);
    }
}
