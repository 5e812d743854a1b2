//! Operations that map each byte of a channel through a table, as Pillow's `ImageOps` computes them.

use hipvit_image::RgbImage;

/// A table for one channel.
type Table = [u8; 256];

fn table(value: impl Fn(u8) -> u8) -> Table {
    std::array::from_fn(|index| value(index as u8))
}

/// Maps all channels through one table.
pub(super) fn map(image: &mut RgbImage, value: impl Fn(u8) -> u8) {
    let table = table(value);
    for byte in &mut image.data {
        *byte = table[usize::from(*byte)];
    }
}

/// Maps each channel through the table that `of_histogram` computes.
fn map_channels(image: &mut RgbImage, of_histogram: impl Fn(&[u64; 256]) -> Table) {
    let tables = histograms(image).map(|histogram| of_histogram(&histogram));
    for pixel in image.data.as_chunks_mut::<3>().0 {
        for (byte, table) in pixel.iter_mut().zip(&tables) {
            *byte = table[usize::from(*byte)];
        }
    }
}

fn histograms(image: &RgbImage) -> [[u64; 256]; 3] {
    let mut counts = [[0; 256]; 3];
    for pixel in image.data.as_chunks::<3>().0 {
        for (byte, counts) in pixel.iter().zip(&mut counts) {
            counts[usize::from(*byte)] += 1;
        }
    }
    counts
}

/// Returns the mask of the `bits` high bits.
pub(super) fn posterize_mask(bits: u8) -> u8 {
    u8::MAX.checked_shl(8 - u32::from(bits.min(8))).unwrap_or(0)
}

/// Keeps the `bits` high bits of each byte, as `ImageOps.posterize`. Keeping none gives black.
pub(super) fn posterize(image: &mut RgbImage, bits: u8) {
    let mask = posterize_mask(bits);
    map(image, |byte| byte & mask);
}

/// Inverts bytes that are at least `threshold`, as `ImageOps.solarize`.
pub(super) fn solarize(image: &mut RgbImage, threshold: f64) {
    map(image, |byte| {
        if f64::from(byte) < threshold {
            byte
        } else {
            255 - byte
        }
    });
}

/// Adds `amount` to bytes below 128, as timm's `SolarizeAdd`.
pub(super) fn solarize_add(image: &mut RgbImage, amount: u8) {
    map(image, |byte| {
        if byte < 128 {
            byte.saturating_add(amount)
        } else {
            byte
        }
    });
}

/// Flattens the histogram of each channel, as `ImageOps.equalize`.
pub(super) fn equalize(image: &mut RgbImage) {
    map_channels(image, |histogram| {
        let last = histogram.iter().rev().find(|&&count| count > 0).copied();
        let step = (histogram.iter().sum::<u64>() - last.unwrap_or(0)) / 255;
        if step == 0 {
            return table(|byte| byte);
        }
        let mut sum = step / 2;
        let steps = histogram.map(|count| {
            let value = sum / step;
            sum += count;
            value
        });
        // Pillow clips the table at 255.
        steps.map(|value| value.min(255) as u8)
    });
}

/// Stretches each channel to the range of a byte, as `ImageOps.autocontrast`.
pub(super) fn autocontrast(image: &mut RgbImage) {
    map_channels(image, |histogram| {
        let used = |&byte: &u8| histogram[usize::from(byte)] > 0;
        let low = (0..=255).find(used).unwrap_or(0);
        let high = (0..=255).rev().find(used).unwrap_or(0);
        if high <= low {
            return table(|byte| byte);
        }
        let scale = 255.0 / f64::from(high - low);
        let offset = -f64::from(low) * scale;
        // The conversion truncates and clips, as Python's code does.
        table(|byte| (f64::from(byte) * scale + offset) as u8)
    });
}
