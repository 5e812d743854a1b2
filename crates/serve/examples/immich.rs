//! Answers the requests for smart search that immich's server sends to its machine-learning service, with a CLIP or SigLIP model.
//!
//!     cargo run --release -p hipvit-serve --example immich -- ViT-B-32__openai openai/clip-vit-base-patch32 127.0.0.1:3003
//!
//! The first argument is the name of the model in immich's settings. Requests for other models are refused, since embeddings of different
//! models must not be mixed. Then set the URL of the machine-learning service in immich's settings. Faces and texts in images are not
//! recognised: switch these off there.
//!
//! `POST /predict` has a form with `entries`, JSON such as `{"clip": {"visual": {"modelName": "…"}}}`, and `image` or `text`.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use hipvit::Session;
use hipvit::image::{Limits, decode};
use hipvit::outputs::normalize;
use serde_json::{Value, json};

/// Maximum bytes of a request. immich sends previews of about 1 MB.
const MAX_BODY: usize = 64 << 20;

/// A model, and its name in immich's settings.
struct Service {
    name: String,
    session: Session,
}

/// An error that the client caused, or a failure of the model.
struct Failure(StatusCode, String);

impl Failure {
    fn invalid(reason: impl Into<String>) -> Self {
        Self(StatusCode::UNPROCESSABLE_ENTITY, reason.into())
    }
}

impl From<hipvit::Error> for Failure {
    fn from(error: hipvit::Error) -> Self {
        Self(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (self.0, json_headers(), json!({ "detail": self.1 }).to_string()).into_response()
    }
}

fn json_headers() -> [(axum::http::HeaderName, &'static str); 1] {
    [(CONTENT_TYPE, "application/json")]
}

/// The fields of a form.
#[derive(Default)]
struct Form {
    entries: Option<Bytes>,
    image: Option<Bytes>,
    text: Option<Bytes>,
}

impl Form {
    /// Parses a body of the type `multipart/form-data`. Returns `None` if it is malformed.
    fn parse(content_type: &str, body: &Bytes) -> Option<Self> {
        let (kind, parameters) = content_type.split_once(';')?;
        if !kind.trim().eq_ignore_ascii_case("multipart/form-data") {
            return None;
        }
        let boundary = parameters
            .split(';')
            .find_map(|parameter| parameter.trim().strip_prefix("boundary="))?;
        let opening = format!("--{}", boundary.trim_matches('"'));
        let closing = format!("\r\n{opening}");
        let mut form = Self::default();
        let mut at = find(body, opening.as_bytes(), 0)? + opening.len();
        // The last boundary ends with two hyphens.
        while !body[at..].starts_with(b"--") {
            let begin = at + 2;
            let head_end = find(body, b"\r\n\r\n", begin)?;
            let end = find(body, closing.as_bytes(), head_end + 4)?;
            let head = std::str::from_utf8(&body[begin..head_end]).ok()?;
            let value = body.slice(head_end + 4..end);
            match field_name(head)? {
                "entries" => form.entries = Some(value),
                "image" => form.image = Some(value),
                "text" => form.text = Some(value),
                _ => {}
            }
            at = end + closing.len();
        }
        Some(form)
    }
}

/// Returns the position of `part` in `bytes` from `start` on.
fn find(bytes: &[u8], part: &[u8], start: usize) -> Option<usize> {
    let rest = bytes.get(start..)?;
    Some(start + rest.windows(part.len()).position(|window| window == part)?)
}

/// Returns the name of the field with these headers.
fn field_name(head: &str) -> Option<&str> {
    let disposition = head
        .lines()
        .find(|line| line.to_ascii_lowercase().starts_with("content-disposition:"))?;
    let name = disposition
        .split(';')
        .find_map(|parameter| parameter.trim().strip_prefix("name="))?;
    Some(name.trim_matches('"'))
}

impl Service {
    /// Returns the response's body.
    fn predict(&self, content_type: &str, body: &Bytes) -> Result<Value, Failure> {
        let form =
            Form::parse(content_type, body).ok_or_else(|| Failure::invalid("the body is not a form"))?;
        let entries = form
            .entries
            .ok_or_else(|| Failure::invalid("`entries` is missing"))?;
        let entries: Value = serde_json::from_slice(&entries)
            .map_err(|error| Failure::invalid(format!("`entries` is not JSON: {error}")))?;
        let tasks = entries.as_object().into_iter().flatten();
        let others: Vec<&str> = tasks
            .map(|(task, _)| task.as_str())
            .filter(|task| *task != "clip")
            .collect();
        if let Some(task) = others.first() {
            return Err(Failure::invalid(format!(
                "the task `{task}` is not supported. Switch it off in immich"
            )));
        }
        let name = |kind: &str| entries["clip"][kind]["modelName"].as_str();
        match (name("visual"), name("textual"), form.image, form.text) {
            (Some(name), _, Some(image), _) => {
                self.check(name)?;
                self.image(&image)
            }
            (_, Some(name), _, Some(text)) => {
                self.check(name)?;
                let text = std::str::from_utf8(&text).map_err(|_| Failure::invalid("`text` is not UTF-8"))?;
                let embedded = self.session.embed_texts([text])?.embeddings;
                Ok(json!({ "clip": vector(embedded.row(0).to_vec()) }))
            }
            _ => Err(Failure::invalid(
                "`entries` has neither `visual` with an image nor `textual` with a text",
            )),
        }
    }

    fn check(&self, name: &str) -> Result<(), Failure> {
        if name == self.name {
            return Ok(());
        }
        Err(Failure::invalid(format!(
            "the model `{name}` is not loaded; the service has `{}`",
            self.name
        )))
    }

    fn image(&self, bytes: &[u8]) -> Result<Value, Failure> {
        let image =
            decode("image", bytes, Limits::default()).map_err(|error| Failure::invalid(error.to_string()))?;
        let (width, height) = (image.width, image.height);
        let outputs = self.session.run([&image])?;
        let embedding = vector(outputs.image(0).embedding().to_vec());
        Ok(json!({ "clip": embedding, "imageHeight": height, "imageWidth": width }))
    }
}

/// Returns a vector of unit length as immich reads it: JSON in a string.
fn vector(mut values: Vec<f32>) -> String {
    normalize(&mut values);
    let values: Vec<String> = values.iter().map(ToString::to_string).collect();
    format!("[{}]", values.join(","))
}

async fn predict(State(service): State<Arc<Service>>, headers: HeaderMap, body: Bytes) -> Response {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let content_type = content_type.unwrap_or_default().to_owned();
    // The model computes for milliseconds, so it runs off the threads that serve connections.
    let predicted = tokio::task::spawn_blocking(move || service.predict(&content_type, &body)).await;
    match predicted {
        Ok(Ok(value)) => (json_headers(), value.to_string()).into_response(),
        Ok(Err(failure)) => failure.into_response(),
        Err(error) => Failure(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

fn routes(service: Service) -> Router {
    Router::new()
        .route(
            "/",
            get(|| async { (json_headers(), r#"{"message":"Immich ML"}"#) }),
        )
        .route("/ping", get(|| async { "pong" }))
        .route("/predict", post(predict))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(Arc::new(service))
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, model, address] = &arguments[..] else {
        return Err("usage: immich NAME MODEL ADDRESS".into());
    };
    let address: SocketAddr = address.parse()?;
    let service = Service {
        name: name.clone(),
        session: Session::load(model)?,
    };
    service.session.text_tower()?;
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(address).await?;
        println!("{name} on http://{address}");
        axum::serve(listener, routes(service)).await
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::Request;
    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;

    use super::*;

    const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

    fn session() -> Session {
        Session::load(format!("{ROOT}/tests/golden/zero_shot/hf_clip")).unwrap()
    }

    /// Sends a recorded request. Returns the status and the response.
    async fn send(recorded: &[u8], name: &str) -> (StatusCode, Value) {
        let end = find(recorded, b"\r\n\r\n", 0).unwrap();
        let head = std::str::from_utf8(&recorded[..end]).unwrap();
        let mut request = Request::post("/predict");
        for line in head.lines().skip(1) {
            let (name, value) = line.split_once(": ").unwrap();
            request = request.header(name, value);
        }
        let request = request.body(Body::from(recorded[end + 4..].to_vec())).unwrap();
        let service = Service {
            name: name.into(),
            session: session(),
        };
        let response: Response = routes(service).oneshot(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap())
    }

    fn recorded(name: &str) -> Vec<u8> {
        std::fs::read(format!("{ROOT}/tests/data/immich/{name}.request")).unwrap()
    }

    fn check(response: &Value, mut expected: Vec<f32>) {
        normalize(&mut expected);
        let vector: Vec<f32> = serde_json::from_str(response["clip"].as_str().unwrap()).unwrap();
        assert_eq!(vector, expected);
    }

    /// tests/data/immich: requests by the calls of immich's server (`fetch` of a `FormData`), recorded with Node 20.
    #[tokio::test(flavor = "multi_thread")]
    async fn recorded_requests_are_answered() {
        let (status, response) = send(&recorded("visual"), "ViT-B-32__openai").await;
        assert_eq!(status, StatusCode::OK, "{response}");
        let photo = std::fs::read(format!("{ROOT}/tests/golden/images/photo.jpg")).unwrap();
        let photo = decode("photo.jpg", &photo, Limits::default()).unwrap();
        assert_eq!(response["imageHeight"], photo.height);
        assert_eq!(response["imageWidth"], photo.width);
        check(
            &response,
            session().run([&photo]).unwrap().image(0).embedding().to_vec(),
        );

        let (status, response) = send(&recorded("textual"), "ViT-B-32__openai").await;
        assert_eq!(status, StatusCode::OK, "{response}");
        let texts = session().embed_texts(["ein Hund — “am Strand”"]).unwrap();
        check(&response, texts.embeddings.row(0).to_vec());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn other_models_tasks_and_bodies_are_refused() {
        let (status, response) = send(&recorded("visual"), "ViT-L-14__openai").await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
        let reason = "the model `ViT-B-32__openai` is not loaded; the service has `ViT-L-14__openai`";
        assert_eq!(response["detail"], reason);
        let text = recorded("textual");
        let faces = String::from_utf8(text.clone())
            .unwrap()
            .replace("{\"clip\"", "{\"ocr0\"");
        let (status, response) = send(faces.as_bytes(), "ViT-B-32__openai").await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
        assert!(
            response["detail"]
                .as_str()
                .unwrap()
                .contains("the task `ocr0` is not supported")
        );
        let (status, _) = send(&text[..text.len() - 8], "ViT-B-32__openai").await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    }
}
