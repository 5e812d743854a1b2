//! Metadata of an image file.

use std::borrow::Cow;

/// Metadata in which a file may store its orientation.
#[derive(Default)]
pub(super) struct Metadata<'a> {
    pub(super) exif: Option<Cow<'a, [u8]>>,
    pub(super) xmp: Option<Cow<'a, [u8]>>,
}
