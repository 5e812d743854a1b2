//! Handles: numbers that identify objects. No number is used twice, so that a stale handle is an error and never another
//! object; handles are not dereferenced.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hipvit_sys::hip::hipError_t;

/// Greater than the special handles, such as those of streams.
static NEXT: AtomicUsize = AtomicUsize::new(0x1000);

/// The live objects of one type.
#[derive(Debug)]
pub(crate) struct Handles<T: ?Sized>(Mutex<BTreeMap<usize, Arc<T>>>);

impl<T: ?Sized> Handles<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    fn map(&self) -> std::sync::MutexGuard<'_, BTreeMap<usize, Arc<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new handle for the object.
    pub(crate) fn insert<H>(&self, object: Arc<T>) -> *mut H {
        let number = NEXT.fetch_add(0x10, Ordering::Relaxed);
        self.map().insert(number, object);
        ptr::without_provenance_mut::<c_void>(number).cast()
    }

    /// The object; `hipErrorInvalidHandle` if there is none, or no longer.
    pub(crate) fn get<H>(&self, handle: *const H) -> Result<Arc<T>, hipError_t> {
        let found = self.map().get(&handle.addr()).cloned();
        found.ok_or(hipError_t::hipErrorInvalidHandle)
    }

    /// All objects.
    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.map().values().cloned().collect()
    }

    /// Removes the handle.
    pub(crate) fn remove<H>(&self, handle: *const H) -> Result<Arc<T>, hipError_t> {
        let found = self.map().remove(&handle.addr());
        found.ok_or(hipError_t::hipErrorInvalidHandle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_not_reused() {
        static NUMBERS: Handles<u32> = Handles::new();
        let first: *mut c_void = NUMBERS.insert(Arc::new(1));
        assert_eq!(NUMBERS.get(first).as_deref(), Ok(&1));
        assert_eq!(NUMBERS.remove(first).as_deref(), Ok(&1));
        let second: *mut c_void = NUMBERS.insert(Arc::new(2));
        assert_ne!(first, second);
        assert_eq!(NUMBERS.get(first), Err(hipError_t::hipErrorInvalidHandle));
        assert_eq!(NUMBERS.remove(first), Err(hipError_t::hipErrorInvalidHandle));
    }
}
