//! A small Hugging Face hub on loopback, with the answers that `huggingface_hub` and `hipvit pull` need.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

use sha2::{Digest, Sha256};

pub(crate) const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
/// Minimum size of a large file. Large files have a SHA-256, and the hub redirects to a storage on another
/// host.
const LARGE: usize = 4096;

/// Content and faults of the hub.
#[derive(Default)]
pub(crate) struct Settings {
    /// Repositories by name, with their files.
    pub(crate) repositories: BTreeMap<String, BTreeMap<String, Vec<u8>>>,
    /// The token that requests need.
    pub(crate) token: Option<&'static str>,
    /// The storage closes each connection after this many bytes of a body.
    pub(crate) cut_after: Option<usize>,
    /// The storage answers requests for a range with the whole file.
    pub(crate) ignores_ranges: bool,
    /// The storage answers requests for a range with one that begins one byte later.
    pub(crate) shifts_ranges: bool,
    /// Number of requests for the list of files that are answered with 503 first.
    pub(crate) busy: usize,
    /// The storage changes a byte of its answer.
    pub(crate) damages: bool,
    /// Status of each answer, and its code in `X-Error-Code`.
    pub(crate) refuses: Option<(u16, &'static str)>,
}

pub(crate) struct Hub {
    pub(crate) endpoint: String,
    state: Arc<State>,
}

struct State {
    settings: Mutex<Settings>,
    /// Method, path and range of each request to the hub and the storage.
    requests: Mutex<Vec<String>>,
    /// Address of the storage.
    storage: String,
}

impl Hub {
    pub(crate) fn start(settings: Settings) -> Self {
        let (hub, storage) = (listener(), listener());
        // A different name of the host, which must not receive a token.
        let state = Arc::new(State {
            settings: Mutex::new(settings),
            requests: Mutex::default(),
            storage: format!("http://localhost:{}", storage.local_addr().unwrap().port()),
        });
        let endpoint = format!("http://{}", hub.local_addr().unwrap());
        serve(hub, state.clone(), State::answer);
        serve(storage, state.clone(), State::store);
        Self { endpoint, state }
    }

    /// Returns the requests since the last call.
    pub(crate) fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.state.requests.lock().unwrap())
    }

    pub(crate) fn set(&self, change: impl FnOnce(&mut Settings)) {
        change(&mut self.state.settings.lock().unwrap());
    }
}

/// The files of a directory.
pub(crate) fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|entry| {
            (
                entry.file_name().into_string().unwrap(),
                fs::read(entry.path()).unwrap(),
            )
        })
        .collect()
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

struct Request {
    method: String,
    path: String,
    headers: BTreeMap<String, String>,
}

/// Answers each connection's only request in a separate thread, until the process ends.
fn serve(listener: TcpListener, state: Arc<State>, answer: fn(&State, &Request, &mut TcpStream)) {
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (state, mut stream) = (state.clone(), stream.unwrap());
            thread::spawn(move || {
                if let Some(request) = read(&stream) {
                    answer(&state, &request, &mut stream);
                }
            });
        }
    });
}

fn read(stream: &TcpStream) -> Option<Request> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next()?.ok()?;
    let mut words = first.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = BTreeMap::new();
    for line in lines {
        let line = line.ok()?;
        let Some((name, value)) = line.split_once(": ") else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    Some(Request {
        method,
        path,
        headers,
    })
}

fn send(stream: &mut TcpStream, request: &Request, status: u16, headers: &[(&str, String)], body: &[u8]) {
    let mut head = format!("HTTP/1.1 {status} Answer\r\nConnection: close\r\n");
    if !headers.iter().any(|(name, _)| *name == "Content-Length") {
        head.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    let _ = stream.write_all(head.as_bytes());
    if request.method != "HEAD" {
        let _ = stream.write_all(body);
    }
}

impl State {
    fn record(&self, request: &Request) {
        let range = request.headers.get("range").map(|range| format!(" {range}"));
        let line = format!("{} {}{}", request.method, request.path, range.unwrap_or_default());
        self.requests.lock().unwrap().push(line);
    }

    /// Answers as the hub: lists, metadata, and the bytes of small files.
    fn answer(&self, request: &Request, stream: &mut TcpStream) {
        self.record(request);
        let mut settings = self.settings.lock().unwrap();
        let refused = |code: &str| {
            vec![
                ("X-Error-Code", code.to_owned()),
                ("X-Error-Message", "no".to_owned()),
            ]
        };
        if let Some((status, code)) = settings.refuses {
            return send(stream, request, status, &refused(code), b"");
        }
        let authorized = settings
            .token
            .is_none_or(|token| request.headers.get("authorization") == Some(&format!("Bearer {token}")));
        if !authorized {
            return send(stream, request, 401, &refused("RepoNotFound"), b"");
        }
        if let Some(rest) = request.path.strip_prefix("/api/models/") {
            if settings.busy > 0 {
                settings.busy -= 1;
                return send(stream, request, 503, &[], b"");
            }
            let (name, revision) = rest.split_once("/revision/").unwrap();
            let Some(files) = settings.repositories.get(name) else {
                return send(stream, request, 404, &refused("RepoNotFound"), b"");
            };
            if !["main", COMMIT, "refs%2Fpr%2F1"].contains(&revision) {
                return send(stream, request, 404, &refused("RevisionNotFound"), b"");
            }
            let siblings: Vec<_> = files
                .keys()
                .map(|name| serde_json::json!({"rfilename": name}))
                .collect();
            let listing = serde_json::json!({"id": name, "sha": COMMIT, "siblings": siblings});
            return send(stream, request, 200, &[], listing.to_string().as_bytes());
        }
        let (name, file) = request.path[1..]
            .split_once(&format!("/resolve/{COMMIT}/"))
            .unwrap();
        let Some(bytes) = settings.repositories.get(name).and_then(|files| files.get(file)) else {
            return send(stream, request, 404, &refused("EntryNotFound"), b"");
        };
        let commit = ("X-Repo-Commit", COMMIT.to_owned());
        if bytes.len() < LARGE {
            // The SHA-1 of the Git object, as far as a reader of the cache can tell.
            let etag = ("ETag", format!("\"{}\"", &sha256(bytes)[..40]));
            return send(stream, request, 200, &[commit, etag], bytes);
        }
        let headers = [
            commit,
            ("X-Linked-Etag", format!("\"{}\"", sha256(bytes))),
            ("X-Linked-Size", bytes.len().to_string()),
            ("Location", format!("{}/{name}/{file}", self.storage)),
        ];
        send(stream, request, 302, &headers, b"");
    }

    /// Answers as the storage of large files.
    fn store(&self, request: &Request, stream: &mut TcpStream) {
        self.record(request);
        let settings = self.settings.lock().unwrap();
        assert_eq!(
            request.headers.get("authorization"),
            None,
            "the token goes to the hub alone"
        );
        let (name, file) = request.path[1..].rsplit_once('/').unwrap();
        let mut bytes = settings.repositories[name][file].clone();
        if settings.damages {
            bytes[LARGE / 2] ^= 1;
        }
        let start = request
            .headers
            .get("range")
            .filter(|_| !settings.ignores_ranges)
            .map(|range| {
                let start = range
                    .strip_prefix("bytes=")
                    .and_then(|range| range.strip_suffix('-'));
                start.unwrap().parse::<usize>().unwrap() + usize::from(settings.shifts_ranges)
            });
        let rest = &bytes[start.unwrap_or(0)..];
        let sent = &rest[..settings.cut_after.map_or(rest.len(), |cut| cut.min(rest.len()))];
        let length = ("Content-Length", rest.len().to_string());
        match start {
            Some(start) => {
                let range = format!("bytes {start}-{}/{}", bytes.len() - 1, bytes.len());
                send(stream, request, 206, &[length, ("Content-Range", range)], sent);
            }
            None => send(stream, request, 200, &[length], sent),
        }
    }
}
