//! Makes the endpoint: sockets, and the layers between them and MQTT.

use std::error::Error;
use std::io;
use std::net::IpAddr;

use client::rustls::{self, AlertDescription, CipherSuite};
use client::{Endpoint, Layer, Proxy, TlsError, TlsOptions, TlsVersion, TransportError, WebSocket};

use crate::connection;
use crate::failure::Failure;
use crate::settings::{Settings, Tls};

/// Makes the endpoint from the settings.
pub(crate) async fn endpoint(settings: &Settings) -> Result<Endpoint, Failure> {
    let server = &settings.server;
    let mut endpoint = match &server.unix {
        Some(path) => return Ok(Endpoint::unix(path)),
        None => Endpoint::tcp(settings.host(), settings.port()),
    };
    if let Some(bind) = &server.bind {
        endpoint = endpoint.bind(address(bind).await?);
    }
    if let Some(proxy) = &server.proxy {
        let mut way = Proxy::new(&*proxy.host, proxy.port);
        if let Some((name, password)) = &proxy.credentials {
            way = way.credentials(name, password);
        }
        endpoint = endpoint.proxy(way);
    }
    if settings.wants_tls() {
        let tls = tls_options(&settings.tls)?;
        let tls = tls.build().map_err(|error| not_encrypted(&error, &settings.tls))?;
        endpoint = if server.has_quic { endpoint.quic(tls) } else { endpoint.tls(tls) };
    }
    if let Some(path) = &server.websocket {
        let websocket = WebSocket::new(path).map_err(|error| Failure::new(format!("Error: {error}")))?;
        endpoint = endpoint.websocket(websocket);
    }
    Ok(endpoint)
}

/// Parses a local IP address, or takes the first address of a name.
async fn address(text: &str) -> Result<IpAddr, Failure> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let found = tokio::net::lookup_host((text, 0)).await.ok().and_then(|mut found| found.next());
    found.map(|address| address.ip()).ok_or_else(|| Failure::new(UNKNOWN_HOST))
}

const UNKNOWN_HOST: &str = "Unable to connect (Lookup error.).";

fn tls_options(tls: &Tls) -> Result<TlsOptions, Failure> {
    let mut options = TlsOptions::new();
    if let Some(file) = &tls.ca_file {
        options = options.root_file(file);
    }
    if let Some(directory) = &tls.ca_directory {
        options = options.root_directory(directory);
    }
    if tls.uses_system_roots {
        options = options.system_roots();
    }
    if let (Some(certificate), Some(key)) = (&tls.certificate, &tls.key) {
        options = options.client_certificate_files(certificate, key);
    }
    if let Some(protocol) = &tls.alpn {
        options = options.alpn([protocol.as_str()]);
    }
    match tls.version.as_deref() {
        // A minimum, as with Mosquitto's clients. Older versions are not supported.
        None | Some("tlsv1.2") => {}
        Some("tlsv1.3") => options = options.version(TlsVersion::V1_3),
        Some(other) => {
            let which = "it must be one of tlsv1.3 and tlsv1.2";
            return Err(Failure::new(format!("Error: Problem setting TLS version {other}: {which}.")));
        }
    }
    if let Some(list) = &tls.ciphers {
        options = options.cipher_suites(ciphers(list)?);
    }
    if tls.is_insecure {
        options = options.dangerously_accept_any_host_name();
    }
    Ok(options)
}

/// Cipher suites of TLS 1.2, by their names in OpenSSL.
const CIPHERS: &[(&str, CipherSuite)] = &[
    ("ECDHE-ECDSA-AES256-GCM-SHA384", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-ECDSA-AES128-GCM-SHA256", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
    ("ECDHE-ECDSA-CHACHA20-POLY1305", CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
    ("ECDHE-RSA-AES256-GCM-SHA384", CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-RSA-AES128-GCM-SHA256", CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
    ("ECDHE-RSA-CHACHA20-POLY1305", CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
];

/// Cipher suites of TLS 1.3, which OpenSSL's cipher lists do not affect.
const CIPHERS_1_3: [CipherSuite; 3] = [
    CipherSuite::TLS13_AES_256_GCM_SHA384,
    CipherSuite::TLS13_AES_128_GCM_SHA256,
    CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
];

/// Selects the supported suites from an OpenSSL cipher list. `DEFAULT`, `HIGH` and `ALL` select all, which are safe.
fn ciphers(list: &str) -> Result<Vec<CipherSuite>, Failure> {
    let names: Vec<_> = list.split([':', ',', ' ']).collect();
    let allows_all = names.iter().any(|name| ["DEFAULT", "HIGH", "ALL"].contains(name));
    let allowed = CIPHERS.iter().filter(|(name, _)| allows_all || names.contains(name));
    let mut suites: Vec<_> = allowed.map(|(_, suite)| *suite).collect();
    if suites.is_empty() {
        let bad = Failure::new(format!("Error: Unable to set TLS ciphers. Check cipher list \"{list}\"."));
        let names: Vec<_> = CIPHERS.iter().map(|(name, _)| *name).collect();
        return Err(bad.advise(format!("The ciphers of TLS 1.2 are {}.", names.join(", "))));
    }
    suites.extend(CIPHERS_1_3);
    Ok(suites)
}

/// Mosquitto's `MOSQ_ERR_TLS`.
const TLS: u8 = 8;

fn not_encrypted(error: &TlsError, tls: &Tls) -> Failure {
    let code = if tls.ca_directory.is_some() && tls.ca_file.is_none() { TLS } else { 1 };
    Failure::with_code(format!("Error: {error}."), code)
}

/// Failure for a transport that could not be made.
///
/// The first line is the system's error text without its number. The second line has the address and a remedy.
pub(crate) fn unreachable(error: &io::Error, settings: &Settings) -> Failure {
    let transport = error.get_ref().and_then(|inner| inner.downcast_ref::<TransportError>());
    let cause = || transport.and_then(Error::source).map_or_else(|| error.to_string(), ToString::to_string);
    let next = match &settings.server.proxy {
        Some(proxy) => format!("the proxy {}:{}", proxy.host, proxy.port),
        None => connection::broker(settings),
    };
    let text = format!("Error: {}", without_number(&error.to_string()));
    match transport.map(TransportError::layer) {
        Some(Layer::Name) => {
            let advice = format!("No address of {next}: is the name right (-h)? {}.", cause());
            Failure::new(UNKNOWN_HOST).advise(advice)
        }
        Some(Layer::Socket) => {
            let failure = Failure::new(format!("Error: {}", without_number(&cause())));
            failure.advise(socket_advice(error.kind(), &next))
        }
        Some(Layer::Tls) => {
            let failure = Failure::with_code(text, TLS);
            let is_cut = error.kind() == io::ErrorKind::ConnectionReset;
            if is_cut {
                failure.advise(format!("{next} may not speak TLS: is that its port (-p)?"))
            } else {
                failure
            }
        }
        Some(Layer::Quic) if error.kind() == io::ErrorKind::TimedOut => {
            Failure::new(text).advise(format!("Nothing at {next} speaks QUIC, or UDP does not get through."))
        }
        Some(_) => Failure::new(text),
        None => match late_alert(error) {
            // With TLS 1.3 the server rejects the client behind the handshake of the client.
            Some(AlertDescription::CertificateRequired) => {
                let remedy = "it wants a certificate of this client (--cert and --key)";
                Failure::with_code(text, TLS).advise(format!("{next} has ended TLS: {remedy}."))
            }
            Some(_) => {
                let cause = "it may not accept the certificate of this client (--cert and --key)";
                Failure::with_code(text, TLS).advise(format!("{next} has ended TLS: {cause}."))
            }
            None => Failure::new(text).advise(unanswered(settings)),
        },
    }
}

/// The alert by which the server has ended TLS.
fn late_alert(error: &io::Error) -> Option<AlertDescription> {
    match error.get_ref().and_then(|inner| inner.downcast_ref()) {
        Some(rustls::Error::AlertReceived(alert)) => Some(*alert),
        _ => None,
    }
}

/// Hint for a server that accepts a connection, but does not answer CONNECT like a broker.
pub(crate) fn unanswered(settings: &Settings) -> String {
    let broker = connection::broker(settings);
    if settings.wants_tls() {
        // The server speaks TLS, because the handshake has succeeded.
        format!("{broker} does not answer as an MQTT broker does: is that its port (-p)?")
    } else {
        let question = "is that its port (-p), and does it want TLS (--cafile, --tls-use-os-certs)?";
        format!("{broker} does not answer as an MQTT broker does: {question}")
    }
}

/// Hint for a socket that could not be connected.
fn socket_advice(kind: io::ErrorKind, next: &str) -> String {
    match kind {
        io::ErrorKind::ConnectionRefused => {
            format!("Nobody listens at {next}: does it run, and is that its port (-p)?")
        }
        io::ErrorKind::NotFound => {
            format!("There is no {next}: does the broker run, and is that its socket?")
        }
        io::ErrorKind::PermissionDenied => format!("This user may not connect to {next}."),
        io::ErrorKind::AddrNotAvailable => format!("{next} cannot be reached from the address of -A."),
        _ => format!("{next} cannot be reached."),
    }
}

fn without_number(text: &str) -> &str {
    text.split_once(" (os error").map_or(text, |(text, _)| text)
}

#[test]
fn a_list_of_ciphers_is_one_of_openssl_s() {
    assert_eq!(ciphers("ECDHE-RSA-AES128-GCM-SHA256:!aNULL").unwrap().len(), 1 + CIPHERS_1_3.len());
    assert_eq!(ciphers("HIGH").unwrap().len(), CIPHERS.len() + CIPHERS_1_3.len());
    assert!(ciphers("RC4-MD5").is_err(), "there is none that is not safe");
}
