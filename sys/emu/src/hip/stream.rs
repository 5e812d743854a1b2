//! Streams, and submitting work to them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};
use std::{iter, ptr, slice};

use gcnrun::Memory;
use hip_provider::Handles;
use hip_provider::hip::put;
use hipvit_sys::hip::{self, hipDevice_t, hipError_t, hipHostFn_t, hipStream_t, hipStreamCallback_t};

use super::capture::{Captured, Member};
use super::capture_mode;
use super::hip;
use super::machine::{self, Device, Work, current, machine, memory};
use super::queue::{self, Action, Point, StreamId};
use super::task::{HostFunction, Joint, Task};
use crate::faults::Failure;

static STREAMS: Handles<Stream> = Handles::new();

/// HIP's special handles.
const LEGACY: usize = 1;
const PER_THREAD: usize = 2;

pub(super) struct Stream {
    pub(super) id: StreamId,
    pub(super) device: &'static Device,
    flags: u32,
    priority: i32,
    /// The compute units that it was restricted to, 32 per word. The mask has no effect.
    cu_mask: Option<Vec<u32>>,
    /// True for the legacy default stream.
    is_null: bool,
    pub(super) member: Arc<Member>,
}

impl Stream {
    fn new(device: &'static Device, flags: u32, priority: i32) -> Arc<Self> {
        Self::with_cu_mask(device, flags, priority, None)
    }

    fn with_cu_mask(
        device: &'static Device,
        flags: u32,
        priority: i32,
        cu_mask: Option<Vec<u32>>,
    ) -> Arc<Self> {
        let blocking = flags & hip::hipStreamNonBlocking == 0;
        Arc::new(Self {
            id: queue::create(device.ordinal, blocking.then_some(device.null)),
            device,
            flags,
            priority,
            cu_mask,
            is_null: false,
            member: Member::new(device.ordinal, false, blocking),
        })
    }

    fn null(device: &'static Device) -> Arc<Self> {
        Arc::new(Self {
            id: device.null,
            device,
            flags: hip::hipStreamDefault,
            priority: 0,
            cu_mask: None,
            is_null: true,
            member: Member::new(device.ordinal, true, true),
        })
    }

    pub(super) fn is_null(&self) -> bool {
        self.is_null
    }

    /// The stream's part in a capture.
    pub(super) fn captured(&self) -> Result<Option<Captured>, hipError_t> {
        self.member.captured()
    }

    /// Returns an error while the stream is captured, for calls that query its work.
    pub(super) fn forbid_capture(&self) -> Result<(), hipError_t> {
        self.member.forbid_capture()
    }

    /// Submits a task: into the capture, if there is one, else to the queue. `None` if it was captured.
    pub(super) fn submit(&self, task: &Task) -> Result<Option<Point>, hipError_t> {
        self.device.alive()?;
        if self.member.capture_task(task)? {
            return Ok(None);
        }
        if task.is_work() {
            let machine = machine()?;
            if machine.submissions.fires(machine.settings.faults.device_loss) {
                let lost = Failure::new(
                    hipError_t::hipErrorLaunchFailure,
                    "the device is lost: injected by HIP_EMU_LOSE_DEVICE",
                );
                self.device.fail(&task.name(), &lost);
                return Err(lost.status);
            }
        }
        task.push(self.id, self.device).map(Some)
    }

    /// Waits until the stream has completed everything.
    pub(super) fn synchronize(&self) -> Result<(), hipError_t> {
        self.forbid_capture()?;
        if self.is_null {
            queue::wait(&queue::ends_with_null(self.id));
        } else if let Some(end) = queue::end(self.id) {
            queue::wait(&[end]);
        }
        self.device.outcome()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if !self.is_null {
            queue::close(self.id);
        }
    }
}

thread_local! {
    /// The per-thread default streams, by device.
    static OWN: RefCell<BTreeMap<u32, Arc<Stream>>> = const { RefCell::new(BTreeMap::new()) };
}

/// The stream of a handle; the special handles mean those of the thread's device.
pub(super) fn find(handle: hipStream_t) -> Result<Arc<Stream>, hipError_t> {
    static NULL: Mutex<BTreeMap<u32, Arc<Stream>>> = Mutex::new(BTreeMap::new());
    match handle.addr() {
        0 | LEGACY => {
            let device = current()?;
            let mut streams = NULL.lock().unwrap_or_else(PoisonError::into_inner);
            let stream = streams
                .entry(device.ordinal)
                .or_insert_with(|| Stream::null(device));
            Ok(stream.clone())
        }
        PER_THREAD => {
            let device = current()?;
            let stream = OWN.with_borrow_mut(|streams| {
                let own = || Stream::new(device, hip::hipStreamDefault, 0);
                streams.entry(device.ordinal).or_insert_with(own).clone()
            });
            Ok(stream)
        }
        _ => STREAMS.get(handle),
    }
}

/// Submits work of another library. It runs later, on another thread, and several times if it was captured into a graph, so it
/// owns what it needs. `name` is for reports.
///
/// # Errors
/// There is no such stream, or its device is lost. A failure of the work itself is reported, and returned by the next call
/// that waits for the device.
pub(crate) fn submit(
    stream: hipStream_t,
    name: &str,
    work: impl Fn(&Memory) -> Result<(), Failure> + Send + Sync + 'static,
) -> Result<(), hipError_t> {
    let stream = find(stream)?;
    // A sample of the kernels' blocks is about counts, and not about values.
    let work: Arc<Work> = match machine()?.settings.sample {
        Some(_) => Arc::new(|_| Ok(())),
        None => Arc::new(work),
    };
    stream.submit(&Task::Library(name.into(), work)).map(drop)
}

/// Submits work that other devices take part in. `start` is called for each submission of it, also by graphs. See [`submit`].
///
/// # Errors
/// There is no such stream, or its device is lost.
pub(crate) fn submit_joint(
    stream: hipStream_t,
    name: &str,
    start: impl Fn() -> Joint + Send + Sync + 'static,
) -> Result<(), hipError_t> {
    let stream = find(stream)?;
    let task = match machine()?.settings.sample {
        Some(_) => Task::Library(name.into(), Arc::new(|_| Ok(()))),
        None => Task::Joint(name.into(), Arc::new(start)),
    };
    stream.submit(&task).map(drop)
}

/// The number of the device that a stream is of.
///
/// # Errors
/// There is no such stream.
pub(crate) fn device_of(stream: hipStream_t) -> Result<u32, hipError_t> {
    Ok(find(stream)?.device.ordinal)
}

/// Waits for a stream, for calls that return a result to the host.
///
/// # Errors
/// There is no such stream, it is being captured, or work on its device failed.
pub(crate) fn synchronize(stream: hipStream_t) -> Result<(), hipError_t> {
    find(stream)?.synchronize()
}

/// # Safety
/// `to` is null or may be written.
unsafe fn create(to: *mut hipStream_t, flags: u32, priority: i32) -> Result<(), hipError_t> {
    if to.is_null() || flags & !hip::hipStreamNonBlocking != 0 {
        return Err(hipError_t::hipErrorInvalidValue);
    }
    let stream = Stream::new(current()?, flags, priority.clamp(GREATEST, LEAST));
    // SAFETY: as the caller says.
    unsafe { put(to, STREAMS.insert(stream)) }
}

/// The mask of all compute units of the device, 32 per word.
fn all_compute_units(device: &Device) -> Vec<u32> {
    let count = device.part.multiprocessors;
    (0..count.div_ceil(32))
        .map(|word| u32::MAX >> 32_u32.saturating_sub(count - 32 * word))
        .collect()
}

/// The mask `given`, restricted to the device's compute units.
fn restricted(device: &Device, given: &[u32]) -> Vec<u32> {
    let given = given.iter().copied().chain(iter::repeat(0));
    let all = all_compute_units(device).into_iter();
    all.zip(given).map(|(all, given)| all & given).collect()
}

/// The range of priorities, which have no effect.
const LEAST: i32 = 1;
const GREATEST: i32 = -1;

/// A condition of `hipStreamWaitValue32` and `hipStreamWaitValue64`, by their flags: greater or equal, equal, and, nor.
fn holds(flags: u32, value: u64, wanted: u64, whole: u64) -> bool {
    match flags {
        0 => value >= wanted,
        1 => value == wanted,
        2 => value & wanted != 0,
        _ => !(value | wanted) & whole != 0,
    }
}

fn wait_value(
    stream: hipStream_t,
    at: *mut c_void,
    bytes: usize,
    wanted: u64,
    mask: u64,
    flags: u32,
) -> Result<(), hipError_t> {
    if flags > 3 {
        return Err(hipError_t::hipErrorInvalidValue);
    }
    let stream = find(stream)?;
    stream.forbid_capture()?;
    let address = at.expose_provenance() as u64;
    let memory = memory()?;
    let read = move || {
        let mut value = [0; 8];
        memory
            .read(address, &mut value[..bytes])
            .map(|()| u64::from_le_bytes(value) & mask)
    };
    read().map_err(|_| hipError_t::hipErrorInvalidValue)?;
    let whole = u64::MAX >> (64 - 8 * bytes);
    let device = stream.device;
    // The loss of the device ends the wait.
    let condition =
        move || device.alive().is_err() || read().is_ok_and(|value| holds(flags, value, wanted, whole));
    queue::push(stream.id, Action::Until(Arc::new(condition)), Vec::new()).map(drop)
}

fn write_value(stream: hipStream_t, at: *mut c_void, value: &[u8]) -> Result<(), hipError_t> {
    let address = at.expose_provenance() as u64;
    let value = value.to_vec();
    submit(stream, "hipStreamWriteValue", move |memory| {
        Ok(memory.write(address, &value)?)
    })
}

hip! {
    fn hipStreamCreate(stream: *mut hipStream_t) {
        create(stream, hip::hipStreamDefault, 0)
    }

    fn hipStreamCreateWithFlags(stream: *mut hipStream_t, flags: u32) {
        create(stream, flags, 0)
    }

    fn hipStreamCreateWithPriority(stream: *mut hipStream_t, flags: u32, priority: i32) {
        create(stream, flags, priority)
    }

    /// An empty mask is an error: such a stream would never finish.
    fn hipExtStreamCreateWithCUMask(stream: *mut hipStream_t, words: u32, mask: *const u32) {
        if stream.is_null() || mask.is_null() || words == 0 {
            return Err(hipError_t::hipErrorInvalidValue);
        }
        let device = current()?;
        let mask = restricted(device, slice::from_raw_parts(mask, words as usize));
        if mask.iter().all(|&word| word == 0) {
            return Err(hipError_t::hipErrorInvalidValue);
        }
        let created = Stream::with_cu_mask(device, hip::hipStreamDefault, 0, Some(mask));
        put(stream, STREAMS.insert(created))
    }

    /// Returns all compute units for a stream without a mask.
    fn hipExtStreamGetCUMask(stream: hipStream_t, words: u32, mask: *mut u32) {
        let stream = find(stream)?;
        let found = match &stream.cu_mask {
            Some(mask) => mask.clone(),
            None => all_compute_units(stream.device),
        };
        if mask.is_null() || (words as usize) < found.len() {
            return Err(hipError_t::hipErrorInvalidValue);
        }
        ptr::copy_nonoverlapping(found.as_ptr(), mask, found.len());
        Ok(())
    }

    /// Work that was submitted still runs.
    fn hipStreamDestroy(stream: hipStream_t) {
        STREAMS.remove(stream).map(drop)
    }

    fn hipStreamQuery(stream: hipStream_t) {
        let stream = find(stream)?;
        stream.forbid_capture()?;
        let ends = match queue::end(stream.id) {
            _ if stream.is_null() => queue::ends_with_null(stream.id),
            end => end.into_iter().collect(),
        };
        if queue::poll(&ends) {
            stream.device.outcome()
        } else {
            Err(hipError_t::hipErrorNotReady)
        }
    }

    fn hipStreamSynchronize(stream: hipStream_t) {
        synchronize(stream)
    }

    fn hipDeviceSynchronize() {
        capture_mode::forbid_waiting()?;
        let device = machine::chosen()?;
        queue::wait(&queue::ends(device.ordinal));
        device.outcome()
    }

    fn hipStreamGetFlags(stream: hipStream_t, flags: *mut u32) {
        put(flags, find(stream)?.flags)
    }

    fn hipStreamGetId(stream: hipStream_t, id: *mut u64) {
        put(id, find(stream)?.id)
    }

    fn hipStreamGetPriority(stream: hipStream_t, priority: *mut i32) {
        put(priority, find(stream)?.priority)
    }

    fn hipStreamGetDevice(stream: hipStream_t, device: *mut hipDevice_t) {
        put(device, find(stream)?.device.ordinal as i32)
    }

    fn hipDeviceGetStreamPriorityRange(least: *mut i32, greatest: *mut i32) {
        current()?;
        put(least, LEAST)?;
        put(greatest, GREATEST)
    }

    fn hipLaunchHostFunc(stream: hipStream_t, function: hipHostFn_t, data: *mut c_void) {
        let function = function.ok_or(hipError_t::hipErrorInvalidValue)?;
        let argument = data.expose_provenance();
        find(stream)?.submit(&Task::Host(HostFunction { function, argument })).map(drop)
    }

    fn hipStreamAddCallback(stream: hipStream_t, callback: hipStreamCallback_t, data: *mut c_void, flags: u32) {
        let Some(callback) = callback else { return Err(hipError_t::hipErrorInvalidValue) };
        if flags != 0 {
            return Err(hipError_t::hipErrorInvalidValue);
        }
        let (handle, data) = (stream.expose_provenance(), data.expose_provenance());
        let stream = find(stream)?;
        stream.forbid_capture()?;
        let device = stream.device;
        let call = move || {
            let status = device.alive().err().unwrap_or(hipError_t::hipSuccess);
            let (handle, data) =
                (std::ptr::with_exposed_provenance_mut(handle), std::ptr::with_exposed_provenance_mut(data));
            // SAFETY: the program gave the function with this argument to be called on a thread of the runtime.
            unsafe { callback(handle, status, data) };
        };
        queue::push(stream.id, Action::Host(Arc::new(call)), Vec::new()).map(drop)
    }

    fn hipStreamWaitValue32(stream: hipStream_t, at: *mut c_void, value: u32, flags: u32, mask: u32) {
        wait_value(stream, at, 4, value.into(), mask.into(), flags)
    }

    fn hipStreamWaitValue64(stream: hipStream_t, at: *mut c_void, value: u64, flags: u32, mask: u64) {
        wait_value(stream, at, 8, value, mask, flags)
    }

    fn hipStreamWriteValue32(stream: hipStream_t, at: *mut c_void, value: u32, flags: u32) {
        if flags != 0 {
            return Err(hipError_t::hipErrorInvalidValue);
        }
        write_value(stream, at, &value.to_le_bytes())
    }

    fn hipStreamWriteValue64(stream: hipStream_t, at: *mut c_void, value: u64, flags: u32) {
        if flags != 0 {
            return Err(hipError_t::hipErrorInvalidValue);
        }
        write_value(stream, at, &value.to_le_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::holds;

    #[test]
    fn a_wait_for_a_value_has_four_conditions() {
        let whole = u64::from(u32::MAX);
        assert!(holds(0, 5, 5, whole) && !holds(0, 4, 5, whole));
        assert!(holds(1, 5, 5, whole) && !holds(1, 6, 5, whole));
        assert!(holds(2, 6, 4, whole) && !holds(2, 3, 4, whole));
        assert!(holds(3, 1, 2, whole) && !holds(3, whole, 2, whole));
    }
}
