//! Sources of images.

use std::borrow::Cow;
use std::fmt::Display;
use std::path::{Path, PathBuf};

use crate::ImageErrorKind;
use crate::error::{Error, Result};
use crate::image::{self, Cancellation, DecodeBuffers, DecodeOptions, DeviceImage, Preprocess, RgbImage};
#[cfg(doc)]
use crate::session::ResizeOn;

/// Source of an image. Paths convert into it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Source {
    /// A file.
    File(PathBuf),
    /// Standard input.
    Stdin,
    /// Bytes of an encoded image, and a name.
    Bytes(String, Cow<'static, [u8]>),
    /// Decoded image, and a name.
    Decoded(String, RgbImage),
    /// RGB bytes of the model's size, u8 `[H, W, 3]`, and a name. They are copied unchanged. Not for a session that [resizes on the
    /// device](ResizeOn::Device).
    Pixels(String, Cow<'static, [u8]>),
}

impl From<PathBuf> for Source {
    fn from(path: PathBuf) -> Self {
        Self::File(path)
    }
}

impl From<&Path> for Source {
    fn from(path: &Path) -> Self {
        Self::File(path.to_owned())
    }
}

impl From<String> for Source {
    fn from(path: String) -> Self {
        Self::File(path.into())
    }
}

impl From<&str> for Source {
    fn from(path: &str) -> Self {
        Self::File(path.into())
    }
}

impl Source {
    /// Returns the path, `-` for standard input, or the given name.
    pub fn name(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Stdin => "-".into(),
            Self::Bytes(name, _) | Self::Decoded(name, _) | Self::Pixels(name, _) => name.clone(),
        }
    }

    /// Reads and decodes the image.
    ///
    /// # Errors
    ///
    /// The file is unreadable, not an image, or exceeds the limits. [`Error::Image`] for [`Source::Pixels`], whose size only a model knows.
    pub fn decode(&self, options: impl Into<DecodeOptions>) -> Result<RgbImage> {
        Ok(match self {
            Self::File(path) => image::open(path, options)?,
            Self::Stdin => image::read("-", std::io::stdin().lock(), options)?,
            Self::Bytes(name, bytes) => image::decode(name, bytes, options)?,
            Self::Decoded(_, image) => image.clone(),
            Self::Pixels(name, _) => return Err(no_image(name)),
        })
    }

    /// Decodes the source into reused memory.
    pub(super) fn into_image(self, options: DecodeOptions, buffers: &mut DecodeBuffers) -> Result<RgbImage> {
        match self {
            Self::File(path) => Ok(image::open_in(&path, options, buffers)?),
            Self::Bytes(name, bytes) => {
                buffers.permit = None;
                let memory = std::mem::take(&mut buffers.pixels);
                let (image, permit) = image::decode_in(&name, &bytes, options, memory)?;
                buffers.permit = permit;
                Ok(image)
            }
            Self::Decoded(_, image) => Ok(image),
            Self::Stdin | Self::Pixels(..) => self.decode(options),
        }
    }

    /// Reads and decodes the image for a GPU that computes the pixels of JPEGs: the input of a run as
    /// [`RunInput::DeviceImages`](crate::RunInput::DeviceImages).
    ///
    /// # Errors
    ///
    /// The errors of [`Source::decode`].
    pub fn decode_for_device(&self, options: impl Into<DecodeOptions>) -> Result<DeviceImage> {
        let mut buffers = DecodeBuffers::default();
        Ok(match self {
            Self::File(path) => image::open_for_device(path, options, &mut buffers)?,
            Self::Bytes(name, bytes) => {
                image::decode_for_device(name, bytes, options, &mut buffers, Cancellation::never())?
            }
            Self::Stdin | Self::Decoded(..) | Self::Pixels(..) => self.decode(options)?.into(),
        })
    }

    /// Decodes the source into reused memory, for a GPU that computes the pixels of JPEGs.
    pub(super) fn into_device_image(
        self,
        options: DecodeOptions,
        buffers: &mut DecodeBuffers,
    ) -> Result<DeviceImage> {
        match self {
            Self::File(path) => Ok(image::open_for_device(&path, options, buffers)?),
            Self::Bytes(name, bytes) => {
                let never = Cancellation::never();
                Ok(image::decode_for_device(&name, &bytes, options, buffers, never)?)
            }
            Self::Decoded(_, image) => Ok(image.into()),
            Self::Stdin | Self::Pixels(..) => Ok(self.decode(options)?.into()),
        }
    }

    /// Resizes and crops `image`, which was decoded from this source, to a model's size.
    ///
    /// # Errors
    ///
    /// [`Error::Image`], with the name of the source, if [`Preprocess::apply`] rejects the image.
    pub fn resize(&self, image: &RgbImage, rule: &Preprocess) -> Result<RgbImage> {
        rule.apply(image).map_err(|error| unusable(self.name(), &error))
    }
}

/// Returns the error for an image that cannot become the input of a model.
pub(super) fn unusable(name: String, reason: &dyn Display) -> Error {
    Error::image(name, ImageErrorKind::Size, reason)
}

fn no_image(name: &str) -> Error {
    unusable(
        name.to_owned(),
        &"has pixels of a model's size, which is not resized",
    )
}
