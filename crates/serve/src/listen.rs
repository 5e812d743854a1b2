//! Connections: accepting them within a limit, TLS, the choice of HTTP/1.1 or HTTP/2, and their orderly end.

use std::convert::Infallible;
use std::io::{self, Cursor};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use hyper::Request;
use hyper::body::Incoming;
use hyper::header::{DATE, HeaderValue};
use hyper::rt::{Read, Write};
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulConnection, GracefulShutdown};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt as _;

use super::access_log::Peer;
use super::answer::StreamExecutor;
use super::connections::{Closed, Connection, Counted, Received, Table};
use super::metrics::Metrics;
use super::options::ServerOptions;
use super::{refusals, tls};
use hipvit::error::Result;

/// First bytes from an HTTP/2 client.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Maximum concurrent requests of one HTTP/2 connection.
const MAX_STREAMS: u32 = 128;

/// Bytes that an HTTP/2 client may send before they are read.
const WINDOW_BYTES: u32 = 256 << 10;

/// Maximum size of the fields of an HTTP/2 request. Each field counts 32 bytes more than its name and value.
const HEADER_LIST: u32 = 8 << 10;

/// Bytes that are read from an HTTP/1 client at once, and the maximum size of a head.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// Idle time after which an HTTP/2 client is pinged.
const PING_INTERVAL: Duration = Duration::from_secs(60);

/// Time for closing a connection without an open request.
const CLOSING_TIME: Duration = Duration::from_secs(5);

/// Interval between warnings that connections cannot be accepted.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// Accepts connections for a router.
#[derive(Clone)]
pub(super) struct Acceptor {
    router: Router,
    tls: Option<TlsAcceptor>,
    table: Arc<Table>,
    header_time: Duration,
    idle_time: Duration,
    write_time: Duration,
    request_time: Duration,
    metrics: Arc<Metrics>,
}

impl Acceptor {
    pub(super) fn new(options: &ServerOptions, router: Router, metrics: Arc<Metrics>) -> Result<Self> {
        let limits = &options.limits;
        Ok(Self {
            router,
            tls: options.tls.as_ref().map(tls::acceptor).transpose()?,
            table: Table::new(limits.connections, metrics.clone()),
            header_time: limits.header_time,
            idle_time: limits.idle_time,
            write_time: limits.body_time,
            request_time: limits.request_time,
            metrics,
        })
    }

    /// Accepts until `stop` is set.
    pub(super) async fn accept_all(
        self,
        listener: TcpListener,
        mut stop: watch::Receiver<bool>,
        graceful: Arc<GracefulShutdown>,
    ) {
        let mut failures = Failures::default();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = stop.wait_for(|&stop| stop) => return,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // This connection failed, or no file descriptor is free.
                    self.metrics.accept_errors.inc();
                    failures.warn(&error);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                }
            };
            let Some(place) = self.table.admit(peer, stream.local_addr().ok()) else {
                self.metrics.refused_connections.inc();
                continue;
            };
            // Send small responses immediately.
            let _ = stream.set_nodelay(true);
            let (acceptor, watcher, stop) = (self.clone(), graceful.watcher(), stop.clone());
            tokio::spawn(async move {
                let connection = &place.connection;
                tokio::select! {
                    () = acceptor.serve(stream, Peer(peer), connection, stop) => {}
                    () = connection.displaced() => {}
                }
                // The server waits for the watchers before it ends.
                drop(watcher);
            });
        }
    }

    /// Serves one connection to its end. Its errors concern only its client.
    async fn serve(
        &self,
        stream: TcpStream,
        peer: Peer,
        connection: &Arc<Connection>,
        stop: watch::Receiver<bool>,
    ) {
        // A client that does not read answers counts as gone.
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(self.write_time));
        let stream = Box::pin(stream);
        match &self.tls {
            None => {
                let (reader, writer) = tokio::io::split(stream);
                self.serve_plain((reader, writer), peer, connection, stop).await;
            }
            Some(tls) => {
                let accept = async {
                    let _turn = connection.handshakes.acquire().await;
                    tls.accept(stream).await
                };
                if let Some(Ok(stream)) = self.begin(accept, stop.clone()).await {
                    let (reader, writer) = tokio::io::split(stream);
                    self.serve_plain((reader, writer), peer, connection, stop).await;
                }
            }
        }
    }

    /// Waits for the first bytes of a client. Returns `None` if they take longer than a head may, or if the
    /// server stops.
    async fn begin<T>(&self, begin: impl Future<Output = T>, mut stop: watch::Receiver<bool>) -> Option<T> {
        tokio::select! {
            begin = tokio::time::timeout(self.header_time, begin) => begin.ok(),
            _ = stop.wait_for(|&stop| stop) => None,
        }
    }

    async fn serve_plain<R, W>(
        &self,
        (mut reader, writer): (R, W),
        peer: Peer,
        connection: &Arc<Connection>,
        stop: watch::Receiver<bool>,
    ) where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        // Read the preface here, because hyper waits for the first bytes without a limit.
        let Some(Ok(begin)) = self.begin(read_preface(&mut reader), stop.clone()).await else {
            return;
        };
        let http2 = begin == HTTP2_PREFACE;
        let reader = Received::new(reader, connection.clone(), self.metrics.clone());
        let io = TokioIo::new(tokio::io::join(Cursor::new(begin).chain(reader), writer));
        self.serve_http(io, http2, peer, connection, stop).await;
    }

    async fn serve_http(
        &self,
        io: impl Read + Write + Unpin + Send + 'static,
        http2: bool,
        peer: Peer,
        connection: &Arc<Connection>,
        stop: watch::Receiver<bool>,
    ) {
        let (router, metrics, of) = (self.router.clone(), self.metrics.clone(), connection.clone());
        let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
            let (router, metrics, connection) = (router.clone(), metrics.clone(), of.clone());
            request.extensions_mut().insert(peer);
            request.extensions_mut().insert(connection.clone());
            async move {
                let open = connection.begin_request();
                let kind = refusals::RequestKind::of(&request);
                let request = request.map(|body| Body::new(Counted::request(body, connection.clone())));
                let mut response = router.oneshot(request).await.unwrap_or_else(|e| match e {});
                kind.count(&response, &metrics);
                set_date(&mut response, SystemTime::now());
                Ok::<_, Infallible>(response.map(|body| Counted::answer(body, connection, open)))
            }
        });
        if http2 {
            let mut builder = http2::Builder::new(StreamExecutor);
            builder
                .timer(TokioTimer::new())
                .auto_date_header(false)
                .keep_alive_interval(PING_INTERVAL)
                .initial_connection_window_size(WINDOW_BYTES)
                .initial_stream_window_size(WINDOW_BYTES)
                .max_header_list_size(HEADER_LIST)
                .max_concurrent_streams(MAX_STREAMS);
            self.drive(builder.serve_connection(io, service), connection, stop)
                .await;
        } else {
            let mut builder = http1::Builder::new();
            builder
                .timer(TokioTimer::new())
                .auto_date_header(false)
                .max_buf_size(MAX_HEAD_BYTES)
                .header_read_timeout(self.header_time);
            self.drive(builder.serve_connection(io, service), connection, stop)
                .await;
        }
    }

    /// Drives a connection until it ends or must end. Open requests are then answered, and a peer that does
    /// not close is cut off.
    async fn drive(
        &self,
        serving: impl GracefulConnection,
        connection: &Connection,
        mut stop: watch::Receiver<bool>,
    ) {
        let mut serving = pin!(serving);
        let reason = tokio::select! {
            _ = serving.as_mut() => return,
            reason = connection.expired(self.header_time, self.idle_time) => Some(reason),
            _ = stop.wait_for(|&stop| stop) => None,
        };
        if let Some(reason) = reason {
            self.metrics.closed_connection(reason);
        }
        serving.as_mut().graceful_shutdown();
        // More requests do not delay the end. When the server stops, the drain time-out is the limit.
        let end = match reason {
            Some(Closed::Unauthorized) => CLOSING_TIME,
            Some(_) => CLOSING_TIME.saturating_add(self.request_time),
            None => Duration::MAX,
        };
        tokio::select! {
            _ = serving.as_mut() => {}
            () = connection.quiet(CLOSING_TIME.min(self.header_time)) => {}
            () = tokio::time::sleep(end) => {}
        }
    }
}

/// Failures to accept a connection. At most one per [`WARNING_INTERVAL`] is logged.
#[derive(Debug, Default)]
struct Failures {
    warned: Option<Instant>,
    unreported: u64,
}

impl Failures {
    fn warn(&mut self, error: &io::Error) {
        self.unreported += 1;
        if self.is_due(Instant::now()) {
            tracing::warn!(%error, times = self.unreported, "connections cannot be accepted");
            self.unreported = 0;
        }
    }

    fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self
            .warned
            .is_none_or(|before| now.saturating_duration_since(before) >= WARNING_INTERVAL);
        if is_due {
            self.warned = Some(now);
        }
        is_due
    }
}

/// Sets the header `Date`. hyper panics if the clock shows a year that the header cannot represent.
fn set_date(response: &mut Response, now: SystemTime) {
    /// The first second of the year 10000.
    const END: u64 = 253_402_300_800;
    let is_valid = now
        .duration_since(UNIX_EPOCH)
        .is_ok_and(|since| since.as_secs() < END);
    if is_valid && let Ok(date) = HeaderValue::try_from(httpdate::fmt_http_date(now)) {
        response.headers_mut().insert(DATE, date);
    }
}

/// Reads until the bytes are the HTTP/2 preface or differ from it.
async fn read_preface(reader: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut begin = Vec::with_capacity(HTTP2_PREFACE.len());
    while begin.len() < HTTP2_PREFACE.len() && HTTP2_PREFACE.starts_with(&begin) {
        let missing = (HTTP2_PREFACE.len() - begin.len()) as u64;
        if (&mut *reader).take(missing).read_buf(&mut begin).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(begin)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preface(sent: &[u8]) -> io::Result<Vec<u8>> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(read_preface(&mut &sent[..]))
    }

    #[test]
    fn the_beginning_is_read_until_it_differs_from_http2() {
        let sent = [HTTP2_PREFACE, b"more"].concat();
        assert_eq!(preface(&sent).unwrap(), HTTP2_PREFACE);
        let begin = preface(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        assert!(b"GET / HTTP/1.1\r\n\r\n".starts_with(&begin[..]) && !begin.is_empty());
        assert!(preface(b"PRI * HTTP").is_err());
        assert!(preface(b"").is_err());
    }

    #[test]
    fn a_clock_beyond_what_a_date_can_say_is_not_shown() {
        let date = |now: SystemTime| {
            let mut response = Response::new(Body::empty());
            set_date(&mut response, now);
            response
                .headers()
                .get(DATE)
                .map(|date| date.to_str().unwrap().to_owned())
        };
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        assert_eq!(date(at(0)).unwrap(), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(
            date(at(253_402_300_799)).unwrap(),
            "Fri, 31 Dec 9999 23:59:59 GMT"
        );
        assert_eq!(date(at(253_402_300_800)), None);
        assert_eq!(date(UNIX_EPOCH - Duration::from_secs(1)), None);
    }

    #[test]
    fn failures_to_accept_are_logged_once_in_a_while() {
        let (mut failures, begin) = (Failures::default(), Instant::now());
        assert!(failures.is_due(begin));
        assert!(!failures.is_due(begin + WARNING_INTERVAL / 2));
        assert!(failures.is_due(begin + WARNING_INTERVAL));
        assert!(!failures.is_due(begin + WARNING_INTERVAL));
    }
}
