//! Output: files, which are replaced atomically, standard output and standard error.

use std::fmt::Display;
use std::fs;
use std::io::{self, StdoutLock, Write};
use std::path::Path;

use anstream::AutoStream;

/// Standard output with styles where they are enabled, and errors that name it. Unlike `println!` it does not panic on
/// them.
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

/// One line on standard error. Unlike `eprintln!` it does not panic where nobody takes it: there is nowhere left to say so,
/// and the work itself goes on.
pub fn warn(line: impl Display) {
    // In one piece, so that the lines of several processes are not mixed.
    let _ = anstream::stderr()
        .lock()
        .write_all(format!("{line}\n").as_bytes());
}

/// An error of standard output, with its name.
pub fn named(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("standard output: {error}"))
}

/// Writes `bytes` to `path`. On an error, an existing file is left unchanged.
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
    // The permissions of any new file, by the umask, not those of a temporary one.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut file = builder.tempfile_in(directory)?;
    file.write_all(bytes)?;
    file.persist(path)?;
    Ok(())
}
