//! AMD SMI: its status, its lists of handles, and what no provider offers.

use std::ffi::c_void;

use hipvit_sys::Status as _;
use hipvit_sys::amd_smi::amdsmi_status_t;

crate::export::status! {
    amdsmi_status_t, success: AMDSMI_STATUS_SUCCESS, panic: AMDSMI_STATUS_UNKNOWN_ERROR, null: AMDSMI_STATUS_INVAL
}

/// Returns the name of a status as a static C string.
///
/// # Errors
/// `AMDSMI_STATUS_INVAL` for a number that has no name.
pub fn status_text(status: amdsmi_status_t) -> Result<*const std::ffi::c_char, amdsmi_status_t> {
    let name = status.name().ok_or(amdsmi_status_t::AMDSMI_STATUS_INVAL)?;
    Ok(crate::export::c_name(name))
}

/// Writes handles as AMD SMI's lists do: at most `count` of them to `to`, and to `count` how many were written. If `to` is null, `count`
/// becomes the number of all handles.
///
/// # Errors
/// `AMDSMI_STATUS_INVAL` if `count` is null.
///
/// # Safety
/// `count` is null or may be read and written; `to` is null, or `count` handles may be written to it.
pub unsafe fn put_handles(
    handles: &[*mut c_void],
    count: *mut u32,
    to: *mut *mut c_void,
) -> Result<(), amdsmi_status_t> {
    if count.is_null() {
        return Err(amdsmi_status_t::AMDSMI_STATUS_INVAL);
    }
    // SAFETY: as the caller says.
    unsafe {
        let written = if to.is_null() {
            handles.len()
        } else {
            let written = handles.len().min(count.read() as usize);
            std::ptr::copy_nonoverlapping(handles.as_ptr(), to, written);
            written
        };
        count.write(u32::try_from(written).unwrap_or(u32::MAX));
    }
    Ok(())
}

/// Copies `text` into a C string of a structure, shortened if it does not fit.
pub fn put_text(to: &mut [std::ffi::c_char], text: &str) {
    // SAFETY: as many bytes may be written as the array has.
    unsafe { crate::export::copy_text(text.as_bytes(), to.as_mut_ptr(), to.len()) };
}

/// Exports the names of AMD SMI's statuses. Exports the queries that no provider offers, too.
#[macro_export]
macro_rules! shared_amd_smi {
    () => {
        $crate::export! { amd_smi, $crate::sys::amd_smi::amdsmi_status_t, $crate::amd_smi::run;
            fn amdsmi_status_code_to_string(
                status: $crate::sys::amd_smi::amdsmi_status_t, text: *mut *const ::std::ffi::c_char,
            ) {
                $crate::amd_smi::put(text, $crate::amd_smi::status_text(status)?)
            }
        }

        $crate::not_offered! {
            amd_smi, $crate::sys::amd_smi::amdsmi_status_t,
            $crate::sys::amd_smi::amdsmi_status_t::AMDSMI_STATUS_NOT_SUPPORTED;
            amdsmi_get_lib_version
            amdsmi_get_xgmi_info
            amdsmi_get_gpu_total_ecc_count
            amdsmi_topo_get_link_weight
            amdsmi_topo_get_numa_node_number
        }
    };
}
