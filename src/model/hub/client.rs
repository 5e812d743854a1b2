//! Sends HTTP requests to the Hugging Face hub: for the list of a repository's files, their metadata, and their
//! content.
//!
//! Requests, headers and environment variables follow Python's `huggingface_hub` 2.4 (`file_download.py`, `hf_api.py`).

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use ureq::config::RedirectAuthHeaders;
use ureq::http::{Response, StatusCode, header};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body, RequestBuilder};

use super::{Repository, hugging_face_home, variable};
use crate::error::{Error, Result};
use hipvit_files::regular_file;

const ENDPOINT: &str = "https://huggingface.co";
/// Maximum time to connect, and to wait for each part of a response.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of bytes in the list of a repository's files.
const MAX_LISTING: u64 = 32 << 20;
/// Maximum number of redirects within the hub.
const MAX_REDIRECTS: usize = 5;

/// HTTP client of the hub.
#[derive(Debug)]
pub(super) struct Client {
    agent: Agent,
    endpoint: String,
    token: Option<String>,
}

/// Files of a repository at one commit.
#[derive(Debug, Deserialize)]
pub(super) struct Listing {
    #[serde(rename = "sha")]
    pub(super) commit: String,
    #[serde(default)]
    siblings: Vec<Sibling>,
}

#[derive(Debug, Deserialize)]
struct Sibling {
    #[serde(rename = "rfilename")]
    name: String,
}

/// Metadata of a file on the hub.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Metadata {
    /// Name of the file's blob: its SHA-256 if it is large (Git LFS), otherwise the SHA-1 of its Git object.
    pub(super) etag: String,
    /// Size in bytes.
    pub(super) size: u64,
}

/// Reason why a request failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// Another attempt may succeed: the connection broke, or the server is overloaded.
    Transient(Error),
    /// Another attempt would fail too.
    Final(Error),
}

impl Failure {
    pub(super) fn into_error(self) -> Error {
        match self {
            Self::Transient(error) | Self::Final(error) => error,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Final(error)
    }
}

impl Listing {
    /// Iterates over the paths of the files in the repository.
    pub(super) fn files(&self) -> impl Iterator<Item = &str> {
        self.siblings.iter().map(|file| file.name.as_str())
    }
}

impl Client {
    /// Creates a client from environment variables: `HF_ENDPOINT`, `HF_TOKEN` or the token of `hf auth login`,
    /// `SSL_CERT_FILE`, and the proxy variables that `curl` reads.
    pub(super) fn from_environment(repository: &Repository) -> Result<Self> {
        for name in ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"] {
            if variable(name).is_some_and(|value| is_true(&value.to_string_lossy())) {
                return Err(repository.error(format_args!(
                    "not downloaded, because {name} is set. Unset it, or copy the model's directory here and name that."
                )));
            }
        }
        let endpoint = match variable("HF_ENDPOINT") {
            Some(value) => value.to_string_lossy().trim_end_matches('/').to_owned(),
            None => ENDPOINT.to_owned(),
        };
        if !endpoint.starts_with("https://") && !endpoint.starts_with("http://") {
            return Err(repository.error(format_args!(
                "HF_ENDPOINT is `{endpoint}`, which is not an http:// or https:// address"
            )));
        }
        Ok(Self {
            agent: agent()?,
            endpoint,
            token: token()?,
        })
    }

    /// Returns the files of `repository` at its revision.
    pub(super) fn listing(&self, repository: &Repository) -> Result<Listing, Failure> {
        let url = format!(
            "{}/api/models/{}/revision/{}",
            self.endpoint,
            repository.id(),
            escaped(repository.revision())
        );
        let mut response = self.checked(repository, None, self.get(&url).call())?;
        let body = response.body_mut().with_config().limit(MAX_LISTING).read_to_vec();
        let bytes = body.map_err(|cause| self.unreachable(repository, cause))?;
        let listing: Listing = serde_json::from_slice(&bytes).map_err(|cause| {
            repository.error(format_args!(
                "{} did not answer as the Hugging Face hub does: {cause}",
                self.endpoint
            ))
        })?;
        if !is_plain(&listing.commit) {
            return Err(repository
                .error(format_args!(
                    "{} names the commit `{}`",
                    self.endpoint, listing.commit
                ))
                .into());
        }
        Ok(listing)
    }

    /// Returns the size and hash of `file` at `commit`.
    pub(super) fn metadata(
        &self,
        repository: &Repository,
        commit: &str,
        file: &str,
    ) -> Result<Metadata, Failure> {
        let mut url = self.file_url(repository, commit, file);
        // A redirect to another host leads to the storage, which does not know the hash of the file. A redirect within
        // the hub leads to a renamed repository.
        for _ in 0..MAX_REDIRECTS {
            let request = self.authorized(self.agent.head(&url));
            let request = request.header(header::ACCEPT_ENCODING, "identity");
            let answer = request
                .config()
                .max_redirects(0)
                .max_redirects_will_error(false)
                .build();
            let response = self.checked(repository, Some(file), answer.call())?;
            let location = text(&response, header::LOCATION.as_str());
            match location.filter(|target| response.status().is_redirection() && target.starts_with('/')) {
                Some(path) => url = format!("{}{path}", origin(&self.endpoint)),
                None => return self.described(repository, file, &response),
            }
        }
        Err(repository
            .error(format_args!("{file}: more than {MAX_REDIRECTS} redirects"))
            .into())
    }

    fn described(
        &self,
        repository: &Repository,
        file: &str,
        response: &Response<Body>,
    ) -> Result<Metadata, Failure> {
        let either = |first: &str, second: &str| text(response, first).or_else(|| text(response, second));
        let etag =
            either("x-linked-etag", "etag").map(|etag| etag.trim_start_matches("W/").trim_matches('"'));
        let size = either("x-linked-size", "content-length").and_then(|size| size.parse().ok());
        match (etag.filter(|etag| is_plain(etag)), size) {
            (Some(etag), Some(size)) => Ok(Metadata {
                etag: etag.to_owned(),
                size,
            }),
            _ => Err(repository
                .error(format_args!(
                    "{} does not tell the size and hash of {file}, as the Hugging Face hub does",
                    self.endpoint
                ))
                .into()),
        }
    }

    /// Requests the bytes of `file` from `start` on. Returns the body and the offset at which it begins: `start`, or 0
    /// if the server ignores ranges.
    ///
    /// The offset is `None` if a partial response does not state it.
    pub(super) fn read(
        &self,
        repository: &Repository,
        commit: &str,
        file: &str,
        start: u64,
    ) -> Result<(Option<u64>, impl Read + use<>), Failure> {
        let mut request = self.get(&self.file_url(repository, commit, file));
        request = request.header(header::ACCEPT_ENCODING, "identity");
        if start > 0 {
            request = request.header(header::RANGE, format!("bytes={start}-"));
        }
        let response = self.checked(repository, Some(file), request.call())?;
        let begin = if response.status() == StatusCode::PARTIAL_CONTENT {
            text(&response, header::CONTENT_RANGE.as_str()).and_then(range_start)
        } else {
            Some(0)
        };
        Ok((begin, response.into_body().into_reader()))
    }

    fn file_url(&self, repository: &Repository, commit: &str, file: &str) -> String {
        let (endpoint, file) = (&self.endpoint, escaped(file));
        format!("{endpoint}/{}/resolve/{commit}/{file}", repository.id())
    }

    fn get(&self, url: &str) -> RequestBuilder<ureq::typestate::WithoutBody> {
        self.authorized(self.agent.get(url))
    }

    fn authorized<B>(&self, request: RequestBuilder<B>) -> RequestBuilder<B> {
        match &self.token {
            Some(token) => request.header(header::AUTHORIZATION, format!("Bearer {token}")),
            None => request,
        }
    }

    /// Returns the response if its status is not an error.
    fn checked(
        &self,
        repository: &Repository,
        file: Option<&str>,
        answer: Result<Response<Body>, ureq::Error>,
    ) -> Result<Response<Body>, Failure> {
        let response = answer.map_err(|cause| self.unreachable(repository, cause))?;
        let status = response.status();
        if status.is_success() || status.is_redirection() {
            return Ok(response);
        }
        let error = self.refusal(repository, file, &response);
        let transient = status.is_server_error()
            || [StatusCode::TOO_MANY_REQUESTS, StatusCode::REQUEST_TIMEOUT].contains(&status);
        Err(if transient {
            Failure::Transient(error)
        } else {
            Failure::Final(error)
        })
    }

    /// Returns the error for a request that the hub rejects, by the error codes that it sends.
    fn refusal(&self, repository: &Repository, file: Option<&str>, response: &Response<Body>) -> Error {
        let endpoint = &self.endpoint;
        let status = response.status();
        let token = match &self.token {
            Some(_) => "The token in use cannot read it.",
            None => "If it is private, set HF_TOKEN to a token that can read it.",
        };
        match (text(response, "x-error-code"), status) {
            (Some("GatedRepo"), _) | (None, StatusCode::FORBIDDEN) => repository.error(format_args!(
                "gated. Accept its terms at {endpoint}/{}, and set HF_TOKEN to a token of that account.",
                repository.id()
            )),
            (Some("RevisionNotFound"), _) => {
                repository.error(format_args!("has no revision `{}`", repository.revision()))
            }
            (Some("RepoNotFound"), _) | (None, StatusCode::UNAUTHORIZED | StatusCode::NOT_FOUND) => {
                repository.error(format_args!("no such repository at {endpoint}. {token}"))
            }
            _ => {
                let reason = text(response, "x-error-message").or_else(|| status.canonical_reason());
                let what = file.map(|file| format!("{file}: ")).unwrap_or_default();
                repository.error(format_args!(
                    "{what}{endpoint} answered {}: {}",
                    status.as_u16(),
                    reason.unwrap_or("no reason given")
                ))
            }
        }
    }

    /// Returns the failure for a connection error.
    fn unreachable(&self, repository: &Repository, cause: ureq::Error) -> Failure {
        let error = repository.error(format_args!(
            "{} cannot be reached: {cause}. Check the network and the proxy, or name a mirror in HF_ENDPOINT. Models in the cache \
             run without a network.",
            self.endpoint
        ));
        match cause {
            ureq::Error::Io(_) | ureq::Error::Timeout(_) | ureq::Error::ConnectionFailed => {
                Failure::Transient(error)
            }
            _ => Failure::Final(error),
        }
    }
}

fn agent() -> Result<Agent> {
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .user_agent(concat!("hipvit/", env!("CARGO_PKG_VERSION")))
        // Do not send the token to the storage that the hub redirects to.
        .redirect_auth_headers(RedirectAuthHeaders::SameHost)
        .timeout_connect(Some(STALL_TIMEOUT))
        .timeout_recv_response(Some(STALL_TIMEOUT))
        .timeout_per_read(Some(STALL_TIMEOUT));
    let tls = match ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"]
        .into_iter()
        .find_map(variable)
    {
        Some(file) => TlsConfig::builder()
            .root_certs(certificates(Path::new(&file))?)
            .build(),
        None => TlsConfig::default(),
    };
    Ok(config.tls_config(tls).build().new_agent())
}

/// Reads certificates from a PEM file. They replace the built-in ones, because a company's proxy has its own.
fn certificates(file: &Path) -> Result<RootCerts> {
    let pem = regular_file::read(file).map_err(|error| Error::io(file, error))?;
    let certificates: Vec<Certificate<'static>> = parse_pem(&pem)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    if certificates.is_empty() {
        return Err(Error::config(file, "has no certificate in PEM form"));
    }
    Ok(RootCerts::new_with_certs(&certificates))
}

/// Maximum length of a file with an access token, in bytes.
const LONGEST_TOKEN: u64 = 64 << 10;

/// Returns the access token of the hub from `HF_TOKEN`, or from the file that `hf auth login` writes.
fn token() -> Result<Option<String>> {
    let named = ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"]
        .into_iter()
        .find_map(variable);
    if let Some(token) = named {
        return Ok(Some(token.to_string_lossy().trim().to_owned()));
    }
    let file = match variable("HF_TOKEN_PATH") {
        Some(file) => Some(PathBuf::from(file)),
        None => hugging_face_home().map(|home| home.join("token")),
    };
    let Some(file) = file.filter(|file| file.exists()) else {
        return Ok(None);
    };
    let token = regular_file::read_within(&file, LONGEST_TOKEN)
        .and_then(|bytes| String::from_utf8(bytes).map_err(|_| io::Error::other("is not UTF-8 text")))
        .map_err(|error| Error::io(&file, error))?;
    Ok(Some(token.trim().to_owned()).filter(|token| !token.is_empty()))
}

/// Returns true if `huggingface_hub` treats the value of a variable as true.
fn is_true(value: &str) -> bool {
    ["1", "on", "yes", "true"].contains(&value.to_ascii_lowercase().as_str())
}

/// Returns true if a name, such as a hash, is safe in a path.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.len() <= 128 && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
}

/// Escapes a revision or a file name as one segment of a URL path.
fn escaped(name: &str) -> String {
    name.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                char::from(byte).to_string()
            }
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

/// Returns the offset of the first byte in a `Content-Range`, such as `bytes 1000-1999/2000`.
fn range_start(range: &str) -> Option<u64> {
    let (start, _) = range.trim().strip_prefix("bytes ")?.split_once('-')?;
    start.trim().parse().ok()
}

/// Returns the scheme and host of a URL.
fn origin(url: &str) -> &str {
    let host = url.find("://").map_or(0, |scheme| scheme + 3);
    let end = url[host..].find('/').map_or(url.len(), |path| host + path);
    &url[..end]
}

fn text<'a>(response: &'a Response<Body>, name: &str) -> Option<&'a str> {
    response.headers().get(name)?.to_str().ok()
}
