//! DS, MUBUF, FLAT and SMEM: LDS, buffers, scratch and global memory, scalar loads.

use super::{execute, execute_with, fill};
use crate::code::Stop;
use crate::fault::FaultKind;
use crate::memory::{Kind, Memory};
use crate::wave::Wave;

#[test]
fn lds_scratch_and_buffers() {
    let prepare = |wave: &mut Wave| {
        fill(wave, 1, |lane| lane * 8);
        fill(wave, 2, |lane| lane + 100);
        fill(wave, 3, |lane| lane + 200);
        fill(wave, 9, |_| 1);
        for (i, word) in crate::space::SCRATCH_DESCRIPTOR.iter().enumerate() {
            wave.set_sgpr(8 + i, *word);
        }
        wave.set_sgpr(12, 16 * 64);
    };
    let lines = [
        "ds_write2_b32 v1, v2, v3 offset1:1",
        "ds_read_b64 v[4:5], v1",
        "ds_add_rtn_u32 v6, v1, v9",
        "ds_read_u16 v7, v1",
        "buffer_store_dword v2, off, s[8:11], s12 offset:4",
        "buffer_load_dword v8, off, s[8:11], 0 offset:20",
        "scratch_load_dword v10, off, off offset:20",
    ];
    let (wave, stop) = execute("gfx90a", prepare, &lines);
    assert_eq!(stop, Ok(Stop::End));
    let lane = 9;
    assert_eq!((wave.vgpr[4][lane], wave.vgpr[5][lane]), (109, 209));
    assert_eq!((wave.vgpr[6][lane], wave.vgpr[7][lane]), (109, 110));
    assert_eq!((wave.vgpr[8][lane], wave.vgpr[10][lane]), (109, 109));
}

#[test]
fn global_memory() {
    let memory = Memory::new();
    let address = memory.allocate(1024, Kind::Device(0), 256).unwrap();
    memory.write(address, &(0..=255).collect::<Vec<u8>>()).unwrap();
    let prepare = |wave: &mut Wave| {
        wave.set_sgpr(2, address as u32);
        wave.set_sgpr(3, (address >> 32) as u32);
        fill(wave, 1, |lane| 4 * lane);
        fill(wave, 2, |_| 0xdddd_dddd);
        fill(wave, 3, |_| 3);
    };
    let lines = [
        "global_load_d16_hi_b16 v2, v1, s[2:3] offset:2",
        "global_load_i8 v4, v1, s[2:3] offset:128",
        "global_load_b64 v[6:7], v1, s[2:3] offset:-4",
        "global_atomic_add_u32 v8, v1, v3, s[2:3] glc",
        "global_store_b16 v1, v3, s[2:3] offset:256",
        "s_load_b64 s[4:5], s[2:3], 0x8",
    ];
    // The first lane would read before the allocation.
    let start = |wave: &mut Wave| {
        prepare(wave);
        wave.set_exec(!1);
    };
    let (wave, stop) = execute_with(&memory, "gfx1100", start, &lines);
    assert_eq!(stop, Ok(Stop::End));
    assert_eq!(wave.vgpr[2][5], 0x1716_dddd);
    assert_eq!(wave.vgpr[4][5], 0xffff_ff94);
    assert_eq!((wave.vgpr[6][5], wave.vgpr[7][5]), (0x1312_1110, 0x1716_1514));
    assert_eq!(wave.vgpr[8][5], 0x1716_1514);
    // The first lane of the atomic operation, the third dword, had 3 added.
    assert_eq!(wave.sgpr[4..6], [0x0b0a_090b, 0x0f0e_0d0f]);
    let mut stored = [0; 2];
    memory.read(address + 256 + 20, &mut stored).unwrap();
    assert_eq!(stored, [3, 0]);
    let (_, stop) = execute_with(&memory, "gfx1100", prepare, &lines);
    assert!(matches!(stop, Err(FaultKind::OutOfBounds { .. })), "{stop:?}");
}

/// RDNA 4's scalar loads of less than a dword.
#[test]
fn narrow_scalar_loads_are_extended() {
    let memory = Memory::new();
    let address = memory.allocate(256, Kind::Device(0), 256).unwrap();
    memory.write(address, &(0..=255).collect::<Vec<u8>>()).unwrap();
    let prepare = |wave: &mut Wave| {
        wave.set_sgpr(2, address as u32);
        wave.set_sgpr(3, (address >> 32) as u32);
    };
    let lines = [
        "s_load_u8 s4, s[2:3], 0x81",
        "s_load_i8 s5, s[2:3], 0x81",
        "s_load_u16 s6, s[2:3], 0xfe",
        "s_load_i16 s7, s[2:3], 0xfe",
    ];
    let (wave, stop) = execute_with(&memory, "gfx1200", prepare, &lines);
    assert_eq!(stop, Ok(Stop::End));
    assert_eq!(wave.sgpr[4..8], [0x81, 0xffff_ff81, 0xfffe, 0xffff_fffe]);
    for outside in ["s_load_u16 s4, s[2:3], 0x100", "s_load_u16 s4, s[2:3], 0x1"] {
        let (_, stop) = execute_with(&memory, "gfx1200", prepare, &[outside]);
        assert!(stop.is_err(), "{outside}");
    }
}
