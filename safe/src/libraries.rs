//! The provider's libraries, opened on first use.

use hipvit_sys::{Hipblaslt, Hipsparselt, Miopen, Rccl, Rocblas};

use crate::device::Device;
use crate::error::Result;
use crate::status::missing;

/// Returns the functions of hipBLASLt.
///
/// # Errors
///
/// [`Error::Provider`](crate::Error::Provider) if the library cannot be opened.
pub(crate) fn hipblaslt(device: &Device) -> Result<&Hipblaslt> {
    let provider = device.runtime().provider();
    provider.hipblaslt().map_err(|error| missing(&error))
}

/// Returns the functions of hipSPARSELt.
///
/// # Errors
///
/// [`Error::Provider`](crate::Error::Provider) if the library cannot be opened.
pub(crate) fn hipsparselt(device: &Device) -> Result<&Hipsparselt> {
    let provider = device.runtime().provider();
    provider.hipsparselt().map_err(|error| missing(&error))
}

/// Returns the functions of MIOpen.
///
/// # Errors
///
/// [`Error::Provider`](crate::Error::Provider) if the library cannot be opened.
pub(crate) fn miopen(device: &Device) -> Result<&Miopen> {
    let provider = device.runtime().provider();
    provider.miopen().map_err(|error| missing(&error))
}

/// Returns the functions of RCCL.
///
/// # Errors
///
/// [`Error::Provider`](crate::Error::Provider) if the library cannot be opened.
pub(crate) fn rccl(device: &Device) -> Result<&Rccl> {
    let provider = device.runtime().provider();
    provider.rccl().map_err(|error| missing(&error))
}

/// Returns the functions of rocBLAS.
///
/// # Errors
///
/// [`Error::Provider`](crate::Error::Provider) if the library cannot be opened.
pub(crate) fn rocblas(device: &Device) -> Result<&Rocblas> {
    let provider = device.runtime().provider();
    provider.rocblas().map_err(|error| missing(&error))
}
