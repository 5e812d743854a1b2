//! Float arithmetic on bytes. A channel has only 256 values, so each is computed once and then looked up. The
//! computation uses the library's types and order.

use std::fmt;

use serde::Serialize;

use crate::{Error, Result};

/// Method that converts a byte to a float.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rescale {
    /// Divides by 255 in f32 (torchvision's `to_tensor`).
    DivideBy255,
    /// Multiplies by this factor in f64, then rounds to f32 (transformers).
    Multiply(f64),
    /// Converts without scaling.
    None,
}

impl Rescale {
    /// Returns the factor, whatever the arithmetic.
    pub(super) fn factor(self) -> f64 {
        match self {
            Self::DivideBy255 => 1.0 / 255.0,
            Self::Multiply(factor) => factor,
            Self::None => 1.0,
        }
    }

    fn apply(self, byte: u8) -> f32 {
        match self {
            Self::DivideBy255 => f32::from(byte) / 255.0,
            Self::Multiply(factor) => (f64::from(byte) * factor) as f32,
            Self::None => f32::from(byte),
        }
    }
}

/// Conversion of bytes to the model's floats: rescale, then `(x − mean) / std` in f32.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ValueRule {
    /// Method that converts a byte to a float.
    pub rescale: Rescale,
    /// Mean and standard deviation of red, green and blue, if the rule normalises.
    pub normalize: Option<([f64; 3], [f64; 3])>,
}

impl ValueRule {
    pub(super) fn mean_std(&self) -> ([f32; 3], [f32; 3]) {
        let (mean, std) = self.normalize.unwrap_or(([0.0; 3], [1.0; 3]));
        (mean.map(|value| value as f32), std.map(|value| value as f32))
    }

    pub(super) fn table(&self) -> Result<Table> {
        let (mean, std) = self.mean_std();
        let usable = |value: &f32| value.is_finite();
        if !mean.iter().chain(&std).all(usable) || std.contains(&0.0) {
            let reason = format!("mean {mean:?}, std {std:?}: the values must be finite, std not zero");
            return Err(Error::argument("preprocessing", reason));
        }
        let mut table = Box::new([[0.0; 256]; 3]);
        for (channel, table) in table.iter_mut().enumerate() {
            for (byte, value) in (0..=255).zip(table) {
                let rescaled = self.rescale.apply(byte);
                *value = match self.normalize {
                    Some(_) => (rescaled - mean[channel]) / std[channel],
                    None => rescaled,
                };
            }
        }
        Ok(Table(table))
    }
}

impl fmt::Display for ValueRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rescale {
            Rescale::DivideBy255 => f.write_str("divide by 255")?,
            Rescale::Multiply(factor) => write!(f, "multiply by {factor}")?,
            Rescale::None => f.write_str("keep 0 to 255")?,
        }
        match self.normalize {
            Some((mean, std)) => write!(f, ", subtract mean {mean:?}, divide by std {std:?}"),
            None => Ok(()),
        }
    }
}

/// The float of each byte of each channel.
#[derive(Clone)]
pub(super) struct Table(Box<[[f32; 256]; 3]>);

impl Table {
    /// Converts `[pixels, 3]` bytes to `[3, pixels]` floats. Both have the same length, a multiple of 3.
    pub(super) fn look_up(&self, pixels: &[u8], output: &mut [f32]) {
        let plane = output.len() / 3;
        let (red, rest) = output.split_at_mut(plane);
        let (green, blue) = rest.split_at_mut(plane);
        let outputs = red.iter_mut().zip(green).zip(blue);
        for (((red, green), blue), pixel) in outputs.zip(pixels.chunks_exact(3)) {
            *red = self.0[0][usize::from(pixel[0])];
            *green = self.0[1][usize::from(pixel[1])];
            *blue = self.0[2][usize::from(pixel[2])];
        }
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Table")
    }
}
