//! Memory of several GPUs that their kernels exchange data through while they run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::{Error, Result};
use crate::memory::block::Block;
use crate::memory::operand::Operand;
use crate::status::call;
use crate::stream::Stream;

/// An equal amount of memory on each of several GPUs, for kernels that exchange data while they run. The kernels of all these GPUs can
/// access it. Each GPU also has some words of host memory, which its kernels and the host can access.
///
/// Its [operands](SymmetricMemory::operand) belong to no stream. Launches on any stream of these GPUs accept them, and only the kernels
/// themselves order the accesses. If the runtime supports it (AMD), the memory is uncached, so that each GPU reads what the others write.
/// Providers for CUDA do not need this.
///
/// Dropping it, and the graphs that captured its use, waits for the streams that it was created with.
#[derive(Debug)]
pub struct SymmetricMemory {
    parts: Vec<Part>,
    bytes: usize,
    words: usize,
}

#[derive(Debug)]
struct Part {
    memory: Arc<Block>,
    words: Arc<Block>,
}

impl SymmetricMemory {
    /// Allocates `bytes` zeroed bytes on the GPU of each stream, and `words` zeroed words of host memory per GPU. Enables each GPU to
    /// [access](crate::Device::enable_peer_access) the memory of the others.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if there are no streams or a size is 0. [`Error::Device`] if a GPU cannot access another's memory or
    /// the runtime has no uncached memory. [`Error::OutOfMemory`] if a GPU has too little memory.
    pub fn new(streams: &[Stream], bytes: usize, words: usize) -> Result<Self> {
        if streams.is_empty() || bytes == 0 || words == 0 {
            return Err(Error::argument(
                "symmetric memory",
                "has no streams, bytes or words",
            ));
        }
        let part = |stream: &Stream| {
            let memory = Block::uncached(stream, bytes, streams)?;
            let zeroed = stream.submit(&[], |hip| {
                // SAFETY: the memory belongs to this device and has this many bytes.
                unsafe {
                    call!(
                        stream.device(),
                        hip.hipMemsetAsync(memory.address().as_mut_ptr(), 0, bytes, stream.raw())
                    )
                }
            });
            zeroed.and_then(|()| stream.synchronize())?;
            Ok(Part {
                memory,
                words: Block::mapped(stream, 4 * words, streams)?,
            })
        };
        let parts = streams.iter().map(part).collect::<Result<_>>()?;
        for (one, other) in streams.iter().flat_map(|a| streams.iter().map(move |b| (a, b))) {
            one.device().enable_peer_access(other.device())?;
        }
        Ok(Self { parts, bytes, words })
    }

    /// Returns the number of GPUs.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.parts.len()
    }

    /// Returns the memory on the GPU of stream `rank`.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the rank does not exist.
    pub fn operand(&self, rank: usize) -> Result<Operand<'_>> {
        Ok(Operand::new(&self.part(rank)?.memory, 0..self.bytes, true))
    }

    /// Returns the words of host memory for the GPU of stream `rank`.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the rank does not exist.
    pub fn words(&self, rank: usize) -> Result<Operand<'_>> {
        Ok(Operand::new(&self.part(rank)?.words, 0..4 * self.words, true))
    }

    /// Returns the current value of a word of `rank`.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the word does not exist.
    pub fn load(&self, rank: usize, word: usize) -> Result<u32> {
        Ok(self.word(rank, word)?.load(Ordering::Acquire))
    }

    /// Sets a word of `rank`. Running kernels see the value.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the word does not exist.
    pub fn store(&self, rank: usize, word: usize, value: u32) -> Result<()> {
        self.word(rank, word)?.store(value, Ordering::Release);
        Ok(())
    }

    fn word(&self, rank: usize, word: usize) -> Result<&AtomicU32> {
        let part = self.part(rank)?;
        if word >= self.words {
            let reason = format!("{word} of {}", self.words);
            return Err(Error::argument("word", reason));
        }
        let at: *mut u32 = part.words.address().as_mut_ptr();
        // SAFETY: the block is host memory of as many words, page-aligned, and lives as long as `self`. The host accesses it only through
        // atomics, and devices are not threads of the program.
        Ok(unsafe { AtomicU32::from_ptr(at.add(word)) })
    }

    fn part(&self, rank: usize) -> Result<&Part> {
        let reason = || Error::argument("rank", format!("{rank} of {}", self.parts.len()));
        self.parts.get(rank).ok_or_else(reason)
    }
}
