//! Creates temporary files and folders with the permissions of ordinary new files.
//!
//! The paths are kept in a process-wide list, so that a program can remove them when a signal ends it.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use tempfile::NamedTempFile;

static LIST: List = List::new();

/// Creates a file in `folder` whose name ends with `suffix`. Dropping the file removes it, unless it was persisted.
///
/// # Errors
///
/// Returns an [`io::Error`] if the file cannot be created.
pub fn file_in(folder: &Path, suffix: &str) -> io::Result<(NamedTempFile, Listed)> {
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        // The umask still applies. By default, tempfile restricts its files to their owner.
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    let file = builder.suffix(suffix).tempfile_in(folder)?;
    let listed = Listed::new(file.path());
    Ok((file, listed))
}

/// Removes all temporary files and folders of this process. Call it when the process is about to end.
pub fn remove_all() {
    LIST.remove_all();
}

/// Guard that keeps a temporary file or folder in the list until it is dropped.
#[derive(Debug)]
#[must_use]
pub struct Listed(PathBuf);

impl Listed {
    /// Adds a path that this process has created to the list.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        LIST.0.lock().insert(path.clone());
        Self(path)
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        LIST.0.lock().remove(&self.0);
    }
}

#[derive(Debug)]
struct List(Mutex<BTreeSet<PathBuf>>);

impl List {
    const fn new() -> Self {
        Self(Mutex::new(BTreeSet::new()))
    }

    /// Removes the listed files and folders. Ignores those that were renamed or removed in the meantime.
    fn remove_all(&self) {
        for path in self.0.lock().iter() {
            let _ = if path.is_dir() && !path.is_symlink() {
                fs::remove_dir_all(path)
            } else {
                fs::remove_file(path)
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_listed_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("folder")).unwrap();
        for name in ["file", "other", "folder/file"] {
            fs::write(at(name), "x").unwrap();
        }
        let list = List::new();
        list.0.lock().extend(["file", "folder", "missing"].map(at));
        list.remove_all();
        let left: Vec<_> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(left, ["other"]);
    }

    #[test]
    fn a_temporary_file_is_listed_until_it_is_not_one() {
        let folder = tempfile::tempdir().unwrap();
        let (file, listed) = file_in(folder.path(), ".part").unwrap();
        let path = file.path().to_owned();
        assert!(path.to_string_lossy().ends_with(".part"));
        assert!(LIST.0.lock().contains(&path));
        drop(listed);
        assert!(!LIST.0.lock().contains(&path));
    }

    #[cfg(unix)]
    #[test]
    fn permissions_are_those_of_any_new_file() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let usual = folder.path().join("usual");
        fs::write(&usual, "").unwrap();
        let (file, _listed) = file_in(folder.path(), "").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(file.path()), mode(&usual));
    }
}
