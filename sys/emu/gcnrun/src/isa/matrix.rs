//! Matrix instructions: WMMA of RDNA 3 and 4, MFMA of CDNA, SMFMAC of gfx942 and gfx950.
//!
//! D = A·B + C, accumulated in the order of k with fused multiplications; the hardware's order is not documented, so last bits
//! may differ. Layouts are those of AMD's matrix instruction calculator. EXEC is ignored.

mod grouped;
mod mfma_f64;
mod operands;
mod wmma;

use crate::code::Instruction;
use crate::line::Line;

/// `None` if another file decodes the mnemonic.
pub(super) fn decode(line: &mut Line<'_>, base: &str) -> Option<Result<Instruction, String>> {
    let (kind, shape) = base.strip_prefix("v_")?.split_once('_')?;
    let arch = line.arch;
    Some(match (kind, arch.lanes) {
        ("wmma", 32) if arch.gfx11 => wmma::decode(line, shape),
        ("wmma", 32) if arch.gfx12 => grouped::decode(line, shape),
        ("mfma", 64) if matches!(shape, "f64_16x16x4_f64" | "f64_16x16x4f64") => mfma_f64::decode(line),
        ("mfma", 64) => grouped::decode(line, shape),
        ("smfmac", 64) => grouped::decode_sparse(line, shape),
        ("wmma" | "mfma" | "smfmac", _) => Err(format!("{base} of this architecture or wave size")),
        _ => return None,
    })
}
