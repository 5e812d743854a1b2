//! What one run at a time needs on a device: a stream, the libraries' handles on it, and memory.

use crate::error::{Error, Result};
use crate::hip::{Blas, Device, DeviceBuffer, Operand, PinnedBuffer, Stream};

/// Kept from run to run; its memory grows to the largest plan that it has served.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) stream: Stream,
    pub(super) blas: Blas,
    pub(super) input: Grown,
    pub(super) arena: Grown,
    pub(super) scratch: Grown,
    /// On the host: the input, and the results in their order.
    pub(super) staging: Staging,
    pub(super) results: Vec<Staging>,
}

impl Lane {
    pub(super) fn new(device: &Device) -> Result<Self> {
        let stream = device.stream()?;
        Ok(Self {
            blas: Blas::new(&stream)?,
            input: Grown::default(),
            arena: Grown::default(),
            scratch: Grown::default(),
            staging: Staging::default(),
            results: Vec::new(),
            stream,
        })
    }
}

/// Device memory that grows.
#[derive(Debug, Default)]
pub(super) struct Grown(Option<DeviceBuffer<u8>>);

impl Grown {
    /// At least `bytes` bytes; what was there before may be gone.
    pub(super) fn at_least(&mut self, bytes: usize, stream: &Stream) -> Result<&mut DeviceBuffer<u8>> {
        if self.0.as_ref().is_some_and(|buffer| buffer.bytes() < bytes) {
            self.0 = None;
        }
        match &mut self.0 {
            Some(buffer) => Ok(buffer),
            empty => Ok(empty.insert(stream.allocate(bytes.max(1))?)),
        }
    }
}

/// Pinned memory that is kept between runs of one size.
#[derive(Debug, Default)]
pub(super) struct Staging(Option<PinnedBuffer<u8>>);

impl Staging {
    /// Exactly `bytes` bytes, to be given back by [`Staging::keep`].
    pub(super) fn take(&mut self, bytes: usize, device: &Device) -> Result<PinnedBuffer<u8>> {
        match self.0.take().filter(|buffer| buffer.len() == bytes) {
            Some(buffer) => Ok(buffer),
            None => device.pinned(bytes),
        }
    }

    pub(super) fn keep(&mut self, buffer: PinnedBuffer<u8>) {
        self.0 = Some(buffer);
    }
}

/// The memory that steps may touch.
pub(super) struct Regions<'a>(pub(super) [Operand<'a>; 4]);

impl<'a> Regions<'a> {
    /// What of a region lies from `address` on.
    pub(super) fn from(&self, address: u64) -> Result<Operand<'a>> {
        for region in &self.0 {
            let offset = address.checked_sub(region.address()).map(|o| o as usize);
            if let Some(offset) = offset.filter(|&o| o < region.bytes()) {
                return region.part(offset..region.bytes());
            }
        }
        Err(Error::argument(
            "address",
            format!("{address:#x} is not in the memory of the run"),
        ))
    }
}
