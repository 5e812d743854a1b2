//! The kernels' code on a device: taken from the embedded code objects or compiled by hipRTC, loaded, and launched.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::io::{self, Write as _};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use hipvit_graph::op::Custom;
use parking_lot::Mutex;

use super::arguments::KernelArguments;
use super::compiled::compile;
use super::custom::call::CustomCall;
use super::custom::modules::CustomModules;
use super::device_code::CodeObject;
use super::launch::Target;
use super::unit::Unit;
use super::{KernelError, device_code, kernel_cache};
use crate::error::{Error, Result};
use crate::hip::{
    self, Access, Arguments, Code, Device, DeviceAddress, Function, KernelCache, Launch, Module, Operand,
    Rtc, Stream,
};
use crate::tensor::DType;

/// Minimum time of a compilation that is announced on standard error.
const PATIENCE: Duration = Duration::from_secs(1);

/// Arguments, with the size of the elements at their addresses. Laid out as the arguments alone.
#[repr(transparent)]
struct Typed<A, const SIZE: usize>(A);

impl<A: KernelArguments, const SIZE: usize> Arguments for Typed<A, SIZE> {
    fn accesses(&self, visit: &mut dyn FnMut(Access)) {
        self.0.accesses(SIZE, visit);
    }
}

/// A kernel's entry, and the tile that its code states.
#[derive(Clone)]
struct Entry {
    function: Function,
    tile: u32,
}

/// What is known of an entry before it is looked up.
struct Wanted {
    file: &'static str,
    name: Cow<'static, str>,
    /// Size of the structure that it takes.
    bytes: usize,
    /// Suffix of the global with its tile.
    tile: Option<&'static str>,
}

/// Kernels loaded on a device for one dtype.
pub struct Kernels {
    pub(super) device: Device,
    pub(super) dtype: DType,
    modules: HashMap<Unit, Module>,
    /// Units that were loaded later, or the reasons why they cannot be.
    added: Mutex<HashMap<Unit, Result<Module, KernelError>>>,
    custom: CustomModules,
    /// Launched entries, by unit and name.
    entries: Mutex<HashMap<(Unit, String), Entry>>,
}

impl Kernels {
    /// Returns the device that the kernels are loaded on.
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// Loads these units. Those without code for the device are compiled, in parallel, each once in a process.
    ///
    /// # Errors
    ///
    /// [`hip::Error::Compile`], [`hip::Error::NoCode`] or [`hip::Error::Provider`] if one cannot be compiled or loaded.
    pub fn load(device: &Device, dtype: DType, units: impl IntoIterator<Item = Unit>) -> Result<Self> {
        let units: Vec<Unit> = units.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
        Ok(Self {
            device: device.clone(),
            dtype,
            modules: load(device, dtype, units)?.into_iter().collect(),
            added: Mutex::default(),
            custom: CustomModules::default(),
            entries: Mutex::default(),
        })
    }

    /// Returns the dtype that the kernels compute in.
    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    /// Loads one more unit, unless it is loaded or this was tried before.
    ///
    /// # Errors
    ///
    /// The reason why the unit cannot be compiled or loaded.
    pub(crate) fn add(&self, unit: &Unit) -> Result<(), KernelError> {
        let load = || -> Result<Module> {
            let module = self::load(&self.device, self.dtype, vec![unit.clone()])?.pop();
            let (_, module) = module.ok_or_else(|| Error::internal("kernel", "has no code"))?;
            Ok(module)
        };
        if self.modules.contains_key(unit) {
            return Ok(());
        }
        let mut added = self.added.lock();
        let loaded = added
            .entry(unit.clone())
            .or_insert_with(|| load().map_err(KernelError::library));
        loaded.as_ref().map(|_| ()).map_err(KernelError::clone)
    }

    /// Returns a loaded unit.
    fn module(&self, unit: &Unit) -> Result<Module, KernelError> {
        let missing = || Err(KernelError::internal("is not loaded"));
        match self.modules.get(unit) {
            Some(module) => Ok(module.clone()),
            None => self.added.lock().get(unit).cloned().unwrap_or_else(missing),
        }
    }

    /// Returns the u32 global `<entry>_<suffix>` of a loaded unit. `kernel` is the entry without its dtype.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] if the unit is not loaded. [`Error::Hip`] if its code has no such global, or if the driver fails.
    pub(crate) fn global(&self, unit: &Unit, kernel: &'static str, suffix: &str) -> Result<u32> {
        let module = self
            .module(unit)
            .map_err(|reason| Error::kernel(kernel, reason))?;
        Ok(module.read_global(&format!("{}_{suffix}", entry(kernel, self.dtype)))?)
    }

    /// Submits a launch that only accesses the memory of `operands`.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] if the device cannot launch the kernel. [`Error::Hip`] if the arguments point elsewhere, or the driver fails.
    pub(crate) fn launch<A: KernelArguments>(
        &self,
        stream: &Stream,
        arguments: A,
        operands: &[Operand<'_>],
    ) -> Result<()> {
        let unit = unit_of(&arguments)?;
        self.launch_of(stream, &unit, arguments, operands)
    }

    /// Compiles and loads the source of the custom op of the node `node`.
    ///
    /// # Errors
    ///
    /// [`Error::Graph`] if the op has no kernel for GPUs, or if its source does not compile.
    pub(crate) fn load_custom(&mut self, node: &str, op: &Custom) -> Result<()> {
        self.custom.load(node, op, &self.device, self.dtype)
    }

    /// Submits a launch of a custom op's kernel. `memory` returns the memory from an address to the end of its region.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] if the source has no such kernel, or if the kernel does not take the arguments. Errors of the driver.
    pub(crate) fn launch_custom<'a>(
        &self,
        stream: &Stream,
        call: &CustomCall,
        memory: impl Fn(DeviceAddress) -> Result<Operand<'a>>,
    ) -> Result<()> {
        self.custom.launch(stream, call, memory)
    }

    /// Returns the code of each loaded unit, by its name and dtype.
    ///
    /// # Errors
    ///
    /// The errors of [`load`](Self::load). The code of loaded units is cached.
    pub fn code(&self) -> Result<Vec<(String, Code)>> {
        let mut units: BTreeSet<Unit> = self.modules.keys().cloned().collect();
        let added = self.added.lock();
        units.extend(
            added
                .iter()
                .filter(|(_, module)| module.is_ok())
                .map(|(unit, _)| unit.clone()),
        );
        drop(added);
        let code = code(&self.device, self.dtype, units.into_iter().collect())?;
        let named = |(unit, code): (Unit, Code)| (format!("{unit} {}", self.dtype), code);
        Ok(code.into_iter().map(named).collect())
    }

    /// Submits a launch of a kernel of `unit`, which only accesses the memory of `operands`.
    ///
    /// # Errors
    ///
    /// The errors of [`launch`](Self::launch).
    pub(crate) fn launch_of<A: KernelArguments>(
        &self,
        stream: &Stream,
        unit: &Unit,
        mut arguments: A,
        operands: &[Operand<'_>],
    ) -> Result<()> {
        let (function, launch) = self.planned(unit, &mut arguments)?;
        let arguments: &dyn Arguments = match self.dtype.size() {
            1 => &Typed::<A, 1>(arguments),
            2 => &Typed::<A, 2>(arguments),
            _ => &Typed::<A, 4>(arguments),
        };
        // SAFETY: `KernelArguments` guarantees it for the launches that it plans.
        Ok(unsafe { function.launch_structure(stream, launch, arguments, operands) }?)
    }

    /// Returns the geometry of a launch.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] if the device cannot launch the kernel.
    pub(crate) fn geometry<A: KernelArguments>(&self, arguments: A) -> Result<Launch> {
        let unit = unit_of(&arguments)?;
        self.geometry_of(&unit, arguments)
    }

    /// Returns the geometry of a launch of a kernel of `unit`.
    ///
    /// # Errors
    ///
    /// The errors of [`geometry`](Self::geometry).
    pub(crate) fn geometry_of<A: KernelArguments>(&self, unit: &Unit, mut arguments: A) -> Result<Launch> {
        Ok(self.planned(unit, &mut arguments)?.1)
    }

    fn planned<A: KernelArguments>(&self, unit: &Unit, arguments: &mut A) -> Result<(Function, Launch)> {
        let refused = |reason| Error::kernel(A::FILE, reason);
        let Entry { function, tile } = self.entry(
            unit,
            &Wanted {
                file: A::FILE,
                name: arguments.entry().map_err(refused)?,
                bytes: size_of::<A>(),
                tile: A::TILE,
            },
        )?;
        let launch = arguments.plan(&self.target(tile)).map_err(refused)?;
        Ok((function, launch))
    }

    fn target(&self, tile: u32) -> Target {
        let properties = self.device.properties();
        Target {
            dtype: self.dtype,
            wave_size: properties.wave_size,
            max_blocks: properties.grid[0],
            tile,
        }
    }

    fn entry(&self, unit: &Unit, wanted: &Wanted) -> Result<Entry> {
        let mut entries = self.entries.lock();
        let key = (unit.clone(), entry(&wanted.name, self.dtype));
        if let Some(known) = entries.get(&key) {
            return Ok(known.clone());
        }
        let refused = |reason| Error::kernel(wanted.file, reason);
        let module = self.module(unit).map_err(refused)?;
        let function = module.function(&key.1)?;
        function.check_structure(wanted.bytes)?;
        let tile = match wanted.tile {
            Some(suffix) => module.read_global(&format!("{}_{suffix}", key.1))?,
            None => 0,
        };
        let entry = Entry { function, tile };
        entries.insert(key, entry.clone());
        Ok(entry)
    }
}

impl fmt::Debug for Kernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernels")
            .field("device", &self.device)
            .field("dtype", &self.dtype)
            .finish_non_exhaustive()
    }
}

fn unit_of<A: KernelArguments>(arguments: &A) -> Result<Unit> {
    arguments.unit().map_err(|reason| Error::kernel(A::FILE, reason))
}

/// Returns the name of a kernel's entry for a dtype, such as `layer_norm_f16`.
fn entry(kernel: &str, dtype: DType) -> String {
    format!("{kernel}_{dtype}")
}

/// Returns the code of each unit for the device.
fn code(device: &Device, dtype: DType, units: Vec<Unit>) -> Result<Vec<(Unit, Code)>> {
    let mut ready = Vec::with_capacity(units.len());
    let mut missing = Vec::new();
    for unit in units {
        match embedded(device, &unit) {
            Some(object) => ready.push((unit, Code::new(object.bytes)?)),
            None => missing.push(unit),
        }
    }
    if let Some(first) = missing.first() {
        ready.extend(compile_all(&rtc(device, first.file)?, device, dtype, &missing)?);
    }
    Ok(ready)
}

/// Returns the code object that the build embedded for a unit.
fn embedded(device: &Device, unit: &Unit) -> Option<CodeObject> {
    let file = match &unit.source {
        Some(_) if unit.is_generated_variant() => None,
        Some(source) => device_code::file_of(source),
        None => Some(unit.file),
    };
    device_code::object(file?, &device.properties().target)
}

/// Loads units. Those whose generic code the driver refuses are compiled for the device.
fn load(device: &Device, dtype: DType, units: Vec<Unit>) -> Result<Vec<(Unit, Module)>> {
    let mut loaded = Vec::with_capacity(units.len());
    let (mut refused, mut refusal) = (Vec::new(), None);
    for (unit, code) in code(device, dtype, units)? {
        match Module::load(device, code) {
            Err(error @ hip::Error::NoCode { .. })
                if embedded(device, &unit).is_some_and(|object| object.is_generic()) =>
            {
                refusal.get_or_insert(error);
                refused.push(unit);
            }
            module => loaded.push((unit, module?)),
        }
    }
    if let (Some(first), Some(refusal)) = (refused.first(), refusal) {
        let rtc = rtc(device, first.file).map_err(|error| without_compiler(refusal, &error))?;
        for (unit, code) in compile_all(&rtc, device, dtype, &refused)? {
            loaded.push((unit, Module::load(device, code)?));
        }
    }
    Ok(loaded)
}

/// Returns the error of a driver that refuses generic code, on a machine that cannot compile.
fn without_compiler(refusal: hip::Error, error: &Error) -> hip::Error {
    match refusal {
        hip::Error::NoCode { device, arch, reason } => hip::Error::NoCode {
            device,
            arch,
            reason: format!("{reason}, and {error}"),
        },
        other => other,
    }
}

/// Compiles units in parallel, and announces it if it takes long.
fn compile_all(rtc: &Rtc, device: &Device, dtype: DType, units: &[Unit]) -> Result<Vec<(Unit, Code)>> {
    let threads = thread::available_parallelism()
        .map_or(1, usize::from)
        .min(units.len());
    let queue = Mutex::new(units.iter());
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..threads {
            let (sender, queue) = (sender.clone(), &queue);
            let work = move || {
                let next = || queue.lock().next();
                while let Some(unit) = next() {
                    if sender
                        .send(compile(rtc, device, dtype, unit).map(|code| (unit.clone(), code)))
                        .is_err()
                    {
                        break;
                    }
                }
            };
            // Without a receiver, the threads that were started end.
            let thread = thread::Builder::new().spawn_scoped(scope, work);
            thread.map_err(|error| Error::resource("threads", error))?;
        }
        drop(sender);
        // Dropped on the first error, which ends the other threads.
        let receiver = receiver;
        let mut compiled = Vec::with_capacity(units.len());
        let mut patience = Some(Instant::now() + PATIENCE);
        while compiled.len() < units.len() {
            let received = match patience {
                Some(until) => receiver.recv_timeout(until.saturating_duration_since(Instant::now())),
                None => receiver.recv().map_err(Into::into),
            };
            match received {
                Ok(result) => compiled.push(result?),
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    patience = None;
                    announce(device, units.len());
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
        }
        Ok(compiled)
    })
}

fn announce(device: &Device, count: usize) {
    let kept = kept(kernel_cache().as_ref());
    let plural = if count == 1 { "" } else { "s" };
    // A closed standard error is not a failure.
    let _ = writeln!(
        io::stderr(),
        "hipvit: compiling {count} kernel{plural} for {} ({kept})",
        device.properties().target
    );
}

/// Returns the location of compiled kernels, or the reason why they are not kept.
fn kept(cache: Option<&KernelCache>) -> String {
    let Some(cache) = cache else {
        return "not kept, since HIPVIT_CACHE_DIR is empty".to_owned();
    };
    match cache.usage() {
        Ok(_) => format!("kept in {}", cache.folder().display()),
        Err(error) => {
            format!(
                "not kept, so the next start compiles them again: {error}; name a folder in HIPVIT_CACHE_DIR"
            )
        }
    }
}

/// Returns the compiler for a kernel file without a code object for the device. Without a compiler, this build of the crate does not
/// support the device.
fn rtc(device: &Device, file: &'static str) -> Result<Rtc> {
    let rtc = Rtc::new(device).map_err(|error| {
        let archs: Vec<_> = device_code::archs().into_iter().collect();
        let built = match archs.as_slice() {
            [] => "for no architecture".to_owned(),
            archs => format!("for {} only", archs.join(", ")),
        };
        hip::Error::NoCode {
            device: device.name().to_owned(),
            arch: device.properties().arch().to_owned(),
            reason: format!("`{file}` was compiled {built}, and {error}"),
        }
    })?;
    Ok(rtc.with_cache(kernel_cache()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_said_to_be_kept_only_where_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let cache = folder.path().join("kernels");
        let text = kept(Some(&KernelCache::at(&cache)));
        assert_eq!(text, format!("kept in {}", cache.display()));
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let text = kept(Some(&KernelCache::at(file.join("kernels"))));
        assert!(
            text.starts_with("not kept, so the next start compiles them again: ")
                && text.ends_with("; name a folder in HIPVIT_CACHE_DIR"),
            "{text}"
        );
    }
}
