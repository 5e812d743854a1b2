//! Connections: accepting them within a limit, TLS, HTTP/1.1 or HTTP/2 by what the client sends, and ending them in order.

use std::convert::Infallible;
use std::fs;
use std::io::{self, Cursor};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::Request;
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tower::ServiceExt as _;

use super::access_log::Peer;
use super::answer::StreamExecutor;
use super::metrics::Metrics;
use super::options::{ServerOptions, TlsFiles};
use crate::error::{Error, Result};

/// What an HTTP/2 client sends first.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Requests of one HTTP/2 connection at once.
const STREAMS: u32 = 256;

/// After this time without anything an HTTP/2 client is asked whether it is still there.
const PING: Duration = Duration::from_secs(60);

/// Accepts connections for a router.
#[derive(Clone)]
pub(super) struct Acceptor {
    router: Router,
    tls: Option<TlsAcceptor>,
    free: Arc<Semaphore>,
    header_time: Duration,
    write_time: Duration,
    metrics: Arc<Metrics>,
}

impl Acceptor {
    pub(super) fn new(options: &ServerOptions, router: Router, metrics: Arc<Metrics>) -> Result<Self> {
        Ok(Self {
            router,
            tls: options.tls.as_ref().map(tls).transpose()?,
            free: Arc::new(Semaphore::new(options.limits.connections)),
            header_time: options.limits.header_time,
            write_time: options.limits.body_time,
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
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = stop.wait_for(|&stop| stop) => return,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Of the one connection, or there are no file descriptors now.
                    tracing::warn!(%error, "a connection cannot be accepted");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                }
            };
            let Ok(permit) = self.free.clone().try_acquire_owned() else {
                self.metrics.refused_connections.inc();
                continue;
            };
            // Small responses go out at once.
            let _ = stream.set_nodelay(true);
            let (acceptor, watcher, stop) = (self.clone(), graceful.watcher(), stop.clone());
            tokio::spawn(async move {
                acceptor.metrics.connections.inc();
                acceptor.serve(stream, Peer(peer), watcher, stop).await;
                acceptor.metrics.connections.dec();
                drop(permit);
            });
        }
    }

    /// Serves one connection to its end. What it fails with is its client's affair.
    async fn serve(&self, stream: TcpStream, peer: Peer, watcher: Watcher, stop: watch::Receiver<bool>) {
        // A client that reads no answers is one that has left.
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(self.write_time));
        let stream = Box::pin(stream);
        match &self.tls {
            None => {
                let (reader, writer) = tokio::io::split(stream);
                self.serve_plain((reader, writer), peer, watcher, stop).await;
            }
            Some(tls) => {
                if let Some(Ok(stream)) = self.begin(tls.accept(stream), stop.clone()).await {
                    let (reader, writer) = tokio::io::split(stream);
                    self.serve_plain((reader, writer), peer, watcher, stop).await;
                }
            }
        }
    }

    /// What a client sends first, in the time that it has for it; `None`: it took longer, or the server stops.
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
        watcher: Watcher,
        stop: watch::Receiver<bool>,
    ) where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        // Read here, since hyper waits for the first bytes without a limit.
        let Some(Ok(begin)) = self.begin(read_preface(&mut reader), stop).await else {
            return;
        };
        let http2 = begin == HTTP2_PREFACE;
        let io = TokioIo::new(tokio::io::join(Cursor::new(begin).chain(reader), writer));
        self.serve_http(io, http2, peer, watcher).await;
    }

    async fn serve_http(
        &self,
        io: impl Read + Write + Unpin + Send + 'static,
        http2: bool,
        peer: Peer,
        watcher: Watcher,
    ) {
        let router = self.router.clone();
        let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
            let router = router.clone();
            request.extensions_mut().insert(peer);
            async move {
                Ok::<_, Infallible>(
                    router
                        .oneshot(request.map(Body::new))
                        .await
                        .unwrap_or_else(|e| match e {}),
                )
            }
        });
        if http2 {
            let mut builder = http2::Builder::new(StreamExecutor);
            builder
                .timer(TokioTimer::new())
                .keep_alive_interval(PING)
                .max_concurrent_streams(STREAMS);
            let _ = watcher.watch(builder.serve_connection(io, service)).await;
        } else {
            let mut builder = http1::Builder::new();
            builder
                .timer(TokioTimer::new())
                .header_read_timeout(self.header_time);
            let _ = watcher.watch(builder.serve_connection(io, service)).await;
        }
    }
}

/// Reads until it is clear whether this is HTTP/2: its preface, or what differs from it.
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

fn tls(files: &TlsFiles) -> Result<TlsAcceptor> {
    let wrong = |path: &Path, reason: String| Error::config(path, reason);
    let read = |path: &Path| fs::read(path).map_err(|source| Error::io(path, source));
    let certificate = read(&files.certificate)?;
    let chain = CertificateDer::pem_slice_iter(&certificate)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| wrong(&files.certificate, format!("is not a certificate in PEM: {e}")))?;
    if chain.is_empty() {
        return Err(wrong(&files.certificate, "has no certificate in PEM".into()));
    }
    let key = PrivateKeyDer::from_pem_slice(&read(&files.key)?)
        .map_err(|e| wrong(&files.key, format!("is not a private key in PEM: {e}")))?;
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| Error::argument("tls", e))?
        .with_no_client_auth()
        .with_single_cert(chain, key);
    let mut config =
        config.map_err(|e| wrong(&files.key, format!("cannot be used with the certificate: {e}")))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
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
}
