//! A server on the fake provider, and its requests when the device fails.

use hipvit::Session;
use hipvit_serve::{ModelSource, ServerOptions};

use crate::support::fake::server::{infer, load, refused};
use crate::support::fake::session::{builder, model};
use crate::support::fake::{Fake, Slot};
use crate::support::server::{Running, options, wait_until};

fn served(fake: &Fake) -> ServerOptions {
    let mut options = options();
    options.models = vec![ModelSource::new("vit", model())];
    options.instances = vec![builder(fake)];
    options
}

#[test]
fn a_failed_batch_is_run_again() {
    let fake = Fake::new("serve-retry");
    {
        let running = Running::new(served(&fake));
        let expected = infer(&running);
        assert_eq!(expected.status, 200);
        for nth in 1..4 {
            fake.set(Slot::FailCopy, nth);
            let again = infer(&running);
            assert_eq!((again.status, &again.body), (200, &expected.body));
        }
        assert!(running.metric("hipvit_retried_images_total{model=\"vit\"}") >= 1.0);
        assert_eq!(running.get("/v2/health/ready").status, 200);
    }
    fake.assert_clean();
}

#[test]
fn a_lost_device_is_taken_out_and_its_requests_run_elsewhere() {
    let fake = Fake::new("serve-lost");
    let mut options = served(&fake);
    options
        .instances
        .push(Session::builder().device(hipvit::Device::Cpu).threads(1));
    let running = Running::new(options);
    fake.set(Slot::Devices, 0);
    let alive = "hipvit_instances{model=\"vit\",device=\"hip:0\"}";
    assert_eq!(running.metric(alive), 1.0);
    // Whichever instance takes a request, it is answered.
    wait_until("the device is taken out", || {
        assert_eq!(infer(&running).status, 200);
        running.metric(alive) == 0.0
    });
    assert_eq!(infer(&running).status, 200);
    assert_eq!(running.get("/v2/health/ready").status, 200);
    assert_eq!(
        running.metric("hipvit_lost_instances_total{model=\"vit\",device=\"hip:0\"}"),
        1.0
    );
    fake.set(Slot::Devices, 1);
}

#[test]
fn under_load_failed_copies_cost_no_answer() {
    let fake = Fake::new("serve-load-copies");
    {
        let running = Running::new(served(&fake));
        let expected = infer(&running).body;
        // If the first fault hits a replay, the session computes it again, and replays nothing afterwards.
        let mut answers = load(&running, 100, || fake.set(Slot::FailCopy, 3));
        answers.extend(load(&running, 100, || fake.set(Slot::FailCopy, 3)));
        for answer in answers {
            assert_eq!((answer.status, &answer.body), (200, &expected));
        }
        assert!(running.metric("hipvit_retried_images_total{model=\"vit\"}") >= 1.0);
        assert_eq!(running.get("/v2/health/ready").status, 200);
    }
    fake.assert_clean();
}

#[test]
fn under_load_a_lost_device_costs_no_answer() {
    let fake = Fake::new("serve-load-lost");
    let mut options = served(&fake);
    options
        .instances
        .push(Session::builder().device(hipvit::Device::Cpu).threads(1));
    let running = Running::new(options);
    let answers = load(&running, 400, || fake.set(Slot::Devices, 0));
    assert!(answers.iter().all(|answer| answer.status == 200));
    assert_eq!(
        running.metric("hipvit_lost_instances_total{model=\"vit\",device=\"hip:0\"}"),
        1.0
    );
    assert_eq!(running.get("/v2/health/ready").status, 200);
    fake.set(Slot::Devices, 1);
}

/// Every request is answered, with 503 if no device is left.
#[test]
fn under_load_without_a_device_requests_are_refused() {
    let fake = Fake::new("serve-load-none");
    let running = Running::new(served(&fake));
    let expected = infer(&running).body;
    let answers = load(&running, 400, || fake.set(Slot::Devices, 0));
    assert!(refused(answers, &expected) > 0);
    assert_eq!(running.get("/v2/health/ready").status, 503);
    fake.set(Slot::Devices, 1);
}

#[test]
fn without_a_device_the_server_is_not_ready() {
    let fake = Fake::new("serve-none");
    let mut options = served(&fake);
    options.model_control = true;
    let running = Running::new(options);
    fake.set(Slot::Devices, 0);
    let (status, message) = infer(&running).error();
    assert_eq!(status, 503);
    assert_eq!(message, "model `vit` has no working device left. Load it again");
    wait_until("the server is not ready", || {
        running.get("/v2/health/ready").status == 503
    });
    assert_eq!(running.get("/v2/health/live").status, 200);
    assert_eq!(infer(&running).error().0, 503);
    // The device is back: loading the model again serves it.
    fake.set(Slot::Devices, 1);
    let load = running.post("/v2/repository/models/vit/load", &[], b"");
    assert_eq!(load.status, 200, "{load:?}");
    assert_eq!(infer(&running).status, 200);
    assert_eq!(running.get("/v2/health/ready").status, 200);
}
