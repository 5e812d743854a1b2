//! The process `hipvit serve`: options that it refuses, and its independence of its log and of free file
//! descriptors.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use super::lifecycle::{command, process, signal};
use super::*;

/// Returns exit code and output of a server that does not start.
fn refusal(more: &[&str]) -> (i32, String) {
    let output = command(more).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    (output.status.code().unwrap(), error)
}

fn ends_well(mut child: Child) {
    signal(&child, "-TERM");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

fn is_answered(address: SocketAddr) {
    let body = samples(&[1]).to_string();
    let path = "/v2/models/tinyvit32/infer";
    assert_eq!(request(address, "POST", path, &[], body.as_bytes()).status, 200);
}

#[test]
fn models_are_not_everybodys_to_unload() {
    let open = ["--listen", "0.0.0.0:0", "--model-control"];
    let (code, error) = refusal(&open);
    assert_eq!(code, 2, "{error}");
    assert!(
        error.contains("--token-file") && error.contains("--insecure-model-control"),
        "{error}"
    );
    let (child, _, _log) = process(&[&open[..], &["--insecure-model-control"]].concat());
    ends_well(child);
}

#[test]
fn a_token_without_tls_beyond_this_machine_is_warned_of() {
    let token = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&token, "secret\n").unwrap();
    let path = token.path().to_str().unwrap();
    let more = ["--listen", "0.0.0.0:0", "--token-file", path];
    let mut child = command(&more).spawn().unwrap();
    let mut log = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut first = String::new();
    std::io::BufRead::read_line(&mut log, &mut first).unwrap();
    assert!(first.contains("the token is sent in plain text"), "{first}");
    signal(&child, "-KILL");
    child.wait().unwrap();
}

#[test]
fn files_that_never_end_are_refused() {
    for more in [
        &["--token-file", "/dev/zero"][..],
        &["--tls-certificate", "/dev/zero", "--tls-key", "/dev/zero"],
    ] {
        let (code, error) = refusal(more);
        assert_eq!(code, 1, "{error}");
        assert!(
            error.contains("/dev/zero") && error.contains("not a regular file"),
            "{error}"
        );
    }
}

#[test]
fn a_full_disk_behind_the_log_stops_nothing() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let mut command = command(&["--listen", &address.to_string()]);
    let mut child = command.stderr(full).spawn().unwrap();
    wait_until("the server listens", || {
        assert_eq!(child.try_wait().unwrap(), None, "the server ended");
        TcpStream::connect(address).is_ok()
    });
    is_answered(address);
    ends_well(child);
}

#[test]
fn a_closed_log_and_no_free_descriptors_stop_nothing() {
    let program = command(&["--max-connections", "1000"]);
    let mut limited = Command::new("sh");
    limited
        .args(["-c", "ulimit -n 64; exec \"$0\" \"$@\""])
        .arg(program.get_program())
        .args(program.get_args())
        .stdin(Stdio::null())
        .stderr(Stdio::piped());
    let (child, address, log) = lifecycle::started(limited);
    drop(log);
    let many: Vec<TcpStream> = (0..100).map(|_| connect(address)).collect();
    // Those that were accepted wait for a request; the others wait for a descriptor.
    let descriptors = format!("/proc/{}/fd", child.id());
    wait_until("no descriptor is free", || {
        std::fs::read_dir(&descriptors).is_ok_and(|open| open.count() >= 64)
    });
    // The next connection fails, as there are some left.
    thread::sleep(Duration::from_millis(200));
    drop(many);
    is_answered(address);
    let metrics = request(address, "GET", "/metrics", &[], b"").text();
    let errors = metrics
        .lines()
        .find_map(|line| line.strip_prefix("hipvit_accept_errors_total "));
    assert!(errors.is_some_and(|count| count != "0"), "{metrics}");
    ends_well(child);
}

#[test]
fn loads_are_answered_although_the_log_is_closed() {
    let (child, address, log) = process(&["--model-control"]);
    drop(log);
    for change in ["unload", "load"] {
        let path = format!("/v2/repository/models/tinyvit32/{change}");
        let answer = request(address, "POST", &path, &[], b"");
        assert_eq!(answer.status, 200, "{change}: {}", answer.text());
    }
    is_answered(address);
    ends_well(child);
}
