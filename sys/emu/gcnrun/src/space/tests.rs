use super::{PRIVATE_APERTURE, SHARED_APERTURE, Space};
use crate::fault::FaultKind;
use crate::launch::Checks;
use crate::memory::{Kind, Memory};

fn space(memory: &Memory) -> Space<'_> {
    Space::new(memory, 0, Checks::default(), 0, 64, (4, 32, 16))
}

#[test]
fn loads_know_which_bytes_were_written() {
    let memory = Memory::new();
    let address = memory.allocate(32, Kind::Device(0), 1).unwrap();
    let mut space = space(&memory);
    space.global_store(address + 2, [1, 2], 0b11).unwrap();
    space.global_store(address + 4, [5; 8], 0b1111_0011).unwrap();
    assert_eq!(space.global_load::<4>(address).unwrap().1, 0b1100);
    assert_eq!(space.global_load::<16>(address).unwrap().1, 0b0000_1111_0011_1100);
    assert_eq!(space.global_load::<2>(address + 2).unwrap(), ([1, 2], 0b11));
    space.global_store(address + 2, [0], 0).unwrap();
    assert_eq!(space.global_load::<2>(address + 2).unwrap().1, 0b10);
    let mut dwords = [0; 3];
    assert_eq!(space.constant_load(address, &mut dwords), Ok(0b100));

    for place in [SHARED_APERTURE, PRIVATE_APERTURE].map(|half| u64::from(half) << 32) {
        space.flat_store(3, place + 6, [1, 2], 0b11).unwrap();
        assert_eq!(space.flat_load::<4>(3, place + 4).unwrap().1, 0b1100);
    }
    assert_eq!(space.scratch_load::<4>(2, 4).unwrap().1, 0);
    space.begin_block();
    assert_eq!(space.lds_load::<4>(4).unwrap().1, 0);
}

#[test]
fn bounds_and_alignment_hold() {
    let memory = Memory::new();
    let address = memory.allocate(32, Kind::Device(0), 1).unwrap();
    let strict = Checks {
        alignment: true,
        ..Checks::default()
    };
    let mut space = Space::new(&memory, 0, strict, 0, 64, (4, 32, 16));
    assert!(space.global_load::<8>(address + 24).is_ok());
    assert!(matches!(
        space.global_load::<8>(address + 28),
        Err(FaultKind::OutOfBounds { .. })
    ));
    assert!(matches!(
        space.global_load::<4>(address + 2),
        Err(FaultKind::Misaligned { alignment: 4, .. })
    ));
    assert!(matches!(
        space.global_load::<2>(address + 1),
        Err(FaultKind::Misaligned { alignment: 2, .. })
    ));
    assert!(matches!(
        space.lds_load::<4>(64),
        Err(FaultKind::LdsOverrun {
            offset: 64,
            bytes: 4,
            size: 64
        })
    ));
    assert!(matches!(
        space.lds_load::<4>(u32::MAX - 3),
        Err(FaultKind::LdsOverrun { .. })
    ));
    assert!(matches!(
        space.scratch_store(0, 16, [0], 1),
        Err(FaultKind::ScratchOverrun { .. })
    ));
    memory.free(address).unwrap();
    assert!(matches!(
        space.global_load::<8>(address),
        Err(FaultKind::UseAfterFree { .. })
    ));
}

#[test]
fn waves_race_without_a_barrier_alone() {
    let memory = Memory::new();
    let mut space = space(&memory);
    let race = |other: u32, other_wrote| FaultKind::LdsRace {
        offset: 8,
        other: Some(other),
        other_wrote,
    };
    space.enter(0);
    space.lds_store(8, [1; 4], 15).unwrap();
    assert!(space.lds_load::<4>(8).is_ok());
    space.enter(1);
    assert_eq!(space.lds_load::<4>(8), Err(race(0, true)));
    assert_eq!(space.lds_store(8, [2; 4], 15), Err(race(0, true)));
    // Beside it there is no race, even in a dword of half-words.
    space.lds_store(12, [2; 2], 3).unwrap();
    space.enter(2);
    space.lds_store(14, [3; 2], 3).unwrap();
    space.enter(1);
    space.pass_barrier();
    assert!(space.lds_load::<4>(8).is_ok());
    space.enter(2);
    assert!(space.lds_load::<4>(8).is_ok());
    space.enter(1);
    assert!(matches!(
        space.lds_store(8, [2; 4], 15),
        Err(FaultKind::LdsRace { .. })
    ));
    // What is there already may be written: the outcome is one.
    assert_eq!(space.lds_store(8, [1; 4], 15), Ok(()));
}

#[test]
fn atomics_do_not_race_among_themselves() {
    let memory = Memory::new();
    let mut space = space(&memory);
    space.enter(0);
    space.lds_store(8, [0; 4], 15).unwrap();
    assert!(space.lds_update32(8, |old| old + 1).is_ok());
    space.enter(1);
    assert!(matches!(
        space.lds_update32(8, |old| old + 1),
        Err(FaultKind::LdsRace { .. })
    ));
    space.pass_barrier();
    for wave in 0..4 {
        space.enter(wave);
        assert_eq!(space.lds_update32(8, |old| old + 1), Ok(1 + wave));
    }
    assert!(matches!(space.lds_load::<4>(8), Err(FaultKind::LdsRace { .. })));
    space.pass_barrier();
    assert_eq!(space.lds_load::<4>(8).unwrap().0, 5_u32.to_le_bytes());
}
