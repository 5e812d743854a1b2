//! Affine transformations of images, as Pillow's `Image.transform` and `Image.rotate` compute them.

use hipvit_image::RgbImage;
use serde::{Deserialize, Serialize};

/// Interpolation of an affine transformation, by Pillow's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Interpolation {
    /// Nearest input pixel.
    #[default]
    Nearest,
    /// Linear between 2 × 2 pixels.
    Bilinear,
    /// Cubic between 4 × 4 pixels, with a = −1.
    Bicubic,
}

/// Maps output coordinates to input coordinates: `x' = m₀x + m₁y + m₂`, `y' = m₃x + m₄y + m₅`.
pub type Matrix = [f64; 6];

/// Transforms the image. Pixels whose source is outside of the image get the colour `fill`.
pub(super) fn affine(
    image: &RgbImage,
    matrix: &Matrix,
    interpolation: Interpolation,
    fill: [u8; 3],
) -> RgbImage {
    let source = Source {
        pixels: image.data.as_chunks().0,
        width: image.width as i64,
        height: image.height as i64,
    };
    let mut output = RgbImage {
        width: image.width,
        height: image.height,
        data: fill.repeat(image.width * image.height),
    };
    let pixels = output.data.as_chunks_mut().0;
    match interpolation {
        Interpolation::Nearest if matrix[1] == 0.0 && matrix[3] == 0.0 => source.scale(matrix, pixels),
        Interpolation::Nearest if source.fits_fixed_point(matrix) => source.fixed_point(matrix, pixels),
        Interpolation::Nearest => source.nearest(matrix, pixels),
        Interpolation::Bilinear => source.sample(matrix, pixels, Source::bilinear),
        Interpolation::Bicubic => source.sample(matrix, pixels, Source::bicubic),
    }
    output
}

/// How the pixels of an affine transformation are found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sampling {
    /// The image is mirrored and moved.
    Move {
        /// Whether columns and rows are mirrored.
        mirrored: [bool; 2],
        /// Column and row of the input that become the first ones.
        origin: [i32; 2],
    },
    /// The nearest pixels, with coordinates in 16.16 fixed point.
    FixedPoint {
        /// Steps of the column of the input per column and row, then of its row.
        steps: [i32; 4],
        /// Column and row of the first pixel of the result.
        start: [i32; 2],
    },
    /// Interpolation between pixels.
    Interpolated {
        /// Mapping from output to input coordinates.
        matrix: Matrix,
        /// True for bicubic, false for bilinear.
        is_bicubic: bool,
    },
}

impl Sampling {
    const NOTHING: Self = Self::Move {
        mirrored: [false; 2],
        origin: [0; 2],
    };

    /// Returns how [`affine`] finds the pixels of an image of this width and height. `None` if coordinates are running sums that no integer
    /// represents.
    pub(super) fn of_affine(m: &Matrix, interpolation: Interpolation, size: [usize; 2]) -> Option<Self> {
        if interpolation != Interpolation::Nearest {
            return Some(Self::Interpolated {
                matrix: *m,
                is_bicubic: interpolation == Interpolation::Bicubic,
            });
        }
        let source = Source::of_size(size);
        if m[1] == 0.0 && m[3] == 0.0 {
            let [width, height] = size;
            return Some(Self::Move {
                mirrored: [false; 2],
                origin: [
                    offset(&sums(m[2] + m[0] * 0.5, m[0], width))?,
                    offset(&sums(m[5] + m[4] * 0.5, m[4], height))?,
                ],
            });
        }
        source.fits_fixed_point(m).then(|| {
            let (steps, start) = fixed_point(m);
            Self::FixedPoint { steps, start }
        })
    }

    /// Returns how [`rotate`] finds the pixels of an image of this width and height.
    pub(super) fn of_rotation(degrees: f64, interpolation: Interpolation, size: [usize; 2]) -> Option<Self> {
        let degrees = degrees.rem_euclid(360.0);
        let [width, height] = size;
        if degrees == 0.0 {
            Some(Self::NOTHING)
        } else if degrees == 180.0 {
            Some(Self::Move {
                mirrored: [true; 2],
                origin: [i32::try_from(width).ok()? - 1, i32::try_from(height).ok()? - 1],
            })
        } else if width == height && (degrees == 90.0 || degrees == 270.0) {
            None
        } else {
            Self::of_affine(&rotation(size, degrees), interpolation, size)
        }
    }
}

/// Returns truncated running sums, as Pillow computes coordinates.
fn sums(start: f64, step: f64, count: usize) -> Vec<i64> {
    let sums = std::iter::successors(Some(start), |x| Some(x + step));
    sums.take(count).map(truncate).collect()
}

/// Returns the offset between positions and `sources`, if all sources within the side have one.
fn offset(sources: &[i64]) -> Option<i32> {
    let side = sources.len() as i64;
    let inside = |source: &i64| (0..side).contains(source);
    let first = sources.iter().position(inside);
    let offset = first.map_or(side, |first| sources[first] - first as i64);
    let is_moved = |(at, &source): (usize, &i64)| {
        let moved = at as i64 + offset;
        source == moved || !(inside(&source) || inside(&moved))
    };
    let all = sources.iter().enumerate().all(is_moved);
    i32::try_from(offset).ok().filter(|_| all)
}

/// Returns the steps and the first coordinates in 16.16 fixed point.
fn fixed_point(m: &Matrix) -> ([i32; 4], [i32; 2]) {
    let fix = |value: f64| (value * 65536.0 + 0.5).floor() as i32;
    let start = [m[2] + m[0] * 0.5 + m[1] * 0.5, m[5] + m[3] * 0.5 + m[4] * 0.5];
    ([m[0], m[1], m[3], m[4]].map(fix), start.map(fix))
}

/// Input of a transformation.
struct Source<'a> {
    pixels: &'a [[u8; 3]],
    width: i64,
    height: i64,
}

impl Source<'_> {
    /// Returns a source of this width and height, of which only the size is used.
    fn of_size([width, height]: [usize; 2]) -> Self {
        Self {
            pixels: &[],
            width: width as i64,
            height: height as i64,
        }
    }

    /// Returns the pixel at a column and row, or `None` outside of the image.
    fn get(&self, x: i64, y: i64) -> Option<[u8; 3]> {
        let inside = (0..self.width).contains(&x) && (0..self.height).contains(&y);
        inside.then(|| self.pixels[(y * self.width + x) as usize])
    }

    /// Returns the rows of the output.
    fn rows<'b>(&self, output: &'b mut [[u8; 3]]) -> impl Iterator<Item = &'b mut [[u8; 3]]> + use<'b> {
        output.chunks_exact_mut(self.width.max(1) as usize)
    }

    /// Scales and translates. Coordinates are running sums, as in Pillow.
    fn scale(&self, matrix: &Matrix, output: &mut [[u8; 3]]) {
        let columns = sums(matrix[2] + matrix[0] * 0.5, matrix[0], self.width as usize);
        let rows = sums(matrix[5] + matrix[4] * 0.5, matrix[4], self.height as usize);
        for (row, y) in self.rows(output).zip(rows) {
            for (pixel, &x) in row.iter_mut().zip(&columns) {
                *pixel = self.get(x, y).unwrap_or(*pixel);
            }
        }
    }

    /// Returns true if Pillow uses fixed point: all corners are within 15 bits.
    fn fits_fixed_point(&self, matrix: &Matrix) -> bool {
        let fits = |x: f64, y: f64| {
            (x * matrix[0] + y * matrix[1] + matrix[2]).abs() < 32768.0
                && (x * matrix[3] + y * matrix[4] + matrix[5]).abs() < 32768.0
        };
        let (width, height) = (self.width as f64, self.height as f64);
        fits(0.0, 0.0) && fits(width, height) && fits(0.0, height) && fits(width, 0.0)
    }

    /// Selects the nearest pixels with coordinates in 16.16 fixed point.
    fn fixed_point(&self, m: &Matrix, output: &mut [[u8; 3]]) {
        let ([a0, a1, a3, a4], [mut start_x, mut start_y]) = fixed_point(m);
        for row in self.rows(output) {
            let (mut x, mut y) = (start_x, start_y);
            for pixel in row {
                *pixel = self.get((x >> 16).into(), (y >> 16).into()).unwrap_or(*pixel);
                x = x.wrapping_add(a0);
                y = y.wrapping_add(a3);
            }
            start_x = start_x.wrapping_add(a1);
            start_y = start_y.wrapping_add(a4);
        }
    }

    /// Selects the nearest pixels with running sums in f64, for coordinates that exceed fixed point.
    fn nearest(&self, m: &Matrix, output: &mut [[u8; 3]]) {
        let mut start_x = m[2] + m[1] * 0.5 + m[0] * 0.5;
        let mut start_y = m[5] + m[4] * 0.5 + m[3] * 0.5;
        for row in self.rows(output) {
            let (mut x, mut y) = (start_x, start_y);
            for pixel in row {
                *pixel = self.get(truncate(x), truncate(y)).unwrap_or(*pixel);
                x += m[0];
                y += m[3];
            }
            start_x += m[1];
            start_y += m[4];
        }
    }

    /// Samples at the exact coordinates of each pixel.
    fn sample(&self, m: &Matrix, output: &mut [[u8; 3]], filter: fn(&Self, f64, f64) -> [u8; 3]) {
        let (width, height) = (self.width as f64, self.height as f64);
        for (y, row) in self.rows(output).enumerate() {
            let y = y as f64 + 0.5;
            for (x, pixel) in row.iter_mut().enumerate() {
                let x = x as f64 + 0.5;
                let (from_x, from_y) = (m[0] * x + m[1] * y + m[2], m[3] * x + m[4] * y + m[5]);
                if (0.0..width).contains(&from_x) && (0.0..height).contains(&from_y) {
                    *pixel = filter(self, from_x - 0.5, from_y - 0.5);
                }
            }
        }
    }

    /// Returns the values of one channel in `N` columns from `x`, clamped to the image.
    fn columns<const N: usize>(&self, x: i64, y: i64, channel: usize) -> [f64; N] {
        let row = (y.clamp(0, self.height - 1) * self.width) as usize;
        std::array::from_fn(|n| {
            let x = (x + n as i64).clamp(0, self.width - 1) as usize;
            f64::from(self.pixels[row + x][channel])
        })
    }

    fn bilinear(&self, x: f64, y: f64) -> [u8; 3] {
        let (left, top) = (x.floor(), y.floor());
        let (dx, dy) = (x - left, y - top);
        std::array::from_fn(|channel| {
            let row = |y: i64| {
                let [a, b] = self.columns(left as i64, y, channel);
                a + (b - a) * dx
            };
            let (upper, lower) = (row(top as i64), row(top as i64 + 1));
            (upper + (lower - upper) * dy) as u8
        })
    }

    fn bicubic(&self, x: f64, y: f64) -> [u8; 3] {
        let (left, top) = (x.floor(), y.floor());
        let (dx, dy) = (x - left, y - top);
        std::array::from_fn(|channel| {
            let first = top as i64 - 1;
            let rows = [first, first + 1, first + 2, first + 3];
            let rows = rows.map(|y| cubic(self.columns(left as i64 - 1, y, channel), dx));
            // The conversion truncates and clips.
            cubic(rows, dy) as u8
        })
    }
}

/// Truncates a coordinate. Negative ones become −1, which is outside.
fn truncate(coordinate: f64) -> i64 {
    if coordinate < 0.0 { -1 } else { coordinate as i64 }
}

/// Interpolates between the two values in the middle, with Pillow's order of operations.
fn cubic([v1, v2, v3, v4]: [f64; 4], d: f64) -> f64 {
    let p2 = -v1 + v3;
    let p3 = 2.0 * (v1 - v2) + v3 - v4;
    let p4 = -v1 + v2 - v3 + v4;
    v2 + d * (p2 + d * (p3 + d * p4))
}

/// Returns the inverse matrix of torchvision's `affine` with scale 1 and without rotation.
///
/// Angles are in degrees. The sums are in torchvision's order, since nearest pixels depend on the last bit.
pub(super) fn shear_translation(center: [f64; 2], translate: [f64; 2], shear: [f64; 2]) -> Matrix {
    let [sx, sy] = shear.map(f64::to_radians);
    let ([cx, cy], [tx, ty]) = (center, translate);
    let (cos, sin) = ((-sy).cos(), (-sy).sin());
    let a = cos / sy.cos();
    let b = -cos * sx.tan() / sy.cos();
    let c = sin / sy.cos();
    let d = -sin * sx.tan() / sy.cos() + 1.0;
    let mut matrix = [d, -b, 0.0, -c, a, 0.0];
    matrix[2] += matrix[0] * (-cx - tx) + matrix[1] * (-cy - ty);
    matrix[5] += matrix[3] * (-cx - tx) + matrix[4] * (-cy - ty);
    matrix[2] += cx;
    matrix[5] += cy;
    matrix
}

/// Rotates the image counterclockwise around its centre, as `Image.rotate` without `expand`.
pub(super) fn rotate(
    image: &RgbImage,
    degrees: f64,
    interpolation: Interpolation,
    fill: [u8; 3],
) -> RgbImage {
    let degrees = degrees.rem_euclid(360.0);
    let square = image.width == image.height;
    // Pillow does not interpolate multiples of a right angle.
    if degrees == 0.0 {
        image.clone()
    } else if degrees == 180.0 {
        let mut turned = image.clone();
        turned.data.as_chunks_mut::<3>().0.reverse();
        turned
    } else if square && (degrees == 90.0 || degrees == 270.0) {
        quarter_turn(image, degrees == 90.0)
    } else {
        affine(
            image,
            &rotation([image.width, image.height], degrees),
            interpolation,
            fill,
        )
    }
}

fn rotation(size: [usize; 2], degrees: f64) -> Matrix {
    let [cx, cy] = size.map(|side| side as f64 / 2.0);
    let angle = -degrees.to_radians();
    let (cos, sin) = (round_15(angle.cos()), round_15(angle.sin()));
    let negative = round_15(-angle.sin());
    [
        cos,
        sin,
        cos * -cx + sin * -cy + 0.0 + cx,
        negative,
        cos,
        negative * -cx + cos * -cy + 0.0 + cy,
    ]
}

/// Rounds to 15 decimals as Python's `round`, which is correctly rounded from the decimal expansion.
fn round_15(value: f64) -> f64 {
    format!("{value:.15}").parse().unwrap_or(value)
}

fn quarter_turn(image: &RgbImage, counterclockwise: bool) -> RgbImage {
    let side = image.width;
    let pixels = image.data.as_chunks::<3>().0;
    let from = |at: usize| {
        let (row, column) = (at / side, at % side);
        if counterclockwise {
            pixels[column * side + side - 1 - row]
        } else {
            pixels[(side - 1 - column) * side + row]
        }
    };
    RgbImage {
        width: side,
        height: side,
        data: (0..side * side).flat_map(from).collect(),
    }
}
