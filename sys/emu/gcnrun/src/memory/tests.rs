use super::{Kind, Memory, MemoryError, POISON};
use crate::fault::FaultKind;

const DEVICE: Kind = Kind::Device(0);

#[test]
fn bytes_come_back_at_every_offset_and_length() {
    let memory = Memory::new();
    let address = memory.allocate(97, DEVICE, 1).unwrap();
    let bytes: Vec<u8> = (0..97_u8).map(|i| i.wrapping_mul(7)).collect();
    memory.write(address, &bytes).unwrap();
    for begin in 0..97 {
        for end in [begin, begin + 1, begin + 3, begin + 8, 97] {
            let end = end.min(97);
            let mut read = vec![0; end - begin];
            memory.read(address + begin as u64, &mut read).unwrap();
            assert_eq!(read, bytes[begin..end], "{begin}..{end}");
        }
    }
    // A write in the middle leaves the adjacent bytes alone.
    memory.write(address + 5, &[0xff; 6]).unwrap();
    let mut read = [0; 97];
    memory.read(address, &mut read).unwrap();
    assert_eq!((&read[..5], &read[11..]), (&bytes[..5], &bytes[11..]));
}

#[test]
fn both_bounds_are_checked() {
    let memory = Memory::new();
    let address = memory.allocate(10, DEVICE, 4096).unwrap();
    assert_eq!(address % 4096, 0);
    let nearest = Some((address, 10));
    assert_eq!(memory.write(address + 6, &[1; 4]), Ok(()));
    assert_eq!(
        memory.write(address + 7, &[1; 4]),
        Err(FaultKind::OutOfBounds {
            address: address + 7,
            bytes: 4,
            nearest
        })
    );
    assert_eq!(
        memory.read(address - 1, &mut [0]),
        Err(FaultKind::OutOfBounds {
            address: address - 1,
            bytes: 1,
            nearest: None
        })
    );
    assert_eq!(memory.read(address, &mut []), Ok(()));
    assert_eq!(memory.find(address + 10), None);
    assert_eq!(memory.find(address + 9).map(|found| found.len), Some(10));
}

#[test]
fn fresh_memory_is_unwritten_poison() {
    let memory = Memory::new();
    let address = memory.allocate(16, DEVICE, 1).unwrap();
    let mut bytes = [0; 4];
    memory.read(address + 8, &mut bytes).unwrap();
    assert_eq!(u32::from_le_bytes(bytes), POISON);
    assert!(f32::from_bits(POISON).is_nan());
    assert!(half::f16::from_bits(POISON as u16).is_nan());
    assert!(half::bf16::from_bits(POISON as u16).is_nan());
    assert_eq!(memory.first_unwritten(address, 16), Ok(Some(address)));
    memory.write(address, &[0; 5]).unwrap();
    memory.fill(address + 6, &[1, 2], 5).unwrap();
    assert_eq!(memory.first_unwritten(address, 16), Ok(Some(address + 5)));
    memory.write(address + 5, &[0]).unwrap();
    assert_eq!(memory.first_unwritten(address, 16), Ok(None));
}

#[test]
fn the_host_counts_as_having_written_its_memory() {
    let memory = Memory::new();
    let pinned = memory.allocate(8, Kind::Pinned, 1).unwrap();
    assert_eq!(memory.first_unwritten(pinned, 8), Ok(None));
    let mut host = [1_u8, 2, 3, 4, 5];
    // SAFETY: `host` outlives the registration, and nothing else accesses it meanwhile.
    let registered = unsafe { memory.register(host.as_mut_ptr(), 5) }.unwrap();
    let mut read = [0; 4];
    memory.read(registered + 1, &mut read).unwrap();
    assert_eq!(read, [2, 3, 4, 5]);
    memory.free(registered).unwrap();
    assert!(memory.read(registered, &mut read).is_err());
    assert_eq!(memory.find(registered), None, "the host's own again");
}

#[test]
fn a_copy_leaves_unwritten_bytes_unwritten() {
    let memory = Memory::new();
    let from = memory.allocate(12, DEVICE, 1).unwrap();
    let to = memory.allocate(12, DEVICE, 1).unwrap();
    memory.fill(to, &[9], 12).unwrap();
    memory.write(from, &[1, 2, 3]).unwrap();
    memory.write(from + 4, &[4; 8]).unwrap();
    memory.copy(to + 1, from, 8).unwrap();
    assert_eq!(memory.first_unwritten(to, 12), Ok(Some(to + 4)));
    assert_eq!(memory.first_unwritten(to + 5, 7), Ok(None));
    // Ranges that overlap.
    memory.copy(from + 1, from, 3).unwrap();
    let mut read = [0; 4];
    memory.read(from, &mut read).unwrap();
    assert_eq!(read, [1, 1, 2, 3]);
}

#[test]
fn a_fill_repeats_a_long_pattern() {
    let memory = Memory::new();
    let address = memory.allocate(300_001, DEVICE, 1).unwrap();
    memory.fill(address, &[1, 2, 3], 100_000).unwrap();
    let mut read = vec![0; 300_000];
    memory.read(address, &mut read).unwrap();
    assert!(read.chunks(3).all(|part| part == [1, 2, 3]));
    assert_eq!(
        memory.first_unwritten(address, 300_001),
        Ok(Some(address + 300_000))
    );
}

#[test]
fn use_after_free_is_detected() {
    let memory = Memory::new();
    let address = memory.allocate(64, DEVICE, 1).unwrap();
    memory.fill(address, &[7], 64).unwrap();
    memory.free(address).unwrap();
    assert_eq!(
        memory.read(address + 4, &mut [0]),
        Err(FaultKind::UseAfterFree {
            address: address + 4,
            allocation: (address, 64)
        })
    );
    assert_eq!(memory.find(address).map(|found| found.live), Some(false));
    assert_eq!(memory.free(address), Err(MemoryError::DoubleFree { address }));
    assert_eq!(
        memory.free(address + 4),
        Err(MemoryError::NotAllocated { address: address + 4 })
    );
}

#[test]
fn the_quarantine_is_bounded() {
    let memory = Memory::new();
    let first = memory.allocate(1 << 20, DEVICE, 1).unwrap();
    memory.free(first).unwrap();
    for _ in 0..600 {
        let address = memory.allocate(1 << 20, DEVICE, 1).unwrap();
        memory.free(address).unwrap();
    }
    let held = (
        memory.0.table.read().unwrap().quarantined >> 20,
        super::QUARANTINE_BYTES >> 20,
    );
    assert_eq!(held.0, held.1);
}

#[test]
fn host_writes_beyond_an_allocation_are_detected() {
    let memory = Memory::new();
    let address = memory.allocate(6, Kind::Pinned, 1).unwrap();
    // SAFETY: the redzone is part of the allocation, which is live.
    unsafe { (address as *mut u8).add(8).write(0) };
    assert_eq!(
        memory.free(address),
        Err(MemoryError::Overrun {
            address,
            bytes: 6,
            kind: Kind::Pinned
        })
    );
}

#[test]
fn another_devices_memory_needs_peer_access() {
    let memory = Memory::new();
    let address = memory.allocate(8, Kind::Device(1), 1).unwrap();
    assert!(memory.accessible(1, address, 8).is_ok());
    let refused = memory.accessible(0, address, 8).map(drop);
    assert_eq!(refused, Err(FaultKind::NoPeerAccess { address, owner: 1 }));
    memory.allow_peer(0, 1, true);
    assert!(memory.accessible(0, address, 8).is_ok());
    memory.allow_peer(0, 1, false);
    assert!(memory.accessible(0, address, 8).is_err());
}

#[test]
fn empty_and_huge_allocations_are_refused() {
    let memory = Memory::new();
    for bytes in [0, u64::MAX, 1 << 62] {
        assert_eq!(
            memory.allocate(bytes, DEVICE, 1),
            Err(MemoryError::OutOfMemory { bytes })
        );
    }
}

#[test]
fn atomic_updates_of_threads_are_not_lost() {
    let memory = Memory::new();
    let address = memory.allocate(16, DEVICE, 1).unwrap();
    memory.fill(address, &[0], 16).unwrap();
    let block = memory.accessible(0, address, 16).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..1000 {
                    block.update32(4, |old| old + 1);
                    block.update64(8, |old| old + (1 << 32));
                }
            });
        }
    });
    assert_eq!(u32::from_le_bytes(block.load(4)), 4000);
    assert_eq!(u64::from_le_bytes(block.load(8)), 4000 << 32);
}

#[test]
fn clean_memory_is_written_but_for_what_is_marked() {
    let memory = Memory::clean();
    let [address, other] = [(); 2].map(|()| memory.allocate(64, Kind::Device(0), 256).unwrap());
    assert_eq!(memory.first_unwritten(address, 64), Ok(None));
    assert_eq!(memory.unwritten(address, 64), Ok(None));
    memory.taint(address + 5, 2).unwrap();
    let marked = memory.unwritten(address + 4, 4).unwrap().unwrap();
    assert_eq!(marked, [false, true, true, false]);
    // A copy takes the marks along, and what is written is clean.
    memory.copy(other, address, 64).unwrap();
    assert_eq!(memory.first_unwritten(other, 64), Ok(Some(other + 5)));
    memory.write(address, &[1; 8]).unwrap();
    assert_eq!(memory.first_unwritten(address, 64), Ok(None));
    assert!(memory.taint(address + 60, 8).is_err());
}
