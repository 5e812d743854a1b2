//! The fake GPU: a provider of host memory and threads (`tests/fake/provider`), which runs work late and fails
//! on demand.
#![allow(
    unsafe_code,
    clippy::unwrap_used,
    reason = "loads its provider; what fails in a test is the test"
)]

pub(crate) mod server;
pub(crate) mod session;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use hipvit::hip::{Access, Arguments, Code, Device, DeviceAddress, Kernel, Launch, Module, Runtime, Stream};
use libloading::{Library, Symbol};

use crate::support::at;

/// Settings and counters of the provider, in the order of its own list.
#[derive(Clone, Copy, Debug)]
#[repr(usize)]
pub(crate) enum Slot {
    Devices,
    MemoryLimit,
    FailLaunch,
    FailCopy,
    CorruptReplay,
    FailFree,
    DeviceBytes,
    Allocations,
    Pinned,
    Streams,
    Events,
    Modules,
    Graphs,
    Handles,
    Violations,
    Mallocs,
    EventsMade,
    Replays,
    Overlaps,
    FailCapture,
    Uploads,
    HoldLaunches,
    HoldDevice,
    LoseDevice,
    Downloads,
    Integrated,
}

/// A provider with separate state for one test.
pub(crate) struct Fake {
    pub(crate) path: PathBuf,
    library: Library,
}

impl Fake {
    /// Returns the library, which is compiled once and then copied.
    pub(crate) fn compiled() -> &'static Path {
        static COMPILED: OnceLock<PathBuf> = OnceLock::new();
        COMPILED.get_or_init(|| {
            let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fake_provider.so");
            compile(&at("tests/fake/provider/library.rs"), &path);
            path
        })
    }

    pub(crate) fn new(test: &str) -> Self {
        let compiled = Self::compiled();
        // The loader opens a file only once, so each test has a copy.
        let path = compiled.with_file_name(format!("fake_provider-{test}.so"));
        let _ = fs::remove_file(&path);
        fs::copy(compiled, &path).unwrap();
        // SAFETY: it has no initialisers.
        let library = unsafe { Library::new(&path) }.unwrap();
        let fake = Self { path, library };
        fake.set(Slot::Devices, 1);
        fake
    }

    pub(crate) fn set(&self, slot: Slot, value: u64) {
        // SAFETY: the function's prototype.
        let set: Symbol<'_, extern "C" fn(usize, u64)> = unsafe { self.library.get("fake_set") }.unwrap();
        set(slot as usize, value);
    }

    pub(crate) fn get(&self, slot: Slot) -> u64 {
        // SAFETY: the function's prototype.
        let get: Symbol<'_, extern "C" fn(usize) -> u64> = unsafe { self.library.get("fake_get") }.unwrap();
        get(slot as usize)
    }

    pub(crate) fn runtime(&self) -> Runtime {
        Runtime::named(self.path.to_str().unwrap()).unwrap()
    }

    pub(crate) fn device(&self) -> Device {
        self.runtime().device(0).unwrap()
    }

    pub(crate) fn stream(&self) -> Stream {
        self.device().stream().unwrap()
    }

    /// Checks that no resource is live, and that no dead memory was accessed.
    pub(crate) fn assert_clean(&self) {
        use Slot::*;
        for slot in [
            Allocations,
            DeviceBytes,
            Pinned,
            Streams,
            Events,
            Modules,
            Graphs,
            Handles,
            Violations,
        ] {
            assert_eq!(self.get(slot), 0, "{slot:?}");
        }
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Compiles a library without dependencies.
pub(crate) fn compile(source: &Path, library: &Path) {
    let output = Command::new(std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into()))
        .args([
            "--edition=2024",
            "--crate-type=cdylib",
            "--crate-name=provider",
            "-Copt-level=1",
            "-Awarnings",
            "-o",
        ])
        .args([library, source])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Creates a bundle of empty code objects for these targets.
pub(crate) fn bundle(targets: &[&str]) -> Vec<u8> {
    let empty: Vec<_> = targets.iter().map(|&target| (target, &[][..])).collect();
    bundle_of(&empty)
}

/// Creates a bundle of these code objects.
pub(crate) fn bundle_of(objects: &[(&str, &[u8])]) -> Vec<u8> {
    let names: Vec<String> = objects
        .iter()
        .map(|(target, _)| format!("hipv4-amdgcn-amd-amdhsa--{target}"))
        .collect();
    let mut at = 32 + names.iter().map(|name| 24 + name.len()).sum::<usize>();
    let mut bytes = b"__CLANG_OFFLOAD_BUNDLE__".to_vec();
    bytes.extend((names.len() as u64).to_le_bytes());
    for (name, (_, object)) in names.iter().zip(objects) {
        for number in [at, object.len(), name.len()] {
            bytes.extend((number as u64).to_le_bytes());
        }
        bytes.extend(name.as_bytes());
        at += object.len();
    }
    for (_, object) in objects {
        bytes.extend(*object);
    }
    bytes
}

/// The only kernel of the provider: `to[i] = factor * from[i]`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    pub(crate) from: DeviceAddress,
    pub(crate) to: DeviceAddress,
    pub(crate) n: u32,
    pub(crate) factor: f32,
}

impl Arguments for Scale {
    fn accesses(&self, visit: &mut dyn FnMut(Access)) {
        visit(Access::read("from", self.from, 4 * self.n as usize));
        visit(Access::write("to", self.to, 4 * self.n as usize));
    }
}

pub(crate) const LAUNCH: Launch = Launch {
    grid: [1, 1, 1],
    block: [64, 1, 1],
    lds_bytes: 0,
};

pub(crate) fn scale(device: &Device) -> Kernel<Scale> {
    let module = Module::load(device, Code::new(&bundle(&["gfx942"])).unwrap()).unwrap();
    // SAFETY: the provider's kernel takes this structure and touches what it says.
    unsafe { module.kernel("scale") }.unwrap()
}
