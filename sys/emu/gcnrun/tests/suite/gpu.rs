//! A compiled file of kernels for an architecture, and device buffers.

use std::collections::HashMap;
use std::fmt::Debug;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};

use gcnrun::{Checks, Fault, Kind, Launch, Memory, Order, Program, Statistics};

pub(crate) const ARCHS: [&str; 4] = ["gfx1100", "gfx1200", "gfx90a", "gfx942"];

/// `HIPVIT_HIPCC`, or the first clang that compiles for AMD GPUs; `None` also if its output cannot be disassembled.
fn compiler() -> Option<&'static Path> {
    static COMPILER: OnceLock<Option<PathBuf>> = OnceLock::new();
    COMPILER
        .get_or_init(|| {
            let rocm = std::env::var_os("ROCM_PATH").unwrap_or_else(|| "/opt/rocm".into());
            let candidates = match std::env::var_os("HIPVIT_HIPCC") {
                Some(named) => vec![named.into()],
                None => [Path::new(&rocm).join("llvm/bin/amdclang++")]
                    .into_iter()
                    .chain(["amdclang++", "clang++"].map(PathBuf::from))
                    .chain((18..=22).rev().map(|version| format!("clang++-{version}").into()))
                    .collect(),
            };
            let found = candidates.into_iter().find_map(|candidate| {
                let text = "__attribute__((global)) void k() {}";
                let elf = run(&candidate, "gfx1100", Path::new("-"), Some(text)).ok()?;
                let program = Program::load(&Memory::new(), 0, &elf).ok()?;
                Some((candidate, program))
            });
            let missing = match &found {
                None => "no clang that targets AMD GPUs is here: install clang-19 and lld-19, or name one in HIPVIT_HIPCC".into(),
                Some((_, program)) => match program.decode() {
                    Ok(()) => return found.map(|(candidate, _)| candidate),
                    Err(error) => error.to_string(),
                },
            };
            assert!(
                std::env::var_os("HIPVIT_REQUIRE_AMD_CLANG").is_none_or(|value| value != "1"),
                "{missing}"
            );
            // Not through the test harness, which hides the output of tests that pass.
            let _ = writeln!(std::io::stderr(), "skipped: gcnrun's kernel tests: {missing}");
            None
        })
        .as_deref()
}

fn run(compiler: &Path, arch: &str, source: &Path, text: Option<&str>) -> Result<Vec<u8>, String> {
    let object = tempfile::NamedTempFile::new().map_err(|error| error.to_string())?;
    let mut child = Command::new(compiler)
        .args([
            "-x",
            "hip",
            "-std=c++17",
            "-O3",
            "--cuda-device-only",
            "--no-gpu-bundle-output",
        ])
        .args(["-nogpulib", "-nogpuinc", &format!("--offload-arch={arch}")])
        .arg(source)
        .arg("-o")
        .arg(object.path())
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    if let Some(mut input) = child.stdin.take() {
        let _ = input.write_all(text.unwrap_or_default().as_bytes());
    }
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    std::fs::read(object.path()).map_err(|error| error.to_string())
}

/// The code object of a file of `tests/kernels` for an architecture, compiled once; `None` without a compiler.
pub(crate) fn compiled(file: &str, arch: &str) -> Option<Arc<Vec<u8>>> {
    type Objects = HashMap<(String, String), Arc<OnceLock<Arc<Vec<u8>>>>>;
    static OBJECTS: Mutex<Option<Objects>> = Mutex::new(None);
    let compiler = compiler()?;
    let slot = {
        let mut objects = OBJECTS.lock().unwrap();
        let key = (file.to_owned(), arch.to_owned());
        Arc::clone(objects.get_or_insert_default().entry(key).or_default())
    };
    let object = slot.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/kernels")
            .join(file);
        Arc::new(run(compiler, arch, &source, None).unwrap_or_else(|error| panic!("{error}")))
    });
    Some(Arc::clone(object))
}

/// A loaded file of kernels, with an order of blocks and waves.
pub(crate) struct Gpu {
    pub(crate) memory: Memory,
    pub(crate) program: Program,
    pub(crate) arch: &'static str,
    pub(crate) order: Order,
    pub(crate) checks: Checks,
}

/// Calls `test` for each architecture, with this file of kernels.
pub(crate) fn on_each(file: &str, test: impl Fn(&Gpu)) {
    for arch in ARCHS {
        on(arch, file, &test);
    }
}

/// Calls `test` for one architecture, in each order of blocks and waves.
pub(crate) fn on(arch: &'static str, file: &str, test: impl Fn(&Gpu)) {
    let Some(elf) = compiled(file, arch) else {
        return;
    };
    let memory = Memory::new();
    for order in [Order::Forward, Order::Reversed, Order::Shuffled(1)] {
        let gpu = Gpu {
            memory: memory.clone(),
            program: Program::load(&memory, 0, &elf).unwrap(),
            arch,
            order,
            checks: Checks::default(),
        };
        test(&gpu);
    }
}

/// A number as a kernel sees it.
pub(crate) trait Number: Copy + PartialEq + Debug {
    const BYTES: usize;
    fn put(self, bytes: &mut Vec<u8>);
    fn get(bytes: &[u8]) -> Self;
}

macro_rules! numbers {
    ($($type:ty)*) => {$(
        impl Number for $type {
            const BYTES: usize = size_of::<$type>();
            fn put(self, bytes: &mut Vec<u8>) {
                bytes.extend(self.to_le_bytes());
            }
            fn get(bytes: &[u8]) -> Self {
                Self::from_le_bytes(bytes.try_into().unwrap())
            }
        }
    )*};
}
numbers!(u8 i8 u16 i16 u32 i32 u64 i64 f32 f64 half::f16 half::bf16);

pub(crate) fn bytes_of<T: Number>(values: &[T]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for value in values {
        value.put(&mut bytes);
    }
    bytes
}

/// Device memory for numbers.
#[derive(Clone, Copy)]
pub(crate) struct Buffer<T> {
    pub(crate) address: u64,
    len: usize,
    number: std::marker::PhantomData<T>,
}

impl<T: Number> Buffer<T> {
    pub(crate) fn read(&self, gpu: &Gpu) -> Vec<T> {
        let mut bytes = vec![0; self.len * T::BYTES];
        assert_eq!(
            gpu.memory.first_unwritten(self.address, bytes.len() as u64),
            Ok(None)
        );
        gpu.memory.read(self.address, &mut bytes).unwrap();
        bytes.chunks_exact(T::BYTES).map(T::get).collect()
    }
}

/// The bytes of a kernel's arguments, each aligned to its size.
#[derive(Clone, Default)]
pub(crate) struct Arguments(pub(crate) Vec<u8>);

impl Arguments {
    pub(crate) fn with<T: Number>(mut self, value: T) -> Self {
        self.0.resize(self.0.len().next_multiple_of(T::BYTES), 0);
        value.put(&mut self.0);
        self
    }

    pub(crate) fn buffer<T>(self, buffer: &Buffer<T>) -> Self {
        self.with(buffer.address)
    }
}

pub(crate) fn arguments() -> Arguments {
    Arguments::default()
}

impl Gpu {
    pub(crate) fn wave(&self) -> usize {
        self.program.wave_size() as usize
    }

    /// A buffer that holds these numbers.
    pub(crate) fn buffer<T: Number>(&self, values: &[T]) -> Buffer<T> {
        let buffer = self.unwritten(values.len());
        self.memory.write(buffer.address, &bytes_of(values)).unwrap();
        buffer
    }

    /// An uninitialised buffer.
    pub(crate) fn unwritten<T: Number>(&self, len: usize) -> Buffer<T> {
        let bytes = (len * T::BYTES) as u64;
        Buffer {
            address: self.memory.allocate(bytes, Kind::Device(0), 256).unwrap(),
            len,
            number: std::marker::PhantomData,
        }
    }

    pub(crate) fn try_launch(
        &self,
        kernel: &str,
        grid: impl Into<Extent>,
        block: impl Into<Extent>,
        arguments: &Arguments,
    ) -> Result<Statistics, Fault> {
        self.try_launch_with_lds(kernel, grid, block, arguments, 0)
    }

    pub(crate) fn try_launch_with_lds(
        &self,
        kernel: &str,
        grid: impl Into<Extent>,
        block: impl Into<Extent>,
        arguments: &Arguments,
        dynamic_lds: u32,
    ) -> Result<Statistics, Fault> {
        self.program.launch(&Launch {
            kernel,
            grid: grid.into().0,
            block: block.into().0,
            dynamic_lds,
            arguments: &arguments.0,
            order: self.order,
            options: self.checks,
        })
    }

    pub(crate) fn launch(
        &self,
        kernel: &str,
        grid: impl Into<Extent>,
        block: impl Into<Extent>,
        arguments: &Arguments,
    ) -> Statistics {
        self.try_launch(kernel, grid, block, arguments)
            .unwrap_or_else(|fault| panic!("{}, {:?}: {fault}", self.arch, self.order))
    }
}

/// One to three numbers.
pub(crate) struct Extent([u32; 3]);

impl From<u32> for Extent {
    fn from(x: u32) -> Self {
        Self([x, 1, 1])
    }
}

impl From<[u32; 3]> for Extent {
    fn from(extent: [u32; 3]) -> Self {
        Self(extent)
    }
}

/// Random numbers, the same in every run.
pub(crate) fn random<T>(count: usize, seed: u64, mut one: impl FnMut(&mut fastrand::Rng) -> T) -> Vec<T> {
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..count).map(|_| one(&mut rng)).collect()
}

/// Approximately normally distributed, with a standard deviation of `scale`.
pub(crate) fn normal(rng: &mut fastrand::Rng, scale: f32) -> f32 {
    let sum: f32 = (0..12).map(|_| rng.f32()).sum();
    (sum - 6.0) * scale
}

/// Asserts that each number is within `relative` of the expected one.
pub(crate) fn assert_close(gpu: &Gpu, got: &[f64], expected: &[f64], relative: f64) {
    assert_eq!(got.len(), expected.len());
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        let same = got == expected || got.is_nan() && expected.is_nan();
        assert!(
            same || (got - expected).abs() <= relative * expected.abs(),
            "{}: [{i}] is {got:e}, not {expected:e}",
            gpu.arch
        );
    }
}
