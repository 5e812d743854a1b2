//! Arguments of kernels: the trait that each kernel's file implements, and checks that these files share.

use std::borrow::Cow;

use super::KernelError;
use super::launch::Target;
use super::unit::Unit;
use crate::hip::{Access, DeviceAddress, Launch};

/// Arguments of a kernel in `hip/`, a structure of [`bindings`](super::bindings).
///
/// # Safety
///
/// The entry named by [`entry`](Self::entry) must take one parameter of this layout. Launched with the geometry of [`plan`](Self::plan), it
/// must only access memory that [`accesses`](Self::accesses) lists.
pub(crate) unsafe trait KernelArguments: Copy + Send + Sync + 'static {
    /// The kernel file, without its extension.
    const FILE: &'static str;

    /// Suffix of the module global `<entry>_<suffix>` (a u32) that the plan needs as [`Target::tile`].
    const TILE: Option<&'static str> = None;

    /// Returns the unit to compile for these arguments.
    fn unit(&self) -> Result<Unit, KernelError> {
        Ok(Unit::of(Self::FILE))
    }

    /// Returns the name of the entry without its dtype.
    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        Ok(Self::FILE.into())
    }

    /// Returns the launch, and sets the arguments that depend on it.
    ///
    /// # Errors
    ///
    /// The reason why the arguments are invalid or the device cannot launch the kernel.
    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError>;

    /// Calls `visit` with each range of device memory that the kernel may access, for elements of `element` bytes.
    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access));
}

/// Returns the bytes of a tensor of these extents with elements of `element` bytes. Saturates.
pub(super) fn bytes(element: usize, extents: &[u32]) -> usize {
    let multiply = |bytes: usize, &extent: &u32| bytes.saturating_mul(extent as usize);
    extents.iter().fold(element, multiply)
}

/// Visits the operands of a kernel that adds a bias `[channels]` and a residual to a matrix: `bias`, `residual`, and `out` with elements of
/// `result` bytes.
pub(super) fn visit_epilogue(
    [bias, residual, out]: [DeviceAddress; 3],
    [element, result]: [usize; 2],
    matrix: [u32; 2],
    visit: &mut dyn FnMut(Access),
) {
    let (all, row) = (bytes(element, &matrix), bytes(element, &matrix[1..]));
    visit(optional(Access::read("bias", bias, row)));
    visit(optional(Access::read("residual", residual, all)));
    visit(Access::write("out", out, bytes(result, &matrix)));
}

/// Returns an access to an operand that may be null, and then has 0 bytes.
pub(super) fn optional(access: Access) -> Access {
    let bytes = if access.address.is_null() { 0 } else { access.bytes };
    Access { bytes, ..access }
}

/// Converts an extent to the kernels' type.
///
/// # Errors
///
/// [`KernelError::Extent`] if the extent exceeds 32 bits.
pub(crate) fn extent(n: usize) -> Result<u32, KernelError> {
    u32::try_from(n).map_err(|_| KernelError::Extent(n))
}
