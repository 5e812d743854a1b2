//! The GPU that `HIPVIT_TEST_DEVICE` names, and the dtypes of `HIPVIT_TEST_DTYPES`.

use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use hipvit::exec::Replays;
use hipvit::hip::{Device as Gpu, Runtime};
use hipvit::{DType, Device, Session};

/// Returns all dtypes, or those in `HIPVIT_TEST_DTYPES`, for a provider that lacks some.
pub(crate) fn dtypes() -> Vec<DType> {
    let named = std::env::var("HIPVIT_TEST_DTYPES").unwrap_or_else(|_| "f32,f16,bf16".into());
    let all = [DType::F32, DType::F16, DType::BF16];
    let dtype = |name: &str| *all.iter().find(|d| d.to_string() == name).unwrap();
    named.split(',').map(dtype).collect()
}

/// All tests share the free memory. The test that measures it has exclusive access to the GPU.
pub(crate) static SHARED: RwLock<()> = RwLock::new(());

/// Returns the GPU and a share of it, or `None`, with a message, if none is named.
pub(crate) fn device() -> Option<(Device, RwLockReadGuard<'static, ()>)> {
    let device = device_named()?;
    Some((device, SHARED.read().unwrap_or_else(PoisonError::into_inner)))
}

/// Returns the GPU without a share of it.
pub(crate) fn device_named() -> Option<Device> {
    let Ok(name) = std::env::var("HIPVIT_TEST_DEVICE") else {
        eprintln!("skipped: HIPVIT_TEST_DEVICE does not name a GPU");
        return None;
    };
    Some(name.parse().unwrap())
}

pub(crate) fn gpu(device: Device) -> Gpu {
    let Device::Hip(number) = device else {
        panic!("{device} is no GPU");
    };
    Runtime::open().unwrap().device(number).unwrap()
}

/// Checks that the session replays captured graphs and has not fallen back to eager steps.
#[track_caller]
pub(crate) fn replayed(session: &Session) -> Replays {
    let replays = session.hip_graphs().unwrap();
    assert!(
        replays.replayed_runs > 0 && replays.fallback.is_none(),
        "{replays:?}"
    );
    replays
}
