//! The provider's tables, device memory, and statuses as results.

use std::ffi::{CStr, c_void};
use std::ptr;

use hipvit_sys::hip::{hipDeviceProp_tR0600, hipMemcpyKind};
use hipvit_sys::{Error, Hip, Provider, Status};

pub(crate) struct Gpu {
    pub(crate) provider: Provider,
    /// The first device's processor, if there is a device.
    pub(crate) arch: Option<String>,
}

/// A call's status, or the function that is missing, as text.
pub(crate) fn ok<S: Status>(called: Result<S, Error>) -> Result<(), String> {
    called
        .map_err(|error| error.to_string())?
        .ok()
        .map_err(|status| status.to_string())
}

impl Gpu {
    pub(crate) fn open() -> Result<Self, String> {
        let provider = Provider::from_env().map_err(|error| error.to_string())?;
        provider.hip().map_err(|error| error.to_string())?;
        let mut gpu = Self { provider, arch: None };
        gpu.arch = gpu
            .properties(0)
            .ok()
            .map(|properties| text(&properties.gcnArchName));
        Ok(gpu)
    }

    pub(crate) fn hip(&self) -> Result<&Hip, String> {
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

    /// Memory of the device with these values.
    pub(crate) fn upload<T: Copy>(&self, values: &[T]) -> Result<Memory<'_>, String> {
        let hip = self.hip()?;
        let bytes = size_of_val(values);
        let mut at = ptr::null_mut();
        // SAFETY: the call writes one pointer.
        ok(unsafe { hip.hipMalloc(&mut at, bytes) })?;
        let memory = Memory { hip, at };
        // SAFETY: the device memory was made with these many bytes, and the values have as many.
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

    pub(crate) fn synchronize(&self) -> Result<(), String> {
        // SAFETY: takes no arguments.
        ok(unsafe { self.hip()?.hipDeviceSynchronize() })
    }
}

/// C characters up to the zero.
pub(crate) fn text(characters: &[std::ffi::c_char]) -> String {
    // SAFETY: the array is one that the provider ended with a zero, or zeroed before.
    unsafe { CStr::from_ptr(characters.as_ptr()) }
        .to_string_lossy()
        .into_owned()
}

pub(crate) struct Memory<'a> {
    hip: &'a Hip,
    pub(crate) at: *mut c_void,
}

impl Memory<'_> {
    /// The first values, once the device has done everything.
    pub(crate) fn download<T: Copy + Default>(&self, count: usize) -> Result<Vec<T>, String> {
        let mut values = vec![T::default(); count];
        let bytes = size_of_val(&values[..]);
        // SAFETY: takes no arguments.
        ok(unsafe { self.hip.hipDeviceSynchronize() })?;
        let to = values.as_mut_ptr().cast();
        // SAFETY: the host memory has these many bytes, of a type that any bytes are values of; that the device memory
        // has them too the caller sees to, who uploaded it.
        ok(unsafe {
            self.hip
                .hipMemcpy(to, self.at, bytes, hipMemcpyKind::hipMemcpyDeviceToHost)
        })?;
        Ok(values)
    }
}

impl Drop for Memory<'_> {
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

/// Holds a result against what is expected: the largest difference, or an error above the tolerance.
pub(crate) fn compare(got: &[f32], expected: &[f32], tolerance: f32) -> Result<String, String> {
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
    if difference <= tolerance {
        Ok(format!(
            "largest difference {difference:.1e}, tolerance {tolerance:.1e}"
        ))
    } else {
        Err(format!(
            "at {index}: {} instead of {}, tolerance {tolerance:.1e}",
            got[index], expected[index]
        ))
    }
}
