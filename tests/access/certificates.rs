//! Certificates that take the place of user names and passwords.

use std::fs;

use client::{
    Client, ConnectError, Endpoint, Options as ClientOptions, Outgoing, Qos, TlsOptions, TopicName, Version,
};
use pondhawk_tests::{Broker, Options};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, DnValue, IsCa, KeyPair};
use tempfile::TempDir;

type Authority = CertifiedIssuer<'static, KeyPair>;

/// An authority, and a broker whose clients show certificates of it.
struct Server {
    broker: Broker,
    authority: Authority,
    _directory: TempDir,
}

impl Server {
    fn start(identity: &str, rules: &str) -> Self {
        Self::start_with(identity, "acl_file", rules)
    }

    /// A broker with rules in the file that this key names.
    fn start_with(identity: &str, key_of_rules: &str, rules: &str) -> Self {
        let directory = TempDir::new().expect("there is a place for temporary files");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key"));
        let authority = authority.expect("a certificate");
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(["localhost".to_owned()]).expect("a name");
        let certificate = params.signed_by(&key, &authority).expect("a certificate");
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            fs::write(&path, text).expect("a temporary file can be written");
            path
        };
        let tls = format!(
            "tls_certificate = {:?}\ntls_key = {:?}\ntls_client_ca = {:?}\ntls_client_certificate = \"optional\"\n\
             client_certificate_identity = \"{identity}\"\n",
            file("server.pem", &certificate.pem()),
            file("server.key", &key.serialize_pem()),
            file("ca.pem", &authority.pem()),
        );
        let listeners = ["127.0.0.1:0", "quic://127.0.0.1:0"]
            .map(|at| format!("[[listener]]\naddress = \"{at}\"\n{tls}"));
        let settings = format!("[auth]\n{key_of_rules} = {:?}\n{}", file("rules", rules), listeners.concat());
        let broker = Broker::start(&Options { settings, ..Options::default() });
        Self { broker, authority, _directory: directory }
    }

    /// Connects with a certificate of this subject, and a user name that says something else.
    async fn connect(&self, subject: &[(DnType, &str)]) -> Result<Client, ConnectError> {
        self.connect_with(&self.shows(subject)).await
    }

    /// A certificate of this subject.
    fn shows(&self, subject: &[(DnType, &str)]) -> TlsOptions {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, value) in subject {
            params.distinguished_name.push(kind.clone(), DnValue::Utf8String((*value).to_owned()));
        }
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.authority).expect("a certificate");
        self.trusting().client_certificate_pem(certificate.pem(), key.serialize_pem())
    }

    fn trusting(&self) -> TlsOptions {
        TlsOptions::new().root_pem(self.authority.pem())
    }

    async fn connect_with(&self, tls: &TlsOptions) -> Result<Client, ConnectError> {
        let port = self.broker.address().port();
        let endpoint = Endpoint::tcp("localhost", port).tls(tls.build().expect("all is there"));
        Self::log_in(endpoint).await
    }

    async fn connect_over_quic(&self, tls: &TlsOptions) -> Result<Client, ConnectError> {
        let port = self.broker.address_of("quic").port();
        let endpoint = Endpoint::tcp("localhost", port).quic(tls.build().expect("all is there"));
        Self::log_in(endpoint).await
    }

    async fn log_in(endpoint: Endpoint) -> Result<Client, ConnectError> {
        Client::connect_to(endpoint, ClientOptions::new(Version::V5).credentials("cat", Some(b"cat"))).await
    }

    fn refused(&self, count: usize) {
        let line = "its certificate has no user name";
        pondhawk_tests::until(line, || (self.broker.log_lines(line).len() >= count).then_some(()));
    }
}

async fn may_publish(client: &Client, topic: &str) -> bool {
    let topic = TopicName::new(topic).expect("a topic");
    let message = Outgoing::new(topic, b"x").qos(Qos::AtLeastOnce);
    client.publish(&message).await.expect("it is queued").await.is_ok()
}

#[tokio::test]
async fn the_common_name_is_the_user() {
    let server = Server::start("cn", "user ann\ntopic readwrite a\nuser cat\ntopic readwrite c\n");
    let ann = server.connect(&[(DnType::CommonName, "ann")]).await.expect("it is accepted");
    assert!(may_publish(&ann, "a").await && !may_publish(&ann, "c").await);
    server.connect(&[(DnType::OrganizationName, "Pond")]).await.expect_err("there is no common name");
    server.refused(1);
    server.connect(&[(DnType::CommonName, "ann\0x")]).await.expect_err("a NUL ends the name for others");
    server.refused(2);
    server.connect_with(&server.trusting()).await.expect_err("there is no certificate");
    server.refused(3);
}

#[tokio::test]
async fn the_common_name_is_the_user_over_quic_too() {
    let server = Server::start("cn", "user ann\ntopic readwrite a\nuser cat\ntopic readwrite c\n");
    let ann = server.shows(&[(DnType::CommonName, "ann")]);
    let ann = server.connect_over_quic(&ann).await.expect("it is accepted");
    assert!(may_publish(&ann, "a").await && !may_publish(&ann, "c").await);
    server.connect_over_quic(&server.trusting()).await.expect_err("there is no certificate");
    server.refused(1);
}

/// The name counts, and not its proof.
#[tokio::test]
async fn a_name_in_a_certificate_has_the_roles_of_its_user() {
    let rules = "[roles.device]\npublish = [\"d/%u\"]\n[roles.own]\npublish = [\"own\"]\n[every_user]\nroles = [\"device\"]\n\
                 [groups.g]\nroles = [\"own\"]\nusers = [\"ann\", \"cat\"]\n";
    let server = Server::start_with("cn", "rules_file", rules);
    let ann = server.connect(&[(DnType::CommonName, "ann")]).await.expect("it is accepted");
    assert!(may_publish(&ann, "d/ann").await && may_publish(&ann, "own").await);
    let bob = server.connect(&[(DnType::CommonName, "bob")]).await.expect("it is accepted");
    assert!(may_publish(&bob, "d/bob").await && !may_publish(&bob, "own").await);
    for name in ["+", "#", "d/ann", "%u"] {
        let client = server.connect(&[(DnType::CommonName, name)]).await.expect("it is accepted");
        assert!(!may_publish(&client, "d/ann").await && !may_publish(&client, "own").await, "{name}");
    }
}

#[tokio::test]
async fn the_subject_is_the_user() {
    let rules = "user CN=ann,O=Pond\\, Inc.\ntopic readwrite a\n";
    let server = Server::start("subject", rules);
    let names = [(DnType::OrganizationName, "Pond, Inc."), (DnType::CommonName, "ann")];
    let ann = server.connect(&names).await.expect("it is accepted");
    assert!(may_publish(&ann, "a").await);
    let other = server.connect(&[(DnType::CommonName, "ann")]).await.expect("it is accepted");
    assert!(!may_publish(&other, "a").await);
}
