//! Attributes of layouts and descriptors: numbers of 4 or 8 bytes, listed in tables.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr;

use hipvit_sys::hipblaslt::{
    hipblasLtEpilogue_t, hipblasLtMatmulDescAttributes_t as Desc,
    hipblasLtMatmulPreferenceAttributes_t as Preference, hipblasLtMatrixLayoutAttribute_t as Layout,
    hipblasLtMatrixTransformDescAttributes_t as Transform, hipblasOperation_t, hipblasStatus_t,
};

const INVALID: hipblasStatus_t = hipblasStatus_t::HIPBLAS_STATUS_INVALID_VALUE;

/// An attribute: its number, its size in bytes, and its value at first.
type Entry = (u32, usize, u64);

/// The attributes of one layout or description.
#[derive(Clone, Debug)]
pub(super) struct Attributes {
    table: &'static [Entry],
    set: BTreeMap<u32, u64>,
}

impl Attributes {
    pub(super) fn new(table: &'static [Entry]) -> Self {
        Self {
            table,
            set: BTreeMap::new(),
        }
    }

    fn entry(&self, number: u32) -> Result<&'static Entry, hipblasStatus_t> {
        self.table
            .iter()
            .find(|(known, _, _)| *known == number)
            .ok_or(hipblasStatus_t::HIPBLAS_STATUS_NOT_SUPPORTED)
    }

    /// An attribute's value, 0 if there is no such attribute.
    pub(super) fn value(&self, number: u32) -> u64 {
        let first = || self.entry(number).map_or(0, |(_, _, first)| *first);
        self.set.get(&number).copied().unwrap_or_else(first)
    }

    pub(super) fn put(&mut self, number: u32, value: u64) {
        self.set.insert(number, value);
    }

    /// Sets an attribute as a caller does.
    ///
    /// # Safety
    /// `from` is null or has `size` bytes.
    pub(super) unsafe fn read(
        &mut self,
        number: u32,
        from: *const c_void,
        size: usize,
    ) -> Result<(), hipblasStatus_t> {
        let (_, width, _) = *self.entry(number)?;
        if from.is_null() || size < width {
            return Err(INVALID);
        }
        let mut bytes = [0; 8];
        // SAFETY: no more bytes than the caller says that there are; an attribute has at most 8.
        unsafe { ptr::copy_nonoverlapping(from.cast(), bytes.as_mut_ptr(), width) };
        self.set.insert(number, u64::from_le_bytes(bytes));
        Ok(())
    }

    /// Writes an attribute and its size for a caller; with a `size` of 0, only its size.
    ///
    /// # Safety
    /// `to` is null or has `size` bytes; `written` is null or may be written.
    pub(super) unsafe fn write(
        &self,
        number: u32,
        to: *mut c_void,
        size: usize,
        written: *mut usize,
    ) -> Result<(), hipblasStatus_t> {
        let (_, width, _) = *self.entry(number)?;
        if size == 0 && written.is_null() || size > 0 && (to.is_null() || size < width) {
            return Err(INVALID);
        }
        let bytes = self.value(number).to_le_bytes();
        // SAFETY: there are as many bytes as the caller says; neither pointer is null where it is used.
        unsafe {
            if size > 0 {
                ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast(), width);
            }
            if !written.is_null() {
                written.write(width);
            }
        }
        Ok(())
    }
}

const OP_N: u64 = hipblasOperation_t::HIPBLAS_OP_N.0 as u64;

/// Attributes of a matrix layout; its type, rows, columns and leading dimension are set when it is made.
pub(super) const LAYOUT: &[Entry] = &[
    (Layout::HIPBLASLT_MATRIX_LAYOUT_BATCH_COUNT.0, 4, 1),
    (Layout::HIPBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET.0, 8, 0),
    (Layout::HIPBLASLT_MATRIX_LAYOUT_TYPE.0, 4, 0),
    (Layout::HIPBLASLT_MATRIX_LAYOUT_ORDER.0, 4, 0),
    (Layout::HIPBLASLT_MATRIX_LAYOUT_ROWS.0, 8, 0),
    (Layout::HIPBLASLT_MATRIX_LAYOUT_COLS.0, 8, 0),
    (Layout::HIPBLASLT_MATRIX_LAYOUT_LD.0, 8, 0),
];

/// A type that was not set: that of the result is used.
pub(super) const SAME_TYPE: u64 = 255;

/// Attributes of a matmul descriptor. Those that are not listed, such as the maximum of the result, are not supported.
pub(super) const MATMUL: &[Entry] = &[
    (Desc::HIPBLASLT_MATMUL_DESC_TRANSA.0, 4, OP_N),
    (Desc::HIPBLASLT_MATMUL_DESC_TRANSB.0, 4, OP_N),
    (
        Desc::HIPBLASLT_MATMUL_DESC_EPILOGUE.0,
        4,
        hipblasLtEpilogue_t::HIPBLASLT_EPILOGUE_DEFAULT.0 as u64,
    ),
    (Desc::HIPBLASLT_MATMUL_DESC_BIAS_POINTER.0, 8, 0),
    (Desc::HIPBLASLT_MATMUL_DESC_BIAS_DATA_TYPE.0, 4, SAME_TYPE),
    (Desc::HIPBLASLT_MATMUL_DESC_A_SCALE_POINTER.0, 8, 0),
    (Desc::HIPBLASLT_MATMUL_DESC_B_SCALE_POINTER.0, 8, 0),
    (Desc::HIPBLASLT_MATMUL_DESC_C_SCALE_POINTER.0, 8, 0),
    (Desc::HIPBLASLT_MATMUL_DESC_D_SCALE_POINTER.0, 8, 0),
    (Desc::HIPBLASLT_MATMUL_DESC_AMAX_D_POINTER.0, 8, 0),
    (Desc::HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_SCALE_POINTER.0, 8, 0),
    (Desc::HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER.0, 8, 0),
    (Desc::HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD.0, 8, 0),
    (Desc::HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE.0, 8, 0),
    (Desc::HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE.0, 4, SAME_TYPE),
    (Desc::HIPBLASLT_MATMUL_DESC_POINTER_MODE.0, 4, 0),
    (Desc::HIPBLASLT_MATMUL_DESC_A_SCALE_MODE.0, 4, 0),
    (Desc::HIPBLASLT_MATMUL_DESC_B_SCALE_MODE.0, 4, 0),
    (Desc::HIPBLASLT_MATMUL_DESC_EPILOGUE_ACT_ARG0_EXT.0, 4, 0),
    (Desc::HIPBLASLT_MATMUL_DESC_EPILOGUE_ACT_ARG1_EXT.0, 4, 0),
];

/// Attributes of a preference.
pub(super) const PREFERENCE: &[Entry] = &[
    (Preference::HIPBLASLT_MATMUL_PREF_SEARCH_MODE.0, 4, 0),
    (Preference::HIPBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES.0, 8, 0),
];

/// Attributes of a transform descriptor.
pub(super) const TRANSFORM: &[Entry] = &[
    (Transform::HIPBLASLT_MATRIX_TRANSFORM_DESC_SCALE_TYPE.0, 4, 0),
    (Transform::HIPBLASLT_MATRIX_TRANSFORM_DESC_POINTER_MODE.0, 4, 0),
    (Transform::HIPBLASLT_MATRIX_TRANSFORM_DESC_TRANSA.0, 4, OP_N),
    (Transform::HIPBLASLT_MATRIX_TRANSFORM_DESC_TRANSB.0, 4, OP_N),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_round_trip_and_sizes_are_checked() {
        let mut attributes = Attributes::new(LAYOUT);
        let rows = Layout::HIPBLASLT_MATRIX_LAYOUT_ROWS.0;
        let value = 0x0102_0304_0506_0708_u64;
        let (mut got, mut written) = (0_u64, 0);
        // SAFETY: all pointers are to numbers of these sizes.
        unsafe {
            assert_eq!(attributes.read(rows, (&raw const value).cast(), 4), Err(INVALID));
            assert_eq!(attributes.read(rows, (&raw const value).cast(), 8), Ok(()));
            assert_eq!(
                attributes.write(rows, (&raw mut got).cast(), 4, &mut written),
                Err(INVALID)
            );
            assert_eq!(attributes.write(rows, ptr::null_mut(), 0, &mut written), Ok(()));
            assert_eq!((got, written), (0, 8));
            assert_eq!(
                attributes.write(rows, (&raw mut got).cast(), 8, ptr::null_mut()),
                Ok(())
            );
            assert_eq!(
                attributes.read(77, (&raw const value).cast(), 8),
                Err(hipblasStatus_t::HIPBLAS_STATUS_NOT_SUPPORTED)
            );
        }
        assert_eq!(got, value);
        assert_eq!(attributes.value(Layout::HIPBLASLT_MATRIX_LAYOUT_BATCH_COUNT.0), 1);
    }
}
