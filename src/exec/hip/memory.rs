//! Host memory that a GPU copies inputs from, and the stream that copies them.

use std::sync::Arc;

use super::staging::{Pieces, is_piece};
use crate::exec::slabs::Slabs;
use crate::exec::staging::HostPool;
use crate::hip::{Device, PinnedBuffer, Stream};

/// Host memory that a GPU copies inputs from, and the stream that copies them.
pub(super) struct HostMemory {
    /// Stream that copies the inputs of all contexts.
    pub(super) copier: Stream,
    /// Pinned memory for whole inputs.
    pub(super) inputs: Arc<HostPool>,
    /// Pinned memory for results.
    pub(super) results: HostPool,
    /// Pinned memory for pieces of pageable inputs.
    pub(super) pieces: Pieces,
    /// Pinned memory for decoded images.
    pub(super) slabs: Arc<Slabs>,
}

impl HostMemory {
    pub(super) fn new(device: &Device, copier: Stream) -> Self {
        Self {
            copier,
            inputs: Arc::new(HostPool::new(device)),
            results: HostPool::new(device),
            pieces: Pieces::default(),
            slabs: Arc::new(Slabs::new(device)),
        }
    }

    /// Takes back the pieces among `buffers`, and frees the rest.
    pub(super) fn keep_pieces(&self, buffers: impl IntoIterator<Item = PinnedBuffer<u8>>) {
        self.pieces.keep(buffers.into_iter().filter(is_piece));
    }
}
