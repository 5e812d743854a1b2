//! The GPU models that can be emulated, with the properties that AMD's runtime reports for the real ones.

/// A GPU model. Sizes in bytes, clocks in kHz.
#[derive(Debug, PartialEq)]
pub(crate) struct Part {
    pub(crate) name: &'static str,
    /// The processor's name, as compilers use it.
    pub(crate) arch: &'static str,
    /// The processor with the features that its code objects may demand.
    pub(crate) target: &'static str,
    pub(crate) wave: u32,
    /// Multiprocessors as HIP counts them: compute units, on RDNA pairs of them.
    pub(crate) multiprocessors: u32,
    /// SIMD units of a multiprocessor, and the waves that each holds.
    pub(crate) simds: u32,
    pub(crate) waves_per_simd: u32,
    pub(crate) vector_registers: VectorRegisters,
    /// LDS of a multiprocessor.
    pub(crate) lds: u32,
    pub(crate) l2: u32,
    pub(crate) clock: u32,
    pub(crate) memory: PartMemory,
    pub(crate) pci_id: u32,
    /// True if GPUs of this model are linked by Infinity Fabric; otherwise they are linked by PCIe.
    pub(crate) fabric: bool,
    /// The compute capability that HIP derives from the processor's name.
    pub(crate) capability: (i32, i32),
}

/// Vector registers of a lane.
#[derive(Debug, PartialEq)]
pub(crate) struct VectorRegisters {
    /// Registers of a SIMD unit.
    pub(crate) per_simd: u32,
    /// Granularity in which a wave allocates registers.
    pub(crate) granule: u32,
    /// Maximum number of registers of a wave.
    pub(crate) per_wave: u32,
}

/// Memory of a GPU model.
#[derive(Debug, PartialEq)]
pub(crate) struct PartMemory {
    /// Memory of the real GPU. A setting gives that of the emulated one.
    pub(crate) bytes: u64,
    pub(crate) clock: u32,
    pub(crate) bus: u32,
    pub(crate) ecc: bool,
    /// True if it is the host's memory too, as for an APU.
    pub(crate) shared: bool,
}

const KIB: u32 = 1 << 10;
const MIB: u32 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Maximum number of work-items of a block, on all of them.
pub(crate) const THREADS_PER_BLOCK: u32 = 1024;

/// The first is the default.
pub(crate) const PARTS: &[Part] = &[
    Part {
        name: "AMD Instinct MI300X",
        arch: "gfx942",
        target: "gfx942:sramecc+:xnack-",
        wave: 64,
        multiprocessors: 304,
        simds: 4,
        waves_per_simd: 8,
        vector_registers: VectorRegisters {
            per_simd: 512,
            granule: 8,
            per_wave: 512,
        },
        lds: 64 * KIB,
        l2: 4 * MIB,
        clock: 2_100_000,
        memory: PartMemory {
            bytes: 192 * GIB,
            clock: 1_300_000,
            bus: 8192,
            ecc: true,
            shared: false,
        },
        pci_id: 0x74a1,
        fabric: true,
        capability: (9, 4),
    },
    Part {
        name: "AMD Instinct MI355X",
        arch: "gfx950",
        target: "gfx950:sramecc+:xnack-",
        wave: 64,
        multiprocessors: 256,
        simds: 4,
        waves_per_simd: 8,
        vector_registers: VectorRegisters {
            per_simd: 512,
            granule: 8,
            per_wave: 512,
        },
        lds: 160 * KIB,
        l2: 4 * MIB,
        clock: 2_400_000,
        memory: PartMemory {
            bytes: 288 * GIB,
            clock: 2_000_000,
            bus: 8192,
            ecc: true,
            shared: false,
        },
        pci_id: 0x75a3,
        fabric: true,
        capability: (9, 5),
    },
    Part {
        name: "AMD Instinct MI210",
        arch: "gfx90a",
        target: "gfx90a:sramecc+:xnack-",
        wave: 64,
        multiprocessors: 104,
        simds: 4,
        waves_per_simd: 8,
        vector_registers: VectorRegisters {
            per_simd: 512,
            granule: 8,
            per_wave: 512,
        },
        lds: 64 * KIB,
        l2: 8 * MIB,
        clock: 1_700_000,
        memory: PartMemory {
            bytes: 64 * GIB,
            clock: 1_600_000,
            bus: 4096,
            ecc: true,
            shared: false,
        },
        pci_id: 0x740f,
        fabric: true,
        capability: (9, 0),
    },
    Part {
        name: "AMD Instinct MI100",
        arch: "gfx908",
        target: "gfx908:sramecc+:xnack-",
        wave: 64,
        multiprocessors: 120,
        simds: 4,
        waves_per_simd: 10,
        vector_registers: VectorRegisters {
            per_simd: 256,
            granule: 4,
            per_wave: 256,
        },
        lds: 64 * KIB,
        l2: 8 * MIB,
        clock: 1_502_000,
        memory: PartMemory {
            bytes: 32 * GIB,
            clock: 1_200_000,
            bus: 4096,
            ecc: true,
            shared: false,
        },
        pci_id: 0x738c,
        fabric: true,
        capability: (9, 0),
    },
    Part {
        name: "AMD Radeon RX 9070 XT",
        arch: "gfx1201",
        target: "gfx1201",
        wave: 32,
        multiprocessors: 32,
        simds: 4,
        waves_per_simd: 16,
        vector_registers: VectorRegisters {
            per_simd: 1536,
            granule: 24,
            per_wave: 256,
        },
        lds: 128 * KIB,
        l2: 8 * MIB,
        clock: 2_970_000,
        memory: PartMemory {
            bytes: 16 * GIB,
            clock: 1_259_000,
            bus: 256,
            ecc: false,
            shared: false,
        },
        pci_id: 0x7550,
        fabric: false,
        capability: (12, 0),
    },
    Part {
        name: "AMD Radeon RX 9060 XT",
        arch: "gfx1200",
        target: "gfx1200",
        wave: 32,
        multiprocessors: 16,
        simds: 4,
        waves_per_simd: 16,
        vector_registers: VectorRegisters {
            per_simd: 1536,
            granule: 24,
            per_wave: 256,
        },
        lds: 128 * KIB,
        l2: 4 * MIB,
        clock: 3_130_000,
        memory: PartMemory {
            bytes: 16 * GIB,
            clock: 1_259_000,
            bus: 128,
            ecc: false,
            shared: false,
        },
        pci_id: 0x7590,
        fabric: false,
        capability: (12, 0),
    },
    Part {
        name: "AMD Radeon 8060S Graphics",
        arch: "gfx1151",
        target: "gfx1151",
        wave: 32,
        multiprocessors: 20,
        simds: 4,
        waves_per_simd: 16,
        vector_registers: VectorRegisters {
            per_simd: 1536,
            granule: 24,
            per_wave: 256,
        },
        lds: 128 * KIB,
        l2: 2 * MIB,
        clock: 2_900_000,
        memory: PartMemory {
            bytes: 96 * GIB,
            clock: 1_000_000,
            bus: 256,
            ecc: false,
            shared: true,
        },
        pci_id: 0x1586,
        fabric: false,
        capability: (11, 5),
    },
    Part {
        name: "AMD Radeon RX 7900 XTX",
        arch: "gfx1100",
        target: "gfx1100",
        wave: 32,
        multiprocessors: 48,
        simds: 4,
        waves_per_simd: 16,
        vector_registers: VectorRegisters {
            per_simd: 1536,
            granule: 24,
            per_wave: 256,
        },
        lds: 128 * KIB,
        l2: 6 * MIB,
        clock: 2_482_000,
        memory: PartMemory {
            bytes: 24 * GIB,
            clock: 1_249_000,
            bus: 384,
            ecc: false,
            shared: false,
        },
        pci_id: 0x744c,
        fabric: false,
        capability: (11, 0),
    },
    Part {
        name: "AMD Radeon RX 6900 XT",
        arch: "gfx1030",
        target: "gfx1030",
        wave: 32,
        multiprocessors: 40,
        simds: 4,
        waves_per_simd: 16,
        vector_registers: VectorRegisters {
            per_simd: 1024,
            granule: 16,
            per_wave: 256,
        },
        lds: 128 * KIB,
        l2: 4 * MIB,
        clock: 2_660_000,
        memory: PartMemory {
            bytes: 16 * GIB,
            clock: 1_000_000,
            bus: 256,
            ecc: false,
            shared: false,
        },
        pci_id: 0x73bf,
        fabric: false,
        capability: (10, 3),
    },
];

impl Part {
    /// Maximum LDS of a block: on CDNA all of a compute unit's, on RDNA half of a pair's.
    pub(crate) fn lds_per_block(&self) -> u32 {
        match self.wave {
            64 => self.lds,
            _ => self.lds / 2,
        }
    }
}

/// The model with this processor.
pub(crate) fn find(arch: &str) -> Option<&'static Part> {
    PARTS.iter().find(|part| part.arch == arch)
}
