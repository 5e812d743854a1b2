//! A resizing pass in the device's form: its geometry, and its tables, which are checked to stay within the image.

use std::ops::Range;

use super::{ResizeImage, ResizeNearestImage};
use crate::error::{Error, Result};
use crate::hip::DeviceAddress;
use crate::image::{Axis, Pass};
use crate::kernels::KernelError;

/// A [`Pass`] over images of one size, with its tables for the device.
#[derive(Debug)]
pub struct DevicePass {
    pub(super) geometry: Geometry,
    tables: Vec<u32>,
}

impl DevicePass {
    /// Creates a pass over images of `input` (width, height).
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the pass reads beyond such an image.
    pub fn new(pass: &Pass, input: [usize; 2]) -> Result<Self> {
        let (geometry, tables) = Geometry::new(pass, input)?;
        Ok(Self { geometry, tables })
    }

    /// Returns the tables, which the device needs besides the image.
    pub fn tables(&self) -> &[u8] {
        bytemuck::cast_slice(&self.tables)
    }

    /// Returns width and height of the result.
    pub(crate) fn output(&self) -> [usize; 2] {
        self.geometry.output.map(|side| side as usize)
    }
}

/// A pass without its tables.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    kind: Kind,
    /// Width and height of the input and of the output.
    input: [u32; 2],
    output: [u32; 2],
}

/// Kind of pass. The comments list its concatenated tables.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Columns, rows.
    Pick,
    /// Positions of the first column's pixels from the bottom to the top, columns. Rows of the input are one pixel apart.
    Rotate,
    /// Weights, starts, counts.
    Horizontal { first_row: u32, taps: u32 },
    /// Weights, starts, counts.
    Vertical { first_column: u32, taps: u32 },
}

/// An image's part in a launch. Only constructed from tables that [`weighted`] or [`positions`] has checked.
pub(super) enum PassImage {
    Nearest(ResizeNearestImage),
    Horizontal(ResizeImage),
    Vertical(ResizeImage),
}

impl Geometry {
    /// Creates the geometry and the tables. The tables are checked, so that launches stay within images of `input`.
    pub(super) fn new(pass: &Pass, input: [usize; 2]) -> Result<(Self, Vec<u32>)> {
        let [width, height] = input;
        let (kind, tables) = match pass {
            Pass::Pick { columns, rows } => {
                let tables = [positions(columns, width)?, positions(rows, height)?].concat();
                (Kind::Pick, tables)
            }
            Pass::Rotate { input: rotated } => {
                if *rotated != input {
                    return Err(outside());
                }
                let first: Vec<usize> = (0..height).rev().map(|row| row * width).collect();
                let columns: Vec<usize> = (0..width).collect();
                let tables = [positions(&first, width * height)?, positions(&columns, width)?].concat();
                (Kind::Rotate, tables)
            }
            Pass::Horizontal { rows, axis } => {
                let (first_row, taps) = (within(rows, height)?, int(axis.taps)?);
                (Kind::Horizontal { first_row, taps }, weighted(axis, width)?)
            }
            Pass::Vertical { columns, axis } => {
                let (first_column, taps) = (within(columns, width)?, int(axis.taps)?);
                (Kind::Vertical { first_column, taps }, weighted(axis, height)?)
            }
        };
        let [output_width, output_height] = pass.output();
        let geometry = Self {
            kind,
            input: [int(width)?, int(height)?],
            output: [int(output_width)?, int(output_height)?],
        };
        Ok((geometry, tables))
    }

    /// Returns the part of an image with a result and tables at these addresses.
    pub(super) fn image(&self, [input, output, tables]: [DeviceAddress; 3]) -> PassImage {
        let ([input_width, input_height], [width, height]) = (self.input, self.output);
        let input_row = u64::from(input_width) * 3;
        let table = |elements: u64| tables.offset(4 * elements as usize);
        let weighted = |taps: u32, outputs: u32, first_byte: u64| {
            let weights = u64::from(outputs) * u64::from(taps);
            ResizeImage {
                input: input.offset(first_byte as usize),
                output,
                weights: table(0),
                starts: table(weights),
                counts: table(weights + u64::from(outputs)),
                input_row,
                taps,
                outputs,
                rows: 0,
                columns: 0,
            }
        };
        let nearest = |input_row: u64, input_height: u32| {
            PassImage::Nearest(ResizeNearestImage {
                input,
                output,
                columns: table(0),
                rows: table(width.into()),
                input_row,
                width,
                height,
                input_height,
                reserved: 0,
            })
        };
        match self.kind {
            Kind::Pick => nearest(input_row, input_height),
            Kind::Rotate => nearest(3, input_width * input_height),
            Kind::Horizontal { first_row, taps } => PassImage::Horizontal(ResizeImage {
                rows: height,
                columns: input_width,
                ..weighted(taps, width, u64::from(first_row) * input_row)
            }),
            Kind::Vertical { first_column, taps } => PassImage::Vertical(ResizeImage {
                rows: input_height,
                columns: width * 3,
                ..weighted(taps, height, u64::from(first_column) * 3)
            }),
        }
    }
}

/// Returns the tables of an axis, whose sums stay within `inputs` positions.
fn weighted(axis: &Axis, inputs: usize) -> Result<Vec<u32>> {
    let Axis {
        weights,
        starts,
        counts,
        taps,
    } = axis;
    let sees = |(&start, &count): (&usize, &usize)| count <= *taps && start + count <= inputs;
    let whole = starts.len() == counts.len() && Some(weights.len()) == taps.checked_mul(starts.len());
    if !whole || !starts.iter().zip(counts).all(sees) {
        return Err(outside());
    }
    let mut table: Vec<u32> = bytemuck::cast_slice(weights).to_vec();
    for &n in starts.iter().chain(counts) {
        table.push(int(n)?);
    }
    Ok(table)
}

/// Returns the positions, which must be below `inputs`.
fn positions(list: &[usize], inputs: usize) -> Result<Vec<u32>> {
    let check = |&at: &usize| if at < inputs { int(at) } else { Err(outside()) };
    list.iter().map(check).collect()
}

/// Returns the start of a range that must end within `inputs`.
fn within(range: &Range<usize>, inputs: usize) -> Result<u32> {
    if range.start <= range.end && range.end <= inputs {
        int(range.start)
    } else {
        Err(outside())
    }
}

fn outside() -> Error {
    Error::internal("resize", "a pass reads beyond the image")
}

/// Converts an extent to 32 bits. It must also fit after a multiplication by three channels.
fn int(n: usize) -> Result<u32> {
    u32::try_from(n)
        .ok()
        .filter(|&n| n <= u32::MAX / 3)
        .ok_or_else(|| Error::kernel("resize", KernelError::Extent(n)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_that_leave_the_image_are_refused() {
        let pick = |columns: &[usize], rows: &[usize]| Pass::Pick {
            columns: columns.to_vec(),
            rows: rows.to_vec(),
        };
        assert!(Geometry::new(&pick(&[3], &[4]), [4, 5]).is_ok());
        assert!(Geometry::new(&pick(&[4], &[4]), [4, 5]).is_err());
        assert!(Geometry::new(&pick(&[3], &[5]), [4, 5]).is_err());
        let horizontal = |start, count, rows| Pass::Horizontal {
            rows,
            axis: Axis {
                weights: vec![0; 3],
                starts: vec![start],
                counts: vec![count],
                taps: 3,
            },
        };
        assert!(Geometry::new(&horizontal(1, 3, 0..5), [4, 5]).is_ok());
        assert!(Geometry::new(&horizontal(2, 3, 0..5), [4, 5]).is_err());
        assert!(Geometry::new(&horizontal(0, 4, 0..5), [4, 5]).is_err());
        assert!(Geometry::new(&horizontal(0, 3, 1..6), [4, 5]).is_err());
        assert!(Geometry::new(&horizontal(0, 3, 0..1), [usize::MAX, 5]).is_err());
    }
}
