//! Converts each kind of sample as Pillow's `convert("RGB")`, and unpacks samples smaller than a byte.

/// Collects RGB pixels into a vector of exactly their size. A vector that grows would allocate more.
pub(super) fn rgb(count: usize, pixels: impl Iterator<Item = [u8; 3]>) -> Vec<u8> {
    let mut data = Vec::with_capacity(count * 3);
    data.extend(pixels.take(count).flatten());
    data
}

/// Converts grey samples to RGB.
pub(super) fn grey(count: usize, samples: impl Iterator<Item = u8>) -> Vec<u8> {
    rgb(count, samples.map(|grey| [grey; 3]))
}

/// Keeps the first three of every `channels` samples.
#[cfg(any(feature = "tiff", feature = "webp"))]
pub(super) fn first_three(samples: &[u8], channels: usize) -> Vec<u8> {
    let pixels = samples.chunks_exact(channels);
    rgb(pixels.len(), pixels.map(|s| [s[0], s[1], s[2]]))
}

/// Converts indices to RGB. An index beyond the palette (`[n, 3]`) is black.
pub(super) fn palette(count: usize, indices: impl Iterator<Item = u8>, palette: &[u8]) -> Vec<u8> {
    let mut table = [[0; 3]; 256];
    for (entry, color) in table.iter_mut().zip(palette.chunks_exact(3)) {
        entry.copy_from_slice(color);
    }
    rgb(count, indices.map(|index| table[usize::from(index)]))
}

/// Converts CMYK (0 is no ink) to RGB, with Pillow's rounding.
#[cfg(feature = "tiff")]
pub(super) fn cmyk(samples: impl Iterator<Item = [u8; 4]>) -> Vec<u8> {
    let count = samples.size_hint().0;
    let mut data = Vec::with_capacity(count * 3);
    data.extend(samples.flat_map(cmyk_pixel));
    data
}

/// Converts a CMYK pixel to RGB.
#[inline(always)]
pub(super) fn cmyk_pixel([c, m, y, k]: [u8; 4]) -> [u8; 3] {
    let white = 255 - k;
    [c, m, y].map(|ink| white - multiply(ink, white))
}

/// Returns `a × b / 255`, rounded.
#[inline(always)]
fn multiply(a: u8, b: u8) -> u8 {
    let product = u32::from(a) * u32::from(b) + 128;
    (((product >> 8) + product) >> 8) as u8
}

/// Unpacks `width` samples of `bits` bits (1, 2, 4 or 8) from each row. Rows are whole bytes; the first sample is in
/// the highest bits.
pub(super) fn unpack(rows: &[u8], width: usize, bits: usize) -> impl Iterator<Item = u8> {
    let row_bytes = (width * bits).div_ceil(8);
    let mask = 0xFF >> (8 - bits);
    rows.chunks_exact(row_bytes.max(1))
        .flat_map(move |row| (0..width).map(move |x| (row[x * bits / 8] >> (8 - bits - x * bits % 8)) & mask))
}

/// Returns the factor that scales a sample of `bits` bits to 255.
pub(super) fn grey_step(bits: usize) -> u8 {
    match bits {
        1 => 255,
        2 => 85,
        4 => 17,
        _ => 1,
    }
}
