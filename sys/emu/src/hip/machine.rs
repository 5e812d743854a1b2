//! The emulated machine: its devices and the address space that they share with the host. The first call that needs it
//! creates it.

use std::cell::Cell;
use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use gcnrun::Memory;
use hipvit_sys::hip::hipError_t;

use super::profile::Profiler;
use super::queue::{self, StreamId};
use super::taint::Follower;
use crate::faults::{self, Failure, FaultCounter, report};
use crate::parts::Part;
use crate::settings::{self, Settings};

/// Work of a device. It may run several times, when graphs are replayed.
pub(crate) type Work = dyn Fn(&Memory) -> Result<(), Failure> + Send + Sync;

#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) settings: Settings,
    pub(crate) memory: Memory,
    pub(crate) devices: Vec<Device>,
    pub(crate) allocations: FaultCounter,
    pub(crate) launches: FaultCounter,
    pub(crate) copies: FaultCounter,
    /// Launches and copies together, for HIP_EMU_LOSE_DEVICE.
    pub(crate) submissions: FaultCounter,
    pub(crate) replays: FaultCounter,
    /// Submissions of RCCL, a group's on one stream together.
    pub(crate) collectives: FaultCounter,
    pub(super) profiler: Option<Profiler>,
    pub(crate) follower: Option<Follower>,
}

#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) ordinal: u32,
    pub(crate) part: &'static Part,
    /// Bytes of its memory that are allocated.
    pub(crate) used: AtomicU64,
    /// The device's legacy default stream.
    pub(crate) null: StreamId,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The error with which the device was lost.
    lost: Option<hipError_t>,
    /// The error of an operation, not yet returned by a call.
    pending: Option<hipError_t>,
    flags: u32,
}

static MACHINE: OnceLock<Result<Machine, hipError_t>> = OnceLock::new();

thread_local! {
    /// The thread's current device.
    static DEVICE: Cell<u32> = const { Cell::new(0) };
}

/// Called with the number of a device that was lost.
type LossHook = fn(u32);

static LOSS_HOOKS: Mutex<Vec<LossHook>> = Mutex::new(Vec::new());

/// Calls `hook` with the number of each device that is lost from now on.
pub(crate) fn on_loss(hook: LossHook) {
    LOSS_HOOKS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(hook);
}

/// Text that `hip_emu_configure` was given.
static CONFIGURED: Mutex<Option<String>> = Mutex::new(None);

fn configured() -> Option<String> {
    CONFIGURED.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The machine. `hipErrorNotInitialized` if the settings are invalid, which is reported once on stderr.
pub(crate) fn machine() -> Result<&'static Machine, hipError_t> {
    let made = MACHINE.get_or_init(|| match Settings::read(configured().as_deref()) {
        Ok(settings) => {
            if let Err(error) = start_threads() {
                faults::say(format_args!("threads: {error}"));
                return Err(hipError_t::hipErrorNotInitialized);
            }
            Machine::new(settings).map_err(|error| {
                faults::say(format_args!("HIP_EMU_PROFILE or HIP_EMU_TAINT: {error}"));
                hipError_t::hipErrorNotInitialized
            })
        }
        Err(invalid) => {
            faults::say(invalid);
            Err(hipError_t::hipErrorNotInitialized)
        }
    });
    made.as_ref().map_err(|status| *status)
}

/// Starts the threads that execute kernels: Rayon's own, which would panic at their first use if they cannot start.
fn start_threads() -> Result<(), rayon::ThreadPoolBuildError> {
    match rayon::ThreadPoolBuilder::new().build_global() {
        // Without a cause they have started before.
        Err(error) if std::error::Error::source(&error).is_some() => Err(error),
        _ => Ok(()),
    }
}

/// The address space, which host and devices share.
///
/// # Errors
/// The settings are invalid.
pub(crate) fn memory() -> Result<&'static Memory, hipError_t> {
    Ok(&machine()?.memory)
}

impl Machine {
    fn new(settings: Settings) -> std::io::Result<Self> {
        queue::configure(settings.schedule, settings.seed);
        faults::log_to(settings.log.clone());
        let device = |(ordinal, part): (usize, &&'static Part)| Device {
            ordinal: ordinal as u32,
            part,
            used: AtomicU64::new(0),
            null: queue::create_null(ordinal as u32),
            state: Mutex::default(),
        };
        Ok(Self {
            profiler: Profiler::of(&settings)?,
            follower: Follower::of(&settings)?,
            memory: match (settings.sample, &settings.taint) {
                (None, None) => Memory::new(),
                (_, Some(_)) => Memory::clean(),
                // Nothing writes what kernels read.
                (Some(_), None) => Memory::zeroed(),
            },
            devices: settings.parts.iter().enumerate().map(device).collect(),
            settings,
            allocations: FaultCounter::default(),
            launches: FaultCounter::default(),
            copies: FaultCounter::default(),
            submissions: FaultCounter::default(),
            replays: FaultCounter::default(),
            collectives: FaultCounter::default(),
        })
    }
}

impl Device {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `Err` if the device is lost.
    pub(crate) fn alive(&self) -> Result<(), hipError_t> {
        self.state().lost.map_or(Ok(()), Err)
    }

    /// The result of a call that waits: an error if the device is lost or an operation failed.
    pub(crate) fn outcome(&self) -> Result<(), hipError_t> {
        let mut state = self.state();
        match state.lost.or_else(|| state.pending.take()) {
            Some(status) => Err(status),
            None => Ok(()),
        }
    }

    /// An operation failed as on a GPU: the device is lost.
    pub(crate) fn fail(&self, work: &str, failure: &Failure) {
        report(self.ordinal, work, failure);
        {
            let mut state = self.state();
            if state.lost.is_some() {
                return;
            }
            state.lost = Some(failure.status);
        }
        let hooks = LOSS_HOOKS.lock().unwrap_or_else(PoisonError::into_inner).clone();
        hooks.iter().for_each(|hook| hook(self.ordinal));
    }

    /// Runs an operation. On a lost device this does nothing, but streams go on, so that no caller waits forever.
    pub(super) fn run(&self, name: &str, work: &Work) {
        let Ok(memory) = memory() else { return };
        if self.alive().is_err() {
            return;
        }
        match catch_unwind(AssertUnwindSafe(|| work(memory))) {
            Ok(Ok(())) => {}
            Ok(Err(failure)) => self.fail(name, &failure),
            Err(_) => self.fail(
                name,
                &Failure::new(hipError_t::hipErrorUnknown, "the emulator panicked: a bug in it"),
            ),
        }
    }

    /// An injected failure of one operation; the device stays usable.
    pub(crate) fn fail_once(&self, work: &str, failure: &Failure) {
        report(self.ordinal, work, failure);
        self.state().pending.get_or_insert(failure.status);
    }

    /// Forgets all errors, for `hipDeviceReset`.
    pub(crate) fn reset(&self) {
        *self.state() = State::default();
    }

    pub(crate) fn flags(&self) -> u32 {
        self.state().flags
    }

    pub(crate) fn set_flags(&self, flags: u32) {
        self.state().flags = flags;
    }

    /// Free memory of the device, in bytes.
    pub(crate) fn free(&self, total: u64) -> u64 {
        total.saturating_sub(self.used.load(Ordering::Relaxed))
    }
}

/// The number of devices; `hipErrorNoDevice` if there are none.
pub(crate) fn count() -> Result<usize, hipError_t> {
    match machine()?.devices.len() {
        0 => Err(hipError_t::hipErrorNoDevice),
        count => Ok(count),
    }
}

/// A device by its number.
pub(crate) fn device(ordinal: i32) -> Result<&'static Device, hipError_t> {
    count()?;
    let ordinal = usize::try_from(ordinal).map_err(|_| hipError_t::hipErrorInvalidDevice)?;
    let device = machine()?.devices.get(ordinal);
    device.ok_or(hipError_t::hipErrorInvalidDevice)
}

/// The thread's device, even if it is lost.
pub(crate) fn chosen() -> Result<&'static Device, hipError_t> {
    device(DEVICE.get() as i32)
}

/// The thread's device; an error if it is lost.
pub(crate) fn current() -> Result<&'static Device, hipError_t> {
    let device = chosen()?;
    device.alive()?;
    Ok(device)
}

pub(super) fn choose(ordinal: u32) {
    DEVICE.set(ordinal);
}

/// Sets which devices there are, as `HIP_EMU_ARCH` does, before the first other call: `gfx942`, `gfx90ax2`,
/// `gfx942,gfx1100`. `hipErrorInvalidValue` if the text is none of these; `hipErrorIllegalState` after the first other call,
/// unless the text is the same as before.
///
/// # Safety
/// `text` is a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn hip_emu_configure(text: *const c_char) -> hipError_t {
    if text.is_null() {
        return hipError_t::hipErrorInvalidValue;
    }
    // SAFETY: as the caller says.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
    if let Err(invalid) = settings::check_configured(&text) {
        faults::say(invalid);
        return hipError_t::hipErrorInvalidValue;
    }
    let mut configured = CONFIGURED.lock().unwrap_or_else(PoisonError::into_inner);
    if configured.as_ref() == Some(&text) {
        return hipError_t::hipSuccess;
    }
    if MACHINE.get().is_some() {
        return hipError_t::hipErrorIllegalState;
    }
    *configured = Some(text);
    hipError_t::hipSuccess
}
