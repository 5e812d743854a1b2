//! Systems other than Linux: temporary files have names, and only permissions are kept.

use std::fs::{File, Metadata};
use std::io;
use std::path::Path;

/// Returns `None`, because files cannot be without a name.
pub(super) fn unnamed(_: &Path) -> io::Result<Option<File>> {
    Ok(None)
}

/// Returns an error, because files cannot be without a name.
pub(super) fn link_unnamed(_: &File, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Gives `new` the permissions of an existing file. On Windows, its directory determines its access control list.
pub(super) fn keep_attributes(_: &Path, existing: &Metadata, new: &File) -> io::Result<()> {
    new.set_permissions(existing.permissions())
}
