//! The keys of the table `[admin]`: the server for operators.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::address::ListenAddress;
use crate::keys::{Auth, ClientCertificate, KIB, Listener, MIB, PACKET_BYTES_MAX, TlsVersion};
use crate::kind::{Absent, Address, Choice, Count, HostName, ListOf, OrOff, Path, Size, Time, Words};
use crate::named::NamesWith;
use crate::reader::Reader;
use crate::report::Problem;
use crate::schema::keys;
use crate::services::Vouchers;

/// The rights of an operator. Each role has those of the roles before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OperatorRole {
    /// May look at everything.
    Viewer,
    /// May also publish, clear retained messages, and disconnect clients.
    Operator,
    /// May also do everything else.
    Admin,
}

impl Words for OperatorRole {
    const WORDS: &'static [(&'static str, Self)] =
        &[("viewer", Self::Viewer), ("operator", Self::Operator), ("admin", Self::Admin)];
}

keys! {
    /// The HTTP server for operators: health, metrics, and the API. One thread serves it, beside those that carry messages.
    /// Without `address` there is no such server. docs/OPERATIONS.md shows its use.
    pub struct Admin = "[admin]", applies Restart, given() {
        /// The host and port of the server, such as `127.0.0.1:9883`. On a loopback address, a token of an admin is made if no
        /// `admin_token_file` is given. It is kept in `data_dir`, and without `data_dir` it is printed at each start. Another address needs
        /// an admin in `admin_token_file`, `users` or `certificates`, because other machines reach it.
        address: Option<ListenAddress> { kind: OrOff<Address>, default: None }
        /// The file with the tokens of people and programs that may look at everything, one on a line. A token has at least 16
        /// characters. The name of its holder may follow behind a blank: all who may look at the log can read the name. Lines that
        /// begin with `#` are comments.
        viewer_token_file: Option<PathBuf> { kind: Absent<Path>, default: None }
        /// The file with the tokens that may also publish, clear retained messages, and disconnect clients. Each change in the log
        /// has the name behind the token.
        operator_token_file: Option<PathBuf> { kind: Absent<Path>, default: None }
        /// The file with the tokens that may also end sessions and reload the configuration.
        admin_token_file: Option<PathBuf> { kind: Absent<Path>, default: None }
        /// The files with the certificates of the server in PEM, each with those of its authorities. With them the server speaks
        /// TLS and nothing else. The files are read again when they change. Without them it does not encrypt, and passwords are
        /// accepted on loopback addresses only.
        tls_certificate: Vec<PathBuf> { kind: ListOf<Path>, default: Vec::new() }
        /// The files with the private keys of `tls_certificate`, in the same order.
        tls_key: Vec<PathBuf> { kind: ListOf<Path>, default: Vec::new() }
        /// The lowest version of TLS that the server speaks.
        tls_minimum: TlsVersion { kind: Choice<TlsVersion>, default: TlsVersion::V1_2 }
        /// The most handshakes of TLS in a second. Further connections wait until they are accepted, and
        /// `pondhawk_admin_handshakes_delayed_total` counts them: a flood of them leaves the processor to clients of MQTT. A
        /// handshake that is not over within `request_timeout` is ended.
        tls_handshakes: u32 { kind: Count<u32>, default: 200, bounds: 1..=100_000 }
        /// Whether operators show a certificate. With `"optional"` they may. One that no authority in `tls_client_ca` has signed
        /// ends the connection.
        tls_client_certificate: ClientCertificate { kind: Choice<ClientCertificate>, default: ClientCertificate::Off }
        /// The files with the certificates of the authorities that sign those of operators.
        tls_client_ca: Vec<PathBuf> { kind: ListOf<Path>, default: Vec::new() }
        /// The files with the lists of certificates that these authorities have revoked.
        tls_client_crl: Vec<PathBuf> { kind: ListOf<Path>, default: Vec::new() }
        /// The operators with certificates: the common name of each, with the role of its holder, such as
        /// `{ "ops-laptop" = "admin" }`. A certificate that is not named here opens the connection, and gives no right.
        certificates: BTreeMap<String, OperatorRole> {
            kind: NamesWith<Choice<OperatorRole>>, default: BTreeMap::new(), applies: Reload,
        }
        /// The operators with passwords: their names with their roles, such as `{ anna = "operator" }`. Their passwords are those
        /// of MQTT clients: in the sources of `[auth]`, `[jwt]`, `[http_auth]` and `[ldap]`, which at least one listener must have.
        /// A user who is not named here has no right. An address that is no loopback address needs `tls_certificate`.
        users: BTreeMap<String, OperatorRole> {
            kind: NamesWith<Choice<OperatorRole>>, default: BTreeMap::new(), applies: Reload,
        }
        /// The time after a login with a password on the dashboard, until the operator must log in again. A session ends earlier when
        /// the user is removed or has another password, but for users of `[http_auth]` and `[ldap]`, who are not asked for again.
        /// One user has at most 16 sessions, and all users 1,024: the oldest gives way.
        session_time: Duration {
            kind: Time, default: Duration::from_secs(43_200),
            bounds: Duration::from_secs(60)..=Duration::from_secs(2_592_000),
        }
        /// The names under which browsers and programs reach the server, beside its address and `localhost`. A request for
        /// another host is refused, because a foreign web page may have made it.
        hosts: Vec<String> { kind: ListOf<HostName>, default: Vec::new() }
        /// The most connections to the server at a time. For another one, the oldest connection is closed that has not sent a right
        /// token. If all have, the new one is closed. `pondhawk_admin_refused_total{reason="connections"}` counts both.
        connections: u32 { kind: Count<u32>, default: 64, bounds: 1..=10_000 }
        /// The largest body of a request. A larger one is refused, and counted as `pondhawk_admin_refused_total{reason="body"}`.
        body_bytes: u32 { kind: Size<u32>, default: MIB, bounds: KIB..=PACKET_BYTES_MAX }
        /// The most bans. A further one is refused, and counted as `pondhawk_admin_refused_total{reason="bans"}`.
        bans: u32 { kind: Count<u32>, default: 10_000, bounds: 0..=100_000 }
        /// The most clients whose last messages are recorded at a time, because an operator asks for their outcomes. The record of a
        /// further one is refused, and counted as `pondhawk_admin_refused_total{reason="recordings"}`.
        recorded_clients: u32 { kind: Count<u32>, default: 16, bounds: 0..=256 }
        /// The number of the last messages in such a record, in each thread, with 512 bytes of memory for each. Older ones are
        /// forgotten.
        recorded_messages: u32 { kind: Count<u32>, default: 256, bounds: 1..=10_000 }
        /// The size of the last lines of the log that operators can read through the server. Older lines are only where `[log] to`
        /// writes them.
        recent_log_bytes: u32 { kind: Size<u32>, default: 256 * KIB, bounds: 0..=16 * MIB }
        /// The number of the last changes by operators that the server lists, with up to 4 KiB of memory for each. The log has each
        /// change too.
        recent_changes: u32 { kind: Count<u32>, default: 500, bounds: 0..=10_000 }
        /// The file with all changes by operators, one line of JSON for each. A change is answered when its record is on disk, or
        /// after five seconds. If the record cannot be written, the change is made all the same, and `/readyz` has a warning. At
        /// the start, the list begins with the last records of the file.
        audit_file: Option<PathBuf> { kind: Absent<Path>, default: None }
        /// The size from which on a new file begins. The earlier one gets `.1` behind its name, and older ones higher numbers.
        audit_file_bytes: u64 { kind: Size<u64>, default: 16 << 20, bounds: (64 << 10)..=(1 << 40) }
        /// The most files of `audit_file`, the newest included. Older ones are removed.
        audit_files: u32 { kind: Count<u32>, default: 5, bounds: 2..=1_000 }
        /// The directory below which backups of the journal are made that operators order. Each gets a directory of its own. Without
        /// this key, the server makes no backups.
        backup_dir: Option<PathBuf> { kind: Absent<Path>, default: None }
        /// The time that a client has for each request, and for each response. Then its connection is closed, and counted as
        /// `pondhawk_admin_refused_total{reason="slow"}`.
        request_timeout: Duration {
            kind: Time, default: Duration::from_secs(10),
            bounds: Duration::from_millis(100)..=Duration::from_secs(3_600),
        }
    }
}

impl Admin {
    /// Reads the table. An address that other machines reach needs operators whom somebody has chosen, and passwords cross no
    /// network in plain text. `has_sources` says whether passwords of operators can be judged.
    pub(crate) fn read_whole(table: &mut Reader<'_, '_>, has_sources: bool) -> Self {
        let read = Self::read(table);
        let found = read.problem_of_address().or_else(|| read.problem_of_tls()).or_else(|| {
            let title = "there are no passwords to compare with those of operators".to_owned();
            let advice = "name users in [auth], [jwt], [http_auth] or [ldap], for at least one listener with \
                          the same sources";
            (!read.users.is_empty() && !has_sources).then_some(("users", title, advice))
        });
        if let Some((key, title, advice)) = found {
            let problem = Problem::at(table.span_of(key), title);
            table.note(problem.advice(advice));
        }
        read
    }

    /// Whether the server speaks TLS.
    #[must_use]
    pub fn has_tls(&self) -> bool {
        !self.tls_certificate.is_empty()
    }

    /// Whether somebody whom the configuration names has all rights.
    #[must_use]
    pub fn names_an_admin(&self) -> bool {
        let mut roles = self.users.values().chain(self.certificates.values());
        self.admin_token_file.is_some() || roles.any(|role| *role == OperatorRole::Admin)
    }

    /// Whether passwords of operators cross a network in plain text.
    pub(crate) fn has_open_passwords(&self) -> bool {
        let is_remote = self.address.as_ref().is_some_and(|address| !address.is_loopback());
        is_remote && !self.users.is_empty() && !self.has_tls()
    }

    fn problem_of_address(&self) -> Option<(&'static str, String, &'static str)> {
        let address = self.address.as_ref()?;
        if !address.is_inet() || address.is_quic() {
            let title = "address of [admin] is no host and port of TCP".to_owned();
            return Some(("address", title, "use \"127.0.0.1:9883\""));
        }
        if address.is_loopback() {
            return None;
        }
        if !self.names_an_admin() {
            let title = "other machines reach the address of [admin], and there is no admin".to_owned();
            let advice =
                "add admin_token_file, name an admin in `users` or `certificates`, or use \"127.0.0.1:9883\"";
            return Some(("address", title, advice));
        }
        let title = "passwords of operators would cross the network in plain text".to_owned();
        let advice = "add tls_certificate and tls_key to [admin], or use \"127.0.0.1:9883\"";
        self.has_open_passwords().then_some(("users", title, advice))
    }

    fn problem_of_tls(&self) -> Option<(&'static str, String, &'static str)> {
        let (certificates, keys) = (self.tls_certificate.len(), self.tls_key.len());
        if certificates != keys {
            let title = format!("there are {certificates} certificates and {keys} private keys");
            let key = if certificates > keys { "tls_certificate" } else { "tls_key" };
            let advice = "name one file in `tls_key` for each file in `tls_certificate`, in the same order";
            return Some((key, title, advice));
        }
        let asks = self.tls_client_certificate != ClientCertificate::Off;
        if asks && certificates == 0 {
            let advice =
                "name the server's certificate in `tls_certificate`, and its private key in `tls_key`";
            return Some(("tls_client_certificate", "client certificates need TLS".to_owned(), advice));
        }
        if asks && self.tls_client_ca.is_empty() {
            let title = "nothing says which client certificates to accept".to_owned();
            let advice = "name the authorities' certificates in `tls_client_ca`";
            return Some(("tls_client_certificate", title, advice));
        }
        let unasked = [
            ("tls_client_ca", !self.tls_client_ca.is_empty()),
            ("tls_client_crl", !self.tls_client_crl.is_empty()),
            ("certificates", !self.certificates.is_empty()),
        ];
        let (key, _) = unasked.into_iter().find(|(_, is_set)| !asks && *is_set)?;
        let title = "operators are not asked for certificates".to_owned();
        Some((key, title, "add `tls_client_certificate = \"required\"` or `\"optional\"`"))
    }
}

/// The first listener whose users are those of `[auth]`, `[jwt]`, `[http_auth]` and `[ldap]`, if there are any. Passwords of
/// operators are judged as its passwords are.
pub(crate) fn listener_of_operators(
    listeners: &[Listener],
    auth: &Auth,
    vouchers: Vouchers<'_>,
) -> Option<usize> {
    let Vouchers { jwt, http, ldap } = vouchers;
    let wanted = (
        &auth.password_file,
        &auth.dynamic_security_file,
        (jwt.has_keys(), http.url.is_some(), ldap.url.is_some()),
    );
    let has_same = |listener: &Listener| {
        let Listener { password_file, dynamic_security_file, jwt, http_auth, ldap, .. } = listener;
        (password_file, dynamic_security_file, (*jwt, *http_auth, *ldap)) == wanted
    };
    let is_any = auth.password_file.is_some() || auth.dynamic_security_file.is_some() || vouchers.is_any();
    listeners.iter().position(has_same).filter(|_| is_any)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Flags, Machine, Sources};

    fn parse(admin: &str) -> Result<Config, String> {
        let text = format!("[auth]\npassword_file = \"users\"\n{admin}");
        let machine = Machine { cores: 1, memory_bytes: 1 << 30, open_files: 1_024, state_dir: "/s".into() };
        Config::parse(&Sources::of("pond.toml", &text), &Flags::default(), &machine)
            .map_err(|report| report.render(false))
    }

    #[test]
    fn operators_are_named_with_their_roles() {
        let rules = "[admin]\naddress = \"0.0.0.0:9883\"\ntls_certificate = \"a\"\ntls_key = \"b\"\n\
                     tls_client_certificate = \"optional\"\ntls_client_ca = \"c\"\n\
                     users = { anna = \"operator\", \"b:c\" = \"viewer\" }\n[admin.certificates]\nops = \"admin\"\n";
        let config = parse(rules).unwrap();
        let users: Vec<_> = config.admin.users.iter().map(|(name, role)| (&**name, *role)).collect();
        assert_eq!(users, [("anna", OperatorRole::Operator), ("b:c", OperatorRole::Viewer)]);
        assert_eq!(config.admin.certificates["ops"], OperatorRole::Admin);
        assert_eq!(config.listener_of_operators(), Some(0));
        let again = config.to_toml();
        assert!(again.contains("users = { \"anna\" = \"operator\", \"b:c\" = \"viewer\" }"), "{again}");
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        const TLS: &str = "tls_certificate = \"a\"\ntls_key = \"b\"\n";
        let rows = [
            ("address = \"0.0.0.0:9883\"\n".to_owned(), "there is no admin"),
            ("address = \"0.0.0.0:9883\"\nusers = { a = \"viewer\" }\n".to_owned(), "there is no admin"),
            ("address = \"0.0.0.0:9883\"\nusers = { a = \"admin\" }\n".to_owned(), "in plain text"),
            ("users = { a = \"boss\" }\n".to_owned(), "cannot be `boss`"),
            ("users = { \"\" = \"admin\" }\n".to_owned(), "is no name"),
            ("users = \"a\"\n".to_owned(), "cannot be a string"),
            ("tls_certificate = \"a\"\n".to_owned(), "1 certificates and 0 private keys"),
            ("tls_client_certificate = \"required\"\n".to_owned(), "need TLS"),
            (format!("{TLS}tls_client_certificate = \"required\"\n"), "which client certificates"),
            (format!("{TLS}tls_client_ca = \"c\"\n"), "not asked"),
            (format!("{TLS}certificates = {{ a = \"admin\" }}\n"), "not asked"),
        ];
        for (rules, expected) in rows {
            let report = parse(&format!("[admin]\n{rules}")).unwrap_err();
            assert!(report.contains(expected), "{rules}\n{report}");
        }
        let of_no_listener = "[[listener]]\naddress = \"127.0.0.1:1883\"\npassword_file = \"other\"\n\
                              [admin]\nusers = { a = \"admin\" }\n";
        assert!(parse(of_no_listener).unwrap_err().contains("no passwords to compare"));
        let on_loopback = "[admin]\naddress = \"127.0.0.1:9883\"\nusers = { a = \"admin\" }\n";
        assert!(parse(on_loopback).is_ok());
    }
}
