//! `hipvit serve` with a model that is divided among emulated GPUs.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, ChildStderr, Command, Output, Stdio};

use serde_json::Value;

use crate::support::emulated::{available, command, hipvit};
use crate::support::program::{stderr, stdout};
use crate::support::server::{Response, floats, request, sample, wait_until};

/// A server in a separate process, which ends with its test.
struct Served {
    process: Child,
    log: BufReader<ChildStderr>,
    address: SocketAddr,
}

impl Served {
    fn new(gpus: &str, arguments: &[&str], lost: Option<&str>) -> Self {
        let mut program = command(env!("CARGO_BIN_EXE_hipvit"), gpus);
        program
            .args([
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--log",
                "json",
                "--threads",
                "1",
            ])
            .args(arguments)
            .envs(lost.map(|nth| ("HIP_EMU_LOSE_DEVICE", nth)))
            .stderr(Stdio::piped());
        let mut process = program.spawn().unwrap();
        let mut log = BufReader::new(process.stderr.take().unwrap());
        let mut said = String::new();
        let address = loop {
            let begin = said.len();
            assert!(log.read_line(&mut said).unwrap() > 0, "{said}");
            let line: Value = serde_json::from_str(&said[begin..]).unwrap_or_default();
            if line["message"] == "listening" {
                break line["address"].as_str().unwrap().parse().unwrap();
            }
        };
        Self {
            process,
            log,
            address,
        }
    }

    fn get(&self, path: &str) -> Response {
        request(self.address, "GET", path, &[], b"")
    }

    fn infer(&self) -> Response {
        let headers = [("Inference-Header-Content-Length", "0")];
        let path = "/v2/models/tinyvit32/infer";
        request(self.address, "POST", path, &headers, &sample(7))
    }

    fn has_metric(&self, line: &str) -> bool {
        self.get("/metrics").text().lines().any(|had| had == line)
    }

    /// Stops the server and returns its output.
    fn stop(mut self) -> String {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").arg(id).status().unwrap().success());
        let mut said = String::new();
        self.log.read_to_string(&mut said).unwrap();
        assert!(self.process.wait().unwrap().success(), "{said}");
        said
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // The process has ended, unless the test has failed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn logits(output: &Output) -> Vec<f32> {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    let record: Value = serde_json::from_str(stdout(output)).unwrap();
    let logits = record["logits"].as_array().unwrap().iter();
    logits.map(|logit| logit.to_string().parse().unwrap()).collect()
}

#[test]
fn a_divided_model_is_served_with_the_bits_of_classify() {
    if !available() {
        return;
    }
    let classify = |gpus: &str, arguments: &[&str]| {
        let common = ["classify", "--json", "--logits", "assets/samples/7.png"];
        logits(&hipvit(gpus, &[&common, arguments].concat()))
    };
    let one = classify("gfx942", &["--device", "hip"]);
    for (gpus, devices, parallel, groups) in [
        ("gfx942x2", "hip:0,1", "tensor", &["hip:0,1"][..]),
        ("gfx942x2", "hip:all", "pipeline", &["hip:0,1"]),
        ("gfx1100x4", "hip:all", "tensor=2,data=2", &["hip:0,1", "hip:2,3"]),
    ] {
        let arguments = [
            "--device",
            devices,
            "--parallel",
            parallel,
            "--all-reduce",
            "direct",
        ];
        let expected = match groups.len() {
            1 => classify(gpus, &arguments),
            // One of the groups.
            _ => classify("gfx1100x2", &["--device", "hip:all", "--parallel", "tensor"]),
        };
        let served = Served::new(gpus, &arguments, None);
        for group in groups {
            let metric = format!("hipvit_instances{{model=\"tinyvit32\",device=\"{group}\"}} 1");
            assert!(served.has_metric(&metric), "{}", served.get("/metrics").text());
        }
        assert_eq!(served.get("/v2/health/ready").status, 200);
        for _ in 0..4 {
            let got = floats(&served.infer().json(), "logits");
            assert_eq!(got, expected, "{parallel}");
            for (got, one) in got.iter().zip(&one) {
                assert!((got - one).abs() < 1e-3, "{parallel}: {got} {one}");
            }
        }
        served.stop();
    }
}

#[test]
fn a_server_that_loses_a_gpu_of_its_only_group_is_not_ready() {
    if !available() {
        return;
    }
    let arguments = ["--device", "hip:0,1", "--parallel", "tensor"];
    let served = Served::new("gfx942x2", &arguments, Some("600"));
    wait_until("a GPU is lost", || {
        let answer = served.infer();
        assert!(answer.status == 200 || answer.status == 503, "{answer:?}");
        answer.status == 503
    });
    let reason = "model `tinyvit32` has no working device left. Load it again";
    assert_eq!(served.infer().error(), (503, reason.into()));
    assert_eq!(served.get("/v2/health/ready").status, 503);
    let lost = "hipvit_lost_instances_total{model=\"tinyvit32\",device=\"hip:0,1\"} 1";
    assert!(served.has_metric(lost));
    let said = served.stop();
    assert!(
        said.contains("device lost: its instance is taken out") && said.contains("GPU "),
        "{said}"
    );
}

/// The error is the session's.
#[test]
fn a_server_that_cannot_be_divided_so_does_not_start() {
    if !available() {
        return;
    }
    for (arguments, reason) in [
        (
            &["--parallel", "tensor=3"][..],
            "error: parallel: data,tensor=3 takes a multiple of 3 GPUs, and the session has 2 devices",
        ),
        (
            &["--parallel", "tensor", "--resize", "device"],
            "error: resize: with tensor parallelism images are resized on the host",
        ),
    ] {
        let output = hipvit(
            "gfx942x2",
            &[&["serve", "--device", "hip:0,1"], arguments].concat(),
        );
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains(reason), "{}", stderr(&output));
    }
}
