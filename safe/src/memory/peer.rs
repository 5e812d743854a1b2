//! Access between GPUs, and copies between them.

use bytemuck::Pod;
use hipvit_sys::hip::{hipError_t, hipMemcpyKind};

use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::buffer::DeviceBuffer;
use crate::memory::operand::Operand;
use crate::status::{call, is};

impl Device {
    /// Returns true if this GPU can read and write the memory of `other`. It can access its own memory.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if `other` belongs to another runtime; [`Error::Device`] if the driver fails.
    pub fn can_access_peer(&self, other: &Self) -> Result<bool> {
        self.check_runtime(other)?;
        if self == other {
            return Ok(true);
        }
        let hip = self.enter()?;
        let mut access = 0;
        let (here, there) = (self.ordinal() as i32, other.ordinal() as i32);
        // SAFETY: the call writes one int.
        unsafe { call!(self, hip.hipDeviceCanAccessPeer(&mut access, here, there)) }?;
        Ok(access != 0)
    }

    /// Enables this GPU's work to read and write the memory of `other`, so that copies between them use the link instead of the host.
    /// Repeated calls have no effect.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if `other` belongs to another runtime; [`Error::Device`] if access is [not supported](Device::can_access_peer).
    pub fn enable_peer_access(&self, other: &Self) -> Result<()> {
        self.check_runtime(other)?;
        if self == other {
            return Ok(());
        }
        let hip = self.enter()?;
        // SAFETY: passes numbers.
        match unsafe { call!(self, hip.hipDeviceEnablePeerAccess(other.ordinal() as i32, 0)) } {
            Ok(()) => Ok(()),
            Err(error) => {
                // HIP keeps the error for the next call that queries it, as libraries do. SAFETY: no arguments.
                let _ = unsafe { hip.hipGetLastError() };
                if is(&error, hipError_t::hipErrorPeerAccessAlreadyEnabled) {
                    Ok(())
                } else {
                    Err(error)
                }
            }
        }
    }

    /// Ordinals and addresses of GPUs are only comparable within a runtime.
    fn check_runtime(&self, other: &Self) -> Result<()> {
        if self.runtime().is(other.runtime()) {
            return Ok(());
        }
        let reason = format!(
            "{} belongs to a different runtime than {}",
            other.name(),
            self.name()
        );
        Err(Error::argument("device", reason))
    }
}

impl<T: Pod> DeviceBuffer<T> {
    /// Copies all of `source` on this buffer's stream. `source` has the same length, and may belong to another GPU or stream. The copy
    /// waits for the earlier work of the source's stream, and that stream's later work waits for the copy. A frozen source needs no wait.
    ///
    /// This works between any two GPUs of a runtime. It is fastest with [peer access](Device::enable_peer_access).
    ///
    /// ```no_run
    /// # fn main() -> hip_safe::Result<()> {
    /// # let devices = hip_safe::Runtime::open()?.devices()?;
    /// let (first, second) = (devices[0].stream()?, devices[1].stream()?);
    /// let weights = first.upload(&[1.0f32, 2.0])?.freeze()?;
    /// let mut copy = second.allocate::<f32>(2)?;
    /// copy.copy_from_peer(weights.reading())?;
    /// assert_eq!(copy.read()?, [1.0, 2.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the lengths or the runtimes differ, or during a capture of either stream; [`Error::Device`] if the driver
    /// fails.
    pub fn copy_from_peer(&mut self, source: Operand<'_>) -> Result<()> {
        source.expect_exactly("source", self.bytes())?;
        self.copy_part_from_peer(0, source)
    }

    /// Copies all of `source` to this buffer, starting at byte `at`. See [`DeviceBuffer::copy_from_peer`].
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the source exceeds the buffer or its GPU cannot be accessed; [`Error::Device`] if the driver fails.
    pub fn copy_part_from_peer(&mut self, at: usize, source: Operand<'_>) -> Result<()> {
        let stream = self.stream().clone();
        let bytes = source.bytes();
        let target = self.writing().part(at..at.saturating_add(bytes))?;
        let home = source.block().stream().clone();
        stream.device().check_runtime(home.device())?;
        for stream in [&stream, &home] {
            stream.refuse_capture("a copy between streams")?;
        }
        if bytes == 0 {
            return Ok(());
        }
        let frozen = source.block().is_frozen();
        if frozen {
            source.admit(&stream)?;
        } else {
            stream.wait(&home.mark()?)?;
        }
        let [to, from] = [&stream, &home].map(|stream| stream.device().ordinal() as i32);
        let copied = stream.submit(&[target], |hip| {
            // SAFETY: both are memory of these devices and of this size. The stream orders the target. The wait above ensures that the
            // source was written before. The code below, or the list of readers of a frozen source, ensures that it is neither written nor
            // reused before the copy is done.
            unsafe {
                if source.block().is_lent() {
                    // Not memory of a GPU.
                    let kind = hipMemcpyKind::hipMemcpyHostToDevice;
                    let (target, source) = (target.pointer(), source.pointer());
                    return call!(
                        stream.device(),
                        hip.hipMemcpyAsync(target, source, bytes, kind, stream.raw())
                    );
                }
                call!(
                    stream.device(),
                    hip.hipMemcpyPeerAsync(target.pointer(), to, source.pointer(), from, bytes, stream.raw())
                )
            }
        });
        if frozen {
            return copied;
        }
        let held = copied
            .and_then(|()| stream.mark())
            .and_then(|done| home.submit(&[source], |_| home.wait(&done)));
        if held.is_err() {
            // A copy may be running that the source's stream does not wait for.
            stream.device().park(stream.synchronize());
        }
        held
    }
}
