//! Identifies the version of a weight file that a model was loaded from.

use std::fs::{self, Metadata};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::tensor::Bytes;

/// A mapped weight file.
#[derive(Clone, Debug)]
pub struct WeightFile {
    /// Path without symbolic links.
    path: PathBuf,
    bytes: u64,
    modified: SystemTime,
    identity: [u64; 4],
    addresses: Range<usize>,
}

impl WeightFile {
    /// Describes the file at `path`, with `metadata`, mapped as `bytes`.
    ///
    /// # Errors
    ///
    /// Returns an [`io::Error`] if the file system does not provide the path or the time of modification.
    pub(super) fn new(path: &Path, metadata: &Metadata, bytes: &dyn Bytes) -> io::Result<Self> {
        let addresses = bytes.as_ref().as_ptr_range();
        Ok(Self {
            path: fs::canonicalize(path)?,
            bytes: metadata.len(),
            modified: metadata.modified()?,
            identity: identity(metadata),
            addresses: addresses.start.addr()..addresses.end.addr(),
        })
    }

    /// Returns a text that identifies this version of the file, from the file system's metadata. Reading a large file
    /// would take too long.
    pub(crate) fn version(&self) -> String {
        let Self {
            path,
            bytes,
            modified,
            identity,
            addresses: _,
        } = self;
        format!("{path:?} {bytes} {modified:?} {identity:?}")
    }

    /// Returns the position of the bytes at these addresses in the file, if they belong to it.
    pub(crate) fn locate(&self, addresses: &Range<usize>) -> Option<Range<usize>> {
        let base = self.addresses.start;
        let within = addresses.start >= base && addresses.end <= self.addresses.end;
        within.then(|| addresses.start - base..addresses.end - base)
    }

    /// Checks that the metadata describes the content that was mapped, and cannot come to describe another one.
    ///
    /// # Errors
    ///
    /// Returns a reason if the file has changed since it was mapped, or was changed immediately before.
    ///
    /// File systems count time in steps of up to two seconds. A file that was just changed may change again with the
    /// same time.
    pub(crate) fn check_settled(&self) -> Result<(), String> {
        const STEP: Duration = Duration::from_secs(2);
        let same = |now: Metadata| {
            let version = (now.len(), now.modified().ok(), identity(&now));
            version == (self.bytes, Some(self.modified), self.identity)
        };
        let file = self.path.display();
        if !fs::metadata(&self.path).is_ok_and(same) {
            return Err(format!("{file} has changed"));
        }
        match self.modified.elapsed() {
            Ok(age) if age > STEP => Ok(()),
            _ => Err(format!("{file} was modified less than two seconds ago")),
        }
    }
}

/// Returns device, inode, and the time of the last status change. Unlike the time of modification, programs cannot set
/// it.
#[cfg(unix)]
fn identity(metadata: &Metadata) -> [u64; 4] {
    use std::os::unix::fs::MetadataExt;
    let changed = [metadata.ctime(), metadata.ctime_nsec()].map(i64::cast_unsigned);
    [metadata.dev(), metadata.ino(), changed[0], changed[1]]
}

#[cfg(not(unix))]
fn identity(_: &Metadata) -> [u64; 4] {
    [0; 4]
}
