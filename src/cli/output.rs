//! Files that a command writes: whole, or not at all.

use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};

/// Puts `bytes` at `path`. On an error, what was there before is still there.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    replace(path, bytes).with_context(|| path.display().to_string())
}

fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
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
