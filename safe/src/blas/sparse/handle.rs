//! hipSPARSELt's handle, and the GEMMs that the library supports.

use std::fmt;
use std::sync::Arc;

use hipvit_sys::hipsparselt::hipsparseLtHandle_t;

use crate::blas::WORKSPACE;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::libraries;
use crate::memory::buffer::DeviceBuffer;
use crate::status::call;
use crate::stream::{Handle, Stream};

/// Extents of 16-bit matrices must be multiples of this.
pub(super) const MULTIPLE: usize = 8;

/// A hipSPARSELt handle on a stream.
pub struct SparseLt {
    pub(super) stream: Stream,
    pub(super) raw: *mut hipsparseLtHandle_t,
    pub(super) handle: Arc<Handle>,
    pub(super) workspace: DeviceBuffer<u8>,
}

// SAFETY: the handle may be used from any thread, one at a time.
unsafe impl Send for SparseLt {}

/// `C = activation(A·Bᵀ + beta · C + bias)`, accumulated in f32. A is `m`×`k`. B is a 2:4 sparse weight `n`×`k`: along `k`, two of each
/// four elements are 0. All are f16 or bf16, row-major and unpadded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SparseGemm {
    /// Rows of A and C.
    pub m: usize,
    /// Rows of B, columns of C. A multiple of 8.
    pub n: usize,
    /// Columns of A and B. A multiple of 8.
    pub k: usize,
    /// Dtype of all matrices and of the bias.
    pub dtype: DType,
    /// Factor of C before A·Bᵀ is added. With 0 the contents of C are ignored.
    pub beta: f32,
}

impl SparseGemm {
    /// Checks the shape and dtype of the weight.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the library does not support the weight.
    pub(super) fn check(&self) -> Result<()> {
        let Self { m, n, k, dtype, .. } = *self;
        let multiples = n.is_multiple_of(MULTIPLE) && k.is_multiple_of(MULTIPLE);
        if [m, n, k].contains(&0) || !multiples || !matches!(dtype, DType::F16 | DType::BF16) {
            let reason = format!("hipSPARSELt takes f16 and bf16 and multiples of {MULTIPLE}: {self:?}");
            return Err(Error::argument("gemm", reason));
        }
        Ok(())
    }

    pub(super) fn weight(n: usize, k: usize, dtype: DType) -> Self {
        Self {
            m: MULTIPLE,
            n,
            k,
            dtype,
            beta: 0.0,
        }
    }
}

impl SparseLt {
    /// Creates a handle on `stream`, with a workspace of 32 MiB.
    ///
    /// # Errors
    ///
    /// [`Error::Provider`] if hipSPARSELt cannot be opened; [`Error::Device`] if it does not support the GPU.
    pub fn new(stream: &Stream) -> Result<Self> {
        Self::with_workspace(stream, WORKSPACE)
    }

    /// Creates a handle with a workspace of `bytes` bytes. Algorithms that need more cannot be selected.
    ///
    /// # Errors
    ///
    /// [`Error::Provider`] if hipSPARSELt cannot be opened; [`Error::Device`] if it does not support the GPU.
    pub fn with_workspace(stream: &Stream, bytes: usize) -> Result<Self> {
        let device = stream.device();
        let table = libraries::hipsparselt(device)?;
        let workspace = stream.allocate(bytes)?;
        let create = |device: &Device| {
            let mut handle = Box::new(Object::<hipsparseLtHandle_t>::new());
            // SAFETY: the call writes the handle, which does not move afterwards.
            unsafe { call!(device, table.hipsparseLtInit(handle.get())) }?;
            Ok(Box::into_raw(handle))
        };
        let (raw, handle) = Handle::new(stream, create, |device, raw| {
            let table = libraries::hipsparselt(device)?;
            // SAFETY: the box of `create`, reclaimed once, when it is no longer used.
            let mut handle = unsafe { Box::from_raw(raw) };
            // SAFETY: destroyed once.
            unsafe { call!(device, table.hipsparseLtDestroy(handle.get())) }
        })?;
        Ok(Self {
            stream: stream.clone(),
            raw: raw.cast(),
            handle,
            workspace,
        })
    }

    /// Returns the stream that work is submitted to.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        &self.stream
    }
}

/// Memory for one of the library's objects, with the alignment that cuSPARSELt requires.
#[repr(align(16))]
pub(super) struct Object<T>(T);

impl<T: Default> Object<T> {
    pub(super) fn new() -> Self {
        Self(T::default())
    }
}

impl<T> Object<T> {
    pub(super) fn get(&mut self) -> *mut T {
        &raw mut self.0
    }

    pub(super) fn read(&self) -> *const T {
        &raw const self.0
    }
}

impl fmt::Debug for SparseLt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SparseLt").field(&self.stream).finish()
    }
}
