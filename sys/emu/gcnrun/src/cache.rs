//! Texts that are dear to make, kept on disk by the content that they were made from.

use std::env;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// What names an entry: a digest of all that it depends on.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key([u8; 32]);

impl Key {
    /// Of several contents; where one ends and the next begins counts.
    pub(crate) fn of(contents: &[&[u8]]) -> Self {
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

/// `$HIPVIT_CACHE_DIR`, or `gcnrun` in the user's cache folder; `None` where there is neither.
pub(crate) fn directory() -> Option<PathBuf> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty());
    set("HIPVIT_CACHE_DIR")
        .map(PathBuf::from)
        .or_else(|| set("XDG_CACHE_HOME").map(|path| Path::new(&path).join("gcnrun")))
        .or_else(|| set("HOME").map(|path| Path::new(&path).join(".cache").join("gcnrun")))
}

/// The text of `key` in `directory`, or else what `make` makes, which is kept. A folder that cannot be read or written is as
/// good as none: the text is made anew.
pub(crate) fn text<E>(
    directory: Option<&Path>,
    key: Key,
    make: impl FnOnce() -> Result<String, E>,
) -> Result<String, E> {
    let Some(directory) = directory else {
        return make();
    };
    let path = directory.join(key.file_name());
    if let Ok(text) = fs::read_to_string(&path) {
        return Ok(text);
    }
    let text = make()?;
    // Written aside and renamed, so that another process never reads a part of it.
    let _ = fs::create_dir_all(directory)
        .and_then(|()| tempfile::NamedTempFile::new_in(directory))
        .and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.persist(&path).map_err(|error| error.error)
        });
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::{Key, text};

    #[test]
    fn a_text_is_made_once() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path().join("made");
        let get = |key: Key, made: &str| text::<()>(Some(&directory), key, || Ok(made.to_owned())).unwrap();
        let key = Key::of(&[b"gfx942", b"code"]);
        assert_eq!(get(key, "first"), "first");
        assert_eq!(get(key, "second"), "first");
        assert_eq!(get(Key::of(&[b"gfx942c", b"ode"]), "third"), "third");
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 2);
    }

    #[test]
    fn an_unwritable_folder_is_none() {
        let key = Key::of(&[b"code"]);
        let made = text::<()>(Some("/dev/null/below".as_ref()), key, || Ok("made".to_owned()));
        assert_eq!(made, Ok("made".to_owned()));
        assert_eq!(text(None, key, || Err::<String, _>("no tool")), Err("no tool"));
    }
}
