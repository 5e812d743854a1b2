//! Properties of a GPU.

use std::ffi::c_char;
use std::fmt;
use std::fs;
use std::mem::MaybeUninit;

use hipvit_sys::hip::hipDeviceProp_tR0600;
use serde::{Serialize, Serializer};

use crate::dtype::DType;
use crate::error::Result;
use crate::runtime::Runtime;
use crate::status::check;

/// Properties of a GPU that its driver reports. Sizes are in bytes, clocks in kHz; 0 if the driver does not report a value.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Properties {
    /// Name of the product.
    pub name: String,
    /// Target of code objects with its features, such as `gfx90a:sramecc+:xnack-`; `sm_90` on CUDA.
    pub target: String,
    /// Lanes of a wave: 32 or 64.
    pub wave_size: u32,
    /// Compute units (streaming multiprocessors).
    pub compute_units: u32,
    /// Maximum resident threads per compute unit.
    pub threads_per_compute_unit: u32,
    /// Maximum threads per block.
    pub threads_per_block: u32,
    /// Maximum threads per block along each axis.
    pub block: [u32; 3],
    /// Maximum blocks per grid along each axis.
    pub grid: [u32; 3],
    /// LDS (shared memory) per block by default.
    pub lds_per_block: usize,
    /// Maximum LDS per block, if requested.
    pub lds_per_block_max: usize,
    /// LDS per compute unit.
    pub lds_per_compute_unit: usize,
    /// Maximum 32-bit registers per block.
    pub registers_per_block: u32,
    /// 32-bit registers per compute unit.
    pub registers_per_compute_unit: u32,
    /// Size of the L2 cache.
    pub l2_cache: usize,
    /// Device memory.
    pub memory: usize,
    /// Width of the memory bus in bits.
    pub memory_bus_bits: u32,
    /// Memory clock.
    pub memory_clock: u32,
    /// Maximum clock of the compute units.
    pub clock: u32,
    /// True if the GPU shares the host's memory.
    pub integrated: bool,
    /// True if the GPU's memory has ECC.
    pub ecc: bool,
    /// Address of the GPU on the PCI bus.
    pub pci: PciAddress,
    /// Current PCIe link as the system reports it, such as `32.0 GT/s PCIe ×16`.
    pub pcie_link: Option<String>,
    /// NUMA node of the GPU.
    pub numa_node: Option<u32>,
}

/// Address on the PCI bus, formatted as `0000:c1:00.0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PciAddress {
    /// PCI domain (segment).
    pub domain: u32,
    /// Bus in the domain.
    pub bus: u32,
    /// Device on the bus, with function 0.
    pub device: u32,
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.0", self.domain, self.bus, self.device)
    }
}

impl Serialize for PciAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Properties {
    pub(crate) fn query(runtime: &Runtime, ordinal: usize) -> Result<Self> {
        let hip = runtime.hip()?;
        let mut raw = MaybeUninit::<hipDeviceProp_tR0600>::zeroed();
        // SAFETY: the call writes a structure of this layout, which sys asserts. `hipGetDeviceCount` was called before.
        let returned = unsafe { hip.hipGetDevicePropertiesR0600(raw.as_mut_ptr(), ordinal as i32) };
        check(&format!("GPU {ordinal}"), "hipGetDevicePropertiesR0600", returned)?;
        // SAFETY: integers, arrays of them, a structure of bit fields and two pointers. All zeroes are valid, so unset fields are too.
        Ok(Self::from_raw(unsafe { raw.assume_init_ref() }))
    }

    fn from_raw(raw: &hipDeviceProp_tR0600) -> Self {
        let number = |n: i32| u32::try_from(n).unwrap_or(0);
        let pci = PciAddress {
            domain: number(raw.pciDomainID),
            bus: number(raw.pciBusID),
            device: number(raw.pciDeviceID),
        };
        let lds_per_block = raw.sharedMemPerBlock;
        Self {
            name: text(&raw.name),
            target: text(&raw.gcnArchName),
            wave_size: number(raw.warpSize),
            compute_units: number(raw.multiProcessorCount),
            threads_per_compute_unit: number(raw.maxThreadsPerMultiProcessor),
            threads_per_block: number(raw.maxThreadsPerBlock),
            block: raw.maxThreadsDim.map(number),
            grid: raw.maxGridSize.map(number),
            lds_per_block,
            lds_per_block_max: raw.sharedMemPerBlockOptin.max(lds_per_block),
            lds_per_compute_unit: raw
                .maxSharedMemoryPerMultiProcessor
                .max(raw.sharedMemPerMultiprocessor),
            registers_per_block: number(raw.regsPerBlock),
            registers_per_compute_unit: number(raw.regsPerMultiprocessor),
            l2_cache: usize::try_from(raw.l2CacheSize).unwrap_or(0),
            memory: raw.totalGlobalMem,
            memory_bus_bits: number(raw.memoryBusWidth),
            memory_clock: number(raw.memoryClockRate),
            clock: number(raw.clockRate),
            integrated: raw.integrated != 0,
            ecc: raw.ECCEnabled != 0,
            pci,
            pcie_link: pcie_link(pci),
            numa_node: sysfs(pci, "numa_node").and_then(|node| node.parse().ok()),
        }
    }

    /// Returns the architecture without its features: `gfx90a`, `sm_90`.
    #[must_use]
    pub fn arch(&self) -> &str {
        self.target.split(':').next().unwrap_or_default()
    }

    /// Returns the encoding of E4M3 that the matrix cores support, if any. It is FNUZ on gfx942, and OCP's on gfx950, gfx12 and NVIDIA GPUs
    /// from compute capability 8.9. <https://rocm.docs.amd.com/en/latest/reference/precision-support.html>
    #[must_use]
    pub fn float8(&self) -> Option<DType> {
        match self.arch() {
            "gfx940" | "gfx941" | "gfx942" => Some(DType::F8E4M3Fnuz),
            "gfx950" | "gfx1200" | "gfx1201" => Some(DType::F8E4M3),
            arch => {
                let capability = arch
                    .strip_prefix("sm_")
                    .and_then(|number| number.parse::<u32>().ok());
                capability.filter(|&number| number >= 89).map(|_| DType::F8E4M3)
            }
        }
    }

    /// Returns the memory bandwidth in bytes per second at two transfers per clock, as for DDR, GDDR and HBM2. Memory with more transfers
    /// per clock (HBM3 on some GPUs) has a higher bandwidth, which only a measurement shows.
    #[must_use]
    pub fn memory_bandwidth(&self) -> f64 {
        f64::from(self.memory_clock) * 1e3 * 2.0 * f64::from(self.memory_bus_bits) / 8.0
    }

    /// Returns the maximum resident waves per compute unit.
    #[must_use]
    pub fn waves_per_compute_unit(&self) -> u32 {
        self.threads_per_compute_unit
            .checked_div(self.wave_size)
            .unwrap_or(0)
    }
}

/// Reads a C string in an array, which may lack the terminating zero.
fn text(chars: &[c_char]) -> String {
    let bytes: Vec<u8> = chars.iter().map(|&c| c as u8).take_while(|&c| c != 0).collect();
    String::from_utf8_lossy(&bytes).trim().to_owned()
}

/// Reads a PCI device's file under `/sys`.
fn sysfs(pci: PciAddress, file: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/sys/bus/pci/devices/{pci}/{file}")).ok()?;
    Some(text.trim().to_owned())
}

fn pcie_link(pci: PciAddress) -> Option<String> {
    let (speed, width) = (
        sysfs(pci, "current_link_speed")?,
        sysfs(pci, "current_link_width")?,
    );
    Some(format!("{speed} ×{width}"))
}
