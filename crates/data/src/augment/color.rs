//! Brightness, contrast, colour, sharpness and hue, as Pillow's `ImageEnhance` and torchvision's `adjust_hue` compute
//! them.

use hipvit_image::RgbImage;

use super::table;

/// Interpolates or extrapolates between two bytes with the f32 arithmetic of Pillow's `Image.blend`.
fn blend(from: u8, to: u8, factor: f32) -> u8 {
    // The conversion truncates, and clips what an extrapolation leaves outside.
    (f32::from(from) + factor * (f32::from(to) - f32::from(from))) as u8
}

/// Scales all bytes, as `ImageEnhance.Brightness`.
pub(super) fn brightness(image: &mut RgbImage, factor: f64) {
    table::map(image, |byte| blend(0, byte, factor as f32));
}

/// Moves all bytes away from the mean of the luma, as `ImageEnhance.Contrast`.
pub(super) fn contrast(image: &mut RgbImage, factor: f64) {
    let pixels = image.data.as_chunks::<3>().0;
    let sum: u64 = pixels.iter().map(|pixel| u64::from(luma(pixel))).sum();
    let mean = (sum as f64 / pixels.len() as f64 + 0.5) as u8;
    table::map(image, |byte| blend(mean, byte, factor as f32));
}

/// Moves all pixels away from their luma, as `ImageEnhance.Color`.
pub(super) fn saturation(image: &mut RgbImage, factor: f64) {
    for pixel in image.data.as_chunks_mut::<3>().0 {
        let grey = luma(pixel);
        *pixel = pixel.map(|byte| blend(grey, byte, factor as f32));
    }
}

/// Returns the luma of a pixel by ITU-R 601, in Pillow's fixed point.
fn luma([red, green, blue]: &[u8; 3]) -> u8 {
    let sum = u32::from(*red) * 19595 + u32::from(*green) * 38470 + u32::from(*blue) * 7471;
    ((sum + 0x8000) >> 16) as u8
}

/// Moves all bytes away from a smoothed image, as `ImageEnhance.Sharpness`.
pub(super) fn sharpness(image: &mut RgbImage, factor: f64) {
    let factor = factor as f32;
    // Pillow copies images that are smaller than the filter.
    if image.width < 3 || image.height < 3 || factor == 1.0 {
        return;
    }
    let original = image.data.clone();
    let stride = image.width * 3;
    for row in 1..image.height - 1 {
        let [above, here, below] = [row - 1, row, row + 1].map(|row| &original[row * stride..][..stride]);
        let output = &mut image.data[row * stride..][..stride];
        for at in 3..stride - 3 {
            output[at] = blend(smooth(above, here, below, at), here[at], factor);
        }
    }
}

/// Returns Pillow's `ImageFilter.SMOOTH` of one byte: weights 1, in the centre 5, divided by 13.
fn smooth(above: &[u8], here: &[u8], below: &[u8], at: usize) -> u8 {
    const SIDE: f32 = 1.0 / 13.0;
    const CENTRE: f32 = 5.0 / 13.0;
    // The order of the f32 sums is Pillow's.
    let row = |bytes: &[u8], centre: f32| {
        f32::from(bytes[at - 3]) * SIDE + f32::from(bytes[at]) * centre + f32::from(bytes[at + 3]) * SIDE
    };
    (0.5 + row(below, SIDE) + row(here, CENTRE) + row(above, SIDE)) as u8
}

/// Returns the byte that a rotation by `factor` turns adds. Python converts to i32, then wraps to a byte.
pub(super) fn hue_shift(factor: f64) -> u8 {
    (factor * 255.0) as i32 as u8
}

/// Rotates the hue by `factor` turns, as torchvision's `adjust_hue` on Pillow images.
pub(super) fn hue(image: &mut RgbImage, factor: f64) {
    let shift = hue_shift(factor);
    for pixel in image.data.as_chunks_mut::<3>().0 {
        let [hue, saturation, value] = to_hsv(*pixel);
        *pixel = to_rgb([hue.wrapping_add(shift), saturation, value]);
    }
}

/// Converts a pixel as Pillow's `convert("HSV")`, with its mixture of f32 and f64.
fn to_hsv([red, green, blue]: [u8; 3]) -> [u8; 3] {
    let (high, low) = (red.max(green).max(blue), red.min(green).min(blue));
    if high == low {
        return [0, 0, high];
    }
    let range = f32::from(high - low);
    let saturation = range / f32::from(high);
    let [r, g, b] = [red, green, blue].map(|byte| f32::from(high - byte) / range);
    let sector = if red == high {
        b - g
    } else if green == high {
        (2.0 + f64::from(r) - f64::from(b)) as f32
    } else {
        (4.0 + f64::from(g) - f64::from(r)) as f32
    };
    let hue = ((f64::from(sector) / 6.0 + 1.0) % 1.0) as f32;
    [
        (f64::from(hue) * 255.0) as u8,
        (f64::from(saturation) * 255.0) as u8,
        high,
    ]
}

/// Converts a pixel as Pillow's `convert("RGB")` of an HSV image.
fn to_rgb([hue, saturation, value]: [u8; 3]) -> [u8; 3] {
    if saturation == 0 {
        return [value; 3];
    }
    let scaled = f64::from(hue) * 6.0 / 255.0;
    let sector = scaled.floor();
    let rest = (scaled - sector) as f32;
    let depth = (f64::from(saturation) / 255.0) as f32;
    let scale = |factor: f64| (f64::from(value) * factor).round() as u8;
    let p = scale(1.0 - f64::from(depth));
    let q = scale(1.0 - f64::from(depth * rest));
    let t = scale(1.0 - f64::from(depth) * (1.0 - f64::from(rest)));
    match sector as u8 % 6 {
        0 => [value, t, p],
        1 => [q, value, p],
        2 => [p, value, t],
        3 => [p, q, value],
        4 => [t, p, value],
        _ => [value, p, q],
    }
}
