//! What rocBLAS, hipBLASLt and MIOpen compute with: checked access to device memory, element types, matrices, the
//! factors that callers give on the host or on the device, and the objects behind handles and descriptions.

mod element;
mod matrix;
mod objects;
mod scalar;
mod vector;

pub(crate) use element::{Element, Real};
pub(crate) use matrix::{Batch, Factor, Matrix, multiply, product};
pub(crate) use objects::Objects;
pub(crate) use scalar::Scalar;
pub(crate) use vector::Vector;

use gcnrun::{FaultKind, Memory};
use hipvit_sys::hip::{hipError_t, hipStream_t};

use crate::hip;

/// Bytes of device memory, all of which something has written.
pub(crate) fn read(memory: &Memory, address: u64, len: usize) -> Result<Vec<u8>, FaultKind> {
    let mut bytes = vec![0; len];
    // Nothing is read of an empty matrix, whose address may be null.
    if len > 0 {
        memory.read(address, &mut bytes)?;
        if let Some(unwritten) = memory.first_unwritten(address, len as u64)? {
            return Err(FaultKind::Uninitialised {
                what: format!("{unwritten:#x}, of {len} bytes at {address:#x} that a library reads"),
            });
        }
    }
    Ok(bytes)
}

/// Writes bytes to device memory.
pub(crate) fn write(memory: &Memory, address: u64, bytes: &[u8]) -> Result<(), FaultKind> {
    if bytes.is_empty() {
        Ok(())
    } else {
        memory.write(address, bytes)
    }
}

/// Submits a library's work to a stream. What it finds wrong with memory is reported as a kernel's faults are.
pub(crate) fn submit(
    stream: hipStream_t,
    name: &str,
    work: impl Fn(&Memory) -> Result<(), FaultKind> + Send + Sync + 'static,
) -> Result<(), hipError_t> {
    hip::submit(stream, name, move |memory| Ok(work(memory)?))
}
