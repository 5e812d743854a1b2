//! Links between GPUs.

use hipvit_sys::hip::hipDeviceP2PAttr;
use serde::Serialize;

use crate::device::Device;
use crate::error::Result;
use crate::status::call;

/// Links of one GPU to all others.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Topology {
    /// One link per other GPU.
    pub links: Vec<Link>,
}

/// A link from one GPU to another. Values that the driver does not report are `None`.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Link {
    /// Ordinal of the other GPU.
    pub to: usize,
    /// Kind of the link.
    pub kind: Option<LinkType>,
    /// Number of links between the two GPUs.
    pub hops: Option<u32>,
    /// True if each GPU can read and write the other's memory.
    pub peer_access: Option<bool>,
    /// True if atomics work across the link.
    pub atomics: Option<bool>,
    /// The driver's rank of the link. 0 is the fastest.
    pub rank: Option<i32>,
}

/// Kind of a link between GPUs, by the numbers of HSA's `hsa_amd_link_info_type_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum LinkType {
    /// HyperTransport of the processors.
    HyperTransport,
    /// QPI of the processors.
    Qpi,
    /// PCI Express.
    Pcie,
    /// InfiniBand.
    InfiniBand,
    /// Infinity Fabric on AMD; NVLink with a provider for CUDA.
    Xgmi,
    /// Another number.
    Other(u32),
}

impl From<u32> for LinkType {
    fn from(number: u32) -> Self {
        match number {
            0 => Self::HyperTransport,
            1 => Self::Qpi,
            2 => Self::Pcie,
            3 => Self::InfiniBand,
            4 => Self::Xgmi,
            other => Self::Other(other),
        }
    }
}

impl Device {
    /// Returns the device's links to the other GPUs.
    ///
    /// # Errors
    ///
    /// [`Error::Device`](crate::Error::Device) if the driver does not report the number of GPUs.
    pub fn topology(&self) -> Result<Topology> {
        Topology::query(self)
    }
}

impl Topology {
    fn query(device: &Device) -> Result<Self> {
        let others = (0..device.runtime().device_count()?).filter(|&n| n != device.ordinal());
        Ok(Self {
            links: others.map(|to| Link::query(device, to)).collect::<Result<_>>()?,
        })
    }
}

impl Link {
    fn query(device: &Device, to: usize) -> Result<Self> {
        let hip = device.enter()?;
        let (here, there) = (device.ordinal() as i32, to as i32);
        let (mut kind, mut hops, mut access) = (0, 0, 0);
        // SAFETY: the calls write the numbers that they are given.
        let (link, peer) = unsafe {
            (
                call!(
                    device,
                    hip.hipExtGetLinkTypeAndHopCount(here, there, &mut kind, &mut hops)
                ),
                call!(device, hip.hipDeviceCanAccessPeer(&mut access, here, there)),
            )
        };
        let attribute = |attribute| {
            let mut value = 0;
            // SAFETY: the call writes one int.
            unsafe {
                call!(
                    device,
                    hip.hipDeviceGetP2PAttribute(&mut value, attribute, here, there)
                )
            }
            .ok()
            .map(|()| value)
        };
        Ok(Self {
            to,
            kind: link.is_ok().then(|| kind.into()),
            hops: link.is_ok().then_some(hops),
            peer_access: peer.is_ok().then_some(access != 0),
            atomics: attribute(hipDeviceP2PAttr::hipDevP2PAttrNativeAtomicSupported).map(|v| v != 0),
            rank: attribute(hipDeviceP2PAttr::hipDevP2PAttrPerformanceRank),
        })
    }
}
