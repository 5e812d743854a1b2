//! `hipvit serve` in this process on a free loopback port, and its clients: handwritten HTTP/1.1, and the
//! generated gRPC client.

pub(crate) mod chats;
pub(crate) mod grpc;
pub(crate) mod process;
pub(crate) mod vision;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine as _;
use hipvit::{Device, Outputs, Session};
use hipvit_serve::{ModelSource, Server, ServerOptions};
use serde_json::{Value, json};

use crate::support::at;

/// Name of the model that most tests serve.
pub(crate) const MODEL: &str = "digits";

/// Time limit far above any duration here, so that a test fails instead of hanging.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// Waits until `condition` holds.
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < LIMIT, "still not so: {what}");
        thread::yield_now();
    }
}

/// Opens a connection with time-outs.
pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.set_write_timeout(Some(LIMIT)).unwrap();
    stream
}

/// Returns options for the embedded model on the CPU, on a free port.
pub(crate) fn options() -> ServerOptions {
    let mut options = ServerOptions::default();
    options.listen = vec![([127, 0, 0, 1], 0).into()];
    options.models = vec![ModelSource::new(MODEL, at("assets/tinyvit32"))];
    options.instances = vec![Session::builder().device(Device::Cpu).threads(1)];
    options.decode_threads = 1;
    options
}

/// A server that stops with its test.
pub(crate) struct Running {
    server: Option<Server>,
    pub(crate) address: SocketAddr,
}

impl Running {
    pub(crate) fn new(options: ServerOptions) -> Self {
        let server = Server::start(options).unwrap();
        let address = server.addresses()[0];
        Self {
            server: Some(server),
            address,
        }
    }

    pub(crate) fn digits() -> Self {
        Self::new(options())
    }

    pub(crate) fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    pub(crate) fn stop(mut self) {
        self.server.take().unwrap().stop();
    }

    pub(crate) fn get(&self, path: &str) -> Response {
        request(self.address, "GET", path, &[], b"")
    }

    pub(crate) fn post(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Response {
        request(self.address, "POST", path, headers, body)
    }

    pub(crate) fn infer(&self, body: &Value) -> Response {
        let path = format!("/v2/models/{MODEL}/infer");
        self.post(&path, &[], body.to_string().as_bytes())
    }

    /// Returns the value of a metric with these labels.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        metric(self.address, name)
    }
}

/// Returns the value of a metric with these labels, of the server at an address.
pub(crate) fn metric(address: SocketAddr, name: &str) -> f64 {
    let text = request(address, "GET", "/metrics", &[], b"").text();
    let line = text.lines().find(|line| line.starts_with(name));
    let value = line
        .and_then(|line| line.rsplit_once(' '))
        .map(|(_, value)| value);
    value.map_or(0.0, |value| value.parse().unwrap())
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop();
        }
    }
}

/// Answer over HTTP/1.1.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    /// Returns the protocol's error with its status.
    pub(crate) fn error(&self) -> (u16, String) {
        (self.status, self.json()["error"].as_str().unwrap().to_owned())
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines
            .clone()
            .find(|(header, _)| header.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }
}

pub(crate) fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Response {
    let mut stream = connect(address);
    let mut head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    // A server that refuses the request may not read all of it.
    let _ = stream.write_all(body);
    response(stream)
}

pub(crate) fn response(mut stream: TcpStream) -> Response {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
    let end = end.unwrap_or_else(|| panic!("no response: {bytes:?}"));
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    Response {
        status: head.split(' ').nth(1).unwrap().parse().unwrap(),
        body: bytes[end + 4..].to_vec(),
        head,
    }
}

pub(crate) fn sample(digit: usize) -> Vec<u8> {
    std::fs::read(at(format!("assets/samples/{digit}.png"))).unwrap()
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// Returns a JSON request for these samples.
pub(crate) fn samples(digits: &[usize]) -> Value {
    let images: Vec<String> = digits.iter().map(|&digit| base64(&sample(digit))).collect();
    json!({"inputs": [{"name": "image", "shape": [digits.len()], "datatype": "BYTES", "data": images}]})
}

/// Returns the outputs of a session for these samples.
pub(crate) fn expected(digits: &[usize]) -> Outputs {
    let session = Session::builder().device(Device::Cpu).tinyvit32().unwrap();
    let limits = hipvit::image::Limits::default();
    let image = |&digit: &usize| hipvit::image::decode("sample", &sample(digit), limits).unwrap();
    session.run(digits.iter().map(image)).unwrap()
}

/// Returns the floats of a tensor in a JSON response.
pub(crate) fn floats(response: &Value, name: &str) -> Vec<f32> {
    let tensor = tensor(response, name);
    let values = tensor["data"].as_array().unwrap().iter();
    // The shortest decimals of floats are parsed as such.
    values.map(|value| value.to_string().parse().unwrap()).collect()
}

pub(crate) fn tensor<'a>(response: &'a Value, name: &str) -> &'a Value {
    let outputs = response["outputs"].as_array().unwrap();
    outputs
        .iter()
        .find(|tensor| tensor["name"] == name)
        .unwrap_or_else(|| panic!("no {name} in {response}"))
}
