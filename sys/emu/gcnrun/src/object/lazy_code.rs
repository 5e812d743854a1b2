//! Instructions that are decoded when they are first needed.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use super::error::LoadError;
use crate::cache::Key;
use crate::code::Code;
use crate::decode::decode;
use crate::disassembly::disassemble;

/// The instructions of an object: decoded when first run, and shared by all programs that loaded the same bytes.
pub(super) struct LazyCode {
    elf: Vec<u8>,
    arch: String,
    wave_size: u32,
    code: OnceLock<Result<Code, LoadError>>,
}

impl fmt::Debug for LazyCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LazyCode")
            .field("decoded", &self.code.get().is_some())
            .finish_non_exhaustive()
    }
}

impl LazyCode {
    pub(super) fn shared(elf: &[u8], arch: &str, wave_size: u32) -> Arc<Self> {
        static LOADED: Mutex<Option<HashMap<Key, Weak<LazyCode>>>> = Mutex::new(None);
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        let loaded = loaded.get_or_insert_default();
        loaded.retain(|_, code| code.strong_count() > 0);
        let key = Key::of(&[elf]);
        if let Some(code) = loaded.get(&key).and_then(Weak::upgrade) {
            return code;
        }
        let code = Arc::new(Self {
            elf: elf.to_vec(),
            arch: arch.to_owned(),
            wave_size,
            code: OnceLock::new(),
        });
        loaded.insert(key, Arc::downgrade(&code));
        code
    }

    pub(super) fn get(&self) -> Result<&Code, LoadError> {
        self.code
            .get_or_init(|| {
                let text =
                    disassemble(&self.elf, &self.arch).map_err(|reason| LoadError::Disassembly { reason })?;
                Ok(decode(text, &self.arch, self.wave_size))
            })
            .as_ref()
            .map_err(Clone::clone)
    }
}
