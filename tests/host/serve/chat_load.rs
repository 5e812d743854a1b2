//! Many chats of mixed lengths at once, of a server in a process of its own, whose memory is measured.

use std::fs;
use std::io::{BufRead, Write};
use std::net::SocketAddr;
use std::process::Child;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use hipvit::{Device, Session};
use hipvit_generate::{Finish, GenerateOptions};
use serde_json::json;

use crate::support::generation::{CHAT, Case, case, chat};
use crate::support::server::chats::{content, events, open_stream};
use crate::support::server::process::{command, signal, started};
use crate::support::server::{connect, metric, request, wait_until};

const REQUESTS: usize = 1000;
const ROUNDS: usize = 5;
const CLIENTS: usize = 12;

/// Maximum number of tokens of a text.
const LONGEST: usize = 39;

/// Bytes by which the server's memory may grow after the first rounds: 5 KiB per request.
const GROWTH: u64 = 3 << 20;

/// What a client does with its request.
#[derive(Clone, Copy, Debug)]
enum Client {
    Whole,
    Streams,
    /// Leaves after the first event.
    LeavesStream,
    /// Leaves without reading the answer.
    Leaves,
}

/// Texts of each number of beams, for each image.
struct Expected {
    case: Case,
    detokenizer: std::sync::Arc<hipvit::model::Detokenizer>,
    greedy: Vec<hipvit_generate::Generated>,
}

impl Expected {
    fn new() -> Self {
        let case = case("trocr_base");
        let longest = GenerateOptions {
            max_tokens: Some(LONGEST),
            ..GenerateOptions::default()
        };
        let mut generator = case.load(&Session::builder().device(Device::Cpu));
        let greedy = generator
            .generate(&case.images(), &longest, &mut |_, _| {})
            .unwrap();
        Self {
            detokenizer: generator.detokenizer(),
            case,
            greedy,
        }
    }

    /// Returns text and reason of the first `length` tokens.
    fn text(&self, image: usize, length: usize) -> (String, &'static str) {
        let text = &self.greedy[image];
        let tokens = &text.tokens[..text.tokens.len().min(length)];
        let is_ended = text.finish == Finish::End && tokens.len() == text.tokens.len();
        let reason = if is_ended { "stop" } else { "length" };
        (self.detokenizer.text(tokens).unwrap(), reason)
    }
}

/// Sends a request. Returns true if its answer was awaited, which must be the expected one.
fn one(address: SocketAddr, expected: &Expected, number: usize) -> bool {
    let image = number % expected.case.texts.len();
    let length = 1 + number * 7 % LONGEST;
    let client = match number % 8 {
        0 => Client::Leaves,
        1 => Client::LeavesStream,
        2..5 => Client::Streams,
        _ => Client::Whole,
    };
    // Some texts are searched by beams, and others guess their tokens.
    let beams = if number % 10 == 7 { 3 } else { 1 };
    let speculate = if number % 5 == 3 && beams == 1 { 4 } else { 0 };
    let stream = matches!(client, Client::Streams | Client::LeavesStream);
    let file = expected.case.file(image);
    let body = chat(
        &file,
        json!({"max_tokens": length, "stream": stream, "beams": beams, "speculate": speculate}),
    );
    let (text, reason) = expected.text(image, length);
    match client {
        Client::Whole => {
            let response = request(address, "POST", CHAT, &[], body.to_string().as_bytes());
            assert_eq!(response.status, 200, "{}", response.text());
            let answer = response.json();
            let choice = &answer["choices"][0];
            let tokens = answer["usage"]["completion_tokens"].as_u64().unwrap() as usize;
            assert!((1..=length).contains(&tokens), "{tokens} of {length}");
            if beams == 1 {
                assert_eq!(
                    (&choice["message"]["content"], &choice["finish_reason"]),
                    (&json!(text), &json!(reason)),
                    "{number}"
                );
            }
        }
        Client::Streams => {
            let (status, reader) = open_stream(address, &body);
            assert_eq!(status, 200);
            let events = events(reader);
            if beams == 1 {
                assert_eq!(content(&events), text, "{number}");
                assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], reason);
            }
        }
        Client::LeavesStream => {
            let (status, mut reader) = open_stream(address, &body);
            assert_eq!(status, 200);
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            assert!(line.contains("assistant"), "{line}");
            return false;
        }
        Client::Leaves => {
            let mut stream = connect(address);
            let body = body.to_string();
            let head = format!(
                "POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
                body.len()
            );
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(body.as_bytes()).unwrap();
            return false;
        }
    }
    true
}

/// A server that ends with a test that fails.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
    }
}

/// Returns the resident memory of a process, in bytes.
fn resident(process: u32) -> u64 {
    let statistics = fs::read_to_string(format!("/proc/{process}/smaps_rollup")).unwrap();
    let line = statistics
        .lines()
        .find(|line| line.starts_with("Anonymous:"))
        .unwrap();
    let kilobytes: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kilobytes << 10
}

/// Returns processor time of a process in seconds.
fn processor(process: u32) -> f64 {
    let statistics = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields = statistics.rsplit_once(") ").unwrap().1.split(' ');
    let ticks = fields.skip(11).take(2).map(|field| field.parse::<f64>().unwrap());
    ticks.sum::<f64>() / 100.0
}

/// 1,000 requests from twelve clients at once, of which some leave. Every other one has its text, no page is lost, and memory does not grow.
#[test]
fn nothing_is_lost_and_memory_stays_flat_under_load() {
    let expected = Expected::new();
    let model = format!("trocr_base={}", expected.case.path().display());
    let mut command = command(&[
        "--model",
        &model,
        "--max-tokens",
        "39",
        "--max-batch",
        "4",
        "--backlog",
        "64",
        "--decode-threads",
        "1",
    ]);
    // Arenas of many threads would grow at random.
    command.env("MALLOC_ARENA_MAX", "1");
    let (child, address, _log) = started(command);
    let mut child = Ended(child);
    let of = |name: &str| metric(address, &format!("{name}{{model=\"trocr_base\""));
    let pages = of("hipvit_cache_pages");
    assert!(pages > 4.0);
    let answered = AtomicUsize::new(0);
    let mut memory = Vec::new();
    let mut most_pages = 0.0_f64;
    for round in 0..ROUNDS {
        let each = REQUESTS / ROUNDS;
        let next = AtomicUsize::new(round * each);
        thread::scope(|scope| {
            for _ in 0..CLIENTS {
                scope.spawn(|| {
                    let taken = || {
                        Some(next.fetch_add(1, Ordering::Relaxed))
                            .filter(|&number| number < (round + 1) * each)
                    };
                    while let Some(number) = taken() {
                        answered.fetch_add(usize::from(one(address, &expected, number)), Ordering::Relaxed);
                    }
                });
            }
            while next.load(Ordering::Relaxed) < (round + 1) * each {
                most_pages = most_pages.max(of("hipvit_cache_pages_used"));
                thread::sleep(std::time::Duration::from_millis(20));
            }
        });
        // Texts of clients that have left end, too.
        wait_until("all texts have ended", || {
            metric(
                address,
                "hipvit_queue_images{model=\"trocr_base\",priority=\"interactive\"}",
            ) == 0.0
                && of("hipvit_cache_pages_used") == 0.0
                && metric(address, "hipvit_request_body_bytes ") < 64e3
        });
        memory.push(resident(child.0.id()));
    }
    println!(
        "{most_pages} of {pages} pages, memory {:?} KiB, {:.1} s of processor time",
        memory.iter().map(|bytes| bytes >> 10).collect::<Vec<_>>(),
        processor(child.0.id())
    );
    assert_eq!(answered.load(Ordering::Relaxed), REQUESTS * 6 / 8);
    assert!(most_pages > 0.0 && most_pages <= pages, "{most_pages} of {pages}");
    let requests = |outcome: &str| {
        let labels = format!("{{model=\"trocr_base\",protocol=\"chat\",outcome=\"{outcome}\"}}");
        metric(address, &format!("hipvit_requests_total{labels}")) as usize
    };
    // A client that leaves may have been answered before, or too early to be a request.
    let (ok, cancelled) = (requests("ok"), requests("cancelled"));
    assert!(
        ok >= REQUESTS * 6 / 8 && ok + cancelled <= REQUESTS,
        "{ok} {cancelled}"
    );
    assert!(cancelled > REQUESTS / 40, "{ok} {cancelled}");
    // The first rounds fill the allocator's caches.
    let [first, second, .., before, last] = memory[..] else {
        panic!("{memory:?}")
    };
    assert!(before.min(last) <= first.max(second) + GROWTH, "{memory:?}");
    signal(&child.0, "-TERM");
    assert!(child.0.wait().unwrap().success());
}
