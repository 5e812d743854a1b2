//! Objects behind handles that calls change: handles of libraries, descriptions.

use std::sync::{Arc, Mutex, PoisonError};

use crate::hip::Handles;

/// Objects of one kind. Calls work on a copy, so that an object may change or go while its work is still to be done.
#[derive(Debug)]
pub(crate) struct Objects<T>(Handles<Mutex<T>>);

impl<T: Clone> Objects<T> {
    pub(crate) const fn new() -> Self {
        Self(Handles::new())
    }

    pub(crate) fn add<P>(&self, object: T) -> *mut P {
        self.0.insert(Arc::new(Mutex::new(object)))
    }

    /// A copy; `None` if the handle is no good, or no longer.
    pub(crate) fn get<P>(&self, handle: *const P) -> Option<T> {
        self.change(handle, |object| object.clone())
    }

    pub(crate) fn change<P, R>(&self, handle: *const P, change: impl FnOnce(&mut T) -> R) -> Option<R> {
        let object = self.0.get(handle).ok()?;
        let mut object = object.lock().unwrap_or_else(PoisonError::into_inner);
        Some(change(&mut object))
    }

    /// Ends the handle.
    pub(crate) fn remove<P>(&self, handle: *const P) -> Option<T> {
        let object = self.0.remove(handle).ok()?;
        Some(object.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }
}
