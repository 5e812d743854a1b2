//! The input of an ONNX model that takes images.

use hipvit_onnx::{Declared, Extent, Options};

use crate::model::options::{InputKind, LoadOptions};

/// Why a model does not take images.
#[derive(Debug)]
pub(super) struct NotImages(pub(super) String);

impl NotImages {
    pub(super) fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

/// The input of a model that takes images, `[B, 3, H, W]` or `[B, H, W, 3]`.
#[derive(Debug)]
pub(super) struct ImageInput {
    channels: Extent,
    /// Height and width.
    size: [Extent; 2],
    pub(super) channels_last: bool,
}

impl ImageInput {
    /// Returns the input if there is one, with four axes of which one has three channels.
    pub(super) fn new(inputs: &[Declared]) -> Result<Self, NotImages> {
        let [input] = inputs else {
            return Err(NotImages(format!("it has {} inputs", inputs.len())));
        };
        let name = &input.name;
        let [batch, axes @ ..] = input.extents.as_slice() else {
            return Err(NotImages(format!("its input `{name}` is a scalar")));
        };
        if let Extent::Fixed(2..) = batch {
            return Err(NotImages(format!(
                "its input `{name}` is fixed to several images"
            )));
        }
        let [a, b, c] = axes else {
            let count = input.extents.len();
            return Err(NotImages(format!("its input `{name}` has {count} axes, not 4")));
        };
        let may_be_channels = |extent: &Extent| !matches!(extent, Extent::Fixed(n) if *n != 3);
        let channels_last = *c == Extent::Fixed(3) && *a != Extent::Fixed(3);
        if !input.element.is_float() || !(channels_last || may_be_channels(a)) {
            return Err(NotImages(format!(
                "its input `{name}` is not a batch of RGB images in floating point"
            )));
        }
        let [channels, height, width] = if channels_last { [c, a, b] } else { [a, b, c] };
        Ok(Self {
            channels: channels.clone(),
            size: [height.clone(), width.clone()],
            channels_last,
        })
    }

    /// Returns height and width, if the file has both.
    pub(super) fn fixed_size(&self) -> Option<[usize; 2]> {
        match self.size {
            [Extent::Fixed(height), Extent::Fixed(width)] => Some([height, width]),
            _ => None,
        }
    }

    /// Returns true if images of this size fit.
    pub(super) fn takes(&self, size: [usize; 2]) -> bool {
        let mut pairs = self.size.iter().zip(size);
        pairs.all(|(extent, given)| !matches!(extent, Extent::Fixed(side) if *side != given))
    }

    /// Returns the options that load the model for images of this size.
    pub(super) fn options(&self, [height, width]: [usize; 2], options: &LoadOptions) -> Options {
        let mut extents = options.extents.clone();
        let numbers = [
            (&self.channels, 3),
            (&self.size[0], height),
            (&self.size[1], width),
        ];
        for (extent, number) in numbers {
            if let Extent::Named(name) = extent {
                extents.insert(name.clone(), number);
            }
        }
        Options {
            extents,
            pixels: options.input != InputKind::PixelValues,
            ..Options::default()
        }
    }
}
