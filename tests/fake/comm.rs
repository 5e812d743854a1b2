//! RCCL: collectives of two GPUs, their order, and a rank that is left alone.

use std::thread;

use hipvit::hip::DType;
use hipvit::hip::{
    Comm, DeviceBuffer, Event, Graph, Group, Operand, Reduction, SideStream, Stream, UniqueId, Work,
};

use crate::support::fake::{Fake, Slot};

const N: usize = 1000;

fn streams(fake: &Fake) -> [Stream; 2] {
    fake.set(Slot::Devices, 2);
    let devices = fake.runtime().devices().unwrap();
    [0, 1].map(|n| devices[n].stream().unwrap())
}

fn values(rank: usize, len: usize) -> Vec<f32> {
    (0..len).map(|i| ((7 * i + 3 * rank) % 11) as f32).collect()
}

fn uploaded(streams: &[Stream], len: usize) -> Vec<DeviceBuffer<f32>> {
    let streams = streams.iter().enumerate();
    streams
        .map(|(rank, stream)| stream.upload(&values(rank, len)).unwrap())
        .collect()
}

#[test]
fn every_collective_of_two_gpus() {
    let fake = Fake::new("comm");
    {
        let streams = streams(&fake);
        let comms = Comm::all(&streams).unwrap();
        let zeroed = |len: usize| -> Vec<DeviceBuffer<f32>> {
            streams.iter().map(|stream| stream.zeroed(len).unwrap()).collect()
        };
        let [a, b] = [values(0, 2 * N), values(1, 2 * N)];
        let sum: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();

        let (sources, mut targets) = (uploaded(&streams, 2 * N), zeroed(2 * N));
        for (reduction, combine) in [
            (Reduction::Sum, (|a, b| a + b) as fn(f32, f32) -> f32),
            (Reduction::Product, |a, b| a * b),
            (Reduction::Max, f32::max),
            (Reduction::Min, f32::min),
            (Reduction::Mean, |a, b| (a + b) / 2.0),
        ] {
            let mut group = Group::new();
            for ((comm, source), target) in comms.iter().zip(&sources).zip(&mut targets) {
                group
                    .all_reduce(comm, DType::F32, reduction, source, target)
                    .unwrap();
            }
            group.submit().unwrap();
            let expected: Vec<f32> = a.iter().zip(&b).map(|(&a, &b)| combine(a, b)).collect();
            for target in &targets {
                assert_eq!(target.read().unwrap(), expected, "{reduction:?}");
            }
        }

        let mut parts = zeroed(N);
        let mut group = Group::new();
        for ((comm, source), part) in comms.iter().zip(&sources).zip(&mut parts) {
            group
                .reduce_scatter(comm, DType::F32, Reduction::Sum, source, part)
                .unwrap();
        }
        group.submit().unwrap();
        let mut group = Group::new();
        for ((comm, part), target) in comms.iter().zip(&parts).zip(&mut targets) {
            group.all_gather(comm, DType::F32, part, target).unwrap();
        }
        group.submit().unwrap();
        assert_eq!(parts[1].read().unwrap(), sum[N..]);
        assert_eq!(targets[0].read().unwrap(), sum);
        assert_eq!(targets[1].read().unwrap(), sum);

        let mut swapped = zeroed(2 * N);
        let mut group = Group::new();
        for ((comm, source), target) in comms.iter().zip(&sources).zip(&mut swapped) {
            group.send(comm, DType::F32, 1 - comm.rank(), source).unwrap();
            group.receive(comm, DType::F32, 1 - comm.rank(), target).unwrap();
        }
        group.submit().unwrap();
        assert_eq!(swapped[0].read().unwrap(), b);
        assert_eq!(swapped[1].read().unwrap(), a);

        let mut group = Group::new();
        for (comm, target) in comms.iter().zip(&mut swapped) {
            group.broadcast(comm, DType::F32, 1, target).unwrap();
        }
        group.submit().unwrap();
        assert_eq!(swapped[0].read().unwrap(), a);
        Group::new().submit().unwrap();
    }
    fake.assert_clean();
}

/// The work of a group is queued only at its end. A buffer that is dropped right after it stays alive until
/// then.
#[test]
fn collectives_are_ordered_with_their_streams() {
    let fake = Fake::new("comm-order");
    {
        let streams = streams(&fake);
        let comms = Comm::all(&streams).unwrap();
        for round in 0..20 {
            let mut buffers = uploaded(&streams, N);
            let mut group = Group::new();
            for (comm, buffer) in comms.iter().zip(&mut buffers) {
                group
                    .all_reduce_in_place(comm, DType::F32, Reduction::Max, buffer)
                    .unwrap();
            }
            group.submit().unwrap();
            let moved = streams[0].device().stream().unwrap();
            let second = buffers.pop().unwrap();
            let first = buffers.pop().unwrap();
            let first = first.move_to(&moved, &streams[0].mark().unwrap()).unwrap();
            drop(second);
            let mut next = streams[1].allocate::<f32>(N).unwrap();
            next.fill(0xff).unwrap();
            let expected: Vec<f32> = values(0, N)
                .into_iter()
                .zip(values(1, N))
                .map(|(a, b)| a.max(b))
                .collect();
            assert_eq!(first.read().unwrap(), expected, "{round}");
        }
    }
    fake.assert_clean();
}

/// Submits the sum of a buffer over both ranks to side streams. Returns an event for each rank.
fn sum_beside(comms: &[Comm], sides: &[SideStream], buffers: &mut [DeviceBuffer<f32>]) -> Vec<Event> {
    thread::scope(|scope| {
        let ranks = comms.iter().zip(sides).zip(buffers);
        let submit = |((comm, side), buffer): ((&Comm, &SideStream), &mut DeviceBuffer<f32>)| {
            let mut group = Group::new();
            group
                .all_reduce_in_place(comm, DType::F32, Reduction::Sum, buffer)
                .unwrap();
            group.submit_beside(side).unwrap()
        };
        let threads: Vec<_> = ranks.map(|rank| scope.spawn(move || submit(rank))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// The streams go on during a collective. What they submit before it is complete when it starts, and they wait for its end.
#[test]
fn collectives_run_beside_their_streams() {
    let fake = Fake::new("comm-beside");
    {
        let streams = streams(&fake);
        let comms = Comm::all(&streams).unwrap();
        let sides = streams.clone().map(|stream| SideStream::new(&stream).unwrap());
        let before = fake.get(Slot::Overlaps);
        for round in 0..10 {
            let mut buffers = uploaded(&streams, N);
            let done = sum_beside(&comms, &sides, &mut buffers);
            let mut others: Vec<DeviceBuffer<f32>> =
                streams.iter().map(|stream| stream.allocate(N).unwrap()).collect();
            others.iter_mut().for_each(|other| other.fill(0).unwrap());
            streams
                .iter()
                .zip(&done)
                .for_each(|(stream, done)| stream.wait(done).unwrap());
            let expected: Vec<f32> = values(0, N)
                .into_iter()
                .zip(values(1, N))
                .map(|(a, b)| a + b)
                .collect();
            for (buffer, other) in buffers.iter().zip(&others) {
                assert_eq!(buffer.read().unwrap(), expected, "{round}");
                assert_eq!(other.read().unwrap(), [0.0; N]);
            }
        }
        assert!(fake.get(Slot::Overlaps) > before);
    }
    fake.assert_clean();
}

/// The next owner of memory waits for the side stream of the last one.
#[test]
fn memory_is_reused_after_a_collective_beside_its_stream() {
    let fake = Fake::new("comm-beside-reuse");
    {
        let streams = streams(&fake);
        let comms = Comm::all(&streams).unwrap();
        let sides = streams.clone().map(|stream| SideStream::new(&stream).unwrap());
        for _ in 0..10 {
            let mut buffers = uploaded(&streams, N);
            let addresses: Vec<_> = buffers.iter().map(DeviceBuffer::address).collect();
            sum_beside(&comms, &sides, &mut buffers);
            drop(buffers);
            for (stream, address) in streams.iter().zip(addresses) {
                let mut next = stream.allocate::<f32>(N).unwrap();
                assert_eq!(next.address(), address);
                next.fill(0).unwrap();
                assert_eq!(next.read().unwrap(), [0.0; N]);
            }
        }
        let mut buffers = uploaded(&streams, N);
        let other = SideStream::new(&streams[0]).unwrap();
        for (comm, side) in [(&comms[0], &other), (&comms[1], &other)] {
            let mut group = Group::new();
            let buffer = &mut buffers[comm.rank()];
            group
                .all_reduce_in_place(comm, DType::F32, Reduction::Sum, buffer)
                .unwrap();
            let error = group.submit_beside(side).unwrap_err().to_string();
            assert!(error.contains("side stream"), "{error}");
        }
    }
    fake.assert_clean();
}

#[test]
fn ranks_of_two_threads_find_each_other_by_an_id() {
    let fake = Fake::new("comm-id");
    {
        let streams = streams(&fake);
        let id = UniqueId::new(streams[0].device()).unwrap();
        assert!(UniqueId::new(streams[0].device()).unwrap() != id);
        thread::scope(|scope| {
            for (rank, stream) in streams.iter().enumerate() {
                scope.spawn(move || {
                    let comm = Comm::with_id(stream, id, rank, 2).unwrap();
                    let mut buffer = stream.upload(&[1.0 + rank as f32; N]).unwrap();
                    for _ in 0..5 {
                        comm.all_reduce_in_place(DType::F32, Reduction::Sum, &mut buffer)
                            .unwrap();
                    }
                    assert_eq!(buffer.read().unwrap(), [48.0; N]);
                });
            }
        });
        let error = Comm::with_id(&streams[0], id, 2, 2).unwrap_err().to_string();
        assert_eq!(error, "rank: 2 of 2");
    }
    fake.assert_clean();
}

#[test]
fn a_rank_that_waits_in_vain_is_aborted() {
    let fake = Fake::new("comm-abort");
    {
        let streams = streams(&fake);
        let mut comms = Comm::all(&streams).unwrap();
        let mut buffer = streams[0].upload(&values(0, N)).unwrap();
        comms[0]
            .all_reduce_in_place(DType::F32, Reduction::Sum, &mut buffer)
            .unwrap();
        comms[0].check().unwrap();
        comms[1].abort().unwrap();
        let error = comms[0].check().unwrap_err().to_string();
        // By the call, or by the watchdog if that was faster.
        assert!(error.contains("ncclRemoteError"), "{error}");
        let error = comms[1].check().unwrap_err().to_string();
        assert_eq!(error, "communicator: was aborted");
        comms[0].abort().unwrap();
        let error = buffer.read().unwrap_err().to_string();
        assert!(error.contains("hipErrorLaunchFailure"), "{error}");
        comms.clear();
    }
    fake.assert_clean();
}

#[test]
fn wrong_operands_are_refused() {
    let fake = Fake::new("comm-wrong");
    {
        let streams = streams(&fake);
        let comms = Comm::all(&streams).unwrap();
        let (x, mut y) = (
            streams[0].zeroed::<f32>(N).unwrap(),
            streams[0].zeroed::<f32>(N).unwrap(),
        );
        let gather = comms[0].all_gather(DType::F32, &x, &mut y).unwrap_err();
        assert_eq!(gather.to_string(), "target: has 4000 bytes where 8000 are needed");
        let foreign = comms[1]
            .all_reduce(DType::F32, Reduction::Sum, &x, &mut y)
            .unwrap_err();
        assert!(
            foreign
                .to_string()
                .starts_with("operand: belongs to a different stream"),
            "{foreign}"
        );
        let same = Comm::all(&[streams[0].clone(), streams[0].clone()]).unwrap_err();
        assert_eq!(same.to_string(), "streams: two of them are of the same GPU");
        assert!(Comm::all(&[]).is_err());
    }
    fake.assert_clean();
}

/// A graph with a captured collective keeps the rank, and does not run after the rank was aborted.
#[test]
fn a_captured_collective_keeps_its_rank() {
    struct Mean {
        comm: Option<Comm>,
        buffer: DeviceBuffer<f32>,
    }
    impl Work for Mean {
        type Error = hipvit::hip::Error;

        fn enqueue(&mut self, _stream: &Stream) -> hipvit::hip::Result<()> {
            let comm = self.comm.as_ref().unwrap();
            comm.all_reduce_in_place(DType::F32, Reduction::Mean, &mut self.buffer)
        }
        fn outputs(&mut self) -> Vec<Operand<'_>> {
            Vec::new()
        }
    }
    let fake = Fake::new("comm-graph");
    {
        let stream = fake.stream();
        let comm = Comm::all(std::slice::from_ref(&stream)).unwrap().remove(0);
        let mean = Mean {
            comm: Some(comm.clone()),
            buffer: stream.upload(&[3.0f32; N]).unwrap(),
        };
        let mut graph = Graph::new(&stream, mean).unwrap();
        assert_eq!(graph.fallback(), None);
        graph.work_mut().comm = None;
        graph.run().unwrap();
        assert_eq!(graph.work().buffer.read().unwrap(), [3.0; N]);
        comm.abort().unwrap();
        let error = graph.run().unwrap_err().to_string();
        assert_eq!(error, "communicator: was aborted");
    }
    fake.assert_clean();
}
