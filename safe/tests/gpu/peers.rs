//! Two GPUs.

use hip_safe::Device;

use super::scale::{scale, scale_kernel};
use super::{Absent, Check, ensure, numbers};

/// Copies from and to another GPU while both compute, with and without access to each other's memory.
pub(crate) fn peers(device: &Device) -> Check {
    let devices = device.runtime().devices()?;
    let Some(other) = devices.iter().find(|other| *other != device) else {
        return Err(Absent("there is one GPU").into());
    };
    let values = numbers(5_000_003, 7);
    let mut note = "through the host".to_owned();
    for direct in [false, true] {
        if direct {
            if !device.can_access_peer(other)? || !other.can_access_peer(device)? {
                break;
            }
            device.enable_peer_access(other)?;
            other.enable_peer_access(device)?;
            other.enable_peer_access(device)?;
            note += " and directly";
        }
        for (from, to) in [(device, other), (other, device)] {
            let kernel = scale_kernel(from)?;
            let (home, away) = (from.stream()?, to.stream()?);
            let original = home.upload(&values)?;
            let mut source = home.zeroed::<f32>(values.len())?;
            let mut target = away.zeroed::<f32>(values.len())?;
            for factor in [5.0, -2.0] {
                scale(&kernel, &home, factor, original.reading(), source.writing())?;
            }
            target.copy_from_peer(source.reading())?;
            source.fill(0)?;
            let right = target.read()?.iter().zip(&values).all(|(a, b)| *a == -2.0 * b);
            ensure(right, || {
                format!("{} to {}: wrong values", from.name(), to.name())
            })?;
        }
    }
    Ok(format!("{} and {}, {note}", device.name(), other.name()))
}
