//! A GPU: its properties, the bookkeeping of its memory, and errors of drops.

pub(crate) mod numa;
pub(crate) mod properties;
pub(crate) mod topology;

use std::cell::Cell;
use std::env;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use hipvit_sys::{Hip, Provider};
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use self::numa::NumaNode;
use self::properties::Properties;
use crate::error::{Error, Result};
use crate::pool::Cache;
use crate::runtime::Runtime;
use crate::status::call;

/// Environment variable that decides whether kernels access host memory in place: 1 always, 0 never.
const UNIFIED_MEMORY: &str = "HIPVIT_UNIFIED_MEMORY";

/// A GPU. A value of this type proves that the GPU exists. Cheap to clone.
///
/// It creates [streams](Device::stream), which allocate [buffers](crate::Stream::allocate).
#[derive(Clone)]
pub struct Device {
    shared: Arc<Shared>,
}

/// State that all handles of one device share.
struct Shared {
    runtime: Runtime,
    ordinal: usize,
    properties: Properties,
    /// Name of the device in errors.
    name: String,
    /// NUMA node of the device. `None` on a host with one node.
    numa: Option<NumaNode>,
    shares_host_memory: bool,
    cache: Mutex<Cache>,
    parked: Mutex<Option<Error>>,
    is_parked: AtomicBool,
    /// Read-locked during a stream's capture, write-locked while waiting for the whole device, since they would fail or break each other.
    captures: RwLock<()>,
}

thread_local! {
    /// True while this thread captures a stream and would deadlock with itself.
    static CAPTURES: Cell<bool> = const { Cell::new(false) };
}

/// A running capture of this thread.
pub(crate) struct CaptureGuard<'a>(#[allow(dead_code, reason = "held")] RwLockReadGuard<'a, ()>);

impl Drop for CaptureGuard<'_> {
    fn drop(&mut self) {
        CAPTURES.set(false);
    }
}

impl Runtime {
    /// Opens the GPU with this ordinal, counted from 0. Returns the same device while it is in use.
    ///
    /// # Errors
    ///
    /// [`Error::NoDevice`] if the GPU does not exist; [`Error::Device`] if the driver fails.
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

    /// Opens all GPUs.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if the driver fails.
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
    /// Opens a device.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if the driver does not report the properties.
    pub(crate) fn new(runtime: Runtime, ordinal: usize) -> Result<Self> {
        let properties = Properties::query(&runtime, ordinal)?;
        let name = format!("GPU {ordinal} ({}, {})", properties.name, properties.arch());
        let numa = NumaNode::of(Path::new("/sys"), properties.pci);
        let shares_host_memory = match env::var(UNIFIED_MEMORY).as_deref() {
            Ok("0") => false,
            Ok("1") => true,
            _ => properties.integrated,
        };
        Ok(Self {
            shared: Arc::new(Shared {
                runtime,
                ordinal,
                properties,
                name,
                numa,
                shares_host_memory,
                cache: Mutex::default(),
                parked: Mutex::default(),
                is_parked: AtomicBool::new(false),
                captures: RwLock::default(),
            }),
        })
    }

    /// Returns the provider's libraries.
    #[must_use]
    pub fn runtime(&self) -> &Runtime {
        &self.shared.runtime
    }

    /// Returns the ordinal of the device, from 0.
    #[must_use]
    pub fn ordinal(&self) -> usize {
        self.shared.ordinal
    }

    /// Returns the properties of the device.
    #[must_use]
    pub fn properties(&self) -> &Properties {
        &self.shared.properties
    }

    /// Returns the name of the device in errors: ordinal, name, architecture.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Returns the NUMA node of the GPU. `None` if the host has one node or the system does not report it.
    #[must_use]
    pub fn numa_node(&self) -> Option<&NumaNode> {
        self.shared.numa.as_ref()
    }

    /// Returns true if kernels should access [host memory](crate::Stream::lend) in place instead of copies of it. This is the case for
    /// [integrated](Properties::integrated) GPUs. `HIPVIT_UNIFIED_MEMORY`, 0 or 1, overrides it.
    #[must_use]
    pub fn shares_host_memory(&self) -> bool {
        self.shared.shares_host_memory
    }

    /// Binds the calling thread to the CPUs of the GPU's NUMA node, and prefers that node for the thread's memory. Threads that it starts
    /// later inherit both. Returns the node.
    ///
    /// Copies between host and device and the submission of work are fastest there. Has no effect and returns `None` if the host has one
    /// node, the system does not report the node, or its CPUs are not allowed.
    ///
    /// # Errors
    ///
    /// [`Error::System`] if the system refuses.
    pub fn bind_thread(&self) -> Result<Option<u32>> {
        self.numa_node().map_or(Ok(None), NumaNode::bind_thread)
    }

    /// Waits until all work of the device has finished.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if any of that work failed.
    pub fn synchronize(&self) -> Result<()> {
        let _alone = self.between_captures();
        let hip = self.enter()?;
        // SAFETY: no arguments.
        unsafe { call!(self, hip.hipDeviceSynchronize()) }
    }

    /// Returns the guard to hold while this thread captures one of the device's streams.
    pub(crate) fn capture(&self) -> CaptureGuard<'_> {
        let guard = self.shared.captures.read();
        CAPTURES.set(true);
        CaptureGuard(guard)
    }

    /// Returns the guard to hold while waiting for the whole device, as libraries do when a handle is created or destroyed. It excludes
    /// captures of other threads. `None` on a thread that captures, since the driver then refuses to wait.
    pub(crate) fn between_captures(&self) -> Option<RwLockWriteGuard<'_, ()>> {
        let lock = || self.shared.captures.write();
        (!CAPTURES.get()).then(lock)
    }

    /// Tries to take the guard of [`Device::between_captures`] without waiting. `None` during a capture.
    pub(crate) fn try_between_captures(&self) -> Option<RwLockWriteGuard<'_, ()>> {
        self.shared.captures.try_write()
    }

    /// Returns free and total bytes of device memory, over all processes.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if the driver fails.
    pub fn memory(&self) -> Result<(usize, usize)> {
        let hip = self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: the call writes two sizes.
        unsafe { call!(self, hip.hipMemGetInfo(&mut free, &mut total)) }?;
        Ok((free, total))
    }

    /// Returns the bookkeeping of the device's memory.
    pub(crate) fn cache(&self) -> MutexGuard<'_, Cache> {
        self.shared.cache.lock()
    }

    /// Returns a parked error, or makes the device current for the calling thread. Call it before any call for the device.
    pub(crate) fn enter(&self) -> Result<&Hip> {
        if self.shared.is_parked.swap(false, Ordering::AcqRel) {
            let mut parked = self.shared.parked.lock();
            if let Some(error) = parked.take() {
                return Err(error);
            }
        }
        self.select()
    }

    /// Makes the device current for a drop. A parked error stays parked.
    pub(crate) fn select(&self) -> Result<&Hip> {
        self.shared.select()
    }

    /// Parks an error that cannot be returned, for the next call. The first error stays.
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
        // Every stream and buffer holds its device, so nothing runs and all blocks are unused. There is no caller left for an error.
        let Ok(hip) = self.select() else { return };
        for address in self.cache.lock().drain().0 {
            // SAFETY: the pool got the address from hipMalloc and has forgotten it.
            let _ = unsafe { call!(self, hip.hipFree(address.as_mut_ptr())) };
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
