//! gRPC's health checking protocol, for Kubernetes' gRPC probes and load balancers. A service is the name of
//! a model. The empty name and the name of the inference service are the whole server.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tonic::codegen::tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::failure::{Failure, Kind};
use super::guard::Authorized;
use super::proto::health::health_check_response::ServingStatus;
use super::proto::health::health_server::{Health, HealthServer};
use super::proto::health::{HealthCheckRequest, HealthCheckResponse};
use super::service::Service;

/// Name of the inference service.
const INFERENCE: &str = "inference.GRPCInferenceService";

/// Interval between checks of a watched service's status.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Maximum number of open watches.
const MAX_WATCHES: usize = 256;

/// Maximum size of a request, which is a name.
const MAX_REQUEST_BYTES: usize = 4 << 10;

/// Returns the health service of a server.
pub(super) fn service(service: Arc<Service>) -> HealthServer<Checker> {
    let checker = Checker {
        service,
        watches: Arc::new(Semaphore::new(MAX_WATCHES)),
    };
    HealthServer::new(checker).max_decoding_message_size(MAX_REQUEST_BYTES)
}

/// Answers health checks.
pub(super) struct Checker {
    service: Arc<Service>,
    watches: Arc<Semaphore>,
}

fn is_server(name: &str) -> bool {
    name.is_empty() || name == INFERENCE
}

/// Returns the status of the server or of a model; `None` for an unknown name.
fn status(service: &Service, name: &str) -> Option<ServingStatus> {
    let ready = if is_server(name) {
        service.is_ready()
    } else {
        match service.is_model_ready(name, "") {
            Ok(ready) => ready,
            Err(_) if service.knows(name) => false,
            Err(_) => return None,
        }
    };
    Some(if ready {
        ServingStatus::Serving
    } else {
        ServingStatus::NotServing
    })
}

fn answer(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse {
        status: status.into(),
    }
}

/// Sends every change of the status until the client leaves or the server stops.
async fn watch(
    service: Arc<Service>,
    name: String,
    answers: mpsc::Sender<Result<HealthCheckResponse, Status>>,
    _permit: OwnedSemaphorePermit,
) {
    let mut last = None;
    loop {
        let now = status(&service, &name).unwrap_or(ServingStatus::ServiceUnknown);
        let draining = service.is_draining();
        if last != Some(now) {
            last = Some(now);
            if answers.send(Ok(answer(now))).await.is_err() {
                return;
            }
        }
        if draining {
            // An open stream would delay the end of the server.
            let _ = answers
                .send(Err(Status::unavailable("the server is stopping")))
                .await;
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            () = answers.closed() => return,
        }
    }
}

#[tonic::async_trait]
impl Health for Checker {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let authorized = request.extensions().get().is_none_or(|Authorized(yes)| *yes);
        let name = request.into_inner().service;
        if !authorized && !is_server(&name) {
            let reason = "without the server's bearer token only the whole server can be checked: leave `service` empty";
            return Err(Failure::new(Kind::Unauthorized, reason).into());
        }
        match status(&self.service, &name) {
            Some(status) => Ok(Response::new(answer(status))),
            None => Err(Status::not_found(format!("there is no model `{name}`"))),
        }
    }

    type WatchStream = ReceiverStream<Result<HealthCheckResponse, Status>>;

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let Ok(permit) = self.watches.clone().try_acquire_owned() else {
            return Err(Status::resource_exhausted(format!(
                "{MAX_WATCHES} watches are open, and more are not taken"
            )));
        };
        let (answers, stream) = mpsc::channel(1);
        let name = request.into_inner().service;
        tokio::spawn(watch(self.service.clone(), name, answers, permit));
        Ok(Response::new(ReceiverStream::new(stream)))
    }
}
