//! Detects whether rocBLAS has kernels for a GPU. rocBLAS keeps them in files next to the library. Without them it prints a
//! message and ends the process at the first GEMM.

use std::path::{Path, PathBuf};
use std::{env, fs};

use crate::error::{Error, Result};

/// Checks that rocBLAS has kernels for a GPU of architecture `arch`.
///
/// # Errors
///
/// [`Error::Provider`] if the directory of kernels of the opened `library` has none for GPUs like `arch`.
pub(super) fn check(library: &Path, arch: &str) -> Result<()> {
    let folder = match env::var_os("ROCBLAS_TENSILE_LIBPATH") {
        Some(folder) if !folder.is_empty() => Some(PathBuf::from(folder)),
        _ => opened(library).and_then(|library| folder_of(&library)),
    };
    match folder {
        Some(folder) if !has_kernels(&folder, arch) => Err(Error::Provider {
            reason: format!(
                "rocBLAS has no kernels for {arch} in {}, and would end the process: install them, or name their folder in ROCBLAS_TENSILE_LIBPATH",
                folder.display()
            ),
            tried: String::new(),
        }),
        _ => Ok(()),
    }
}

/// Returns the path that a library was loaded from, which may have been found by its name alone.
fn opened(library: &Path) -> Option<PathBuf> {
    // Windows' libraries are opened by their path.
    if cfg!(windows) {
        return Some(library.to_owned());
    }
    let name = library.file_name()?.to_str()?;
    // Each line ends with a path, the only field with slashes.
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let mut paths = maps
        .lines()
        .filter_map(|line| Some(Path::new(&line[line.find('/')?..])));
    let is_it = |path: &Path| {
        path.file_name()
            .is_some_and(|file| file.to_string_lossy().starts_with(name))
    };
    paths.find(|path| is_it(path)).map(Path::to_path_buf)
}

/// Returns the directory of the library's kernels: `rocblas/library` (AMD's packages) or `rocblas/5/library` (Debian's).
fn folder_of(library: &Path) -> Option<PathBuf> {
    let own = library.parent()?.join("rocblas");
    let versions = fs::read_dir(&own)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()));
    versions
        .map(|version| version.join("library"))
        .chain([own.join("library")])
        .find(|folder| folder.is_dir())
}

/// Returns true if a file's name contains the GPU, or a GPU whose code it can run. On RDNA, with Debian's ROCm, these are the GPUs of a
/// generation.
fn has_kernels(folder: &Path, arch: &str) -> bool {
    let Ok(files) = fs::read_dir(folder) else {
        return false;
    };
    let family = arch.strip_prefix("gfx1").and_then(|rest| rest.get(..2));
    let fits = |word: &str| match (family, word.strip_prefix("gfx1")) {
        (Some(family), Some(word)) => word.starts_with(family),
        _ => word == arch,
    };
    files.flatten().any(|file| {
        let name = file.file_name();
        let name = name.to_string_lossy();
        name.split(|c: char| !c.is_ascii_alphanumeric()).any(fits)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_name_their_gpus() {
        let root = tempfile::tempdir().unwrap();
        let library = root.path().join("librocblas.so.5.2");
        fs::write(&library, "").unwrap();
        assert_eq!(folder_of(&library), None);
        let folder = root.path().join("rocblas/5/library");
        fs::create_dir_all(&folder).unwrap();
        for file in [
            "TensileLibrary_lazy_gfx1100.dat",
            "Kernels.so-000-gfx90a-xnack+.hsaco",
            "TensileLibrary_Type_HH_fallback_gfx942.hsaco",
        ] {
            fs::write(folder.join(file), "").unwrap();
        }
        assert_eq!(folder_of(&library).as_ref(), Some(&folder));
        for (arch, has) in [
            ("gfx1100", true),
            ("gfx1102", true),
            ("gfx1151", false),
            ("gfx90a", true),
            ("gfx942", true),
            ("gfx908", false),
            ("gfx94", false),
        ] {
            assert_eq!(has_kernels(&folder, arch), has, "{arch}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_library_is_found_where_it_was_loaded_from() {
        let program = env::current_exe().unwrap();
        let name = Path::new(program.file_name().unwrap());
        assert_eq!(opened(name), Some(program.clone()));
        assert_eq!(opened(Path::new("libnothing.so.1")), None);
        // A rocBLAS of another provider has no files of kernels next to it.
        check(name, "gfx942").unwrap();
    }
}
