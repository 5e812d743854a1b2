//! Layout of the pixels of an image.

/// Layout of an image's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PixelLayout {
    /// `u8 [B,H,W,3]`; a patch becomes `h·w·3` elements in the order row, column, channel.
    Hwc,
    /// `f32 [B,3,H,W]`; a patch becomes `3·h·w` elements in the order channel, row, column.
    Chw,
}
