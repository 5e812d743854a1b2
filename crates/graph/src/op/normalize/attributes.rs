//! Attributes of the normalisation of pixels.

use crate::array::Real;

/// `(pixels u8 [B,H,W,3]) → [B,3,H,W]`, as `pixel · scale[c] + shift[c]` for channel c. Combines rescaling, mean and standard deviation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Normalize {
    /// `rescale / std` per channel.
    pub scale: [f32; 3],
    /// `−mean / std` per channel.
    pub shift: [f32; 3],
}

impl Normalize {
    /// Normalises a channel of a pixel.
    pub(in crate::op) fn apply<T: Real>(&self, channel: usize, pixel: T) -> T {
        pixel * T::from_f32(self.scale[channel]) + T::from_f32(self.shift[channel])
    }
}
