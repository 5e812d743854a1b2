//! Accepts connections up to a limit, sets up TLS, selects HTTP/1.1 or HTTP/2, and closes connections gracefully.

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
use super::closed::Closed;
use super::connections::{Connection, Counted, Received, Table};
use super::metrics::Metrics;
use super::options::ServerOptions;
use super::{refusals, tls};
use hipvit::error::Result;

/// Connection preface: the first bytes that an HTTP/2 client sends.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Maximum number of concurrent requests on an HTTP/2 connection.
const MAX_STREAMS: u32 = 128;

/// Initial flow-control window of HTTP/2: bytes that a client may send before the server reads them.
const WINDOW_BYTES: u32 = 256 << 10;

/// Maximum size of the header fields of an HTTP/2 request. Each field counts as its name, its value and 32 bytes.
const MAX_HEADER_LIST_BYTES: u32 = 8 << 10;

/// Size of the read buffer of an HTTP/1 connection. The request line and the headers must fit into it.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// Interval between keep-alive pings to an HTTP/2 client.
const PING_INTERVAL: Duration = Duration::from_secs(60);

/// Timeout for closing a connection that has no open request.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Minimum interval between warnings about connections that cannot be accepted.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// Accepts connections and serves their requests through a router.
#[derive(Clone)]
pub(super) struct Acceptor {
    router: Router,
    tls: Option<TlsAcceptor>,
    table: Arc<Table>,
    /// Timeout for the headers of a request, for the TLS handshake, and for the first authorised request.
    header_timeout: Duration,
    idle_timeout: Duration,
    write_timeout: Duration,
    request_timeout: Duration,
    metrics: Arc<Metrics>,
}

impl Acceptor {
    pub(super) fn new(options: &ServerOptions, router: Router, metrics: Arc<Metrics>) -> Result<Self> {
        let limits = &options.limits;
        Ok(Self {
            router,
            tls: options.tls.as_ref().map(tls::acceptor).transpose()?,
            table: Table::new(limits.connections, metrics.clone()),
            header_timeout: limits.header_time,
            idle_timeout: limits.idle_time,
            write_timeout: limits.body_time,
            request_timeout: limits.request_time,
            metrics,
        })
    }

    /// Accepts connections until `stop` becomes true.
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
                    // The connection failed, or the process has no free file descriptor. Retry after a pause.
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
            // Send small responses immediately (disable Nagle's algorithm).
            let _ = stream.set_nodelay(true);
            let (acceptor, watcher, stop) = (self.clone(), graceful.watcher(), stop.clone());
            tokio::spawn(async move {
                let connection = &place.connection;
                tokio::select! {
                    () = acceptor.serve(stream, Peer(peer), connection, stop) => {}
                    () = connection.displaced() => {}
                }
                // On shutdown, the server waits until all watchers are dropped.
                drop(watcher);
            });
        }
    }

    /// Serves one connection until it is closed. Errors of the connection are dropped, since they affect only its client.
    async fn serve(
        &self,
        stream: TcpStream,
        peer: Peer,
        connection: &Arc<Connection>,
        stop: watch::Receiver<bool>,
    ) {
        // Treat a client that does not read responses as disconnected.
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(self.write_timeout));
        let stream = Box::pin(stream);
        match &self.tls {
            None => {
                let (reader, writer) = tokio::io::split(stream);
                self.serve_plain((reader, writer), peer, connection, stop).await;
            }
            Some(tls) => {
                let handshake = async {
                    let _permit = connection.handshakes.acquire().await;
                    tls.accept(stream).await
                };
                if let Some(Ok(stream)) = self.first_bytes(handshake, stop.clone()).await {
                    let (reader, writer) = tokio::io::split(stream);
                    self.serve_plain((reader, writer), peer, connection, stop).await;
                }
            }
        }
    }

    /// Runs `work`, which reads the first bytes from a client. Returns `None` after the header timeout, or if
    /// the server stops.
    async fn first_bytes<T>(
        &self,
        work: impl Future<Output = T>,
        mut stop: watch::Receiver<bool>,
    ) -> Option<T> {
        tokio::select! {
            result = tokio::time::timeout(self.header_timeout, work) => result.ok(),
            _ = stop.wait_for(|&stop| stop) => None,
        }
    }

    /// Serves HTTP on a stream without TLS, or inside TLS.
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
        // Detect the protocol here, because hyper waits for the first bytes without a timeout.
        let Some(Ok(received)) = self.first_bytes(read_preface(&mut reader), stop.clone()).await else {
            return;
        };
        let is_http2 = received == HTTP2_PREFACE;
        let reader = Received::new(reader, connection.clone(), self.metrics.clone());
        let io = TokioIo::new(tokio::io::join(Cursor::new(received).chain(reader), writer));
        self.serve_http(io, is_http2, peer, connection, stop).await;
    }

    /// Serves HTTP/1.1 or HTTP/2.
    async fn serve_http(
        &self,
        io: impl Read + Write + Unpin + Send + 'static,
        is_http2: bool,
        peer: Peer,
        connection: &Arc<Connection>,
        stop: watch::Receiver<bool>,
    ) {
        let (router, metrics, owner) = (self.router.clone(), self.metrics.clone(), connection.clone());
        let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
            let (router, metrics, connection) = (router.clone(), metrics.clone(), owner.clone());
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
        if is_http2 {
            let mut builder = http2::Builder::new(StreamExecutor);
            builder
                .timer(TokioTimer::new())
                .auto_date_header(false)
                .keep_alive_interval(PING_INTERVAL)
                .initial_connection_window_size(WINDOW_BYTES)
                .initial_stream_window_size(WINDOW_BYTES)
                .max_header_list_size(MAX_HEADER_LIST_BYTES)
                .max_concurrent_streams(MAX_STREAMS);
            self.drive(builder.serve_connection(io, service), connection, stop)
                .await;
        } else {
            let mut builder = http1::Builder::new();
            builder
                .timer(TokioTimer::new())
                .auto_date_header(false)
                .max_buf_size(MAX_HEAD_BYTES)
                .header_read_timeout(self.header_timeout);
            self.drive(builder.serve_connection(io, service), connection, stop)
                .await;
        }
    }

    /// Serves a connection until the client closes it, a timeout expires, or the server stops.
    ///
    /// After a timeout or a stop, the server completes the open requests. It then drops a connection that the client
    /// does not close.
    async fn drive(
        &self,
        serving: impl GracefulConnection,
        connection: &Connection,
        mut stop: watch::Receiver<bool>,
    ) {
        let mut serving = pin!(serving);
        let reason = tokio::select! {
            _ = serving.as_mut() => return,
            reason = connection.expired(self.header_timeout, self.idle_timeout) => Some(reason),
            _ = stop.wait_for(|&stop| stop) => None,
        };
        if let Some(reason) = reason {
            self.metrics.closed_connection(reason);
        }
        serving.as_mut().graceful_shutdown();
        // Further requests do not extend this timeout. While the server stops, its drain timeout is the limit.
        let timeout = match reason {
            Some(Closed::Unauthorized) => CLOSE_TIMEOUT,
            Some(_) => CLOSE_TIMEOUT.saturating_add(self.request_timeout),
            None => Duration::MAX,
        };
        tokio::select! {
            _ = serving.as_mut() => {}
            () = connection.quiet(CLOSE_TIMEOUT.min(self.header_timeout)) => {}
            () = tokio::time::sleep(timeout) => {}
        }
    }
}

/// Logs failures to accept connections, at most one warning per [`WARNING_INTERVAL`].
#[derive(Debug, Default)]
struct Failures {
    /// Time of the last warning.
    warned: Option<Instant>,
    /// Number of failures since the last warning.
    unreported: u64,
}

impl Failures {
    fn warn(&mut self, error: &io::Error) {
        self.unreported += 1;
        if self.is_due(Instant::now()) {
            tracing::warn!(%error, times = self.unreported, "cannot accept connections");
            self.unreported = 0;
        }
    }

    /// Returns true if a warning is due, and then counts the interval from `now`.
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

/// Sets the header `Date`. Leaves it out for a year that the header cannot represent, in which case hyper would panic.
fn set_date(response: &mut Response, now: SystemTime) {
    /// First second of the year 10000 in Unix time.
    const END: u64 = 253_402_300_800;
    let is_valid = now
        .duration_since(UNIX_EPOCH)
        .is_ok_and(|since| since.as_secs() < END);
    if is_valid && let Ok(date) = HeaderValue::try_from(httpdate::fmt_http_date(now)) {
        response.headers_mut().insert(DATE, date);
    }
}

/// Reads until the received bytes equal the HTTP/2 preface or differ from it. Returns the received bytes.
async fn read_preface(reader: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut received = Vec::with_capacity(HTTP2_PREFACE.len());
    while received.len() < HTTP2_PREFACE.len() && HTTP2_PREFACE.starts_with(&received) {
        let missing = (HTTP2_PREFACE.len() - received.len()) as u64;
        if (&mut *reader).take(missing).read_buf(&mut received).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(received)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preface(sent: &[u8]) -> io::Result<Vec<u8>> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(read_preface(&mut &sent[..]))
    }

    #[test]
    fn bytes_are_read_until_they_differ_from_the_http2_preface() {
        let sent = [HTTP2_PREFACE, b"more"].concat();
        assert_eq!(preface(&sent).unwrap(), HTTP2_PREFACE);
        let begin = preface(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        assert!(b"GET / HTTP/1.1\r\n\r\n".starts_with(&begin[..]) && !begin.is_empty());
        assert!(preface(b"PRI * HTTP").is_err());
        assert!(preface(b"").is_err());
    }

    #[test]
    fn a_year_that_the_date_header_cannot_represent_is_left_out() {
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
    fn failures_to_accept_are_logged_at_most_once_per_interval() {
        let (mut failures, begin) = (Failures::default(), Instant::now());
        assert!(failures.is_due(begin));
        assert!(!failures.is_due(begin + WARNING_INTERVAL / 2));
        assert!(failures.is_due(begin + WARNING_INTERVAL));
        assert!(!failures.is_due(begin + WARNING_INTERVAL));
    }
}
