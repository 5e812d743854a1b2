//! Between two GPUs: access to each other's memory, and copies.

use bytemuck::Pod;
use hipvit_sys::hip::hipError_t;

use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::buffer::DeviceBuffer;
use crate::memory::operand::Operand;
use crate::status::{call, is};

impl Device {
    /// True if this GPU can read and write the memory of `other`. It can access its own.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if `other` is another runtime's; the driver does not say.
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

    /// Lets this GPU's work read and write the memory of `other`, so that copies between the two use the link and not the host.
    /// Calling it again is no error.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if `other` is another runtime's; [`Error::Device`] if it [cannot](Device::can_access_peer).
    pub fn enable_peer_access(&self, other: &Self) -> Result<()> {
        self.check_runtime(other)?;
        if self == other {
            return Ok(());
        }
        let hip = self.enter()?;
        // SAFETY: takes numbers.
        match unsafe { call!(self, hip.hipDeviceEnablePeerAccess(other.ordinal() as i32, 0)) } {
            Ok(()) => Ok(()),
            Err(error) => {
                // HIP keeps the error for the next call that asks, and libraries ask. SAFETY: takes no arguments.
                let _ = unsafe { hip.hipGetLastError() };
                if is(&error, hipError_t::hipErrorPeerAccessAlreadyEnabled) {
                    Ok(())
                } else {
                    Err(error)
                }
            }
        }
    }

    /// GPUs of two runtimes know nothing of each other's numbers and addresses.
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
    /// Copies all of `source` on this buffer's stream. `source` has the same length, and may belong to another GPU or stream. The
    /// copy waits for the work that the source's stream was given so far, and that stream's later work waits for the copy. A
    /// frozen source needs no wait.
    ///
    /// It works between any two GPUs of a runtime, and is fastest where
    /// [peer access](Device::enable_peer_access) is enabled.
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
    /// [`Error::Argument`] if the lengths differ, the runtimes do, or one of the streams is being captured; what the driver
    /// says.
    pub fn copy_from_peer(&mut self, source: Operand<'_>) -> Result<()> {
        source.expect_exactly("source", self.bytes())?;
        self.copy_part_from_peer(0, source)
    }

    /// Copies all of `source` to the bytes of this buffer from `at` on. See [`DeviceBuffer::copy_from_peer`].
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the source exceeds the buffer or its GPU cannot be accessed; [`Error::Device`] if the driver
    /// refuses.
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
            // SAFETY: both are memory of these devices and of this size. The target is ordered by the stream; the source
            // was written before, by the wait above, and is not written nor given away before the copy is done, by what
            // follows, or by its own books of readers where it is frozen.
            unsafe {
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
            // A copy may be under way that the source's stream does not know of.
            stream.device().park(stream.synchronize());
        }
        held
    }
}
