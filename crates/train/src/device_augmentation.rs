//! Training images that the GPU of the steps makes: the operations of hipvit-data in the form of the kernels.

use hipvit::error::{Error, Result};
use hipvit::exec::{DrawnBatch, DrawnImage, ErasedRectangle, HipAugment};
use hipvit::hip::{self, Device, ForeignMemory};
use hipvit::image::Preprocess;
use hipvit::kernels::{PixelMixture, PixelOp};
use hipvit::model::InputKind;
use hipvit_data::Batch;
use hipvit_data::augment::{Drawn, Erasure, Operation, PaddingMode, Sampling};
use hipvit_data::mix::Mixture;

use crate::recipe::AugmentOn;
use crate::trainer::Trainer;

/// Makes training images on a GPU, from the batches of a [loader that draws](hipvit_data::LoaderOptions::draws).
#[derive(Debug)]
pub struct DeviceAugmentation(HipAugment);

impl DeviceAugmentation {
    /// Prepares a GPU for images of the size of `rule`. With `planes`, they are f32 planes that `rule` normalises.
    ///
    /// # Errors
    ///
    /// The errors of [`HipAugment::new`].
    pub fn new(device: &Device, rule: &Preprocess, planes: bool) -> Result<Self> {
        HipAugment::new(device, rule, planes).map(Self)
    }

    /// Prepares the GPU of a trainer, if the recipe and the run allow it. `needs_host` is the reason why the host must make the images.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the recipe demands the GPU, but the run does not allow it. The errors of [`HipAugment::new`].
    pub(crate) fn open(on: AugmentOn, trainer: &Trainer, needs_host: Option<&str>) -> Result<Option<Self>> {
        let rule = training_rule(trainer.preprocess())?;
        let reason = match (on, trainer.gpu(), needs_host) {
            (AugmentOn::Host, ..) => return Ok(None),
            (_, None, _) => "the steps do not run on a GPU",
            (_, _, Some(reason)) => reason,
            _ if rule.patch().is_some() => "the model takes images of any aspect ratio",
            (_, Some(gpu), None) => {
                let planes = trainer.options().input == InputKind::PixelValues;
                return Self::new(gpu, &rule, planes).map(Some);
            }
        };
        if on == AugmentOn::Device {
            let reason = format!("{reason}. Set the key to `host` or `auto`");
            return Err(Error::argument("augmentation.on", reason));
        }
        Ok(None)
    }

    /// Submits the images of a batch to the GPU: u8 `[images, height, width, 3]`, or planes `[images, 3, height, width]`.
    ///
    /// # Errors
    ///
    /// [`Error::Internal`] if the loader has not drawn the images. The errors of [`HipAugment::apply`].
    pub fn images(&mut self, batch: &Batch) -> Result<ForeignMemory> {
        let missing = || Error::internal("augmentation", "the loader has not drawn the images");
        let drawn = batch.drawn.as_ref().ok_or_else(missing)?;
        let [height, width] = batch.size;
        let images = drawn.images.iter().map(|drawn| {
            let unknown = || Error::internal("augmentation", "an operation is the host's");
            Ok(DrawnImage {
                image: &drawn.image,
                placement: &drawn.placement,
                operations: pixel_ops(&drawn.operations, [width, height]).ok_or_else(unknown)?,
            })
        });
        let erasures = batch.erasures.iter();
        let made = self.0.apply(&DrawnBatch {
            images: images.collect::<Result<_>>()?,
            mixtures: drawn.mixtures.iter().map(mixture).collect(),
            kept: drawn.kept.clone(),
            erasures: erasures
                .map(|erasures| erasures.iter().map(rectangle).collect())
                .collect(),
        });
        made.map_err(|error| match &error {
            Error::Hip(hip::Error::OutOfMemory { device, .. }) => {
                let reason = "has no memory left to make the training images. Set augmentation.on to `host`, or use smaller batches";
                Error::device(device, reason)
            }
            _ => error,
        })
    }
}

/// Returns the preprocessing of training images. All images of a batch have one size, which may depend on the image elsewhere.
pub(crate) fn training_rule(preprocess: &Preprocess) -> Result<Preprocess> {
    let (height, width) = preprocess.output_size();
    Ok(preprocess.for_image(height, width)?)
}

/// Returns true if a GPU can make the training image.
pub(crate) fn runs_on_device(drawn: &Drawn) -> bool {
    let resized = drawn.placement.output([drawn.image.width, drawn.image.height]);
    drawn.output() == resized && pixel_ops(&drawn.operations, resized).is_some()
}

fn mixture(mixture: &Mixture) -> PixelMixture {
    let ends = |[first, end]: [usize; 2]| [first as u32, end as u32];
    match mixture.cut {
        Some(cut) => PixelMixture::Cut {
            rows: ends(cut.rows),
            columns: ends(cut.columns),
        },
        None if mixture.weight == 1.0 => PixelMixture::Alone,
        None => PixelMixture::Blend(mixture.weights().into()),
    }
}

fn rectangle(erasure: &Erasure) -> ErasedRectangle<'_> {
    ErasedRectangle {
        start: [erasure.top, erasure.left],
        size: [erasure.height, erasure.width],
        values: &erasure.values,
    }
}

/// Returns the operations on an image of this width and height as kernels compute them. `None` if one is the host's.
fn pixel_ops(operations: &[Operation], size: [usize; 2]) -> Option<Vec<PixelOp>> {
    let mut ops = PixelOps::new(size)?;
    let mut operations = operations.iter();
    while let Some(operation) = operations.next() {
        match operation {
            Operation::HorizontalFlip => ops.mirror(0),
            Operation::VerticalFlip => ops.mirror(1),
            Operation::Pad { .. } => ops.padded_crop(operation, operations.next()?)?,
            Operation::Rotate { fill, .. } | Operation::Affine { fill, .. } => {
                ops.push(sampled(operation.sampling(size)?, *fill));
            }
            _ => ops.push(photometric(operation)?),
        }
    }
    Some(ops.finish())
}

/// Operations, of which flips and crops that follow each other are one.
struct PixelOps {
    done: Vec<PixelOp>,
    size: [i32; 2],
    /// Move that is not in `done`.
    moved: Option<Move>,
}

/// A move without a colour: what is outside is black.
#[derive(Clone, Copy)]
struct Move {
    mirrored: [bool; 2],
    origin: [i32; 2],
}

impl PixelOps {
    fn new([width, height]: [usize; 2]) -> Option<Self> {
        Some(Self {
            done: Vec::new(),
            size: [i32::try_from(width).ok()?, i32::try_from(height).ok()?],
            moved: None,
        })
    }

    fn push(&mut self, op: PixelOp) {
        self.end_move();
        self.done.push(op);
    }

    /// Mirrors columns (0) or rows (1).
    fn mirror(&mut self, axis: usize) {
        let moved = self.moved.get_or_insert(Move {
            mirrored: [false; 2],
            origin: [0; 2],
        });
        let last = self.size[axis] - 1;
        moved.origin[axis] += if moved.mirrored[axis] { -last } else { last };
        moved.mirrored[axis] = !moved.mirrored[axis];
    }

    /// Adds a black border, and a crop of the image's size within it.
    fn padded_crop(&mut self, pad: &Operation, crop: &Operation) -> Option<()> {
        let &Operation::Pad {
            border: [left_border, top_border, ..],
            mode: PaddingMode::Constant,
            fill: [0, 0, 0],
        } = pad
        else {
            return None;
        };
        let &Operation::Crop {
            top,
            left,
            height,
            width,
        } = crop
        else {
            return None;
        };
        if [width, height].map(i32::try_from) != self.size.map(Ok) {
            return None;
        }
        let offset = |first: i64, border: usize| i32::try_from(first - i64::try_from(border).ok()?).ok();
        self.end_move();
        self.moved = Some(Move {
            mirrored: [false; 2],
            origin: [offset(left, left_border)?, offset(top, top_border)?],
        });
        Some(())
    }

    fn end_move(&mut self) {
        if let Some(Move { mirrored, origin }) = self.moved.take() {
            self.done.push(PixelOp::Move {
                mirrored,
                origin,
                fill: [0; 3],
            });
        }
    }

    fn finish(mut self) -> Vec<PixelOp> {
        self.end_move();
        self.done
    }
}

fn sampled(sampling: Sampling, fill: [u8; 3]) -> PixelOp {
    match sampling {
        Sampling::Move { mirrored, origin } => PixelOp::Move {
            mirrored,
            origin,
            fill,
        },
        Sampling::FixedPoint { steps, start } => PixelOp::Nearest { steps, start, fill },
        Sampling::Interpolated {
            matrix,
            is_bicubic: true,
        } => PixelOp::Bicubic { matrix, fill },
        Sampling::Interpolated { matrix, .. } => PixelOp::Bilinear { matrix, fill },
    }
}

/// Returns an operation that moves no pixels.
fn photometric(operation: &Operation) -> Option<PixelOp> {
    Some(match *operation {
        Operation::Brightness { factor } => PixelOp::Brightness(factor as f32),
        Operation::Contrast { factor } => PixelOp::Contrast(factor as f32),
        Operation::Saturation { factor } => PixelOp::Saturation(factor as f32),
        Operation::Sharpness { factor } => PixelOp::Sharpness(factor as f32),
        Operation::Hue { factor } => PixelOp::Hue(Operation::hue_shift(factor)),
        Operation::Posterize { bits } => PixelOp::Posterize(Operation::posterize_mask(bits)),
        Operation::Solarize { threshold } => PixelOp::Solarize(threshold),
        Operation::SolarizeAdd { amount } => PixelOp::SolarizeAdd(amount),
        Operation::Invert => PixelOp::Invert,
        Operation::Equalize => PixelOp::Equalize,
        Operation::AutoContrast => PixelOp::AutoContrast,
        _ => return None,
    })
}
