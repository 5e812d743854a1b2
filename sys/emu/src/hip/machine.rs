//! The emulated machine: its devices and the one address space that they share with the host. It comes into being with
//! the first call that needs it.

use std::cell::Cell;
use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use gcnrun::Memory;
use hipvit_sys::hip::hipError_t;

use super::queue::{self, StreamId};
use crate::faults::{self, Chances, Failure, report};
use crate::parts::Part;
use crate::settings::{self, Settings};

/// What a device does. It may run several times, as graphs are replayed.
pub(crate) type Work = dyn Fn(&Memory) -> Result<(), Failure> + Send + Sync;

#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) settings: Settings,
    pub(crate) memory: Memory,
    pub(crate) devices: Vec<Device>,
    pub(crate) allocations: Chances,
    pub(crate) launches: Chances,
    pub(crate) copies: Chances,
    /// Launches and copies together, for the loss of a device.
    pub(crate) submissions: Chances,
    pub(crate) replays: Chances,
}

#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) ordinal: u32,
    pub(crate) part: &'static Part,
    /// Bytes of its memory that are allocated.
    pub(crate) used: AtomicU64,
    /// Its legacy default stream.
    pub(crate) null: StreamId,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// What the device failed with; it does nothing any more.
    broken: Option<hipError_t>,
    /// What one piece of work failed with, until someone is told.
    pending: Option<hipError_t>,
    flags: u32,
}

static MACHINE: OnceLock<Result<Machine, hipError_t>> = OnceLock::new();

thread_local! {
    /// The device that the thread chose.
    static DEVICE: Cell<u32> = const { Cell::new(0) };
}

/// What `hip_emu_configure` was given.
static CONFIGURED: Mutex<Option<String>> = Mutex::new(None);

fn configured() -> Option<String> {
    CONFIGURED.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The machine. `hipErrorNotInitialized` if the settings are wrong, which stderr is told once.
pub(crate) fn machine() -> Result<&'static Machine, hipError_t> {
    let made = MACHINE.get_or_init(|| match Settings::read(configured().as_deref()) {
        Ok(settings) => Ok(Machine::new(settings)),
        Err(wrong) => {
            eprintln!("hip-emu: {wrong}");
            Err(hipError_t::hipErrorNotInitialized)
        }
    });
    made.as_ref().map_err(|status| *status)
}

/// The address space, which host and devices share: an address of the one is one of the other.
///
/// # Errors
/// There is no machine, as the settings are wrong.
pub(crate) fn memory() -> Result<&'static Memory, hipError_t> {
    Ok(&machine()?.memory)
}

impl Machine {
    fn new(settings: Settings) -> Self {
        queue::configure(settings.schedule, settings.seed);
        faults::log_to(settings.log.clone());
        let device = |(ordinal, part): (usize, &&'static Part)| Device {
            ordinal: ordinal as u32,
            part,
            used: AtomicU64::new(0),
            null: queue::create_null(ordinal as u32),
            state: Mutex::default(),
        };
        Self {
            memory: Memory::new(),
            devices: settings.parts.iter().enumerate().map(device).collect(),
            settings,
            allocations: Chances::default(),
            launches: Chances::default(),
            copies: Chances::default(),
            submissions: Chances::default(),
            replays: Chances::default(),
        }
    }
}

impl Device {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `Err` if the device does nothing any more.
    pub(crate) fn alive(&self) -> Result<(), hipError_t> {
        self.state().broken.map_or(Ok(()), Err)
    }

    /// What a call that waits has to tell: that the device is broken, or that a piece of work failed.
    pub(crate) fn outcome(&self) -> Result<(), hipError_t> {
        let mut state = self.state();
        match state.broken.or_else(|| state.pending.take()) {
            Some(status) => Err(status),
            None => Ok(()),
        }
    }

    /// Work failed as work does on a GPU: the device is of no more use.
    pub(crate) fn fail(&self, work: &str, failure: &Failure) {
        report(self.ordinal, work, failure);
        self.state().broken.get_or_insert(failure.status);
    }

    /// Does a piece of work. A broken device does nothing, but its streams go on, so that no caller waits for ever.
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

    /// A piece of work failed, on purpose; the device goes on.
    pub(crate) fn fail_once(&self, work: &str, failure: &Failure) {
        report(self.ordinal, work, failure);
        self.state().pending.get_or_insert(failure.status);
    }

    /// As new, for `hipDeviceReset`.
    pub(crate) fn mend(&self) {
        *self.state() = State::default();
    }

    pub(crate) fn flags(&self) -> u32 {
        self.state().flags
    }

    pub(crate) fn set_flags(&self, flags: u32) {
        self.state().flags = flags;
    }

    /// Memory of the device that can still be had.
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

/// The thread's device, whether or not it works.
pub(crate) fn chosen() -> Result<&'static Device, hipError_t> {
    device(DEVICE.get() as i32)
}

/// The thread's device, which works.
pub(crate) fn current() -> Result<&'static Device, hipError_t> {
    let device = chosen()?;
    device.alive()?;
    Ok(device)
}

pub(super) fn choose(ordinal: u32) {
    DEVICE.set(ordinal);
}

/// Sets which devices there are, as `HIP_EMU_ARCH` does, before the first other call: `gfx942`, `gfx90ax2`,
/// `gfx942,gfx1100`. `hipErrorInvalidValue` if the text is none of these; `hipErrorIllegalState` if it comes too late,
/// unless it says what is already so.
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
    if let Err(wrong) = settings::check_configured(&text) {
        eprintln!("hip-emu: {wrong}");
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
