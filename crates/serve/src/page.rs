//! The page at `/`, on which a person tries the models with a picture. It loads nothing from elsewhere.

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};

/// Paths of the page and its parts. They contain no data, so that they need no token; the page's requests do.
pub(super) const PATHS: [&str; 4] = ["/", "/page.css", "/page.js", "/vision.js"];

/// Scripts, styles and requests only from and to this server. The empty icon is a `data:` URL.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Returns the routes of the page.
pub(super) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let [index, style, script, vision] = PATHS;
    Router::new()
        .route(
            index,
            get(async || file("text/html; charset=utf-8", include_str!("page/index.html"))),
        )
        .route(
            style,
            get(async || file("text/css; charset=utf-8", include_str!("page/page.css"))),
        )
        .route(
            script,
            get(async || file("text/javascript; charset=utf-8", include_str!("page/page.js"))),
        )
        .route(
            vision,
            get(async || file("text/javascript; charset=utf-8", include_str!("page/vision.js"))),
        )
}

fn file(content_type: &'static str, text: &'static str) -> Response {
    let headers = [
        (CONTENT_TYPE, content_type),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
        // Another version of the server has another page.
        (CACHE_CONTROL, "no-cache"),
    ];
    (
        headers.map(|(name, value)| (name, HeaderValue::from_static(value))),
        text,
    )
        .into_response()
}
