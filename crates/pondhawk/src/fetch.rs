//! Fetches small documents over HTTP, within bounds of time and size.

use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use ureq::Agent;
use ureq::config::ConfigBuilder;
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};
use ureq::typestate::AgentScope;

use crate::roots;

/// Maximum time of a whole request: name, connection, TLS and answer.
const DEADLINE: Duration = Duration::from_secs(5);
/// Maximum length of an answer, in bytes.
pub(crate) const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// Maximum length of the header of an answer, in bytes.
const HEADER_BYTES_MAX: usize = 16 << 10;

/// Fetches a document. Redirects are not followed, and the environment names no proxy.
///
/// # Errors
/// There was no complete answer with status 200 in time, or the answer is too long. The text says why.
pub(crate) fn fetch(url: &str) -> Result<Vec<u8>, String> {
    fetch_trusting(url, roots::of_system)
}

fn fetch_trusting(url: &str, roots: impl FnOnce() -> Roots) -> Result<Vec<u8>, String> {
    let agent = config(url, DEADLINE, roots).build().new_agent();
    let mut answer = agent.get(url).call().map_err(|error| error.to_string())?;
    if answer.status() != 200 {
        return Err(format!("the status is {}", answer.status().as_u16()));
    }
    let body = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX);
    body.read_to_vec().map_err(|error| error.to_string())
}

/// The certificates of authorities that may have signed that of a server.
type Roots = Vec<CertificateDer<'static>>;

/// The settings of a client whose requests end in time. It follows no redirects, and a failure of HTTP is no error.
pub(crate) fn config(
    url: &str,
    timeout: Duration,
    roots: impl FnOnce() -> Roots,
) -> ConfigBuilder<AgentScope> {
    let mut config = Agent::config_builder()
        .timeout_global(Some(timeout))
        .max_redirects(0)
        .max_redirects_will_error(false)
        .http_status_as_error(false)
        .max_response_header_size(HEADER_BYTES_MAX)
        .user_agent("pondhawk")
        .accept("application/json")
        .proxy(None);
    if url.starts_with("https://") {
        config = config.https_only(true).tls_config(tls(&roots()));
    }
    config
}

fn tls(roots: &Roots) -> TlsConfig {
    let roots = roots.iter().map(|root| Certificate::from_der(root).to_owned());
    TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .root_certs(RootCerts::from(roots))
        .build()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// Fetches from a server that answers with these bytes, and then closes the connection.
    fn answered(answer: Vec<u8>) -> Result<Vec<u8>, String> {
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/keys", server.local_addr().expect("an address"));
        let serving = thread::spawn(move || {
            let (mut client, _) = server.accept().expect("a client");
            let mut request = [0; 4_096];
            let length = client.read(&mut request).expect("a request");
            // A client that has read enough closes the connection.
            drop(client.write_all(&answer));
            String::from_utf8_lossy(&request[..length]).into_owned()
        });
        let fetched = fetch(&url);
        let request = serving.join().expect("the server ends");
        assert!(request.starts_with("GET /keys HTTP/1.1\r\n"), "{request}");
        fetched
    }

    fn with(head: &str, body: &[u8]) -> Vec<u8> {
        [format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\n\r\n", body.len()).as_bytes(), body].concat()
    }

    #[test]
    fn an_answer_is_whole_and_bounded() {
        assert_eq!(answered(with("200 OK", b"{}")), Ok(b"{}".to_vec()));
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n";
        assert_eq!(answered(chunked.to_vec()), Ok(b"{}".to_vec()));
        let largest = usize::try_from(ANSWER_BYTES_MAX).expect("it fits");
        assert!(answered(with("200 OK", &vec![b'x'; largest - 1])).is_ok());
        for bad in [
            with("200 OK", &vec![b'x'; largest + 1]),
            with("404 Not Found", b"{}"),
            with("500 Oops", b"{}"),
            with("204 No Content", b""),
            with("302 Found\r\nLocation: http://127.0.0.1:1/other", b"{}"),
            with("301 Moved\r\nLocation: /keys", b"{}"),
            b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}".to_vec(),
            with(&format!("200 OK\r\nX: {}", "x".repeat(HEADER_BYTES_MAX)), b"{}"),
            b"SSH-2.0-pond\r\n".to_vec(),
            Vec::new(),
        ] {
            let shown = String::from_utf8_lossy(&bad[..bad.len().min(60)]).into_owned();
            assert!(answered(bad).is_err(), "{shown}");
        }
    }

    #[test]
    fn a_redirect_is_not_followed() {
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = server.local_addr().expect("an address");
        let moved = with(&format!("302 Found\r\nLocation: http://{address}/other"), b"{}");
        let serving = thread::spawn(move || {
            [moved, with("200 OK", b"{}")].map(|answer| {
                let (mut client, _) = server.accept().expect("a client");
                let mut request = [0; 4_096];
                let length = client.read(&mut request).expect("a request");
                drop(client.write_all(&answer));
                String::from_utf8_lossy(&request[..length]).split(' ').nth(1).map(str::to_owned)
            })
        });
        assert_eq!(fetch(&format!("http://{address}/keys")), Err("the status is 302".to_owned()));
        assert_eq!(fetch(&format!("http://{address}/end")), Ok(b"{}".to_vec()));
        assert_eq!(
            serving.join().expect("the server ends"),
            ["/keys", "/end"].map(|path| Some(path.to_owned()))
        );
    }

    /// Fetches over TLS from a server whose certificate is for `name`.
    fn fetched_over_tls(name: &str, is_trusted: bool) -> Result<Vec<u8>, String> {
        let own = rcgen::generate_simple_self_signed([name.to_owned()]).expect("a certificate");
        let root = own.cert.der().clone();
        let key = rustls::pki_types::PrivateKeyDer::try_from(own.signing_key.serialize_der()).expect("a key");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![own.cert.der().clone()], key)
            .expect("a key for its certificate");
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("https://localhost:{}/keys", server.local_addr().expect("an address").port());
        let serving = thread::spawn(move || {
            let (client, _) = server.accept().expect("a client");
            let session = rustls::ServerConnection::new(Arc::new(config)).expect("a session");
            let mut client = rustls::StreamOwned::new(session, client);
            // A client that does not trust the certificate says so, and closes the connection.
            if client.read(&mut [0; 4_096]).is_ok_and(|length| length > 0) {
                drop(client.write_all(&with("200 OK", b"{}")));
            }
        });
        let roots = move || is_trusted.then_some(root).into_iter().collect();
        let fetched = fetch_trusting(&url, roots);
        serving.join().expect("the server ends");
        fetched
    }

    #[test]
    fn a_server_proves_its_name() {
        assert_eq!(fetched_over_tls("localhost", true), Ok(b"{}".to_vec()));
        assert!(fetched_over_tls("localhost", false).is_err_and(|why| why.contains("certificate")));
        assert!(fetched_over_tls("other.example", true).is_err_and(|why| why.contains("certificate")));
    }

    #[test]
    fn a_server_that_is_gone_is_an_error() {
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/keys", server.local_addr().expect("an address"));
        drop(server);
        assert!(fetch(&url).is_err());
    }
}
