//! Duplicates the standard streams as files, without the locks and buffers of [`std::io`].

use std::fs::File;
use std::io;

/// Returns a duplicate of standard output.
///
/// # Errors
///
/// Returns an [`io::Error`] if standard output is closed.
pub fn stdout() -> io::Result<File> {
    platform::duplicate(io::stdout())
}

/// Returns a duplicate of standard error.
///
/// # Errors
///
/// Returns an [`io::Error`] if standard error is closed.
pub fn stderr() -> io::Result<File> {
    platform::duplicate(io::stderr())
}

#[cfg(unix)]
mod platform {
    use std::fs::File;
    use std::io;
    use std::os::fd::AsFd;

    pub(super) fn duplicate(stream: impl AsFd) -> io::Result<File> {
        stream.as_fd().try_clone_to_owned().map(File::from)
    }
}

#[cfg(windows)]
mod platform {
    use std::fs::File;
    use std::io;
    use std::os::windows::io::AsHandle;

    pub(super) fn duplicate(stream: impl AsHandle) -> io::Result<File> {
        stream.as_handle().try_clone_to_owned().map(File::from)
    }
}
