//! Resampling filters.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A resampling filter, by Pillow's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Filter {
    /// Nearest input pixel, without antialiasing.
    Nearest,
    /// Mean of the covered pixels.
    Box,
    /// Triangle, support 1.
    Bilinear,
    /// Raised cosine times sinc, support 1.
    Hamming,
    /// Keys' cubic convolution with a = −0.5, support 2.
    Bicubic,
    /// Sinc windowed by a sinc, support 3.
    Lanczos,
}

impl Filter {
    /// All filters.
    pub const ALL: [Self; 6] = [
        Self::Nearest,
        Self::Box,
        Self::Bilinear,
        Self::Hamming,
        Self::Bicubic,
        Self::Lanczos,
    ];

    /// Returns the filter with Pillow's number (`Image.Resampling`), as `preprocessor_config.json` stores it.
    pub fn from_pillow_id(id: u64) -> Option<Self> {
        Some(match id {
            0 => Self::Nearest,
            1 => Self::Lanczos,
            2 => Self::Bilinear,
            3 => Self::Bicubic,
            4 => Self::Box,
            5 => Self::Hamming,
            _ => return None,
        })
    }

    /// Returns the filter with the given lower-case name, as timm's `interpolation` stores it.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|filter| filter.name() == name)
    }

    /// Returns the lower-case name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nearest => "nearest",
            Self::Box => "box",
            Self::Bilinear => "bilinear",
            Self::Hamming => "hamming",
            Self::Bicubic => "bicubic",
            Self::Lanczos => "lanczos",
        }
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
