//! A GPU: its properties, the books of its memory, the error that a drop left behind.

pub(crate) mod numa;
pub(crate) mod properties;
pub(crate) mod topology;

use std::cell::Cell;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use hipvit_sys::{Hip, Provider};
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use self::numa::NumaNode;
use self::properties::Properties;
use crate::error::{Error, Result};
use crate::memory::cache::Cache;
use crate::runtime::Runtime;
use crate::status::call;

/// A GPU. That one exists proves that there is a GPU. Cheap to clone.
///
/// It gives [streams](Device::stream), which give [buffers](crate::Stream::allocate).
#[derive(Clone)]
pub struct Device {
    shared: Arc<Shared>,
}

/// State that all handles of one device share.
struct Shared {
    runtime: Runtime,
    ordinal: usize,
    properties: Properties,
    /// The device's name in errors.
    name: String,
    /// `None` on a host with one NUMA node.
    numa: Option<NumaNode>,
    cache: Mutex<Cache>,
    parked: Mutex<Option<Error>>,
    is_parked: AtomicBool,
    /// Read while a stream is captured, written while the whole device is waited for: one fails or spoils the other.
    captures: RwLock<()>,
}

thread_local! {
    /// True while this thread captures a stream, and so would wait for itself.
    static CAPTURES: Cell<bool> = const { Cell::new(false) };
}

/// A capture under way on this thread.
pub(crate) struct CaptureGuard<'a>(#[allow(dead_code, reason = "held")] RwLockReadGuard<'a, ()>);

impl Drop for CaptureGuard<'_> {
    fn drop(&mut self) {
        CAPTURES.set(false);
    }
}

impl Runtime {
    /// A GPU, by its number from 0. While one is in use, the same is given again.
    ///
    /// # Errors
    ///
    /// [`Error::NoDevice`] if there is none of that number; what the driver says otherwise.
    pub fn device(&self, ordinal: usize) -> Result<Device> {
        let count = self.device_count()?;
        if ordinal >= count {
            return Err(Error::NoDevice {
                ordinal,
                reason: format!(
                    "{} finds {}",
                    self.path()?.display(),
                    found(count, self.provider())
                ),
            });
        }
        let mut devices = self.open_devices();
        devices.retain(|(_, device)| device.strong_count() > 0);
        let open = devices.iter().find(|(n, _)| *n == ordinal);
        let open = open.and_then(|(_, device)| device.upgrade()?.downcast().ok());
        if let Some(shared) = open {
            return Ok(Device { shared });
        }
        let device = Device::new(self.clone(), ordinal)?;
        let shared: Weak<Shared> = Arc::downgrade(&device.shared);
        devices.push((ordinal, shared));
        Ok(device)
    }

    /// Every GPU.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if the driver refuses.
    pub fn devices(&self) -> Result<Vec<Device>> {
        (0..self.device_count()?).map(|n| self.device(n)).collect()
    }
}

fn found(count: usize, provider: &Provider) -> String {
    match count {
        0 => format!("none; {}", provider.driver_advice()),
        1 => "one, number 0".into(),
        n => format!("{n}, numbered from 0"),
    }
}

impl Device {
    /// # Errors
    ///
    /// The driver does not tell the properties.
    pub(crate) fn new(runtime: Runtime, ordinal: usize) -> Result<Self> {
        let properties = Properties::query(&runtime, ordinal)?;
        let name = format!("GPU {ordinal} ({}, {})", properties.name, properties.arch());
        let numa = NumaNode::of(Path::new("/sys"), properties.pci);
        Ok(Self {
            shared: Arc::new(Shared {
                runtime,
                ordinal,
                properties,
                name,
                numa,
                cache: Mutex::default(),
                parked: Mutex::default(),
                is_parked: AtomicBool::new(false),
                captures: RwLock::default(),
            }),
        })
    }

    /// The libraries that it was found with.
    #[must_use]
    pub fn runtime(&self) -> &Runtime {
        &self.shared.runtime
    }

    /// Number of the device, from 0.
    #[must_use]
    pub fn ordinal(&self) -> usize {
        self.shared.ordinal
    }

    /// Properties of the device.
    #[must_use]
    pub fn properties(&self) -> &Properties {
        &self.shared.properties
    }

    /// Name of the device in errors: number, name, architecture.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The NUMA node that it is attached to; `None` where the host has one node, or the system does not tell.
    #[must_use]
    pub fn numa_node(&self) -> Option<&NumaNode> {
        self.shared.numa.as_ref()
    }

    /// Binds the calling thread to the CPUs of the NUMA node that the GPU is attached to, and prefers that node for the thread's
    /// memory. Threads that it starts later inherit both. Returns the node.
    ///
    /// Copies between host and device and the submission of work are fastest there. Returns `None`, without any effect, if the
    /// host has one node, the system does not report the node, or its CPUs are not allowed.
    ///
    /// # Errors
    ///
    /// [`Error::System`] if the system refuses.
    pub fn bind_thread(&self) -> Result<Option<u32>> {
        self.numa_node().map_or(Ok(None), NumaNode::bind_thread)
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
    pub(crate) fn capture(&self) -> CaptureGuard<'_> {
        let guard = self.shared.captures.read();
        CAPTURES.set(true);
        CaptureGuard(guard)
    }

    /// Guard to hold while the whole device is waited for, as libraries do when a handle is made or destroyed. Captures of other
    /// threads are over, and none begins. `None` on a thread that captures, where the driver refuses to wait.
    pub(crate) fn between_captures(&self) -> Option<RwLockWriteGuard<'_, ()>> {
        let lock = || self.shared.captures.write();
        (!CAPTURES.get()).then(lock)
    }

    /// Takes the guard of [`Device::between_captures`] without waiting. `None` if a capture is under way.
    pub(crate) fn try_between_captures(&self) -> Option<RwLockWriteGuard<'_, ()>> {
        self.shared.captures.try_write()
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

    /// The books of the device's memory.
    pub(crate) fn cache(&self) -> MutexGuard<'_, Cache> {
        self.shared.cache.lock()
    }

    /// To be called before any call that concerns the device: returns a parked error, then makes the device the calling
    /// thread's current one.
    pub(crate) fn enter(&self) -> Result<&Hip> {
        if self.shared.is_parked.swap(false, Ordering::AcqRel) {
            let mut parked = self.shared.parked.lock();
            if let Some(error) = parked.take() {
                return Err(error);
            }
        }
        self.select()
    }

    /// Makes the device current for a drop: a parked error stays parked.
    pub(crate) fn select(&self) -> Result<&Hip> {
        self.shared.select()
    }

    /// Keeps an error that cannot be returned, for the next call to return. The first one stays.
    pub(crate) fn park(&self, result: Result<()>) {
        if let Err(error) = result {
            let mut parked = self.shared.parked.lock();
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
        // Every stream and buffer holds its device, so nothing runs and all blocks are unused. No caller is left to receive an
        // error.
        let Ok(hip) = self.select() else { return };
        for address in self.cache.lock().drain().0 {
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
