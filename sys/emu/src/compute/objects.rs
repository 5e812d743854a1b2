//! Mutable objects behind handles: library handles, descriptors.

use std::sync::{Arc, Mutex, PoisonError};

use crate::hip::Handles;

/// Objects of one kind. Calls copy them, so that an object may be changed or destroyed while its work is pending.
#[derive(Debug)]
pub(crate) struct Objects<T>(Handles<Mutex<T>>);

impl<T: Clone> Objects<T> {
    pub(crate) const fn new() -> Self {
        Self(Handles::new())
    }

    pub(crate) fn add<P>(&self, object: T) -> *mut P {
        self.0.insert(Arc::new(Mutex::new(object)))
    }

    /// A copy; `None` if the handle is invalid.
    pub(crate) fn get<P>(&self, handle: *const P) -> Option<T> {
        self.change(handle, |object| object.clone())
    }

    pub(crate) fn change<P, R>(&self, handle: *const P, change: impl FnOnce(&mut T) -> R) -> Option<R> {
        let object = self.0.get(handle).ok()?;
        let mut object = object.lock().unwrap_or_else(PoisonError::into_inner);
        Some(change(&mut object))
    }

    /// Removes the handle.
    pub(crate) fn remove<P>(&self, handle: *const P) -> Option<T> {
        let object = self.0.remove(handle).ok()?;
        Some(object.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }
}
