//! Where a command writes: files, whole or not at all, and standard output.

use std::fs;
use std::io::{self, StdoutLock, Write};
use std::path::Path;

use anstream::AutoStream;

/// Standard output: styled where that is wanted, and named in its errors. Unlike `println!` it does not panic where
/// nothing can be written.
pub struct Stdout(AutoStream<StdoutLock<'static>>);

/// Standard output, locked.
pub fn stdout() -> Stdout {
    Stdout(AutoStream::auto(io::stdout().lock()))
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(named)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(named)
    }
}

fn named(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("standard output: {error}"))
}

/// Puts `bytes` at `path`. On an error, what was there before is still there.
pub fn write(path: &Path, bytes: &[u8]) -> hipvit::Result<()> {
    replace(path, bytes).map_err(super::refused(path))
}

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // A device or a pipe cannot be replaced by a renamed file.
    if fs::metadata(path).is_ok_and(|m| !m.is_file()) {
        return fs::write(path, bytes);
    }
    let directory = path
        .parent()
        .filter(|p| !p.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    // As any new file: readable as the umask says, not by the owner alone.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut file = builder.tempfile_in(directory)?;
    file.write_all(bytes)?;
    file.persist(path)?;
    Ok(())
}
