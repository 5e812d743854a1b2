//! Collectives that run beside the work of their rank's stream.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::memory::block::Block;
use crate::stream::{Stream, StreamOptions};

/// A second stream for the collectives of a stream's ranks, which then run beside the stream's later work. Cheap to clone.
///
/// It has the device's highest priority, so that a collective does not wait until large kernels have left all compute units.
///
/// ```no_run
/// # fn main() -> hip_safe::Result<()> {
/// use hip_safe::{Comm, DType, Group, Reduction, Runtime, SideStream, UniqueId};
///
/// let stream = Runtime::open()?.device(0)?.stream()?;
/// let comm = Comm::with_id(&stream, UniqueId::new(stream.device())?, 0, 1)?;
/// let side = SideStream::new(&stream)?;
/// let mut sums = stream.upload(&[1.0f32; 8])?;
/// let mut group = Group::new();
/// group.all_reduce_in_place(&comm, DType::F32, Reduction::Sum, &mut sums)?;
/// let done = group.submit_beside(&side)?;
/// // Work that does not use `sums` runs meanwhile.
/// stream.wait(&done)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SideStream {
    main: Stream,
    side: Stream,
}

impl SideStream {
    /// Creates a side stream of `main`.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if the driver fails, or a parked error.
    pub fn new(main: &Stream) -> Result<Self> {
        let device = main.device();
        let options = StreamOptions {
            priority: Some(*device.stream_priorities()?.start()),
            compute_units: None,
        };
        Ok(Self {
            main: main.clone(),
            side: device.stream_with(&options)?,
        })
    }

    /// Returns the stream that owns the operands of the collectives.
    #[must_use]
    pub fn main(&self) -> &Stream {
        &self.main
    }

    pub(super) fn side(&self) -> &Stream {
        &self.side
    }

    /// Makes later work of the side stream run after the work that was submitted to the main stream before.
    pub(super) fn fork(&self) -> Result<()> {
        self.side.wait(&self.main.mark()?)
    }

    /// Records that the side stream uses a block.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for memory of another library and memory that several streams share, which may be freed before the side stream
    /// is done.
    pub(super) fn admit(&self, block: &Arc<Block>) -> Result<()> {
        if !block.is_pooled() {
            let reason = "is not memory of the pool, which a side stream uses only";
            return Err(Error::argument("operand", reason));
        }
        block.add_user(&self.side);
        Ok(())
    }
}
