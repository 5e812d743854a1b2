//! Propagation of marked bytes through a library's work, which runs twice. First it runs as a probe, with NaN for each marked
//! element of its operands: a result that is NaN depends on one. The probe's results are not stored. Then it runs as usual, and
//! those results are marked.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use gcnrun::{FaultKind, Memory};

use super::element::{Element, Real};
use crate::faults::Failure;
use crate::hip::machine;

/// True while a probe runs. Work of all devices runs one at a time.
static PROBING: AtomicBool = AtomicBool::new(false);
/// The results that were NaN in the probe, as address and length.
static FOUND: Mutex<Vec<[u64; 2]>> = Mutex::new(Vec::new());

/// Runs a library's work.
pub(super) fn run(
    name: &str,
    memory: &Memory,
    work: impl Fn(&Memory) -> Result<(), FaultKind>,
) -> Result<(), Failure> {
    let Some(follower) = follower() else {
        return Ok(work(memory)?);
    };
    PROBING.store(true, Relaxed);
    let probed = work(memory);
    PROBING.store(false, Relaxed);
    let found = std::mem::take(&mut *FOUND.lock().unwrap_or_else(PoisonError::into_inner));
    probed?;
    work(memory)?;
    let found = joined(found);
    for &[address, length] in &found {
        memory.taint(address, length)?;
    }
    follower.library(name, &found)
}

fn follower() -> Option<&'static crate::hip::Follower> {
    machine::machine().ok()?.follower.as_ref()
}

/// True if marked bytes are followed: only they count as unwritten.
pub(super) fn follows() -> bool {
    follower().is_some()
}

/// Puts NaN, in any format, in place of the marked bytes that were read.
pub(super) fn probe(memory: &Memory, address: u64, bytes: &mut [u8]) -> Result<(), FaultKind> {
    if is_probe()
        && let Some(marked) = memory.unwritten(address, bytes.len() as u64)?
    {
        for (byte, _) in bytes.iter_mut().zip(marked).filter(|(_, marked)| *marked) {
            *byte = 0xff;
        }
    }
    Ok(())
}

/// True while a probe runs.
pub(crate) fn is_probe() -> bool {
    PROBING.load(Relaxed)
}

/// Keeps where the NaN are of elements that a probe would store from `address` on.
pub(crate) fn keep<T: Real>(address: u64, element: Element, values: &[T]) {
    let size = element.size() as u64;
    let nan = values
        .iter()
        .enumerate()
        .filter(|(_, value)| value.wide().is_nan());
    let ranges = nan.map(|(index, _)| [address + index as u64 * size, size]);
    FOUND
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .extend(ranges);
}

/// Ranges of address and length in order, those that touch joined.
fn joined(mut ranges: Vec<[u64; 2]>) -> Vec<[u64; 2]> {
    ranges.sort_unstable();
    let mut joined: Vec<[u64; 2]> = Vec::new();
    for [begin, length] in ranges {
        match joined.last_mut() {
            Some([first, all]) if begin <= *first + *all => *all = (*all).max(begin + length - *first),
            _ => joined.push([begin, length]),
        }
    }
    joined
}
