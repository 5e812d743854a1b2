//! NVML: the library, its statuses, its devices, the links between them. HIP and AMD SMI both ask it about links.

use std::ffi::{c_char, c_void};
use std::ptr;
use std::sync::OnceLock;

use hip_provider::hip::LinkType;
use hipvit_sys::amd_smi::amdsmi_status_t;
use nvml_wrapper_sys::bindings::{
    NvmlLib, nvmlDevice_t, nvmlGpuP2PCapsIndex_enum_NVML_P2P_CAPS_INDEX_NVLINK as NVLINK,
    nvmlGpuP2PCapsIndex_enum_NVML_P2P_CAPS_INDEX_READ as READ,
    nvmlGpuP2PStatus_enum_NVML_P2P_STATUS_OK as OK,
};

/// NVML, if it is installed. It comes with the driver: in the system's loader's path or in the driver's folder of a container.
pub(crate) fn library() -> Option<&'static NvmlLib> {
    static NVML: OnceLock<Option<NvmlLib>> = OnceLock::new();
    let files = ["libnvidia-ml.so.1", "/usr/local/nvidia/lib64/libnvidia-ml.so.1"];
    let open = || {
        // SAFETY: runs the initialisers of NVIDIA's library, as linking against it would.
        files.iter().find_map(|file| unsafe { NvmlLib::new(file) }.ok())
    };
    NVML.get_or_init(open).as_ref()
}

/// Calls a function of NVML: `Ok(())`, or AMD SMI's status for NVML's. Use it inside an unsafe block.
macro_rules! nvml {
    ($function:ident($($argument:expr),* $(,)?)) => {
        match $crate::nvml::library() {
            None => Err(amdsmi_status_t::AMDSMI_STATUS_INIT_ERROR),
            Some(library) => match library.$function.as_ref() {
                Err(_) => Err(amdsmi_status_t::AMDSMI_STATUS_NOT_SUPPORTED),
                Ok(function) => $crate::nvml::check(function($($argument),*)),
            },
        }
    };
}
pub(crate) use nvml;

pub(crate) fn check(status: u32) -> Result<(), amdsmi_status_t> {
    Err(match status {
        0 => return Ok(()),
        // Not initialised, no driver, no library, mismatched versions.
        1 | 9 | 12 | 18 => amdsmi_status_t::AMDSMI_STATUS_INIT_ERROR,
        2 => amdsmi_status_t::AMDSMI_STATUS_INVAL,
        3 | 13 => amdsmi_status_t::AMDSMI_STATUS_NOT_SUPPORTED,
        4 => amdsmi_status_t::AMDSMI_STATUS_NO_PERM,
        6 | 28 => amdsmi_status_t::AMDSMI_STATUS_NOT_FOUND,
        7 => amdsmi_status_t::AMDSMI_STATUS_INSUFFICIENT_SIZE,
        19 => amdsmi_status_t::AMDSMI_STATUS_BUSY,
        20 | 23 => amdsmi_status_t::AMDSMI_STATUS_OUT_OF_RESOURCES,
        21 => amdsmi_status_t::AMDSMI_STATUS_NO_DATA,
        _ => amdsmi_status_t::AMDSMI_STATUS_UNKNOWN_ERROR,
    })
}

/// The handles of all devices, in order of their PCI addresses.
pub(crate) fn devices() -> Result<Vec<nvmlDevice_t>, amdsmi_status_t> {
    let mut count = 0;
    // SAFETY: `count` is a number that the call may write.
    unsafe { nvml!(nvmlDeviceGetCount_v2(&mut count))? };
    let handle = |index| {
        let mut device = ptr::null_mut();
        // SAFETY: `device` is a handle that the call may write.
        unsafe { nvml!(nvmlDeviceGetHandleByIndex_v2(index, &mut device))? };
        Ok(device)
    };
    (0..count).map(handle).collect()
}

/// The device of a handle of AMD SMI, which is NVML's.
pub(crate) fn device(handle: *mut c_void) -> Result<nvmlDevice_t, amdsmi_status_t> {
    let device = handle.cast();
    if devices()?.contains(&device) {
        Ok(device)
    } else {
        Err(amdsmi_status_t::AMDSMI_STATUS_INVAL)
    }
}

fn peer_status(first: nvmlDevice_t, second: nvmlDevice_t, index: u32) -> Result<bool, amdsmi_status_t> {
    let mut status = 0;
    // SAFETY: both are handles of NVML's, and `status` is a number that the call may write.
    unsafe { nvml!(nvmlDeviceGetP2PStatus(first, second, index, &mut status))? };
    Ok(status == OK)
}

/// True if the first device can read the second's memory.
pub(crate) fn reads(first: nvmlDevice_t, second: nvmlDevice_t) -> Result<bool, amdsmi_status_t> {
    peer_status(first, second, READ)
}

/// The link between two devices. NVLink is reported as xGMI.
pub(crate) fn link(first: nvmlDevice_t, second: nvmlDevice_t) -> Result<LinkType, amdsmi_status_t> {
    let nvlink = peer_status(first, second, NVLINK)?;
    Ok(if nvlink { LinkType::Xgmi } else { LinkType::Pcie })
}

/// The link between the devices at these PCI addresses; `None` if NVML does not report it.
pub(crate) fn link_by_address(first: &[c_char; 32], second: &[c_char; 32]) -> Option<LinkType> {
    /// True if NVML was initialised here. NVML counts initialisations, so a user's `amdsmi_init` and `amdsmi_shut_down` stay a pair.
    static INITIALISED: OnceLock<bool> = OnceLock::new();
    // SAFETY: takes no arguments.
    if !*INITIALISED.get_or_init(|| unsafe { nvml!(nvmlInit_v2()) }.is_ok()) {
        return None;
    }
    let at = |address: &[c_char; 32]| {
        let mut device = ptr::null_mut();
        // SAFETY: the address is C text, and `device` is a handle that the call may write.
        let found = unsafe { nvml!(nvmlDeviceGetHandleByPciBusId_v2(address.as_ptr(), &mut device)) };
        found.is_ok().then_some(device)
    };
    link(at(first)?, at(second)?).ok()
}
