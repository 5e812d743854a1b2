//! The protocol over gRPC.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::routing::post;
use axum::{Extension, Router};
use bytes::Bytes;
use http_body_util::StreamBody as Frames;
use hyper::body::Frame;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use prost::Message as _;
use tokio::sync::mpsc;
use tonic::codegen::tokio_stream::{self, wrappers::ReceiverStream};
use tonic::metadata::MetadataMap;
use tonic::{Code, Request, Response, Status, Streaming};
use tower::ServiceExt as _;

use super::blocking::at_length;
use super::failure::{Failure, Kind};
use super::memory::Charge;
use super::metadata::{EXTENSIONS, NAME};
use super::proto::grpc_inference_service_server::{GrpcInferenceService, GrpcInferenceServiceServer};
use super::proto::infer_parameter::ParameterChoice;
use super::proto::model_infer_request::InferInputTensor;
use super::proto::{self, InferTensorContents};
use super::protocol::tensor_error::TensorError;
use super::protocol::{Data, Datatype, InferRequest, InferResponse, InputTensor, RequestedOutput, binary};
use super::service::{Call, Service};
use super::stream::{Messages, frame, only_message};
use super::{triton, wire};

type Answer<T> = Result<Response<T>, Status>;

/// Name of the span of a stream's message.
const STREAM_SPAN: &str = "inference.GRPCInferenceService/ModelStreamInfer";

/// Maximum number of responses of a stream that its client has not taken.
const MAX_UNREAD_RESPONSES: usize = 4;

/// Number of copies of its outputs that an answer needs: tensors, response and encoded message.
const COPIES: usize = 3;

/// Error of the generated methods for inference, which have separate routes.
const ROUTED: &str = "inferences have routes of their own";

impl From<Failure> for Status {
    fn from(failure: Failure) -> Self {
        let (code, retry) = match failure.kind() {
            Kind::InvalidArgument => (Code::InvalidArgument, None),
            Kind::Unauthorized => (Code::Unauthenticated, None),
            Kind::Forbidden => (Code::PermissionDenied, None),
            Kind::NotFound => (Code::NotFound, None),
            Kind::TooLarge => (Code::ResourceExhausted, None),
            Kind::SlowClient | Kind::DeadlineExceeded => (Code::DeadlineExceeded, None),
            Kind::Overloaded(after) => (Code::Unavailable, Some(after.as_secs().max(1))),
            Kind::Unavailable => (Code::Unavailable, Some(1)),
            Kind::Unsupported => (Code::Unimplemented, None),
            Kind::Internal => (Code::Internal, None),
        };
        let mut metadata = MetadataMap::new();
        if let Some(seconds) = retry {
            metadata.insert("retry-after", seconds.into());
        }
        Self::with_metadata(code, failure.message(), metadata)
    }
}

/// Returns the routes of the gRPC service. Inferences are decoded here, within the limits of memory, because
/// tonic limits only the size of a message.
pub(super) fn routes(service: Arc<Service>) -> Router {
    let others = GrpcInferenceServiceServer::new(Grpc(service.clone()));
    let others = others.map_request(|request: hyper::Request<Body>| request.map(tonic::body::Body::new));
    Router::new()
        .route("/inference.GRPCInferenceService/ModelInfer", post(model_infer))
        .route(
            "/inference.GRPCInferenceService/ModelStreamInfer",
            post(model_stream_infer),
        )
        .route_service("/inference.GRPCInferenceService/{*call}", others)
        .with_state(service)
}

/// Implementation of the gRPC service.
pub(super) struct Grpc(Arc<Service>);

/// Runs `work` off the threads that serve connections.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Status> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => Ok(done?),
        Err(error) => Err(Status::internal(error.to_string())),
    }
}

#[tonic::async_trait]
impl GrpcInferenceService for Grpc {
    async fn server_live(&self, _: Request<proto::ServerLiveRequest>) -> Answer<proto::ServerLiveResponse> {
        Ok(Response::new(proto::ServerLiveResponse { live: true }))
    }

    async fn server_ready(
        &self,
        _: Request<proto::ServerReadyRequest>,
    ) -> Answer<proto::ServerReadyResponse> {
        let ready = self.0.is_ready();
        Ok(Response::new(proto::ServerReadyResponse { ready }))
    }

    async fn model_ready(
        &self,
        request: Request<proto::ModelReadyRequest>,
    ) -> Answer<proto::ModelReadyResponse> {
        let request = request.get_ref();
        let ready = match self.0.is_model_ready(&request.name, &request.version) {
            // Like Triton, report an unknown model as not ready.
            Err(failure) if failure.kind() == Kind::NotFound => false,
            ready => ready?,
        };
        Ok(Response::new(proto::ModelReadyResponse { ready }))
    }

    async fn server_metadata(
        &self,
        _: Request<proto::ServerMetadataRequest>,
    ) -> Answer<proto::ServerMetadataResponse> {
        Ok(Response::new(proto::ServerMetadataResponse {
            name: NAME.into(),
            version: env!("CARGO_PKG_VERSION").into(),
            extensions: EXTENSIONS.map(String::from).into(),
        }))
    }

    async fn model_metadata(
        &self,
        request: Request<proto::ModelMetadataRequest>,
    ) -> Answer<proto::ModelMetadataResponse> {
        use super::protocol::TensorMetadata as Metadata;
        use proto::model_metadata_response::TensorMetadata;
        let request = request.get_ref();
        let model = self.0.model(&request.name, &request.version)?;
        let tensor = |metadata: Metadata| TensorMetadata {
            name: metadata.name.into_owned(),
            datatype: metadata.datatype.name().into(),
            shape: metadata.shape,
        };
        Ok(Response::new(proto::ModelMetadataResponse {
            versions: self.0.versions(&model.name),
            name: model.name.clone(),
            platform: model.platform.clone(),
            inputs: model.input_metadata().into_iter().map(tensor).collect(),
            outputs: model.output_metadata().into_iter().map(tensor).collect(),
        }))
    }

    async fn model_config(
        &self,
        request: Request<proto::ModelConfigRequest>,
    ) -> Answer<proto::ModelConfigResponse> {
        let request = request.get_ref();
        let model = self.0.model(&request.name, &request.version)?;
        let config = triton::configuration(&model, &self.0.options);
        Ok(Response::new(proto::ModelConfigResponse { config: Some(config) }))
    }

    async fn model_statistics(
        &self,
        request: Request<proto::ModelStatisticsRequest>,
    ) -> Answer<proto::ModelStatisticsResponse> {
        let request = request.get_ref();
        let models = self.0.with_statistics(&request.name, &request.version)?;
        let model_stats = models.iter().map(|model| triton::statistics(model));
        Ok(Response::new(proto::ModelStatisticsResponse {
            model_stats: model_stats.collect(),
        }))
    }

    async fn model_infer(&self, _: Request<proto::ModelInferRequest>) -> Answer<proto::ModelInferResponse> {
        Err(Status::unimplemented(ROUTED))
    }

    type ModelStreamInferStream = ReceiverStream<Result<proto::ModelStreamInferResponse, Status>>;

    async fn model_stream_infer(
        &self,
        _: Request<Streaming<proto::ModelInferRequest>>,
    ) -> Answer<Self::ModelStreamInferStream> {
        Err(Status::unimplemented(ROUTED))
    }

    async fn repository_index(
        &self,
        request: Request<proto::RepositoryIndexRequest>,
    ) -> Answer<proto::RepositoryIndexResponse> {
        use proto::repository_index_response::ModelIndex;
        check_repository(&request.get_ref().repository_name)?;
        let (service, ready) = (self.0.clone(), request.get_ref().ready);
        let models = blocking(move || service.index(ready)).await?;
        let models = models.into_iter().map(|model| ModelIndex {
            name: model.name,
            version: model.version,
            state: model.state.into(),
            reason: model.reason,
        });
        Ok(Response::new(proto::RepositoryIndexResponse {
            models: models.collect(),
        }))
    }

    async fn repository_model_load(
        &self,
        request: Request<proto::RepositoryModelLoadRequest>,
    ) -> Answer<proto::RepositoryModelLoadResponse> {
        let proto::RepositoryModelLoadRequest {
            repository_name,
            model_name,
            parameters,
        } = request.into_inner();
        super::service::check_load(parameters.keys().map(String::as_str))?;
        let (service, name) = (self.0.clone(), model_of(repository_name, model_name)?);
        blocking(move || service.load(&name)).await?;
        Ok(Response::new(proto::RepositoryModelLoadResponse {}))
    }

    async fn repository_model_unload(
        &self,
        request: Request<proto::RepositoryModelUnloadRequest>,
    ) -> Answer<proto::RepositoryModelUnloadResponse> {
        let proto::RepositoryModelUnloadRequest {
            repository_name,
            model_name,
            parameters,
        } = request.into_inner();
        super::service::check_load(parameters.keys().map(String::as_str))?;
        let (service, name) = (self.0.clone(), model_of(repository_name, model_name)?);
        blocking(move || service.unload(&name)).await?;
        Ok(Response::new(proto::RepositoryModelUnloadResponse {}))
    }
}

/// Returns the name of the model. KServe's form of the message has it in field 1, where Triton's has the
/// repository.
fn model_of(repository: String, model: String) -> Result<String, Failure> {
    if model.is_empty() {
        return Ok(repository);
    }
    check_repository(&repository)?;
    Ok(model)
}

/// Refuses the name of a repository, as Triton does.
fn check_repository(name: &str) -> Result<(), Failure> {
    if name.is_empty() {
        return Ok(());
    }
    let reason = "`repository_name`: the server has one repository, without a name. Leave it out";
    Err(Failure::new(Kind::Unsupported, reason))
}

/// Decodes the message of a request within its memory.
fn decode(message: Bytes, memory: &Charge) -> Result<proto::ModelInferRequest, Failure> {
    memory.grow(wire::decoded_size(&message)?)?;
    let decoded = proto::ModelInferRequest::decode(message);
    let request = decoded
        .map_err(|error| Failure::invalid(format!("the message is not a ModelInferRequest: {error}")))?;
    InferRequest::check_id(&request.id)?;
    Ok(request)
}

/// Runs the request of a message. A failure includes the id of the request if it was read.
async fn infer(
    service: &Service,
    message: Bytes,
    call: Call,
) -> Result<proto::ModelInferResponse, (Failure, String)> {
    let length = message.len();
    let decoded = at_length(length, || decode(message, &call.memory));
    let request = decoded.map_err(|failure| {
        service.refused(&call, "", &failure);
        (failure, String::new())
    })?;
    let id = request.id.clone();
    let infer = async {
        // Report an unknown model before errors of the inputs.
        let model = service.model(&request.model_name, &request.model_version);
        let model = model.inspect_err(|failure| service.refused(&call, "", failure))?;
        let request = at_length(length, || read(request));
        let request = request.inspect_err(|failure| service.refused(&call, &model.name, failure))?;
        let response = service.infer(call, request).await?;
        Ok(at_length(response.bytes(), || write(&response)))
    };
    infer.await.map_err(|failure| (failure, id))
}

async fn model_infer(
    State(service): State<Arc<Service>>,
    Extension(call): Extension<Call>,
    headers: HeaderMap,
    body: Bytes,
) -> axum::response::Response {
    let answer = call.answer.clone();
    let run = async {
        let call = Call {
            protocol: "grpc",
            limit: timeout(&MetadataMap::from_headers(headers))?,
            copies: COPIES,
            ..call
        };
        let message = only_message(body, service.options.limits.body);
        let message = message.inspect_err(|failure| service.refused(&call, "", failure))?;
        infer(&service, message, call)
            .await
            .map_err(|(failure, _)| failure)
    };
    match run.await {
        Ok(response) => {
            let message = frame(&response);
            answer.shrink_to(message.len());
            let frames = [Frame::data(message), trailers(&Status::ok(""))];
            grpc_response(Frames::new(tokio_stream::iter(frames.map(Ok::<_, Infallible>))))
        }
        Err(failure) => Status::from(failure).into_http(),
    }
}

fn trailers(status: &Status) -> Frame<Bytes> {
    let mut headers = HeaderMap::new();
    // Leave out a message that is not a valid header.
    if status.add_header(&mut headers).is_err() {
        headers.insert("grpc-status", HeaderValue::from(status.code() as i32));
    }
    Frame::trailers(headers)
}

fn grpc_response(
    body: impl hyper::body::Body<Data = Bytes, Error = Infallible> + Send + 'static,
) -> axum::response::Response {
    let mut response = axum::response::Response::new(Body::new(body));
    let kind = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// Answers of a stream. Each counts for its memory until the next one is requested.
struct Answers {
    answers: mpsc::Receiver<(Frame<Bytes>, Charge)>,
    read: Charge,
}

impl hyper::body::Body for Answers {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.read = Charge::default();
        self.answers.poll_recv(context).map(|next| {
            let (frame, charge) = next?;
            self.read = charge;
            Some(Ok(frame))
        })
    }
}

async fn model_stream_infer(
    State(service): State<Arc<Service>>,
    Extension(call): Extension<Call>,
    headers: HeaderMap,
    body: Body,
) -> axum::response::Response {
    let (sender, answers) = mpsc::channel(MAX_UNREAD_RESPONSES);
    tokio::spawn(async move {
        let mut messages = Messages::new(body, service.bodies.clone());
        let answer = async {
            loop {
                // Each message is a request in the trace of the stream.
                let memory = call.memory.another();
                let message = match messages.next(&memory).await {
                    Ok(Some(message)) => message,
                    Ok(None) => return Status::ok(""),
                    Err(failure) => {
                        // A stream that cannot be read was left by its client.
                        if failure.kind() != Kind::InvalidArgument {
                            let refused = Call {
                                protocol: "grpc",
                                ..call.clone()
                            };
                            service.refused(&refused, "", &failure);
                        }
                        return failure.into();
                    }
                };
                let trace = service.traces.request(STREAM_SPAN.into(), &headers);
                trace.describe("rpc.system", "grpc");
                let answer = memory.another();
                let of_message = Call {
                    protocol: "grpc",
                    trace: trace.clone(),
                    memory,
                    answer: answer.clone(),
                    copies: COPIES,
                    ..call.clone()
                };
                let response = infer(&service, message, of_message).await;
                trace.end();
                let response = match response {
                    Ok(response) => proto::ModelStreamInferResponse {
                        error_message: String::new(),
                        infer_response: Some(final_response(response)),
                    },
                    // The stream continues; the id identifies the failed request.
                    Err((failure, id)) => proto::ModelStreamInferResponse {
                        error_message: failure.message().to_owned(),
                        infer_response: Some(proto::ModelInferResponse {
                            id,
                            ..proto::ModelInferResponse::default()
                        }),
                    },
                };
                let message = frame(&response);
                answer.shrink_to(message.len());
                if sender.send((Frame::data(message), answer)).await.is_err() {
                    return Status::cancelled("the client has left");
                }
            }
        };
        tokio::select! {
            status = answer => drop(sender.send((trailers(&status), Charge::default())).await),
            // The client has left, so abandon the request.
            () = sender.closed() => {}
        }
    });
    grpc_response(Answers {
        answers,
        read: Charge::default(),
    })
}

/// Marks a response as the last one of its request, as Triton does in streams.
fn final_response(mut response: proto::ModelInferResponse) -> proto::ModelInferResponse {
    let last = proto::InferParameter {
        parameter_choice: Some(ParameterChoice::BoolParam(true)),
    };
    response.parameters.insert("triton_final_response".into(), last);
    response
}

/// Returns the timeout of the call from `grpc-timeout`: at most eight digits and a unit.
fn timeout(metadata: &MetadataMap) -> Result<Option<Duration>, Failure> {
    let Some(value) = metadata.get("grpc-timeout") else {
        return Ok(None);
    };
    let parse = || {
        let (digits, unit) = value
            .to_str()
            .ok()?
            .split_at_checked(value.len().checked_sub(1)?)?;
        let number: u64 = digits.parse().ok().filter(|_| digits.len() <= 8)?;
        Some(match unit {
            "H" => Duration::from_secs(number * 3600),
            "M" => Duration::from_secs(number * 60),
            "S" => Duration::from_secs(number),
            "m" => Duration::from_millis(number),
            "u" => Duration::from_micros(number),
            "n" => Duration::from_nanos(number),
            _ => return None,
        })
    };
    match parse() {
        Some(time) => Ok(Some(time)),
        None => Err(Failure::invalid(format!("grpc-timeout: {value:?} is not a time"))),
    }
}

pub(super) fn read(request: proto::ModelInferRequest) -> Result<InferRequest, Failure> {
    let raw = request.raw_input_contents;
    if !raw.is_empty() && raw.len() != request.inputs.len() {
        return Err(Failure::invalid(format!(
            "`raw_input_contents` has {} tensors for {} inputs",
            raw.len(),
            request.inputs.len()
        )));
    }
    let mut raw = raw.into_iter();
    let input = |tensor: InferInputTensor| -> Result<InputTensor, Failure> {
        let data = data(&tensor.datatype, tensor.contents, raw.next());
        Ok(InputTensor {
            data: data.map_err(|reason| Failure::input(&tensor.name, reason))?,
            name: tensor.name,
            datatype: tensor.datatype,
            shape: tensor.shape,
            parameters: tensor.parameters.into(),
        })
    };
    let inputs = request.inputs.into_iter().map(input).collect::<Result<_, _>>()?;
    let outputs = request.outputs.into_iter().map(|output| RequestedOutput {
        name: output.name,
        parameters: output.parameters.into(),
    });
    Ok(InferRequest {
        model: request.model_name,
        version: request.model_version,
        id: request.id,
        parameters: request.parameters.into(),
        inputs,
        outputs: outputs.collect(),
    })
}

/// Returns a tensor's elements, raw or from the field of its data type.
fn data(
    datatype: &str,
    contents: Option<InferTensorContents>,
    raw: Option<Bytes>,
) -> Result<Data, TensorError> {
    let contents = match (contents, raw) {
        (None, Some(raw)) => return Ok(Data::Raw(raw)),
        (Some(contents), Some(raw)) => {
            if contents == InferTensorContents::default() {
                return Ok(Data::Raw(raw));
            } else {
                return Err("has both `contents` and `raw_input_contents`. Send one of them".into());
            }
        }
        (contents, None) => contents.unwrap_or_default(),
    };
    Ok(match datatype.parse()? {
        Datatype::Bytes => Data::Bytes(contents.bytes_contents),
        Datatype::Fp32 => Data::Numbers(contents.fp32_contents),
        Datatype::Fp64 => Data::Numbers(contents.fp64_contents.iter().map(|&x| x as f32).collect()),
        Datatype::Uint8 | Datatype::Uint16 | Datatype::Uint32 => {
            Data::Numbers(contents.uint_contents.iter().map(|&x| x as f32).collect())
        }
        Datatype::Int8 | Datatype::Int16 | Datatype::Int32 => {
            Data::Numbers(contents.int_contents.iter().map(|&x| x as f32).collect())
        }
        Datatype::Uint64 => Data::Numbers(contents.uint64_contents.iter().map(|&x| x as f32).collect()),
        Datatype::Int64 => Data::Numbers(contents.int64_contents.iter().map(|&x| x as f32).collect()),
        Datatype::Bool => Data::Numbers(
            contents
                .bool_contents
                .iter()
                .map(|&x| f32::from(u8::from(x)))
                .collect(),
        ),
        half @ (Datatype::Fp16 | Datatype::Bf16) => {
            return Err(format!("{half} can only be sent in `raw_input_contents`").into());
        }
    })
}

fn write(response: &InferResponse) -> proto::ModelInferResponse {
    use proto::model_infer_response::InferOutputTensor;
    let outputs = response.outputs.iter().map(|tensor| InferOutputTensor {
        name: tensor.name.to_string(),
        datatype: tensor.datatype().name().into(),
        shape: tensor.shape.iter().map(|&side| side as i64).collect(),
        ..InferOutputTensor::default()
    });
    let truncated = response.truncated().map(|texts| {
        let parameter_choice = Some(ParameterChoice::StringParam(texts));
        ("truncated".to_owned(), proto::InferParameter { parameter_choice })
    });
    proto::ModelInferResponse {
        parameters: truncated.into_iter().collect(),
        model_name: response.model.clone(),
        model_version: response.version.clone(),
        id: response.id.clone(),
        outputs: outputs.collect(),
        raw_output_contents: response.outputs.iter().map(binary::encode).collect(),
    }
}

#[cfg(test)]
mod tests;
