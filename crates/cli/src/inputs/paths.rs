//! Parses paths in arguments and lists. `file://` URLs are paths; other URLs are errors. Lists can be UTF-8 or UTF-16.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use percent_encoding::percent_decode_str;

use hipvit_files::encoding::{EncodingError, to_utf8};

/// Converts an argument to a local path. The argument is a path or a `file://` URL.
///
/// # Errors
///
/// Returns an error for URLs with another scheme, and for `file://` URLs with a host other than localhost.
pub(crate) fn to_local_path(argument: &Path) -> Result<PathBuf> {
    let url = argument.to_str().and_then(split_scheme);
    let Some((scheme, rest)) = url.filter(|_| !argument.exists()) else {
        return Ok(argument.to_owned());
    };
    let url = argument.display();
    match scheme.as_str() {
        "file" => parse_file_url(rest).with_context(|| url.to_string()),
        "data" => bail!(
            "data URLs are not supported. Write the image to a file, or pipe it: echo DATA | base64 -d | hipvit classify -"
        ),
        "http" | "https" | "ftp" => {
            let quoted = format!("'{}'", url.to_string().replace('\'', r"'\''"));
            bail!(
                "{url}: remote URLs are not supported. Download the file: curl -LO {quoted}, or pipe it: curl -L {quoted} | hipvit classify -"
            )
        }
        _ => bail!("{url}: remote URLs are not supported. Download the file first"),
    }
}

/// Splits a URL into its scheme, in lower case, and the text after the colon. Returns `None` if `text` is a path.
fn split_scheme(text: &str) -> Option<(String, &str)> {
    let (scheme, rest) = text.split_once(':')?;
    let scheme = scheme.to_ascii_lowercase();
    let is_scheme = scheme.len() > 1
        && scheme
            .bytes()
            .all(|c| c.is_ascii_alphanumeric() || b"+-.".contains(&c));
    // File names can contain a colon. `file:/a.png` and `data:image/png;base64,…` have no `//`.
    let is_url = rest.starts_with("//")
        || scheme == "file" && rest.starts_with('/')
        || scheme == "data" && rest.contains(',');
    (is_scheme && is_url).then_some((scheme, rest))
}

/// Returns the path of a `file` URL. `rest` is the text after `file:`.
fn parse_file_url(rest: &str) -> Result<PathBuf> {
    let (host, path) = match rest.strip_prefix("//") {
        None => ("", rest),
        Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
    };
    let host = if host.eq_ignore_ascii_case("localhost") {
        ""
    } else {
        host
    };
    let bytes: Cow<'_, [u8]> = percent_decode_str(path).into();
    url_path(host, &bytes)
}

/// Returns the path of a URL with this host and this decoded path.
#[cfg(not(windows))]
fn url_path(host: &str, path: &[u8]) -> Result<PathBuf> {
    if !host.is_empty() {
        bail!(
            "`{host}` is parsed as a host name. Write an absolute path after `file://`: file:///home/me/a.png"
        );
    }
    to_path(path)
}

/// Returns the path of a URL with this host and this decoded path: `file:///C:/a.png` or `file://server/share/a.png`.
#[cfg(windows)]
fn url_path(host: &str, path: &[u8]) -> Result<PathBuf> {
    if host.is_empty() {
        return match path {
            [b'/', drive, b':', ..] if drive.is_ascii_alphabetic() => to_path(&path[1..]),
            path => to_path(path),
        };
    }
    if path.len() < 2 {
        bail!("`{host}` is parsed as a host name. Write an absolute path after `file://`: file:///C:/a.png");
    }
    to_path(&[br"\\", host.as_bytes(), path].concat())
}

/// Parses a list of paths. The separator is NUL if `null` is set, and a line break otherwise.
///
/// # Errors
///
/// Returns an error if the encoding is not supported, or if the list contains no paths.
pub(crate) fn parse_list(list: &Path, bytes: &[u8], null: bool) -> Result<Vec<PathBuf>> {
    let bytes = to_utf8(bytes, null).map_err(|error| {
        let reason = match error {
            EncodingError::Nul => {
                "contains NUL bytes. Add -0 if `find -print0` wrote the list. Save it as UTF-8 if it is UTF-16"
                    .to_owned()
            }
            error => error.to_string(),
        };
        anyhow!("{}: {reason}", list.display())
    })?;
    let mut paths = Vec::new();
    for path in bytes.split(|&byte| byte == if null { 0 } else { b'\n' }) {
        let path = match path {
            [line @ .., b'\r'] if !null => line,
            path => path,
        };
        if !path.is_empty() {
            paths.push(to_path(path).with_context(|| format!("{}: invalid path", list.display()))?);
        }
    }
    if paths.is_empty() {
        bail!("{}: the list contains no paths", list.display());
    }
    Ok(paths)
}

/// Converts bytes to a path. On Unix, a path can contain any byte except NUL.
#[cfg(unix)]
fn to_path(bytes: &[u8]) -> Result<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    Ok(std::ffi::OsStr::from_bytes(bytes).into())
}

#[cfg(not(unix))]
fn to_path(bytes: &[u8]) -> Result<PathBuf> {
    Ok(std::str::from_utf8(bytes)?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(windows)]
    #[test]
    fn a_file_url_has_a_drive_or_a_server() {
        for (url, path) in [
            ("file:///C:/a%20b.png", "C:/a b.png"),
            ("file://localhost/C:/a.png", "C:/a.png"),
            ("file:///a.png", "/a.png"),
            ("file://server/share/a.png", r"\\server/share/a.png"),
        ] {
            assert_eq!(to_local_path(Path::new(url)).unwrap(), Path::new(path), "{url}");
        }
        assert!(to_local_path(Path::new("file://a.png")).is_err());
    }

    #[cfg(not(windows))]
    #[test]
    fn a_file_url_is_a_path() {
        for (url, path) in [
            ("file:///a/b.png", "/a/b.png"),
            ("FILE://LocalHost/a%20b/%C3%BC.png", "/a b/ü.png"),
            ("file:/a/b%2525.png", "/a/b%25.png"),
            ("file:///100%.png", "/100%.png"),
            ("photos/a:b.png", "photos/a:b.png"),
            ("a:b.png", "a:b.png"),
            ("C://a.png", "C://a.png"),
            ("a b://c.png", "a b://c.png"),
        ] {
            assert_eq!(to_local_path(Path::new(url)).unwrap(), Path::new(path), "{url}");
        }
        let error = to_local_path(Path::new("file://a.png")).unwrap_err();
        assert!(
            format!("{error:#}").contains("`a.png` is parsed as a host name"),
            "{error:#}"
        );
    }

    #[test]
    fn other_urls_are_errors() {
        for (url, advice) in [
            ("https://h/a.png?x=1&y=2", "curl -LO 'https://h/a.png?x=1&y=2'"),
            ("HTTP://h/it's.png", r"curl -LO 'HTTP://h/it'\''s.png'"),
            ("s3://bucket/a.png", "Download the file first"),
            ("data:image/png;base64,iVBOR", "base64 -d"),
        ] {
            let error = to_local_path(Path::new(url)).unwrap_err().to_string();
            assert!(error.contains(advice), "{error}");
        }
    }

    #[test]
    fn lists_can_be_utf_8_or_utf_16_with_or_without_bom() {
        let text = "ä/日本 1.png\r\nb.png\r\n";
        let paths = [PathBuf::from("ä/日本 1.png"), PathBuf::from("b.png")];
        let utf16 =
            |order: fn(u16) -> [u8; 2], text: &str| text.encode_utf16().flat_map(order).collect::<Vec<u8>>();
        let read = |bytes: &[u8], null| parse_list(Path::new("list"), bytes, null);
        let (le, be) = (u16::to_le_bytes, u16::to_be_bytes);
        let with_bom = format!("\u{feff}{text}");
        for bytes in [
            text.as_bytes().to_vec(),
            with_bom.as_bytes().to_vec(),
            utf16(le, &with_bom),
            utf16(be, &with_bom),
            utf16(le, text),
            utf16(be, text),
        ] {
            assert_eq!(read(&bytes, false).unwrap(), paths, "{bytes:?}");
        }
        let separated = "\u{feff}ä/日本 1.png\0b.png\0";
        for bytes in [
            separated.as_bytes().to_vec(),
            utf16(le, separated),
            utf16(be, separated),
        ] {
            assert_eq!(read(&bytes, true).unwrap(), paths, "{bytes:?}");
        }
        // Without `null`, these one-letter names would look like UTF-16.
        assert_eq!(
            read(b"a\0b\0", true).unwrap(),
            [PathBuf::from("a"), PathBuf::from("b")]
        );
        for (bytes, reason) in [
            (&b"a.png\0b.png\0"[..], "-0"),
            (b"\xff\xfea\0b", "not valid UTF-16"),
            (b"\xff\xfe\x00\xd8\n\0", "not valid UTF-16"),
            (b"\xff\xfe\0\0a\0\0\0", "UTF-32"),
            (b"\xef\xbb\xbf", "no path"),
        ] {
            let error = read(bytes, false).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
