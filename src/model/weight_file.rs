//! Which version of a weight file a model was loaded from.

use std::fs::{self, Metadata};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::tensor::Bytes;

/// A weight file that is mapped.
#[derive(Clone, Debug)]
pub struct WeightFile {
    /// Without links.
    path: PathBuf,
    bytes: u64,
    modified: SystemTime,
    identity: [u64; 4],
    addresses: Range<usize>,
}

impl WeightFile {
    /// The file at `path`, with `metadata`, mapped as `bytes`.
    ///
    /// # Errors
    ///
    /// If the file system does not tell what it must.
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

    /// What tells this version of the file from any other one, by what the file system says: to read all of a large file would
    /// take longer than what this is needed for.
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

    /// Where the bytes at these addresses lie in the file, if they do.
    pub(crate) fn locate(&self, addresses: &Range<usize>) -> Option<Range<usize>> {
        let base = self.addresses.start;
        let within = addresses.start >= base && addresses.end <= self.addresses.end;
        within.then(|| addresses.start - base..addresses.end - base)
    }

    /// Checks that what is known of the file is that of the content that was mapped, and will not be that of another.
    ///
    /// # Errors
    ///
    /// It has changed since it was mapped; or a moment before, so that it may change again without its time changing: file systems
    /// count time in steps of up to two seconds.
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

/// Device, inode, and the time of the last change, which unlike that of the last modification no program can set.
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
