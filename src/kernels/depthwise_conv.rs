//! `depthwise_conv` and the kernels of one size.

use std::borrow::Cow;

use super::bindings::{
    DEPTHWISE_COLUMNS, DEPTHWISE_NARROW_COLUMNS, DEPTHWISE_ROWS, DEPTHWISE_TAPS, DEPTHWISE_TILE_THREADS,
    DEPTHWISE_TILE_WORDS, DEPTHWISE_VECS, DEPTHWISE_WIDE_COLUMNS, DepthwiseConvArgs, ELEMENTWISE_THREADS,
    VEC128_BYTES, WindowGeometry,
};
use super::conv::visit;
use super::{Access, KernelArguments, KernelError, Launch, Target, bytes};

/// Pixels that a thread of a kernel of one size computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tile {
    /// Last part of the kernel's name.
    form: &'static str,
    columns: u32,
    rows: u32,
}

const WIDE: Tile = Tile {
    form: "wide",
    columns: DEPTHWISE_WIDE_COLUMNS,
    rows: DEPTHWISE_ROWS,
};
const NARROW: Tile = Tile {
    form: "narrow",
    columns: DEPTHWISE_NARROW_COLUMNS,
    rows: DEPTHWISE_ROWS,
};
const STRIDED: Tile = Tile {
    form: "strided",
    columns: DEPTHWISE_NARROW_COLUMNS,
    rows: 1,
};

/// Bytes that a thread of a kernel of one size loads, to which the addresses are aligned.
const WORD_BYTES: u64 = 4;

/// Extents of the square windows that kernels of one size compute.
const SIZES: [u32; 3] = [3, 5, 7];

impl DepthwiseConvArgs {
    /// Returns the tile of the kernel of this size. `None` if only `depthwise_conv` supports the windows, channels or addresses.
    fn tile(&self) -> Option<Tile> {
        let windows = &self.windows;
        let operands = [self.x, self.weight, self.bias, self.residual, self.out];
        let aligned = operands
            .iter()
            .all(|address| address.as_u64().is_multiple_of(WORD_BYTES));
        let indexed = |elements: usize| i32::try_from(elements).is_ok();
        let supported = windows.kernel[0] == windows.kernel[1]
            && SIZES.contains(&windows.kernel[0])
            && windows.dilation == [1; 2]
            && windows.channels.is_multiple_of(2)
            && indexed(windows.bytes_of_x(1))
            && aligned;
        if !supported {
            return None;
        }
        match windows.stride {
            [1, 1] => Some(if narrow_is_faster(windows.columns) {
                NARROW
            } else {
                WIDE
            }),
            [2, 2] => Some(STRIDED),
            _ => None,
        }
    }
}

/// Returns true if narrow tiles are faster for rows of `columns` pixels. They compute fewer pixels beyond the end of a row, and take about
/// 6/5 of the time for each.
fn narrow_is_faster(columns: u32) -> bool {
    let computed = |tile: Tile| u64::from(columns.div_ceil(tile.columns)) * u64::from(tile.columns);
    computed(NARROW) * 6 < computed(WIDE) * 5
}

// SAFETY: see hip/depthwise_conv.hip. Weights of at most DEPTHWISE_TAPS elements fit the LDS. Threads beyond the last pixel or channel return.
// The kernels of one size access whole words: `tile` returns `None` for other channels and addresses.
unsafe impl KernelArguments for DepthwiseConvArgs {
    const FILE: &'static str = "depthwise_conv";

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        Ok(match self.tile() {
            Some(tile) => format!("depthwise_conv_{}_{}", self.windows.kernel[0], tile.form).into(),
            None => "depthwise_conv".into(),
        })
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        self.windows.check()?;
        if self.windows.taps() > DEPTHWISE_TAPS.into() {
            return Err(format!("has windows of {} elements", self.windows.taps()).into());
        }
        let (tile, threads, parts, part_bytes) = match self.tile() {
            Some(tile) => (
                [tile.rows, tile.columns],
                DEPTHWISE_TILE_THREADS,
                DEPTHWISE_TILE_WORDS,
                WORD_BYTES,
            ),
            None => (
                [1, DEPTHWISE_COLUMNS],
                ELEMENTWISE_THREADS,
                DEPTHWISE_VECS,
                VEC128_BYTES.into(),
            ),
        };
        let WindowGeometry {
            images,
            rows,
            columns,
            channels,
            ..
        } = self.windows;
        let channels_of_block = u64::from(parts) * part_bytes / target.dtype.size() as u64;
        let groups = u64::from(channels).div_ceil(channels_of_block);
        let lines = u64::from(images) * u64::from(rows.div_ceil(tile[0]));
        let tiles = lines.saturating_mul(columns.div_ceil(tile[1]).into());
        let blocks = tiles.div_ceil((threads / parts).into());
        target.blocks(blocks.saturating_mul(groups), threads)
    }

    fn accesses(&self, element: usize, visitor: &mut dyn FnMut(Access)) {
        let WindowGeometry { kernel, channels, .. } = self.windows;
        let weight = bytes(element, &[channels, kernel[0], kernel[1]]);
        let operands = [self.x, self.weight, self.bias, self.residual, self.out];
        visit(operands, &self.windows, weight, channels, element, visitor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hip::DeviceAddress;

    fn arguments([kernel, stride]: [u32; 2], [columns, channels]: [u32; 2]) -> DepthwiseConvArgs {
        let address = DeviceAddress::from_raw(1 << 20);
        DepthwiseConvArgs {
            x: address,
            weight: address,
            out: address,
            windows: WindowGeometry {
                images: 2,
                height: 9,
                width: columns * stride,
                channels,
                rows: 9 / stride,
                columns,
                kernel: [kernel; 2],
                stride: [stride; 2],
                dilation: [1; 2],
                before: [kernel / 2; 2],
            },
            ..Default::default()
        }
    }

    #[test]
    fn windows_channels_and_addresses_choose_the_kernel() {
        let entry = |arguments: DepthwiseConvArgs| arguments.entry().unwrap();
        // Rows of the models' images at 224 pixels are multiples of 7.
        for columns in [7, 14, 28, 56, 112] {
            assert_eq!(entry(arguments([7, 1], [columns, 96])), "depthwise_conv_7_wide");
        }
        for columns in [4, 8, 16] {
            assert_eq!(entry(arguments([3, 1], [columns, 96])), "depthwise_conv_3_narrow");
        }
        assert_eq!(entry(arguments([5, 2], [14, 96])), "depthwise_conv_5_strided");
        let mut dilated = arguments([3, 1], [14, 96]);
        dilated.windows.dilation = [1, 2];
        let odd = arguments([3, 1], [14, 33]);
        let mut unaligned = arguments([3, 1], [14, 96]);
        unaligned.bias = unaligned.x.offset(2);
        let mut large = arguments([3, 1], [14, 96]);
        large.windows.images = 1 << 20;
        for general in [
            arguments([4, 1], [14, 96]),
            arguments([3, 3], [14, 96]),
            dilated,
            odd,
            unaligned,
            large,
        ] {
            assert_eq!(entry(general), "depthwise_conv", "{general:?}");
        }
    }
}
