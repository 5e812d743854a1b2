//! Instructions as the disassembler writes them, with values from the ISA guides' descriptions; a file for each encoding.

mod cross_lane;
mod dpp;
mod half_registers;
mod memory;
mod sdwa;
mod sop;
mod unknown;
mod unsupported;
mod vop;
mod vop3p;
mod vopd;

use crate::code::Stop;
use crate::decode::decode;
use crate::fault::FaultKind;
use crate::interpreter::run;
use crate::launch::Checks;
use crate::memory::Memory;
use crate::space::Space;
use crate::wave::Wave;

/// Executes lines on a wave whose v0 to v31 and s0 to s31 are known. Each line may be followed by ` ; ` and its first word.
pub(super) fn execute(
    arch: &str,
    prepare: impl FnOnce(&mut Wave),
    lines: &[&str],
) -> (Wave, Result<Stop, FaultKind>) {
    let memory = Memory::new();
    execute_with(&memory, arch, prepare, lines)
}

pub(super) fn execute_with(
    memory: &Memory,
    arch: &str,
    prepare: impl FnOnce(&mut Wave),
    lines: &[&str],
) -> (Wave, Result<Stop, FaultKind>) {
    let lanes = if arch.starts_with("gfx9") { 64 } else { 32 };
    let mut text = String::new();
    for (i, line) in lines.iter().chain(&["s_endpgm"]).enumerate() {
        let (line, word) = line.split_once(" ; ").unwrap_or((line, "00000000"));
        text += &format!("\t{line} // {:012X}: {word}\n", 8 * i);
    }
    let code = decode(text, arch, lanes);
    let mut wave = Wave::new(lanes, 64, 8);
    wave.set_exec(u64::MAX);
    for register in 0..32 {
        wave.set_sgpr(register, 0);
        for lane in 0..lanes {
            wave.set_vgpr(register, lane, 0);
        }
    }
    prepare(&mut wave);
    let mut space = Space::new(memory, 0, Checks::default(), 0, 1024, (1, lanes, 64));
    space.begin_block();
    space.enter(0);
    let stop = run(&mut wave, &code, &mut space).map_err(|stopped| stopped.kind);
    (wave, stop)
}

pub(super) fn fill(wave: &mut Wave, register: usize, value: impl Fn(u32) -> u32) {
    for lane in 0..wave.lanes {
        wave.set_vgpr(register, lane, value(lane));
    }
}

/// v0 (before: 0xdddddddd) after an instruction on v1, v2 and v3.
fn result(arch: &str, text: &str, operands: [u32; 3]) -> u32 {
    let prepare = |wave: &mut Wave| {
        fill(wave, 0, |_| 0xdddd_dddd);
        for (register, value) in operands.iter().enumerate() {
            fill(wave, register + 1, |_| *value);
        }
    };
    let (wave, stop) = execute(arch, prepare, &[text]);
    assert_eq!(stop, Ok(Stop::End), "{text}");
    let lanes = wave.lanes as usize;
    assert!(
        wave.vgpr[0][..lanes]
            .iter()
            .all(|value| *value == wave.vgpr[0][0]),
        "{text}"
    );
    assert_eq!(
        wave.vgpr_known[0].map(|known| known & wave.all_lanes()),
        [wave.all_lanes(); 2],
        "{text}"
    );
    wave.vgpr[0][0]
}

/// Checks what instructions on v1, v2 and v3 leave in v0: architecture, text, operands, result.
pub(super) fn check(table: &[(&str, &str, [u32; 3], u32)]) {
    for (arch, text, operands, expected) in table {
        let value = result(arch, text, *operands);
        assert_eq!(value, *expected, "{text}: {value:#x}, not {expected:#x}");
    }
}

pub(super) const ONE: u32 = 0x3f80_0000;
pub(super) const TWO: u32 = 0x4000_0000;
pub(super) const THREE: u32 = 0x4040_0000;
pub(super) const NAN: u32 = 0x7fc0_0000;

/// Checks from which lane each lane of v0 comes. Before: v1 is the lane's number, v2 the address of its neighbour, s[2:3] a
/// selector.
pub(super) fn moved(text: &str, arch: &str, from: &dyn Fn(u32) -> u32) {
    let prepare = |wave: &mut Wave| {
        fill(wave, 1, |lane| lane);
        fill(wave, 2, |lane| 4 * (lane ^ 1));
        wave.set_sgpr(2, 0x7654_3210);
        wave.set_sgpr(3, 0xfedc_ba98);
    };
    let (wave, stop) = execute(arch, prepare, &[text]);
    assert_eq!(stop, Ok(Stop::End), "{text}");
    for lane in 0..wave.lanes {
        assert_eq!(wave.vgpr[0][lane as usize], from(lane), "{text}, lane {lane}");
    }
}
