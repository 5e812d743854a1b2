//! A file that receives results. It is checked before the work, and changes only when the results are complete.
//!
//! | target | how it is written |
//! | --- | --- |
//! | a new file | as an unnamed file in its directory, which is named at the end |
//! | an existing file | as a new file; mode, owner and extended attributes are kept |
//! | a symbolic link | to the file it points to, which may not exist yet |
//! | a mount point, a file with several hard links, a file in a read-only directory | by copying the finished results into it |
//! | a device, a pipe, `/dev/stdout`, `/dev/fd/N` | directly |
//!
//! Systems other than Linux have no unnamed files, and a new file keeps only the permissions of an existing one.

use std::env;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::{self, Path, PathBuf};

use hipvit_files::temporary::{self, Listed};
use hipvit_files::{device, identity, streams};
use tempfile::NamedTempFile;

#[cfg(target_os = "linux")]
#[path = "target/linux.rs"]
mod system;
#[cfg(not(target_os = "linux"))]
#[path = "target/portable.rs"]
mod system;

/// A file that is being written.
#[derive(Debug)]
pub(crate) struct Target {
    /// Path of the file, with all symbolic links resolved.
    file: PathBuf,
    content: Content,
}

/// Where bytes are written until the target is finished.
#[derive(Debug)]
enum Content {
    /// An unnamed file, which disappears with the process.
    Unnamed(File),
    /// A temporary file, for file systems that do not support unnamed files.
    Named { file: NamedTempFile, _listed: Listed },
    /// The target itself: a device, a pipe or a file descriptor.
    Direct(File),
}

impl Target {
    /// Opens `path` for writing. Its content does not change until [`Staged::commit`].
    ///
    /// # Errors
    ///
    /// Returns an [`io::Error`] if the path is a directory, is not writable, or cannot be created.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = resolve(path)?;
        if let Some(descriptor) = descriptor(&file) {
            let content = Content::Direct(descriptor?);
            return Ok(Self { file, content });
        }
        if device::is_named_by(&file) {
            let content = Content::Direct(OpenOptions::new().write(true).open(&file)?);
            return Ok(Self { file, content });
        }
        let exists = match fs::metadata(&file) {
            Ok(found) if found.is_dir() => return Err(is_a_directory()),
            Ok(found) if !found.is_file() => {
                let content = Content::Direct(OpenOptions::new().write(true).open(&file)?);
                return Ok(Self { file, content });
            }
            Ok(_) => {
                OpenOptions::new().write(true).open(&file).map_err(not_writable)?;
                true
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(error),
        };
        let last = file.as_os_str().as_encoded_bytes().last();
        if !exists && last.is_some_and(|&byte| path::is_separator(byte.into())) {
            return Err(is_a_directory());
        }
        let directory = directory(&file);
        let content = match Content::new(directory) {
            Err(_) if exists => Content::new(&env::temp_dir()),
            Err(error) => Err(cannot_create(directory, &error)),
            content => content,
        }?;
        Ok(Self { file, content })
    }

    /// Returns true if the target is a file, which is replaced as a whole.
    pub(crate) fn is_file(&self) -> bool {
        !matches!(self.content, Content::Direct(_))
    }

    /// Returns the directory of the target, or the directory for temporary files if the target is not a file.
    pub(crate) fn directory(&self) -> PathBuf {
        match self.content {
            Content::Direct(_) => env::temp_dir(),
            _ => directory(&self.file).to_owned(),
        }
    }

    /// Moves the results to the target's file system, so that [`Staged::commit`] only renames them.
    ///
    /// # Errors
    ///
    /// Returns an [`io::Error`] if the results cannot be written there. It names the file that keeps them.
    pub(crate) fn stage(mut self) -> io::Result<Staged> {
        self.flush()?;
        let renamed = match self.content {
            Content::Direct(_) => None,
            _ => self.link().map_err(|error| self.kept(&error))?,
        };
        Ok(Staged {
            target: self,
            renamed,
        })
    }

    /// Links the results to a name in the target's directory. Returns `None` if the existing file cannot be replaced: a
    /// mount point, another user's file, or a file with several hard links.
    fn link(&self) -> io::Result<Option<(NamedTempFile<File>, Listed)>> {
        let existing = match fs::metadata(&self.file) {
            Ok(existing) => Some(existing),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        if existing.is_some() && identity::hard_links(&self.file)? > 1 {
            return Ok(None);
        }
        let linked = tempfile::Builder::new().make_in(directory(&self.file), |path| self.content.link(path));
        let linked = linked.and_then(|linked| {
            if let Some(existing) = &existing {
                system::keep_attributes(&self.file, existing, linked.as_file())?;
            }
            Ok(linked)
        });
        match linked {
            Err(_) if existing.is_some() => Ok(None),
            linked => linked.map(|linked| {
                let listed = Listed::new(linked.path());
                Some((linked, listed))
            }),
        }
    }

    /// Returns the error of an unwritable target, with the name of the file that keeps the results.
    fn kept(&self, error: &io::Error) -> io::Error {
        let kept = self
            .keep()
            .map(|kept| format!(". The complete results are in {}", kept.display()));
        io::Error::new(error.kind(), format!("{error}{}", kept.unwrap_or_default()))
    }

    /// Copies the results into the existing file.
    fn copy_into(&self) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).truncate(true).open(&self.file)?;
        io::copy(&mut self.content.rewound()?, &mut file)?;
        Ok(())
    }

    /// Keeps the results under another name. Returns this name.
    fn keep(&self) -> io::Result<PathBuf> {
        /// Maximum number of characters of the old name, so that the new name is not too long.
        const STEM: usize = 50;
        let stem = self.file.file_stem().unwrap_or_default().to_string_lossy();
        let stem: String = stem.chars().take(STEM).collect();
        let suffix = match self.file.extension() {
            Some(extension) => format!(".{}", extension.to_string_lossy()),
            None => String::new(),
        };
        let keep_in = |directory: &Path| {
            let kept = tempfile::Builder::new()
                .prefix(&format!("{stem}-"))
                .suffix(&suffix)
                .make_in(directory, |path| self.content.link(path))?;
            Ok(kept.keep()?.1)
        };
        keep_in(directory(&self.file)).or_else(|_: io::Error| keep_in(&env::temp_dir()))
    }

    /// Moves the written bytes to the directory for temporary files, because the target's file system is full.
    fn move_elsewhere(&mut self) -> io::Result<()> {
        let mut elsewhere = Content::new(&env::temp_dir())?;
        io::copy(&mut self.content.rewound()?, elsewhere.file())?;
        self.content = elsewhere;
        Ok(())
    }
}

/// A target with complete results that are not in place yet.
pub(crate) struct Staged {
    target: Target,
    /// The results under another name. `None` if they are copied into the existing file, or already written.
    renamed: Option<(NamedTempFile<File>, Listed)>,
}

impl Staged {
    /// Puts the results in place.
    ///
    /// # Errors
    ///
    /// Returns an [`io::Error`] if the file cannot be written. It names the file that keeps the results.
    pub(crate) fn commit(self) -> io::Result<()> {
        let Self { target, renamed } = self;
        if !target.is_file() {
            return Ok(());
        }
        let committed = match renamed.map(|(results, _)| results.persist(&target.file)) {
            Some(Ok(_)) => Ok(()),
            Some(Err(error)) if !fs::metadata(&target.file).is_ok_and(|found| found.is_file()) => {
                Err(error.error)
            }
            _ => target.copy_into(),
        };
        committed.map_err(|error| target.kept(&error))
    }
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.content.file().write(bytes) {
            Err(error) if self.is_file() && is_full(&error) && self.move_elsewhere().is_ok() => {
                self.content.file().write(bytes)
            }
            written => written,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.content.file().flush()
    }
}

impl Content {
    /// Creates a file in `directory` with the default permissions of a new file.
    fn new(directory: &Path) -> io::Result<Self> {
        if let Some(file) = system::unnamed(directory)? {
            return Ok(Self::Unnamed(file));
        }
        let (file, _listed) = temporary::file_in(directory, "")?;
        Ok(Self::Named { file, _listed })
    }

    fn file(&mut self) -> &mut File {
        match self {
            Self::Unnamed(file) | Self::Direct(file) => file,
            Self::Named { file, .. } => file.as_file_mut(),
        }
    }

    fn shared(&self) -> &File {
        match self {
            Self::Unnamed(file) | Self::Direct(file) => file,
            Self::Named { file, .. } => file.as_file(),
        }
    }

    /// Returns a reader that starts at the first byte.
    fn rewound(&self) -> io::Result<impl Read> {
        let mut file = self.shared();
        file.rewind()?;
        Ok(file)
    }

    /// Gives the content the name `path`. Copies it if linking is not possible.
    fn link(&self, path: &Path) -> io::Result<File> {
        let linked = match self {
            Self::Named { file, .. } => fs::hard_link(file.path(), path),
            Self::Unnamed(file) | Self::Direct(file) => system::link_unnamed(file, path),
        };
        match linked {
            Ok(()) => self.shared().try_clone(),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
            Err(_) => {
                let mut copy = File::create_new(path)?;
                let _listed = Listed::new(path);
                let copied = io::copy(&mut self.rewound()?, &mut copy);
                if copied.is_err() {
                    fs::remove_file(path)?;
                }
                copied.map(|_| copy)
            }
        }
    }
}

/// Resolves the symbolic links of `path`. The file may not exist yet.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    /// Maximum number of links, equal to the kernel's limit.
    const LINKS: usize = 40;
    let mut file = path.to_owned();
    for _ in 0..LINKS {
        if is_descriptor(&file) {
            return Ok(file);
        }
        match fs::read_link(&file) {
            Ok(to) => file = directory(&file).join(to),
            Err(_) => return Ok(file),
        }
    }
    Err(io::Error::other("too many levels of symbolic links"))
}

/// Returns true if `path` names an open file of the process, such as `/dev/stdout`.
fn is_descriptor(path: &Path) -> bool {
    let of_process = || path.starts_with("/proc") && path.parent().is_some_and(|path| path.ends_with("fd"));
    ["/dev/stdout", "/dev/stderr"]
        .iter()
        .any(|name| path == Path::new(name))
        || path.starts_with("/dev/fd")
        || of_process()
}

/// Opens a descriptor of this process. Does not truncate its file, like a redirection in a shell.
fn descriptor(path: &Path) -> Option<io::Result<File>> {
    if !is_descriptor(path) {
        return None;
    }
    let is_own = path.starts_with("/dev") || path.starts_with("/proc/self");
    let file = match path.file_name()?.to_str()? {
        "stdout" | "1" if is_own => streams::stdout(),
        "stderr" | "2" if is_own => streams::stderr(),
        _ => return Some(OpenOptions::new().append(true).open(path)),
    };
    Some(file)
}

/// Returns the directory of a file: `.` for a bare name.
pub(crate) fn directory(file: &Path) -> &Path {
    let parent = file.parent().filter(|path| !path.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

fn is_a_directory() -> io::Error {
    io::Error::new(io::ErrorKind::IsADirectory, "is a directory. Name a file in it")
}

fn not_writable(error: io::Error) -> io::Error {
    io::Error::new(
        error.kind(),
        format!(
            "the file exists and cannot be written: {error}. Change its permissions or name another file"
        ),
    )
}

/// Returns the error of a file that cannot be created in `directory`.
fn cannot_create(directory: &Path, error: &io::Error) -> io::Error {
    let text = match error.kind() {
        io::ErrorKind::NotFound => {
            format!(
                "the directory {} does not exist. Create it first",
                directory.display()
            )
        }
        kind => {
            // Leave out the name of the temporary file.
            let reason = error.raw_os_error().map_or_else(
                || kind.to_string(),
                |code| io::Error::from_raw_os_error(code).to_string(),
            );
            format!("cannot create a file in {}: {reason}", directory.display())
        }
    };
    io::Error::new(error.kind(), text)
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt, symlink};

    use rustix::fs::XattrFlags;

    use super::*;

    fn write(path: &Path, text: &str) -> io::Result<()> {
        let mut target = Target::open(path)?;
        target.write_all(text.as_bytes())?;
        target.stage()?.commit()
    }

    fn read(path: &Path) -> String {
        fs::read_to_string(path).unwrap()
    }

    #[test]
    fn links_are_followed_whether_or_not_their_file_exists() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("data")).unwrap();
        fs::write(path("data/real"), "old").unwrap();
        symlink("data/real", path("relative")).unwrap();
        symlink(path("relative"), path("chain")).unwrap();
        symlink("data/new", path("dangling")).unwrap();
        symlink("missing/new", path("nowhere")).unwrap();
        symlink("loop", path("loop")).unwrap();
        for (link, file) in [
            ("relative", "data/real"),
            ("chain", "data/real"),
            ("dangling", "data/new"),
        ] {
            write(&path(link), link).unwrap();
            assert_eq!(read(&path(file)), link);
            assert!(path(link).is_symlink());
        }
        for refused in ["nowhere", "loop", "data", "new/"] {
            assert!(Target::open(&path(refused)).is_err(), "{refused}");
        }
        assert_eq!(fs::read_dir(path("data")).unwrap().count(), 2);
    }

    #[test]
    fn permissions_attributes_and_hard_links_stay() {
        let folder = tempfile::tempdir().unwrap();
        let (file, other) = (folder.path().join("file"), folder.path().join("other"));
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        let old = File::open(&file).unwrap();
        let attributes = rustix::fs::fsetxattr(&old, "user.origin", b"camera", XattrFlags::empty()).is_ok();
        write(&file, "new").unwrap();
        assert_eq!(read(&file), "new");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
        if attributes {
            let new = File::open(&file).unwrap();
            assert_eq!(system::attribute(&new, "user.origin").unwrap(), b"camera");
        }
        assert_ne!(old.metadata().unwrap().ino(), fs::metadata(&file).unwrap().ino());
        fs::hard_link(&file, &other).unwrap();
        write(&file, "both").unwrap();
        assert_eq!((read(&file), read(&other)), ("both".into(), "both".into()));
    }

    #[test]
    fn an_unfinished_target_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "old").unwrap();
        let mut target = Target::open(&file).unwrap();
        target.write_all(b"new").unwrap();
        drop(target);
        assert_eq!(read(&file), "old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn results_that_cannot_be_put_in_place_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file.csv");
        let mut target = Target::open(&file).unwrap();
        target.write_all(b"results").unwrap();
        // Create a directory with this name in the meantime.
        fs::create_dir(&file).unwrap();
        let error = target.stage().and_then(Staged::commit).unwrap_err().to_string();
        let (_, kept) = error.split_once("The complete results are in ").unwrap();
        assert_eq!(read(Path::new(kept)), "results");
        assert_eq!(Path::new(kept).extension().unwrap(), "csv");
    }

    #[test]
    fn descriptors_are_written_directly() {
        for name in ["/dev/stdout", "/dev/fd/3", "/proc/self/fd/1", "/proc/17/fd/1"] {
            assert!(is_descriptor(Path::new(name)), "{name}");
        }
        assert!(!is_descriptor(Path::new("/dev/null")));
        assert!(!Target::open(Path::new("/dev/null")).unwrap().is_file());
    }
}
