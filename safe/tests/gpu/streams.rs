//! Streams with priorities, and on some of the compute units.

use hip_safe::{Device, Error, StreamOptions};

use super::{Check, ensure};

pub(crate) fn priorities(device: &Device) -> Check {
    let priorities = device.stream_priorities()?;
    for priority in [*priorities.start(), *priorities.end()] {
        let stream = device.stream_with(&StreamOptions {
            priority: Some(priority),
            ..StreamOptions::default()
        })?;
        ensure(stream.priority()? == priority, || format!("not {priority}"))?;
        ensure(stream.upload(&[1.0f32; 10])?.read()? == [1.0; 10], || {
            "a copy".into()
        })?;
    }
    let refused = device.stream_with(&StreamOptions {
        priority: Some(priorities.end() + 1),
        ..StreamOptions::default()
    });
    ensure(matches!(refused, Err(Error::Argument { .. })), || {
        format!("{refused:?}")
    })?;
    Ok(format!("{priorities:?}"))
}

pub(crate) fn compute_units(device: &Device) -> Check {
    let options = |compute_units: &[u32]| StreamOptions {
        compute_units: Some(compute_units.to_vec()),
        ..StreamOptions::default()
    };
    let empty = device.stream_with(&options(&[0, 0]));
    ensure(matches!(empty, Err(Error::Argument { .. })), || {
        format!("{empty:?}")
    })?;
    let both = device.stream_with(&StreamOptions {
        priority: Some(0),
        ..options(&[1])
    });
    ensure(matches!(both, Err(Error::Argument { .. })), || {
        format!("{both:?}")
    })?;
    let stream = device.stream_with(&options(&[0xff]))?;
    let mask = stream.compute_units()?;
    ensure(mask[0] == 0xff && mask[1..].iter().all(|&word| word == 0), || {
        format!("{mask:x?}")
    })?;
    ensure(stream.upload(&[1.0f32; 10])?.read()? == [1.0; 10], || {
        "a copy".into()
    })?;
    Ok("the first eight".into())
}
