//! Objects in the memory of the caller's handles and descriptors, each after a tag that identifies its type.

use hipvit_sys::hipsparselt::{
    hipsparseLtHandle_t, hipsparseLtMatDescriptor_t, hipsparseLtMatmulAlgSelection_t,
    hipsparseLtMatmulDescriptor_t, hipsparseLtMatmulPlan_t, hipsparseStatus_t,
};

use super::status::{INVALID, NOT_INITIALIZED};
use crate::compute::Element;

/// Contents of a C object of the type `C`.
pub(super) trait Object: Copy {
    type C;

    /// Marks such an object; no other has it.
    const TAG: u64;

    /// Writes it to the caller's object.
    ///
    /// # Safety
    /// `to` is null or may be written.
    unsafe fn put(self, to: *mut Self::C) -> Result<(), hipsparseStatus_t> {
        const { assert!(size_of::<(u64, Self)>() <= size_of::<Self::C>()) };
        if to.is_null() {
            return Err(INVALID);
        }
        // SAFETY: as the caller says; it is large enough.
        unsafe { to.cast::<(u64, Self)>().write_unaligned((Self::TAG, self)) };
        Ok(())
    }

    /// Reads it from the caller's object.
    ///
    /// # Safety
    /// `from` is null or may be read, and only [`put`](Self::put) writes objects with this tag.
    unsafe fn get(from: *const Self::C) -> Result<Self, hipsparseStatus_t> {
        if from.is_null() {
            return Err(INVALID);
        }
        let from = from.cast::<(u64, Self)>();
        // SAFETY: as the caller says; the tag is a number, which any bytes are.
        let tag = unsafe { (&raw const (*from).0).read_unaligned() };
        if tag != Self::TAG {
            return Err(NOT_INITIALIZED);
        }
        // SAFETY: `put` wrote it.
        Ok(unsafe { from.read_unaligned() }.1)
    }
}

/// A library handle, which has no state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handle;

/// A matrix: columns of `rows` elements, `leading` apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) leading: usize,
    pub(super) element: Element,
    /// True for a 2:4 sparse matrix.
    pub(super) structured: bool,
}

/// `D = activation(alpha·Aᵀ·op(B) + beta·C + bias)`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Matmul {
    pub(super) a: Layout,
    pub(super) b: Layout,
    pub(super) c: Layout,
    pub(super) d: Layout,
    pub(super) transposed_b: bool,
    /// Address of the bias, or 0.
    pub(super) bias: u64,
    pub(super) gelu: bool,
    pub(super) relu: bool,
}

/// A selected algorithm.
#[derive(Clone, Copy, Debug)]
pub(super) struct Algorithm {
    pub(super) number: i32,
}

/// A matmul that is ready to run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) matmul: Matmul,
}

macro_rules! objects {
    ($($Object:ident: $C:ident, $tag:literal;)*) => {$(
        impl Object for $Object {
            type C = $C;
            const TAG: u64 = u64::from_le_bytes(*$tag);
        }
    )*};
}

objects! {
    Handle: hipsparseLtHandle_t, b"sparseLt";
    Layout: hipsparseLtMatDescriptor_t, b"spLayout";
    Matmul: hipsparseLtMatmulDescriptor_t, b"spMatmul";
    Algorithm: hipsparseLtMatmulAlgSelection_t, b"spSelect";
    Plan: hipsparseLtMatmulPlan_t, b"spMaPlan";
}
