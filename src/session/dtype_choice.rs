//! The dtype of a session, or the choice of the fastest one that is accurate enough.

use std::fmt::{self, Display};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::tensor::DType;

/// Smallest cosine between the outputs in f32 and in a dtype that [`DtypeChoice::Auto`] accepts, over the calibration images.
pub const MIN_COSINE: f64 = 0.999;

/// Dtype that a session computes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DtypeChoice {
    /// The fastest of f32, f16 and bf16 whose outputs for the [calibration images](crate::SessionBuilder::calibrate) have a cosine of at least
    /// [`MIN_COSINE`] to those of f32.
    Auto,
    /// This dtype.
    Fixed(DType),
}

impl From<DType> for DtypeChoice {
    fn from(dtype: DType) -> Self {
        Self::Fixed(dtype)
    }
}

impl FromStr for DtypeChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "auto" => Ok(Self::Auto),
            _ => Ok(Self::Fixed(text.parse()?)),
        }
    }
}

impl Display for DtypeChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.pad("auto"),
            Self::Fixed(dtype) => dtype.fmt(f),
        }
    }
}

impl DtypeChoice {
    /// Returns the dtype.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Argument`] for [`DtypeChoice::Auto`], which only a loaded session knows.
    pub fn fixed(self) -> Result<DType> {
        match self {
            Self::Fixed(dtype) => Ok(dtype),
            Self::Auto => Err(Error::argument(
                "dtype",
                "auto is chosen when a model is loaded to run images: name a dtype here",
            )),
        }
    }
}

/// A dtype that [`DtypeChoice::Auto`] has measured.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct MeasuredDtype {
    /// The dtype.
    pub dtype: DType,
    /// Shortest time of a full batch, from decoded images to outputs.
    pub time: Duration,
    /// Smallest cosine of an image's logits to those in f32. Embeddings are compared if the model has no classes.
    pub cosine: f64,
}

impl MeasuredDtype {
    /// Returns true if the outputs are close enough to those of f32.
    pub fn is_accurate(&self) -> bool {
        self.cosine >= MIN_COSINE
    }
}

/// State of a builder that chooses the dtype.
#[derive(Clone, Debug, Default)]
pub(super) struct AutoDtype {
    pub(super) is_on: bool,
    pub(super) images: Vec<PathBuf>,
}

impl AutoDtype {
    /// Checks that there are images if and only if they are needed.
    pub(super) fn check(&self) -> Result<()> {
        let reason = match (self.is_on, self.images.is_empty()) {
            (true, true) => {
                "auto compares outputs with those of f32: add calibration images or a directory of them (--calibrate)"
            }
            (false, false) => "calibration images choose among dtypes: set the dtype to auto",
            _ => return Ok(()),
        };
        Err(Error::argument("dtype", reason))
    }
}
