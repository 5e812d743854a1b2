//! The system's loader: where it finds libraries, and how it opens them.

pub(crate) use self::platform::SEARCH;
pub(super) use self::platform::{FOLDER, default_root, find, open};

#[cfg(unix)]
mod platform {
    use std::env;
    use std::ffi::OsStr;
    use std::path::{Path, PathBuf};

    use libloading::Library;

    /// Folder of an installation that has its libraries.
    pub(in crate::provider) const FOLDER: &str = "lib";

    /// Description of the places that the loader searches.
    pub(crate) const SEARCH: &str = "the system's loader (LD_LIBRARY_PATH, its cache, its default folders)";

    /// Folder of ROCm's installer.
    pub(in crate::provider) fn default_root() -> Option<PathBuf> {
        Some("/opt/rocm".into())
    }

    /// Returns the argument for the loader to open the library `name`. It is the name itself, unless the loader would search the
    /// working folder.
    ///
    /// # Errors
    /// The loader would find the library through an entry of its search path that is empty or relative, and nowhere before.
    pub(in crate::provider) fn find(name: &str) -> Result<Vec<PathBuf>, String> {
        let path = in_search_path(env::var_os("LD_LIBRARY_PATH").as_deref(), Path::new(name))?;
        Ok(vec![path])
    }

    /// Returns the name itself, or the file in the first folder of `LD_LIBRARY_PATH` that has it if the loader would search the
    /// working folder.
    fn in_search_path(search_path: Option<&OsStr>, name: &Path) -> Result<PathBuf, String> {
        let entries: Vec<PathBuf> = match search_path.filter(|path| !path.is_empty()) {
            Some(path) => env::split_paths(path).collect(),
            None => Vec::new(),
        };
        if entries.iter().all(|entry| entry.is_absolute()) {
            return Ok(name.to_owned());
        }
        for entry in entries {
            let file = entry.join(name);
            match (file.exists(), entry.is_absolute()) {
                (true, true) => return Ok(file),
                (true, false) => {
                    return Err(format!(
                        "not opened from `{}` of the working folder, an empty or relative entry of LD_LIBRARY_PATH; name it by its path",
                        file.display()
                    ));
                }
                (false, _) => {}
            }
        }
        Ok(name.to_owned())
    }

    /// Opens with every symbol bound at once: a missing one is an error here instead of an abort at its first call.
    pub(in crate::provider) fn open(path: &Path) -> Result<Library, libloading::Error> {
        use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
        // SAFETY: runs the initialisers of a library that the user or the administrator installed for this purpose, as
        // linking against it would.
        unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map(Into::into)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn the_working_folder_is_not_searched() {
            // Tests run in the crate's folder, which has this file.
            let name = Path::new("Cargo.toml");
            let here = env::current_dir().unwrap_or_default();
            let find = |path: &str| in_search_path(Some(OsStr::new(path)), name);
            assert_eq!(find(""), Ok(name.to_owned()));
            assert_eq!(find("/nowhere:/nothing"), Ok(name.to_owned()));
            for path in [
                ":/nowhere",
                "/nowhere:",
                "/nowhere::/nothing",
                ".:/nowhere",
                "src/..:/nowhere",
            ] {
                let refused = find(path);
                assert!(
                    refused
                        .as_ref()
                        .is_err_and(|cause| cause.contains("LD_LIBRARY_PATH")),
                    "{path}: {refused:?}"
                );
            }
            // An absolute entry before it is what the loader takes.
            assert_eq!(find(&format!("{}:", here.display())), Ok(here.join(name)));
            // What is not in the working folder does no harm.
            assert_eq!(
                in_search_path(Some(OsStr::new(":")), Path::new("absent")),
                Ok("absent".into())
            );
        }
    }
}

#[cfg(windows)]
mod platform {
    use std::env;
    use std::path::{Path, PathBuf};

    use libloading::Library;

    use crate::provider::names;

    /// Folder of an installation that has its libraries.
    pub(in crate::provider) const FOLDER: &str = "bin";

    /// Description of the places that are searched.
    pub(crate) const SEARCH: &str = "the system's folders (the program's, System32, PATH)";

    /// AMD's installer sets `HIP_PATH`, and its default folder contains the version.
    pub(in crate::provider) fn default_root() -> Option<PathBuf> {
        None
    }

    /// Returns the files with the name `name`, in the order of [`SEARCH`].
    ///
    /// The loader itself would also search the working folder, and does not know patterns.
    pub(in crate::provider) fn find(name: &str) -> Result<Vec<PathBuf>, String> {
        let program = env::current_exe().ok();
        let program = program.as_deref().and_then(Path::parent).map(Path::to_owned);
        let system = env::var_os("SystemRoot").map(|root| PathBuf::from(root).join("System32"));
        let path = env::var_os("PATH").unwrap_or_default();
        let folders = program.into_iter().chain(system).chain(env::split_paths(&path));
        Ok(folders
            .filter(|folder| folder.is_absolute())
            .flat_map(|folder| names::in_folder(&folder, name))
            .filter(|file| file.exists())
            .collect())
    }

    /// Opens a library. Its dependencies are searched in its own folder, the program's folder and System32.
    pub(in crate::provider) fn open(path: &Path) -> Result<Library, libloading::Error> {
        use libloading::os::windows::{
            LOAD_LIBRARY_SEARCH_DEFAULT_DIRS, LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR, Library,
        };
        let flags = LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR | LOAD_LIBRARY_SEARCH_DEFAULT_DIRS;
        // SAFETY: runs the initialisers of a library that the user or the administrator installed for this purpose, as
        // linking against it would.
        unsafe { Library::load_with_flags(path, flags) }.map(Into::into)
    }
}
