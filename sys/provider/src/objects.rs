//! Mutable objects behind handles: library handles, descriptors.

use std::sync::{Arc, Mutex, PoisonError};

use crate::Handles;

/// Mutable objects of one type, each under a handle.
///
/// Calls copy the objects, so that an object may be changed or destroyed while work that uses it is pending.
#[derive(Debug)]
pub struct Objects<T>(Handles<Mutex<T>>);

impl<T> Default for Objects<T> {
    fn default() -> Self {
        Self(Handles::new())
    }
}

impl<T: Clone> Objects<T> {
    /// An empty table.
    pub const fn new() -> Self {
        Self(Handles::new())
    }

    /// Returns a new handle for the object.
    pub fn add<P>(&self, object: T) -> *mut P {
        self.0.insert(Arc::new(Mutex::new(object)))
    }

    /// Returns a copy of the object, or `None` if the handle is invalid.
    pub fn get<P>(&self, handle: *const P) -> Option<T> {
        self.change(handle, |object| object.clone())
    }

    /// Changes the object in place. Returns what `change` returns, or `None` if the handle is invalid.
    pub fn change<P, R>(&self, handle: *const P, change: impl FnOnce(&mut T) -> R) -> Option<R> {
        let object = self.0.get(handle).ok()?;
        let mut object = object.lock().unwrap_or_else(PoisonError::into_inner);
        Some(change(&mut object))
    }

    /// Removes a handle and returns a copy of its object, or `None` if the handle is invalid.
    pub fn remove<P>(&self, handle: *const P) -> Option<T> {
        let object = self.0.remove(handle).ok()?;
        Some(object.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }
}
