//! Traces by OpenTelemetry: a span for each inference request with spans of its stages, sent to a collector
//! by OTLP over HTTP. A client's `traceparent` header makes the request's span part of the client's trace.
//! `traceresponse` returns the span to the client.

use std::env;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::header::{HOST, HeaderMap, HeaderName, HeaderValue};
use hyper::{Request, Response, Uri};
use hyper_util::rt::TokioIo;
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::{
    Span as _, SpanContext, SpanKind, Status, TraceContextExt as _, Tracer as _, TracerProvider as _,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_http::{HeaderExtractor, HttpClient, HttpError};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use tokio::net::TcpStream;
use tokio::runtime::Handle;

use super::failure::{Failure, Kind};
use super::metadata::NAME;
use hipvit::error::{Error, Result};

/// Header with the span of a request, from Trace Context Level 2.
const TRACE_RESPONSE: HeaderName = HeaderName::from_static("traceresponse");

/// Maximum time of one export.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum time of the last export when the server stops.
const LAST_EXPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum size of a collector's answer.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// Returns the collector that OpenTelemetry's environment variables name. `None` if traces are disabled.
pub(super) fn endpoint_of_environment() -> Option<String> {
    let variable = |name| env::var(name).ok().filter(|value| !value.is_empty());
    let disabled = variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let none = variable("OTEL_TRACES_EXPORTER").is_some_and(|value| value == "none");
    if disabled || none {
        None
    } else {
        // An endpoint of traces only is used unchanged.
        variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").or_else(|| {
            variable("OTEL_EXPORTER_OTLP_ENDPOINT")
                .map(|base| format!("{}/v1/traces", base.trim_end_matches('/')))
        })
    }
}

/// Exporter of traces, if enabled.
pub(super) struct Traces {
    provider: Option<(SdkTracerProvider, SdkTracer)>,
    propagator: TraceContextPropagator,
}

impl Traces {
    /// Exports to the collector at `endpoint` on the threads of `runtime`. Without an endpoint, traces are
    /// disabled.
    pub(super) fn new(endpoint: Option<&str>, runtime: &Handle) -> Result<Self> {
        let provider = endpoint.map(|endpoint| provider(endpoint, runtime)).transpose()?;
        Ok(Self {
            provider: provider.map(|provider| {
                let tracer = provider.tracer(NAME);
                (provider, tracer)
            }),
            propagator: TraceContextPropagator::new(),
        })
    }

    /// Begins the span of a request, in the trace that its headers name.
    pub(super) fn request(&self, name: String, headers: &HeaderMap) -> Trace {
        let Some((_, tracer)) = &self.provider else {
            return Trace::default();
        };
        let parent = self
            .propagator
            .extract_with_context(&Context::new(), &HeaderExtractor(headers));
        Trace::begin(tracer, &parent, name)
    }

    /// Exports the remaining spans.
    pub(super) fn close(&self) {
        if let Some((provider, _)) = &self.provider
            && let Err(error) = provider.shutdown_with_timeout(LAST_EXPORT_TIMEOUT)
        {
            tracing::warn!(%error, "the last traces were not exported");
        }
    }
}

fn provider(endpoint: &str, runtime: &Handle) -> Result<SdkTracerProvider> {
    let wrong = |reason: String| Error::argument("otlp-endpoint", format!("{endpoint}: {reason}"));
    for variable in [
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
        "OTEL_EXPORTER_OTLP_PROTOCOL",
    ] {
        match env::var(variable) {
            Ok(protocol) if !["", "http/protobuf"].contains(&protocol.as_str()) => {
                let reason = format!("{variable} is {protocol}; traces are exported by http/protobuf alone");
                return Err(wrong(reason));
            }
            Ok(_) => break,
            Err(_) => {}
        }
    }
    let uri: Uri = endpoint.parse().map_err(|e| wrong(format!("is no URL: {e}")))?;
    if uri.scheme_str() != Some("http") || uri.host().is_none() {
        let reason =
            "is not http://HOST:PORT; send traces to a collector nearby, which passes them on over TLS";
        return Err(wrong(reason.into()));
    }
    let endpoint = match uri.path() {
        "" | "/" => format!("{}/v1/traces", endpoint.trim_end_matches('/')),
        _ => endpoint.to_owned(),
    };
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(Client(runtime.clone()))
        .with_endpoint(endpoint)
        .build()
        .map_err(|e| wrong(e.to_string()))?;
    let mut resource = Resource::builder();
    // The name of the environment takes precedence.
    let named =
        env::var("OTEL_RESOURCE_ATTRIBUTES").is_ok_and(|attributes| attributes.contains("service.name="));
    if env::var_os("OTEL_SERVICE_NAME").is_none() && !named {
        resource = resource.with_service_name(NAME);
    }
    let resource = resource.with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
    Ok(SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(resource.build())
        .build())
}

/// Span of a request, to which its stages are added. Empty if requests are not traced.
#[derive(Clone, Default)]
pub(crate) struct Trace(Option<Arc<Active>>);

struct Active {
    tracer: SdkTracer,
    /// Context with the request's span as the current one.
    context: Context,
    /// One moment on two clocks: stages are timed on the first, spans on the second.
    began: (Instant, SystemTime),
}

impl Trace {
    fn begin(tracer: &SdkTracer, parent: &Context, name: String) -> Self {
        let began = (Instant::now(), SystemTime::now());
        let span = tracer
            .span_builder(name)
            .with_kind(SpanKind::Server)
            .with_start_time(began.1)
            .start_with_context(tracer, parent);
        Self(Some(Arc::new(Active {
            tracer: tracer.clone(),
            context: parent.with_span(span),
            began,
        })))
    }

    /// Returns the span if it is exported.
    fn sampled(&self) -> Option<&Active> {
        self.0
            .as_deref()
            .filter(|active| active.context.span().span_context().is_sampled())
    }

    pub(crate) fn is_sampled(&self) -> bool {
        self.sampled().is_some()
    }

    /// Adds an attribute to the request's span.
    pub(super) fn describe(&self, key: &'static str, value: impl Into<opentelemetry::Value>) {
        if let Some(active) = self.sampled() {
            active.context.span().set_attribute(KeyValue::new(key, value));
        }
    }

    /// Adds a finished stage.
    pub(crate) fn stage(
        &self,
        name: &'static str,
        begin: Instant,
        time: Duration,
        attributes: impl FnOnce() -> Vec<KeyValue>,
    ) {
        let Some(active) = self.sampled() else { return };
        let begin = active.at(begin);
        active
            .tracer
            .span_builder(name)
            .with_kind(SpanKind::Internal)
            .with_start_time(begin)
            .with_attributes(attributes())
            .start_with_context(&active.tracer, &active.context)
            .end_with_timestamp(begin + time);
    }

    /// Records why the request failed.
    pub(super) fn fail(&self, failure: &Failure) {
        let Some(active) = self.sampled() else { return };
        let span = active.context.span();
        span.set_attribute(KeyValue::new("error.type", failure.kind().label()));
        // By OpenTelemetry's conventions, a client's mistake is no error of the server.
        if !matches!(
            failure.kind(),
            Kind::InvalidArgument | Kind::NotFound | Kind::Unauthorized
        ) {
            span.set_status(Status::error(failure.message().to_owned()));
        }
    }

    /// Ends the request's span. If the client left, the span ends on drop.
    pub(super) fn end(&self) {
        if let Some(active) = &self.0 {
            active.context.span().end();
        }
    }

    /// Adds a header with the request's span to the answer.
    pub(super) fn answer(&self, headers: &mut HeaderMap) {
        let Some(active) = &self.0 else { return };
        if let Ok(value) = HeaderValue::from_str(&trace_response(active.context.span().span_context())) {
            headers.insert(TRACE_RESPONSE, value);
        }
    }
}

fn trace_response(span: &SpanContext) -> String {
    format!(
        "00-{}-{}-{:02x}",
        span.trace_id(),
        span.span_id(),
        span.trace_flags().to_u8()
    )
}

impl Active {
    /// Converts a moment to the clock of spans.
    fn at(&self, moment: Instant) -> SystemTime {
        let (instant, time) = self.began;
        match moment.checked_duration_since(instant) {
            Some(later) => time + later,
            None => time - instant.duration_since(moment),
        }
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let span = self
            .0
            .as_ref()
            .map(|active| trace_response(active.context.span().span_context()));
        f.debug_tuple("Trace").field(&span).finish()
    }
}

/// Sends exports over HTTP/1.1 with a connection for each. The exporter's own thread waits, so a blocking
/// client is not needed.
#[derive(Clone, Debug)]
struct Client(Handle);

#[tonic::async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> std::result::Result<Response<Bytes>, HttpError> {
        // Timers need the runtime when they are created, not only when they are polled.
        let sent = self
            .0
            .spawn(async move { tokio::time::timeout(EXPORT_TIMEOUT, send(request)).await });
        sent.await?.map_err(|_| "the collector did not answer in time")?
    }
}

async fn send(request: Request<Bytes>) -> std::result::Result<Response<Bytes>, HttpError> {
    let (mut head, body) = request.into_parts();
    let host = head
        .uri
        .host()
        .ok_or("the collector's URL has no host")?
        .to_owned();
    let stream =
        TcpStream::connect((host.trim_matches(['[', ']']), head.uri.port_u16().unwrap_or(80))).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    if let Some(authority) = head.uri.authority() {
        head.headers
            .insert(HOST, HeaderValue::from_str(authority.as_str())?);
    }
    head.uri = head
        .uri
        .path_and_query()
        .map_or("/", |path| path.as_str())
        .parse()?;
    let response = sender
        .send_request(Request::from_parts(head, Full::new(body)))
        .await?;
    let (head, body) = response.into_parts();
    let body = Limited::new(body, MAX_ANSWER_BYTES).collect().await?.to_bytes();
    drop(sender);
    connection.abort();
    Ok(Response::from_parts(head, body))
}
