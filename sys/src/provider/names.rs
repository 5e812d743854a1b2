//! File names of libraries, which may contain the version of a release.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the paths of `name` in `folder`. A `*` in the name matches decimal digits; higher numbers come first. A name without it,
/// or without a match, is returned as it is, so that an error can show it.
pub(super) fn in_folder(folder: &Path, name: &str) -> Vec<PathBuf> {
    let Some((before, after)) = name.split_once('*') else {
        return vec![folder.join(name)];
    };
    let number = |file: &str| -> Option<u32> {
        let digits = file.strip_prefix(before)?.strip_suffix(after)?;
        // A `+` would be parsed, too.
        digits.bytes().all(|byte| byte.is_ascii_digit()).then_some(())?;
        digits.parse().ok()
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| {
            // Windows does not distinguish case.
            let file = entry.file_name().to_str()?.to_ascii_lowercase();
            Some((number(&file)?, entry.path()))
        })
        .collect();
    if found.is_empty() {
        return vec![folder.join(name)];
    }
    found.sort_by(|a, b| b.cmp(a));
    found.into_iter().map(|(_, path)| path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_found_newest_first() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        for file in [
            "hiprtc0702.dll",
            "HipRTC0714.dll",
            "hiprtc0604.dll",
            "hiprtc-builtins0714.dll",
            "hiprtc07+1.dll",
            "hiprtc07.dll.bak",
        ] {
            fs::write(folder.join(file), "").unwrap();
        }
        let named = |pattern: &str| -> Vec<String> {
            let paths = in_folder(folder, pattern);
            let names = paths.iter().filter_map(|path| path.file_name());
            names.map(|name| name.to_string_lossy().into_owned()).collect()
        };
        assert_eq!(named("hiprtc07*.dll"), ["HipRTC0714.dll", "hiprtc0702.dll"]);
        assert_eq!(named("hiprtc06*.dll"), ["hiprtc0604.dll"]);
        assert_eq!(named("hiprtc08*.dll"), ["hiprtc08*.dll"]);
        assert_eq!(named("rocblas.dll"), ["rocblas.dll"]);
    }
}
