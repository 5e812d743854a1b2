//! Peers: links between devices, access to each other's memory, copies between them.

use std::ffi::c_void;

use hip_provider::hip::LinkType;
use hipvit_sys::hip::{self, hipDeviceP2PAttr, hipError_t};

use super::pointer::address;
use super::{context, cu, hip, hip_without_context};
use crate::nvml::link_by_address;

/// The link between two devices.
fn link(first: i32, second: i32) -> Result<LinkType, hipError_t> {
    link_by_address(&bus_id(first)?, &bus_id(second)?).ok_or(hipError_t::hipErrorNotSupported)
}

/// A device's PCI address, as a C string.
fn bus_id(device: i32) -> Result<[std::ffi::c_char; 32], hipError_t> {
    let device = context::known(device)?;
    let mut id = [0; 32];
    // SAFETY: `id` has the given length.
    unsafe { cu!(cuDeviceGetPCIBusId(id.as_mut_ptr(), 32, device))? };
    Ok(id)
}

hip_without_context! {
    fn hipDeviceCanAccessPeer(can: *mut i32, device: i32, peer: i32) {
        let (device, peer) = (context::known(device)?, context::known(peer)?);
        cu!(cuDeviceCanAccessPeer(can, device, peer))
    }

    /// HIP's attributes count from 0, the driver's from 1.
    fn hipDeviceGetP2PAttribute(value: *mut i32, attribute: hipDeviceP2PAttr, from: i32, to: i32) {
        let (from, to) = (context::known(from)?, context::known(to)?);
        if attribute.0 > hipDeviceP2PAttr::hipDevP2PAttrHipArrayAccessSupported.0 {
            return Err(hipError_t::hipErrorInvalidValue);
        }
        cu!(cuDeviceGetP2PAttribute(value, attribute.0 + 1, from, to))
    }

    fn hipExtGetLinkTypeAndHopCount(first: i32, second: i32, kind: *mut u32, hops: *mut u32) {
        let found = link(first, second)?;
        kind.write(found as u32);
        hops.write(found.hops());
        Ok(())
    }
}

hip! {
    fn hipDeviceEnablePeerAccess(peer: i32, flags: u32) {
        let peer = context::primary(context::known(peer)?)?;
        cu!(cuCtxEnablePeerAccess(peer, flags))
    }

    fn hipDeviceDisablePeerAccess(peer: i32) {
        let peer = context::primary(context::known(peer)?)?;
        cu!(cuCtxDisablePeerAccess(peer))
    }

    fn hipMemcpyPeer(to: *mut c_void, to_device: i32, from: *const c_void, from_device: i32, size: usize) {
        let (target, source) = (context::primary(to_device)?, context::primary(from_device)?);
        cu!(cuMemcpyPeer(address(to), target, address(from), source, size))
    }

    fn hipMemcpyPeerAsync(
        to: *mut c_void, to_device: i32, from: *const c_void, from_device: i32, size: usize, stream: hip::hipStream_t,
    ) {
        let (target, source) = (context::primary(to_device)?, context::primary(from_device)?);
        cu!(cuMemcpyPeerAsync(address(to), target, address(from), source, size, stream.cast()))
    }
}
