//! Explains certificates in words.

use std::fmt::{self, Write as _};
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme};
use wire::Shown;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{ASN1Time, X509Version};
use x509_parser::public_key::PublicKey;

use super::of_file;

/// Maximum time for each step of a connection.
const PATIENCE: Duration = Duration::from_secs(10);
/// Keys of RSA with fewer bits are broken with effort.
const RSA_BITS_MIN: usize = 2_048;
const DAY_SECS: i64 = 86_400;

/// Explains the certificates in a file, or those that a server shows at `HOST:PORT`.
///
/// # Errors
/// There is no such file and no such server, or neither has a certificate.
pub(crate) fn show(of: &str) -> Result<String, String> {
    let path = Path::new(of);
    let mut text = String::new();
    let (chain, server) = match of.rsplit_once(':') {
        Some((host, port)) if !path.exists() => {
            let host = host.trim_start_matches('[').trim_end_matches(']');
            let port = port.parse().map_err(|_| format!("{of}: no such file, and not HOST:PORT"))?;
            let (chain, protocol) = fetch(host, port).map_err(|error| format!("{of}: {error}"))?;
            let _ = writeln!(text, "{of} speaks {protocol} and shows {}.", count(chain.len()));
            (chain, Some(host))
        }
        _ => {
            let chain = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
            let chain = chain.map_err(|error| of_file(path, error))?;
            let has_key = PrivateKeyDer::from_pem_file(path).is_ok();
            if chain.is_empty() {
                let what = if has_key { "a private key and no certificate" } else { "no certificate in PEM" };
                return Err(of_file(path, format!("the file has {what}")));
            }
            let key = if has_key { ", and a private key" } else { "" };
            let _ = writeln!(text, "{of} has {}{key}.", count(chain.len()));
            (chain, None)
        }
    };
    for (number, der) in chain.iter().enumerate() {
        let _ = writeln!(text);
        match x509_parser::parse_x509_certificate(der) {
            Ok((_, certificate)) => {
                let issuer = chain.get(number + 1);
                explain(&certificate, der, issuer, server.filter(|_| number == 0), &mut text);
            }
            Err(error) => {
                let _ = writeln!(text, "Certificate {} cannot be read: {error}", number + 1);
            }
        }
    }
    Ok(text)
}

fn count(certificates: usize) -> String {
    if certificates == 1 { "1 certificate".to_owned() } else { format!("{certificates} certificates") }
}

/// Writes what is in a certificate, and what is wrong with it. `server` is the host that showed it.
fn explain(
    certificate: &X509Certificate<'_>,
    der: &CertificateDer<'_>,
    issuer: Option<&CertificateDer<'_>>,
    server: Option<&str>,
    text: &mut String,
) {
    let (subject, signer) = (certificate.subject().to_string(), certificate.issuer().to_string());
    let is_own = certificate.subject() == certificate.issuer();
    let names = names(certificate);
    let mut line = |label: &str, value: &dyn fmt::Display| {
        // Names in a certificate may have control characters, which must not reach the terminal.
        let _ = writeln!(text, "{label:<10} {}", Shown(value));
    };
    line("for", &if subject.is_empty() { "nobody by name" } else { &subject });
    if !names.is_empty() {
        line("hosts", &names.join(", "));
    }
    line("signed by", &if is_own { "itself" } else { &signer });
    let validity = certificate.validity();
    let (from, until) = (validity.not_before, validity.not_after);
    let days = (until.timestamp() - ASN1Time::now().timestamp()).div_euclid(DAY_SECS);
    let day = |time: ASN1Time| time.to_datetime().date();
    line("valid", &format!("from {} until {} ({days} days from now)", day(from), day(until)));
    line("may", &uses(certificate));
    line("key", &key(certificate));
    let problems = problems(certificate, der, issuer, server);
    if problems.is_empty() {
        line("problems", &"none found");
    }
    for problem in problems {
        line("problem", &problem);
    }
}

/// Names of hosts, and addresses.
pub(crate) fn names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let Ok(Some(names)) = certificate.subject_alternative_name() else { return Vec::new() };
    let name = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => (*name).to_owned(),
        GeneralName::IPAddress(bytes) => match (<[u8; 4]>::try_from(*bytes), <[u8; 16]>::try_from(*bytes)) {
            (Ok(v4), _) => std::net::IpAddr::from(v4).to_string(),
            (_, Ok(v6)) => std::net::IpAddr::from(v6).to_string(),
            _ => "an address of a wrong length".to_owned(),
        },
        other => other.to_string(),
    };
    names.value.general_names.iter().map(name).collect()
}

fn is_authority(certificate: &X509Certificate<'_>) -> bool {
    certificate.basic_constraints().ok().flatten().is_some_and(|constraints| constraints.value.ca)
}

fn uses(certificate: &X509Certificate<'_>) -> String {
    if is_authority(certificate) {
        return "sign other certificates".to_owned();
    }
    let Ok(Some(uses)) = certificate.extended_key_usage() else {
        return "show who a server or a client is (no use is named)".to_owned();
    };
    match (uses.value.server_auth, uses.value.client_auth) {
        (true, true) => "show who a server or a client is",
        (true, false) => "show who a server is",
        (false, true) => "show who a client is",
        (false, false) if uses.value.any => "show anything",
        (false, false) => "show neither who a server nor who a client is",
    }
    .to_owned()
}

fn key(certificate: &X509Certificate<'_>) -> String {
    match certificate.public_key().parsed() {
        Ok(PublicKey::RSA(key)) => format!("RSA with {} bits", key.key_size()),
        Ok(PublicKey::EC(point)) => format!("elliptic curve with {} bits", point.key_size()),
        _ if certificate.public_key().algorithm.algorithm.to_id_string() == ED25519 => "Ed25519".to_owned(),
        _ => "of another kind".to_owned(),
    }
}

const ED25519: &str = "1.3.101.112";
/// Signature algorithms with SHA-1 or MD5.
const WEAK: [&str; 4] =
    ["1.2.840.113549.1.1.5", "1.2.840.113549.1.1.4", "1.2.840.10045.4.1", "1.3.14.3.2.29"];

/// Problems that clients or servers will have with a certificate.
fn problems(
    certificate: &X509Certificate<'_>,
    der: &CertificateDer<'_>,
    issuer: Option<&CertificateDer<'_>>,
    server: Option<&str>,
) -> Vec<String> {
    let mut problems = Vec::new();
    let mut say = |is_so: bool, problem: &str| {
        if is_so {
            problems.push(problem.to_owned());
        }
    };
    let (validity, now) = (certificate.validity(), ASN1Time::now().timestamp());
    let left_secs = validity.not_after.timestamp() - now;
    say(left_secs < 0, "it has expired");
    say((0..30 * DAY_SECS).contains(&left_secs), "it expires in less than 30 days");
    say(validity.not_before.timestamp() > now, "it is not valid yet, or the clock here is wrong");
    let is_authority = is_authority(certificate);
    say(
        certificate.version != X509Version::V3,
        "it is of version 1, and has no extensions: many programs refuse it",
    );
    let uses = certificate.extended_key_usage().ok().flatten();
    let is_of_server = uses.is_none_or(|uses| uses.value.server_auth || uses.value.any);
    let has_no_names = names(certificate).is_empty();
    say(
        !is_authority && is_of_server && has_no_names,
        "it names no host in a subject alternative name: clients refuse it from a server",
    );
    let algorithm = certificate.signature_algorithm.algorithm.to_id_string();
    let is_own = certificate.subject() == certificate.issuer();
    say(
        !is_own && WEAK.contains(&algorithm.as_str()),
        "its signature uses SHA-1 or MD5, which rustls and OpenSSL 3 refuse",
    );
    if let Ok(PublicKey::RSA(key)) = certificate.public_key().parsed() {
        say(key.key_size() < RSA_BITS_MIN, "its key of RSA is too short: 2,048 bits are the least");
    }
    if let Some(issuer) = issuer {
        let signer = x509_parser::parse_x509_certificate(issuer).ok();
        let fits = signer.is_some_and(|(_, signer)| signer.subject() == certificate.issuer());
        say(
            !fits,
            "the next certificate is not that of its signer: the order in the file is wrong, or one is missing",
        );
    }
    if let Some(host) = server {
        say(is_authority, "a server shows the certificate of an authority");
        say(!is_of_server, "it is not for servers");
        let fits = ServerName::try_from(host).ok().zip(ParsedCertificate::try_from(der).ok());
        let is_named =
            fits.is_some_and(|(name, parsed)| rustls::client::verify_server_name(&parsed, &name).is_ok());
        say(
            !is_named && !has_no_names,
            &format!("it does not name {host}: clients that connect to {host} refuse it"),
        );
        say(
            is_own && !is_authority,
            "it is signed by itself: clients must be given this certificate to trust",
        );
    }
    problems
}

/// Connects, and returns the certificates of the server and its version of TLS. Nothing is sent to the server.
fn fetch(host: &str, port: u16) -> Result<(Vec<CertificateDer<'static>>, String), String> {
    let name = ServerName::try_from(host.to_owned()).map_err(|_| format!("`{host}` is no host"))?;
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Onlooker(provider)))
        .with_no_client_auth();
    let mut connection = ClientConnection::new(Arc::new(config), name).map_err(|error| error.to_string())?;
    let mut socket = connect(host, port).map_err(|error| error.to_string())?;
    let handshake = complete(&mut connection, &mut socket);
    match (connection.peer_certificates(), handshake) {
        // A server that asks for a certificate may end the connection, and has shown its own before.
        (Some(chain), _) => {
            let protocol = match connection.protocol_version() {
                Some(rustls::ProtocolVersion::TLSv1_2) => "TLS 1.2",
                _ => "TLS 1.3",
            };
            Ok((chain.iter().map(|one| one.clone().into_owned()).collect(), protocol.to_owned()))
        }
        (None, Err(error)) => Err(format!("no TLS: {error}")),
        (None, Ok(())) => Err("the server has shown no certificate".to_owned()),
    }
}

fn complete(connection: &mut ClientConnection, socket: &mut TcpStream) -> io::Result<()> {
    while connection.is_handshaking() {
        connection.complete_io(socket)?;
    }
    Ok(())
}

fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut outcome = Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
    for address in (host, port).to_socket_addrs()? {
        outcome = TcpStream::connect_timeout(&address, PATIENCE);
        if outcome.is_ok() {
            break;
        }
    }
    let socket = outcome?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    Ok(socket)
}

/// Accepts every certificate, to show it. Nothing is sent over the connection.
#[derive(Debug)]
struct Onlooker(Arc<CryptoProvider>);

impl ServerCertVerifier for Onlooker {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
