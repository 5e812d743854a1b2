//! Buffers, copies, streams, the pool.

use std::mem;
use std::thread;

use hipvit::hip::{ForeignMemory, Operand, PinnedPart, Stream};

use crate::support::fake::{Fake, LAUNCH, Scale, Slot, scale};

#[test]
fn what_is_written_is_read() {
    let fake = Fake::new("roundtrip");
    {
        let stream = fake.stream();
        for len in [0, 1, 1000, 1_300_000] {
            let values: Vec<f32> = (0..len).map(|n| n as f32).collect();
            assert_eq!(stream.upload(&values).unwrap().read().unwrap(), values, "{len}");
        }
        let mut copy = stream.zeroed::<u8>(3).unwrap();
        assert_eq!(copy.read().unwrap(), [0; 3]);
        let original = stream.upload(&[1u8, 2, 3]).unwrap();
        copy.copy_from(original.reading()).unwrap();
        drop(original);
        assert_eq!(copy.read().unwrap(), [1, 2, 3]);
        assert!(copy.copy_from(stream.zeroed::<u8>(4).unwrap().reading()).is_err());
    }
    fake.assert_clean();
}

/// Memory of another library is used on its stream, and neither is freed with its wrapper.
#[test]
#[allow(unsafe_code, reason = "wraps a stream and memory of another library")]
fn foreign_memory_is_written_on_a_foreign_stream() {
    let fake = Fake::new("foreign");
    {
        let theirs = fake.stream();
        let buffer = theirs.upload(&[1.0f32, 2.0, 3.0]).unwrap();
        // SAFETY: the stream and the buffer outlive what wraps them, and nothing else uses the buffer.
        let (stream, mut memory) = unsafe {
            let stream = theirs.device().foreign_stream(theirs.handle());
            let memory = ForeignMemory::new(&stream, buffer.address(), buffer.bytes());
            (stream, memory)
        };
        assert_eq!((stream.handle(), memory.stream()), (theirs.handle(), &stream));
        let kernel = scale(theirs.device());
        let arguments = Scale {
            from: buffer.address(),
            to: buffer.address(),
            n: 3,
            factor: 2.0,
        };
        let launch =
            |stream: &Stream, operand: Operand<'_>| kernel.launch(stream, LAUNCH, &arguments, &[operand]);
        launch(&stream, memory.writing()).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(buffer.read().unwrap(), [2.0, 4.0, 6.0]);
        let error = launch(&stream, memory.reading()).unwrap_err().to_string();
        assert!(error.contains("that may be written"), "{error}");
        let error = launch(&theirs, memory.writing()).unwrap_err().to_string();
        assert!(error.contains("belongs to a different stream"), "{error}");
        drop((memory, stream));
        assert_eq!(fake.get(Slot::Streams), 1);
        assert_eq!(buffer.read().unwrap(), [2.0, 4.0, 6.0]);
    }
    fake.assert_clean();
}

/// The copy runs after `upload` returned, so dropped or forgotten memory would be accessed.
#[test]
fn a_copy_keeps_its_host_memory() {
    let fake = Fake::new("pending");
    let device = fake.device();
    let stream = device.stream().unwrap();
    let mut buffer = stream.allocate::<u32>(1 << 16).unwrap();
    let mut pinned = device.pinned::<u32>(1 << 16).unwrap();
    assert!(pinned.iter().all(|&n| n == 0), "pinned memory begins as zero");
    pinned.fill(7);
    drop(buffer.upload(0, pinned).unwrap());
    assert_eq!(fake.get(Slot::Pinned), 0, "dropping waits, then frees");
    assert_eq!(buffer.read().unwrap(), [7; 1 << 16]);

    let pinned = device.pinned::<u32>(1 << 16).unwrap();
    mem::forget(buffer.download(0, pinned).unwrap());
    stream.synchronize().unwrap();
    assert_eq!(fake.get(Slot::Pinned), 1, "forgetting leaks");
    assert_eq!(fake.get(Slot::Violations), 0);

    let mut pinned = device.pinned::<u32>(2).unwrap();
    pinned.copy_from_slice(&[1, 2]);
    let pinned = buffer.upload(5, pinned).unwrap().wait().unwrap();
    assert_eq!(*pinned, [1, 2]);
    assert_eq!(buffer.read().unwrap()[4..8], [7, 1, 2, 7]);
    let error = buffer.upload(1 << 16, pinned).unwrap_err().to_string();
    assert_eq!(error, "buffer: 2 elements from 65536 on, of 65536");
}

#[test]
fn a_ring_goes_round() {
    let fake = Fake::new("ring");
    {
        let device = fake.device();
        let stream = device.stream().unwrap();
        let mut buffer = stream.allocate::<u64>(100).unwrap();
        let mut ring = device.pinned_ring::<u64>(3, 1).unwrap();
        for n in 0..100 {
            let mut slot = ring.next().unwrap();
            slot[0] = n * n;
            ring.submitted(buffer.upload(n as usize, slot).unwrap());
        }
        assert_eq!(fake.get(Slot::Pinned), 3);
        ring.wait().unwrap();
        let squares: Vec<u64> = (0..100).map(|n| n * n).collect();
        assert_eq!(buffer.read().unwrap(), squares);
        let out: Vec<_> = (0..3).map(|_| ring.next().unwrap()).collect();
        assert!(
            ring.next()
                .unwrap_err()
                .to_string()
                .contains("all buffers are in use")
        );
        out.into_iter().for_each(|slot| ring.give(slot));
        ring.next().unwrap();
    }
    fake.assert_clean();
}

#[test]
fn any_number_of_values_goes_through_a_small_ring() {
    let fake = Fake::new("through");
    {
        let device = fake.device();
        let stream = device.stream().unwrap();
        let mut ring = device.pinned_ring::<u16>(2, 7).unwrap();
        for len in [0, 1, 6, 7, 8, 14, 100] {
            let values: Vec<u16> = (0..len).collect();
            let mut buffer = stream.allocate::<u16>(len as usize + 3).unwrap();
            buffer.fill(0xff).unwrap();
            buffer.write_through(2, &values, &mut ring).unwrap();
            let all = buffer.read().unwrap();
            assert_eq!(all[2..values.len() + 2], values);
            assert_eq!((all[1], all[values.len() + 2]), (0xffff, 0xffff));
        }
        let mut buffer = stream.allocate::<u16>(10).unwrap();
        let error = buffer.write_through(8, &[1; 3], &mut ring).unwrap_err();
        assert!(
            error.to_string().starts_with("buffer: 3 elements from 8"),
            "{error}"
        );
        let mut empty = device.pinned_ring::<u16>(2, 0).unwrap();
        buffer.write_through(0, &[1; 3], &mut empty).unwrap_err();
    }
    fake.assert_clean();
}

#[test]
fn another_stream_copies_pieces_in_order() {
    let fake = Fake::new("uploads");
    {
        let device = fake.device();
        let (copier, stream) = (device.stream().unwrap(), device.stream().unwrap());
        let mut buffer = stream.zeroed::<u32>(10).unwrap();
        let piece = |values: &[u32]| {
            let mut piece = device.pinned(values.len()).unwrap();
            piece.copy_from_slice(values);
            piece
        };
        let mut uploads = buffer.uploads_on(&copier).unwrap();
        uploads.push(6, piece(&[6, 7])).unwrap();
        let marked = uploads.mark().unwrap();
        uploads.push(0, piece(&[1, 2, 3])).unwrap();
        uploads.push(3, piece(&[4])).unwrap();
        let error = uploads.push(9, piece(&[0, 0])).unwrap_err().to_string();
        assert!(error.starts_with("buffer: 2 elements from 9"), "{error}");
        let rest = uploads.finish().unwrap();
        assert_eq!(buffer.read().unwrap(), [1, 2, 3, 4, 0, 0, 6, 7, 0, 0]);
        assert_eq!(marked.wait().unwrap()[0][..], [6, 7]);
        assert_eq!(rest.wait().unwrap().len(), 2);

        // An unfinished upload is awaited, so that the buffer can be used.
        let mut uploads = buffer.uploads_on(&copier).unwrap();
        uploads.push(8, piece(&[8, 9])).unwrap();
        drop(uploads);
        assert_eq!(buffer.read().unwrap()[8..], [8, 9]);
    }
    fake.assert_clean();
}

#[test]
fn pinned_memory_is_filled_in_parts_by_several_threads() {
    let fake = Fake::new("parts");
    {
        let device = fake.device();
        for (len, part, count) in [(10, 3, 4), (9, 3, 3), (2, 5, 1)] {
            let pinned = device.pinned::<u16>(len).unwrap();
            let mut parts = pinned.split(part).unwrap();
            assert_eq!(parts.len(), count);
            thread::scope(|scope| {
                for (index, part) in parts.iter_mut().enumerate() {
                    scope.spawn(move || part.fill(index as u16));
                }
            });
            let pinned = PinnedPart::join(parts).unwrap();
            let expected: Vec<u16> = (0..len).map(|at| (at / part) as u16).collect();
            assert_eq!(pinned[..], expected[..]);
        }
        device.pinned::<u16>(1).unwrap().split(0).unwrap_err();
        // Parts of any sizes; some are dropped, and keep what they had.
        let mut first = device.pinned::<u16>(10).unwrap().into_part();
        let mut second = first.split_off(3);
        let third = second.split_off(5);
        assert_eq!([first.start(), second.start(), third.start()], [0, 3, 8]);
        assert_eq!([first.len(), second.len(), third.len()], [3, 5, 2]);
        assert!(second.split_off(5).is_empty() && second.split_off(99).is_empty());
        thread::scope(|scope| {
            scope.spawn(|| first.fill(1));
            scope.spawn(|| second.fill(2));
        });
        drop(second);
        assert!(PinnedPart::join(vec![third]).is_err(), "the first is in use");
        let pinned = PinnedPart::join(vec![first]).unwrap();
        assert_eq!(pinned[..], [1, 1, 1, 2, 2, 2, 2, 2, 0, 0]);
        let mut parts = device.pinned::<u16>(4).unwrap().split(2).unwrap();
        let missing = parts.pop();
        let error = PinnedPart::join(parts).unwrap_err().to_string();
        assert!(error.contains("missing"), "{error}");
        drop(missing);
    }
    fake.assert_clean();
}

#[test]
fn another_stream_takes_an_event() {
    let fake = Fake::new("move");
    {
        let device = fake.device();
        let kernel = scale(&device);
        let (first, second) = (device.stream().unwrap(), device.stream().unwrap());
        let n = 1000;
        let mut buffer = first.upload(&vec![1f32; n]).unwrap();
        let run = |stream, buffer: &mut hipvit::hip::DeviceBuffer<f32>| {
            let address = buffer.address();
            let arguments = Scale {
                from: address,
                to: address,
                n: n as u32,
                factor: 2.0,
            };
            kernel.launch(stream, LAUNCH, &arguments, &[buffer.writing()])
        };
        let error = run(&second, &mut buffer).unwrap_err().to_string();
        assert!(
            error.starts_with("operand: belongs to a different stream"),
            "{error}"
        );

        let too_early = first.record().unwrap();
        for _ in 0..20 {
            run(&first, &mut buffer).unwrap();
        }
        let ready = first.record().unwrap();
        let mut buffer = buffer.move_to(&second, &ready).unwrap();
        for _ in 0..3 {
            run(&second, &mut buffer).unwrap();
        }
        assert_eq!(buffer.read().unwrap(), vec![2f32.powi(23); n]);

        let mut buffer = first.upload(&vec![1f32; n]).unwrap();
        run(&first, &mut buffer).unwrap();
        let error = buffer.move_to(&second, &too_early).unwrap_err().to_string();
        assert!(error.starts_with("event: was recorded before"), "{error}");
    }
    fake.assert_clean();
}

#[test]
fn frozen_buffers_are_read_everywhere_and_outlive_their_readers_work() {
    let fake = Fake::new("frozen");
    {
        let device = fake.device();
        let kernel = scale(&device);
        let home = device.stream().unwrap();
        let weights = home.upload(&vec![2f32; 5000]).unwrap().freeze().unwrap();
        let results: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|n| {
                    let (device, weights, kernel) = (&device, &weights, &kernel);
                    scope.spawn(move || {
                        let stream = device.stream().unwrap();
                        let mut out = stream.allocate::<f32>(5000).unwrap();
                        let arguments = Scale {
                            from: weights.address(),
                            to: out.address(),
                            n: 5000,
                            factor: n as f32,
                        };
                        let operands = [weights.reading(), out.writing()];
                        kernel.launch(&stream, LAUNCH, &arguments, &operands).unwrap();
                        out
                    })
                })
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        // Its memory goes to the next buffer of the home stream, whose first use waits for the readers.
        drop(weights);
        let mut next = home.allocate::<f32>(5000).unwrap();
        next.fill(0xff).unwrap();
        for (n, result) in results.iter().enumerate() {
            assert_eq!(result.read().unwrap(), vec![2.0 * n as f32; 5000]);
        }
    }
    fake.assert_clean();
}

#[test]
fn events_tell_the_time() {
    let fake = Fake::new("events");
    let stream = fake.stream();
    let before = stream.record().unwrap();
    let mut buffer = stream.allocate::<u8>(10).unwrap();
    for _ in 0..10 {
        buffer.fill(1).unwrap();
    }
    let after = stream.record().unwrap();
    let elapsed = after.since(&before).unwrap();
    assert!(
        elapsed.as_micros() >= 10 * 100,
        "each of ten runs 100 µs late: {elapsed:?}"
    );
    assert!(after.is_done().unwrap());
    let marked = stream.mark().unwrap();
    for (late, early) in [(&marked, &before), (&marked, &marked)] {
        let error = late.since(early).unwrap_err();
        assert!(error.to_string().contains("has no time"), "{error}");
    }
}

#[test]
fn memory_is_used_again() {
    let fake = Fake::new("pool");
    let device = fake.device();
    {
        let stream = device.stream().unwrap();
        for n in 0..10_000usize {
            let _buffer = stream.allocate::<u8>(1 + n * 7919 % 50_000).unwrap();
        }
        let stats = device.pool_stats();
        assert_eq!((stats.live, stats.blocks), (0, 0));
        assert_eq!(stats.driver_allocations, fake.get(Slot::Mallocs));
        assert!(stats.driver_allocations < 100, "{stats:?}");
        assert_eq!(stats.reuses + stats.driver_allocations, 10_000);
        assert_eq!(stats.held as u64, fake.get(Slot::DeviceBytes));
        assert_eq!(device.trim().unwrap(), stats.held);
        assert_eq!(fake.get(Slot::Allocations), 0);
        drop(stream.allocate::<u8>(1000).unwrap());
    }
    assert_eq!(
        device.runtime().device(0).unwrap(),
        device,
        "one GPU has one pool"
    );
    // The stream was dropped, so any stream can use its memory.
    let mallocs = fake.get(Slot::Mallocs);
    let _again = device.stream().unwrap().allocate::<u8>(1000).unwrap();
    assert_eq!(fake.get(Slot::Mallocs), mallocs);
}

/// Two threads allocate, write, check and free on separate streams, and never see each other's bytes.
#[test]
fn threads_do_not_share_memory() {
    let fake = Fake::new("threads");
    {
        let device = fake.device();
        thread::scope(|scope| {
            for byte in 1..=2u8 {
                let device = &device;
                scope.spawn(move || {
                    let stream = device.stream().unwrap();
                    for n in 0..50usize {
                        let mut buffer = stream.allocate::<u8>(1 + n * 331 % 3000).unwrap();
                        buffer.fill(byte).unwrap();
                        assert!(buffer.read().unwrap().iter().all(|&b| b == byte));
                    }
                });
            }
        });
    }
    fake.assert_clean();
}
