//! One model over several processes, started as a launcher starts them, each with an emulated GPU.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::{available, command};
use crate::at;
use crate::command_line::{stderr, stdout};

/// What becomes of these processes is known by then.
const SOON: Duration = Duration::from_secs(60);

fn hipvit(gpus: &str, arguments: &[&str]) -> Command {
    let mut command = command(env!("CARGO_BIN_EXE_hipvit"), gpus);
    command
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// A process for each rank's arguments.
fn launch(gpus: &str, ranks: &[&[&str]]) -> Vec<Child> {
    let port = TcpListener::bind(("127.0.0.1", 0))
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let start = |(rank, arguments): (usize, &&[&str])| {
        let mut command = hipvit(gpus, arguments);
        for (name, value) in [("RANK", rank), ("LOCAL_RANK", rank), ("WORLD_SIZE", ranks.len())] {
            command.env(name, value.to_string());
        }
        let command = command
            .env("MASTER_ADDR", "127.0.0.1")
            .env("MASTER_PORT", port.to_string())
            .env("TORCHELASTIC_RUN_ID", port.to_string());
        command.spawn().unwrap()
    };
    ranks.iter().enumerate().map(start).collect()
}

/// Waits for a process, which ends soon.
fn ended(mut child: Child) -> Output {
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > SOON {
            child.kill().unwrap();
            let output = child.wait_with_output().unwrap();
            panic!("does not end: {}{}", stdout(&output), stderr(&output));
        }
        thread::sleep(Duration::from_millis(20));
    }
    child.wait_with_output().unwrap()
}

/// The GPUs of one process give what one process with both gives, bit for bit. It is the same whether a process sees one GPU or all.
#[test]
fn processes_give_the_bits_of_one() {
    if !available() {
        return;
    }
    let (model, images) = (
        at("tests/golden/timm_dinov2_reg4_swiglu"),
        at("tests/golden/images"),
    );
    let (model, images) = (model.to_str().unwrap(), images.to_str().unwrap());
    let cases = [
        (
            "gfx942",
            vec!["classify", "--json", "--logits", "--batch", "3", "--dtype", "f16"],
        ),
        (
            "gfx942x2",
            vec![
                "embed",
                "--json",
                "--batch",
                "2",
                "--overlap",
                "on",
                "--model",
                model,
                images,
            ],
        ),
    ];
    for (gpus, arguments) in cases {
        let with = |more: &[&'static str]| [&arguments[..], &["--parallel", "tensor"], more].concat();
        let one = with(&["--device", "hip:0,1", "--all-reduce", "library"]);
        let one = hipvit("gfx942x2", &one).output().unwrap();
        assert_eq!(one.status.code(), Some(0), "{}", stderr(&one));
        let several = with(&["--device", "hip"]);
        let outputs: Vec<Output> = launch(gpus, &[&several, &several])
            .into_iter()
            .map(ended)
            .collect();
        for (rank, output) in outputs.iter().enumerate() {
            assert_eq!(output.status.code(), Some(0), "rank {rank}: {}", stderr(output));
            assert_eq!(stderr(output), "", "rank {rank}");
        }
        assert!(stdout(&one).lines().count() > 3, "{}", stdout(&one));
        // Rank 0's own GPU.
        let expected = stdout(&one).replace("\"hip:0,1\"", "\"hip:0\"");
        assert_eq!(stdout(&outputs[0]), expected, "{arguments:?}");
        assert_eq!(stdout(&outputs[1]), "");
    }
}

/// Rank 0 measures, with two models' sessions at once.
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
        "--warm-up",
        "1",
        "--power-seconds",
        "0",
        "--no-peaks",
        "--json",
    ];
    let outputs: Vec<Output> = launch("gfx942", &[&bench, &bench])
        .into_iter()
        .map(ended)
        .collect();
    for output in &outputs {
        assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    }
    let rows: Vec<serde_json::Value> = stdout(&outputs[0])
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

/// Two processes that classify until one of them is killed, once rank 0 has printed the first results.
fn running() -> ([Child; 2], BufReader<ChildStdout>) {
    let sample = at("assets/samples/7.png");
    let mut arguments = vec![
        "classify",
        "--json",
        "--parallel",
        "tensor",
        "--device",
        "hip",
        "--batch",
        "1",
    ];
    arguments.extend([sample.to_str().unwrap(); 20_000]);
    let [mut first, second] = <[Child; 2]>::try_from(launch("gfx942", &[&arguments, &arguments])).unwrap();
    let mut results = BufReader::new(first.stdout.take().unwrap());
    let mut line = String::new();
    results.read_line(&mut line).unwrap();
    if line.is_empty() {
        let texts = [first, second].map(|child| stderr(&ended(child)).to_owned());
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
        let (mut children, mut results) = running();
        let begun = Instant::now();
        children[killed].kill().unwrap();
        // So that rank 0 is not held up by its results.
        let read = thread::spawn(move || results.read_to_end(&mut Vec::new()));
        let [first, second] = children.map(ended);
        let other = [second, first]
            .into_iter()
            .nth(killed)
            .map(|output| (output.status.code(), stderr(&output).to_owned()));
        let _ = read.join();
        let (code, text) = other.unwrap();
        assert_eq!(code, Some(1), "{text}");
        assert!(text.contains(&format!("rank {killed} of 2, GPU 0 ")), "{text}");
        assert!(text.contains("its process has ended"), "{text}");
        println!("rank {killed} was killed: {text} ({:.1?})", begun.elapsed());
    }
}

#[test]
fn options_that_differ_are_an_error_of_all() {
    if !available() {
        return;
    }
    let with = |batch: &'static str| {
        [
            "classify",
            "--parallel",
            "tensor",
            "--device",
            "hip",
            "--batch",
            batch,
        ]
    };
    for output in launch("gfx942", &[&with("2"), &with("4")]).into_iter().map(ended) {
        assert_eq!(output.status.code(), Some(1));
        let text = stderr(&output);
        assert!(
            text.contains("rank 0 and rank 1 differ in batch: 2 and 4"),
            "{text}"
        );
    }
}
