//! Certificates and keys for TLS.

use std::path::Path;
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use webpki::{EndEntityCert, KeyUsage};

use super::options::TlsFiles;
use hipvit::error::{Error, Result};
use hipvit_files::regular_file;

/// Maximum size of a file of certificates, or of a key.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Reads the certificate chain and the key. Logs a warning if the certificate is not valid now.
pub(super) fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor> {
    let wrong = |path: &Path, reason: String| Error::config(path, reason);
    let read = |path: &Path| {
        regular_file::read_within(path, MAX_FILE_BYTES).map_err(|source| Error::io(path, source))
    };
    let certificate = read(&files.certificate)?;
    let chain = CertificateDer::pem_slice_iter(&certificate)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| wrong(&files.certificate, format!("is not a certificate in PEM: {e}")))?;
    let Some(first) = chain.first() else {
        return Err(wrong(&files.certificate, "has no certificate in PEM".into()));
    };
    if let Some(reason) = invalidity(first, UnixTime::now()) {
        tracing::warn!(certificate = %files.certificate.display(), "{reason}");
    }
    let key = PrivateKeyDer::from_pem_slice(&read(&files.key)?)
        .map_err(|e| wrong(&files.key, format!("is not a private key in PEM: {e}")))?;
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| Error::internal("tls", e))?
        .with_no_client_auth()
        .with_single_cert(chain, key);
    let mut config =
        config.map_err(|e| wrong(&files.key, format!("cannot be used with the certificate: {e}")))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Returns the reason if clients will refuse a certificate at `now` because of its dates.
fn invalidity(certificate: &CertificateDer<'_>, now: UnixTime) -> Option<&'static str> {
    let certificate = EndEntityCert::try_from(certificate).ok()?;
    // Without trust anchors only the dates are checked: a valid certificate has an unknown issuer.
    let checked = certificate.verify_for_usage(&[], &[], &[], now, KeyUsage::server_auth(), None, None);
    match checked.err()? {
        webpki::Error::CertExpired { .. } => Some("the certificate has expired: renew it"),
        webpki::Error::CertNotValidYet { .. } => {
            Some("the certificate is not valid yet: check its dates and the clock")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Certificate for this test. Its key was deleted.
    const CERTIFICATE: &[u8] = b"-----BEGIN CERTIFICATE-----
MIIBejCCASCgAwIBAgIUYDRBN6J9MslJyEaGTynjzDboZgwwCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MB4XDTI2MTEyNjA1MjExNVoXDTI3MTEyNjA1
MjExNVowFDESMBAGA1UEAwwJbG9jYWxob3N0MFkwEwYHKoZIzj0CAQYIKoZIzj0D
AQcDQgAEunu0o3tS9g05O7sRzPRT/t/TtLzzRzOq+HR2IRoTwoWP06ZyDLwb7FAa
0fUYF3OUAPZ0MaQkz1S/y8kkPheIXaNQME4wHQYDVR0OBBYEFAw+Yioc8Xmisbtk
A0mQwk/jMxbAMB8GA1UdIwQYMBaAFAw+Yioc8XmisbtkA0mQwk/jMxbAMAwGA1Ud
EwEB/wQCMAAwCgYIKoZIzj0EAwIDSAAwRQIgRa6/pe/2JwMpDlIUBC3GOdyP3sQR
//8uQsc8ukQBgFQCIQCg8LjuWed3w2cVUnIoQO+0qA/8e8MKgI0BdrH946b0UA==
-----END CERTIFICATE-----
";

    #[test]
    fn a_certificate_is_valid_between_its_dates() {
        let certificate = CertificateDer::from_pem_slice(CERTIFICATE).unwrap();
        let at = |seconds| {
            let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
            invalidity(&certificate, now).map(|reason| reason.split(':').next().unwrap())
        };
        // 26 November 2026 and 2027, 05:21:15.
        let (begin, end) = (1_795_670_475, 1_827_206_475);
        assert_eq!(at(begin - 1), Some("the certificate is not valid yet"));
        assert_eq!((at(begin), at(end)), (None, None));
        assert_eq!(at(end + 1), Some("the certificate has expired"));
    }

    #[test]
    fn files_that_never_end_are_not_read() {
        let files = TlsFiles::new("/dev/zero", "/dev/zero");
        let error = acceptor(&files).map(drop).unwrap_err().to_string();
        assert!(
            error.contains("/dev/zero") && error.contains("not a regular file"),
            "{error}"
        );
    }
}
