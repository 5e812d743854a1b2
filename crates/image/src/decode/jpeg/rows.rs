//! Converts components' samples to rows of pixels, bit-exactly with libjpeg-turbo's "fancy" upsampling and colour
//! conversion.

use rten_simd::{Isa, SimdOp};

use super::frame::{Component, Frame};
use super::planes::Plane;
use crate::decode::color;

/// Colour encoding of a JPEG.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::decode) enum Coding {
    Grey,
    Rgb,
    YCbCr,
    Cmyk,
    Ycck,
    /// Components without conversion. The container of the JPEG interprets them.
    #[cfg_attr(not(feature = "tiff"), expect(dead_code))]
    Stored,
}

impl Coding {
    /// Returns the number of bytes of a pixel: three for RGB, or one per component if they are not converted.
    pub(super) fn pixel_bytes(self, frame: &Frame) -> usize {
        match self {
            Self::Stored => frame.components.len(),
            _ => 3,
        }
    }
}

/// Method that scales a component to the size of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Upsampling {
    None,
    /// Doubles the columns, with weights 3/4 and 1/4.
    Columns,
    /// Doubles the rows.
    Rows,
    /// Doubles rows and columns.
    Both,
    /// Repeats each sample, horizontally and vertically.
    Repeated(usize, usize),
}

impl Upsampling {
    /// Returns the method for a component of a frame.
    pub(super) fn new(frame: &Frame, component: &Component) -> Self {
        let (h, v) = (frame.h_max / component.h, frame.v_max / component.v);
        // libjpeg does not interpolate components that are two or fewer columns wide.
        match (h, v) {
            (1, 1) => Self::None,
            (2, 1) if component.width > 2 => Self::Columns,
            (1, 2) => Self::Rows,
            (2, 2) if component.width > 2 => Self::Both,
            _ => Self::Repeated(h, v),
        }
    }
}

/// A component during its conversion to pixels.
struct Channel {
    upsampling: Upsampling,
    width: usize,
    /// Sums of two rows, with one more value at either end.
    sums: Vec<u16>,
    /// A row with at least the image's width.
    row: Vec<u8>,
}

/// Converts samples to rows of pixels.
pub(super) struct Rows {
    coding: Coding,
    width: usize,
    pixel_bytes: usize,
    channels: Vec<Channel>,
}

impl Rows {
    pub(super) fn new(frame: &Frame, coding: Coding) -> Self {
        let channel = |component: &Component| Channel {
            upsampling: Upsampling::new(frame, component),
            width: component.width,
            sums: vec![0; component.width + 2],
            row: vec![0; component.width * (frame.h_max / component.h)],
        };
        Self {
            coding,
            width: frame.width,
            pixel_bytes: coding.pixel_bytes(frame),
            channels: frame.components.iter().map(channel).collect(),
        }
    }

    /// Returns the number of bytes of a row of pixels.
    pub(super) fn row_bytes(&self) -> usize {
        self.width * self.pixel_bytes
    }

    /// Writes the image's rows to `out`, starting with row `first`.
    pub(super) fn write(&mut self, planes: &[Plane], first: usize, out: &mut [u8]) {
        Write {
            rows: self,
            planes,
            first,
            out,
        }
        .dispatch();
    }
}

/// [`Rows::write`], compiled for the processor's vector instructions.
struct Write<'a> {
    rows: &'a mut Rows,
    planes: &'a [Plane],
    first: usize,
    out: &'a mut [u8],
}

impl SimdOp for Write<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, _: I) {
        let Rows {
            coding,
            width,
            pixel_bytes,
            channels,
        } = self.rows;
        let pixel_bytes = *pixel_bytes;
        for (y, out) in (self.first..).zip(self.out.chunks_exact_mut(*width * pixel_bytes)) {
            for (channel, plane) in channels.iter_mut().zip(self.planes) {
                channel.upsample(plane, y);
            }
            let row = |index: usize| match channels[index].upsampling {
                Upsampling::None => &self.planes[index].row(y as isize)[..*width],
                _ => &channels[index].row[..*width],
            };
            match coding {
                Coding::Grey => grey(row(0), out),
                Coding::Rgb => rgb([row(0), row(1), row(2)], out),
                Coding::YCbCr => ycbcr([row(0), row(1), row(2)], out),
                Coding::Cmyk => cmyk([row(0), row(1), row(2), row(3)], out),
                Coding::Ycck => {
                    let key = row(3);
                    ycbcr([row(0), row(1), row(2)], out);
                    ycck(key, out);
                }
                Coding::Stored => (0..pixel_bytes).for_each(|index| {
                    let samples = out[index..].iter_mut().step_by(pixel_bytes);
                    samples
                        .zip(row(index))
                        .for_each(|(sample, &value)| *sample = value);
                }),
            }
        }
    }
}

impl Channel {
    /// Computes the image's row `y`, unless the plane already has it.
    #[inline(always)]
    fn upsample(&mut self, plane: &Plane, y: usize) {
        let Self {
            width,
            sums,
            row: out,
            ..
        } = self;
        let width = *width;
        // The nearer row, and the row on the other side of `y`.
        let near = (y / 2) as isize;
        let far = if y.is_multiple_of(2) { near - 1 } else { near + 1 };
        match self.upsampling {
            Upsampling::None => {}
            Upsampling::Repeated(h, v) => {
                let row = &plane.row((y / v) as isize)[..width];
                for (out, &sample) in out.chunks_exact_mut(h).zip(row) {
                    out.fill(sample);
                }
            }
            Upsampling::Rows => {
                // Ordered dither: halves are rounded down and up in alternate rows.
                let half = 1 + (y % 2) as u16;
                let rows = plane.row(near)[..width].iter().zip(&plane.row(far)[..width]);
                for (out, (&near, &far)) in out.iter_mut().zip(rows) {
                    *out = ((u16::from(near) * 3 + u16::from(far) + half) >> 2) as u8;
                }
            }
            Upsampling::Columns => {
                let row = &plane.row(y as isize)[..width];
                for (sum, &sample) in sums[1..].iter_mut().zip(row) {
                    *sum = sample.into();
                }
                columns::<2>(sums, [1, 2], out);
            }
            Upsampling::Both => {
                let rows = plane.row(near)[..width].iter().zip(&plane.row(far)[..width]);
                for (sum, (&near, &far)) in sums[1..].iter_mut().zip(rows) {
                    *sum = u16::from(near) * 3 + u16::from(far);
                }
                columns::<4>(sums, [8, 7], out);
            }
        }
    }
}

/// Computes two samples from each sum and its neighbours, except for the first and last sum.
#[inline(always)]
fn columns<const SHIFT: u32>(sums: &mut [u16], [left, right]: [u16; 2], out: &mut [u8]) {
    // At an edge the sum is its own neighbour.
    let end = sums.len() - 1;
    sums[0] = sums[1];
    sums[end] = sums[end - 1];
    let neighbours = sums.iter().zip(&sums[1..]).zip(&sums[2..]);
    for (out, ((&before, &sum), &after)) in out.as_chunks_mut::<2>().0.iter_mut().zip(neighbours) {
        out[0] = ((sum * 3 + before + left) >> SHIFT) as u8;
        out[1] = ((sum * 3 + after + right) >> SHIFT) as u8;
    }
}

#[inline(always)]
fn grey(row: &[u8], out: &mut [u8]) {
    for (pixel, &grey) in out.as_chunks_mut::<3>().0.iter_mut().zip(row) {
        *pixel = [grey; 3];
    }
}

#[inline(always)]
fn rgb([red, green, blue]: [&[u8]; 3], out: &mut [u8]) {
    let samples = red.iter().zip(green).zip(blue);
    for (pixel, ((&red, &green), &blue)) in out.as_chunks_mut::<3>().0.iter_mut().zip(samples) {
        *pixel = [red, green, blue];
    }
}

/// Converts JFIF's YCbCr to RGB in libjpeg's 16-bit fixed point. The integer parts of the factors are added separately,
/// so that 16 bits suffice.
#[inline(always)]
fn ycbcr([y, cb, cr]: [&[u8]; 3], out: &mut [u8]) {
    let samples = y.iter().zip(cb).zip(cr);
    for (pixel, ((&y, &cb), &cr)) in out.as_chunks_mut::<3>().0.iter_mut().zip(samples) {
        let (y, cb, cr) = (i16::from(y), i16::from(cb) - 128, i16::from(cr) - 128);
        let product = |a: i16, b: i16| i32::from(a) * i32::from(b);
        // An instruction computes the upper half of a 16-bit product, but does not round. Use half of the factor, and
        // round here.
        let red = y + cr + (((product(2 * cr, 26_345) >> 16) as i16 + 1) >> 1);
        let blue = y + 2 * cb + (((product(2 * cb, -14_942) >> 16) as i16 + 1) >> 1);
        let green = y - cr + ((product(cb, -22_554) + product(cr, 18_734) + (1 << 15)) >> 16) as i16;
        *pixel = [saturate(red), saturate(green), saturate(blue)];
    }
}

#[inline(always)]
fn saturate(value: i16) -> u8 {
    value.clamp(0, 255) as u8
}

/// Converts CMYK to RGB. All four-component JPEGs are assumed to store inverted inks, as Adobe's programs write and
/// Pillow assumes.
#[inline(always)]
fn cmyk([c, m, y, k]: [&[u8]; 4], out: &mut [u8]) {
    let samples = c.iter().zip(m).zip(y).zip(k);
    for (pixel, (((&c, &m), &y), &k)) in out.as_chunks_mut::<3>().0.iter_mut().zip(samples) {
        *pixel = color::cmyk_pixel([c, m, y, k].map(|ink| 255 - ink));
    }
}

/// Converts YCCK to RGB. [`ycbcr`] has computed the complement of the inks, which are stored inverted.
#[inline(always)]
fn ycck(key: &[u8], out: &mut [u8]) {
    for (pixel, &key) in out.as_chunks_mut::<3>().0.iter_mut().zip(key) {
        let [red, green, blue] = *pixel;
        *pixel = color::cmyk_pixel([red, green, blue, 255 - key]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Converts JFIF's YCbCr to RGB in libjpeg's 16-bit fixed point.
    fn reference([y, cb, cr]: [u8; 3]) -> [u8; 3] {
        const HALF: i32 = 1 << 15;
        let (y, cb, cr) = (i32::from(y), i32::from(cb) - 128, i32::from(cr) - 128);
        let red = y + ((91_881 * cr + HALF) >> 16);
        let green = y + ((-22_554 * cb - 46_802 * cr + HALF) >> 16);
        let blue = y + ((116_130 * cb + HALF) >> 16);
        [red, green, blue].map(|value| value.clamp(0, 255) as u8)
    }

    #[test]
    fn conversion_in_16_bits_is_that_in_32() {
        for (y, cb) in (0..=255).flat_map(|cb| [0, 1, 77, 128, 200, 255].map(|y| (y, cb))) {
            let cr: Vec<u8> = (0..=255).collect();
            let mut out = [0; 3 * 256];
            ycbcr([&[y; 256], &[cb; 256], &cr], &mut out);
            for (pixel, cr) in out.as_chunks::<3>().0.iter().zip(cr) {
                assert_eq!(*pixel, reference([y, cb, cr]), "{y} {cb} {cr}");
            }
        }
    }
}
