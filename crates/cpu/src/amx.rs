//! AMX dot products for the GEMMs in int8 and bf16. TDPBUSD multiplies 16 rows of x by 16 columns over 64 channels, TDPBF16PS over 32
//! channels. Written in assembly, since the intrinsics are unstable.
//!
//! A packed weight panel consists of such tiles. A strip of x has 32 rows, each with the channels of a tile together. Two tiles of x by two
//! of the panel use all eight tile registers. Missing rows of the last strip are multiplied too, and their sums are discarded.
#![allow(unsafe_code)]

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};
use std::marker::PhantomData;
use std::sync::OnceLock;

use super::packed::{COLUMNS, GROUP_BYTES, STEP};

/// Rows of a tile register. Each row has [`TILE_BYTES`].
const TILE_ROWS: usize = 16;
pub(super) const TILE_BYTES: usize = 64;
/// Rows of x that are multiplied at once.
pub(super) const ROWS: usize = 2 * TILE_ROWS;
/// Bytes of x, and of a panel, per [`TILE_BYTES`] of a row of x.
pub(super) const X_STEP: usize = ROWS * TILE_BYTES;
const PANEL_STEP: usize = TILE_BYTES / GROUP_BYTES * STEP;
const _: () = assert!(
    COLUMNS * size_of::<i32>() == STEP && STEP == 2 * TILE_BYTES && TILE_BYTES / GROUP_BYTES == TILE_ROWS
);

/// Returns true if the processor has AMX for int8 and the system permits its use.
pub(super) fn has_int8() -> bool {
    has(AMX_INT8)
}

/// Returns true if the processor has AMX for bf16 and the system permits its use.
pub(super) fn has_bf16() -> bool {
    has(AMX_BF16)
}

// Intel Software Developer's Manual, volume 2, CPUID, leaf 7, EDX.
const AMX_BF16: u32 = 1 << 22;
const AMX_TILE: u32 = 1 << 24;
const AMX_INT8: u32 = 1 << 25;

fn has(instructions: u32) -> bool {
    // Cached, since each CPUID in a virtual machine traps to the hypervisor.
    static USABLE: OnceLock<u32> = OnceLock::new();
    #[cfg(all(test, target_os = "linux"))]
    if super::amx_emulation::is_installed() {
        return true;
    }
    USABLE.get_or_init(usable) & instructions == instructions
}

/// Returns the usable AMX instructions. None without the tiles.
fn usable() -> u32 {
    let known = if __cpuid(0).eax >= 7 {
        __cpuid_count(7, 0).edx
    } else {
        0
    };
    if known & AMX_TILE != 0 && saves_tiles() && is_permitted() {
        known
    } else {
        0
    }
}

/// Returns true if the system saves the tile configuration and data (bits 17 and 18 of XCR0) with a thread's registers.
fn saves_tiles() -> bool {
    #[target_feature(enable = "xsave")]
    fn enabled() -> u64 {
        // SAFETY: register 0 exists wherever the instruction does.
        unsafe { _xgetbv(0) }
    }
    const OSXSAVE: u32 = 1 << 27;
    const BITS: u64 = 1 << 17 | 1 << 18;
    // SAFETY: OSXSAVE says that the system has enabled XGETBV.
    __cpuid(1).ecx & OSXSAVE != 0 && unsafe { enabled() } & BITS == BITS
}

/// Asks Linux for permission. Linux allocates the tile state only for processes that ask for it.
#[cfg(target_os = "linux")]
fn is_permitted() -> bool {
    // From asm/prctl.h and asm/fpu/types.h of Linux.
    const ARCH_REQ_XCOMP_PERM: libc::c_ulong = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_ulong = 18;
    // SAFETY: the call takes two numbers, and changes no memory of this process.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 }
}

/// The rules of other systems are unknown.
#[cfg(not(target_os = "linux"))]
fn is_permitted() -> bool {
    false
}

/// Operand of LDTILECFG: 16 rows of 64 bytes in each of the eight tile registers.
#[repr(C, align(64))]
struct Configuration {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    bytes: [u16; 16],
    rows: [u8; 16],
}

const CONFIGURATION: Configuration = {
    let (mut bytes, mut rows) = ([0; 16], [0; 16]);
    let mut tile = 0;
    while tile < 8 {
        bytes[tile] = TILE_BYTES as u16;
        rows[tile] = TILE_ROWS as u8;
        tile += 1;
    }
    Configuration {
        palette: 1,
        start_row: 0,
        reserved: [0; 14],
        bytes,
        rows,
    }
};

/// Computes the sums of a strip of x and a panel, on a thread with configured tile registers.
macro_rules! multiply {
    ($instruction:literal, $x:ident, $panel:ident, $tile:ident) => {
        let steps = size_of_val($panel) / PANEL_STEP;
        assert!(steps > 0 && size_of_val($x) >= steps * X_STEP);
        // SAFETY: `configure` has run on this thread, and its caller guarantees the instructions. Each step reads two tiles of x, 2 · 16
        // rows of 64 bytes, and two of the panel, the halves of 16 rows of 128 bytes. The lengths of both were just checked. The sums are
        // four tiles, halves of the 32 rows of 128 bytes of `tile`.
        unsafe {
            asm!(
                "tilezero tmm0",
                "tilezero tmm1",
                "tilezero tmm2",
                "tilezero tmm3",
                "2:",
                "tileloadd tmm4, [{x} + {line}]",
                "tileloadd tmm6, [{panel} + {stride}]",
                "tileloadd tmm7, [{panel} + {stride} + 64]",
                concat!($instruction, " tmm0, tmm4, tmm6"),
                "tileloadd tmm5, [{x} + {line} + 1024]",
                concat!($instruction, " tmm1, tmm4, tmm7"),
                concat!($instruction, " tmm2, tmm5, tmm6"),
                concat!($instruction, " tmm3, tmm5, tmm7"),
                "add {x}, 2048",
                "add {panel}, 2048",
                "sub {steps}, 1",
                "jnz 2b",
                "tilestored [{tile} + {stride}], tmm0",
                "tilestored [{tile} + {stride} + 64], tmm1",
                "tilestored [{tile} + {stride} + 2048], tmm2",
                "tilestored [{tile} + {stride} + 2112], tmm3",
                x = inout(reg) $x.as_ptr() => _,
                panel = inout(reg) $panel.as_ptr() => _,
                steps = inout(reg) steps => _,
                tile = in(reg) $tile.as_mut_ptr(),
                line = in(reg) TILE_BYTES,
                stride = in(reg) STEP,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack)
            );
        }
    };
}

/// Configured tile registers of this thread, released on drop. Not [`Send`], since each thread has its own registers.
pub(super) struct Tiles(PhantomData<*const ()>);

impl Tiles {
    /// Configures the tile registers.
    ///
    /// # Safety
    ///
    /// AMX must be available for the dtype that is multiplied ([`has_int8`], [`has_bf16`]).
    pub(super) unsafe fn configure() -> Self {
        static TILES: Configuration = CONFIGURATION;
        // SAFETY: the caller guarantees the instruction, which reads the 64 bytes of a valid configuration.
        unsafe {
            asm!(
                "ldtilecfg [{configuration}]",
                configuration = in(reg) &raw const TILES,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(readonly, nostack, preserves_flags)
            );
        }
        Self(PhantomData)
    }

    /// Computes the int8 sums of a strip of x, as u8, and a panel.
    pub(super) fn multiply_int8(&self, x: &[u8], panel: &[i8], tile: &mut [[i32; COLUMNS]; ROWS]) {
        multiply!("tdpbusd", x, panel, tile);
    }

    /// Computes the bf16 sums of a strip of x and a panel. Subnormal numbers count as zeros.
    pub(super) fn multiply_bf16(&self, x: &[u16], panel: &[u16], tile: &mut [[f32; COLUMNS]; ROWS]) {
        multiply!("tdpbf16ps", x, panel, tile);
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: the instruction exists, since the registers were configured. It resets them.
        unsafe {
            asm!(
                "tilerelease",
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nomem, nostack, preserves_flags)
            );
        }
    }
}
