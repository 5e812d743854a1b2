//! Captured work that is replayed, if the replay gives the same results.

use std::fmt;
use std::ptr;
use std::sync::Arc;

use hipvit_sys::hip::{hipGraph_t, hipGraphExec_t, hipMemcpyKind, hipStreamCaptureMode};

use crate::error::{Error, Result};
use crate::memory::buffer::fill;
use crate::memory::operand::Operand;
use crate::memory::pinned::PinnedBuffer;
use crate::status::call;
use crate::stream::{Resource, Stream};

/// Work that a [`Graph`] can capture.
pub trait Work {
    /// Error of submitting the work: this crate's error, or a type that it converts to.
    type Error: From<Error> + fmt::Display;

    /// Submits the work without waiting: launches, library calls and copies on the device, only on `stream`, and on side streams whose
    /// collectives `stream` waits for. Repeated runs must have the same effect: the work must not read its own outputs, unless it writes
    /// them first or [`restore`](Self::restore) sets them.
    ///
    /// # Errors
    ///
    /// The error of a submission.
    fn enqueue(&mut self, stream: &Stream) -> Result<(), Self::Error>;

    /// Returns the operands that the work writes for other readers. A replay is checked by comparing them.
    fn outputs(&mut self) -> Vec<Operand<'_>>;

    /// Returns other operands that the work writes before it reads them. They are overwritten before the checked replay, so that a replay
    /// that omits work cannot find the results of the eager run there.
    fn intermediates(&mut self) -> Vec<Operand<'_>> {
        Vec::new()
    }

    /// Sets memory that the work reads and overwrites to what it was before the first run. Called before each further run.
    ///
    /// # Errors
    ///
    /// The error of a copy.
    fn restore(&mut self, _stream: &Stream) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Waits for the work, and returns what a replay must reproduce of each output: its bytes, or a checksum.
    ///
    /// # Errors
    ///
    /// The error of the work, or of a copy.
    fn results(&mut self, stream: &Stream) -> Result<Vec<Vec<u8>>, Self::Error> {
        Ok(read_outputs(stream, self)?)
    }
}

/// Byte of a NaN in f16, bf16 and f32. Results computed from it are NaN too.
const NO_NUMBER: u8 = 0xff;

/// Work with a [`Replay`] of it. If there is no replay, the work runs eagerly, and [`Graph::fallback`] returns the reason.
pub struct Graph<W> {
    work: W,
    stream: Stream,
    replay: Result<Replay, String>,
}

/// A captured graph whose replay gave the same results as the work.
///
/// Replays compute different results in some ROCm releases. The work is therefore run once and its outputs are saved. Then the outputs and
/// [intermediates](Work::intermediates) are overwritten, the replay runs, and the outputs must be equal byte for byte.
///
/// The replay keeps the memory of the captured work alive, even if its buffers are dropped.
pub struct Replay {
    raw: hipGraphExec_t,
    stream: Stream,
    memory: Vec<Arc<dyn Resource>>,
}

// SAFETY: HIP launches an executable graph from any thread. `Replay::run` has exclusive access. It is destroyed once, by its owner.
unsafe impl Send for Replay {}
// SAFETY: a shared reference has no operations.
unsafe impl Sync for Replay {}

impl<W: Work> Graph<W> {
    /// Runs, captures, replays and compares the work.
    ///
    /// # Errors
    ///
    /// The error of the work if it fails when it runs eagerly. A failed capture or replay is not an error, but a
    /// [fallback](Graph::fallback).
    pub fn new(stream: &Stream, mut work: W) -> Result<Self, W::Error> {
        Ok(Self {
            replay: Replay::new(stream, &mut work)?,
            work,
            stream: stream.clone(),
        })
    }

    /// Submits the replay, or the work itself if there is no replay.
    ///
    /// # Errors
    ///
    /// The error of the submission.
    pub fn run(&mut self) -> Result<(), W::Error> {
        match &mut self.replay {
            Ok(replay) => Ok(replay.run()?),
            Err(_) => self.work.enqueue(&self.stream),
        }
    }
}

impl<W> Graph<W> {
    /// Returns the reason why the work runs eagerly. `None` if it is replayed.
    #[must_use]
    pub fn fallback(&self) -> Option<&str> {
        self.replay.as_ref().err().map(String::as_str)
    }

    /// Returns the work.
    #[must_use]
    pub fn work(&self) -> &W {
        &self.work
    }

    /// Returns the work, to set new inputs. The capture does not change: other shapes or buffers require a new graph.
    #[must_use]
    pub fn work_mut(&mut self) -> &mut W {
        &mut self.work
    }
}

/// Waits for the work, and returns the bytes of its outputs.
///
/// # Errors
///
/// The error of the work, or of a copy.
pub fn read_outputs<W: Work + ?Sized>(stream: &Stream, work: &mut W) -> Result<Vec<Vec<u8>>> {
    let outputs = work.outputs();
    outputs.iter().map(|output| read(stream, output)).collect()
}

fn read(stream: &Stream, operand: &Operand<'_>) -> Result<Vec<u8>> {
    let target: PinnedBuffer<u8> = stream.device().pinned(operand.bytes())?;
    let copy = stream.submit_with(&[*operand], target, |hip, target| {
        // SAFETY: copies as many bytes as the pinned memory has, which `submit_with` keeps until the copy is done.
        unsafe {
            call!(
                stream.device(),
                hip.hipMemcpyAsync(
                    target.as_ptr().cast_mut().cast(),
                    operand.pointer(),
                    operand.bytes(),
                    hipMemcpyKind::hipMemcpyDeviceToHost,
                    stream.raw(),
                )
            )
        }
    })?;
    Ok(copy.wait()?.to_vec())
}

impl Replay {
    /// Runs, captures, replays and compares the work, and waits for the device. The outputs are correct afterwards in any case. The inner
    /// error is the reason why there is no replay.
    ///
    /// # Errors
    ///
    /// The error of the work if it fails when it runs eagerly.
    pub fn new<W: Work>(stream: &Stream, work: &mut W) -> Result<Result<Self, String>, W::Error> {
        Self::agreed(stream, work, &mut |done| done)
    }

    /// Captures work with collectives, which all ranks must submit equally often. Each rank calls this. `agree` waits for all ranks, and
    /// returns true if all pass true. It is called after the capture and after the comparison. See [`Replay::new`].
    ///
    /// # Errors
    ///
    /// The work's error if it fails when it runs eagerly.
    pub fn agreed<W: Work>(
        stream: &Stream,
        work: &mut W,
        agree: &mut dyn FnMut(bool) -> bool,
    ) -> Result<Result<Self, String>, W::Error> {
        const OTHERS: &str = "a replay of another rank failed; the work runs eagerly";
        work.enqueue(stream)?;
        let expected = work.results(stream)?;
        let captured =
            Self::capture(stream, |stream| work.enqueue(stream)).map_err(|e: W::Error| e.to_string());
        let mut agreed = |result: Result<Self, String>| {
            if agree(result.is_ok()) {
                result
            } else {
                Err(result.err().unwrap_or_else(|| OTHERS.into()))
            }
        };
        let replay = agreed(captured).and_then(|replay| {
            let checked = replay.checked(stream, work, &expected);
            agreed(checked.map_err(|error| error.to_string()))
        });
        if replay.is_err() {
            // The outputs were overwritten.
            work.restore(stream)?;
            work.enqueue(stream)?;
        }
        Ok(replay)
    }

    /// Overwrites the results of the work, runs the replay, and compares.
    fn checked<W: Work>(
        mut self,
        stream: &Stream,
        work: &mut W,
        expected: &[Vec<u8>],
    ) -> Result<Self, W::Error> {
        for intermediate in work.intermediates() {
            fill(&intermediate, NO_NUMBER)?;
        }
        for (output, expected) in work.outputs().iter().zip(expected) {
            // Use another first byte than that of the eager run, to detect a replay without any effect.
            fill(output, expected.first().map_or(0, |byte| !byte))?;
        }
        work.restore(stream)?;
        self.run()?;
        let replayed = work.results(stream)?;
        match replayed.iter().zip(expected).position(|(a, b)| a != b) {
            None => Ok(self),
            Some(index) => {
                let pairs = replayed[index].iter().zip(&expected[index]);
                Err(Error::Device {
                    device: stream.device().name().to_owned(),
                    call: "hipGraphLaunch",
                    status: format!(
                        "the replay differs from the eager run in {} of {} bytes of output {index}",
                        pairs.filter(|(a, b)| a != b).count(),
                        expected[index].len()
                    ),
                    advice: "the work runs eagerly".into(),
                }
                .into())
            }
        }
    }

    fn capture<E: From<Error>>(
        stream: &Stream,
        enqueue: impl FnOnce(&Stream) -> Result<(), E>,
    ) -> Result<Self, E> {
        let device = stream.device();
        stream.refuse_capture("a graph")?;
        let hip = device.enter()?;
        let guard = device.capture();
        let mode = hipStreamCaptureMode::hipStreamCaptureModeThreadLocal;
        // SAFETY: the stream is alive.
        unsafe { call!(device, hip.hipStreamBeginCapture(stream.raw(), mode)) }?;
        let capturing = Capturing::begin(stream);
        let enqueued = enqueue(stream);
        let mut graph: hipGraph_t = ptr::null_mut();
        // SAFETY: the call writes one handle. It also ends a failed capture.
        let ended = unsafe { call!(device, hip.hipStreamEndCapture(stream.raw(), &mut graph)) };
        let memory = capturing.end();
        drop(guard);
        let mut raw = ptr::null_mut();
        let instantiated = enqueued.and(ended.map_err(E::from)).and_then(|()| {
            // SAFETY: the call writes one handle. It needs no error node and no log.
            unsafe {
                call!(
                    device,
                    hip.hipGraphInstantiate(&mut raw, graph, ptr::null_mut(), ptr::null_mut(), 0)
                )
            }
            .map_err(E::from)
        });
        if !graph.is_null() {
            // SAFETY: destroyed once; an executable graph does not need it.
            device.park(unsafe { call!(device, hip.hipGraphDestroy(graph)) });
        }
        instantiated?;
        Ok(Self {
            raw,
            stream: stream.clone(),
            memory,
        })
    }

    /// Submits the replay on the stream of the capture.
    ///
    /// # Errors
    ///
    /// The error of the submission.
    pub fn run(&mut self) -> Result<()> {
        let device = self.stream.device();
        self.stream.submit_captured(&self.memory, |hip| {
            // SAFETY: both handles are alive. The graph only accesses memory that `self` keeps, on the stream that orders it.
            unsafe { call!(device, hip.hipGraphLaunch(self.raw, self.stream.raw())) }
        })
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        let device = self.stream.device();
        let result = device.select().and_then(|hip| {
            // SAFETY: the handles are alive. The graph is destroyed once, when it does not run.
            unsafe {
                let idle = call!(device, hip.hipStreamSynchronize(self.stream.raw()));
                idle.and_then(|()| call!(device, hip.hipGraphExecDestroy(self.raw)))
            }
        });
        device.park(result);
    }
}

/// A running capture. It also ends if the work panics.
struct Capturing<'a>(&'a Stream);

impl<'a> Capturing<'a> {
    fn begin(stream: &'a Stream) -> Self {
        stream.set_capturing(true);
        Self(stream)
    }

    fn end(self) -> Vec<Arc<dyn Resource>> {
        self.0.take_captured()
    }
}

impl Drop for Capturing<'_> {
    fn drop(&mut self) {
        self.0.set_capturing(false);
        self.0.take_captured();
    }
}

impl fmt::Debug for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Replay").field(&self.stream).finish()
    }
}

impl<W: fmt::Debug> fmt::Debug for Graph<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph")
            .field("work", &self.work)
            .field("stream", &self.stream)
            .field("fallback", &self.fallback())
            .finish()
    }
}
