//! The access log: one line for each request on standard output, when its answer has been sent or its client
//! has left.
//!
//! A thread writes. Requests pass it their lines through a queue of fixed length and never wait. A line is
//! dropped if the queue is full or the line cannot be written. `hipvit_access_log_dropped_total` counts
//! dropped lines.

use std::fmt::Write as _;
use std::io::Write;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use hyper::Request;
use hyper::body::{Frame, SizeHint};
use hyper::header::HeaderMap;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use serde::Serialize;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};

use super::metrics::Metrics;
use super::options::AccessLog;
use hipvit::error::{Error, Result};
use hipvit_files::streams;

/// Maximum number of lines that wait to be written.
const MAX_QUEUED_LINES: usize = 4096;

/// Lines are written together up to about this size.
const WRITE_BYTES: usize = 64 << 10;

/// Maximum number of characters that a line shows of a path or of a request's id.
const MAX_SHOWN_CHARS: usize = 256;

/// Time in which the last lines must be written when the server stops.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// The status of a request whose client left before there was an answer, as in nginx' log.
const CLIENT_LEFT: u16 = 499;

/// Address of a connection's client, stored in the extensions of its requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub(super) SocketAddr);

/// Facts that handlers add to the line of a request. Without an access log it is empty.
#[derive(Clone, Debug, Default)]
pub(super) struct Note(Option<Arc<Mutex<Facts>>>);

#[derive(Clone, Debug, Default)]
struct Facts {
    model: String,
    images: usize,
    id: String,
    received: usize,
}

impl Note {
    fn add(&self, add: impl FnOnce(&mut Facts)) {
        if let Some(facts) = &self.0 {
            add(&mut facts.lock());
        }
    }

    /// Sets the model. The name must be that of an existing model.
    pub(super) fn model(&self, name: &str) {
        self.add(|facts| name.clone_into(&mut facts.model));
    }

    /// Adds to the number of images of the request. A stream adds those of each message.
    pub(super) fn images(&self, images: usize) {
        self.add(|facts| facts.images += images);
    }

    /// Sets the request's id. Without one, the id of the header stays.
    pub(super) fn request_id(&self, id: &str) {
        if !id.is_empty() {
            self.add(|facts| facts.id = shortened(id));
        }
    }

    /// Sets the size of the request's body.
    pub(super) fn received(&self, bytes: usize) {
        self.add(|facts| facts.received = bytes);
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(MAX_SHOWN_CHARS).collect()
}

enum Message {
    Line(String),
    /// Answered after all earlier lines have been written.
    End(SyncSender<()>),
}

/// Hands lines to the thread that writes them.
#[derive(Clone, Debug)]
pub(super) struct AccessLogger {
    form: AccessLog,
    lines: SyncSender<Message>,
    dropped: Counter,
}

impl AccessLogger {
    /// Starts the thread that writes to standard output.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if standard output is closed, [`Error::Resource`] if the thread cannot be started.
    pub(super) fn start(form: AccessLog, metrics: &Metrics) -> Result<Self> {
        // A separate descriptor, so that no lock is shared and nothing is buffered.
        let output = streams::stdout().map_err(|source| Error::io("standard output", source))?;
        Self::with_output(form, metrics.access_log_dropped.clone(), output)
    }

    fn with_output(form: AccessLog, dropped: Counter, output: impl Write + Send + 'static) -> Result<Self> {
        let (lines, receiver) = sync_channel(MAX_QUEUED_LINES);
        let lost = dropped.clone();
        thread::Builder::new()
            .name("hipvit-access-log".into())
            .spawn(move || write_all(&receiver, output, &lost))
            .map_err(|error| Error::resource("threads", error))?;
        Ok(Self { form, lines, dropped })
    }

    /// Begins the line of a request.
    pub(super) fn entry<B>(&self, request: &Request<B>) -> Entry {
        let id = request.headers().get("x-request-id");
        let facts = Facts {
            id: id
                .and_then(|id| id.to_str().ok())
                .map(shortened)
                .unwrap_or_default(),
            ..Facts::default()
        };
        Entry {
            logger: self.clone(),
            client: request.extensions().get().map(|Peer(address)| *address),
            method: shortened(request.method().as_str()),
            // Leave out the query, which may contain a token.
            path: shortened(request.uri().path()),
            begin: Instant::now(),
            facts: Arc::new(Mutex::new(facts)),
            status: CLIENT_LEFT,
            grpc_status: None,
            sent: 0,
            complete: false,
        }
    }

    fn push(&self, line: String) {
        if self.lines.try_send(Message::Line(line)).is_err() {
            self.dropped.inc();
        }
    }

    /// Waits a limited time until all lines so far have been written.
    pub(super) fn flush(&self) {
        let end = Instant::now() + FLUSH_TIMEOUT;
        let (answer, written) = sync_channel(1);
        let mut message = Message::End(answer);
        while let Err(TrySendError::Full(full)) = self.lines.try_send(message) {
            if Instant::now() >= end {
                return;
            }
            message = full;
            thread::sleep(Duration::from_millis(5));
        }
        let _ = written.recv_timeout(end.saturating_duration_since(Instant::now()));
    }
}

/// Writes lines until every logger has been dropped. After a failure the next lines are tried again, because
/// a full disk may have space again.
fn write_all(lines: &Receiver<Message>, mut output: impl Write, dropped: &Counter) {
    let mut torn = false;
    while let Ok(first) = lines.recv() {
        let (mut text, mut count, mut ends) = (String::new(), 0, Vec::new());
        let mut next = Some(first);
        while let Some(message) = next {
            match message {
                Message::Line(line) => {
                    text.push_str(&line);
                    text.push('\n');
                    count += 1;
                }
                Message::End(answer) => ends.push(answer),
            }
            next = (text.len() < WRITE_BYTES)
                .then(|| lines.try_recv().ok())
                .flatten();
        }
        if torn {
            text.insert(0, '\n');
        }
        // A part of the lines may have been written before the failure.
        torn = output.write_all(text.as_bytes()).is_err();
        if torn {
            dropped.inc_by(count);
        }
        for end in ends {
            let _ = end.try_send(());
        }
    }
}

/// The line of one request, written on drop.
#[derive(Debug)]
pub(super) struct Entry {
    logger: AccessLogger,
    client: Option<SocketAddr>,
    method: String,
    path: String,
    begin: Instant,
    facts: Arc<Mutex<Facts>>,
    status: u16,
    grpc_status: Option<u16>,
    sent: u64,
    /// True if the client took the whole answer.
    complete: bool,
}

impl Entry {
    pub(super) fn note(&self) -> Note {
        Note(Some(self.facts.clone()))
    }

    /// Returns the answer with a body that completes the line as it is sent.
    pub(super) fn answer(mut self, response: Response) -> Response {
        self.status = response.status().as_u16();
        self.read_grpc_status(response.headers());
        response.map(|body| {
            let expected = hyper::body::Body::size_hint(&body).exact();
            self.complete = expected == Some(0);
            Body::new(Logged {
                body,
                expected,
                entry: self,
            })
        })
    }

    fn read_grpc_status(&mut self, headers: &HeaderMap) {
        let status = headers.get("grpc-status").and_then(|status| status.to_str().ok());
        if let Some(status) = status.and_then(|status| status.parse().ok()) {
            self.grpc_status = Some(status);
        }
    }

    fn line(&self) -> String {
        let facts = self.facts.lock().clone();
        let mut time = String::new();
        // Writing to a string does not fail.
        let _ = SystemTime.format_time(&mut Writer::new(&mut time));
        let client = self.client.map(|client| client.to_string());
        let line = Line {
            time: &time,
            client: client.as_deref().unwrap_or("-"),
            method: &self.method,
            path: &self.path,
            status: self.status,
            grpc_status: self.grpc_status,
            request_bytes: facts.received,
            bytes: self.sent,
            duration_ms: self.begin.elapsed().as_micros() as f64 / 1e3,
            model: (!facts.model.is_empty()).then_some(&facts.model),
            images: (facts.images > 0).then_some(facts.images),
            id: (!facts.id.is_empty()).then_some(&facts.id),
            incomplete: (!self.complete).then_some(true),
        };
        match self.logger.form {
            AccessLog::Text => line.text(),
            AccessLog::Json => serde_json::to_string(&line).unwrap_or_default(),
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.logger.push(self.line());
    }
}

#[derive(Serialize)]
struct Line<'a> {
    time: &'a str,
    client: &'a str,
    method: &'a str,
    path: &'a str,
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    grpc_status: Option<u16>,
    request_bytes: usize,
    bytes: u64,
    duration_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    images: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a String>,
    /// True if the client left before it had the whole answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    incomplete: Option<bool>,
}

impl Line<'_> {
    fn text(&self) -> String {
        let mut line = format!(
            "{} {} {} {} {} request_bytes={} bytes={} duration_ms={:.3}",
            self.time,
            self.client,
            self.method,
            self.path.escape_debug(),
            self.status,
            self.request_bytes,
            self.bytes,
            self.duration_ms
        );
        // Writing to a string does not fail.
        if let Some(status) = self.grpc_status {
            let _ = write!(line, " grpc_status={status}");
        }
        if let Some(model) = self.model {
            let _ = write!(line, " model={}", model.escape_debug());
        }
        if let Some(images) = self.images {
            let _ = write!(line, " images={images}");
        }
        if let Some(id) = self.id {
            let _ = write!(line, " id={id:?}");
        }
        if self.incomplete.is_some() {
            line.push_str(" incomplete");
        }
        line
    }
}

/// The body of an answer, whose bytes are counted.
struct Logged {
    body: Body,
    /// The length of the body, if it is known.
    expected: Option<u64>,
    entry: Entry,
}

impl hyper::body::Body for Logged {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref() {
                    self.entry.sent += data.len() as u64;
                    self.entry.complete = self.expected == Some(self.entry.sent);
                } else if let Some(trailers) = frame.trailers_ref() {
                    self.entry.read_grpc_status(trailers);
                    self.entry.complete = true;
                }
            }
            Poll::Ready(None) => self.entry.complete = true,
            Poll::Ready(Some(Err(_))) | Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        hyper::body::Body::size_hint(&self.body)
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::mpsc::channel;

    use super::*;

    /// Lines written by an output that fails on request.
    #[derive(Clone)]
    struct Output(Arc<Mutex<(Vec<u8>, bool)>>);

    impl Output {
        fn new() -> Self {
            Self(Arc::new(Mutex::new((Vec::new(), false))))
        }

        fn text(&self) -> String {
            String::from_utf8(self.0.lock().0.clone()).unwrap()
        }
    }

    impl Write for Output {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut state = self.0.lock();
            if state.1 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            state.0.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn request() -> Request<()> {
        let mut request = Request::new(());
        *request.method_mut() = hyper::Method::POST;
        *request.uri_mut() = "/v2/models/vit/infer?token=secret".parse().unwrap();
        request
            .headers_mut()
            .insert("x-request-id", "from a header".parse().unwrap());
        request.extensions_mut().insert(Peer(([127, 0, 0, 1], 9).into()));
        request
    }

    #[test]
    fn a_line_has_what_the_request_was_and_how_it_ended() {
        for form in [AccessLog::Json, AccessLog::Text] {
            let output = Output::new();
            let logger = AccessLogger::with_output(form, Counter::default(), output.clone()).unwrap();
            let entry = logger.entry(&request());
            let note = entry.note();
            note.model("vit");
            note.images(2);
            note.received(77);
            note.request_id("a\n\"b\"");
            drop(entry.answer(Response::new(Body::empty())));
            // A client that leaves before the answer.
            drop(logger.entry(&request()));
            logger.flush();
            let text = output.text();
            let lines: Vec<&str> = text.lines().collect();
            assert_eq!(lines.len(), 2, "{text}");
            assert!(!text.contains("secret"), "{text}");
            if form == AccessLog::Text {
                assert!(
                    lines[0].contains(" 127.0.0.1:9 POST /v2/models/vit/infer 200 request_bytes=77 bytes=0 "),
                    "{text}"
                );
                assert!(
                    lines[0].ends_with(r#" model=vit images=2 id="a\n\"b\"""#),
                    "{text}"
                );
                assert!(lines[1].ends_with(r#" id="from a header" incomplete"#), "{text}");
                continue;
            }
            let [first, second] =
                [0, 1].map(|line| serde_json::from_str::<serde_json::Value>(lines[line]).unwrap());
            assert_eq!((&first["status"], &first["images"]), (&200.into(), &2.into()));
            assert_eq!(
                (&first["id"], &first["model"]),
                (&"a\n\"b\"".into(), &"vit".into())
            );
            assert!(first.get("incomplete").is_none() && first["duration_ms"].is_number());
            assert_eq!(
                (&second["status"], &second["incomplete"]),
                (&499.into(), &true.into())
            );
        }
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted_and_later_ones_are_whole() {
        let (output, dropped) = (Output::new(), Counter::default());
        let logger = AccessLogger::with_output(AccessLog::Text, dropped.clone(), output.clone()).unwrap();
        output.0.lock().1 = true;
        logger.push("lost".into());
        logger.flush();
        assert_eq!(dropped.get(), 1);
        output.0.lock().1 = false;
        logger.push("kept".into());
        logger.flush();
        assert_eq!(output.text(), "\nkept\n");
        assert_eq!(dropped.get(), 1);
    }

    /// An output that blocks until the test releases it.
    struct Stuck(std::sync::mpsc::Receiver<()>);

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_output_that_blocks_delays_no_request() {
        let (go, stuck) = channel();
        let dropped = Counter::default();
        let logger = AccessLogger::with_output(AccessLog::Text, dropped.clone(), Stuck(stuck)).unwrap();
        // The thread takes few long lines before it writes.
        let line = "x".repeat(WRITE_BYTES / 16);
        for _ in 0..3 * MAX_QUEUED_LINES {
            logger.push(line.clone());
        }
        // Only the queue and the lines that the thread has taken are kept.
        assert!(dropped.get() >= MAX_QUEUED_LINES as u64, "{}", dropped.get());
        // Returns although nothing is written.
        logger.flush();
        drop(go);
    }
}
