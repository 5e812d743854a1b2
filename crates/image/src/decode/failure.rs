//! Reasons why an image cannot be decoded.

use std::borrow::Cow;

use crate::error::{Error, ImageErrorKind};

/// Reason why an image cannot be decoded. Conversion from a text makes it an error of kind "damaged".
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) kind: ImageErrorKind,
    pub(super) reason: Cow<'static, str>,
}

impl Failure {
    pub(super) const fn truncated(reason: &'static str) -> Self {
        Self {
            kind: ImageErrorKind::Truncated,
            reason: Cow::Borrowed(reason),
        }
    }

    pub(super) fn unsupported(reason: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind: ImageErrorKind::Unsupported,
            reason: reason.into(),
        }
    }

    pub(super) fn too_large(reason: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind: ImageErrorKind::TooLarge,
            reason: reason.into(),
        }
    }

    /// Returns the error for the image called `name`. Joins the lines of a decoder's message, because an error is one
    /// line.
    pub(super) fn into_error(self, name: &str) -> Error {
        let words: Vec<&str> = self.reason.split_whitespace().collect();
        Error::image(name, self.kind, words.join(" "))
    }
}

impl From<String> for Failure {
    fn from(reason: String) -> Self {
        Self {
            kind: ImageErrorKind::Damaged,
            reason: reason.into(),
        }
    }
}

impl From<&'static str> for Failure {
    fn from(reason: &'static str) -> Self {
        Self {
            kind: ImageErrorKind::Damaged,
            reason: reason.into(),
        }
    }
}
