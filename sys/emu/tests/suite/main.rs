//! The library as a program uses it, through hipvit-sys's tables.
//!
//! Settings are read once per process, so a test that needs other settings runs itself again in a process of its own.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::undocumented_unsafe_blocks,
    reason = "a test"
)]

mod faults;
mod graphs;
mod kernels;
mod memory;
mod modules;
mod rccl;
mod streams;
mod surface;

use std::env;
use std::ffi::c_void;
use std::process::Command;
use std::ptr;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use hipvit_sys::hip::{hipError_t, hipMemcpyKind, hipStream_t, hipStreamNonBlocking};
use hipvit_sys::{Hip, Provider, Status as _};

/// Two MI300X, unless HIP_EMU_ARCH is set.
fn provider() -> &'static Provider {
    static PROVIDER: OnceLock<Provider> = OnceLock::new();
    PROVIDER.get_or_init(|| {
        let devices = env::var_os("HIP_EMU_ARCH").is_none().then_some("gfx942x2");
        Provider::emu(devices)
    })
}

fn hip() -> &'static Hip {
    provider().hip().expect("HIP")
}

/// Gives one test at a time the devices: freeing memory waits for all work, also that of other tests.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Asserts success.
#[track_caller]
fn ok(status: Result<hipError_t, hipvit_sys::Error>) {
    let status = status.expect("exported");
    assert!(status.is_success(), "{status}");
}

/// Asserts this status.
#[track_caller]
fn is(status: Result<hipError_t, hipvit_sys::Error>, wanted: hipError_t) {
    assert_eq!(status.expect("exported"), wanted);
}

/// Returns true if this process has these settings. If not, runs the test of this name in a process that has them, and asserts
/// that it passes.
#[track_caller]
fn has(settings: &[(&str, &str)], test: &str) -> bool {
    const MARK: &str = "HIP_EMU_TEST";
    if env::var_os(MARK).is_some() {
        return true;
    }
    let output = Command::new(env::current_exe().expect("this program"))
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .envs(settings.iter().copied())
        .env(MARK, test)
        .output()
        .expect("it runs again");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("1 passed"), "no test is called {test}:\n{text}");
    false
}

/// A stream that does not synchronise with the default stream.
struct Stream(hipStream_t);

impl Stream {
    fn new() -> Self {
        let mut stream = ptr::null_mut();
        ok(unsafe { hip().hipStreamCreateWithFlags(&mut stream, hipStreamNonBlocking) });
        Self(stream)
    }

    fn wait(&self) {
        ok(unsafe { hip().hipStreamSynchronize(self.0) });
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        ok(unsafe { hip().hipStreamDestroy(self.0) });
    }
}

/// Memory of the device, in words of 32 bits.
struct Buffer(*mut c_void);

impl Buffer {
    fn new(len: usize) -> Self {
        let mut at = ptr::null_mut();
        ok(unsafe { hip().hipMalloc(&mut at, 4 * len) });
        Self(at)
    }

    fn of(values: &[u32]) -> Self {
        let buffer = Self::new(values.len());
        ok(unsafe {
            hip().hipMemcpy(
                buffer.0,
                values.as_ptr().cast(),
                size_of_val(values),
                hipMemcpyKind::hipMemcpyHostToDevice,
            )
        });
        buffer
    }

    /// The current contents, by a copy on the default stream, which only waits for blocking streams.
    fn peek(&self, len: usize) -> Vec<u32> {
        let mut values = vec![0; len];
        ok(unsafe {
            hip().hipMemcpy(
                values.as_mut_ptr().cast(),
                self.0,
                4 * len,
                hipMemcpyKind::hipMemcpyDeviceToHost,
            )
        });
        values
    }

    fn fill(&self, len: usize, value: i32, stream: &Stream) {
        ok(unsafe { hip().hipMemsetD32Async(self.0, value, len, stream.0) });
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        ok(unsafe { hip().hipFree(self.0) });
    }
}

/// Pinned memory, in words of 32 bits.
struct Pinned(*mut u32, usize);

impl Pinned {
    fn new(len: usize) -> Self {
        let mut at = ptr::null_mut();
        ok(unsafe { hip().hipHostMalloc(&mut at, 4 * len, 0) });
        Self(at.cast(), len)
    }

    fn get(&self) -> Vec<u32> {
        (0..self.1)
            .map(|index| unsafe { self.0.add(index).read_volatile() })
            .collect()
    }

    fn set(&self, value: u32) {
        for index in 0..self.1 {
            unsafe { self.0.add(index).write_volatile(value) };
        }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        ok(unsafe { hip().hipHostFree(self.0.cast()) });
    }
}
