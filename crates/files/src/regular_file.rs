//! Opens regular files only.
//!
//! Every file that a user names goes through this module: images, weights, configurations, libraries, cache entries.
//! Opening a FIFO would wait for a writer, and a device such as `/dev/zero` never ends.

use std::fs::{self, File, FileType, OpenOptions};
use std::io;
use std::path::Path;

use crate::device;

/// Opens the regular file at `path` for reading. Follows symbolic links.
///
/// # Errors
///
/// Returns the errors of [`File::open`], and [`io::ErrorKind::InvalidInput`] for a directory, FIFO, device or socket.
pub fn open(path: impl AsRef<Path>) -> io::Result<File> {
    let path = path.as_ref();
    // Check before opening, because opening a device can have side effects.
    check(path)?;
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        // A FIFO or terminal may have replaced the file since the check. Do not wait for a writer, and do not take a
        // controlling terminal.
        options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    }
    let file = options.open(path)?;
    check_type(file.metadata()?.file_type())?;
    Ok(file)
}

/// Reads the whole regular file at `path`.
///
/// # Errors
///
/// Returns the errors of [`open`] and of reading.
pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    read_within(path, u64::MAX)
}

/// Reads the regular file at `path` if it has at most `longest` bytes.
///
/// # Errors
///
/// Returns the errors of [`open`] and of reading, and [`io::ErrorKind::FileTooLarge`] if the file is longer.
pub fn read_within(path: impl AsRef<Path>, longest: u64) -> io::Result<Vec<u8>> {
    use io::Read as _;
    let file = open(path)?;
    let length = file.metadata()?.len();
    let too_long = || {
        let reason = format!("is longer than {}", size(longest));
        io::Error::new(io::ErrorKind::FileTooLarge, reason)
    };
    if length > longest {
        return Err(too_long());
    }
    let mut bytes = Vec::new();
    // Return an error if memory is short. Growing the vector would abort the process.
    bytes.try_reserve_exact(usize::try_from(length).unwrap_or(usize::MAX))?;
    // The file may grow while it is read.
    file.take(longest.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > longest {
        return Err(too_long());
    }
    Ok(bytes)
}

/// Formats a number of bytes, in MiB or KiB if it is a multiple of one.
fn size(bytes: u64) -> String {
    match bytes {
        0 => "0 bytes".to_owned(),
        _ if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} bytes"),
    }
}

/// Checks that `path` leads to a regular file, without opening it.
///
/// # Errors
///
/// Returns the errors of [`fs::metadata`], and [`io::ErrorKind::InvalidInput`] for a directory, FIFO, device or socket.
pub fn check(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref();
    // On Windows even the metadata of a device would open it.
    if device::is_named_by(path) {
        return Err(not_regular("a device"));
    }
    check_type(fs::metadata(path)?.file_type())
}

fn check_type(file_type: FileType) -> io::Result<()> {
    if file_type.is_file() {
        return Ok(());
    }
    Err(not_regular(kind(file_type)))
}

fn not_regular(kind: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("is {kind}, not a regular file"),
    )
}

fn kind(file_type: FileType) -> &'static str {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt as _;
        if file_type.is_fifo() {
            return "a FIFO";
        }
        if file_type.is_char_device() || file_type.is_block_device() {
            return "a device";
        }
        if file_type.is_socket() {
            return "a socket";
        }
    }
    if file_type.is_dir() {
        "a directory"
    } else {
        "a special file"
    }
}

#[cfg(all(test, windows))]
mod tests {
    use super::*;

    #[test]
    fn devices_and_directories_are_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), "content").unwrap();
        assert_eq!(read(folder.path().join("file")).unwrap(), b"content");
        for (path, reason) in [
            (Path::new("NUL"), "is a device, not a regular file"),
            (Path::new(r"\\.\pipe\x"), "is a device, not a regular file"),
            (folder.path(), "is a directory, not a regular file"),
        ] {
            for error in [open(path).unwrap_err(), check(path).unwrap_err()] {
                assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{}", path.display());
                assert_eq!(error.to_string(), reason, "{}", path.display());
            }
        }
    }
}

#[cfg(all(test, unix))]
#[allow(clippy::unwrap_used, clippy::panic, reason = "a test")]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::process::Command;

    fn fifo(path: &Path) {
        assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    }

    #[test]
    fn a_file_that_is_too_long_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, [7; 1024]).unwrap();
        assert_eq!(read_within(&path, 1024).unwrap(), [7; 1024]);
        let error = read_within(&path, 1023).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(error.to_string(), "is longer than 1023 bytes");
        // The file is sparse, so no disk space is allocated.
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(1 << 40)
            .unwrap();
        let error = read_within(&path, 64 << 20).unwrap_err();
        assert_eq!(error.to_string(), "is longer than 64 MiB");
    }

    #[test]
    fn only_regular_files_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "content").unwrap();
        fifo(&at("fifo"));
        symlink("file", at("to-file")).unwrap();
        symlink("fifo", at("to-fifo")).unwrap();
        symlink("/dev/zero", at("to-zero")).unwrap();
        symlink(".", at("to-folder")).unwrap();
        symlink("missing", at("to-missing")).unwrap();
        assert_eq!(read(at("file")).unwrap(), b"content");
        assert_eq!(read(at("to-file")).unwrap(), b"content");
        for (path, reason) in [
            (at("fifo"), "is a FIFO, not a regular file"),
            (at("to-fifo"), "is a FIFO, not a regular file"),
            ("/dev/zero".into(), "is a device, not a regular file"),
            (at("to-zero"), "is a device, not a regular file"),
            (at("to-folder"), "is a directory, not a regular file"),
        ] {
            for error in [open(&path).unwrap_err(), check(&path).unwrap_err()] {
                assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{}", path.display());
                assert_eq!(error.to_string(), reason, "{}", path.display());
            }
        }
        let missing = open(at("to-missing")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }
}
