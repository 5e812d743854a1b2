//! Host memory that is lent to a stream: who may access it when.

use hipvit::hip::{Error, Graph, Kernel, Lent, Operand, Stream, Work};

use crate::support::fake::{Fake, LAUNCH, Scale, scale};

const N: usize = 100;

/// Computes `to = 2 · from` in host memory.
struct Double {
    kernel: Kernel<Scale>,
    from: Option<Lent<f32>>,
    to: Lent<f32>,
}

impl Double {
    fn new(stream: &Stream) -> Self {
        Self {
            kernel: scale(stream.device()),
            from: Some(lend(stream, 1.0)),
            to: lend(stream, 0.0),
        }
    }
}

fn lend(stream: &Stream, value: f32) -> Lent<f32> {
    let mut memory = stream.device().pinned(N).unwrap();
    memory.fill(value);
    stream.lend(memory).unwrap()
}

impl Work for Double {
    type Error = Error;

    fn enqueue(&mut self, stream: &Stream) -> Result<(), Error> {
        let (from, to) = (self.from.as_ref().unwrap().reading(), self.to.writing());
        let arguments = Scale {
            from: from.address(),
            to: to.address(),
            n: N as u32,
            factor: 2.0,
        };
        self.kernel.launch(stream, LAUNCH, &arguments, &[from, to])
    }

    fn outputs(&mut self) -> Vec<Operand<'_>> {
        vec![self.to.writing()]
    }
}

#[test]
fn replays_access_memory_only_while_it_is_lent() {
    let fake = Fake::new("lent");
    {
        let stream = fake.stream();
        let mut graph = Graph::new(&stream, Double::new(&stream)).unwrap();
        assert_eq!(graph.fallback(), None);
        let address = graph.work().from.as_ref().unwrap().address();
        for value in [3.0, 5.0] {
            let from = graph.work_mut().from.take().unwrap();
            let mut memory = from.reclaim(&stream.mark().unwrap()).unwrap().wait().unwrap();
            // The host has the memory.
            let error = graph.run().unwrap_err().to_string();
            assert!(error.contains("is not lent to its stream"), "{error}");
            memory.fill(value);
            graph.work_mut().from = Some(stream.lend(memory).unwrap());
            graph.run().unwrap();
            let end = stream.mark().unwrap();
            let view = graph.work().to.host(&end).unwrap();
            assert_eq!(*view, [2.0 * value; N]);
            drop(view);
        }
        assert_eq!(graph.work().from.as_ref().unwrap().address(), address);

        // Other memory has another address, and the graph keeps its own.
        graph.work_mut().from = Some(lend(&stream, 7.0));
        assert_ne!(graph.work().from.as_ref().unwrap().address(), address);
        graph.run().unwrap_err();
        // A stream of its own does not lend it to the graph's.
        let other = fake.device().stream().unwrap();
        graph.work_mut().from = Some(lend(&other, 7.0));
        graph.run().unwrap_err();
    }
    fake.assert_clean();
}

#[test]
fn the_host_waits_for_the_last_use() {
    let fake = Fake::new("lent-order");
    {
        let stream = fake.stream();
        let other = fake.device().stream().unwrap();
        let mut lent = lend(&stream, 1.0);
        let early = stream.mark().unwrap();
        stream.fill(lent.writing(), 0).unwrap();
        let misplaced = "was recorded before the memory's last use, or on another stream";
        for event in [&early, &other.mark().unwrap()] {
            let error = lent.host(event).unwrap_err().to_string();
            assert!(error.contains(misplaced), "{error}");
        }
        let end = stream.mark().unwrap();
        assert_eq!(*lent.host(&end).unwrap(), [0.0; N]);
        stream.fill(lent.writing(), 0xff).unwrap();
        let error = lent.reclaim(&end).unwrap_err().to_string();
        assert!(error.contains(misplaced), "{error}");
        // Dropping it waits for the work.
        let mut lent = lend(&stream, 1.0);
        stream.fill(lent.writing(), 0).unwrap();
        drop(lent);
        assert!(
            stream
                .lend(Fake::new("lent-device").device().pinned::<u8>(1).unwrap())
                .is_err()
        );
    }
    fake.assert_clean();
}
