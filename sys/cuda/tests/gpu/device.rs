//! The provider's tables, device memory, and statuses as results.

use std::env;
use std::ffi::{CStr, c_char, c_void};
use std::io::{self, Write as _};
use std::ptr;
use std::sync::{Mutex, MutexGuard, Once, OnceLock, PoisonError};

use hipvit_sys::hip::{hipDeviceProp_tR0600, hipMemcpyKind};
use hipvit_sys::{Error, Hip, Provider, Status};

/// The architecture that is compiled for where there is a compiler and no device.
const WITHOUT_A_DEVICE: &str = "sm_90";

/// The provider and its first device.
pub(crate) struct Gpu {
    pub(crate) provider: &'static Provider,
    /// The device's architecture, such as `sm_90` or `gfx942`.
    pub(crate) arch: String,
    /// One test at a time: memory, clocks and a capturing stream belong to the whole device.
    _alone: MutexGuard<'static, ()>,
}

/// A call's status, or the function that is missing, as text.
pub(crate) fn ok<S: Status>(called: Result<S, Error>) -> Result<(), String> {
    called
        .map_err(|error| error.to_string())?
        .ok()
        .map_err(|status| status.to_string())
}

/// A call has to return this status.
pub(crate) fn is<S: Status>(called: Result<S, Error>, expected: S) -> Result<(), String> {
    match called.map_err(|error| error.to_string())? {
        status if status == expected => Ok(()),
        status => Err(format!("{status} instead of {expected}")),
    }
}

fn provider() -> Result<&'static Provider, String> {
    static PROVIDER: OnceLock<Result<Provider, String>> = OnceLock::new();
    let open = || match env::var("HIPVIT_PROVIDER") {
        Ok(_) => Provider::from_env().map_err(|error| error.to_string()),
        // The library as Cargo built it for this test: in the same folder, or one folder up.
        Err(_) => Ok(Provider::cuda()),
    };
    PROVIDER.get_or_init(open).as_ref().map_err(Clone::clone)
}

/// Says once, past the test harness, which keeps what passing tests print, that tests are skipped.
fn skip(cause: &str) -> Result<(), String> {
    static SAID: Once = Once::new();
    if env::var_os("HIPVIT_REQUIRE_GPU").is_some() {
        return Err(format!("HIPVIT_REQUIRE_GPU is set, and there is no GPU: {cause}"));
    }
    SAID.call_once(|| _ = writeln!(io::stderr(), "skipped: there is no GPU ({cause})"));
    Ok(())
}

static ALONE: Mutex<()> = Mutex::new(());

impl Gpu {
    /// The provider with its first device's properties, or why there are none.
    fn first() -> Result<(Self, Result<(), String>), String> {
        let mut gpu = Self {
            provider: provider()?,
            arch: WITHOUT_A_DEVICE.into(),
            _alone: ALONE.lock().unwrap_or_else(PoisonError::into_inner),
        };
        gpu.hip()?;
        let asked = gpu.properties(0);
        let device = asked.map(|properties| gpu.arch = text(&properties.gcnArchName));
        Ok((gpu, device))
    }

    /// The first device; `None` if the test is to be skipped.
    pub(crate) fn open() -> Result<Option<Self>, String> {
        let (gpu, device) = Self::first()?;
        match device {
            Ok(()) => Ok(Some(gpu)),
            Err(cause) => skip(&cause).map(|()| None),
        }
    }

    /// Opens a device for tests that only compile: hip-on-cuda does so wherever NVRTC is. See [`Gpu::open`].
    pub(crate) fn for_compiling() -> Result<Option<Self>, String> {
        let (gpu, device) = Self::first()?;
        let Err(cause) = device else {
            return Ok(Some(gpu));
        };
        let (mut major, mut minor) = (0, 0);
        let rtc = gpu.provider.hiprtc().map_err(|error| error.to_string())?;
        // SAFETY: the call writes two ints.
        let version = ok(unsafe { rtc.hiprtcVersion(&mut major, &mut minor) });
        if env::var_os("HIPVIT_PROVIDER").is_none() && version.is_ok() {
            Ok(Some(gpu))
        } else {
            skip(&cause).map(|()| None)
        }
    }

    /// True if the device is NVIDIA's.
    pub(crate) fn is_nvidia(&self) -> bool {
        self.arch.starts_with("sm_")
    }

    pub(crate) fn hip(&self) -> Result<&'static Hip, String> {
        self.provider.hip().map_err(|error| error.to_string())
    }

    pub(crate) fn properties(&self, device: i32) -> Result<hipDeviceProp_tR0600, String> {
        let mut properties = hipDeviceProp_tR0600::default();
        // SAFETY: the call writes one structure of this type.
        ok(unsafe { self.hip()?.hipGetDevicePropertiesR0600(&mut properties, device) })?;
        Ok(properties)
    }

    pub(crate) fn device_count(&self) -> Result<i32, String> {
        let mut count = 0;
        // SAFETY: the call writes one int.
        ok(unsafe { self.hip()?.hipGetDeviceCount(&mut count) })?;
        Ok(count)
    }

    /// Makes a device the thread's.
    pub(crate) fn select(&self, device: i32) -> Result<(), String> {
        // SAFETY: takes a number.
        ok(unsafe { self.hip()?.hipSetDevice(device) })
    }

    /// Memory of the thread's device with these values.
    pub(crate) fn upload<T: Copy>(&self, values: &[T]) -> Result<Memory, String> {
        let hip = self.hip()?;
        let bytes = size_of_val(values);
        let mut at = ptr::null_mut();
        // SAFETY: the call writes one pointer.
        ok(unsafe { hip.hipMalloc(&mut at, bytes) })?;
        let memory = Memory { hip, at };
        // SAFETY: the device memory was made with this many bytes, and the values have as many.
        ok(unsafe {
            hip.hipMemcpy(
                at,
                values.as_ptr().cast(),
                bytes,
                hipMemcpyKind::hipMemcpyHostToDevice,
            )
        })?;
        Ok(memory)
    }

    /// Allocates memory of the thread's device for `count` zeros.
    pub(crate) fn zeros(&self, count: usize) -> Result<Memory, String> {
        self.upload(&vec![0.0_f32; count])
    }

    pub(crate) fn synchronize(&self) -> Result<(), String> {
        // SAFETY: takes no arguments.
        ok(unsafe { self.hip()?.hipDeviceSynchronize() })
    }
}

/// C characters up to the zero.
pub(crate) fn text(characters: &[c_char]) -> String {
    // SAFETY: the array is one that the provider ended with a zero, or zeroed before.
    unsafe { CStr::from_ptr(characters.as_ptr()) }
        .to_string_lossy()
        .into_owned()
}

pub(crate) struct Memory {
    hip: &'static Hip,
    pub(crate) at: *mut c_void,
}

impl Memory {
    /// The first values, once the thread's device has done everything.
    pub(crate) fn download<T: Copy + Default>(&self, count: usize) -> Result<Vec<T>, String> {
        let mut values = vec![T::default(); count];
        let bytes = size_of_val(&values[..]);
        // SAFETY: takes no arguments.
        ok(unsafe { self.hip.hipDeviceSynchronize() })?;
        let to = values.as_mut_ptr().cast();
        // SAFETY: the host memory has this many bytes, of a type that any bytes are values of; the caller, who uploaded
        // the device memory, sees to it that it has them too.
        ok(unsafe {
            self.hip
                .hipMemcpy(to, self.at, bytes, hipMemcpyKind::hipMemcpyDeviceToHost)
        })?;
        Ok(values)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the address is hipMalloc's, freed once, by its owner.
        let _ = unsafe { self.hip.hipFree(self.at) };
    }
}

/// Numbers between -1 and 1, the same in every run.
pub(crate) fn numbers(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(12_345);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// Compares a result with what is expected; prints the largest difference, and fails above the tolerance.
pub(crate) fn compare(got: &[f32], expected: &[f32], tolerance: f32) -> Result<(), String> {
    if got.len() != expected.len() {
        return Err(format!("{} values instead of {}", got.len(), expected.len()));
    }
    let mut worst = (0, 0.0_f32);
    for (index, (got, expected)) in got.iter().zip(expected).enumerate() {
        let difference = (got - expected).abs();
        if difference.is_nan() {
            return Err(format!("at {index}: {got} instead of {expected}"));
        }
        if difference > worst.1 {
            worst = (index, difference);
        }
    }
    let (index, difference) = worst;
    if difference > tolerance {
        return Err(format!(
            "at {index}: {} instead of {}, tolerance {tolerance:.1e}",
            got[index], expected[index]
        ));
    }
    println!("largest difference {difference:.1e}, tolerance {tolerance:.1e}");
    Ok(())
}
