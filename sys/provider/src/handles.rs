//! Handles: numbers that identify objects and are never dereferenced.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hipvit_sys::hip::hipError_t;

/// The next handle's number. It is greater than the special handles, such as those of streams.
static NEXT: AtomicUsize = AtomicUsize::new(0x1000);

/// The live objects of one type, each under a handle.
///
/// No handle is used twice, so a stale handle is an error and never another object.
#[derive(Debug)]
pub struct Handles<T: ?Sized>(Mutex<BTreeMap<usize, Arc<T>>>);

impl<T: ?Sized> Default for Handles<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: ?Sized> Handles<T> {
    /// An empty table.
    pub const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    fn map(&self) -> std::sync::MutexGuard<'_, BTreeMap<usize, Arc<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a new handle for the object.
    pub fn insert<H>(&self, object: Arc<T>) -> *mut H {
        let number = NEXT.fetch_add(0x10, Ordering::Relaxed);
        self.map().insert(number, object);
        ptr::without_provenance_mut::<c_void>(number).cast()
    }

    /// Returns the object of a handle.
    ///
    /// # Errors
    /// `hipErrorInvalidHandle` if no live object has this handle.
    pub fn get<H>(&self, handle: *const H) -> Result<Arc<T>, hipError_t> {
        let found = self.map().get(&handle.addr()).cloned();
        found.ok_or(hipError_t::hipErrorInvalidHandle)
    }

    /// Returns all objects.
    pub fn all(&self) -> Vec<Arc<T>> {
        self.map().values().cloned().collect()
    }

    /// Removes a handle and returns its object.
    ///
    /// # Errors
    /// `hipErrorInvalidHandle` if no live object has this handle.
    pub fn remove<H>(&self, handle: *const H) -> Result<Arc<T>, hipError_t> {
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
