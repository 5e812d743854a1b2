//! One model over several processes as a launcher starts them, each with an emulated GPU.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Output};
use std::thread;
use std::time::Instant;

use serde_json::Value;

use crate::host::train::Set;
use crate::support::at;
use crate::support::emulated::{available, command};
use crate::support::launcher::{Launcher, ends_soon, images};
use crate::support::program::{stderr, stdout};

/// Creates a command that sees one GPU; [`both_gpus`] sees two.
fn one_gpu() -> Command {
    command(env!("CARGO_BIN_EXE_hipvit"), "gfx942")
}

fn both_gpus() -> Command {
    command(env!("CARGO_BIN_EXE_hipvit"), "gfx942x2")
}

fn two(program: fn() -> Command) -> Launcher {
    Launcher::new(2, &at("")).of(program)
}

/// Returns the messages of a process without those about compiled kernels.
fn messages(output: &Output) -> Vec<&str> {
    let lines = stderr(output).lines();
    lines
        .filter(|line| !line.starts_with("hipvit: compiling "))
        .collect()
}

const TENSOR: [&str; 5] = ["classify", "--json", "--logits", "--parallel", "tensor"];

/// The results equal those of one process with both GPUs bit for bit, whether a process sees one GPU or both.
#[test]
fn processes_give_the_bits_of_one() {
    if !available() {
        return;
    }
    let model = at("tests/golden/timm_dinov2_reg4_swiglu");
    let embed = [
        "embed",
        "--json",
        "--parallel",
        "tensor",
        "tests/golden/images",
        "--model",
        model.to_str().unwrap(),
    ];
    for (program, arguments) in [(one_gpu as fn() -> Command, &TENSOR[..]), (both_gpus, &embed)] {
        let with = |more: [&'static str; 6]| [arguments, &more].concat();
        let one = with(["--batch", "3", "--device", "hip:0,1", "--all-reduce", "library"]);
        let one = both_gpus().args(one).current_dir(at("")).output().unwrap();
        assert_eq!(one.status.code(), Some(0), "{}", stderr(&one));
        let several = with(["--batch", "3", "--device", "hip", "--all-reduce", "auto"]);
        let outputs = two(program).run(&several);
        for (rank, output) in outputs.iter().enumerate() {
            assert_eq!(output.status.code(), Some(0), "rank {rank}: {}", stderr(output));
            assert_eq!(messages(output), [""; 0], "rank {rank}");
        }
        assert!(stdout(&one).lines().count() > 3, "{}", stdout(&one));
        // Rank 0's own GPU.
        let expected = stdout(&one).replace("\"hip:0,1\"", "\"hip:0\"");
        assert_eq!(stdout(&outputs[0]), expected, "{arguments:?}");
        assert_eq!(stdout(&outputs[1]), "");
    }
}

/// Processes with several GPUs have a divided model each, and share the images.
#[test]
fn processes_with_several_gpus_share_the_images() {
    if !available() {
        return;
    }
    let arguments = [&TENSOR[..], &["--device", "hip:0,1", "--batch", "2"]].concat();
    let one = both_gpus().args(&arguments).current_dir(at("")).output().unwrap();
    let outputs = two(both_gpus).run(&arguments);
    assert_eq!(stdout(&outputs[0]), stdout(&one), "{}", stderr(&outputs[0]));
    assert!(stdout(&one).lines().count() > 3, "{}", stderr(&one));
}

/// Rank 0 measures with several sessions at once.
#[test]
fn rank_0_measures_the_processes() {
    if !available() {
        return;
    }
    let bench = [
        "bench",
        "--parallel",
        "tensor",
        "--device",
        "hip",
        "--dtype",
        "f32,f16",
        "--batch",
        "2,1",
        "--runs",
        "2",
        "--power-seconds",
        "0",
        "--no-peaks",
        "--json",
    ];
    let outputs = two(one_gpu).run(&bench);
    for output in &outputs {
        assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    }
    let rows: Vec<Value> = stdout(&outputs[0])
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(rows.len(), 4);
    for row in rows {
        assert!(row["end_to_end"]["images_per_s"].as_f64().unwrap() > 0.0, "{row}");
        assert_eq!(row["options"]["parallel"], "tensor", "{row}");
        assert!(
            row["device"]["name"].as_str().unwrap().starts_with("2 × "),
            "{row}"
        );
    }
    assert_eq!(stdout(&outputs[1]), "");
}

/// Other ranks do not read a list of images, because launchers pass standard input to rank 0.
#[test]
fn followers_need_no_images() {
    if !available() {
        return;
    }
    let sample = at("assets/samples/7.png");
    let arguments = [&TENSOR[..], &["--device", "hip"]].concat();
    let images = [sample.to_str().unwrap(), "missing.png"];
    let outputs = two(one_gpu).run_each(|rank| [&arguments[..], &images[rank..=rank]].concat());
    for output in &outputs {
        assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    }
    assert!(stdout(&outputs[0]).contains("seven"), "{}", stdout(&outputs[0]));
    // Rank 0 reports the model for all.
    let notes = messages(&outputs[0]);
    assert!(
        notes.len() == 1 && notes[0].starts_with("note: no model is given"),
        "{notes:?}"
    );
    assert_eq!((messages(&outputs[1]), stdout(&outputs[1])), (vec![], ""));
}

/// Starts two processes that classify until one of them is killed. Rank 0 has printed the first results.
fn at_work() -> ([Child; 2], BufReader<ChildStdout>) {
    let sample = at("assets/samples/7.png");
    let mut arguments = [&TENSOR[..], &["--device", "hip", "--batch", "1"]].concat();
    arguments.extend([sample.to_str().unwrap(); 20_000]);
    let launcher = two(one_gpu);
    let [mut first, second] = [0, 1].map(|rank| launcher.start(rank, &arguments));
    let mut results = BufReader::new(first.stdout.take().unwrap());
    let mut line = String::new();
    results.read_line(&mut line).unwrap();
    if line.is_empty() {
        let texts = [first, second].map(|child| stderr(&ends_soon(child)).to_owned());
        panic!("{texts:?}");
    }
    ([first, second], results)
}

#[test]
fn a_killed_process_is_named_by_the_other() {
    if !available() {
        return;
    }
    for killed in [1, 0] {
        let (mut children, mut results) = at_work();
        let begun = Instant::now();
        children[killed].kill().unwrap();
        // Read the results, so that they do not block rank 0.
        let read = thread::spawn(move || results.read_to_end(&mut Vec::new()));
        let outputs = children.map(ends_soon);
        let other = &outputs[1 - killed];
        let text = stderr(other);
        assert_eq!(other.status.code(), Some(1), "{text}");
        assert!(text.contains(&format!("rank {killed} of 2, GPU 0 ")), "{text}");
        assert!(text.contains("its process has ended"), "{text}");
        println!("rank {killed} was killed: {text} ({:.1?})", begun.elapsed());
        let _ = read.join();
    }
}

#[test]
fn a_process_that_does_not_come_is_an_error_of_the_others() {
    if !available() {
        return;
    }
    let arguments = [&TENSOR[..], &["--device", "hip", "--distributed-timeout", "1"]].concat();
    for (rank, reason) in [
        (0, "rank 1 did not come within 1 s"),
        (1, "rank 0 was not reached within 1 s"),
    ] {
        let output = ends_soon(two(one_gpu).start(rank, &arguments));
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains(reason), "{}", stderr(&output));
    }
}

#[test]
fn options_that_differ_are_an_error_of_all() {
    if !available() {
        return;
    }
    let batches = ["2", "4"];
    let arguments = [&TENSOR[..], &["--device", "hip", "--batch"]].concat();
    let outputs = two(one_gpu).run_each(|rank| [&arguments[..], &batches[rank..=rank]].concat());
    for output in &outputs {
        let text = stderr(output);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(
            text.contains("rank 0 and rank 1 differ in batch: 2 and 4"),
            "{text}"
        );
    }
    // Processes divide a model only by tensor parallelism.
    for output in two(one_gpu).run(&["classify", "--device", "hip", "--parallel", "pipeline"]) {
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(
            text.contains("by tensor parallelism alone (tensor), not by pipeline"),
            "{text}"
        );
    }
}

#[test]
fn each_rank_has_the_gpu_of_its_number() {
    if !available() {
        return;
    }
    let folder = images(9);
    let args = ["classify", "in", "--json", "--logits", "--batch", "2"];
    let expected = both_gpus()
        .args(args)
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert_eq!(stdout(&expected).lines().count(), 9, "{}", stderr(&expected));
    let launcher = |size| Launcher::new(size, folder.path()).of(both_gpus);
    let outputs = launcher(2).run(&args);
    assert_eq!(stdout(&outputs[0]), stdout(&expected), "{}", stderr(&outputs[0]));
    assert_eq!((outputs[1].status.code(), stdout(&outputs[1])), (Some(0), ""));
    for output in launcher(3).run(&args) {
        let text = stderr(&output);
        assert!(
            text.contains(
                "rank 2 of 3 is process 2 of its host (LOCAL_RANK, counted from 0), which has 2 GPUs"
            ),
            "{text}"
        );
        assert_eq!(output.status.code(), Some(1));
    }
}

/// Trains on processes with an emulated GPU each. Returns the losses of the steps.
fn losses_on_gpus(set: &Set, ranks: usize, name: &str, more: &[&str]) -> Vec<f64> {
    let mut arguments = set.arguments(name, more);
    let device = arguments.iter_mut().find(|argument| **argument == *"cpu");
    *device.unwrap() = "hip".into();
    let launcher = Launcher::new(ranks, &at("")).of(one_gpu);
    let children: Vec<Child> = (0..ranks).map(|rank| launcher.start(rank, &arguments)).collect();
    for (rank, child) in children.into_iter().enumerate() {
        let output = child.wait_with_output().unwrap();
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(0), "{name}, rank {rank}: {text}");
        assert!(!text.contains("not replayed"), "{name}, rank {rank}: {text}");
    }
    losses(set, name)
}

fn losses(set: &Set, name: &str) -> Vec<f64> {
    let losses: Vec<f64> = set.log(name).0.into_iter().map(|(_, loss)| loss).collect();
    assert_eq!(losses.len(), 3, "{name}");
    losses
}

/// Returns the largest difference of losses, relative to what is expected.
fn difference(found: &[f64], expected: &[f64]) -> f64 {
    let pairs = found.iter().zip(expected);
    pairs
        .map(|(found, expected)| (found / expected - 1.0).abs())
        .fold(0.0, f64::max)
}

const STEPS: &str =
    "epochs = 1\nbatch = 16\ndrop_path = 0.5\nema_decay = 0.5\n[schedule]\nwarmup_epochs = 0\n";

/// Two processes, each with an emulated GPU, train as one process does on the CPU.
#[test]
fn processes_train_as_the_cpu_does() {
    if !available() {
        return;
    }
    let set = Set::new();
    set.write_recipe(STEPS);
    let output = set.train("cpu", &["--accumulate", "2"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let expected = losses(&set, "cpu");
    for shard in ["none", "optimizer", "parameters"] {
        let found = losses_on_gpus(&set, 2, shard, &["--shard", shard]);
        // Rounding decides the signs of small gradients, by which AdamW moves weights.
        let difference = difference(&found, &expected);
        assert!(difference < 1e-3, "{shard}: {found:?}, expected {expected:?}");
    }
    // Gradients are rounded on their way, which is seen in the second loss.
    set.write_recipe(&format!("{STEPS}[ranks]\nwire = \"bf16\"\n"));
    for shard in ["none", "gradients"] {
        let found = losses_on_gpus(&set, 2, &format!("bf16-{shard}"), &["--shard", shard]);
        let difference = difference(&found, &expected);
        assert!(
            (1e-7..1e-2).contains(&difference),
            "{shard}: {found:?}, expected {expected:?}"
        );
    }
}

/// Four processes with an emulated GPU each sum gradients within groups of two, and then over the groups.
#[test]
fn groups_of_processes_train_as_the_cpu_does() {
    if !available() {
        return;
    }
    let set = Set::new();
    set.write_recipe(&format!("{STEPS}[ranks]\ngroup = 2\n"));
    let output = set.train("cpu", &["--accumulate", "4"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let expected = losses(&set, "cpu");
    for shard in ["none", "optimizer"] {
        let found = losses_on_gpus(&set, 4, shard, &["--shard", shard]);
        let difference = difference(&found, &expected);
        assert!(difference < 1e-3, "{shard}: {found:?}, expected {expected:?}");
    }
}
