//! Failures on a GPU: allocations, launches, copies, replays, and the GPU itself. Each is reported, and
//! affects no more than necessary.

use std::env;
use std::fs;

use hipvit::image::{Limits, RgbImage, open};
use hipvit::{AllReduceKind, Device, DeviceSet, Error, GraphMode, Outputs, Parallelism, Session};

use serde_json::{Value, json};

use crate::support::at;
use crate::support::digit_folders::write_digits;
use crate::support::emulated::{MARK, available, command};
use crate::support::program::{stderr, stdout};

/// Returns true if this process was started for the test `name` with settings. Otherwise starts a process
/// with them for that test alone, which must pass. A process reads its faults only once.
#[track_caller]
fn alone(name: &str, gpus: &str, setting: (&str, &str)) -> bool {
    alone_with(name, gpus, &[setting])
}

/// As [`alone`], with several settings.
#[track_caller]
fn alone_with(name: &str, gpus: &str, settings: &[(&str, &str)]) -> bool {
    if env::var_os(MARK).is_some() {
        return true;
    }
    let output = command(env::current_exe().unwrap(), gpus)
        .args([&format!("emulated::faults::{name}"), "--exact", "--nocapture"])
        .env(MARK, "1")
        .envs(settings.iter().copied())
        .output()
        .unwrap();
    let passed = output.status.success() && stdout(&output).contains("1 passed");
    assert!(
        passed,
        "{settings:?}: {}\n{}{}",
        output.status,
        stdout(&output),
        stderr(&output)
    );
    false
}

fn images(count: usize) -> Vec<RgbImage> {
    let image = open(at("tests/golden/images/small.png"), Limits::default()).unwrap();
    vec![image; count]
}

fn load(device: usize, mode: GraphMode) -> Result<Session, Error> {
    let builder = Session::builder()
        .device(Device::Hip(device))
        .batch(2)
        .hip_graphs(mode);
    builder.load(at("tests/golden/timm_vit_class_token"))
}

fn same(a: &Outputs, b: &Outputs) {
    assert_eq!(a.logits(), b.logits());
}

/// Runs until a run fails, which must be soon. Returns the error.
fn fails(session: &Session, expected: &Outputs) -> String {
    for _ in 0..20 {
        match session.run(images(2)) {
            Ok(outputs) => same(&outputs, expected),
            Err(error) => return error.to_string(),
        }
    }
    panic!("no run failed");
}

#[test]
fn an_allocation_that_fails_is_tried_again_or_told() {
    if !available() {
        return;
    }
    for nth in 1..=16 {
        let name = "an_allocation_that_fails_is_tried_again_or_told";
        if !alone(name, "gfx942", ("HIP_EMU_FAIL_ALLOC", &nth.to_string())) {
            continue;
        }
        let works = [(); 3].map(|()| load(0, GraphMode::Auto)?.run(images(2)));
        let mut outputs = works.iter().flatten();
        let first = outputs.next().unwrap();
        outputs.for_each(|outputs| same(outputs, first));
        // Device memory is trimmed and requested again; pinned memory is not.
        let errors: Vec<_> = works.iter().filter_map(|work| work.as_ref().err()).collect();
        assert!(errors.len() <= 1, "{errors:?}");
        for error in errors {
            let text = error.to_string();
            assert!(
                text.contains("hipHostMalloc failed: hipErrorOutOfMemory"),
                "{text}"
            );
        }
        return;
    }
}

#[test]
fn a_gpu_without_memory_is_an_error_and_a_smaller_batch_goes_on() {
    let name = "a_gpu_without_memory_is_an_error_and_a_smaller_batch_goes_on";
    if !available() || !alone(name, "gfx942", ("HIP_EMU_MEMORY", "36M")) {
        return;
    }
    let session = Session::builder().device(Device::Hip(0)).batch(1024);
    let session = session.load(at("tests/golden/timm_vit_class_token")).unwrap();
    let expected = session.run(images(1)).unwrap();
    let error = session.run(images(1024)).unwrap_err();
    assert!(
        matches!(error, Error::Hip(hipvit::hip::Error::OutOfMemory { .. })),
        "{error}"
    );
    assert!(error.to_string().contains("take a smaller batch"), "{error}");
    same(&session.run(images(1)).unwrap(), &expected);
}

/// As on one GPU, no rank waits for a rank without memory, and all can continue.
#[test]
fn a_divided_model_without_memory_is_an_error_and_a_smaller_batch_goes_on() {
    let name = "a_divided_model_without_memory_is_an_error_and_a_smaller_batch_goes_on";
    if !available() || !alone(name, "gfx942x4", ("HIP_EMU_MEMORY", "128M")) {
        return;
    }
    for (tensor, stages) in [(2, 2), (2, 1), (4, 1)] {
        let gpus = DeviceSet::gpus(0..tensor * stages).unwrap();
        let builder = Session::builder().devices(gpus).batch(8192);
        let builder = builder.parallel(Parallelism::new(1, tensor, stages).unwrap());
        let session = builder.tinyvit32().unwrap();
        let expected = session.run(images(3)).unwrap();
        for _ in 0..2 {
            let error = session.run(images(8192)).unwrap_err();
            assert!(
                matches!(error, Error::Hip(hipvit::hip::Error::OutOfMemory { .. })),
                "{error}"
            );
            assert!(error.to_string().contains("take a smaller batch"), "{error}");
            same(&session.run(images(3)).unwrap(), &expected);
        }
    }
}

#[test]
fn a_launch_that_fails_costs_its_run_alone() {
    let name = "a_launch_that_fails_costs_its_run_alone";
    if !available() || !alone(name, "gfx942", ("HIP_EMU_FAIL_LAUNCH", "40")) {
        return;
    }
    let session = load(0, GraphMode::Off).unwrap();
    let expected = session.run(images(2)).unwrap();
    let text = fails(&session, &expected);
    assert!(
        text.contains("hipModuleLaunchKernel failed: hipErrorLaunchFailure (719) for `"),
        "{text}"
    );
    assert!(text.contains("GPU 0 (AMD Instinct MI300X"), "{text}");
    for _ in 0..3 {
        same(&session.run(images(2)).unwrap(), &expected);
    }
}

#[test]
fn a_copy_that_fails_costs_its_run_alone() {
    let name = "a_copy_that_fails_costs_its_run_alone";
    if !available() || !alone(name, "gfx942", ("HIP_EMU_FAIL_COPY", "12")) {
        return;
    }
    let session = load(0, GraphMode::Off).unwrap();
    let expected = session.run(images(2)).unwrap();
    let text = fails(&session, &expected);
    assert!(
        text.contains("hipErrorUnknown") && text.contains("GPU 0 (AMD Instinct MI300X"),
        "{text}"
    );
    for _ in 0..3 {
        same(&session.run(images(2)).unwrap(), &expected);
    }
}

/// Nothing aborts, even when everything is dropped, and the other GPU continues.
#[test]
fn a_lost_gpu_is_an_error_until_the_end() {
    let name = "a_lost_gpu_is_an_error_until_the_end";
    if !available() || !alone(name, "gfx942x2", ("HIP_EMU_LOSE_DEVICE", "150")) {
        return;
    }
    let (session, other) = (
        load(0, GraphMode::Auto).unwrap(),
        load(1, GraphMode::Auto).unwrap(),
    );
    let expected = session.run(images(2)).unwrap();
    let text = fails(&session, &expected);
    assert!(
        text.contains("hipErrorLaunchFailure") && text.contains("GPU 0 "),
        "{text}"
    );
    for _ in 0..3 {
        // A failed drop may be reported first.
        let text = session.run(images(2)).unwrap_err().to_string();
        assert!(text.contains("GPU 0 "), "{text}");
    }
    assert!(load(0, GraphMode::Auto).is_err());
    same(&other.run(images(2)).unwrap(), &expected);
    drop(session);
    same(&other.run(images(2)).unwrap(), &expected);
}

/// Runs TinyViT32, with each layer on two GPUs and the layers on one or two such stages, until a run fails.
fn rank_that_fails(stages: usize, all_reduce: AllReduceKind) -> (usize, String) {
    let gpus = 2 * stages;
    let builder = Session::builder().devices(DeviceSet::gpus(0..gpus).unwrap());
    let session = builder
        .parallel(Parallelism::new(1, 2, stages).unwrap())
        .all_reduce(all_reduce)
        .batch(2)
        .tinyvit32()
        .unwrap();
    let mut expected = None;
    for _ in 0..40 {
        match session.run(images(5)) {
            Ok(outputs) => same(&outputs, expected.get_or_insert_with(|| outputs.clone())),
            Err(error) => {
                let text = error.to_string();
                // The other ranks are not used again.
                assert_eq!(session.run(images(2)).unwrap_err().to_string(), text);
                let Error::Rank { rank, ranks, .. } = error else {
                    panic!("{text}");
                };
                assert_eq!(ranks, gpus, "{text}");
                assert!(text.contains(&format!("rank {rank} of {gpus}")), "{text}");
                assert!(text.contains(&format!("GPU {rank} ")), "{text}");
                return (rank, text);
            }
        }
    }
    panic!("no run failed");
}

/// Returns true if the error is of a call on the lost GPU, or RCCL's report of it, possibly from another GPU.
#[track_caller]
fn names_the_lost_one((_, text): &(usize, String)) {
    let lost = (0..4).any(|device| text.contains(&format!("(device {device}) is lost")));
    assert!(text.contains(" failed: ") || lost, "{text}");
}

#[test]
fn a_divided_model_that_loses_a_gpu_names_it() {
    let name = "a_divided_model_that_loses_a_gpu_names_it";
    if available() && alone(name, "gfx942x2", ("HIP_EMU_LOSE_DEVICE", "150")) {
        names_the_lost_one(&rank_that_fails(1, AllReduceKind::Auto));
    }
}

#[test]
fn a_stage_that_loses_a_gpu_names_it() {
    let name = "a_stage_that_loses_a_gpu_names_it";
    for nth in [300, 500, 700] {
        if available() && alone(name, "gfx942x4", ("HIP_EMU_LOSE_DEVICE", &nth.to_string())) {
            names_the_lost_one(&rank_that_fails(2, AllReduceKind::Auto));
            return;
        }
    }
}

/// The watchdog of the first rank finds a hanging sum, while others wait for its result.
#[test]
fn stages_do_not_wait_for_a_rank_that_hangs() {
    let name = "stages_do_not_wait_for_a_rank_that_hangs";
    for nth in [20, 45] {
        let nth = nth.to_string();
        let settings = [
            ("HIP_EMU_HANG_COLLECTIVE", nth.as_str()),
            ("HIP_EMU_RCCL_TIMEOUT", "2"),
        ];
        if available() && alone_with(name, "gfx942x4", &settings) {
            println!("{}", rank_that_fails(2, AllReduceKind::Library).1);
            return;
        }
    }
}

#[test]
fn a_divided_model_does_not_wait_for_a_rank_that_hangs() {
    let name = "a_divided_model_does_not_wait_for_a_rank_that_hangs";
    let settings = [("HIP_EMU_HANG_COLLECTIVE", "20"), ("HIP_EMU_RCCL_TIMEOUT", "2")];
    if available() && alone_with(name, "gfx942x2", &settings) {
        println!("{}", rank_that_fails(1, AllReduceKind::Library).1);
    }
}

/// Whichever replay of a pipeline omits its last operation, every image gets its own results, and a message
/// reports it.
#[test]
fn a_replay_that_goes_wrong_once_is_computed_again() {
    let name = "a_replay_that_goes_wrong_once_is_computed_again";
    // The first replay is compared when the graph is captured.
    for nth in 2..=5 {
        if !available() || !alone(name, "gfx942", ("HIP_EMU_CORRUPT_REPLAY", &nth.to_string())) {
            continue;
        }
        let session = load(0, GraphMode::Auto).unwrap();
        let expected = session.run(images(2)).unwrap();
        for _ in 0..7 {
            same(&session.run(images(2)).unwrap(), &expected);
        }
        let reason = session.hip_graphs().unwrap().fallback.unwrap();
        assert!(reason.contains("computed again"), "{reason}");
        return;
    }
}

/// Several runs are in flight, so it depends on timing which of their graphs goes wrong, and when.
#[test]
fn a_replay_that_goes_wrong_among_others_changes_no_result() {
    if !available() {
        return;
    }
    let samples = at("assets/samples");
    let run = |graphs: &str, corrupt: u32| {
        let mut command = command(env!("CARGO_BIN_EXE_hipvit"), "gfx942");
        command.args(["classify", "--json", "--device", "hip", "--batch", "4"]);
        command.args(["--hip-graphs", graphs]).args([&samples; 4]);
        command.env("HIP_EMU_CORRUPT_REPLAY", corrupt.to_string());
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        output
    };
    let expected = run("off", 1);
    assert_eq!(stdout(&expected).lines().count(), 40);
    for nth in [1, 3, 5] {
        let output = run("auto", nth);
        assert_eq!(stdout(&output), stdout(&expected), "{nth}: {}", stderr(&output));
        assert!(stderr(&output).contains("replay"), "{nth}: {}", stderr(&output));
    }
}

#[test]
fn a_replay_that_is_wrong_is_not_used() {
    let name = "a_replay_that_is_wrong_is_not_used";
    if !available() || !alone(name, "gfx942", ("HIP_EMU_CORRUPT_REPLAY", "1")) {
        return;
    }
    let session = load(0, GraphMode::Auto).unwrap();
    let expected = session.run(images(2)).unwrap();
    for _ in 0..3 {
        same(&session.run(images(2)).unwrap(), &expected);
    }
    let replays = session.hip_graphs().unwrap();
    let reason = replays.fallback.as_ref().unwrap();
    assert!(
        reason.contains("the replay differs from the eager run"),
        "{replays:?}"
    );
    assert_eq!((replays.eager_runs, replays.replayed_runs), (4, 0));
}

/// The workspaces of the libraries fit, and so do activations of 16 images, but not of 32.
#[test]
fn a_step_without_memory_is_tried_with_smaller_micro_batches() {
    if !available() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    write_digits(&path("data"), 4, 0, 8);
    let config = json!({
        "architecture": "vit_tiny_patch16_224",
        "model_args": {
            "img_size": 32, "patch_size": 4, "embed_dim": 32, "depth": 1, "num_heads": 1, "mlp_ratio": 2,
        },
        "pretrained_cfg": {
            "input_size": [3, 32, 32], "interpolation": "bicubic", "crop_pct": 1.0,
            "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]
        }
    });
    fs::write(path("config.json"), config.to_string()).unwrap();
    let train = |name: &str, device: &str| {
        let output = command(env!("CARGO_BIN_EXE_hipvit"), "gfx942")
            .env("HIP_EMU_MEMORY", "36M")
            .args(["train".as_ref(), path("data").as_os_str(), "-m".as_ref()])
            .args([
                path("config.json").as_os_str(),
                "-o".as_ref(),
                path(name).as_os_str(),
            ])
            .args([
                "--batch",
                "32",
                "--epochs",
                "2",
                "--log-every",
                "1",
                "--device",
                device,
            ])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let log = fs::read_to_string(path(name).join("log.jsonl")).unwrap();
        let lines = log.lines().map(|line| serde_json::from_str(line).unwrap());
        (stderr(&output).to_string(), lines.collect::<Vec<Value>>())
    };
    let (printed, log) = train("gpu", "hip");
    let line = "step 1: the device ran out of memory. From here on, steps have micro-batches of 16 images";
    assert_eq!(printed.matches(line).count(), 1, "{printed}");
    let of = |log: &[Value], event: &str, key: &str| -> Vec<f64> {
        let lines = log.iter().filter(|line| line["event"] == event);
        lines
            .map(|line| line.pointer(key).unwrap().as_f64().unwrap())
            .collect()
    };
    assert_eq!(of(&log, "memory", "/parts/images"), [32.0, 16.0]);
    let expected = of(&train("cpu", "cpu").1, "step", "/loss");
    let found = of(&log, "step", "/loss");
    assert_eq!(found.len(), 2);
    for (found, expected) in found.iter().zip(&expected) {
        // Sums in another order.
        assert!((found - expected).abs() < 1e-4, "{found}, expected {expected}");
    }
    let progress = path("gpu/checkpoints/step-000000002/progress.json");
    let progress: Value = serde_json::from_slice(&fs::read(progress).unwrap()).unwrap();
    assert_eq!(progress["accumulate"], 2);
}
