//! Resampling on the device: the passes and tables of [`crate::image`], computed by the kernels of hip/resize.hip. The tables contain load
//! addresses, so `pass` checks them, and every launch uses a checked pass.

mod pass;

use std::borrow::Cow;

use self::pass::PassImage;
use super::bindings::{
    RESIZE_IMAGES, RESIZE_THREADS, RESIZE_VERTICAL_BYTES, ResizeArgs, ResizeImage, ResizeNearestArgs,
    ResizeNearestImage,
};
use super::{KernelArguments, KernelError, Kernels, Target, Unit, bytes};
use crate::error::Result;
use crate::hip::{Access, Device, Launch, Operand, Stream};
use crate::tensor::DType;

pub use self::pass::DevicePass;

/// Maximum number of images per launch.
const IMAGES: usize = RESIZE_IMAGES as usize;

/// The kernels, loaded on a device.
#[derive(Debug)]
pub struct ResizeKernels(Kernels);

impl ResizeKernels {
    /// Loads the kernels. Compiles them if there is no code for the device.
    ///
    /// # Errors
    ///
    /// The kernels cannot be compiled or loaded.
    pub fn load(device: &Device) -> Result<Self> {
        Kernels::load(device, DType::U8, [Unit::of("resize")]).map(Self)
    }

    /// Returns the code of the kernels; see [`Kernels::code`].
    pub fn code(&self) -> Result<Vec<(String, crate::hip::Code)>> {
        self.0.code()
    }

    /// Submits a pass for each of several images, in few launches.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`](crate::Error::Argument) if an operand is too small or belongs to another stream.
    /// [`Error::Hip`](crate::Error::Hip) if the driver fails.
    pub fn launch(&self, stream: &Stream, passes: &[ImagePass<'_>]) -> Result<()> {
        let (mut nearest, mut horizontal, mut vertical) = (Part::default(), Part::default(), Part::default());
        for pass in passes {
            let operands = [pass.input, pass.output, pass.tables];
            let addresses = operands.map(|operand| operand.address());
            match pass.pass.geometry.image(addresses) {
                PassImage::Nearest(image) => nearest.add(image, operands),
                PassImage::Horizontal(image) => horizontal.add(image, operands),
                PassImage::Vertical(image) => vertical.add(image, operands),
            }
        }
        nearest.launch(Nearest::new, &self.0, stream)?;
        horizontal.launch(Horizontal::new, &self.0, stream)?;
        vertical.launch(Vertical::new, &self.0, stream)
    }
}

/// A pass over an image on the device: u8 `[height, width, 3]` from `input` to `output`.
#[derive(Clone, Copy, Debug)]
pub struct ImagePass<'a> {
    /// The pass.
    pub pass: &'a DevicePass,
    /// A copy of the pass's [tables](DevicePass::tables), at a multiple of 4 bytes.
    pub tables: Operand<'a>,
    /// Pixels before the pass.
    pub input: Operand<'a>,
    /// Pixels after the pass.
    pub output: Operand<'a>,
}

/// Images of one launch, with their operands.
struct Part<'a, I> {
    images: Vec<I>,
    operands: Vec<[Operand<'a>; 3]>,
}

impl<I> Default for Part<'_, I> {
    fn default() -> Self {
        Self {
            images: Vec::new(),
            operands: Vec::new(),
        }
    }
}

impl<'a, I: Copy> Part<'a, I> {
    fn add(&mut self, image: I, operands: [Operand<'a>; 3]) {
        self.images.push(image);
        self.operands.push(operands);
    }

    fn launch<A: KernelArguments>(
        &self,
        arguments: impl Fn([I; IMAGES], u32) -> A,
        kernels: &Kernels,
        stream: &Stream,
    ) -> Result<()> {
        for (images, operands) in self.images.chunks(IMAGES).zip(self.operands.chunks(IMAGES)) {
            // Entries beyond the last image are not read.
            let filled = std::array::from_fn(|index| images[index.min(images.len() - 1)]);
            kernels.launch(
                stream,
                arguments(filled, images.len() as u32),
                operands.as_flattened(),
            )?;
        }
        Ok(())
    }
}

/// Arguments of `resize_horizontal`.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Horizontal(ResizeArgs);

#[derive(Clone, Copy)]
#[repr(transparent)]
struct Vertical(ResizeArgs);

#[derive(Clone, Copy)]
#[repr(transparent)]
struct Nearest(ResizeNearestArgs);

impl Horizontal {
    fn new(images: [ResizeImage; IMAGES], count: u32) -> Self {
        Self(ResizeArgs {
            images,
            image_blocks: 0,
            count,
        })
    }
}

impl Vertical {
    fn new(images: [ResizeImage; IMAGES], count: u32) -> Self {
        Self(Horizontal::new(images, count).0)
    }
}

impl Nearest {
    fn new(images: [ResizeNearestImage; IMAGES], count: u32) -> Self {
        Self(ResizeNearestArgs {
            images,
            image_blocks: 0,
            count,
        })
    }
}

impl ResizeArgs {
    fn used(&self) -> &[ResizeImage] {
        &self.images[..self.count as usize]
    }
}

impl ResizeNearestArgs {
    fn used(&self) -> &[ResizeNearestImage] {
        &self.images[..self.count as usize]
    }
}

/// Plans blocks for images with these numbers of threads. Each image gets the blocks of the largest image, which is the second result.
///
/// # Errors
///
/// The device does not support this number of blocks.
fn blocks(
    threads: impl ExactSizeIterator<Item = u64>,
    target: &Target,
) -> Result<(Launch, u32), KernelError> {
    let count = threads.len() as u64;
    let each = threads.max().unwrap_or(0).div_ceil(RESIZE_THREADS.into()).max(1);
    let launch = target.blocks(each.saturating_mul(count), RESIZE_THREADS)?;
    // At most the number of all blocks, which fits.
    Ok((launch, each as u32))
}

fn visit_tables(a: &ResizeImage, visit: &mut dyn FnMut(Access)) {
    visit(Access::read("weights", a.weights, bytes(4, &[a.outputs, a.taps])));
    visit(Access::read("starts", a.starts, bytes(4, &[a.outputs])));
    visit(Access::read("counts", a.counts, bytes(4, &[a.outputs])));
}

/// Returns the bytes from the first row's first byte to the end of `bytes` bytes of the last row.
fn rows(count: u32, row: u64, bytes: u64) -> usize {
    let before = row.saturating_mul(u64::from(count.saturating_sub(1)));
    usize::try_from(before.saturating_add(bytes)).unwrap_or(usize::MAX)
}

// SAFETY: see hip/resize.hip. Threads beyond the last pixel return. A sum stays in its row, since `weighted` in `pass` has checked the
// tables.
unsafe impl KernelArguments for Horizontal {
    const FILE: &'static str = "resize";

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        Ok("resize_horizontal".into())
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        let threads = self
            .0
            .used()
            .iter()
            .map(|a| u64::from(a.rows) * u64::from(a.outputs));
        let (launch, image_blocks) = blocks(threads, target)?;
        self.0.image_blocks = image_blocks;
        Ok(launch)
    }

    fn accesses(&self, _element: usize, visit: &mut dyn FnMut(Access)) {
        for a in self.0.used() {
            let read = rows(a.rows, a.input_row, u64::from(a.columns) * 3);
            visit(Access::read("input", a.input, read));
            visit(Access::write("output", a.output, bytes(3, &[a.rows, a.outputs])));
            visit_tables(a, visit);
        }
    }
}

// SAFETY: as above; a sum stays in its column.
unsafe impl KernelArguments for Vertical {
    const FILE: &'static str = "resize";

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        Ok("resize_vertical".into())
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        let words = |a: &ResizeImage| u64::from(a.columns.div_ceil(RESIZE_VERTICAL_BYTES));
        let threads = self.0.used().iter().map(|a| u64::from(a.outputs) * words(a));
        let (launch, image_blocks) = blocks(threads, target)?;
        self.0.image_blocks = image_blocks;
        Ok(launch)
    }

    fn accesses(&self, _element: usize, visit: &mut dyn FnMut(Access)) {
        for a in self.0.used() {
            let read = rows(a.rows, a.input_row, a.columns.into());
            let written = bytes(1, &[a.outputs, a.columns]);
            visit(Access::read("input", a.input, read));
            visit(Access::write("output", a.output, written));
            visit_tables(a, visit);
        }
    }
}

// SAFETY: as above. `positions` in `pass` has checked that columns and rows are within the image.
unsafe impl KernelArguments for Nearest {
    const FILE: &'static str = "resize";

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        Ok("resize_nearest".into())
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        let threads = self
            .0
            .used()
            .iter()
            .map(|a| u64::from(a.height) * u64::from(a.width));
        let (launch, image_blocks) = blocks(threads, target)?;
        self.0.image_blocks = image_blocks;
        Ok(launch)
    }

    fn accesses(&self, _element: usize, visit: &mut dyn FnMut(Access)) {
        for a in self.0.used() {
            let read = rows(a.input_height, a.input_row, a.input_row);
            visit(Access::read("input", a.input, read));
            visit(Access::read("columns", a.columns, bytes(4, &[a.width])));
            visit(Access::read("rows", a.rows, bytes(4, &[a.height])));
            visit(Access::write("output", a.output, bytes(3, &[a.width, a.height])));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::pass::Geometry;
    use super::*;
    use crate::hip::DeviceAddress;
    use crate::image::{Crop, Filter, Pass, Preprocess, Rescale, Resize, RgbImage, Rounding, ValueRule};

    const INPUT: usize = 16;

    /// Runs the kernels as plain loops after hip/resize.h, on memory in which byte `n` has the address `n`.
    fn run(pass: &Pass, image: &RgbImage) -> RgbImage {
        let (geometry, tables) = Geometry::new(pass, [image.width, image.height]).unwrap();
        let tables_at = (INPUT + image.data.len()).next_multiple_of(4);
        let output_at = tables_at + 4 * tables.len();
        let [width, height] = pass.output();
        let mut memory = vec![0; output_at + width * height * 3];
        memory[INPUT..][..image.data.len()].copy_from_slice(&image.data);
        memory[tables_at..output_at].copy_from_slice(bytemuck::cast_slice(&tables));
        let mut memory = Memory {
            bytes: memory,
            allowed: Vec::new(),
        };
        let addresses = [INPUT, output_at, tables_at].map(|at| DeviceAddress::from_raw(at as u64));
        match geometry.image(addresses) {
            PassImage::Nearest(a) => {
                memory.allow(&Nearest::new([a; IMAGES], 1));
                for index in 0..a.width as usize * a.height as usize {
                    let (y, x) = (index / a.width as usize, index % a.width as usize);
                    let row = memory.word(a.rows, y) as usize * a.input_row as usize;
                    let from = row + 3 * memory.word(a.columns, x) as usize;
                    for c in 0..3 {
                        memory.set(a.output, 3 * index + c, memory.byte(a.input, from + c));
                    }
                }
            }
            PassImage::Horizontal(a) => {
                memory.allow(&Horizontal::new([a; IMAGES], 1));
                for row in 0..a.rows as usize {
                    for at in 0..a.outputs as usize {
                        for c in 0..3 {
                            let value = memory.sum(&a, at, row * a.input_row as usize + c, 3);
                            memory.set(a.output, (row * a.outputs as usize + at) * 3 + c, value);
                        }
                    }
                }
            }
            PassImage::Vertical(a) => {
                memory.allow(&Vertical::new([a; IMAGES], 1));
                for at in 0..a.outputs as usize {
                    for column in 0..a.columns as usize {
                        let value = memory.sum(&a, at, column, a.input_row as usize);
                        memory.set(a.output, at * a.columns as usize + column, value);
                    }
                }
            }
        }
        RgbImage::new(width, height, memory.bytes[output_at..].to_vec()).unwrap()
    }

    /// Memory that panics on an access that the arguments do not state.
    struct Memory {
        bytes: Vec<u8>,
        allowed: Vec<Access>,
    }

    impl Memory {
        fn allow<A: KernelArguments>(&mut self, arguments: &A) {
            let end = DeviceAddress::from_raw(self.bytes.len() as u64);
            arguments.accesses(1, &mut |access| {
                assert!(
                    access.address.offset(access.bytes) <= end,
                    "{access:?} of {end:?}"
                );
                self.allowed.push(access);
            });
        }

        /// Returns the index of a byte, which the arguments must allow.
        fn index(&self, address: DeviceAddress, written: bool) -> usize {
            let fits = |a: &Access| {
                (a.address..a.address.offset(a.bytes)).contains(&address) && (a.written || !written)
            };
            assert!(self.allowed.iter().any(fits), "{address:?}: {:?}", self.allowed);
            address.as_u64() as usize
        }

        fn byte(&self, address: DeviceAddress, offset: usize) -> u8 {
            self.bytes[self.index(address.offset(offset), false)]
        }

        /// Returns the word `index` after an address.
        fn word(&self, address: DeviceAddress, index: usize) -> u32 {
            u32::from_ne_bytes([0, 1, 2, 3].map(|n| self.byte(address, 4 * index + n)))
        }

        fn set(&mut self, address: DeviceAddress, offset: usize, value: u8) {
            let index = self.index(address.offset(offset), true);
            self.bytes[index] = value;
        }

        /// Returns an output position's sum over the input's bytes from `first` on, `step` apart.
        fn sum(&self, a: &ResizeImage, at: usize, first: usize, step: usize) -> u8 {
            let start = self.word(a.starts, at) as usize;
            let mut sum = 1i32 << 21;
            for tap in 0..self.word(a.counts, at) as usize {
                let weight = self.word(a.weights, at * a.taps as usize + tap) as i32;
                let byte = self.byte(a.input, first + (start + tap) * step);
                sum = sum.wrapping_add(weight.wrapping_mul(byte.into()));
            }
            (sum >> 22).clamp(0, 255) as u8
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// The launches of every rule give the CPU's result, before padding.
        #[test]
        fn launches_equal_the_cpu(
            (width, height) in (1usize..50, 1usize..50),
            (edge, crop) in (1usize..40, 1usize..40),
            filter in prop::sample::select(Filter::ALL.to_vec()),
            (exact, twice, rotate) in any::<(bool, bool, bool)>(),
            seed: u64,
        ) {
            let bytes = (0..(3 * width * height) as u64).map(|i| (seed ^ i).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0]);
            let image = RgbImage::new(width, height, bytes.collect()).unwrap();
            let resize = if exact { Resize::Exact { height: edge, width: 65 - edge } } else { Resize::Shortest { edge, longest: None } };
            let crop = Crop { height: crop, width: if twice { edge } else { crop }, rounding: Rounding::Torchvision, fill: [1, 2, 3] };
            let thumbnail = Resize::Thumbnail { height: crop.height, width: crop.width, rotate };
            let resize = if twice { thumbnail } else { resize };
            let values = ValueRule { rescale: Rescale::None, normalize: None };
            let rule = Preprocess::new(Some((resize, filter)), Some(crop), values).unwrap();
            // A side may shrink to nothing.
            let Ok(expected) = rule.apply(&image) else { return Ok(()) };
            let placement = rule.placement([width, height]).unwrap();
            let mut part = image;
            for pass in placement.resampling.passes() {
                part = run(pass, &part);
            }
            let (left, top) = placement.padding.map_or((0, 0), |p| (p.left, p.top));
            for (y, row) in part.data.chunks(part.width * 3).enumerate() {
                let at = ((top + y) * expected.width + left) * 3;
                prop_assert_eq!(row, &expected.data[at..at + row.len()]);
            }
        }
    }
}
