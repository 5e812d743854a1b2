//! A GPU: its properties, its pool, the error that a drop left behind.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};

use bytemuck::Pod;
use hipvit_sys::Hip;

use super::pinned::{PinnedBuffer, PinnedRing};
use super::pool::{Pool, PoolStats};
use super::properties::Properties;
use super::runtime::Runtime;
use super::status::call;
use super::stream::Stream;
use super::topology::Topology;
use crate::error::{Error, Result};

/// A GPU. That one exists proves that there is a GPU. Cheap to clone.
///
/// It gives [streams](Device::stream), which give [buffers](Stream::allocate).
#[derive(Clone)]
pub struct Device {
    shared: Arc<Shared>,
}

/// What all handles of one device share.
pub(super) struct Shared {
    runtime: Runtime,
    ordinal: usize,
    properties: Properties,
    /// How errors call it.
    name: String,
    pool: Pool,
    parked: Mutex<Option<Error>>,
    is_parked: AtomicBool,
    /// Read while a stream is captured, written while the whole device is waited for: one fails or spoils the other.
    captures: RwLock<()>,
}

thread_local! {
    /// Whether this thread captures a stream, and so would wait for itself.
    static CAPTURES: Cell<bool> = const { Cell::new(false) };
}

/// A capture under way on this thread.
pub(super) struct CaptureGuard<'a>(#[allow(dead_code, reason = "held")] RwLockReadGuard<'a, ()>);

impl Drop for CaptureGuard<'_> {
    fn drop(&mut self) {
        CAPTURES.set(false);
    }
}

impl From<Arc<Shared>> for Device {
    fn from(shared: Arc<Shared>) -> Self {
        Self { shared }
    }
}

impl Device {
    /// # Errors
    ///
    /// The driver does not tell the properties.
    pub(super) fn new(runtime: Runtime, ordinal: usize) -> Result<Self> {
        let properties = Properties::query(&runtime, ordinal)?;
        let name = format!("GPU {ordinal} ({}, {})", properties.name, properties.arch());
        Ok(Self {
            shared: Arc::new(Shared {
                runtime,
                ordinal,
                properties,
                name,
                pool: Pool::default(),
                parked: Mutex::default(),
                is_parked: AtomicBool::new(false),
                captures: RwLock::default(),
            }),
        })
    }

    pub(super) fn downgrade(&self) -> Weak<Shared> {
        Arc::downgrade(&self.shared)
    }

    /// The libraries that it was found with.
    #[must_use]
    pub fn runtime(&self) -> &Runtime {
        &self.shared.runtime
    }

    /// Its number, from 0.
    #[must_use]
    pub fn ordinal(&self) -> usize {
        self.shared.ordinal
    }

    /// What it is.
    #[must_use]
    pub fn properties(&self) -> &Properties {
        &self.shared.properties
    }

    /// How errors call it: number, name, architecture.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// How it is linked to the other GPUs.
    ///
    /// # Errors
    ///
    /// The driver does not say how many GPUs there are.
    pub fn topology(&self) -> Result<Topology> {
        Topology::query(self)
    }

    /// A new stream.
    ///
    /// # Errors
    ///
    /// The driver refuses, or a parked error.
    pub fn stream(&self) -> Result<Stream> {
        Stream::new(self)
    }

    /// Host memory that this device copies from and to on its own, `len` elements, zero.
    ///
    /// # Errors
    ///
    /// The host is out of memory that can be pinned.
    pub fn pinned<T: Pod + Send + Sync>(&self, len: usize) -> Result<PinnedBuffer<T>> {
        PinnedBuffer::new(self, len)
    }

    /// A ring of `count` pinned buffers of `len` elements each.
    ///
    /// # Errors
    ///
    /// As for [`Device::pinned`].
    pub fn pinned_ring<T: Pod + Send + Sync>(&self, count: usize, len: usize) -> Result<PinnedRing<T>> {
        PinnedRing::new(self, count, len)
    }

    /// Waits until all of the device's work is done.
    ///
    /// # Errors
    ///
    /// What any of that work failed with.
    pub fn synchronize(&self) -> Result<()> {
        let _alone = self.between_captures();
        let hip = self.enter()?;
        // SAFETY: takes no arguments.
        unsafe { call!(self, hip.hipDeviceSynchronize()) }
    }

    /// To be held while this thread captures one of the device's streams.
    pub(super) fn capture(&self) -> CaptureGuard<'_> {
        let guard = self
            .shared
            .captures
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        CAPTURES.set(true);
        CaptureGuard(guard)
    }

    /// To be held while the whole device is waited for: other threads' captures are over, and none begins. `None` on a
    /// thread that captures, where the driver refuses to wait.
    pub(super) fn between_captures(&self) -> Option<RwLockWriteGuard<'_, ()>> {
        let lock = || {
            self.shared
                .captures
                .write()
                .unwrap_or_else(PoisonError::into_inner)
        };
        (!CAPTURES.get()).then(lock)
    }

    /// Free and total bytes of the device's memory, over all processes.
    ///
    /// # Errors
    ///
    /// The driver does not say.
    pub fn memory(&self) -> Result<(usize, usize)> {
        let hip = self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: the call writes two sizes.
        unsafe { call!(self, hip.hipMemGetInfo(&mut free, &mut total)) }?;
        Ok((free, total))
    }

    /// What the pool holds.
    #[must_use]
    pub fn pool_stats(&self) -> PoolStats {
        self.pool().stats()
    }

    /// Gives the pool's unused blocks back to the driver; waits for the device. Returns the bytes.
    ///
    /// # Errors
    ///
    /// What the device's work failed with, or the driver refuses to free.
    pub fn trim(&self) -> Result<usize> {
        self.pool().trim(self)
    }

    pub(super) fn pool(&self) -> &Pool {
        &self.shared.pool
    }

    /// To be called before any call that concerns the device: returns a parked error, then makes the device the calling
    /// thread's current one.
    pub(super) fn enter(&self) -> Result<&Hip> {
        if self.shared.is_parked.swap(false, Ordering::AcqRel) {
            let mut parked = self.shared.parked.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(error) = parked.take() {
                return Err(error);
            }
        }
        self.select()
    }

    /// As [`Device::enter`], for drops: a parked error stays parked.
    pub(super) fn select(&self) -> Result<&Hip> {
        self.shared.select()
    }

    /// Keeps an error that cannot be returned, for the next call to return. The first one stays.
    pub(super) fn park(&self, result: Result<()>) {
        if let Err(error) = result {
            let mut parked = self.shared.parked.lock().unwrap_or_else(PoisonError::into_inner);
            parked.get_or_insert(error);
            self.shared.is_parked.store(true, Ordering::Release);
        }
    }
}

impl Shared {
    fn name(&self) -> &str {
        &self.name
    }

    fn select(&self) -> Result<&Hip> {
        let hip = self.runtime.hip()?;
        // SAFETY: sets a number of the calling thread.
        unsafe { call!(self, hip.hipSetDevice(self.ordinal as i32)) }?;
        Ok(hip)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Every stream and buffer holds its device, so nothing runs and all blocks are unused. An error has no one left
        // to be told to.
        let Ok(hip) = self.select() else { return };
        for address in self.pool.take_unused() {
            // SAFETY: the pool got the address from hipMalloc and has forgotten it.
            let _ = unsafe { call!(self, hip.hipFree(address as *mut _)) };
        }
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Device").field(&self.name()).finish()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Shared").field(&self.name).finish()
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl Eq for Device {}
