//! Keeps foreign web pages from using the server, based on a browser's headers about target and origin.
//!
//! A page of any site can send requests to every address that its browser reaches. Two checks refuse them:
//!
//! - `Host` (`:authority` on HTTP/2) must name this server. A page that points its own DNS name at 127.0.0.1
//!   (DNS rebinding) sends that name. IP addresses and `localhost` cannot be redirected.
//! - `Origin` and `Sec-Fetch-Site`, which pages cannot change, must name this server. Requests that only read
//!   need no check, because a page cannot read the answer without CORS headers.

use std::net::IpAddr;

use hyper::header::{HOST, HeaderMap, ORIGIN};
use hyper::http::uri::{Authority, Uri};
use hyper::{Method, Request};

use super::failure::{Failure, Kind};

/// Maximum number of characters of a header that an error repeats.
const MAX_SHOWN_CHARS: usize = 100;

/// Refuses a request that may come from a web page of another site. `local` is the server's address of the
/// connection.
///
/// `Host` is checked on loopback, where web pages reach a server that other clients cannot reach. It is
/// checked everywhere if `allowed` is not empty.
pub(super) fn check<B>(
    request: &Request<B>,
    local: Option<IpAddr>,
    allowed: &[String],
) -> Result<(), Failure> {
    let headers = request.headers();
    let hosts = hosts(request.uri(), headers)?;
    if !allowed.is_empty() || local.is_some_and(|local| local.to_canonical().is_loopback()) {
        let mut names = hosts.iter().map(|host| name(host.host()));
        if let Some(wrong) = names.find(|name| !is_safe(name) && !is_allowed(name, allowed)) {
            let wrong = shown(wrong);
            return Err(forbidden(format!(
                "the server does not answer to the name `{wrong}`. Use its IP address or localhost, or start it with --allow-host {wrong}"
            )));
        }
    }
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        return Ok(());
    }
    check_origin(headers, &hosts, allowed)
}

/// Returns the names with ports by which the client addresses the server. HTTP/1.0 has none.
fn hosts(uri: &Uri, headers: &HeaderMap) -> Result<Vec<Authority>, Failure> {
    let mut hosts: Vec<Authority> = uri.authority().cloned().into_iter().collect();
    for host in headers.get_all(HOST) {
        let host = Authority::try_from(host.as_bytes());
        hosts
            .push(host.map_err(|error| Failure::invalid(format!("the header Host is not a host: {error}")))?);
    }
    Ok(hosts)
}

fn check_origin(headers: &HeaderMap, hosts: &[Authority], allowed: &[String]) -> Result<(), Failure> {
    for origin in headers.get_all(ORIGIN) {
        let text = String::from_utf8_lossy(origin.as_bytes());
        // `null` has no authority: it comes from files and sandboxed pages.
        let authority = text
            .split_once("://")
            .and_then(|(_, authority)| authority.parse::<Authority>().ok());
        let is_ours = authority.is_some_and(|authority| {
            let is_same = |host: &Authority| host.as_str().eq_ignore_ascii_case(authority.as_str());
            hosts.iter().any(is_same) || is_allowed(name(authority.host()), allowed)
        });
        if !is_ours {
            return Err(forbidden(format!(
                "the request comes from a web page of another origin, `{}`. Start the server with --allow-host to allow its host",
                shown(&text)
            )));
        }
    }
    // Browsers send this header if they send no `Origin`.
    let site = headers.get("sec-fetch-site");
    if !headers.contains_key(ORIGIN) && site.is_some_and(|site| site != "same-origin" && site != "none") {
        return Err(forbidden(
            "the request comes from a web page of another site. Send it from the server's own origin".into(),
        ));
    }
    Ok(())
}

/// Returns a host without the brackets of IPv6 and the final full stop of an absolute name.
fn name(host: &str) -> &str {
    let unbracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let name = unbracketed.unwrap_or(host);
    name.strip_suffix('.').unwrap_or(name)
}

/// Returns true for names that no other site can point at this machine.
fn is_safe(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    last.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

fn is_allowed(name: &str, allowed: &[String]) -> bool {
    allowed.iter().any(|allowed| allowed.eq_ignore_ascii_case(name))
}

fn forbidden(reason: String) -> Failure {
    Failure::new(Kind::Forbidden, reason)
}

fn shown(text: &str) -> String {
    text.chars().take(MAX_SHOWN_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const NETWORK: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 168, 1, 5));

    fn request(method: Method, uri: &str, headers: &[(&'static str, &str)]) -> Request<()> {
        let mut request = Request::new(());
        *request.method_mut() = method;
        *request.uri_mut() = uri.parse().unwrap();
        for (name, value) in headers {
            request.headers_mut().append(*name, value.parse().unwrap());
        }
        request
    }

    fn of_host(host: &str, local: IpAddr, allowed: &[String]) -> Result<(), Kind> {
        let request = request(Method::GET, "/v2", &[("host", host)]);
        check(&request, Some(local), allowed).map_err(|failure| failure.kind())
    }

    #[test]
    fn on_loopback_the_host_is_an_address_or_localhost() {
        let mapped = IpAddr::V6(Ipv4Addr::LOCALHOST.to_ipv6_mapped());
        for local in [LOOPBACK, IpAddr::V6(Ipv6Addr::LOCALHOST), mapped] {
            for right in [
                "localhost:8000",
                "LOCALHOST",
                "localhost.",
                "a.localhost:1",
                "127.0.0.1:8000",
                "[::1]:8000",
                "10.0.0.1",
            ] {
                assert_eq!(of_host(right, local, &[]), Ok(()), "{right}");
            }
            for wrong in [
                "evil.example",
                "evil.example:8000",
                "127.0.0.1.evil.example",
                "localhost.evil.example",
                "evillocalhost",
                "evil",
            ] {
                assert_eq!(of_host(wrong, local, &[]), Err(Kind::Forbidden), "{wrong}");
            }
        }
        assert_eq!(of_host("a b", LOOPBACK, &[]), Err(Kind::InvalidArgument));
        // HTTP/1.0, which browsers do not speak.
        assert_eq!(
            check(&request(Method::GET, "/v2", &[]), Some(LOOPBACK), &[]),
            Ok(())
        );
    }

    #[test]
    fn every_name_of_a_request_is_checked() {
        let rebound = [
            ("http://evil.example/v2", &[][..]),
            ("http://evil.example/v2", &[("host", "localhost")]),
            ("http://localhost/v2", &[("host", "evil.example")]),
            ("/v2", &[("host", "localhost"), ("host", "evil.example")]),
        ];
        for (uri, headers) in rebound {
            let failure = check(&request(Method::GET, uri, headers), Some(LOOPBACK), &[]).unwrap_err();
            assert_eq!(failure.kind(), Kind::Forbidden, "{uri} {headers:?}");
            assert!(
                failure.message().contains("--allow-host evil.example"),
                "{failure}"
            );
        }
    }

    #[test]
    fn allowed_hosts_are_checked_on_every_address() {
        let allowed = ["vit.example".to_owned()];
        for local in [LOOPBACK, NETWORK] {
            assert_eq!(of_host("VIT.example:443", local, &allowed), Ok(()));
            assert_eq!(of_host("evil.example", local, &allowed), Err(Kind::Forbidden));
        }
        // Beyond loopback, a server may have names that it does not know.
        assert_eq!(of_host("evil.example", NETWORK, &[]), Ok(()));
    }

    #[test]
    fn changes_must_come_from_the_servers_own_origin() {
        let post = |headers: &[(&'static str, &str)], allowed: &[String]| {
            let request = request(Method::POST, "/v2/repository/models/vit/unload", headers);
            check(&request, Some(NETWORK), allowed).map_err(|failure| failure.kind())
        };
        let host = ("host", "vit.example:8000");
        for right in [
            &[host][..],
            &[host, ("origin", "http://vit.example:8000")],
            &[
                host,
                ("origin", "https://VIT.example:8000"),
                ("sec-fetch-site", "same-origin"),
            ],
            &[host, ("sec-fetch-site", "none")],
        ] {
            assert_eq!(post(right, &[]), Ok(()), "{right:?}");
        }
        for wrong in [
            ("origin", "http://evil.example"),
            ("origin", "http://vit.example:3000"),
            ("origin", "http://vit.example:8000.evil.example"),
            ("origin", "null"),
            ("origin", ""),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ] {
            assert_eq!(post(&[host, wrong], &[]), Err(Kind::Forbidden), "{wrong:?}");
            let read = request(Method::GET, "/v2", &[host, wrong]);
            assert_eq!(check(&read, Some(NETWORK), &[]), Ok(()), "{wrong:?}");
        }
        let allowed = ["ui.example".to_owned(), "vit.example".to_owned()];
        let origin = ("origin", "https://ui.example");
        assert_eq!(
            post(&[host, origin, ("sec-fetch-site", "cross-site")], &allowed),
            Ok(())
        );
    }
}
