//! Kernels, graphs, GEMM.

use hipvit::hip::DType;
use hipvit::hip::{
    Blas, Code, DeviceAddress, DeviceBuffer, Gemm, Graph, Kernel, Launch, Matrix, Module, Operand, Stream,
    Work,
};

use crate::support::fake::{Fake, LAUNCH, Scale, Slot, bundle, scale};

/// Computes `to = factor · from` in two launches via `between`.
struct Twice {
    kernel: Kernel<Scale>,
    from: DeviceBuffer<f32>,
    between: DeviceBuffer<f32>,
    to: DeviceBuffer<f32>,
}

const N: usize = 100;

impl Twice {
    fn new(stream: &Stream) -> Self {
        Self {
            kernel: scale(stream.device()),
            from: stream.upload(&[1f32; N]).unwrap(),
            between: stream.allocate(N).unwrap(),
            to: stream.allocate(N).unwrap(),
        }
    }
}

impl Work for Twice {
    type Error = hipvit::hip::Error;

    fn enqueue(&mut self, stream: &Stream) -> hipvit::hip::Result<()> {
        let Self {
            kernel,
            from,
            between,
            to,
        } = self;
        let step = |from: Operand<'_>, to: Operand<'_>| {
            let arguments = Scale {
                from: from.address(),
                to: to.address(),
                n: N as u32,
                factor: 2.0,
            };
            kernel.launch(stream, LAUNCH, &arguments, &[from, to])
        };
        step(from.reading(), between.writing())?;
        step(between.reading(), to.writing())
    }

    fn outputs(&mut self) -> Vec<Operand<'_>> {
        vec![self.to.writing()]
    }

    fn intermediates(&mut self) -> Vec<Operand<'_>> {
        vec![self.between.writing()]
    }
}

#[test]
fn a_graph_replays_with_new_inputs() {
    let fake = Fake::new("graph");
    {
        let stream = fake.stream();
        let mut graph = Graph::new(&stream, Twice::new(&stream)).unwrap();
        assert_eq!(graph.fallback(), None);
        assert_eq!(graph.work().to.read().unwrap(), [4.0; N]);
        graph.work_mut().from.write(&[5.0; N]).unwrap();
        graph.run().unwrap();
        assert_eq!(graph.work().to.read().unwrap(), [20.0; N]);

        // A buffer of the graph may be dropped; its memory stays.
        let work = graph.work_mut();
        work.between = stream.zeroed(N).unwrap();
        let mut other = stream.zeroed::<f32>(N).unwrap();
        graph.run().unwrap();
        assert_eq!(graph.work().to.read().unwrap(), [20.0; N]);
        assert_eq!(other.read().unwrap(), [0.0; N]);
        let error = other.move_to(&stream, &stream.record().unwrap());
        other = error.unwrap();
        drop(other);
    }
    fake.assert_clean();
}

/// The replay may omit any part of the work.
#[test]
fn a_wrong_replay_falls_back_and_says_so() {
    let fake = Fake::new("replay");
    for left_out in [1, 2] {
        let stream = fake.stream();
        fake.set(Slot::CorruptReplay, left_out);
        let mut graph = Graph::new(&stream, Twice::new(&stream)).unwrap();
        let reason = graph.fallback().unwrap();
        assert!(
            reason.contains("differs from the eager run in 400 of 400 bytes of output 0"),
            "{left_out}: {reason}"
        );
        assert_eq!(graph.work().to.read().unwrap(), [4.0; N]);
        graph.work_mut().from.write(&[3.0; N]).unwrap();
        graph.run().unwrap();
        assert_eq!(graph.work().to.read().unwrap(), [12.0; N]);
    }
    fake.assert_clean();
}

/// Work that copies from the host cannot be captured; it still runs.
#[test]
fn work_that_cannot_be_captured_runs_eagerly() {
    struct Allocates(DeviceBuffer<f32>);
    impl Work for Allocates {
        type Error = hipvit::hip::Error;

        fn enqueue(&mut self, stream: &Stream) -> hipvit::hip::Result<()> {
            let scratch = stream.zeroed::<f32>(N)?;
            self.0.copy_from(scratch.reading())
        }
        fn outputs(&mut self) -> Vec<Operand<'_>> {
            vec![self.0.writing()]
        }
    }
    let fake = Fake::new("uncapturable");
    {
        let stream = fake.stream();
        let mut graph = Graph::new(&stream, Allocates(stream.allocate(N).unwrap())).unwrap();
        let reason = graph.fallback().unwrap();
        assert_eq!(reason, "graph: an allocation cannot be part of a captured graph");
        graph.run().unwrap();
        assert_eq!(graph.work().0.read().unwrap(), [0.0; N]);
    }
    fake.assert_clean();
}

#[test]
fn a_launch_is_checked_against_its_operands_and_the_device() {
    let fake = Fake::new("launch");
    {
        let stream = fake.stream();
        let kernel = scale(stream.device());
        let from = stream.upload(&[1f32; N]).unwrap();
        let mut to = stream.zeroed::<f32>(N).unwrap();
        let good = Scale {
            from: from.address(),
            to: to.address(),
            n: N as u32,
            factor: 1.0,
        };
        let mut refused = |launch: Launch, arguments: Scale, writable: bool| {
            let to = if writable { to.writing() } else { to.reading() };
            kernel
                .launch(&stream, launch, &arguments, &[from.reading(), to])
                .unwrap_err()
                .to_string()
        };
        let error = refused(
            LAUNCH,
            Scale {
                n: N as u32 + 1,
                ..good
            },
            true,
        );
        assert!(
            error.contains("404 bytes at") && error.contains("(from)"),
            "{error}"
        );
        let error = refused(
            LAUNCH,
            Scale {
                to: DeviceAddress::NULL,
                ..good
            },
            true,
        );
        assert!(
            error.contains("0x0 (to) are outside every operand that may be written"),
            "{error}"
        );
        let error = refused(LAUNCH, good, false);
        assert!(
            error.contains("(to) are outside every operand that may be written"),
            "{error}"
        );
        for launch in [
            Launch {
                grid: [0, 1, 1],
                ..LAUNCH
            },
            Launch {
                block: [1024, 2, 1],
                ..LAUNCH
            },
            Launch {
                lds_bytes: 98304 - 1023,
                ..LAUNCH
            },
        ] {
            let error = refused(launch, good, true);
            assert!(error.starts_with("launch: scale: "), "{error}");
        }
        let module = Module::load(stream.device(), Code::new(&bundle(&["gfx942"])).unwrap()).unwrap();
        // SAFETY: there is no such kernel.
        let error = unsafe { module.kernel::<Scale>("scalp") }
            .unwrap_err()
            .to_string();
        assert!(error.ends_with("the module has no kernel `scalp`"), "{error}");
    }
    fake.assert_clean();
}

/// The kernel declares 1 KiB. A block gets up to 64 KiB by default, and up to 96 KiB on request.
#[test]
fn dynamic_lds_goes_up_to_what_a_block_can_get() {
    let fake = Fake::new("lds");
    {
        let stream = fake.stream();
        let kernel = scale(stream.device());
        let mut buffer = stream.upload(&[1f32; N]).unwrap();
        let address = buffer.address();
        let arguments = Scale {
            from: address,
            to: address,
            n: N as u32,
            factor: 2.0,
        };
        let mut launch = |kib: u32| {
            let launch = Launch {
                lds_bytes: kib << 10,
                ..LAUNCH
            };
            kernel.launch(&stream, launch, &arguments, &[buffer.writing()])
        };
        for kib in [1, 63, 64, 95, 70] {
            launch(kib).unwrap();
        }
        let error = launch(96).unwrap_err().to_string();
        assert_eq!(
            error,
            "launch: scale: 98304 bytes of dynamic LDS in addition to the 1024 that it declares; \
             a block of GPU 0 (Fake Instinct, gfx942) can have 98304"
        );
        assert_eq!(buffer.read().unwrap(), [32.0; N]);
    }
    fake.assert_clean();
}

/// Row-major GEMMs of every transposition, strided and batched, compared with a plain loop.
#[test]
fn gemms_are_row_major() {
    let fake = Fake::new("gemm");
    {
        let stream = fake.stream();
        let mut blas = Blas::new(&stream).unwrap();
        let (m, n, k) = (3, 4, 5);
        for (turned, batch) in [(0, 1), (1, 1), (2, 1), (3, 1), (0, 2), (3, 3)] {
            let side = |turned: bool, rows: usize, columns: usize| {
                if !turned {
                    Matrix::rows(columns + 2)
                } else {
                    Matrix::transposed(rows + 2)
                }
            };
            let gemm = Gemm {
                batch,
                a: side(turned & 1 != 0, m, k).every(70),
                b: side(turned & 2 != 0, k, n).every(if batch == 3 { 0 } else { 60 }),
                c: Matrix::rows(n + 1).every(20),
                alpha: 2.0,
                beta: 1.0,
                ..Gemm::new(m, n, k, DType::F32)
            };
            let numbers = |len: usize, seed: usize| -> Vec<f32> {
                (0..len).map(|i| ((i * 31 + seed) % 17) as f32 - 8.0).collect()
            };
            let (a, b, before) = (numbers(250, 1), numbers(250, 5), numbers(80, 3));
            let mut expected = before.clone();
            let element = |matrix: &Matrix, values: &[f32], z: usize, row: usize, column: usize| {
                let (row, column) = if matrix.transposed {
                    (column, row)
                } else {
                    (row, column)
                };
                values[z * matrix.batch_stride + row * matrix.stride + column]
            };
            for (z, i, j) in (0..batch).flat_map(|z| (0..m).flat_map(move |i| (0..n).map(move |j| (z, i, j))))
            {
                let sum: f32 = (0..k)
                    .map(|l| element(&gemm.a, &a, z, i, l) * element(&gemm.b, &b, z, l, j))
                    .sum();
                expected[z * 20 + i * (n + 1) + j] += 2.0 * sum;
            }
            let (a, b) = (stream.upload(&a).unwrap(), stream.upload(&b).unwrap());
            let mut c = stream.upload(&before).unwrap();
            blas.gemm(&gemm, a.reading(), b.reading(), c.writing()).unwrap();
            assert_eq!(c.read().unwrap(), expected, "{gemm:?}");
            let small = stream.zeroed::<f32>(3).unwrap();
            let error = blas
                .gemm(&gemm, a.reading(), small.reading(), c.writing())
                .unwrap_err()
                .to_string();
            assert!(error.starts_with("B: has 12 bytes where "), "{error}");
            assert!(blas.gemm(&gemm, a.reading(), b.reading(), c.reading()).is_err());
        }
        let nonsense = Gemm {
            a: Matrix::rows(1),
            ..Gemm::new(2, 2, 2, DType::F32)
        };
        let mut buffer = stream.zeroed::<f32>(100).unwrap();
        let other = stream.zeroed::<f32>(100).unwrap();
        let error = blas
            .gemm(&nonsense, other.reading(), other.reading(), buffer.writing())
            .unwrap_err();
        assert!(error.to_string().contains("a stride is too small"), "{error}");
    }
    fake.assert_clean();
}
