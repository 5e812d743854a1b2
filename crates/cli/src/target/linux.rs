//! Linux: files without a name, owners and extended attributes.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, fchown};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, XattrFlags};
use rustix::io::Errno;
use rustix::path::Arg;

/// Creates a file without a name in `directory`. Returns `None` if its file system does not support that.
pub(super) fn unnamed(directory: &Path) -> io::Result<Option<File>> {
    const PERMISSIONS: u32 = 0o666;
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::open(directory, flags, Mode::from_raw_mode(PERMISSIONS)) {
        Ok(file) => Ok(Some(file.into())),
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Gives a file without a name the name `path`.
pub(super) fn link_unnamed(file: &File, path: &Path) -> io::Result<()> {
    let number = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(CWD, number, CWD, path, AtFlags::SYMLINK_FOLLOW).map_err(io::Error::from)
}

/// Gives `new` the owner, permissions and extended attributes of an existing file.
pub(super) fn keep_attributes(path: &Path, existing: &Metadata, new: &File) -> io::Result<()> {
    let own = new.metadata()?;
    if (own.uid(), own.gid()) != (existing.uid(), existing.gid()) {
        fchown(new, Some(existing.uid()), Some(existing.gid()))?;
    }
    // After the owner, because changing the owner clears some permissions.
    new.set_permissions(existing.permissions())?;
    for (name, value) in extended_attributes(path) {
        if attribute(new, &name).as_ref() != Some(&value) {
            rustix::fs::fsetxattr(new, &name[..], &value, XattrFlags::empty())?;
        }
    }
    Ok(())
}

/// Returns a file's extended attributes by name, including access control lists. Empty on file systems without them.
fn extended_attributes(path: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    let Ok(file) = File::open(path) else {
        return Vec::new();
    };
    let mut names = vec![0; rustix::fs::flistxattr_query(&file).unwrap_or(0)];
    let length = rustix::fs::flistxattr(&file, &mut names[..]).unwrap_or(0);
    // The list can be shorter than the size that was queried.
    names.truncate(length);
    let names = names.split(|&byte| byte == 0).filter(|name| !name.is_empty());
    names
        .filter_map(|name| Some((name.to_owned(), attribute(&file, name)?)))
        .collect()
}

pub(super) fn attribute(file: &File, name: impl Arg + Copy) -> Option<Vec<u8>> {
    let mut value = vec![0; rustix::fs::fgetxattr_query(file, name).ok()?];
    let length = rustix::fs::fgetxattr(file, name, &mut value[..]).ok()?;
    value.truncate(length);
    Some(value)
}
