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

    /// The entry of this key.
    pub fn get(&self, key: Key) -> Option<Vec<u8>> {
        fs::read(self.0.as_ref()?.join(key.file_name())).ok()
    }

    /// Stores an entry, if possible. It is written to a temporary file and renamed, so that no reader sees a part of it.
    pub fn put(&self, key: Key, entry: &[u8]) {
        let Some(folder) = &self.0 else {
            return;
        };
        let _ = fs::create_dir_all(folder)
            .and_then(|()| tempfile::NamedTempFile::new_in(folder))
            .and_then(|mut file| {
                file.write_all(entry)?;
                file.persist(folder.join(key.file_name()))
                    .map_err(|error| error.error)
            });
    }
}

#[cfg(test)]
mod tests {
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
    fn an_unwritable_folder_is_no_cache() {
        let key = Key::of(&[b"code"]);
        for cache in [Cache(Some("/dev/null/below".into())), Cache(None)] {
            cache.put(key, b"made");
            assert_eq!(cache.get(key), None);
        }
    }
}
