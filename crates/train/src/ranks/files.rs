//! The run directory of rank 0, of which the other ranks get what they start from.

use std::fs;
use std::path::{Path, PathBuf};

use hipvit::error::{Error, Result};
use hipvit::exec::Collectives;
use hipvit_files::regular_file;

/// Sends the files of `names`, directories included, from the directory of rank 0 to the other ranks.
///
/// # Errors
///
/// [`Error::Io`] if a file cannot be read. [`Error::Hip`] with the rank that is lost or has failed.
pub(crate) fn send(collectives: &Collectives, directory: &Path, names: &[PathBuf]) -> Result<()> {
    let mut files = Vec::new();
    for name in names {
        list(directory, name, &mut files)?;
    }
    let mut message = Vec::new();
    for name in files {
        let path = directory.join(&name);
        let content = regular_file::read(&path).map_err(|error| Error::io(&path, error))?;
        for part in [name.to_string_lossy().as_bytes(), &content] {
            message.extend((part.len() as u64).to_le_bytes());
            message.extend(part);
        }
    }
    collectives.gather(message)?;
    Ok(())
}

/// Writes the files that rank 0 sends to an empty directory.
///
/// # Errors
///
/// [`Error::Io`] if a file cannot be written. [`Error::Hip`] with the rank that is lost or has failed.
pub(crate) fn receive(collectives: &Collectives, directory: &Path) -> Result<()> {
    let messages = collectives.gather(Vec::new())?;
    let mut rest = messages.first().map_or(&[][..], Vec::as_slice);
    while !rest.is_empty() {
        let (Some(name), Some(content)) = (take(&mut rest), take(&mut rest)) else {
            return Err(Error::argument("ranks", "rank 0 runs another version of hipvit"));
        };
        let path = directory.join(String::from_utf8_lossy(name).as_ref());
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(|error| Error::io(folder, error))?;
        }
        fs::write(&path, content).map_err(|error| Error::io(&path, error))?;
    }
    Ok(())
}

/// Returns the next part of a message.
fn take<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, after) = rest.split_first_chunk::<8>()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    let (part, after) = after.split_at_checked(length)?;
    *rest = after;
    Some(part)
}

/// Adds the files of `name` in `directory`, whose names are relative to it. Nothing is added if `name` does not exist.
fn list(directory: &Path, name: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let path = directory.join(name);
    if !path.is_dir() {
        if path.exists() {
            files.push(name.to_owned());
        }
        return Ok(());
    }
    let failed = |error| Error::io(&path, error);
    for entry in fs::read_dir(&path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        list(directory, &name.join(entry.file_name()), files)?;
    }
    Ok(())
}
