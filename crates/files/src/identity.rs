//! Identifies files by what they are instead of by their name, which links can change.

use std::io;
use std::path::Path;

/// Number of a file system and of a file on it. Two paths with the same identity lead to one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    volume: u64,
    file: u64,
}

/// Returns the identity of the file or directory at `path`. Follows symbolic links.
///
/// # Errors
///
/// Returns an [`io::Error`] if there is no such file, or on Windows if it cannot be opened.
pub fn of(path: &Path) -> io::Result<Identity> {
    platform::information(path).map(|(identity, _)| identity)
}

/// Returns the number of names of the file at `path`. Follows symbolic links.
///
/// # Errors
///
/// Returns an [`io::Error`] if there is no such file, or on Windows if it cannot be opened.
pub fn hard_links(path: &Path) -> io::Result<u64> {
    platform::information(path).map(|(_, links)| links)
}

#[cfg(unix)]
mod platform {
    use std::os::unix::fs::MetadataExt as _;
    use std::path::Path;
    use std::{fs, io};

    use super::Identity;

    pub(super) fn information(path: &Path) -> io::Result<(Identity, u64)> {
        let found = fs::metadata(path)?;
        let identity = Identity {
            volume: found.dev(),
            file: found.ino(),
        };
        Ok((identity, found.nlink()))
    }
}

#[cfg(windows)]
mod platform {
    use std::io;
    use std::path::Path;

    use winapi_util::{Handle, file};

    use super::Identity;
    use crate::device;

    pub(super) fn information(path: &Path) -> io::Result<(Identity, u64)> {
        if device::is_named_by(path) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "is a device"));
        }
        let found = file::information(Handle::from_path_any(path)?)?;
        let identity = Identity {
            volume: found.volume_serial_number(),
            file: found.file_index(),
        };
        Ok((identity, found.number_of_links()))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn links_have_the_identity_of_their_file() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("a"), "x").unwrap();
        fs::write(at("b"), "x").unwrap();
        assert_eq!(hard_links(&at("a")).unwrap(), 1);
        fs::hard_link(at("a"), at("c")).unwrap();
        assert_eq!(of(&at("a")).unwrap(), of(&at("c")).unwrap());
        assert_ne!(of(&at("a")).unwrap(), of(&at("b")).unwrap());
        assert_eq!(hard_links(&at("c")).unwrap(), 2);
        assert_eq!(of(&at("d")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
