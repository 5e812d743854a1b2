//! DPP: an instruction whose first operand comes from other lanes.

use crate::code::{Context, Instruction, Outcome};
use crate::line::{Line, list};
use crate::operands::{Place, Source, integer};
use crate::wave::EXEC;

/// Modes by which DPP finds a lane's source, with their parameter in `detail[1]`.
const DPP: &[(&str, u32)] = &[
    ("row_shl", 0),
    ("row_shr", 1),
    ("row_ror", 2),
    ("row_mirror", 3),
    ("row_half_mirror", 4),
    ("row_share", 5),
    ("row_newbcast", 5),
    ("row_xmask", 6),
    ("row_bcast", 7),
    ("wave_shl", 8),
    ("wave_shr", 9),
    ("wave_rol", 10),
    ("wave_ror", 11),
];
const QUAD: u32 = 12;
const EIGHT: u32 = 13;

/// Makes an instruction read its first operand from other lanes.
pub(super) fn decode(line: &mut Line<'_>, instruction: &mut Instruction) -> Result<(), String> {
    let bits =
        |list: Vec<i64>, width: u32| list.iter().rev().fold(0, |all, lane| all << width | *lane as u32);
    let mut control = None;
    let mut fetch_inactive = false;
    let mut bound = false;
    if let Some(lanes) = line.take("quad_perm") {
        control = Some((QUAD, bits(list(lanes)?, 2)));
    } else if let Some(lanes) = line.take("dpp8") {
        control = Some((EIGHT, bits(list(lanes)?, 3)));
        bound = true;
    }
    for (name, kind) in DPP {
        if let Some(value) = line.take(name) {
            control = Some((*kind, integer(value).unwrap_or(0) as u32));
        }
    }
    let (kind, parameter) = control.ok_or_else(|| format!("the lanes of {}", line.mnemonic))?;
    let mask = |line: &mut Line<'_>, name| {
        if line.has(name) {
            line.number(name)
        } else {
            Ok(0xf)
        }
    };
    let rows = mask(line, "row_mask")? as u32;
    let banks = mask(line, "bank_mask")? as u32;
    bound |= line.take("bound_ctrl").is_some();
    fetch_inactive |= line.number("fi")? != 0;
    if instruction.src[0][1].vgpr().is_some() {
        return Err(format!("64-bit operands of {}", line.mnemonic));
    }
    let Source {
        place: Place::Vgpr(_),
        ..
    } = instruction.src[0][0]
    else {
        return Err(format!("the first operand of {}", line.mnemonic));
    };
    instruction.detail = [
        kind,
        parameter,
        rows | banks << 4,
        u32::from(bound) | u32::from(fetch_inactive) << 1,
    ];
    instruction.inner = instruction.run;
    instruction.run = run;
    Ok(())
}

/// The lane that `lane` reads, if there is one.
fn source_lane(kind: u32, parameter: u32, lane: u32, lanes: u32) -> Option<u32> {
    let (row, place) = (lane & !15, lane & 15);
    Some(match kind {
        0 => row | Some(place + parameter).filter(|place| *place < 16)?,
        1 => row | place.checked_sub(parameter)?,
        2 => row | place.wrapping_sub(parameter) & 15,
        3 => row | (15 - place),
        4 => lane & !7 | (7 - (lane & 7)),
        5 => row | parameter,
        6 => row | place ^ parameter,
        7 if parameter == 15 => row.checked_sub(1)?,
        7 => Some(31).filter(|_| lane >= 32)?,
        8 => Some(lane + 1).filter(|lane| *lane < lanes)?,
        9 => lane.checked_sub(1)?,
        10 => (lane + 1) % lanes,
        11 => (lane + lanes - 1) % lanes,
        QUAD => lane & !3 | parameter >> (2 * (lane & 3)) & 3,
        _ => lane & !7 | parameter >> (3 * (lane & 7)) & 7,
    })
}

fn run(context: &mut Context<'_, '_>, instruction: &Instruction) -> Outcome {
    let [kind, parameter, masks, flags] = instruction.detail;
    let wave = &mut *context.wave;
    let exec = wave.exec();
    let Some(register) = instruction.src[0][0].vgpr() else {
        return Ok(());
    };
    let own = wave.vgpr.len() - 1;
    let mut row = [0; 64];
    let mut known = [u64::MAX; 2];
    let mut active = 0_u64;
    for lane in (0..wave.lanes).filter(|lane| exec >> lane & 1 == 1) {
        let from = source_lane(kind, parameter, lane, wave.lanes)
            .filter(|from| flags & 2 != 0 || exec >> from & 1 == 1);
        let in_rows = masks >> (lane >> 4) & 1 == 1 && masks >> (4 + (lane >> 2 & 3)) & 1 == 1;
        if !in_rows || (from.is_none() && flags & 1 == 0) {
            continue;
        }
        active |= 1 << lane;
        if let Some(from) = from {
            row[lane as usize] = wave.vgpr[register][from as usize];
            for (half, known) in known.iter_mut().enumerate() {
                if wave.vgpr_known[register][half] >> from & 1 == 0 {
                    *known &= !(1 << lane);
                }
            }
        }
    }
    wave.vgpr[own] = row;
    wave.vgpr_known[own] = known;
    let mut other = instruction.clone();
    other.src[0][0].place = Place::Vgpr(own as u16);
    other.run = instruction.inner;
    wave.set_exec(active);
    let outcome = (instruction.inner)(context, &other);
    // An instruction that writes EXEC itself (v_cmpx) keeps its result.
    if instruction.sdst != Some(EXEC as u8) {
        context.wave.set_exec(exec);
    }
    outcome
}
