//! A server whose models are divided among several GPUs of the fake provider.

use std::thread;

use hipvit::image::{Limits, decode};
use hipvit::{GraphMode, Parallelism, Session, SessionBuilder};
use hipvit_serve::{ModelSource, ServerOptions};

use crate::support::fake::server::{infer, load, refused};
use crate::support::fake::session::{model, on};
use crate::support::fake::{Fake, Slot};
use crate::support::server::{Running, floats, options, sample, wait_until};

fn served(instances: Vec<SessionBuilder>) -> ServerOptions {
    let mut options = options();
    options.models = vec![ModelSource::new("vit", model())];
    options.instances = instances;
    options.max_batch = 2;
    // Large enough that no client of these tests is asked to retry.
    options.backlog = 16;
    options
}

/// Creates `groups` of three GPUs each. A group divides the model by tensor parallelism.
fn groups(fake: &Fake, groups: usize) -> Vec<SessionBuilder> {
    fake.set(Slot::Devices, 3 * groups as u64);
    let gpus = fake.runtime().devices().unwrap();
    let group = |gpus: &[hipvit::hip::Device]| {
        let builder = Session::builder().gpus(gpus.iter().cloned()).threads(2);
        // A lost GPU of the fake provider only refuses launches.
        builder.parallel(Parallelism::tensor()).hip_graphs(GraphMode::Off)
    };
    gpus.chunks(3).map(group).collect()
}

fn of_devices(metric: &str, devices: &str) -> String {
    format!("{metric}{{model=\"vit\",device=\"{devices}\"}}")
}

#[test]
fn a_divided_model_answers_as_its_session_does() {
    let fake = Fake::new("serve-divided");
    {
        for (count, parallel, devices) in [
            (3, "tensor", "hip:0,1,2"),
            (2, "pipeline", "hip:0,1"),
            (6, "tensor=3,pipeline=2", "hip:0,1,2,3,4,5"),
            (4, "pipeline=2,data=2", "hip:0,1,2,3"),
        ] {
            let builder = on(&fake, count, parallel.parse().unwrap());
            let session = builder.load(model()).unwrap();
            let image = decode("sample", &sample(7), Limits::default()).unwrap();
            let expected = session.run([image]).unwrap();
            let expected = expected.logits().unwrap().as_slice().unwrap().to_vec();
            drop(session);

            let mut options = served(vec![builder]);
            options.model_control = true;
            let running = Running::new(options);
            assert_eq!(running.metric(&of_devices("hipvit_instances", devices)), 1.0);
            for answer in load(&running, 40, || ()) {
                assert_eq!(answer.status, 200, "{parallel}");
                assert_eq!(floats(&answer.json(), "logits"), expected, "{parallel}");
            }
            // Loaded again while it is asked, and unloaded.
            let answers = load(&running, 40, || {
                let loaded = running.post("/v2/repository/models/vit/load", &[], b"");
                assert_eq!(loaded.status, 200, "{loaded:?}");
            });
            for answer in answers {
                // A request may have found the model that was being replaced.
                if answer.status != 503 {
                    assert_eq!(floats(&answer.json(), "logits"), expected, "{parallel}");
                }
            }
            assert_eq!(infer(&running).status, 200);
            assert_eq!(running.get("/v2/health/ready").status, 200);
            let unloaded = running.post("/v2/repository/models/vit/unload", &[], b"");
            assert_eq!(unloaded.status, 200, "{unloaded:?}");
            assert_eq!(running.metric(&of_devices("hipvit_instances", devices)), 0.0);
        }
    }
    fake.assert_clean();
}

/// No GPU waits for another in the middle of a different model's run.
#[test]
fn models_on_the_same_gpus_run_by_turns() {
    let fake = Fake::new("serve-divided-models");
    {
        let mut options = served(groups(&fake, 1));
        options.models.push(ModelSource::new("other", model()));
        options.pixel_values = true;
        let running = Running::new(options);
        let expected = infer(&running).json()["outputs"].clone();
        thread::scope(|scope| {
            for name in ["vit", "other", "vit", "other"] {
                let (running, expected) = (&running, &expected);
                scope.spawn(move || {
                    let headers = [("Inference-Header-Content-Length", "0")];
                    for _ in 0..10 {
                        let path = format!("/v2/models/{name}/infer");
                        let answer = running.post(&path, &headers, &sample(7));
                        assert_eq!((answer.status, &answer.json()["outputs"]), (200, expected));
                    }
                });
            }
        });
    }
    fake.assert_clean();
}

#[test]
fn a_group_that_loses_a_gpu_is_taken_out_and_loaded_again() {
    for lost in 1..=3 {
        let fake = Fake::new(&format!("serve-divided-lost-{lost}"));
        let mut options = served(groups(&fake, 1));
        options.model_control = true;
        let running = Running::new(options);
        let expected = infer(&running).body;
        let answers = load(&running, 100, || fake.set(Slot::LoseDevice, lost));
        assert!(refused(answers, &expected) > 0);
        let group = "hip:0,1,2";
        assert_eq!(running.metric(&of_devices("hipvit_instances", group)), 0.0);
        assert_eq!(
            running.metric(&of_devices("hipvit_lost_instances_total", group)),
            1.0
        );
        assert_eq!(running.get("/v2/health/ready").status, 503);
        assert_eq!(running.get("/v2/health/live").status, 200);
        // The GPU is back.
        fake.set(Slot::LoseDevice, 0);
        let loaded = running.post("/v2/repository/models/vit/load", &[], b"");
        assert_eq!(loaded.status, 200, "{loaded:?}");
        assert_eq!(infer(&running).body, expected);
        assert_eq!(running.get("/v2/health/ready").status, 200);
    }
}

#[test]
fn a_lost_gpu_costs_its_group_alone() {
    let fake = Fake::new("serve-divided-groups");
    let running = Running::new(served(groups(&fake, 2)));
    let of_group = |group| running.metric(&of_devices("hipvit_instances", group));
    assert_eq!((of_group("hip:0,1,2"), of_group("hip:3,4,5")), (1.0, 1.0));
    let expected = infer(&running).body;
    fake.set(Slot::LoseDevice, 5);
    wait_until("the second group is taken out", || {
        let answers = load(&running, 20, || ());
        for answer in answers {
            assert_eq!((answer.status, &answer.body), (200, &expected));
        }
        of_group("hip:3,4,5") == 0.0
    });
    assert_eq!(of_group("hip:0,1,2"), 1.0);
    assert_eq!(infer(&running).body, expected);
    assert_eq!(running.get("/v2/health/ready").status, 200);
}
