//! Certificates that are replaced while the broker runs.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use client::{Client, ConnectError, Endpoint, Options, Outgoing, Qos, TlsOptions, Version, filter, topic};
use pondhawk_tests::{Broker, Options as BrokerOptions, until};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType, IsCa,
    KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber,
};
use tempfile::TempDir;

use crate::place::{deliver, expect};

/// The log says this once for each replacement.
const IN_USE: &str = "new certificates are in use";
const REFUSED: &str = "the new certificates are refused";
const DAY: Duration = Duration::from_secs(86_400);

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("a certificate")
}

/// A certificate of this authority and its key, in PEM.
fn issue(authority: &Authority, host: &str, change: impl FnOnce(&mut CertificateParams)) -> [String; 2] {
    let mut params = CertificateParams::new([host.to_owned()]).expect("a name");
    change(&mut params);
    let key = KeyPair::generate().expect("a key");
    [params.signed_by(&key, authority).expect("a certificate").pem(), key.serialize_pem()]
}

/// Replaces a file at once, as programs that renew certificates do.
fn replace(directory: &Path, name: &str, text: &str) {
    let new = directory.join("new");
    fs::write(&new, text).expect("a temporary file can be written");
    fs::rename(new, directory.join(name)).expect("it can be renamed");
}

/// A list of revoked certificates in PEM, which names its next update.
fn list(authority: &Authority, next_update: SystemTime, revoked_certs: Vec<RevokedCertParams>) -> String {
    let params = CertificateRevocationListParams {
        this_update: (next_update - 2 * DAY).into(),
        next_update: next_update.into(),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs,
        key_identifier_method: KeyIdMethod::Sha256,
    };
    params.signed_by(authority).expect("a list").pem().expect("it is text")
}

/// A broker with a listener for TLS.
struct Server {
    broker: Broker,
    directory: TempDir,
}

impl Server {
    fn start([certificate, key]: [String; 2], keys: impl FnOnce(&Path) -> String) -> Self {
        let directory = TempDir::new().expect("there is a place for temporary files");
        replace(directory.path(), "server.pem", &certificate);
        replace(directory.path(), "server.key", &key);
        let file = |name: &str| directory.path().join(name).display().to_string();
        let settings = format!(
            "[sys]\ninterval = \"1s\"\n[[listener]]\naddress = \"127.0.0.1:0\"\ntls_certificate = {:?}\ntls_key = {:?}\n{}",
            file("server.pem"),
            file("server.key"),
            keys(directory.path())
        );
        let broker = Broker::start(&BrokerOptions { settings, ..BrokerOptions::default() });
        Self { broker, directory }
    }

    fn replace(&self, [certificate, key]: [String; 2]) {
        replace(self.directory.path(), "server.pem", &certificate);
        replace(self.directory.path(), "server.key", &key);
    }

    /// Waits until the log has this text this number of times.
    fn wait_for(&self, line: &str, count: usize) {
        until(line, || (self.broker.log_lines(line).len() >= count).then_some(()));
    }

    fn endpoint(&self, tls: &TlsOptions) -> Endpoint {
        let port = self.broker.address().port();
        Endpoint::tcp("localhost", port).tls(tls.build().expect("all is there"))
    }

    async fn connect(&self, tls: &TlsOptions) -> Result<Client, ConnectError> {
        Client::connect_to(self.endpoint(tls), Options::new(Version::V5)).await
    }
}

fn trusting(authority: &Authority) -> TlsOptions {
    TlsOptions::new().root_pem(authority.pem())
}

/// Connects again and again, until it is told to end. Returns how many handshakes were made.
fn shake_hands(endpoint: &Endpoint, is_over: &AtomicBool) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut count = 0;
    while !is_over.load(Ordering::Relaxed) {
        let client = Client::connect_to(endpoint.clone(), Options::new(Version::V5));
        let client = runtime.block_on(client).expect("no handshake fails");
        runtime.block_on(client.disconnect()).expect("it is connected");
        count += 1;
    }
    count
}

#[tokio::test]
async fn certificates_are_replaced_under_connections_without_a_failed_handshake() {
    let mut authorities = vec![authority()];
    let server = Server::start(issue(&authorities[0], "localhost", |_| ()), |_| String::new());
    let staying = server.connect(&trusting(&authorities[0])).await.expect("it is accepted");
    let mut heard = staying.subscribe(filter!("pond"), Qos::AtLeastOnce).await.expect("granted");
    let is_over = Arc::new(AtomicBool::new(false));
    let anyone = server.endpoint(&TlsOptions::new().dangerously_accept_any_certificate());
    let shaking = {
        let is_over = Arc::clone(&is_over);
        thread::spawn(move || shake_hands(&anyone, &is_over))
    };
    for count in 1..=30 {
        authorities.push(authority());
        server.replace(issue(&authorities[count], "localhost", |_| ()));
        server.broker.hang_up();
        server.wait_for(IN_USE, count);
        let next =
            server.connect(&trusting(&authorities[count])).await.expect("the new certificate is in use");
        next.disconnect().await.expect("it is connected");
        server.connect(&trusting(&authorities[count - 1])).await.expect_err("the old one is not");
        deliver(&staying, &Outgoing::new(topic!("pond"), b"still here").qos(Qos::AtLeastOnce)).await;
        drop(expect(&mut heard, topic!("pond"), b"still here").await);
    }
    is_over.store(true, Ordering::Relaxed);
    assert!(shaking.join().expect("every handshake succeeds") > 0);
    assert!(server.broker.log_lines(REFUSED).is_empty());
}

#[tokio::test]
async fn files_that_change_are_read_without_a_signal() {
    let [old, new] = [authority(), authority()];
    let server = Server::start(issue(&old, "localhost", |_| ()), |_| String::new());
    server.replace(issue(&new, "localhost", |_| ()));
    server.wait_for(IN_USE, 1);
    server.connect(&trusting(&new)).await.expect("the new certificate is in use");
}

#[tokio::test]
async fn files_that_do_not_fit_together_leave_the_earlier_ones_in_use() {
    let authority = authority();
    let server = Server::start(issue(&authority, "localhost", |_| ()), |_| String::new());
    let [_, other_key] = issue(&authority, "localhost", |_| ());
    let rows = [
        ("server.key", other_key.as_str(), "the private key does not belong to the certificate"),
        ("server.key", "nothing", "the file has no private key in PEM"),
        ("server.pem", "", "the file has no certificate in PEM"),
    ];
    for (count, (name, text, why)) in rows.into_iter().enumerate() {
        replace(server.directory.path(), name, text);
        server.broker.hang_up();
        server.wait_for(REFUSED, count + 1);
        server.broker.wait_for_log(why);
        server.connect(&trusting(&authority)).await.expect("the earlier certificate is in use");
    }
    let client = server.connect(&trusting(&authority)).await.expect("it is accepted");
    let mut told = client
        .subscribe(filter!("$SYS/broker/certificates/refused"), Qos::AtMostOnce)
        .await
        .expect("granted");
    while told.next().await.expect("it is told").payload() != b"3" {}
}

#[tokio::test]
async fn a_certificate_that_expires_soon_is_told() {
    let authority = authority();
    let soon =
        |params: &mut CertificateParams| params.not_after = (SystemTime::now() + 5 * DAY + DAY / 2).into();
    let server = Server::start(issue(&authority, "localhost", soon), |_| String::new());
    let line = server.broker.wait_for_log("a certificate expires soon");
    assert!(line.contains("server.pem") && line.contains("days=5"), "{line}");
    let client = server.connect(&trusting(&authority)).await.expect("it is accepted");
    let topic = filter!("$SYS/broker/certificates/expire_in_7_days");
    let mut told = client.subscribe(topic, Qos::AtMostOnce).await.expect("granted");
    assert_eq!(told.next().await.expect("it is told").payload(), b"1");
    server.replace(issue(&authority, "localhost", |_| ()));
    server.broker.hang_up();
    while told.next().await.expect("it is told").payload() != b"0" {}
}

/// A session that was opened before cannot be resumed either.
#[tokio::test]
async fn a_certificate_that_is_revoked_is_refused_from_the_next_handshake_on() {
    let authority = authority();
    let list = |revoked: Vec<RevokedCertParams>| list(&authority, SystemTime::now() + DAY, revoked);
    let server = Server::start(issue(&authority, "localhost", |_| ()), |directory| {
        replace(directory, "ca.pem", &authority.pem());
        replace(directory, "devices.crl", &list(Vec::new()));
        let file = |name: &str| directory.join(name).display().to_string();
        format!(
            "tls_client_certificate = \"required\"\ntls_client_ca = {:?}\ntls_client_crl = {:?}\n",
            file("ca.pem"),
            file("devices.crl")
        )
    });
    let serial = SerialNumber::from(7);
    let [certificate, key] = issue(&authority, "frog", |params| params.serial_number = Some(serial.clone()));
    let tls = trusting(&authority).client_certificate_pem(certificate, key);
    let endpoint = server.endpoint(&tls);
    let connect = || Client::connect_to(endpoint.clone(), Options::new(Version::V5));
    connect().await.expect("it is not revoked").disconnect().await.expect("it is connected");
    let revoked = RevokedCertParams {
        serial_number: serial.clone(),
        revocation_time: SystemTime::now().into(),
        reason_code: None,
        invalidity_date: None,
    };
    replace(server.directory.path(), "devices.crl", &list(vec![revoked]));
    server.broker.hang_up();
    server.wait_for(IN_USE, 1);
    connect().await.expect_err("it is revoked");
}

/// Mosquitto refuses these clients too.
#[tokio::test]
async fn with_lists_a_client_needs_a_current_list_of_its_authority() {
    let named = |name: &str| {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, name);
        CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("a certificate")
    };
    let (listed, unlisted) = (named("with a list"), named("without a list"));
    let server = Server::start(issue(&listed, "localhost", |_| ()), |directory| {
        replace(directory, "ca.pem", &(listed.pem() + &unlisted.pem()));
        replace(directory, "devices.crl", &list(&listed, SystemTime::now() + DAY, Vec::new()));
        let file = |name: &str| directory.join(name).display().to_string();
        format!(
            "tls_client_certificate = \"required\"\ntls_client_ca = {:?}\ntls_client_crl = {:?}\n",
            file("ca.pem"),
            file("devices.crl")
        )
    });
    let tls = |authority| {
        let [certificate, key] = issue(authority, "frog", |_| ());
        trusting(&listed).client_certificate_pem(certificate, key)
    };
    let client = server.connect(&tls(&listed)).await.expect("there is a list");
    client.disconnect().await.expect("it is connected");
    server.connect(&tls(&unlisted)).await.expect_err("there is no list");
    server.wait_for("UnknownRevocationStatus", 1);
    replace(server.directory.path(), "devices.crl", &list(&listed, SystemTime::now() - DAY, Vec::new()));
    server.broker.hang_up();
    server.wait_for(IN_USE, 1);
    server.connect(&tls(&listed)).await.expect_err("the list has expired");
    server.wait_for("revocation list expired", 1);
}

/// A client that resumes a session shows no certificate.
#[tokio::test]
async fn a_session_is_not_resumed_when_the_certificate_of_its_client_has_expired() {
    let authority = authority();
    let server = Server::start(issue(&authority, "localhost", |_| ()), |directory| {
        replace(directory, "ca.pem", &authority.pem());
        let ca = directory.join("ca.pem");
        format!("tls_client_certificate = \"required\"\ntls_client_ca = {ca:?}\n")
    });
    let expiry = SystemTime::now() + Duration::from_secs(3);
    let soon = |params: &mut CertificateParams| params.not_after = expiry.into();
    let [certificate, key] = issue(&authority, "frog", soon);
    let tls = trusting(&authority).client_certificate_pem(certificate, key);
    // Clients of one endpoint share its sessions.
    let resuming = server.endpoint(&tls);
    let connect = |endpoint: Endpoint| Client::connect_to(endpoint, Options::new(Version::V5));
    for _ in 0..2 {
        let client = connect(resuming.clone()).await.expect("it is valid");
        client.disconnect().await.expect("it is connected");
    }
    // A certificate names whole seconds, and is valid in the last of them.
    let over = expiry + Duration::from_secs(1);
    until("the certificate expires", || (SystemTime::now() > over).then_some(()));
    connect(server.endpoint(&tls)).await.expect_err("it has expired");
    server.wait_for("certificate expired", 1);
    connect(resuming).await.expect_err("it has expired");
    server.wait_for("certificate expired", 2);
}
