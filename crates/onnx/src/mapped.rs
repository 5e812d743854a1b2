//! Memory-maps model files. This is the only module of the crate with `unsafe` code.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;

use bytes::Bytes;
use memmap2::Mmap;

/// Maps a file, which is read from disk on first access.
///
/// # Errors
///
/// Returns the [`io::Error`] of the mapping.
pub(crate) fn map(file: &File) -> io::Result<Bytes> {
    // An empty mapping is an error on some systems.
    if file.metadata()?.len() == 0 {
        return Ok(Bytes::new());
    }
    // SAFETY: the map is read-only and private to this process. It is invalidated only if another process truncates the
    // file or rewrites it in place while a model is loaded. The documentation of `load` requires the caller to prevent
    // this. Replacing the file by a new one is safe.
    let map = unsafe { Mmap::map(file) }?;
    Ok(Bytes::from_owner(map))
}
