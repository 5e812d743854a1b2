//! Location of compiled kernels on the user's machine.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use crate::hip::KernelCache;

/// The variable that names the directory of all caches, and that directory without the variable.
const VARIABLE: &str = if cfg!(windows) {
    "LOCALAPPDATA"
} else {
    "XDG_CACHE_HOME"
};
const BELOW_HOME: &str = if cfg!(windows) { r"AppData\Local" } else { ".cache" };

/// Returns the user's cache of compiled kernels: `kernels` in the directory of `HIPVIT_CACHE_DIR`, otherwise in `hipvit` below
/// `XDG_CACHE_HOME` or `~/.cache` (on Windows below `LOCALAPPDATA`). `None` if `HIPVIT_CACHE_DIR` is empty, or there is no home
/// directory.
pub fn kernel_cache() -> Option<KernelCache> {
    Some(KernelCache::at(cache_folder()?.join("kernels")))
}

/// Returns `HIPVIT_CACHE_DIR`, otherwise `hipvit` in `XDG_CACHE_HOME` or in `.cache` of the home directory, on Windows in `LOCALAPPDATA`.
/// `None` if `HIPVIT_CACHE_DIR` is empty, or there is no home directory: nothing is cached then.
pub fn cache_folder() -> Option<PathBuf> {
    find(|name| env::var_os(name), env::home_dir())
}

fn find(variable: impl Fn(&str) -> Option<OsString>, home: Option<PathBuf>) -> Option<PathBuf> {
    if let Some(folder) = variable("HIPVIT_CACHE_DIR") {
        return (!folder.is_empty()).then(|| folder.into());
    }
    // The XDG base directory specification requires ignoring relative paths.
    let base = variable(VARIABLE)
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| Some(home.filter(|path| path.is_absolute())?.join(BELOW_HOME)))?;
    Some(base.join("hipvit"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(windows)]
    #[test]
    fn caches_are_in_the_local_data_of_applications() {
        let home = || Some(PathBuf::from(r"C:\Users\u"));
        let local = |name: &str| (name == "LOCALAPPDATA").then(|| r"D:\l".into());
        assert_eq!(find(local, home()), Some(r"D:\l\hipvit".into()));
        assert_eq!(
            find(|_| None, home()),
            Some(r"C:\Users\u\AppData\Local\hipvit".into())
        );
    }

    #[cfg(not(windows))]
    #[test]
    fn variables_go_before_the_home() {
        let folder = |variables: &[(&str, &str)], home: Option<&str>| {
            let value = |name: &str| Some(variables.iter().find(|(key, _)| *key == name)?.1.into());
            let found = find(value, home.map(PathBuf::from))?;
            Some(found.to_str().unwrap().to_owned())
        };
        let is = |path: &str| Some(path.to_owned());
        assert_eq!(folder(&[], Some("/home/u")), is("/home/u/.cache/hipvit"));
        assert_eq!(folder(&[], None), None);
        assert_eq!(
            folder(&[("XDG_CACHE_HOME", "/c")], Some("/home/u")),
            is("/c/hipvit")
        );
        assert_eq!(
            folder(&[("XDG_CACHE_HOME", "c")], Some("/home/u")),
            is("/home/u/.cache/hipvit")
        );
        let both = [("XDG_CACHE_HOME", "/c"), ("HIPVIT_CACHE_DIR", "/mine")];
        assert_eq!(folder(&both, Some("/home/u")), is("/mine"));
        assert_eq!(folder(&[("HIPVIT_CACHE_DIR", "")], Some("/home/u")), None);
    }
}
