//! Sensors and counters.

use hip_safe::{Device, Monitor};

use super::{Check, ensure};

pub(crate) fn monitor(device: &Device) -> Check {
    let monitor = Monitor::new(device)?;
    let stream = device.stream()?;
    let before = monitor.memory_used()?;
    let buffer = stream.zeroed::<u8>(256 << 20)?;
    stream.synchronize()?;
    let (used, total) = (monitor.memory_used()?, monitor.memory_total()?);
    ensure(used >= 256 << 20 && used <= total, || {
        format!("{before}, then {used} of {total}")
    })?;
    drop(buffer);
    let readings = monitor.readings()?;
    for (value, range) in [
        (readings.temperature, 0.0..=130.0),
        (readings.power, 1.0..=3000.0),
        (readings.clock, 1.0..=10_000.0),
        (readings.memory_clock, 1.0..=20_000.0),
        (readings.utilisation, 0.0..=1.0),
    ] {
        ensure(value.is_none_or(|value| range.contains(&value)), || {
            format!("{readings:?}")
        })?;
    }
    let second = Monitor::new(device)?;
    drop(monitor);
    ensure(second.memory_total()? == total, || {
        "one monitor ended the other".into()
    })?;
    device.trim()?;
    Ok(format!("{}: {readings:?}", second.name()?))
}
