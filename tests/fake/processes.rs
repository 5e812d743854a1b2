//! One model over several processes. Threads act as processes here; they share the provider's RCCL and also
//! use TCP. `emu/processes.rs` has real processes.

use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

use hipvit::hip::World;
use hipvit::timing::Timing;
use hipvit::{
    AllReduceKind, DType, Error, GraphMode, Outputs, Parallelism, Result, RunOptions, Session, SessionBuilder,
};

use crate::support::at;
use crate::support::fake::session::on;
use crate::support::fake::{Fake, Slot};
use crate::support::session::{images, same};

/// Change of a process's options.
type Change = fn(SessionBuilder) -> SessionBuilder;

/// Models with three heads, and with two.
const THREE: &str = "timm_vit_class_token";
const TWO: &str = "timm_dinov2_reg4_swiglu";

fn worlds(ranks: usize) -> Vec<World> {
    let port = TcpListener::bind(("127.0.0.1", 0))
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let world = |rank: usize| {
        let find = |name: &str| match name {
            "RANK" => Some(rank.to_string()),
            "WORLD_SIZE" => Some(ranks.to_string()),
            "MASTER_ADDR" => Some("127.0.0.1".to_owned()),
            "MASTER_PORT" => Some(port.to_string()),
            // Concurrent tests do not use adjacent ports.
            "TORCHELASTIC_RUN_ID" => Some(port.to_string()),
            _ => None,
        };
        World::from_variables(find).unwrap().unwrap()
    };
    (0..ranks).map(world).collect()
}

/// Returns the options of each process with its GPU.
fn builders(fake: &Fake, ranks: usize) -> Vec<SessionBuilder> {
    fake.set(Slot::Devices, ranks as u64);
    let gpus = fake.runtime().devices().unwrap().into_iter();
    let builder = |(gpu, world)| {
        let builder = Session::builder()
            .gpu(gpu)
            .world(world)
            .parallel(Parallelism::tensor());
        builder
            .rendezvous_timeout(Duration::from_secs(60))
            .threads(2)
            .batch(2)
    };
    gpus.zip(worlds(ranks)).map(builder).collect()
}

/// Loads the model in each process. `lead` gets rank 0's session. Returns the results of the other ranks.
fn run(
    builders: &[SessionBuilder],
    models: &[&str],
    lead: impl FnOnce(Session),
    follow: impl Fn(usize, Session) -> Result<()> + Sync,
) -> Vec<Result<()>> {
    let load = |rank: usize| builders[rank].load(at("tests/golden").join(models[rank]));
    thread::scope(|scope| {
        let (load, follow) = (&load, &follow);
        let others = 1..builders.len();
        let others: Vec<_> = others
            .map(|rank| scope.spawn(move || follow(rank, load(rank)?)))
            .collect();
        let led = load(0).map(lead);
        let others = others.into_iter().map(|other| other.join().unwrap());
        [led].into_iter().chain(others).collect()
    })
}

/// Runs one model in all processes and expects no errors.
fn runs(builders: &[SessionBuilder], model: &str, lead: impl FnOnce(Session)) {
    let models = vec![model; builders.len()];
    for result in run(builders, &models, lead, |_, session| session.follow()) {
        result.unwrap();
    }
}

fn library(fake: &Fake, ranks: usize) -> SessionBuilder {
    on(fake, ranks, Parallelism::tensor()).all_reduce(AllReduceKind::Library)
}

fn load(builder: &SessionBuilder, model: &str) -> Session {
    builder.load(at("tests/golden").join(model)).unwrap()
}

#[test]
fn processes_give_the_bits_of_one() {
    let fake = Fake::new("processes");
    {
        let images = images(5);
        for (model, ranks) in [(THREE, 3), (TWO, 2)] {
            let whole = load(&library(&fake, ranks), model);
            let expected = whole.run(&images).unwrap();
            runs(&builders(&fake, ranks), model, |session| {
                assert_eq!(session.degrees().tensor, ranks);
                // The third run replays what the second captured.
                for _ in 0..4 {
                    same(&session.run(&images).unwrap(), &expected);
                }
                same(
                    &session.run(&images[..1]).unwrap(),
                    &whole.run(&images[..1]).unwrap(),
                );
                let mut timing = Timing::default();
                let timed = RunOptions::new().timing(&mut timing);
                same(&session.run_with(&images, timed).unwrap(), &expected);
                assert!(timing.phases().count() > 3);
                let replays = session.hip_graphs().unwrap();
                assert_eq!(replays.fallback, None);
                assert!(replays.replayed_runs >= 6, "{replays:?}");
                let sums = replays.all_reduce.unwrap();
                assert_eq!(sums, "RCCL (the GPUs are of several processes)");
            });
        }
    }
    fake.assert_clean();
}

#[test]
fn threads_share_a_model_of_several_processes() {
    let fake = Fake::new("processes-threads");
    {
        let images = images(4);
        runs(&builders(&fake, 2), TWO, |session| {
            let expected = session.run(&images).unwrap();
            thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| (0..3).for_each(|_| same(&session.run(&images).unwrap(), &expected)));
                }
            });
        });
    }
    fake.assert_clean();
}

/// If one process cannot make a replay, no process does.
#[test]
fn replays_are_all_processes_or_none() {
    for fault in [Slot::CorruptReplay, Slot::FailCapture] {
        let fake = Fake::new(&format!("processes-{fault:?}"));
        {
            let images = images(2);
            runs(&builders(&fake, 3), THREE, |session| {
                let first = session.run(&images).unwrap();
                fake.set(fault, 1);
                for _ in 0..3 {
                    same(&session.run(&images).unwrap(), &first);
                }
                let replays = session.hip_graphs().unwrap();
                assert!(replays.fallback.is_some(), "{replays:?}");
                assert_eq!((replays.eager_runs, replays.replayed_runs), (4, 0));
            });
        }
        fake.assert_clean();
    }
}

/// If any process lacks memory, none begins the run, and the next run succeeds.
#[test]
fn a_batch_without_memory_is_refused_by_all() {
    // So many that what else could be given back does not suffice for half of them.
    let images = images(64);
    let with = |builder: SessionBuilder| builder.batch(64);
    let need = {
        let fake = Fake::new("processes-need");
        let whole = load(&with(library(&fake, 2)), TWO);
        whole.run(&images[..1]).unwrap();
        let before = fake.get(Slot::DeviceBytes);
        whole.run(&images).unwrap();
        (fake.get(Slot::DeviceBytes) - before) / 2
    };
    let fake = Fake::new("processes-memory");
    {
        let builders: Vec<_> = builders(&fake, 2).into_iter().map(with).collect();
        runs(&builders, TWO, |session| {
            let expected = session.run(&images[..1]).unwrap();
            // For none of them, and for one.
            for one_has in [false, true] {
                let for_one = fake.get(Slot::DeviceBytes) + need + need / 2;
                fake.set(Slot::MemoryLimit, if one_has { for_one } else { 1 });
                let error = session.run(&images).unwrap_err();
                assert!(error.to_string().contains("out of memory"), "{error}");
                fake.set(Slot::MemoryLimit, 0);
                same(&session.run(&images[..1]).unwrap(), &expected);
            }
            assert_eq!(session.run(&images).unwrap().len(), 64);
        });
    }
    fake.assert_clean();
}

/// Checks that rank 0 and the others end with the same error.
#[track_caller]
fn is_rank(error: &Error, lost: usize, count: usize, text: &str) {
    let Error::Rank {
        rank,
        ranks,
        device,
        reason,
    } = error
    else {
        panic!("{error}");
    };
    assert_eq!((*rank, *ranks), (lost, count), "{error}");
    assert!(
        device.starts_with(&format!("GPU {lost} ")) && device.contains(" of "),
        "{error}"
    );
    assert!(reason.contains(text), "{error}");
}

#[test]
fn a_lost_gpu_is_named_in_all_processes() {
    let images = images(2);
    for lost in 0..3 {
        let fake = Fake::new(&format!("processes-lost-{lost}"));
        let builders = builders(&fake, 3).into_iter();
        let builders: Vec<_> = builders
            .map(|builder| builder.hip_graphs(GraphMode::Off))
            .collect();
        let lead = |session: Session| {
            session.run(&images).unwrap();
            fake.set(Slot::LoseDevice, lost as u64 + 1);
            let error = session.run(&images).unwrap_err();
            is_rank(&error, lost, 3, "");
            assert_eq!(session.run(&images).unwrap_err().to_string(), error.to_string());
        };
        let ends = run(&builders, &[THREE; 3], lead, |_, session| session.follow());
        assert!(ends[0].is_ok());
        for end in &ends[1..] {
            is_rank(end.as_ref().unwrap_err(), lost, 3, "");
        }
    }
}

#[test]
fn a_session_that_is_dropped_is_a_failure_of_its_rank() {
    let images = images(2);
    let fake = Fake::new("processes-dropped");
    let begun = Instant::now();
    let lead = |session: Session| {
        let run = || session.run(&images);
        let error = loop {
            match run() {
                Ok(_) => thread::sleep(Duration::from_millis(5)),
                Err(error) => break error,
            }
        };
        is_rank(&error, 1, 3, "its session was dropped before rank 0's");
    };
    let ends = run(
        &builders(&fake, 3),
        &[THREE; 3],
        lead,
        |rank, session| match rank {
            1 => {
                thread::sleep(Duration::from_millis(300));
                Ok(())
            }
            _ => session.follow(),
        },
    );
    is_rank(ends[2].as_ref().unwrap_err(), 1, 3, "its session was dropped");
    assert!(begun.elapsed() < Duration::from_secs(30));
}

#[test]
fn what_differs_is_named_in_all_processes() {
    let fake = Fake::new("processes-differ");
    {
        let cases: [(&str, Change); 5] = [
            ("rank 0 and rank 1 differ in batch: 2 and 4", |builder| {
                builder.batch(4)
            }),
            ("differ in dtype: F32 and F16", |builder| {
                builder.dtype(DType::F16)
            }),
            ("differ in selection", |builder| builder.reproducible(true)),
            ("differ in HIP graphs: Auto and Off", |builder| {
                builder.hip_graphs(GraphMode::Off)
            }),
            ("differ in outputs and image size", |builder| builder.tokens(true)),
        ];
        for (text, change) in cases {
            let mut builders = builders(&fake, 3);
            builders[1] = change(builders[1].clone());
            for end in run(&builders, &[THREE; 3], |_| {}, |_, session| session.follow()) {
                let error = end.unwrap_err().to_string();
                assert!(error.contains(text), "{error}");
            }
        }
        let ends = run(
            &builders(&fake, 3),
            &[THREE, THREE, "timm_vit_rope"],
            |_| {},
            |_, session| session.follow(),
        );
        for end in ends {
            let error = end.unwrap_err().to_string();
            assert!(
                error.contains("rank 0 and rank 2 differ in model: timm_vit_class_token (checksum"),
                "{error}"
            );
        }
    }
    fake.assert_clean();
}

/// One process cannot read the model and reports why; the others name it.
#[test]
fn a_process_that_cannot_load_is_named() {
    let fake = Fake::new("processes-missing");
    {
        let ends = run(
            &builders(&fake, 2),
            &[TWO, "missing"],
            |_| {},
            |_, session| session.follow(),
        );
        let [first, second] = [0, 1].map(|rank| ends[rank].as_ref().unwrap_err().to_string());
        assert!(first.starts_with("rank 1 of 2, no GPU of "), "{first}");
        assert!(
            first.contains("missing") && second.contains("missing"),
            "{first}; {second}"
        );
        assert!(!second.starts_with("rank"), "{second}");
        // Three heads on two GPUs.
        for end in run(
            &builders(&fake, 2),
            &[THREE; 2],
            |_| {},
            |_, session| session.follow(),
        ) {
            let error = end.unwrap_err().to_string();
            assert!(error.contains("3 attention heads"), "{error}");
        }
    }
    fake.assert_clean();
}

#[test]
fn what_processes_cannot_do_is_an_error() {
    let fake = Fake::new("processes-wrong");
    {
        let path = at("tests/golden").join(TWO);
        let error = |builder: SessionBuilder| builder.load(&path).unwrap_err().to_string();
        let each = |change: Change| {
            let builders: Vec<_> = builders(&fake, 2).into_iter().map(change).collect();
            let ends = run(&builders, &[TWO; 2], |_| {}, |_, session| session.follow());
            ends.into_iter()
                .map(|end| end.unwrap_err().to_string())
                .collect::<Vec<_>>()
        };
        for text in each(|builder| builder.parallel(Parallelism::pipeline())) {
            assert!(
                text.contains("2 processes can divide a model by tensor parallelism alone"),
                "{text}"
            );
        }
        for text in each(|builder| builder.parallel(Parallelism::data())) {
            assert!(
                text.contains("tensor parallelism alone (tensor), not by data"),
                "{text}"
            );
        }
        for text in each(|builder| builder.all_reduce(AllReduceKind::Direct)) {
            assert!(
                text.contains("another process's GPU: take auto or library"),
                "{text}"
            );
        }
        // The other ranks never start.
        let alone = |rank: usize| {
            builders(&fake, 2)[rank]
                .clone()
                .rendezvous_timeout(Duration::from_millis(300))
        };
        assert!(error(alone(0)).contains("rank 1 did not come within 0.3 s"));
        assert!(error(alone(1)).contains("rank 0 was not reached within 0.3 s"));
        // Only rank 0 runs images, and only the other ranks follow.
        let lead = |session: Session| {
            let error = session.follow().unwrap_err().to_string();
            assert!(error.contains("there is nobody to follow"), "{error}");
        };
        let follow = |_: usize, session: Session| {
            let error = session.run(images(1)).unwrap_err().to_string();
            assert!(error.contains("only rank 0's process runs images"), "{error}");
            session.follow()
        };
        for end in run(&builders(&fake, 2), &[TWO; 2], lead, follow) {
            end.unwrap();
        }
        let whole = load(&on(&fake, 2, Parallelism::tensor()), TWO);
        assert!(
            whole
                .follow()
                .unwrap_err()
                .to_string()
                .contains("there is nobody to follow")
        );
        let _: Outputs = whole.run(images(1)).unwrap();
    }
    fake.assert_clean();
}
