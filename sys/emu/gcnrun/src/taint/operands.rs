//! Registers of an instruction to look at, from the disassembler's text.

use super::Step;
use crate::operands::{Place, register};
use crate::profile::Class;
use crate::wave::EXEC;

/// Destination of an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// Vector registers: the first, and how many. Two results of a dual instruction.
    Vector(Vec<[usize; 2]>),
    /// Scalar registers; a lane mask if it compares.
    Scalar { first: usize, count: usize, mask: bool },
    /// Memory, from these vector registers; bytes of a lane, and whether they are the upper half of the register.
    Memory {
        registers: [usize; 2],
        bytes: u32,
        high: bool,
    },
}

/// The step, and what is written; `None` if no value is.
pub(super) fn of(text: &str) -> Option<(Step, Written)> {
    let mut halves = text.split(" :: ");
    let first = one(halves.next()?)?;
    match (first, halves.next().and_then(one)) {
        ((step, Written::Vector(mut registers)), Some((_, Written::Vector(more)))) => {
            registers.extend(more);
            Some((step, Written::Vector(registers)))
        }
        (first, _) => Some(first),
    }
}

fn one(text: &str) -> Option<(Step, Written)> {
    let text = text.trim();
    let (mnemonic, rest) = text.split_once(char::is_whitespace)?;
    let step = Step::of(Class::of(mnemonic), mnemonic)?;
    let operands: Vec<_> = rest
        .split(',')
        .map(|word| word.split_whitespace().next().unwrap_or_default())
        .map(register)
        .collect();
    let vector = |index: usize| {
        let found = (*operands.get(index)?)?;
        match found.place {
            Place::Vgpr(first) => Some([usize::from(first), usize::from(found.count)]),
            _ => None,
        }
    };
    let scalar = |index: usize, mask: bool| {
        let found = (*operands.get(index)?)?;
        match found.place {
            Place::Sgpr(first) => Some(Written::Scalar {
                first: usize::from(first),
                count: usize::from(found.count),
                mask,
            }),
            _ => None,
        }
    };
    let compares = mnemonic.starts_with("v_cmp");
    let written = match step {
        Step::Store | Step::LdsStore => {
            let returns = mnemonic.contains("_rtn") || text.contains(" glc") || text.contains(" sc0");
            let atomic = mnemonic.contains("_atomic");
            let data = usize::from(!mnemonic.starts_with("buffer_")) + usize::from(atomic && returns);
            let registers = vector(data)?;
            let name = mnemonic.strip_suffix("_d16_hi").unwrap_or(mnemonic);
            let high = mnemonic.contains("d16_hi");
            let bytes = match () {
                () if ["byte", "_b8", "_u8"].iter().any(|end| name.ends_with(end)) => 1,
                () if ["short", "_b16", "_u16"].iter().any(|end| name.ends_with(end)) => 2,
                () => 4 * registers[1] as u32,
            };
            Written::Memory {
                registers,
                bytes,
                high,
            }
        }
        // Without a register for it, the comparison goes to EXEC.
        Step::Vector if compares && vector(0).is_some() => Written::Scalar {
            first: EXEC,
            count: 2,
            mask: true,
        },
        Step::Scalar if mnemonic.starts_with("s_cmp") || mnemonic.starts_with("s_bitcmp") => return None,
        _ => match vector(0) {
            Some(registers) => Written::Vector(vec![registers]),
            None => scalar(0, compares)?,
        },
    };
    Some((step, written))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_found_in_the_text() {
        let vector = |registers: &[[usize; 2]]| Written::Vector(registers.to_vec());
        for (text, step, written) in [
            ("v_add_f32_e32 v3, v1, v2", Step::Vector, vector(&[[3, 1]])),
            (
                "v_dual_fmac_f32 v1, v2, v3 :: v_dual_mul_f32 v4, v5, v6",
                Step::Vector,
                vector(&[[1, 1], [4, 1]]),
            ),
            (
                "v_mfma_f32_16x16x16_f16 a[0:3], v[4:5], v[6:7], a[0:3]",
                Step::Matrix,
                vector(&[[256, 4]]),
            ),
            (
                "global_load_dwordx4 v[8:11], v0, s[2:3] offset:16",
                Step::Load,
                vector(&[[8, 4]]),
            ),
            (
                "ds_read_b128 v[4:7], v9 offset:64",
                Step::LdsLoad,
                vector(&[[4, 4]]),
            ),
            (
                "v_cmp_lt_f32_e64 s[4:5], v0, v1",
                Step::Vector,
                Written::Scalar {
                    first: 4,
                    count: 2,
                    mask: true,
                },
            ),
            (
                "v_cmpx_gt_u32_e32 v0, v1",
                Step::Vector,
                Written::Scalar {
                    first: EXEC,
                    count: 2,
                    mask: true,
                },
            ),
            (
                "v_readfirstlane_b32 s7, v3",
                Step::Vector,
                Written::Scalar {
                    first: 7,
                    count: 1,
                    mask: false,
                },
            ),
            (
                "global_store_short_d16_hi v[0:1], v5, off",
                Step::Store,
                Written::Memory {
                    registers: [5, 1],
                    bytes: 2,
                    high: true,
                },
            ),
            (
                "buffer_store_dwordx2 v[2:3], off, s[0:3], 0 offset:8",
                Step::Store,
                Written::Memory {
                    registers: [2, 2],
                    bytes: 8,
                    high: false,
                },
            ),
            (
                "ds_write_b64 v1, v[2:3]",
                Step::LdsStore,
                Written::Memory {
                    registers: [2, 2],
                    bytes: 8,
                    high: false,
                },
            ),
        ] {
            assert_eq!(of(text), Some((step, written)), "{text}");
        }
        for text in [
            "s_barrier",
            "s_cmp_eq_u32 s0, s1",
            "s_cbranch_scc1 12",
            "s_endpgm",
        ] {
            assert_eq!(of(text), None, "{text}");
        }
    }
}
