//! Kernel descriptors, and what depends on the architecture when a wave begins.

/// A kernel descriptor: the launch setup for the hardware.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptor {
    /// Address in the object of the first instruction.
    pub(crate) entry: u64,
    rsrc1: u32,
    rsrc2: u32,
    rsrc3: u32,
    properties: u16,
}

impl Descriptor {
    pub(super) fn parse(bytes: &[u8; 64], address: u64) -> Self {
        let dword = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let offset = u64::from(dword(16)) | u64::from(dword(20)) << 32;
        Self {
            entry: address.wrapping_add(offset),
            rsrc3: dword(44),
            rsrc1: dword(48),
            rsrc2: dword(52),
            properties: dword(56) as u16,
        }
    }

    /// True if a user SGPR is requested; bits as in `kernel_code_properties`.
    pub(crate) fn has(&self, property: u32) -> bool {
        self.properties >> property & 1 == 1
    }

    pub(crate) fn user_sgprs(&self) -> usize {
        (self.rsrc2 >> 1 & 31) as usize
    }

    pub(crate) fn uses_scratch(&self) -> bool {
        self.rsrc2 & 1 == 1
    }

    /// True if the block's index along this axis goes into an SGPR.
    pub(crate) fn block_index(&self, axis: usize) -> bool {
        self.rsrc2 >> (7 + axis) & 1 == 1
    }

    pub(crate) fn block_info(&self) -> bool {
        self.rsrc2 >> 10 & 1 == 1
    }

    /// Number of a work-item's indices that go into VGPRs.
    pub(crate) fn item_indices(&self) -> usize {
        (self.rsrc2 >> 11 & 3) as usize + 1
    }

    /// Two bits for f32, two for f16 and f64: inputs (1) and results (2) keep denormals.
    pub(crate) fn denormals(&self) -> (u8, u8) {
        ((self.rsrc1 >> 16 & 3) as u8, (self.rsrc1 >> 18 & 3) as u8)
    }

    /// Vector and accumulation registers as allocated.
    pub(super) fn registers(&self, arch: &str, wave_size: u32) -> (u32, u32) {
        let granule = if has_unified_registers(arch) || wave_size == 32 {
            8
        } else {
            4
        };
        let total = ((self.rsrc1 & 63) + 1) * granule;
        if has_unified_registers(arch) {
            let vector = (((self.rsrc3 & 63) + 1) * 4).min(total);
            (vector, total - vector)
        } else if arch == "gfx908" {
            (total, total)
        } else {
            (total, 0)
        }
    }
}

/// True if accumulation registers are the upper part of the vector registers.
pub(super) fn has_unified_registers(arch: &str) -> bool {
    matches!(arch, "gfx90a" | "gfx940" | "gfx941" | "gfx942" | "gfx950")
}

/// Properties of an architecture for the initialisation of waves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Traits {
    /// The hardware sets up each wave's scratch memory; kernels do not.
    pub(crate) architected_flat_scratch: bool,
    /// True if a VGPR holds a work-item's three indices, ten bits each.
    pub(crate) packed_items: bool,
    /// True if trap temporaries hold the block's indices: x in ttmp9, y and z in the halves of ttmp7.
    pub(crate) block_in_ttmp: bool,
}

impl Traits {
    pub(crate) fn of(arch: &str) -> Option<Self> {
        let (architected_flat_scratch, packed_items) = match arch {
            "gfx906" | "gfx908" => (false, false),
            "gfx90a" => (false, true),
            "gfx940" | "gfx941" | "gfx942" | "gfx950" => (true, true),
            _ if arch.starts_with("gfx103") || arch == "gfx10-3-generic" => (false, false),
            _ if arch.starts_with("gfx11") || arch.starts_with("gfx12") => (true, true),
            _ => return None,
        };
        Some(Self {
            architected_flat_scratch,
            packed_items,
            block_in_ttmp: arch.starts_with("gfx12"),
        })
    }
}
