//! Several devices: what links them, and access to each other's memory.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use hip_provider::hip::{LinkType, put};
use hipvit_sys::hip::{hipDeviceP2PAttr, hipError_t};

use super::hip;
use super::machine::{Device, current, device, machine};

/// The link between two devices and the hops over it: one by Infinity Fabric, two by PCIe.
pub(crate) fn link(first: &Device, second: &Device) -> (LinkType, u32) {
    if first.part.fabric && second.part.fabric {
        (LinkType::Xgmi, 1)
    } else {
        (LinkType::Pcie, 2)
    }
}

/// Pairs of devices: the first may access the second's memory.
static ENABLED: Mutex<BTreeSet<(u32, u32)>> = Mutex::new(BTreeSet::new());

fn set(peer: i32, allowed: bool) -> Result<(), hipError_t> {
    let (own, peer) = (current()?, device(peer)?);
    if own.ordinal == peer.ordinal {
        return Err(hipError_t::hipErrorInvalidDevice);
    }
    let pair = (own.ordinal, peer.ordinal);
    let mut enabled = ENABLED.lock().unwrap_or_else(PoisonError::into_inner);
    if allowed {
        if !enabled.insert(pair) {
            return Err(hipError_t::hipErrorPeerAccessAlreadyEnabled);
        }
    } else if !enabled.remove(&pair) {
        return Err(hipError_t::hipErrorPeerAccessNotEnabled);
    }
    machine()?.memory.allow_peer(pair.0, pair.1, allowed);
    Ok(())
}

hip! {
    /// Every device can access every other one's memory; for itself the answer is no.
    fn hipDeviceCanAccessPeer(can: *mut i32, from: i32, to: i32) {
        let (from, to) = (device(from)?, device(to)?);
        put(can, i32::from(from.ordinal != to.ordinal))
    }

    fn hipDeviceGetP2PAttribute(value: *mut i32, attribute: hipDeviceP2PAttr, from: i32, to: i32) {
        let (from, to) = (device(from)?, device(to)?);
        if from.ordinal == to.ordinal {
            return Err(hipError_t::hipErrorInvalidDevice);
        }
        put(value, match attribute {
            hipDeviceP2PAttr::hipDevP2PAttrPerformanceRank => i32::from(link(from, to).0 == LinkType::Pcie),
            hipDeviceP2PAttr::hipDevP2PAttrAccessSupported | hipDeviceP2PAttr::hipDevP2PAttrNativeAtomicSupported => 1,
            hipDeviceP2PAttr::hipDevP2PAttrHipArrayAccessSupported => 0,
            _ => return Err(hipError_t::hipErrorInvalidValue),
        })
    }

    fn hipExtGetLinkTypeAndHopCount(first: i32, second: i32, kind: *mut u32, hops: *mut u32) {
        let (first, second) = (device(first)?, device(second)?);
        if first.ordinal == second.ordinal {
            return Err(hipError_t::hipErrorInvalidValue);
        }
        let (found, count) = link(first, second);
        put(kind, found as u32)?;
        put(hops, count)
    }

    fn hipDeviceEnablePeerAccess(peer: i32, flags: u32) {
        if flags != 0 {
            return Err(hipError_t::hipErrorInvalidValue);
        }
        set(peer, true)
    }

    fn hipDeviceDisablePeerAccess(peer: i32) {
        set(peer, false)
    }
}
