//! Serves models by the Open Inference Protocol: HTTP/REST and gRPC on one port, with dynamic batching. The
//! manual is `docs/serving.md`.
//!
//! ```no_run
//! use hipvit_serve::{ModelSource, Server, ServerOptions};
//!
//! fn main() -> hipvit::Result<()> {
//!     let mut options = ServerOptions::default();
//!     options.models = vec![ModelSource::new("vit", "models/vit_base_patch16_224")];
//!     let server = Server::start(options)?;
//!     println!("listening on {:?}", server.addresses());
//!     server.wait_for_signal()?;
//!     server.stop();
//!     Ok(())
//! }
//! ```
//!
//! A request passes these modules:
//!
//! 1. `listen`, `connections`, `guard`, `origin`, `limits`, `memory`, `stream` and `access_log` accept it
//!    within the limits.
//! 2. `http`, `embeddings`, `chat` and `grpc` parse it into the types of `protocol`.
//! 3. `service` finds the model in the `repository` and passes images and texts to its `scheduler`.
//! 4. `answer` sends the response.
//!
//! `health`, `openai` and `triton` answer everything but inference. Only connections are asynchronous;
//! decoding and inference use threads.

mod access_log;
mod answer;
mod blocking;
mod chat;
mod client;
mod closed;
mod connections;
mod embeddings;
mod failure;
#[cfg(fuzzing)]
pub mod fuzzing;
mod grpc;
mod guard;
mod health;
mod http;
mod limits;
mod listen;
mod memory;
mod metadata;
mod metrics;
mod openai;
mod options;
mod origin;
mod page;
mod priority;
pub mod proto;
mod protocol;
mod refusals;
mod repository;
mod scheduler;
mod service;
mod stage;
mod statistics;
#[cfg_attr(unix, path = "stop_signals/unix.rs")]
#[cfg_attr(windows, path = "stop_signals/windows.rs")]
mod stop_signals;
mod stream;
mod tls;
mod traces;
mod trim;
mod triton;
mod wire;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::DefaultBodyLimit;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tower::ServiceExt as _;

pub use self::options::{AccessLog, ModelSource, ServerLimits, ServerOptions, TlsFiles};
pub use self::priority::Priority;
use self::service::Service;
pub use self::stop_signals::StopSignals;
use self::traces::Traces;
use hipvit::error::{Error, Result};

/// Minimum time for engines to finish running work when the server stops.
const ENGINE_END_TIME: Duration = Duration::from_secs(2);

/// Returns the collector of traces that OpenTelemetry's environment variables name, for
/// [`ServerOptions::otlp_endpoint`].
pub fn otlp_endpoint() -> Option<String> {
    traces::endpoint_of_environment()
}

/// A running server, with the threads that serve its connections.
pub struct Server {
    service: Arc<Service>,
    addresses: Vec<SocketAddr>,
    stop: watch::Sender<bool>,
    listeners: Vec<JoinHandle<()>>,
    graceful: Arc<GracefulShutdown>,
    runtime: Runtime,
}

impl Server {
    /// Loads the models and listens.
    ///
    /// # Errors
    ///
    /// - The error of loading a model, of listening on an address, or of reading a TLS file.
    /// - [`Error::Argument`] if an option is out of range.
    pub fn start(options: ServerOptions) -> Result<Self> {
        if options.max_batch == 0 || options.queue == 0 || options.backlog == 0 {
            return Err(Error::argument(
                "max-batch, queue and backlog",
                "must be at least 1",
            ));
        }
        if options.listen.is_empty() {
            return Err(Error::argument("listen", "there is no address"));
        }
        let runtime = Builder::new_multi_thread()
            .enable_all()
            .thread_name("hipvit-serve")
            .build()
            .map_err(|e| Error::resource("threads", e))?;
        // Bind first, so that an address in use fails before the slow model load.
        let bind = async {
            let mut listeners = Vec::new();
            for address in &options.listen {
                let listener = TcpListener::bind(address).await;
                listeners.push(listener.map_err(|source| Error::io(address.to_string(), source))?);
            }
            Ok::<_, Error>(listeners)
        };
        let bound = runtime.block_on(bind)?;
        let addresses = bound
            .iter()
            .map(TcpListener::local_addr)
            .collect::<std::io::Result<_>>();
        let addresses = addresses.map_err(|source| Error::io("the listening socket", source))?;

        let traces = Traces::new(options.otlp_endpoint.as_deref(), runtime.handle())?;
        let service = Arc::new(Service::new(options, traces)?);
        runtime.spawn(trim::watch(Arc::downgrade(&service)));
        let health = health::service(service.clone());
        let health = health.map_request(|request: hyper::Request<Body>| request.map(tonic::body::Body::new));
        let guard = axum::middleware::from_fn_with_state(service.clone(), guard::guard);
        let router = Router::new()
            .route_service("/grpc.health.v1.Health/{*call}", health)
            .merge(grpc::routes(service.clone()))
            .merge(http::routes(service.clone()))
            // The guard has read the body within its limits.
            .layer(DefaultBodyLimit::disable())
            .layer(guard);
        let acceptor = listen::Acceptor::new(&service.options, router, service.metrics.clone())?;
        let (stop, stopped) = watch::channel(false);
        let graceful = Arc::new(GracefulShutdown::new());
        let spawn = |listener| {
            let accept = acceptor
                .clone()
                .accept_all(listener, stopped.clone(), graceful.clone());
            runtime.spawn(accept)
        };
        let listeners = bound.into_iter().map(spawn).collect();
        Ok(Self {
            service,
            addresses,
            stop,
            listeners,
            graceful,
            runtime,
        })
    }

    /// Returns the addresses that the server listens on.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Catches the signals that stop a server from now on, so that none of them ends the process before
    /// [`wait_for`](Self::wait_for): SIGTERM, SIGINT and SIGHUP, or Ctrl-C, Ctrl-Break, closing the console and
    /// shutting down on Windows. A process that was started to ignore SIGHUP, as with `nohup`, still ignores it.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if signals cannot be caught.
    pub fn catch_signals(&self) -> Result<StopSignals> {
        let _runtime = self.runtime.enter();
        StopSignals::catch().map_err(|source| Error::io("signals", source))
    }

    /// Waits for one of the signals. Afterwards, another SIGTERM, SIGINT or Ctrl-C ends the process immediately.
    /// Another SIGHUP does not, because a closed terminal may send it twice.
    pub fn wait_for(&self, mut signals: StopSignals) {
        self.runtime.block_on(async {
            signals.first().await;
            tokio::spawn(async move {
                signals.next().await;
                tracing::warn!("stopping at once: requests in flight are lost");
                std::process::exit(1);
            });
        });
    }

    /// Catches the signals that stop a server and waits for one, see [`catch_signals`](Self::catch_signals) and
    /// [`wait_for`](Self::wait_for).
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if signals cannot be caught.
    pub fn wait_for_signal(&self) -> Result<()> {
        self.wait_for(self.catch_signals()?);
        Ok(())
    }

    /// Makes the server report that it is not ready. It still takes requests.
    pub fn drain(&self) {
        self.service.drain();
    }

    /// Stops the server in this order:
    ///
    /// 1. It reports that it is not ready, for [`ServerOptions::drain_delay`].
    /// 2. It takes no more connections and requests, and finishes those in flight within
    ///    [`ServerOptions::drain_timeout`].
    /// 3. It ends its threads.
    ///
    /// Returns false if a thread hangs, for example on a device that does not answer. The thread keeps all
    /// models until the process ends. `stop` takes at most the two times and a few seconds.
    pub fn stop(self) -> bool {
        let Self {
            service,
            stop,
            listeners,
            graceful,
            runtime,
            ..
        } = self;
        service.drain();
        let (delay, limit) = (service.options.drain_delay, service.options.drain_timeout);
        let deadline = runtime.block_on(async {
            tokio::time::sleep(delay).await;
            let begin = Instant::now();
            let _ = stop.send(true);
            let drain = async {
                for listener in listeners {
                    let _ = listener.await;
                }
                let Ok(graceful) = Arc::try_unwrap(graceful) else {
                    return;
                };
                tracing::info!(connections = graceful.count(), "draining");
                graceful.shutdown().await;
            };
            if tokio::time::timeout(limit, drain).await.is_err() {
                tracing::warn!(?limit, "requests in flight did not finish in time");
            }
            // A year is practically no limit, and does not overflow.
            begin + limit.min(Duration::from_secs(365 * 86400))
        });
        // Export while there are still threads for it.
        service.traces.close();
        // Abandoned requests do not delay the engines: their images are dropped before they run.
        runtime.shutdown_timeout(Duration::from_secs(1));
        let ended = service.close(deadline.max(Instant::now() + ENGINE_END_TIME));
        if let Some(log) = &service.access_log {
            log.flush();
        }
        if ended {
            tracing::info!("stopped");
        } else {
            tracing::warn!("stopped; a batch or a load that does not end is left behind");
            // Freeing memory of a device that hangs may hang, too.
            std::mem::forget(service);
        }
        ended
    }
}

/// Runs a future of a test to its end.
#[cfg(test)]
fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    runtime.unwrap().block_on(future)
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("addresses", &self.addresses)
            .finish_non_exhaustive()
    }
}
