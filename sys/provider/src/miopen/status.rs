//! MIOpen's status, and results for the caller.

use hipvit_sys::miopen::miopenStatus_t;

/// MIOpen's status for an invalid argument.
pub const BAD_PARAMETER: miopenStatus_t = miopenStatus_t::miopenStatusBadParm;

/// MIOpen's status for an operation that is not supported.
pub const UNSUPPORTED: miopenStatus_t = miopenStatus_t::miopenStatusUnsupportedOp;

crate::export::status! {
    miopenStatus_t, success: miopenStatusSuccess, panic: miopenStatusInternalError, null: miopenStatusBadParm
}

/// Writes numbers to a C array.
///
/// # Errors
/// `miopenStatusBadParm` if the array is null, or a number does not fit into an `int`.
///
/// # Safety
/// `to` is null or an array of at least as many elements as `values`.
pub unsafe fn put_all(to: *mut i32, values: &[usize]) -> Result<(), miopenStatus_t> {
    if to.is_null() {
        return Err(BAD_PARAMETER);
    }
    for (index, value) in values.iter().enumerate() {
        let value = i32::try_from(*value).map_err(|_| BAD_PARAMETER)?;
        // SAFETY: the caller's array has at least as many elements as `values`.
        unsafe { to.add(index).write(value) };
    }
    Ok(())
}
