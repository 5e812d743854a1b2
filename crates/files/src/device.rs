//! Recognises paths that name a device of the system instead of a file.

use std::path::Path;

/// Returns true if `path` names a device by its form: on Windows `NUL`, `CON`, `COM1`, `\\.\pipe\name`. Always false on
/// Unix, where devices are files with a type of their own.
///
/// The system decides which names are reserved, because that depends on its version.
#[must_use]
pub fn is_named_by(path: &Path) -> bool {
    platform::is_named_by(path)
}

#[cfg(windows)]
mod platform {
    use std::path::{self, Component, Path, Prefix};

    pub(super) fn is_named_by(path: &Path) -> bool {
        // The absolute path of a reserved name is in the namespace of devices: `\\.\NUL`.
        let absolute = path::absolute(path);
        let absolute = absolute.as_deref().unwrap_or(path);
        let Some(Component::Prefix(prefix)) = absolute.components().next() else {
            return false;
        };
        match prefix.kind() {
            Prefix::DeviceNS(_) => true,
            // `\\?\` also reaches pipes and every object of the kernel. Volumes without a letter have files.
            Prefix::Verbatim(name) => !name.to_string_lossy().starts_with("Volume{"),
            _ => false,
        }
    }
}

#[cfg(not(windows))]
mod platform {
    use std::path::Path;

    pub(super) fn is_named_by(_: &Path) -> bool {
        false
    }
}

#[cfg(all(test, windows))]
mod tests {
    use super::*;

    #[test]
    fn reserved_names_and_the_namespace_of_devices_are_devices() {
        for device in [
            "NUL",
            "nul",
            r"\\.\pipe\x",
            r"\\?\pipe\x",
            r"\\?\GLOBALROOT\Device\Null",
        ] {
            assert!(is_named_by(Path::new(device)), "{device}");
        }
        for file in [
            "a.png",
            r"C:\a.png",
            r"\\?\C:\NUL",
            r"\\server\share\a.png",
            "null",
            "",
        ] {
            assert!(!is_named_by(Path::new(file)), "{file}");
        }
    }
}
