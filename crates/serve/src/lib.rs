//! Models over the network, by the Open Inference Protocol: HTTP/REST and gRPC on one port, with dynamic batching. `docs/serving.md` is
//! the manual.
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
//! `http`, `embeddings` and `grpc` read requests into the types of `protocol`. `service` finds the model in the `repository` and
//! gives the images and texts to its `scheduler`. `listen`, `connections`, `guard`, `origin`, `limits`, `memory`, `stream` and
//! `access_log` come before all of them, and `answer` after. `health`, `openai` and `triton` answer what the clients of those protocols
//! ask beside inference. Only connections are asynchronous: decoding and running are threads of their own.

mod access_log;
mod answer;
mod client;
mod connections;
mod embeddings;
mod failure;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod grpc;
mod guard;
mod health;
mod http;
mod limits;
mod listen;
mod memory;
mod metrics;
mod openai;
mod options;
mod origin;
#[doc(hidden)]
pub mod proto;
mod protocol;
mod refusals;
mod repository;
mod scheduler;
mod service;
mod statistics;
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
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tower::ServiceExt as _;

pub use self::access_log::AccessLog;
pub use self::limits::ServerLimits;
pub use self::options::{ModelSource, ServerOptions, TlsFiles};
pub use self::scheduler::Priority;
use self::service::Service;
use self::traces::Traces;
use hipvit::error::{Error, Result};
use hipvit_files::signals::is_ignored;

/// Minimum time for engines to end what runs when the server stops.
const ENGINE_END_TIME: Duration = Duration::from_secs(2);

/// The collector of traces that OpenTelemetry's environment variables name, for [`ServerOptions::otlp_endpoint`].
pub fn otlp_endpoint() -> Option<String> {
    traces::endpoint_of_environment()
}

/// The signals that stop a server. Made by [`Server::catch_signals`].
#[derive(Debug)]
pub struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Option<Signal>,
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
    /// A model cannot be loaded, an address cannot be listened on, a TLS file cannot be used, or an option is out of range.
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
            .map_err(|e| Error::argument("threads", e))?;
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

    /// Where it listens.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Begins to catch the signals that stop a server, so that none of them ends the process before
    /// [`wait_for`](Self::wait_for): SIGTERM, SIGINT and SIGHUP. A process that was started to ignore SIGHUP, as by `nohup`, still
    /// ignores it.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if signals cannot be caught.
    pub fn catch_signals(&self) -> Result<StopSignals> {
        let _runtime = self.runtime.enter();
        let caught = |kind| signal(kind).map_err(|source| Error::io("signals", source));
        Ok(StopSignals {
            terminate: caught(SignalKind::terminate())?,
            interrupt: caught(SignalKind::interrupt())?,
            hangup: if is_ignored(SignalKind::hangup().as_raw_value()) {
                None
            } else {
                Some(caught(SignalKind::hangup())?)
            },
        })
    }

    /// Waits for one of the signals. After that, another SIGTERM or SIGINT ends the process at once. A terminal that is closed may send
    /// SIGHUP twice, so another SIGHUP does not.
    pub fn wait_for(&self, signals: StopSignals) {
        let StopSignals {
            mut terminate,
            mut interrupt,
            mut hangup,
        } = signals;
        self.runtime.block_on(async {
            let hung_up = async {
                match &mut hangup {
                    Some(hangup) => drop(hangup.recv().await),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                () = hung_up => {}
            }
            tokio::spawn(async move {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
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

    /// From now on the server says that it is not ready, and still takes requests.
    pub fn drain(&self) {
        self.service.drain();
    }

    /// Stops in order: it is no longer ready; after [`ServerOptions::drain_delay`] takes no more connections and requests;
    /// finishes those in flight, for which they have [`ServerOptions::drain_timeout`]; and ends its threads.
    ///
    /// Returns false if a thread hangs, as on a device that does not answer. It is left behind with all models, and ends with the
    /// process. `stop` itself takes the two times and a few seconds at most.
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
            // A year is as good as no limit, and can be added.
            begin + limit.min(Duration::from_secs(365 * 86400))
        });
        // While there are threads to export on.
        service.traces.close();
        // What is abandoned now does not hold up the engines: its images are dropped before they run.
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
