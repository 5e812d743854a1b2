//! Sessions on several GPUs, each with a replica of the model: the distribution of batches, which does not
//! change results.

use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use hipvit::pipeline::{Pipeline, Source};
use hipvit::{Device, DeviceSet, Outputs, Parallelism, RunInput, RunOptions, Session, SessionBuilder};
use serde_json::Value;

use super::session::{images, model, same, session};
use super::{Fake, Slot};
use crate::at;
use crate::command_line::{stderr, stdout};

fn fake(test: &str, devices: u64) -> Fake {
    let fake = Fake::new(test);
    fake.set(Slot::Devices, devices);
    fake
}

fn builder(fake: &Fake) -> SessionBuilder {
    let gpus = fake.runtime().devices().unwrap();
    Session::builder().gpus(gpus).threads(2)
}

fn replicas(fake: &Fake, batch: usize) -> Session {
    builder(fake).batch(batch).load(model()).unwrap()
}

fn batches(outputs: &Outputs) -> Vec<Vec<f32>> {
    outputs
        .iter()
        .map(|image| image.logits().unwrap().to_vec())
        .collect()
}

#[test]
fn replicas_give_the_bits_of_one_gpu_in_the_order_of_the_images() {
    let fake = fake("replicas", 3);
    {
        let images = images(40);
        let one = session(&fake, 3);
        assert_eq!(one.devices(), Device::Hip(0).into());
        let expected = one.run(&images).unwrap();

        let session = replicas(&fake, 3);
        assert_eq!(session.devices().to_string(), "hip:0,1,2");
        assert_eq!((session.device(), session.degrees().data), (Device::Hip(0), 3));
        for _ in 0..3 {
            same(&session.run(&images).unwrap(), &expected);
        }
        // Fourteen batches, three times.
        let shares = session.images_by_replica();
        assert_eq!(shares.iter().sum::<u64>(), 3 * 40);
        assert!(shares.iter().all(|&images| images >= 24), "{shares:?}");

        let sources = images.iter().cloned().enumerate();
        let sources = sources.map(|(i, image)| Source::Decoded(i.to_string(), image));
        let items = Pipeline::new(&session).run(sources.collect::<Vec<_>>()).unwrap();
        let mut count = 0;
        for (index, (item, expected)) in items.zip(expected.iter()).enumerate() {
            let item = item.unwrap();
            assert_eq!((item.index(), item.name()), (index, index.to_string().as_str()));
            assert_eq!(item.logits(), expected.logits(), "image {index}");
            count += 1;
        }
        assert_eq!(count, images.len());
        let after = session.images_by_replica();
        assert_eq!(after.iter().sum::<u64>(), 4 * 40);
        assert!(
            after.iter().zip(&shares).all(|(after, before)| after > before),
            "{after:?}"
        );
    }
    fake.assert_clean();
}

#[test]
fn threads_that_share_a_session_use_all_gpus() {
    let fake = fake("replica-threads", 2);
    {
        let images = images(4);
        let expected = batches(&session(&fake, 4).run(&images).unwrap());
        let session = replicas(&fake, 4);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut pinned = session.pinned_input(4).unwrap();
                    let rule = session.preprocess();
                    for (slot, image) in pinned
                        .chunks_mut(rule.apply(&images[0]).unwrap().data.len())
                        .zip(&images)
                    {
                        rule.apply_into(image, slot).unwrap();
                    }
                    let pixels = pinned.to_vec();
                    for _ in 0..10 {
                        let outputs = session
                            .run_with(RunInput::Pixels(&pixels), RunOptions::new())
                            .unwrap();
                        assert_eq!(batches(&outputs), expected);
                        // Whichever GPU the memory was made for.
                        let outputs = session.run_pinned(&mut pinned, RunOptions::new()).unwrap();
                        assert_eq!(batches(&outputs), expected);
                    }
                });
            }
        });
        let shares = session.images_by_replica();
        assert_eq!(shares.iter().sum::<u64>(), 4 * 10 * 2 * 4);
        assert!(shares.iter().all(|&images| images >= 40), "{shares:?}");
        // One of them was eager on each GPU's contexts, the others replayed what it captured.
        assert!(session.hip_graphs().unwrap().replayed_runs > 40);
    }
    fake.assert_clean();
}

/// A replica that is slow or busy delays no other.
#[test]
fn a_run_goes_where_a_gpu_is_free() {
    let fake = fake("replica-held", 2);
    {
        let images = images(1);
        let session = replicas(&fake, 1);
        let expected = session.run(&images).unwrap();
        // On each the steps, their capture, and a replay: from now on a run is submitted without waiting.
        for _ in 1..6 {
            same(&session.run(&images).unwrap(), &expected);
        }
        assert_eq!(session.images_by_replica(), [3, 3]);
        fake.set(Slot::HoldDevice, 2);
        thread::scope(|scope| {
            // The first GPU's turn, then the other's.
            same(&session.run(&images).unwrap(), &expected);
            let held = scope.spawn(|| session.run(&images).unwrap());
            let begun = Instant::now();
            while session.images_by_replica()[1] < 4 && begun.elapsed() < Duration::from_secs(5) {
                thread::sleep(Duration::from_millis(1));
            }
            let others: Vec<Outputs> = (0..5).map(|_| session.run(&images).unwrap()).collect();
            let (shares, waits) = (session.images_by_replica(), !held.is_finished());
            fake.set(Slot::HoldDevice, 0);
            others.iter().for_each(|outputs| same(outputs, &expected));
            same(&held.join().unwrap(), &expected);
            assert_eq!((shares, waits), (vec![9, 4], true));
        });
    }
    fake.assert_clean();
}

#[test]
fn a_gpu_that_fails_is_named() {
    let fake = fake("replica-lost", 2);
    {
        let images = images(8);
        let session = replicas(&fake, 2);
        let expected = session.run(&images).unwrap();
        fake.set(Slot::LoseDevice, 2);
        let error = session.run(&images).unwrap_err().to_string();
        assert!(error.contains("GPU 1 (Fake Instinct, gfx942)"), "{error}");
        let sources: Vec<_> = images
            .iter()
            .cloned()
            .map(|image| Source::Decoded("image".into(), image))
            .collect();
        let mut results = Pipeline::new(&session).run(sources).unwrap();
        let error = results.find_map(Result::err).unwrap();
        assert_eq!(error.index(), None);
        assert!(error.to_string().contains("GPU 1 ("), "{error}");
        assert!(results.next().is_none());
        drop(results);
        fake.set(Slot::LoseDevice, 0);
        same(&session.run(&images).unwrap(), &expected);
    }
    fake.assert_clean();
}

/// Two batches exceed the memory of a GPU: they wait for each other, and none is lost.
#[test]
fn replicas_short_of_memory_run_fewer_batches_at_once() {
    let fake = fake("replica-memory", 2);
    {
        let images = images(24);
        let expected = session(&fake, 2).run(&images).unwrap();
        let session = replicas(&fake, 2);
        // One batch on each.
        session.run(&images[..2]).unwrap();
        session.run(&images[..2]).unwrap();
        assert_eq!(session.images_by_replica(), [2, 2]);
        fake.set(Slot::MemoryLimit, fake.get(Slot::DeviceBytes) + 1024);
        same(&session.run(&images).unwrap(), &expected);
    }
    fake.assert_clean();
}

#[test]
fn wrong_sets_are_errors() {
    let fake = fake("replica-sets", 2);
    {
        let gpus = fake.runtime().devices().unwrap();
        let wrong = |builder: SessionBuilder| builder.load(model()).unwrap_err().to_string();
        let twice = wrong(Session::builder().gpus([gpus[0].clone(), gpus[0].clone()]));
        assert_eq!(twice, "devices: GPU 0 (Fake Instinct, gfx942) is named twice");
        let data = wrong(builder(&fake).parallel(Parallelism::new(3, 1, 1).unwrap()));
        assert_eq!(
            data,
            "parallel: data=3 takes 3 GPUs, and the session has 2 devices"
        );
        let cpu = wrong(
            Session::builder()
                .device(Device::Cpu)
                .parallel("data=2".parse().unwrap()),
        );
        assert_eq!(cpu, "parallel: data=2 takes 2 GPUs, and the session has 1 device");
        let missing = Session::builder().devices(DeviceSet::gpus([0, 77]).unwrap());
        assert!(missing.load(model()).is_err());
    }
    fake.assert_clean();
}

fn hipvit(fake: &Fake, devices: &str, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hipvit"))
        .args(arguments)
        .env("HIPVIT_PROVIDER", &fake.path)
        .env("FAKE_DEVICES", devices)
        .output()
        .unwrap()
}

#[test]
fn commands_take_all_gpus() {
    let fake = Fake::new("replica-commands");
    let (model, images) = (model(), at("tests/golden/images"));
    let run = |device: &str, more: &[&str]| {
        let mut arguments = vec!["embed", "--json", "--batch", "2", "--device", device];
        arguments.extend(["--model", model.to_str().unwrap(), images.to_str().unwrap()]);
        arguments.extend(more);
        hipvit(&fake, "3", &arguments)
    };
    let records = |output: &Output| -> Vec<Value> {
        assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
        let text = stdout(output);
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    };
    let one = records(&run("hip:1", &[]));
    let all = records(&run("hip:all", &["--parallel", "data"]));
    assert_eq!(one.len(), all.len());
    for (one, all) in one.iter().zip(&all) {
        assert_eq!(
            (&one["device"], &all["device"]),
            (&"hip:1".into(), &"hip:0,1,2".into())
        );
        assert_eq!(
            (&one["image"], &one["embedding"]),
            (&all["image"], &all["embedding"])
        );
    }
    for (device, more, reason) in [
        ("hip:0,7", &[][..], "numbered from 0"),
        ("hip:0,0", &[], "hip:0 is named twice"),
        ("cpu,hip:0", &[], "several devices are GPUs"),
        (
            "hip:all",
            &["--parallel", "data=2"],
            "data=2 takes 2 GPUs, and the session has 3 devices",
        ),
        (
            "hip:all",
            &["--parallel", "expert"],
            "`expert` is not one of data, tensor, pipeline",
        ),
    ] {
        let output = run(device, more);
        assert_ne!(output.status.code(), Some(0), "{device} {more:?}");
        assert!(
            stderr(&output).contains(reason),
            "{device} {more:?}: {}",
            stderr(&output)
        );
    }
}

#[test]
fn a_set_is_measured_beside_one_of_its_gpus() {
    let fake = Fake::new("replica-bench");
    let model = model();
    let bench = |device: &str, more: &[&str]| {
        let mut arguments = vec![
            "bench",
            "--no-peaks",
            "--runs",
            "6",
            "--batch",
            "1,2",
            "--device",
            device,
        ];
        arguments.push(model.to_str().unwrap());
        arguments.extend(more);
        hipvit(&fake, "2", &arguments)
    };
    let output = bench("hip:all", &["--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    let rows: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let [ones, sets] = [&rows[..2], &rows[2..]];
    assert_eq!(sets.len(), 2, "{text}");
    for (one, set) in ones.iter().zip(sets) {
        assert_eq!(
            (&one["device"]["index"], &one["devices"]),
            (&0.into(), &Value::Null)
        );
        assert_eq!(set["device"]["name"], "2 × Fake Instinct");
        assert_eq!(
            (&set["batch"], &set["options"]["parallel"]),
            (&one["batch"], &"data".into())
        );
        let rate = |row: &Value| row["end_to_end"]["images_per_s"].as_f64().unwrap();
        let shares = set["devices"].as_array().unwrap();
        let indices: Vec<u64> = shares
            .iter()
            .map(|share| share["index"].as_u64().unwrap())
            .collect();
        assert_eq!(indices, [0, 1]);
        let shares: Vec<f64> = shares
            .iter()
            .map(|share| share["images_per_s"].as_f64().unwrap())
            .collect();
        assert!(shares.iter().all(|&share| share > 0.0), "{shares:?}");
        assert!((shares.iter().sum::<f64>() / rate(set) - 1.0).abs() < 1e-9);
        let scaling = |field: &str| set["scaling"][field].as_f64().unwrap();
        assert_eq!(scaling("one_images_per_s"), rate(one));
        assert!((scaling("factor") / (rate(set) / rate(one)) - 1.0).abs() < 1e-9);
        assert!((scaling("efficiency") / (scaling("factor") / 2.0) - 1.0).abs() < 1e-9);
    }
    let output = bench("hip:0,1", &[]);
    let text = stdout(&output);
    for part in [
        "hip:0 (Fake Instinct, gfx942)",
        "hip:0,1 (2 × Fake Instinct, gfx942), data",
        "scaling",
        "per GPU",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    // One after the other, as ever.
    let output = bench("hip:0,hip:1", &[]);
    let text = stdout(&output);
    assert!(
        text.contains("hip:1 (Fake Instinct") && !text.contains("scaling"),
        "{text}"
    );
    let output = bench("hip:all", &["--ladder"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("--ladder needs a single GPU"),
        "{}",
        stderr(&output)
    );
}

/// Each GPU of a divided model works on every image. All GPUs are listed, and share the rate.
#[test]
fn a_divided_model_is_measured_on_all_its_gpus() {
    let fake = Fake::new("divided-bench");
    for (parallel, model, gpus) in [
        ("pipeline", "timm_vit_class_token", "2"),
        ("tensor", "timm_dinov2_reg4_swiglu", "2"),
        ("data=2,pipeline=2", "timm_vit_class_token", "4"),
        ("data,tensor=2,pipeline=2", "timm_dinov2_reg4_swiglu", "4"),
    ] {
        let bench = |more: &[&str]| {
            let model = at("tests/golden").join(model);
            let quick = ["bench", "--no-peaks", "--runs", "4", "--batch", "2"];
            let set = [
                "--device",
                "hip:all",
                "--parallel",
                parallel,
                model.to_str().unwrap(),
            ];
            hipvit(&fake, gpus, &[&quick[..], &set, more].concat())
        };
        let output = bench(&["--json"]);
        assert_eq!(output.status.code(), Some(0), "{parallel}: {}", stderr(&output));
        let rows: Vec<Value> = stdout(&output)
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let [one, set] = &rows[..] else {
            panic!("{parallel}: {rows:?}");
        };
        assert_eq!(set["error"], Value::Null, "{parallel}");
        assert_eq!(
            set["device"]["name"],
            format!("{gpus} × Fake Instinct"),
            "{parallel}"
        );
        let count: usize = gpus.parse().unwrap();
        let shares = set["devices"].as_array().unwrap();
        let indices: Vec<_> = shares.iter().map(|share| &share["index"]).collect();
        assert_eq!(indices, (0..count).collect::<Vec<_>>(), "{parallel}");
        let rate = |row: &Value| row["images_per_s"].as_f64().unwrap();
        let all: f64 = shares.iter().map(rate).sum();
        assert!((all / rate(&set["end_to_end"]) - 1.0).abs() < 1e-9, "{parallel}");
        let scaling = |field: &str| set["scaling"][field].as_f64().unwrap();
        assert_eq!(
            scaling("one_images_per_s"),
            rate(&one["end_to_end"]),
            "{parallel}"
        );
        let efficiency = scaling("factor") / count as f64;
        assert!(
            (scaling("efficiency") / efficiency - 1.0).abs() < 1e-9,
            "{parallel}"
        );

        let text = bench(&[]).stdout;
        let text = String::from_utf8(text).unwrap();
        let numbers: Vec<String> = (0..count).map(|n| n.to_string()).collect();
        let title = format!(
            "hip:{} ({gpus} × Fake Instinct, gfx942), {parallel}",
            numbers.join(",")
        );
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(&title), "{title} is not in\n{text}");
    }
}
