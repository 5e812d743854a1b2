use std::path::Path;

use proptest::prelude::*;
use serde::Deserialize;

use super::coefficients::weight;
use super::*;
use crate::noise::noise;

#[derive(Deserialize)]
struct Golden {
    seed: u64,
    input: (usize, usize),
    output: (usize, usize),
    filter: Filter,
    crc32: u32,
}

#[test]
fn equals_pillow_on_the_goldens() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/image/resize.json");
    let goldens: Vec<Golden> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!(goldens.len(), 13 * Filter::ALL.len());
    for golden in goldens {
        let image = noise(golden.input.0, golden.input.1, golden.seed);
        let output = resize(&image, golden.output.0, golden.output.1, golden.filter).unwrap();
        let Golden {
            input,
            output: size,
            filter,
            ..
        } = golden;
        assert_eq!(
            crc32fast::hash(&output.data),
            golden.crc32,
            "{input:?} to {size:?} {filter}"
        );
    }
}

/// Computes one sample of one axis from the definition: weights in f64, normalised, rounded to 22 bits.
fn reference_sample(line: &[u8], output: usize, position: usize, filter: Filter) -> u8 {
    let scale = line.len() as f64 / output as f64;
    let filter_scale = scale.max(1.0);
    let support = filter_scale
        * match filter {
            Filter::Nearest | Filter::Box => 0.5,
            Filter::Bilinear | Filter::Hamming => 1.0,
            Filter::Bicubic => 2.0,
            Filter::Lanczos => 3.0,
        };
    let center = (position as f64 + 0.5) * scale;
    let first = (center - support + 0.5).max(0.0).floor() as usize;
    let last = ((center + support + 0.5).floor() as usize).min(line.len());
    let weights: Vec<f64> = (first..last)
        .map(|at| weight(filter, (at as f64 - center + 0.5) * (1.0 / filter_scale)))
        .collect();
    let total: f64 = weights.iter().sum();
    let one = f64::from(1_u32 << 22);
    let sum: i64 = (first..last)
        .zip(&weights)
        .map(|(at, weight)| {
            i64::from(line[at]) * ((weight / total * one).abs() + 0.5).copysign(*weight) as i64
        })
        .sum();
    ((sum + (1 << 21)) >> 22).clamp(0, 255) as u8
}

/// Returns `image` with its columns resampled to `output` columns.
fn reference_columns(image: &RgbImage, output: usize, filter: Filter) -> RgbImage {
    if output == image.width {
        return image.clone();
    }
    let mut data = Vec::new();
    for row in image.data.chunks(image.width * 3) {
        let channel = |c: usize| row.iter().skip(c).step_by(3).copied().collect::<Vec<u8>>();
        let channels = [channel(0), channel(1), channel(2)];
        for x in 0..output {
            data.extend(
                channels
                    .iter()
                    .map(|line| reference_sample(line, output, x, filter)),
            );
        }
    }
    RgbImage {
        width: output,
        height: image.height,
        data,
    }
}

fn transpose(image: &RgbImage) -> RgbImage {
    let pixel = |x: usize, y: usize| &image.data[(y * image.width + x) * 3..][..3];
    let data = (0..image.width)
        .flat_map(|x| (0..image.height).flat_map(move |y| pixel(x, y)))
        .copied()
        .collect();
    RgbImage {
        width: image.height,
        height: image.width,
        data,
    }
}

fn any_smooth_filter() -> impl Strategy<Value = Filter> {
    prop::sample::select(Filter::ALL[1..].to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn equals_the_plain_definition(
        (w, h, ow, oh) in (1_usize..70, 1_usize..70, 1_usize..90, 1_usize..90),
        filter in any_smooth_filter(),
        seed: u64,
    ) {
        let image = noise(w, h, seed);
        let columns = |image: &RgbImage| reference_columns(image, ow, filter);
        let rows = |image: &RgbImage| transpose(&reference_columns(&transpose(image), oh, filter));
        // Pillow 13 begins with the rows if it drops more than two rows per dropped column.
        let rows_first = h as i64 - oh as i64 > 2 * (w as i64 - ow as i64).max(0);
        let expected = if rows_first { columns(&rows(&image)) } else { rows(&columns(&image)) };
        prop_assert_eq!(resize(&image, ow, oh, filter).unwrap(), expected);
    }

    #[test]
    fn keeps_a_constant_image_and_the_identity(
        (w, h, ow, oh) in (1_usize..60, 1_usize..60, 1_usize..60, 1_usize..60),
        filter in prop::sample::select(Filter::ALL.to_vec()),
        value: u8,
        seed: u64,
    ) {
        let constant = RgbImage { width: w, height: h, data: vec![value; w * h * 3] };
        prop_assert_eq!(resize(&constant, ow, oh, filter).unwrap().data, vec![value; ow * oh * 3]);
        let image = noise(w, h, seed);
        prop_assert_eq!(resize(&image, w, h, filter).unwrap(), image);
    }

    #[test]
    fn a_window_is_a_part_of_the_whole(
        (w, h, ow, oh) in (1_usize..60, 1_usize..60, 1_usize..60, 1_usize..60),
        filter in prop::sample::select(Filter::ALL.to_vec()),
        (a, b, c, d) in (0.0..1.0, 0.0..1.0, 0.0..1.0, 0.0..1.0),
        seed: u64,
    ) {
        let part = |f: f64, n: usize| (f * n as f64) as usize;
        let (left, top) = (part(a, ow), part(b, oh));
        let window = Window { left, top, width: part(c, ow - left).max(1), height: part(d, oh - top).max(1) };
        let image = noise(w, h, seed);
        let whole = resize(&image, ow, oh, filter).unwrap();
        let rows = whole.data.chunks(ow * 3).skip(top).take(window.height);
        let expected: Vec<u8> =
            rows.flat_map(|row| &row[left * 3..(left + window.width) * 3]).copied().collect();
        prop_assert_eq!(resize_window(&image, ow, oh, filter, window).unwrap().data, expected);
    }
}

#[test]
fn refuses_an_empty_size_and_a_window_outside() {
    let image = noise(4, 4, 0);
    assert!(resize(&image, 0, 3, Filter::Box).is_err());
    assert!(resize(&image, 3, MAX_SIDE + 1, Filter::Box).is_err());
    let window = Window {
        left: 2,
        top: 0,
        width: 2,
        height: 1,
    };
    assert!(resize_window(&image, 3, 3, Filter::Box, window).is_err());
    let short = RgbImage {
        width: 4,
        height: 4,
        data: vec![0; 3],
    };
    assert!(resize(&short, 2, 2, Filter::Box).is_err());
}
