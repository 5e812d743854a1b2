//! The plan cache on GPUs: f32 uses the CPU's graphs, narrower types and divided models have others.

use hipvit::{DType, Device, Parallelism, PlanCache, Session};

use crate::support::fake::session::{builder, model, on};
use crate::support::fake::{Fake, Slot};
use crate::support::session::{images, same};

#[test]
fn a_gpu_computes_the_same_from_a_cached_graph() {
    let fake = Fake::new("plan_cache");
    let folder = tempfile::tempdir().unwrap();
    {
        let images = images(3);
        let expected = builder(&fake).load(model()).unwrap().run(&images).unwrap();
        let load = |builder: hipvit::SessionBuilder| builder.plan_cache(folder.path()).load(model()).unwrap();
        let is_cached = |session: &Session| matches!(session.plan_cache(), Some(PlanCache::Cached { .. }));
        assert!(!is_cached(&load(Session::builder().device(Device::Cpu))));
        let session = load(builder(&fake));
        assert!(is_cached(&session), "{:?}", session.plan_cache());
        same(&session.run(&images).unwrap(), &expected);

        // Normalisation is not folded into the weights.
        assert!(!is_cached(&load(builder(&fake).dtype(DType::F16))));
        assert!(is_cached(&load(builder(&fake).dtype(DType::BF16))));

        let divided = || on(&fake, 3, Parallelism::tensor());
        let expected = divided().load(model()).unwrap().run(&images).unwrap();
        let session = load(divided());
        assert!(is_cached(&session), "{:?}", session.plan_cache());
        same(&session.run(&images).unwrap(), &expected);
    }
    fake.set(Slot::Devices, 1);
    fake.assert_clean();
}
