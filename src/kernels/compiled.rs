//! Code compiled at run time, once per process, and statistics of its caches.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::device_code;
use super::unit::Unit;
use crate::error::{Error, Result};
use crate::hip::{Code, Device, Rtc};
use crate::tensor::DType;

/// Use of the caches of compiled kernels by this process: in memory, and [on disk](super::kernel_cache).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompileStats {
    /// Units that were in memory.
    pub memory_hits: u64,
    /// Units that were on disk.
    pub disk_hits: u64,
    /// Units that were compiled.
    pub misses: u64,
    /// Time to compile them. Threads that compile at once add up.
    pub compile_time: Duration,
}

impl CompileStats {
    /// Returns the fraction of units that were not compiled. 1 without any.
    pub fn hit_rate(&self) -> f64 {
        let hits = self.memory_hits + self.disk_hits;
        match hits + self.misses {
            0 => 1.0,
            all => hits as f64 / all as f64,
        }
    }

    fn count(&mut self, code: &Code) {
        match code.compile_time() {
            Some(took) => {
                self.misses += 1;
                self.compile_time += took;
            }
            None => self.disk_hits += 1,
        }
    }
}

static STATS: Mutex<CompileStats> = Mutex::new(CompileStats {
    memory_hits: 0,
    disk_hits: 0,
    misses: 0,
    compile_time: Duration::ZERO,
});

/// Returns what this process has compiled, and what it has found in the caches: kernels without code in this build, among them those of
/// attention with a [pattern](crate::attention).
pub fn compile_stats() -> CompileStats {
    *STATS.lock()
}

/// Key of compiled code within a process.
type Key = (Option<PathBuf>, String, DType, Unit);

/// Code of each unit, once it is compiled.
type Compiled = HashMap<Key, Arc<Mutex<Option<Code>>>>;

/// Compiles a unit, once per process.
pub(super) fn compile(rtc: &Rtc, device: &Device, dtype: DType, unit: &Unit) -> Result<Code> {
    static COMPILED: Mutex<Option<Compiled>> = Mutex::new(None);
    let provider = device.runtime().path().ok().map(PathBuf::from);
    let key = (provider, device.properties().target.clone(), dtype, unit.clone());
    let slot = {
        let mut compiled = COMPILED.lock();
        compiled.get_or_insert_default().entry(key).or_default().clone()
    };
    // Locked during the compilation, so that no two threads compile the same unit.
    let mut slot = slot.lock();
    if let Some(code) = &*slot {
        STATS.lock().memory_hits += 1;
        return Ok(code.clone());
    }
    let Unit { file, define, source } = unit;
    let source = source
        .as_deref()
        .or_else(|| device_code::source(file))
        .ok_or_else(|| Error::internal("kernel", format!("there is no file hip/{file}.hip")))?;
    let mut options: Vec<String> = device_code::OPTIONS
        .iter()
        .map(|&option| option.to_owned())
        .collect();
    if dtype != DType::U8 {
        options.push(format!("-DHIPVIT_DTYPE={dtype}"));
    }
    options.extend(define.map(|(name, value)| format!("-D{name}={value}")));
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let code = rtc.compile(&format!("{file}.hip"), source, device_code::headers(), &options)?;
    STATS.lock().count(&code);
    *slot = Some(code.clone());
    Ok(code)
}
