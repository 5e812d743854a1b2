//! Links between GPUs.

use hipvit_sys::hip::hipDeviceP2PAttr;
use serde::Serialize;

use crate::device::Device;
use crate::error::Result;
use crate::status::call;

/// The links of one GPU to all others.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Topology {
    /// One for each other GPU.
    pub links: Vec<Link>,
}

/// A link from one GPU to another. What the driver does not say is `None`.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Link {
    /// The other GPU's number.
    pub to: usize,
    /// Kind of the link.
    pub kind: Option<LinkType>,
    /// Number of links between the two GPUs.
    pub hops: Option<u32>,
    /// True if each GPU can read and write the other's memory.
    pub peer_access: Option<bool>,
    /// True if atomics work across the link.
    pub atomics: Option<bool>,
    /// The driver's ranking of links: 0 is the fastest.
    pub rank: Option<i32>,
}

/// Kind of a link between GPUs, with the numbers of HSA's `hsa_amd_link_info_type_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum LinkType {
    /// The processors' HyperTransport.
    HyperTransport,
    /// The processors' QPI.
    Qpi,
    /// PCI Express.
    Pcie,
    /// InfiniBand.
    InfiniBand,
    /// AMD's Infinity Fabric; NVLink, where the provider is one for CUDA.
    Xgmi,
    /// A number that is none of these.
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
    /// The driver does not say how many GPUs there are.
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
