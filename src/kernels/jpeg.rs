//! Pixels of JPEGs from their coefficients, which [`crate::image::decode_for_device`] reads from files: the kernels of hip/jpeg.hip.

use std::borrow::Cow;

use super::bindings::{
    JPEG_BLOCKS, JPEG_BOTH, JPEG_COLUMNS, JPEG_GREY, JPEG_IMAGES, JPEG_PIXELS, JPEG_REPEATED, JPEG_RGB,
    JPEG_ROWS, JPEG_STEP_WORDS, JPEG_THREADS, JPEG_YCBCR, JpegArgs, JpegImage,
};
use super::{KernelArguments, KernelError, Kernels, Target, Unit, bytes};
use crate::error::{Error, Result};
use crate::hip::{Access, Device, Launch, Operand, Stream};
use crate::image::{JpegColor, JpegGeometry, JpegPlane, JpegUpsampling};
use crate::tensor::DType;

/// Maximum number of images per launch.
const IMAGES: usize = JPEG_IMAGES as usize;

/// The kernels, loaded on a device.
#[derive(Debug)]
pub struct JpegKernels(Kernels);

/// A JPEG on the device.
#[derive(Clone, Copy, Debug)]
pub struct DeviceJpeg<'a> {
    /// Geometry of the image.
    pub geometry: JpegGeometry,
    /// A copy of the [coefficients](crate::image::JpegCoefficients::words), at a multiple of 4 bytes.
    pub words: Operand<'a>,
    /// Memory for the components' samples, [`jpeg_samples`](samples) bytes at a multiple of 8.
    pub samples: Operand<'a>,
    /// Pixels, u8 `[height, width, 3]`, at a multiple of 4 bytes.
    pub pixels: Operand<'a>,
}

/// Returns the number of bytes of the samples of an image's components.
pub fn samples(geometry: &JpegGeometry) -> usize {
    64 * geometry.blocks()
}

impl JpegKernels {
    /// Loads the kernels. Compiles them if there is no code for the device.
    ///
    /// # Errors
    ///
    /// The kernels cannot be compiled or loaded.
    pub fn load(device: &Device) -> Result<Self> {
        Kernels::load(device, DType::U8, [Unit::of("jpeg")]).map(Self)
    }

    /// Returns the code of the kernels; see [`Kernels::code`].
    pub fn code(&self) -> Result<Vec<(String, crate::hip::Code)>> {
        self.0.code()
    }

    /// Submits the computation of the pixels of several images, in few launches.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if an operand is too small or belongs to another stream. [`Error::Hip`] if the driver fails.
    pub fn launch(&self, stream: &Stream, jpegs: &[DeviceJpeg<'_>]) -> Result<()> {
        for jpegs in jpegs.chunks(IMAGES) {
            let images = jpegs.iter().map(image).collect::<Result<Vec<_>>>()?;
            let operands: Vec<Operand<'_>> = jpegs
                .iter()
                .flat_map(|jpeg| [jpeg.words, jpeg.samples, jpeg.pixels])
                .collect();
            let arguments = JpegArgs {
                // Entries beyond the last image are not read.
                images: std::array::from_fn(|index| images[index.min(images.len() - 1)]),
                image_blocks: 0,
                count: images.len() as u32,
            };
            self.0.launch(stream, Samples(arguments), &operands)?;
            self.0.launch(stream, Pixels(arguments), &operands)?;
        }
        Ok(())
    }
}

/// Returns the arguments of an image.
///
/// # Errors
///
/// [`Error::Internal`] if a component is smaller than the image requires, the words lack steps or blocks, or an operand is not aligned.
fn image(jpeg: &DeviceJpeg<'_>) -> Result<JpegImage> {
    let geometry = &jpeg.geometry;
    let [width, height] = geometry.size;
    let area = |plane: JpegPlane| plane.blocks[0].checked_mul(plane.blocks[1]);
    let chroma = geometry.chroma.unwrap_or(JpegPlane {
        blocks: [0, 0],
        samples: [1, 1],
    });
    let colors = geometry.chroma.is_some() == (geometry.color != JpegColor::Grey);
    let is_whole = |plane: JpegPlane| (0..2).all(|n| (1..=8 * plane.blocks[n]).contains(&plane.samples[n]));
    let luma = geometry.luma;
    if !(colors
        && luma.samples == geometry.size
        && [Some(luma), geometry.chroma].into_iter().flatten().all(is_whole))
    {
        return Err(Error::internal(
            "jpeg",
            "a component has another size than the image",
        ));
    }
    let aligned = |operand: Operand<'_>, to: u64| operand.address().as_u64().is_multiple_of(to);
    if !(aligned(jpeg.words, 4) && aligned(jpeg.samples, 8) && aligned(jpeg.pixels, 4)) {
        return Err(Error::internal("jpeg", "an operand is not aligned"));
    }
    let int = |n: Option<usize>| {
        let fits = n
            .and_then(|n| u32::try_from(n).ok())
            .filter(|&n| n <= u32::MAX / 64);
        fits.ok_or_else(|| Error::kernel("jpeg", KernelError::Extent(n.unwrap_or(usize::MAX))))
    };
    let blocks = geometry.blocks();
    let entries = (jpeg.words.bytes() / 4).checked_sub(JPEG_STEP_WORDS as usize + blocks);
    let entries = entries.ok_or_else(|| Error::internal("jpeg", "has no entries"))?;
    let (upsampling, [repeat_x, repeat_y]) = match geometry.upsampling {
        JpegUpsampling::Repeated(x, y) => (JPEG_REPEATED, [x.max(1), y.max(1)]),
        JpegUpsampling::Columns => (JPEG_COLUMNS, [1, 1]),
        JpegUpsampling::Rows => (JPEG_ROWS, [1, 1]),
        JpegUpsampling::Both => (JPEG_BOTH, [1, 1]),
    };
    Ok(JpegImage {
        words: jpeg.words.address(),
        samples: jpeg.samples.address(),
        pixels: jpeg.pixels.address(),
        entries: int(Some(2 * entries))?,
        blocks: int(Some(blocks))?,
        luma_blocks: int(area(luma))?,
        chroma_blocks: int(area(chroma))?,
        luma_wide: int(Some(luma.blocks[0]))?,
        chroma_wide: int(Some(chroma.blocks[0]))?,
        chroma_width: int(Some(chroma.samples[0]))?,
        chroma_height: int(Some(chroma.samples[1]))?,
        width: int(Some(width))?,
        height: int(Some(height))?,
        color: match geometry.color {
            JpegColor::Grey => JPEG_GREY,
            JpegColor::Rgb => JPEG_RGB,
            JpegColor::YCbCr => JPEG_YCBCR,
        },
        upsampling,
        repeat_x: int(Some(repeat_x))?,
        repeat_y: int(Some(repeat_y))?,
    })
}

/// Arguments of `jpeg_samples`.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Samples(JpegArgs);

/// Arguments of `jpeg_pixels`.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Pixels(JpegArgs);

impl JpegArgs {
    fn used(&self) -> &[JpegImage] {
        &self.images[..self.count as usize]
    }

    /// Plans the same number of blocks of threads for each image, enough for the largest.
    fn plan(
        &mut self,
        per_block: u32,
        target: &Target,
        work: impl Fn(&JpegImage) -> u64,
    ) -> Result<Launch, KernelError> {
        let most = self.used().iter().map(work).max().unwrap_or(0);
        let each = most.div_ceil(per_block.into()).max(1);
        let launch = target.blocks(each.saturating_mul(self.count.into()), JPEG_THREADS)?;
        // At most the number of all blocks, which fits.
        self.image_blocks = each as u32;
        Ok(launch)
    }
}

// SAFETY: see hip/jpeg.hip. Entries are read below `entries`, whatever the words contain. A block writes its own 64 samples. Threads of
// blocks beyond the last one write nothing.
unsafe impl KernelArguments for Samples {
    const FILE: &'static str = "jpeg";

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        Ok("jpeg_samples".into())
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        self.0.plan(JPEG_BLOCKS, target, |a| a.blocks.into())
    }

    fn accesses(&self, _element: usize, visit: &mut dyn FnMut(Access)) {
        for a in self.0.used() {
            let words = bytes(4, &[JPEG_STEP_WORDS + a.blocks]) + bytes(2, &[a.entries]);
            visit(Access::read("words", a.words, words));
            visit(Access::write("samples", a.samples, bytes(64, &[a.blocks])));
        }
    }
}

// SAFETY: as above. `image` has checked that the first component has a sample for each pixel. Rows and columns of the others are limited to
// the component, which is not empty.
unsafe impl KernelArguments for Pixels {
    const FILE: &'static str = "jpeg";

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        Ok("jpeg_pixels".into())
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        let pixels = |a: &JpegImage| u64::from(a.width) * u64::from(a.height);
        self.0.plan(JPEG_THREADS * JPEG_PIXELS, target, pixels)
    }

    fn accesses(&self, _element: usize, visit: &mut dyn FnMut(Access)) {
        for a in self.0.used() {
            visit(Access::read("samples", a.samples, bytes(64, &[a.blocks])));
            visit(Access::write("pixels", a.pixels, bytes(3, &[a.width, a.height])));
        }
    }
}
