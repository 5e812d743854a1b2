//! Shared by rocBLAS, hipBLASLt and MIOpen: checked access to device memory, element types, matrices, scalars on the host or
//! the device.

mod element;
mod float8;
mod matrix;
mod scalar;
pub(crate) mod taint;
mod vector;

pub(crate) use element::{Element, Real};
pub(crate) use float8::{Encoding, Float8};
pub(crate) use matrix::{Batch, Factor, Matrix, gemm, multiply};
pub(crate) use scalar::Scalar;
pub(crate) use vector::Vector;

use gcnrun::{FaultKind, Memory};
use hipvit_sys::hip::{hipError_t, hipStream_t};

use crate::hip;

/// Reads device memory; uninitialised bytes are an error.
pub(crate) fn read(memory: &Memory, address: u64, len: usize) -> Result<Vec<u8>, FaultKind> {
    let mut bytes = vec![0; len];
    // An empty matrix may have a null address.
    if len > 0 {
        memory.read(address, &mut bytes)?;
        if taint::follows() {
            taint::probe(memory, address, &mut bytes)?;
        } else if let Some(unwritten) = memory.first_unwritten(address, len as u64)? {
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

/// Submits a library's work to a stream. Memory faults are reported like a kernel's.
pub(crate) fn submit(
    stream: hipStream_t,
    name: &str,
    work: impl Fn(&Memory) -> Result<(), FaultKind> + Send + Sync + 'static,
) -> Result<(), hipError_t> {
    let called = name.to_owned();
    hip::submit(stream, name, move |memory| taint::run(&called, memory, &work))
}
