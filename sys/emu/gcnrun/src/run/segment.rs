//! A launch's kernel arguments in memory, and its dispatch packet.

use crate::fault::FaultKind;
use crate::launch::Launch;
use crate::memory::Kind;
use crate::object::{Kernel, Program};
use crate::space::{PRIVATE_APERTURE, SHARED_APERTURE};

/// Bytes of an AQL dispatch packet, which precedes the kernel arguments.
pub(super) const PACKET: u64 = 64;
/// Bytes after the arguments, because scalar loads may be wider than the arguments.
const SLACK: u64 = 64;

/// The kernel argument segment, and before it the dispatch packet: freed when the launch is over.
pub(super) struct Segment<'a> {
    program: &'a Program,
    /// Address of the dispatch packet.
    pub(super) address: u64,
}

impl<'a> Segment<'a> {
    pub(super) fn new(program: &'a Program, kernel: &Kernel, launch: &Launch<'_>) -> Result<Self, FaultKind> {
        let size = PACKET + u64::from(kernel.info.kernarg_size) + SLACK;
        let memory = &program.memory;
        let address = memory
            .allocate(size, Kind::Device(program.device), 256)
            .map_err(|error| FaultKind::Configuration {
                what: format!("{error} (the kernel's arguments)"),
            })?;
        let segment = Self { program, address };
        memory.write(address, &packet(kernel, launch, address + PACKET))?;
        memory.write(address + PACKET, &arguments(kernel, launch))?;
        Ok(segment)
    }
}

impl Drop for Segment<'_> {
    fn drop(&mut self) {
        self.program.memory.release(self.address);
    }
}

/// The dispatch packet, as the HSA runtime's specification lays it out.
fn packet(kernel: &Kernel, launch: &Launch<'_>, arguments: u64) -> [u8; PACKET as usize] {
    let mut packet = [0; PACKET as usize];
    let mut put = |at: usize, bytes: &[u8]| packet[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &2_u16.to_le_bytes());
    put(2, &3_u16.to_le_bytes());
    for axis in 0..3 {
        put(4 + 2 * axis, &(launch.block[axis] as u16).to_le_bytes());
        let items = launch.grid[axis].wrapping_mul(launch.block[axis]);
        put(12 + 4 * axis, &items.to_le_bytes());
    }
    put(24, &kernel.info.scratch.to_le_bytes());
    put(28, &(kernel.info.lds + launch.dynamic_lds).to_le_bytes());
    put(40, &arguments.to_le_bytes());
    packet
}

/// The given explicit arguments, and the hidden ones that LLVM's guide lists for HIP.
fn arguments(kernel: &Kernel, launch: &Launch<'_>) -> Vec<u8> {
    let mut bytes = vec![0; kernel.info.kernarg_size as usize];
    let given = launch.arguments.len().min(bytes.len());
    bytes[..given].copy_from_slice(&launch.arguments[..given]);
    for argument in &kernel.hidden {
        let axis = match argument.kind.as_bytes().last() {
            Some(b'y') => 1,
            Some(b'z') => 2,
            _ => 0,
        };
        let value = match argument.kind.trim_start_matches("hidden_") {
            "block_count_x" | "block_count_y" | "block_count_z" => launch.grid[axis],
            "group_size_x" | "group_size_y" | "group_size_z" => launch.block[axis],
            "grid_dims" => {
                1 + (0..3)
                    .rposition(|axis| launch.grid[axis] > 1 || launch.block[axis] > 1)
                    .unwrap_or(0) as u32
            }
            "dynamic_lds_size" => launch.dynamic_lds,
            "shared_base" => SHARED_APERTURE,
            "private_base" => PRIVATE_APERTURE,
            // HIP has no remainders and no offsets. Host services (printf, malloc in kernels, …) get a null pointer, whose
            // use is an access out of bounds.
            _ => 0,
        };
        let (at, size) = (argument.offset as usize, argument.size.min(4) as usize);
        bytes[at..at + argument.size as usize].fill(0);
        bytes[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
    }
    bytes
}
