//! Sessions on the fake GPU.

use std::path::PathBuf;

use hipvit::{Parallelism, Session, SessionBuilder};

use crate::support::at;
use crate::support::fake::{Fake, Slot};

pub(crate) fn model() -> PathBuf {
    at("tests/golden/timm_vit_class_token")
}

pub(crate) fn builder(fake: &Fake) -> SessionBuilder {
    Session::builder().gpu(fake.device()).threads(2)
}

pub(crate) fn session(fake: &Fake, batch: usize) -> Session {
    builder(fake).batch(batch).load(model()).unwrap()
}

/// Returns a builder for a model on `count` GPUs.
pub(crate) fn on(fake: &Fake, count: usize, parallelism: Parallelism) -> SessionBuilder {
    fake.set(Slot::Devices, count as u64);
    let gpus = fake.runtime().devices().unwrap();
    assert_eq!(gpus.len(), count);
    Session::builder()
        .gpus(gpus)
        .parallel(parallelism)
        .threads(2)
        .batch(2)
}
