//! Packs the quantised DCT coefficients of a JPEG for a device that computes the pixels.
//!
//! Most coefficients are 0, so only the others are stored. The words of [`JpegCoefficients`] are, in this order:
//!
//! | part | words | content |
//! | --- | --- | --- |
//! | steps | 3 × 64 | for each component and position in file order: the quantisation step, and in the upper half the position in the block |
//! | blocks | one per block | number of the block's entries in the lower 7 bits, above them the index of the first one |
//! | entries | half a word each | first the block's DC coefficient, then its other coefficients |
//!
//! Blocks are listed component after component, row after row. An entry has the position in file order in the lower 6
//! bits and the value above them. The entry of a value that needs more than 10 bits follows an entry at position 0, which
//! has the bits above the lower 10.

use super::frame::{Component, Frame};
use super::idct::Block;
use super::markers::{Steps, ZIGZAG};
use super::rows::{Coding, Upsampling};

/// Number of words before those of the blocks.
pub(super) const STEP_WORDS: usize = 3 * 64;

/// Maximum number of entries of a block: its DC coefficient, and 63 others of two entries each.
pub(super) const BLOCK_ENTRIES: usize = 1 + 2 * 63;

/// Bytes of entries for each byte of a file. Photographs of qualities from 75 to 95 have 2.5 to 3.
const ENTRY_BYTES: usize = 3;

/// Number of bits of the number of a block's entries.
const COUNT_BITS: u32 = 7;

/// Number of bits of an entry's value.
const VALUE_BITS: u32 = 10;

/// Colour encoding of the components.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JpegColor {
    /// One component.
    Grey,
    /// Red, green and blue.
    Rgb,
    /// Luma and two colour differences, in JFIF's encoding.
    YCbCr,
}

/// Method that scales the second and third component to the size of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JpegUpsampling {
    /// Repeats each sample this many times, horizontally and vertically.
    Repeated(usize, usize),
    /// Doubles the columns, with weights 3/4 and 1/4.
    Columns,
    /// Doubles the rows, with weights 3/4 and 1/4.
    Rows,
    /// Doubles rows and columns.
    Both,
}

/// Size of a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JpegPlane {
    /// Width and height in blocks, including blocks that complete MCUs.
    pub blocks: [usize; 2],
    /// Width and height in samples.
    pub samples: [usize; 2],
}

/// Geometry of a JPEG whose pixels a device computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JpegGeometry {
    /// Width and height of the image in pixels.
    pub size: [usize; 2],
    /// Colour encoding.
    pub color: JpegColor,
    /// First component. It has the size of the image.
    pub luma: JpegPlane,
    /// Second and third component, unless the image is grey.
    pub chroma: Option<JpegPlane>,
    /// Method that scales the second and third component.
    pub upsampling: JpegUpsampling,
}

impl JpegGeometry {
    /// Returns the geometry of a frame, or `None` if the host must compute the pixels.
    pub(super) fn new(frame: &Frame, coding: Coding) -> Option<Self> {
        let plane = |component: &Component| JpegPlane {
            blocks: [component.padded_wide, component.padded_high],
            samples: [component.width, component.height],
        };
        let size = [frame.width, frame.height];
        let (color, chroma, upsampling) = match (&frame.components[..], coding) {
            ([_], Coding::Grey) => (JpegColor::Grey, None, JpegUpsampling::Repeated(1, 1)),
            ([_, second, third], Coding::Rgb | Coding::YCbCr) => {
                if (second.h, second.v) != (third.h, third.v) {
                    return None;
                }
                let color = match coding {
                    Coding::Rgb => JpegColor::Rgb,
                    _ => JpegColor::YCbCr,
                };
                let upsampling = match Upsampling::new(frame, second) {
                    Upsampling::None => JpegUpsampling::Repeated(1, 1),
                    Upsampling::Columns => JpegUpsampling::Columns,
                    Upsampling::Rows => JpegUpsampling::Rows,
                    Upsampling::Both => JpegUpsampling::Both,
                    Upsampling::Repeated(h, v) => JpegUpsampling::Repeated(h, v),
                };
                (color, Some(plane(second)), upsampling)
            }
            _ => return None,
        };
        let luma = plane(&frame.components[0]);
        let geometry = Self {
            size,
            color,
            luma,
            chroma,
            upsampling,
        };
        // The index of an entry must fit, whatever the content.
        let fits = geometry.blocks() * BLOCK_ENTRIES < 1 << (32 - COUNT_BITS);
        (luma.samples == size && fits).then_some(geometry)
    }

    /// Returns the number of blocks of all components.
    pub fn blocks(&self) -> usize {
        let blocks = |plane: JpegPlane| plane.blocks[0] * plane.blocks[1];
        blocks(self.luma) + self.chroma.map_or(0, |plane| 2 * blocks(plane))
    }
}

/// Quantised DCT coefficients of a JPEG.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JpegCoefficients {
    /// Geometry of the image.
    pub geometry: JpegGeometry,
    words: Vec<u32>,
    /// Number of words that are used.
    used: usize,
}

impl JpegCoefficients {
    /// Returns steps, blocks and entries.
    pub fn words(&self) -> &[u32] {
        &self.words[..self.used]
    }

    /// Returns the number of bytes of memory that the coefficients take.
    pub(in crate::decode) fn memory(&self) -> usize {
        size_of_val(&self.words[..])
    }

    /// Returns the memory, for the next image.
    pub fn into_memory(self) -> Vec<u32> {
        self.words
    }
}

/// Maximum number of bytes that packing takes, for a file of `bytes` bytes whose rows of MCUs have `row` blocks.
pub(super) fn memory(geometry: &JpegGeometry, row: usize, bytes: usize) -> u64 {
    let blocks = geometry.blocks() as u64;
    let row = BLOCK_ENTRIES as u64 * row as u64;
    // A coefficient takes at least two bits of the file, and at most two entries.
    let entries = row + (blocks * BLOCK_ENTRIES as u64).min(blocks + 8 * bytes as u64);
    let words = STEP_WORDS as u64 + blocks + entries / 2 + 1;
    // While the memory grows by a half, the old one exists too.
    4 * words * 5 / 2
}

/// Packs the coefficients of an image.
pub(super) struct Packer {
    geometry: JpegGeometry,
    words: Vec<u32>,
    /// Number of entries so far.
    entries: usize,
    /// Index of each component's first block.
    firsts: [usize; 3],
}

impl Packer {
    /// Creates a packer that writes to the given memory, for a file of `bytes` bytes.
    pub(super) fn new(geometry: JpegGeometry, mut words: Vec<u32>, bytes: usize) -> Self {
        let start = STEP_WORDS + geometry.blocks();
        let entries = (bytes * ENTRY_BYTES).min(geometry.blocks() * BLOCK_ENTRIES * 2);
        let likely = start + entries / size_of::<u32>();
        if words.len() < likely {
            // Zeroed memory costs nothing until it is written.
            words = bytemuck::zeroed_vec(likely);
        }
        let plane = |plane: JpegPlane| plane.blocks[0] * plane.blocks[1];
        let (luma, chroma) = (plane(geometry.luma), geometry.chroma.map_or(0, plane));
        Self {
            geometry,
            words,
            entries: 0,
            firsts: [0, luma, luma + chroma],
        }
    }

    /// Stores the quantisation steps of a component.
    pub(super) fn set_steps(&mut self, component: usize, steps: &Steps) {
        let words = &mut self.words[64 * component..64 * (component + 1)];
        for (word, &at) in words.iter_mut().zip(&ZIGZAG) {
            *word = u32::from(steps[usize::from(at)] as u16) | u32::from(at) << 16;
        }
    }

    /// Returns the index of the block at column `x` and row `y` of a component.
    pub(super) fn block(&self, component: usize, x: usize, y: usize) -> usize {
        let plane = match component {
            0 => self.geometry.luma,
            _ => self.geometry.chroma.unwrap_or(self.geometry.luma),
        };
        self.firsts[component] + y * plane.blocks[0] + x
    }

    /// Makes room for the entries of `blocks` blocks.
    pub(super) fn reserve(&mut self, blocks: usize) {
        let start = STEP_WORDS + self.geometry.blocks();
        let end = start + (self.entries + blocks * BLOCK_ENTRIES).div_ceil(2) + 1;
        if self.words.len() < end {
            self.words.resize(end.max(self.words.len() * 3 / 2), 0);
        }
    }

    /// Returns the memory for blocks and entries. [`Packer::reserve`] has made room.
    pub(super) fn writer(&mut self) -> Writer<'_> {
        let (table, entries) = self.words[STEP_WORDS..].split_at_mut(self.geometry.blocks());
        Writer {
            table,
            entries: bytemuck::cast_slice_mut(entries),
            at: &mut self.entries,
        }
    }

    pub(super) fn finish(self) -> JpegCoefficients {
        let used = STEP_WORDS + self.geometry.blocks() + self.entries.div_ceil(2);
        JpegCoefficients {
            geometry: self.geometry,
            words: self.words,
            used,
        }
    }
}

/// Memory of a [`Packer`] for blocks and entries.
pub(super) struct Writer<'a> {
    table: &'a mut [u32],
    entries: &'a mut [u16],
    at: &'a mut usize,
}

/// Room for the entries of a block. A power of two, so that indices need no bounds checks.
pub(super) type Entries = [u16; BLOCK_ENTRIES + 1];

impl Writer<'_> {
    /// Writes the block `index` with `fill`, which returns the number of entries.
    #[inline(always)]
    pub(super) fn block(&mut self, index: usize, fill: impl FnOnce(&mut Entries) -> usize) {
        let Some(entries) = self
            .entries
            .get_mut(*self.at..)
            .and_then(<[u16]>::first_chunk_mut)
        else {
            return;
        };
        let count = fill(entries);
        if let Some(word) = self.table.get_mut(index) {
            *word = (*self.at as u32) << COUNT_BITS | count as u32;
        }
        *self.at += count;
    }
}

/// Adds the coefficient at a position in file order, which is not 0. Returns the new number of entries.
#[inline(always)]
pub(super) fn push(entries: &mut Entries, count: usize, position: usize, value: i16) -> usize {
    const HALF: i16 = 1 << (VALUE_BITS - 1);
    let position = position.min(63) as u16;
    let low = (value as u16) << (16 - VALUE_BITS) | position;
    if (-HALF..HALF).contains(&value) {
        entries[count & 127] = low;
        return count + 1;
    }
    // The lower bits are signed, so the upper ones are rounded.
    let high = (i32::from(value) + i32::from(HALF)) >> VALUE_BITS;
    entries[count & 127] = (high as u16) << (16 - VALUE_BITS);
    entries[(count + 1) & 127] = low;
    count + 2
}

/// Packs a block of collected coefficients. `filled` has the bits of those that are not 0, by their positions in file
/// order. Returns the number of entries.
pub(super) fn pack(block: &Block, filled: u64, entries: &mut Entries) -> usize {
    entries[0] = block[0] as u16;
    let mut count = 1;
    let mut rest = filled & !1;
    while rest != 0 {
        let position = rest.trailing_zeros() as usize;
        count = push(
            entries,
            count,
            position,
            block[usize::from(ZIGZAG[position & 127]) & 63],
        );
        rest &= rest - 1;
    }
    count
}

/// Reads a block as the device does.
#[cfg(test)]
pub(super) fn unpack(entries: &[u16]) -> Block {
    let mut block = [0; 64];
    block[0] = entries[0] as i16;
    for (index, &entry) in entries.iter().enumerate().skip(1) {
        let position = usize::from(entry & 63);
        if position > 0 {
            let before = entries[index - 1];
            let high = if index > 1 && before & 63 == 0 {
                before as i16 >> 6
            } else {
                0
            };
            let value = i32::from(entry as i16 >> 6) + (i32::from(high) << VALUE_BITS);
            block[usize::from(ZIGZAG[position])] = value as i16;
        }
    }
    block
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn packed_blocks_are_unpacked(
            block in prop::collection::vec(prop_oneof![4 => Just(0), 3 => -600..600_i16, 1 => any::<i16>()], 64),
        ) {
            let block: Block = block.try_into().unwrap();
            let mut entries = [0; BLOCK_ENTRIES + 1];
            let filled = (0..64).filter(|&at| block[usize::from(ZIGZAG[at])] != 0);
            let filled = filled.fold(0, |filled, at| filled | 1 << at);
            let count = pack(&block, filled, &mut entries);
            prop_assert_eq!(unpack(&entries[..count]), block);
        }
    }
}
