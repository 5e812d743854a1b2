use super::class::{Class, Event, Unit};
use super::lds::cycles;

/// Cycles in all, and those of conflicts, of an access at the offsets that `offset` gives.
fn of(lanes: u32, bytes: u32, load: bool, offset: impl Fn(u64) -> u64) -> (u64, u64) {
    let offsets = std::array::from_fn(|lane| offset(lane as u64));
    cycles(&offsets, u64::MAX >> (64 - lanes), lanes, bytes, load)
}

#[test]
fn consecutive_accesses_take_128_bytes_per_cycle() {
    for (lanes, bytes) in [(64, 4), (64, 8), (64, 16), (32, 4), (32, 8), (32, 16)] {
        let expected = u64::from(lanes * bytes / 128);
        for load in [true, false] {
            assert_eq!(
                of(lanes, bytes, load, |lane| lane * u64::from(bytes)),
                (expected, 0),
                "{lanes} {bytes}"
            );
        }
    }
    // Half a dword per lane: two lanes share each dword.
    assert_eq!(of(64, 2, true, |lane| 2 * lane), (2, 0));
}

#[test]
fn bank_conflicts_are_counted() {
    // A stride of 32 dwords: every lane of a group in the same bank.
    assert_eq!(of(64, 4, true, |lane| 128 * lane), (64, 62));
    // A stride of two dwords: two lanes in each bank.
    assert_eq!(of(64, 4, true, |lane| 8 * lane), (4, 2));
    // A dword that all lanes read is a broadcast.
    assert_eq!(of(64, 4, true, |_| 64), (2, 0));
    // Rows of 128 bytes, a column of 16 bytes each: eight lanes of a group in the same four banks.
    assert_eq!(of(64, 16, false, |lane| 128 * lane), (64, 56));
    // Padded by 16 bytes, eight consecutive lanes do not conflict.
    assert_eq!(of(64, 16, false, |lane| 144 * lane), (8, 0));
}

#[test]
fn inactive_lanes_take_no_cycles() {
    assert_eq!(cycles(&[0; 64], 0, 64, 4, true), (0, 0));
    let offsets = std::array::from_fn(|lane| 128 * lane as u64);
    assert_eq!(cycles(&offsets, 0b11, 64, 4, true), (2, 1));
}

#[test]
fn instructions_are_classified() {
    for (mnemonic, class) in [
        ("v_fma_f32", Class::Valu),
        ("v_dual_mov_b32", Class::Valu),
        ("v_cvt_f16_f32", Class::Valu),
        ("v_exp_f32_e32", Class::Transcendental),
        ("v_rsq_f32_e32", Class::Transcendental),
        ("v_mfma_f32_16x16x16_f16", Class::Matrix),
        ("v_wmma_f32_16x16x16_bf16", Class::Matrix),
        ("s_add_i32", Class::Salu),
        ("s_load_dwordx2", Class::ScalarMemory),
        ("global_load_dwordx4", Class::VectorMemory),
        ("buffer_inv", Class::Other),
        ("scratch_load_b32", Class::Scratch),
        ("ds_read_b128", Class::Lds),
        ("s_cbranch_scc1", Class::Branch),
        ("s_barrier", Class::Barrier),
        ("s_waitcnt", Class::Wait),
        ("s_waitcnt_vscnt", Class::Wait),
        ("s_nop", Class::Other),
    ] {
        assert_eq!(Class::of(mnemonic), class, "{mnemonic}");
    }
}

#[test]
fn waits_name_their_counters() {
    let of = |class, text| Event::of(class, text, "gfx942");
    assert_eq!(
        of(Class::Wait, "s_waitcnt vmcnt(3) lgkmcnt(0)"),
        Event::Wait([Some(3), Some(0), None])
    );
    assert_eq!(
        of(Class::Wait, "s_waitcnt lgkmcnt(1)"),
        Event::Wait([None, Some(1), None])
    );
    assert_eq!(
        of(Class::Wait, "s_waitcnt_vscnt null, 0x0"),
        Event::Wait([None; 3])
    );
    assert_eq!(
        of(Class::VectorMemory, "global_store_dword v0, v1, s[0:1]"),
        Event::Access(Unit::Vector, 0)
    );
    let separate = Event::of(Class::VectorMemory, "global_store_b32 v0, v1, s[0:1]", "gfx1100");
    assert_eq!(separate, Event::None);
    let of = |class, text| Event::of(class, text, "gfx1200");
    assert_eq!(
        of(Class::Wait, "s_wait_loadcnt_dscnt 0x301"),
        Event::Wait([Some(3), Some(1), None])
    );
    assert_eq!(
        of(Class::Wait, "s_wait_kmcnt 0x0"),
        Event::Wait([None, None, Some(0)])
    );
    assert_eq!(of(Class::Wait, "s_wait_storecnt 0x0"), Event::None);
    assert_eq!(
        of(Class::ScalarMemory, "s_load_b64 s[0:1], s[2:3], 0x0"),
        Event::Access(Unit::Scalar, 2)
    );
}
