//! Traces as a collector in this test receives them.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use hipvit_serve::Server;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Attribute;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use serde_json::json;

use crate::support::server::grpc::{block_on, client, infer};
use crate::support::server::{MODEL, Running, options, samples};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// A collector on loopback that keeps the exports.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<ExportTraceServiceRequest>>>);

impl Collector {
    fn start() -> (Self, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let collector = Self::default();
        let kept = collector.clone();
        thread::spawn(move || listener.incoming().for_each(|stream| kept.take(stream.unwrap())));
        (collector, endpoint)
    }

    fn take(&self, mut stream: TcpStream) {
        let (mut bytes, mut chunk) = (Vec::new(), [0; 4096]);
        let end = loop {
            if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
                break end;
            }
            let read = stream.read(&mut chunk).unwrap();
            assert_ne!(read, 0, "the export ended in its head");
            bytes.extend_from_slice(&chunk[..read]);
        };
        let head = String::from_utf8(bytes[..end].to_vec())
            .unwrap()
            .to_ascii_lowercase();
        assert!(head.starts_with("post /v1/traces http/1.1\r\n"), "{head}");
        assert!(head.contains("content-type: application/x-protobuf"), "{head}");
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let mut body = bytes.split_off(end + 4);
        let missing = length.unwrap().parse::<usize>().unwrap() - body.len();
        let mut rest = vec![0; missing];
        stream.read_exact(&mut rest).unwrap();
        body.extend(rest);
        let export = ExportTraceServiceRequest::decode(&body[..]).unwrap();
        self.0.lock().unwrap().push(export);
        stream
            .write_all(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n",
            )
            .unwrap();
    }

    fn spans(&self) -> Vec<Span> {
        let exports = self.0.lock().unwrap();
        let scopes = exports
            .iter()
            .flat_map(|export| &export.resource_spans)
            .flat_map(|resource| &resource.scope_spans);
        scopes.flat_map(|scope| scope.spans.clone()).collect()
    }

    /// Returns the text of a resource attribute.
    fn resource(&self, key: &str) -> Option<String> {
        let exports = self.0.lock().unwrap();
        let resource = exports.first()?.resource_spans.first()?.resource.clone()?;
        text(&resource.attributes, key)
    }
}

fn text(attributes: &[opentelemetry_proto::tonic::common::v1::KeyValue], key: &str) -> Option<String> {
    let attribute = attributes.iter().find(|attribute| attribute.key == key)?;
    match attribute.value.clone()?.value? {
        Attribute::StringValue(text) => Some(text),
        Attribute::IntValue(number) => Some(number.to_string()),
        other => panic!("{key} is {other:?}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Checks that the request's span has the client's as its parent, and contains its stages in order.
fn check(spans: &[Span], name: &str, images: usize) {
    let server: Vec<&Span> = spans.iter().filter(|span| span.name == name).collect();
    let [server] = server[..] else {
        panic!("{} spans of {name}", server.len())
    };
    assert_eq!(
        (
            hex(&server.trace_id).as_str(),
            hex(&server.parent_span_id).as_str()
        ),
        (TRACE, PARENT)
    );
    assert_eq!(text(&server.attributes, "hipvit.model").as_deref(), Some(MODEL));
    assert_eq!(
        text(&server.attributes, "hipvit.images"),
        Some(images.to_string())
    );
    let of = |stage: &str| -> Vec<&Span> {
        let children = spans.iter().filter(|span| span.parent_span_id == server.span_id);
        children.filter(|span| span.name == stage).collect()
    };
    // Images wait twice: for a thread that decodes, and for their batch.
    for (stage, count) in [("queue", 2 * images), ("decode", images), ("resize", images)] {
        assert_eq!(of(stage).len(), count, "{stage}");
    }
    for stage in ["run", "copy", "compute"] {
        let found = of(stage);
        assert!((1..=images).contains(&found.len()), "{} of {stage}", found.len());
        for span in found {
            assert_eq!(text(&span.attributes, "hipvit.device").as_deref(), Some("cpu"));
        }
    }
    for span in spans.iter().filter(|span| span.parent_span_id == server.span_id) {
        assert_eq!(hex(&span.trace_id), TRACE);
        assert!(
            span.start_time_unix_nano <= span.end_time_unix_nano,
            "{}",
            span.name
        );
        assert!(
            server.start_time_unix_nano <= span.start_time_unix_nano,
            "{}",
            span.name
        );
    }
    let begin = |stage| of(stage).iter().map(|span| span.start_time_unix_nano).min();
    assert!(
        begin("queue") <= begin("decode")
            && begin("decode") <= begin("resize")
            && begin("resize") <= begin("run")
    );
}

#[test]
fn a_request_is_a_span_of_its_clients_trace() {
    let (collector, endpoint) = Collector::start();
    let mut options = options();
    options.otlp_endpoint = Some(endpoint);
    let running = Running::new(options);
    let parent = format!("00-{TRACE}-{PARENT}-01");
    let body = samples(&[1, 2]).to_string();
    let path = format!("/v2/models/{MODEL}/infer");
    let response = running.post(&path, &[("traceparent", &parent)], body.as_bytes());
    assert_eq!(response.status, 200);
    let answered = response.header("traceresponse").unwrap().to_owned();
    // The client does not want this trace to be kept.
    let unsampled = format!("00-{TRACE}-{PARENT}-00");
    let response = running.post(&path, &[("traceparent", &unsampled)], body.as_bytes());
    assert_eq!(response.status, 200);
    block_on(async {
        let mut client = client(running.address).await;
        let mut request = tonic::Request::new(infer(&[3]));
        request
            .metadata_mut()
            .insert("traceparent", parent.parse().unwrap());
        client.model_infer(request).await.unwrap();
    });
    running.stop();
    let spans = collector.spans();
    check(&spans, "POST /v2/models/{model}/infer", 2);
    check(&spans, "inference.GRPCInferenceService/ModelInfer", 1);
    let server = spans.iter().find(|span| span.name.starts_with("POST")).unwrap();
    assert_eq!(answered, format!("00-{TRACE}-{}-01", hex(&server.span_id)));
    assert_eq!(
        text(&server.attributes, "http.response.status_code").as_deref(),
        Some("200")
    );
    assert_eq!(collector.resource("service.name").as_deref(), Some("hipvit"));
}

#[test]
fn a_failed_request_says_why_in_its_span() {
    let (collector, endpoint) = Collector::start();
    let mut options = options();
    options.otlp_endpoint = Some(endpoint);
    let running = Running::new(options);
    let parent = format!("00-{TRACE}-{PARENT}-01");
    let mut body = samples(&[1]);
    body["parameters"] = json!({"timeout": 1});
    let path = format!("/v2/models/{MODEL}/infer");
    let response = running.post(&path, &[("traceparent", &parent)], body.to_string().as_bytes());
    assert_eq!(response.status, 504);
    running.stop();
    let spans = collector.spans();
    let server = spans.iter().find(|span| span.name.starts_with("POST")).unwrap();
    assert_eq!(
        text(&server.attributes, "error.type").as_deref(),
        Some("deadline_exceeded")
    );
    assert!(server.status.as_ref().unwrap().message.contains("deadline"));
}

#[test]
fn without_a_collector_requests_are_served() {
    // No collector listens there.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut options = options();
    options.otlp_endpoint = Some(format!("http://{free}"));
    let running = Running::new(options);
    assert_eq!(running.infer(&samples(&[1])).status, 200);
    running.stop();
    for (wrong, reason) in [
        ("https://collector:4318", "is not http://HOST:PORT"),
        ("collector:4318", "is not http://HOST:PORT"),
        ("http://a b", "is no URL"),
    ] {
        let mut options = self::options();
        options.otlp_endpoint = Some(wrong.into());
        let error = Server::start(options).unwrap_err().to_string();
        assert!(error.contains(wrong) && error.contains(reason), "{error}");
    }
}
