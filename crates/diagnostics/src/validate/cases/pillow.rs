//! Resampling of an 8-bit RGB image as Pillow defines it.

use hipvit::image::Filter;
use hipvit::ops::OpError;
use hipvit::reference::Array;

/// Resizes the image `[H,W,3]` to `width × height` pixels. The horizontal pass comes first and rounds to
/// bytes. Pillow's exception for images that lose many more rows than columns is not implemented here.
///
/// # Errors
///
/// The operand is no image.
pub(crate) fn resize(image: &Array, [width, height]: [usize; 2], filter: Filter) -> Result<Array, OpError> {
    let &[h, w, 3] = image.shape() else {
        return Err(format!("takes an image, not {:?}", image.shape()).into());
    };
    let (columns, rows) = (taps(w, width, filter), taps(h, height, filter));
    let sum = |taps: &[(usize, i64)], pixel: &dyn Fn(usize) -> f64| {
        // Fixed point, rounded half up. f64 represents integers of this size exactly.
        let sum: i64 = taps.iter().map(|&(at, weight)| weight * pixel(at) as i64).sum();
        ((sum + (1 << 21)) >> 22).clamp(0, 255) as f64
    };
    let mut narrow = Array::zeros(vec![h, width, 3]);
    for (i, value) in narrow.values_mut().iter_mut().enumerate() {
        let (y, x, c) = (i / 3 / width, i / 3 % width, i % 3);
        *value = sum(&columns[x], &|at| image.values()[(y * w + at) * 3 + c]);
    }
    let mut result = Array::zeros(vec![height, width, 3]);
    for (i, value) in result.values_mut().iter_mut().enumerate() {
        let (y, x, c) = (i / 3 / width, i / 3 % width, i % 3);
        *value = sum(&rows[y], &|at| narrow.values()[(at * width + x) * 3 + c]);
    }
    Ok(result)
}

/// Returns the input positions of each output position, with weights of 22 fractional bits.
fn taps(input: usize, output: usize, filter: Filter) -> Vec<Vec<(usize, i64)>> {
    const ONE: i64 = 1 << 22;
    let scale = input as f64 / output as f64;
    if filter == Filter::Nearest {
        // Accumulate the coordinate as Pillow does.
        let mut at = scale * 0.5;
        return (0..output)
            .map(|_| {
                let position = (at as usize).min(input - 1);
                at += scale;
                vec![(position, ONE)]
            })
            .collect();
    }
    if input == output {
        return (0..output).map(|at| vec![(at, ONE)]).collect();
    }
    // Downsampling widens the filter, so that every input counts.
    let width = scale.max(1.0);
    let (support, function): (f64, fn(f64) -> f64) = match filter {
        Filter::Nearest | Filter::Box => (0.5, |x| if x > -0.5 && x <= 0.5 { 1.0 } else { 0.0 }),
        Filter::Bilinear => (1.0, |x| (1.0 - x.abs()).max(0.0)),
        Filter::Hamming => (1.0, hamming),
        Filter::Bicubic => (2.0, |x| keys(x.abs())),
        Filter::Lanczos => (3.0, |x| {
            if (-3.0..3.0).contains(&x) {
                sinc(x) * sinc(x / 3.0)
            } else {
                0.0
            }
        }),
    };
    let inverse = 1.0 / width;
    (0..output)
        .map(|position| {
            let center = (position as f64 + 0.5) * scale;
            let first = (center - support * width + 0.5).max(0.0) as usize;
            let end = ((center + support * width + 0.5) as usize).min(input);
            let exact: Vec<f64> = (first..end)
                .map(|at| function((at as f64 - center + 0.5) * inverse))
                .collect();
            let sum: f64 = exact.iter().sum();
            let fixed = |weight: &f64| {
                let scaled = weight / sum * ONE as f64;
                // Round half away from zero.
                (scaled + 0.5f64.copysign(scaled)) as i64
            };
            (first..end).zip(exact.iter().map(fixed)).collect()
        })
        .collect()
}

/// Keys' cubic convolution with a = −0.5. <https://doi.org/10.1109/TASSP.1981.1163711>
fn keys(x: f64) -> f64 {
    match x {
        ..1.0 => (1.5 * x - 2.5) * x * x + 1.0,
        1.0..2.0 => (((x - 5.0) * x + 8.0) * x - 4.0) * -0.5,
        _ => 0.0,
    }
}

/// Pillow's constants, which have single precision.
fn hamming(x: f64) -> f64 {
    match x.abs() {
        1.0.. => 0.0,
        0.0 => 1.0,
        x => sinc(x) * (f64::from(0.54f32) + f64::from(0.46f32) * (x * std::f64::consts::PI).cos()),
    }
}

fn sinc(x: f64) -> f64 {
    match x * std::f64::consts::PI {
        0.0 => 1.0,
        x => x.sin() / x,
    }
}
