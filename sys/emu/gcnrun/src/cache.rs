//! A disk cache for results that are expensive to compute, keyed by the content that they were computed from.

use std::env;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// A cache key: a digest of everything that the entry depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key([u8; 32]);

impl Key {
    /// The key of several contents; their boundaries are part of the digest.
    pub fn of(contents: &[&[u8]]) -> Self {
        let mut digest = Sha256::new();
        for content in contents {
            digest.update((content.len() as u64).to_le_bytes());
            digest.update(content);
        }
        Self(digest.finalize().into())
    }

    fn file_name(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// An entry's file: this, a digest of key and entry, the entry.
const MAGIC: &[u8; 16] = b"gcnrun entry 1\n\0";
const HEADER: usize = MAGIC.len() + 32;

/// Larger than any entry, in bytes.
const MAX_ENTRY: u64 = 1 << 30;

/// A folder of entries, or no cache. A folder that cannot be read or written behaves like no cache.
#[derive(Clone, Debug)]
pub struct Cache(Option<PathBuf>);

impl Cache {
    /// `$HIPVIT_CACHE_DIR`, or `program` in the user's cache folder; no cache if there is neither, or if
    /// `HIPVIT_CACHE_DIR` is empty.
    pub fn of_user(program: &str) -> Self {
        if let Some(folder) = env::var_os("HIPVIT_CACHE_DIR") {
            return Self((!folder.is_empty()).then(|| folder.into()));
        }
        let set = |name| env::var_os(name).filter(|value| !value.is_empty());
        let user = || {
            set("XDG_CACHE_HOME")
                .map(PathBuf::from)
                .or_else(|| set("HOME").map(|path| Path::new(&path).join(".cache")))
                .map(|folder| folder.join(program))
        };
        Self(user())
    }

    /// The entry of this key; `None` if there is none, or none that is whole.
    pub fn get(&self, key: Key) -> Option<Vec<u8>> {
        let path = self.0.as_ref()?.join(key.file_name());
        // A FIFO would be waited for, and a device read without end.
        let metadata = fs::metadata(&path).ok()?;
        if !metadata.is_file() || metadata.len() > MAX_ENTRY {
            return None;
        }
        let bytes = fs::read(&path).ok()?;
        let (header, entry) = bytes.split_at_checked(HEADER)?;
        (header == Self::header(key, entry)).then(|| entry.to_vec())
    }

    /// The magic number, and a digest of key and entry.
    fn header(key: Key, entry: &[u8]) -> [u8; HEADER] {
        let mut header = [0; HEADER];
        let (magic, digest) = header.split_at_mut(MAGIC.len());
        magic.copy_from_slice(MAGIC);
        digest.copy_from_slice(&Key::of(&[&key.0, entry]).0);
        header
    }

    /// Stores an entry, if possible. It is written to a temporary file and renamed, so that no reader sees a part of it.
    pub fn put(&self, key: Key, entry: &[u8]) {
        let Some(folder) = &self.0 else {
            return;
        };
        let path = folder.join(key.file_name());
        let _ = fs::create_dir_all(folder)
            .and_then(|()| tempfile::NamedTempFile::new_in(folder))
            .and_then(|mut file| {
                file.write_all(&Self::header(key, entry))?;
                file.write_all(entry)?;
                // Renaming replaces all but a folder.
                if path.is_dir() && !path.is_symlink() {
                    fs::remove_dir(&path)?;
                }
                file.persist(path).map_err(|error| error.error)
            });
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{Cache, Key};

    #[test]
    fn entries_are_found_by_key() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache(Some(folder.path().join("made")));
        let key = Key::of(&[b"gfx942", b"code"]);
        assert_eq!(cache.get(key), None);
        cache.put(key, b"first");
        cache.put(Key::of(&[b"gfx942c", b"ode"]), b"second");
        assert_eq!(cache.get(key).as_deref(), Some(&b"first"[..]));
        assert_eq!(std::fs::read_dir(folder.path().join("made")).unwrap().count(), 2);
    }

    #[test]
    fn a_damaged_entry_is_none_and_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache(Some(folder.path().into()));
        let key = Key::of(&[b"code"]);
        cache.put(key, b"made");
        let path = folder.path().join(key.file_name());
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            for bytes in [&damaged[..], &whole[..at], b""] {
                fs::write(&path, bytes).unwrap();
                assert_eq!(cache.get(key), None, "at {at}");
            }
        }
        // Whole, but of another key.
        let other = Key::of(&[b"other"]);
        fs::write(folder.path().join(other.file_name()), &whole).unwrap();
        assert_eq!(cache.get(other), None);
        cache.put(key, b"made");
        assert_eq!(cache.get(key).as_deref(), Some(&b"made"[..]));
    }

    #[cfg(unix)]
    #[test]
    fn what_is_not_a_regular_file_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache(Some(folder.path().into()));
        let key = Key::of(&[b"code"]);
        let path = folder.path().join(key.file_name());
        let fifo = || {
            let made = std::process::Command::new("mkfifo").arg(&path).status();
            assert!(made.unwrap().success());
        };
        let device = || std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        let directory = || fs::create_dir(&path).unwrap();
        let makers: [&dyn Fn(); 3] = [&fifo, &device, &directory];
        for make in makers {
            make();
            assert_eq!(cache.get(key), None);
            cache.put(key, b"made");
            assert_eq!(cache.get(key).as_deref(), Some(&b"made"[..]));
            fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn an_unwritable_folder_is_no_cache() {
        let key = Key::of(&[b"code"]);
        for cache in [Cache(Some("/dev/null/below".into())), Cache(None)] {
            cache.put(key, b"made");
            assert_eq!(cache.get(key), None);
        }
    }
}
