//! Where an image's bytes come from.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::error::{Error, ImageErrorKind, Result};
use crate::image::{self, Limits, Preprocess, RgbImage};
use crate::session::{ResizeOn, Session};
use crate::timing::{Phase, Timing};

/// Where an image's bytes come from. Paths convert into it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Source {
    /// A file.
    File(PathBuf),
    /// Standard input.
    Stdin,
    /// The bytes of an encoded image, and a name for it.
    Bytes(String, Cow<'static, [u8]>),
    /// A decoded image, and a name for it.
    Decoded(String, RgbImage),
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
    /// The path, `-` for standard input, or the name that was given.
    pub fn name(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Stdin => "-".into(),
            Self::Bytes(name, _) | Self::Decoded(name, _) => name.clone(),
        }
    }

    /// Reads and decodes the image.
    ///
    /// # Errors
    ///
    /// An unreadable file, or one that is not an image within `limits`.
    pub fn decode(&self, limits: &Limits) -> Result<RgbImage> {
        match self {
            Self::File(path) => image::open(path, limits),
            Self::Stdin => image::read("-", std::io::stdin().lock(), limits),
            Self::Bytes(name, bytes) => image::decode(name, bytes, limits),
            Self::Decoded(_, image) => Ok(image.clone()),
        }
    }

    /// Resizes and crops `image`, which was decoded from here, to a model's size.
    ///
    /// # Errors
    ///
    /// As [`Preprocess::apply`], but [`Error::Image`] with this source's name.
    pub fn resize(&self, image: &RgbImage, rule: &Preprocess) -> Result<RgbImage> {
        rule.apply(image).map_err(|error| self.unusable(&error))
    }

    /// `image`, which was decoded from here, as the session takes it; adds the host's resizing to `timing`.
    pub(super) fn prepare(
        &self,
        image: RgbImage,
        session: &Session,
        timing: &mut Timing,
    ) -> Result<RgbImage> {
        let rule = session.preprocess();
        if session.resize() == ResizeOn::Device {
            let check = rule.check(&image).map_err(|error| self.unusable(&error));
            return check.map(|()| image);
        }
        let start = Instant::now();
        let pixels = self.resize(&image, rule);
        timing.add(Phase::Resize, start.elapsed());
        pixels
    }

    fn unusable(&self, error: &Error) -> Error {
        Error::image(self.name(), ImageErrorKind::Size, error)
    }
}
