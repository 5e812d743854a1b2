//! Random operations of training images on the device: the kernels of hip/augment.hip and hip/planes.hip.

use std::borrow::Cow;

use super::bindings::{
    AUGMENT_ALONE, AUGMENT_AUTOCONTRAST, AUGMENT_BICUBIC, AUGMENT_BILINEAR, AUGMENT_BLEND,
    AUGMENT_BRIGHTNESS, AUGMENT_CONTRAST, AUGMENT_CUT, AUGMENT_EQUALIZE, AUGMENT_HUE, AUGMENT_INVERT,
    AUGMENT_MIXTURE_WORDS, AUGMENT_MOVE, AUGMENT_NEAREST, AUGMENT_OPERATION_WORDS, AUGMENT_POSTERIZE,
    AUGMENT_SATURATION, AUGMENT_SHARPNESS, AUGMENT_SOLARIZE, AUGMENT_SOLARIZE_ADD, AUGMENT_THREADS,
    AugmentArgs, AugmentMixArgs, PLANES_ERASURE_WORDS, PLANES_THREADS, PlanesArgs,
};
use super::{KernelArguments, KernelError, Kernels, Target, Unit, bytes, extent};
use crate::error::{Error, Result};
use crate::hip::{Access, Device, Launch, Operand, Stream};
use crate::tensor::DType;

/// An operation on a training image. It gives the bytes of Pillow, torchvision and timm.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum PixelOp {
    /// Mirrors and moves the image.
    Move {
        /// Whether columns and rows are mirrored.
        mirrored: [bool; 2],
        /// Column and row of the image that become the first ones.
        origin: [i32; 2],
        /// Colour outside of the image.
        fill: [u8; 3],
    },
    /// Transforms to the nearest pixels, with coordinates in 16.16 fixed point.
    Nearest {
        /// Steps of the source's column per column and row, then of its row.
        steps: [i32; 4],
        /// Column and row of the first pixel's source.
        start: [i32; 2],
        /// Colour outside of the image.
        fill: [u8; 3],
    },
    /// Transforms with bilinear interpolation.
    Bilinear {
        /// Mapping from output to input coordinates.
        matrix: [f64; 6],
        /// Colour outside of the image.
        fill: [u8; 3],
    },
    /// Transforms with bicubic interpolation.
    Bicubic {
        /// Mapping from output to input coordinates.
        matrix: [f64; 6],
        /// Colour outside of the image.
        fill: [u8; 3],
    },
    /// Scales the sharpness by a factor.
    Sharpness(f32),
    /// Scales the brightness by a factor.
    Brightness(f32),
    /// Scales the contrast by a factor.
    Contrast(f32),
    /// Scales the saturation by a factor.
    Saturation(f32),
    /// Adds a byte to the hue.
    Hue(u8),
    /// Keeps the bits of a mask.
    Posterize(u8),
    /// Inverts bytes from a threshold on.
    Solarize(f64),
    /// Adds to bytes below 128.
    SolarizeAdd(u8),
    /// Inverts all bytes.
    Invert,
    /// Flattens the histograms of the channels.
    Equalize,
    /// Stretches the ranges of the channels.
    AutoContrast,
}

/// Number of words of an operation.
const OPERATION: usize = AUGMENT_OPERATION_WORDS as usize;

impl PixelOp {
    /// Returns the operation in the kernel's form.
    pub fn words(&self) -> [u64; OPERATION] {
        let factor = |kind, factor: f32| (kind, [0; 3], vec![f64::from(factor)]);
        let amount = |kind, amount: u8| (kind, [0; 3], vec![f64::from(amount)]);
        let (kind, fill, numbers) = match *self {
            Self::Move {
                mirrored,
                origin,
                fill,
            } => {
                let [x, y] = mirrored.map(|mirrored| if mirrored { -1.0 } else { 1.0 });
                let [left, top] = origin.map(f64::from);
                (AUGMENT_MOVE, fill, vec![x, left, y, top])
            }
            Self::Nearest { steps, start, fill } => {
                let numbers = steps.into_iter().chain(start).map(f64::from);
                (AUGMENT_NEAREST, fill, numbers.collect())
            }
            Self::Bilinear { matrix, fill } => (AUGMENT_BILINEAR, fill, matrix.to_vec()),
            Self::Bicubic { matrix, fill } => (AUGMENT_BICUBIC, fill, matrix.to_vec()),
            Self::Sharpness(by) => factor(AUGMENT_SHARPNESS, by),
            Self::Brightness(by) => factor(AUGMENT_BRIGHTNESS, by),
            Self::Contrast(by) => factor(AUGMENT_CONTRAST, by),
            Self::Saturation(by) => factor(AUGMENT_SATURATION, by),
            Self::Hue(shift) => amount(AUGMENT_HUE, shift),
            Self::Posterize(mask) => amount(AUGMENT_POSTERIZE, mask),
            Self::Solarize(threshold) => (AUGMENT_SOLARIZE, [0; 3], vec![threshold]),
            Self::SolarizeAdd(by) => amount(AUGMENT_SOLARIZE_ADD, by),
            Self::Invert => amount(AUGMENT_INVERT, 0),
            Self::Equalize => amount(AUGMENT_EQUALIZE, 0),
            Self::AutoContrast => amount(AUGMENT_AUTOCONTRAST, 0),
        };
        let [red, green, blue] = fill.map(u64::from);
        let mut words = [0; OPERATION];
        words[0] = u64::from(kind) | red << 32 | green << 40 | blue << 48;
        for (word, number) in words[1..].iter_mut().zip(numbers) {
            *word = number.to_bits();
        }
        words
    }
}

/// Mixture of an image with the image at the mirrored place of the batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PixelMixture {
    /// The image alone.
    Alone,
    /// Sum with these weights of the image and of its partner.
    Blend([f32; 2]),
    /// The partner replaces rows and columns, from the first to before the last.
    Cut {
        /// First row and the row after the last.
        rows: [u32; 2],
        /// First column and the column after the last.
        columns: [u32; 2],
    },
}

impl PixelMixture {
    /// Returns the mixture in the kernel's form.
    pub fn words(&self) -> [u32; AUGMENT_MIXTURE_WORDS as usize] {
        match *self {
            Self::Alone => [AUGMENT_ALONE, 0, 0, 0, 0, 0, 0],
            Self::Blend([own, other]) => [AUGMENT_BLEND, own.to_bits(), other.to_bits(), 0, 0, 0, 0],
            Self::Cut { rows, columns } => [AUGMENT_CUT, 0, 0, rows[0], rows[1], columns[0], columns[1]],
        }
    }
}

/// The kernels for images as bytes, loaded on a device.
#[derive(Debug)]
pub struct AugmentKernels(Kernels);

/// The kernel that makes planes of bytes, loaded on a device.
#[derive(Debug)]
pub(crate) struct PlanesKernels(Kernels);

/// Operands of [`AugmentKernels::augment`].
#[derive(Clone, Copy, Debug)]
pub struct AugmentOperands<'a> {
    /// u8 `[images, height, width, 3]`, which the kernel overwrites.
    pub pixels: Operand<'a>,
    /// u8 `[images, height, width, 3]`: the results.
    pub out: Operand<'a>,
    /// [Words](PixelOp::words) of the operations of all images.
    pub operations: Operand<'a>,
    /// u32 `[images + 1]`: the first operation of each image.
    pub starts: Operand<'a>,
}

/// Operands of [`PlanesKernels::launch`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlanesOperands<'a> {
    /// u8 `[images, height, width, 3]`.
    pub(crate) bytes: Operand<'a>,
    /// f32 `[images, 3, height, width]`: the results.
    pub(crate) out: Operand<'a>,
    /// f32 `[3, 256]`: the value of each byte.
    pub(crate) table: Operand<'a>,
    /// f32 contents of the erased rectangles.
    pub(crate) values: Operand<'a>,
    /// u32 words of the erased rectangles; see `hip/planes.h`.
    pub(crate) erasures: Operand<'a>,
    /// u32 `[images + 1]`: the first rectangle of each image.
    pub(crate) starts: Operand<'a>,
}

/// Number of u32 words of an erased rectangle.
pub(crate) const ERASURE: usize = PLANES_ERASURE_WORDS as usize;

impl AugmentKernels {
    /// Loads the kernels. Compiles them if there is no code for the device.
    ///
    /// # Errors
    ///
    /// The kernels cannot be compiled or loaded.
    pub fn load(device: &Device) -> Result<Self> {
        Kernels::load(device, DType::U8, [Unit::of("augment")]).map(Self)
    }

    /// Submits the operations of a batch. `geometry` is the number of images, height and width.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if an operand is too small or belongs to another stream. [`Error::Kernel`] if the images are too large.
    pub fn augment(
        &self,
        stream: &Stream,
        operands: AugmentOperands<'_>,
        geometry: [usize; 3],
    ) -> Result<()> {
        let AugmentOperands {
            pixels,
            out,
            operations,
            starts,
        } = operands;
        let [images, height, width] = extents("augment", geometry)?;
        let count = operations.bytes() / size_of::<[u64; OPERATION]>();
        let arguments = AugmentArgs {
            pixels: pixels.address(),
            out: out.address(),
            operations: operations.address(),
            starts: starts.address(),
            images,
            height,
            width,
            count: extent(count).map_err(|reason| Error::kernel("augment", reason))?,
        };
        self.0
            .launch(stream, arguments, &[pixels, out, operations, starts])
    }

    /// Submits the mixing of each image with the one at the mirrored place. `mixtures` has the words of each image's mixture, and `geometry` the
    /// number of images, height and width.
    ///
    /// # Errors
    ///
    /// The errors of [`augment`](Self::augment), and [`Error::Argument`] if the number of images is odd.
    pub fn mix(
        &self,
        stream: &Stream,
        [pixels, mixtures]: [Operand<'_>; 2],
        geometry: [usize; 3],
    ) -> Result<()> {
        let [images, height, width] = extents("augment_mix", geometry)?;
        if !images.is_multiple_of(2) {
            let reason = format!("{images} images have no pairs");
            return Err(Error::argument("mixtures", reason));
        }
        let arguments = AugmentMixArgs {
            pixels: pixels.address(),
            mixtures: mixtures.address(),
            images,
            height,
            width,
            reserved: 0,
        };
        self.0.launch(stream, arguments, &[pixels, mixtures])
    }
}

impl PlanesKernels {
    /// Loads the kernel. Compiles it if there is no code for the device.
    pub(crate) fn load(device: &Device) -> Result<Self> {
        Kernels::load(device, DType::F32, [Unit::of("planes")]).map(Self)
    }

    /// Submits the conversion of a batch.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if an operand is too small or belongs to another stream. [`Error::Kernel`] if the images are too large.
    pub(crate) fn launch(
        &self,
        stream: &Stream,
        operands: PlanesOperands<'_>,
        geometry: [usize; 3],
    ) -> Result<()> {
        let PlanesOperands {
            bytes,
            out,
            table,
            values,
            erasures,
            starts,
        } = operands;
        let [images, height, width] = extents("planes", geometry)?;
        let int = |count| extent(count).map_err(|reason| Error::kernel("planes", reason));
        let arguments = PlanesArgs {
            bytes: bytes.address(),
            out: out.address(),
            table: table.address(),
            values: values.address(),
            erasures: erasures.address(),
            starts: starts.address(),
            images,
            height,
            width,
            erasure_count: int(erasures.bytes() / (4 * ERASURE))?,
            value_count: int(values.bytes() / size_of::<f32>())?,
            reserved: 0,
        };
        let operands = [bytes, out, table, values, erasures, starts];
        self.0.launch(stream, arguments, &operands)
    }
}

/// Returns the extents of a batch. Rows, columns and pixels of an image are i32 in the kernels.
fn extents(kernel: &'static str, geometry: [usize; 3]) -> Result<[u32; 3]> {
    let [_, height, width] = geometry;
    let pixels = height.saturating_mul(width);
    if i32::try_from(pixels).is_err() {
        return Err(Error::kernel(kernel, KernelError::Extent(pixels)));
    }
    let int = |side| extent(side).map_err(|reason| Error::kernel(kernel, reason));
    let [images, height, width] = geometry.map(int);
    Ok([images?, height?, width?])
}

// SAFETY: see hip/augment.hip. A block writes its own image. Threads beyond the last pixel skip it, and sources are limited to the image.
unsafe impl KernelArguments for AugmentArgs {
    const FILE: &'static str = "augment";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        target.blocks(self.images.into(), AUGMENT_THREADS)
    }

    fn accesses(&self, _element: usize, visit: &mut dyn FnMut(Access)) {
        let all = bytes(3, &[self.images, self.height, self.width]);
        visit(Access::write("pixels", self.pixels, all));
        visit(Access::write("out", self.out, all));
        let operations = bytes(8, &[self.count, AUGMENT_OPERATION_WORDS]);
        visit(Access::read("operations", self.operations, operations));
        visit(Access::read("starts", self.starts, bytes(4, &[self.images]) + 4));
    }
}

// SAFETY: see hip/augment.hip. Threads beyond the last pair return.
unsafe impl KernelArguments for AugmentMixArgs {
    const FILE: &'static str = "augment";

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        Ok("augment_mix".into())
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        let threads = bytes(3, &[self.images / 2, self.height, self.width]) as u64;
        target.blocks(threads.div_ceil(AUGMENT_THREADS.into()).max(1), AUGMENT_THREADS)
    }

    fn accesses(&self, _element: usize, visit: &mut dyn FnMut(Access)) {
        let all = bytes(3, &[self.images, self.height, self.width]);
        visit(Access::write("pixels", self.pixels, all));
        let mixtures = bytes(4, &[self.images, AUGMENT_MIXTURE_WORDS]);
        visit(Access::read("mixtures", self.mixtures, mixtures));
    }
}

// SAFETY: see hip/planes.hip. Threads beyond the last pixel return. Rectangles and values are read below their counts.
unsafe impl KernelArguments for PlanesArgs {
    const FILE: &'static str = "planes";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        let threads = bytes(1, &[self.images, self.height, self.width]) as u64;
        target.blocks(threads.div_ceil(PLANES_THREADS.into()).max(1), PLANES_THREADS)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let extents = [3, self.images, self.height, self.width];
        visit(Access::read("bytes", self.bytes, bytes(1, &extents)));
        visit(Access::write("out", self.out, bytes(element, &extents)));
        visit(Access::read("table", self.table, bytes(element, &[3, 256])));
        visit(Access::read(
            "values",
            self.values,
            bytes(element, &[self.value_count]),
        ));
        let erasures = bytes(4, &[self.erasure_count, PLANES_ERASURE_WORDS]);
        visit(Access::read("erasures", self.erasures, erasures));
        visit(Access::read("starts", self.starts, bytes(4, &[self.images]) + 4));
    }
}
