//! Makes an authority, and the certificates that it signs.
//!
//! All keys are for ECDSA with P-256 and all files are PEM, with keys in PKCS #8: OpenSSL, Mosquitto, paho, rustls, Mbed TLS
//! and BearSSL read them.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};
use x509_parser::time::ASN1Time;

use super::of_file;

const DAY: Duration = Duration::from_secs(86_400);
/// A certificate is valid from a day ago on, because clocks differ.
const BEFORE: Duration = DAY;
const AUTHORITY_DAYS: u32 = 20 * 365;
/// Apple accepts no server certificate that is valid for longer.
const SERVER_DAYS: u32 = 825;
const CLIENT_DAYS: u32 = 10 * 365;
/// Maximum length of a common name (RFC 5280, ub-common-name).
const NAME_BYTES_MAX: usize = 64;

/// A name that every server certificate has, for clients on the machine of the broker.
const THIS_MACHINE: &str = "localhost";

const CA: &str = "ca";
const SERVER: &str = "server";

/// Makes a directory with an authority and a server certificate for these hosts. Returns what to do with them.
///
/// # Errors
/// A host is neither a name nor an address, or a file cannot be made or is there already.
pub(crate) fn init(dir: &Path, hosts: &[String]) -> Result<String, String> {
    let [first, ..] = hosts else { return Err("a server certificate needs a --host".to_owned()) };
    hosts.iter().try_for_each(|host| check_host(host))?;
    let mut names = hosts.to_vec();
    if !hosts.iter().any(|host| host == THIS_MACHINE) {
        names.push(THIS_MACHINE.to_owned());
    }
    let (server, server_until) =
        leaf(short(first), &names, ExtendedKeyUsagePurpose::ServerAuth, SERVER_DAYS)?;
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, format!("Pondhawk authority for {}", short(first)));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let authority_until = limit(&mut params, AUTHORITY_DAYS);
    let authority = CertifiedIssuer::self_signed(params, key()?).map_err(|error| error.to_string())?;
    let server_key = key()?;
    let certificate = server.signed_by(&server_key, &authority).map_err(|error| error.to_string())?;

    fs::DirBuilder::new().recursive(true).mode(0o755).create(dir).map_err(|error| of_file(dir, error))?;
    let files = [
        (file(dir, CA, "key"), authority.key().serialize_pem(), 0o600),
        (file(dir, CA, "pem"), authority.pem(), 0o644),
        (file(dir, SERVER, "key"), server_key.serialize_pem(), 0o600),
        (file(dir, SERVER, "pem"), certificate.pem(), 0o644),
    ];
    write_all(&files)?;
    let (ca, pem, key) = (shown(dir, CA, "pem"), shown(dir, SERVER, "pem"), shown(dir, SERVER, "key"));
    let ca_key = shown(dir, CA, "key");
    Ok(format!(
        "# Made an authority (until {authority_until}) and a certificate of the server (until {server_until}) in {}.\n\
         # Keep {ca_key} secret: whoever has it can make certificates that your devices trust.\n\
         \n\
         # In pondhawk.toml:\n\
         [[listener]]\n\
         address = \"0.0.0.0:8883\"\n\
         tls_certificate = {pem:?}\n\
         tls_key = {key:?}\n\
         \n\
         # To try it on this machine:\n\
         # pondhawk sub --cafile {ca} -h localhost -p 8883 -t 'pond/#' -v\n\
         # Other machines need a user (pondhawk user add NAME --config pondhawk.toml), and -h {first}.\n\
         # A certificate for a device: pondhawk certs client {} NAME\n",
        wire::Shown(dir.display()),
        wire::Shown(dir.display()),
    ))
}

/// Makes a certificate for a client, signed by the authority in this directory. Returns what to do with it.
///
/// # Errors
/// The name cannot be that of a file and of a client, there is no authority, or a file cannot be made or is there already.
pub(crate) fn client(dir: &Path, name: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty()
        || name.len() > NAME_BYTES_MAX
        || name.starts_with(['.', '-'])
        || !name.chars().all(is_plain)
    {
        return Err(format!(
            "the name of a client has 1 to {NAME_BYTES_MAX} letters, digits, dashes, underscores and dots"
        ));
    }
    if [CA, SERVER].contains(&name) {
        return Err(format!("`{name}` is the name of another file in the directory"));
    }
    let read = |extension| {
        let path = file(dir, CA, extension);
        fs::read_to_string(&path)
            .map_err(|error| of_file(&path, format!("{error}; `pondhawk certs init` makes an authority")))
    };
    let unusable = |extension| move |error| of_file(&file(dir, CA, extension), error);
    let authority_key = KeyPair::from_pem(&read("key")?).map_err(unusable("key"))?;
    let authority = Issuer::from_ca_cert_pem(&read("pem")?, authority_key).map_err(unusable("pem"))?;
    let (params, until) = leaf(name, &[], ExtendedKeyUsagePurpose::ClientAuth, CLIENT_DAYS)?;
    let key = key()?;
    let certificate = params.signed_by(&key, &authority).map_err(|error| error.to_string())?;
    write_all(&[
        (file(dir, name, "key"), key.serialize_pem(), 0o600),
        (file(dir, name, "pem"), certificate.pem(), 0o644),
    ])?;
    let (ca, pem, key) = (shown(dir, CA, "pem"), shown(dir, name, "pem"), shown(dir, name, "key"));
    let mut text = format!("# Made a certificate for {name} (until {until}).\n");
    let _ = write!(
        text,
        "\n\
         # In the [[listener]] of pondhawk.toml; then only clients with a certificate can connect:\n\
         tls_client_certificate = \"required\"\n\
         tls_client_ca = {ca:?}\n\
         \n\
         # To try it, with a host that the certificate of the server names:\n\
         # pondhawk pub --cafile {ca} --cert {pem} --key {key} -h HOST -p 8883 -t pond -m croak\n"
    );
    Ok(text)
}

/// A certificate that signs no others, and its last day.
fn leaf(
    name: &str,
    hosts: &[String],
    purpose: ExtendedKeyUsagePurpose,
    days: u32,
) -> Result<(CertificateParams, String), String> {
    let named = |error| format!("a host is a name such as broker.lan, or an address: {error}");
    let mut params = CertificateParams::new(hosts).map_err(named)?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![purpose];
    params.use_authority_key_identifier_extension = true;
    let until = limit(&mut params, days);
    Ok((params, until))
}

/// Whether clients can ask for this host. A name may begin with `*.`.
fn check_host(host: &str) -> Result<(), String> {
    let name = host.strip_prefix("*.").unwrap_or(host);
    let explain = |_| format!("`{host}` is neither the name of a host nor an address");
    rustls::pki_types::ServerName::try_from(name).map(drop).map_err(explain)
}

/// As much of a name as fits. The names that clients check are in another field.
fn short(name: &str) -> &str {
    // Room for the words before it. Names of hosts are ASCII.
    name.get(..NAME_BYTES_MAX - 24).unwrap_or(name)
}

/// Makes a certificate valid for this number of days. Returns the last day.
fn limit(params: &mut CertificateParams, days: u32) -> String {
    params.not_before = ASN1Time::now().to_datetime() - BEFORE;
    params.not_after = params.not_before + DAY * days;
    params.not_after.date().to_string()
}

fn key() -> Result<KeyPair, String> {
    KeyPair::generate().map_err(|error| error.to_string())
}

fn file(dir: &Path, name: &str, extension: &str) -> PathBuf {
    dir.join(format!("{name}.{extension}"))
}

fn shown(dir: &Path, name: &str, extension: &str) -> String {
    let path = file(dir, name, extension);
    fs::canonicalize(&path).unwrap_or(path).display().to_string()
}

/// Writes files that are not there yet: all of them, or none.
fn write_all(files: &[(PathBuf, String, u32)]) -> Result<(), String> {
    for (number, (path, text, mode)) in files.iter().enumerate() {
        if let Err(error) = write(path, text, *mode) {
            // The file that could not be made may be somebody's.
            let made = if error.kind() == io::ErrorKind::AlreadyExists { number } else { number + 1 };
            files[..made].iter().for_each(|(path, ..)| drop(fs::remove_file(path)));
            return Err(of_file(path, error));
        }
    }
    Ok(())
}

fn write(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut file: File = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
