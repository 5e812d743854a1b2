//! Client of the Open Inference Protocol over HTTP/1.1 with binary tensors, and loads by many clients.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine as _;

/// A persistent connection.
pub(crate) struct Client {
    address: SocketAddr,
    stream: Option<TcpStream>,
}

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self {
            address,
            stream: None,
        }
    }

    /// Sends a request. Returns the status of its answer; 0 without an answer.
    pub(crate) fn send(&mut self, request: &[u8]) -> u16 {
        let status = self.try_send(request);
        if status.is_none() {
            self.stream = None;
        }
        status.unwrap_or(0)
    }

    fn try_send(&mut self, request: &[u8]) -> Option<u16> {
        if self.stream.is_none() {
            let stream = TcpStream::connect(self.address).ok()?;
            stream.set_nodelay(true).ok()?;
            self.stream = Some(stream);
        }
        let stream = self.stream.as_mut()?;
        stream.write_all(request).ok()?;
        let mut answer = Vec::with_capacity(4096);
        let mut chunk = [0; 4096];
        loop {
            let read = stream.read(&mut chunk).ok().filter(|&read| read > 0)?;
            answer.extend_from_slice(&chunk[..read]);
            let Some(end) = answer.windows(4).position(|window| window == b"\r\n\r\n") else {
                continue;
            };
            let head = std::str::from_utf8(&answer[..end]).ok()?.to_ascii_lowercase();
            let length: usize = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "))
                .and_then(|length| length.parse().ok())?;
            if answer.len() >= end + 4 + length {
                // A second answer to the request would be here.
                assert_eq!(answer.len(), end + 4 + length, "answered twice");
                return head.split(' ').nth(1)?.parse().ok();
            }
        }
    }
}

/// Requests with 1, 2, … images.
pub(crate) struct Requests(Vec<Vec<u8>>);

impl Requests {
    /// Creates requests with images as binary tensors, or as base64 in JSON for servers without binary
    /// tensors.
    pub(crate) fn new(model: &str, image: &[u8], most: usize, json: bool) -> Self {
        let request = |images| {
            if json {
                json_request(model, image, images)
            } else {
                request(model, image, images)
            }
        };
        Self((1..=most.max(1)).map(request).collect())
    }

    pub(crate) fn one(&self) -> &[u8] {
        &self.0[0]
    }

    /// Returns the number of images of request `number`: random, but equal in every run.
    fn images(&self, number: usize) -> usize {
        // The multiplier of a well-known linear congruential generator; its upper bits are even.
        let random = (number as u64 + 1)
            .wrapping_mul(6_364_136_223_846_793_005)
            .rotate_left(29);
        1 + random.wrapping_mul(6_364_136_223_846_793_005).rotate_left(17) as usize % self.0.len()
    }

    fn get(&self, number: usize) -> (&[u8], usize) {
        let images = self.images(number);
        (&self.0[images - 1], images)
    }
}

/// Returns a request in the protocol's JSON, followed by its images as a binary tensor.
fn request(model: &str, image: &[u8], images: usize) -> Vec<u8> {
    let tensor: Vec<u8> =
        std::iter::repeat_n([&(image.len() as u32).to_le_bytes()[..], image].concat(), images)
            .flatten()
            .collect();
    let json = format!(
        r#"{{"inputs":[{{"name":"image","shape":[{images}],"datatype":"BYTES","parameters":{{"binary_data_size":{}}}}}],"outputs":[{{"name":"logits","parameters":{{"binary_data":true}}}}]}}"#,
        tensor.len()
    );
    let head = format!(
        "POST /v2/models/{model}/infer HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\n\
         Inference-Header-Content-Length: {}\r\nContent-Length: {}\r\n\r\n",
        json.len(),
        json.len() + tensor.len()
    );
    [head.as_bytes(), json.as_bytes(), &tensor].concat()
}

/// Returns a request in JSON only.
fn json_request(model: &str, image: &[u8], images: usize) -> Vec<u8> {
    let encoded = base64::engine::general_purpose::STANDARD.encode(image);
    let data = vec![format!("\"{encoded}\""); images].join(",");
    let json = format!(
        r#"{{"inputs":[{{"name":"image","shape":[{images}],"datatype":"BYTES","data":[{data}]}}],"outputs":[{{"name":"logits"}}]}}"#
    );
    let head = format!(
        "POST /v2/models/{model}/infer HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        json.len()
    );
    [head.as_bytes(), json.as_bytes()].concat()
}

/// Results of a load.
#[derive(Default)]
pub(crate) struct Load {
    seconds: f64,
    pub(crate) statuses: BTreeMap<u16, usize>,
    /// Latencies of the accepted requests in milliseconds.
    latencies: Vec<f64>,
    images: usize,
}

impl Load {
    /// Returns the images per second of the accepted requests.
    pub(crate) fn images_per_second(&self) -> f64 {
        self.images as f64 / self.seconds
    }

    pub(crate) fn requests_per_second(&self) -> f64 {
        self.latencies.len() as f64 / self.seconds
    }

    pub(crate) fn quantile(&self, q: f64) -> f64 {
        let index = (q * self.latencies.len() as f64) as usize;
        self.latencies
            .get(index.min(self.latencies.len().saturating_sub(1)))
            .copied()
            .unwrap_or(f64::NAN)
    }

    pub(crate) fn print(&self, name: &str) {
        let statuses: Vec<String> = self
            .statuses
            .iter()
            .map(|(status, count)| format!("{status}: {count}"))
            .collect();
        println!(
            "| {name} | {:.1} | {:.1} | {:.1} | {:.1} | {} |",
            self.images_per_second(),
            self.quantile(0.5),
            self.quantile(0.9),
            self.quantile(0.99),
            statuses.join(", ")
        );
    }
}

/// Sends `count` requests from `clients` threads, each at its time if there are `arrivals`.
pub(crate) fn load(
    address: SocketAddr,
    requests: &Requests,
    clients: usize,
    count: usize,
    arrivals: Option<&[Duration]>,
) -> Load {
    let next = AtomicUsize::new(0);
    let all = Mutex::new(Load::default());
    let begin = Instant::now();
    thread::scope(|scope| {
        for _ in 0..clients.min(count) {
            scope.spawn(|| {
                let mut client = Client::new(address);
                let mut own = Vec::new();
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        break;
                    }
                    let due = arrivals.map_or_else(Instant::now, |arrivals| begin + arrivals[index]);
                    thread::sleep(due.saturating_duration_since(Instant::now()));
                    let (request, images) = requests.get(index);
                    own.push((client.send(request), due.elapsed(), images));
                }
                let mut all = all.lock().expect("no client panics");
                for (status, latency, images) in own {
                    *all.statuses.entry(status).or_default() += 1;
                    if status == 200 {
                        all.latencies.push(1e3 * latency.as_secs_f64());
                        all.images += images;
                    }
                }
            });
        }
    });
    let mut load = all.into_inner().expect("no client panics");
    load.seconds = begin.elapsed().as_secs_f64();
    load.latencies.sort_by(f64::total_cmp);
    assert_eq!(
        load.statuses.values().sum::<usize>(),
        count,
        "a request has no answer"
    );
    load
}

/// Returns random arrivals at a rate, equal in every run.
pub(crate) fn arrivals(rate: f64, count: usize) -> Vec<Duration> {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut at = 0.0;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        at -= (((state >> 11) as f64 + 0.5) / (1u64 << 53) as f64).ln() / rate;
        Duration::from_secs_f64(at)
    };
    std::iter::repeat_with(&mut next).take(count).collect()
}
