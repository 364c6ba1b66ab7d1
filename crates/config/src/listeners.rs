//! Chooses the listeners: from the file, from the flags, or one on loopback. Checks which of them may be open.

use std::ops::Range;
use std::path::Path;

use crate::acme::Acme;
use crate::address::ListenAddress;
use crate::keys::{
    Auth, CertificateIdentity, ClientCertificate, Durability, Global, Listener, MqttVersion, Protocol,
    TlsVersion, UnixIdentity,
};
use crate::load::Flags;
use crate::reader::Reader;
use crate::report::Problem;
use crate::services::Vouchers;

/// The port that IANA assigns to MQTT.
const PORT: u16 = 1883;

/// Maximum number of listeners. Shards look at the rules of each when a client connects.
const LISTENERS_MAX: usize = 255;

/// The listeners. `loopback_by_default` says that neither file nor flags name one.
pub(crate) struct Listeners {
    pub(crate) list: Vec<Listener>,
    pub(crate) loopback_by_default: bool,
    /// Addresses that are not listened on, because there are no users.
    pub(crate) not_open: Vec<ListenAddress>,
}

/// The tables that listeners refer to.
#[derive(Clone, Copy)]
pub(crate) struct Tables<'a> {
    pub(crate) auth: &'a Auth,
    pub(crate) vouchers: Vouchers<'a>,
    pub(crate) acme: &'a Acme,
    /// The file with the certificate of `acme`, if there is a directory for it.
    pub(crate) acme_file: Option<&'a Path>,
}

/// Reads the listeners in the file. Flags override them.
pub(crate) fn read(
    top: &mut Reader<'_, '_>,
    global: &Global,
    tables: Tables<'_>,
    flags: &Flags,
) -> Listeners {
    let Tables { auth, vouchers, .. } = tables;
    let anonymous = if flags.allow_anonymous { Some(true) } else { global.allow_anonymous };
    let mut not_open = Vec::new();
    if has_two_kinds_of_rules(auth) {
        top.note(two_kinds_of_rules(top.span_of("auth")));
    }
    let mut list = of_file(top, (anonymous, tables), flags.allow_anonymous, &mut not_open);
    if !flags.listen.is_empty() {
        not_open.clear();
        list = of_flags(top, (anonymous, auth, vouchers), &flags.listen, &mut not_open);
    }
    let loopback_by_default = list.is_empty();
    if loopback_by_default {
        list = of_flags(top, (anonymous, auth, vouchers), &[ListenAddress::loopback(PORT)], &mut not_open);
    }
    if let Some(port) = flags.port {
        set_port(top, &mut list, port);
    }
    close(&mut list, &not_open);
    Listeners { list, loopback_by_default, not_open }
}

/// Puts the loopback address in the place of addresses that are not to be open, where that is another one.
fn close(list: &mut Vec<Listener>, not_open: &[ListenAddress]) {
    let is_to_close = |address: &ListenAddress| not_open.contains(address);
    let mut kept: Vec<ListenAddress> = list
        .iter()
        .map(|listener| listener.address.clone())
        .filter(|address| !is_to_close(address))
        .collect();
    list.retain_mut(|listener| {
        if !is_to_close(&listener.address) {
            return true;
        }
        let Some(loopback) = listener.address.on_loopback() else { return false };
        let is_other = loopback.is_any_port() || !kept.contains(&loopback);
        kept.push(loopback.clone());
        listener.address = loopback;
        listener.allow_anonymous = true;
        is_other
    });
}

fn of_file(
    top: &mut Reader<'_, '_>,
    (anonymous, tables): (Option<bool>, Tables<'_>),
    forced: bool,
    not_open: &mut Vec<ListenAddress>,
) -> Vec<Listener> {
    let Tables { auth, vouchers, acme, acme_file } = tables;
    let mut seen: Vec<ListenAddress> = Vec::new();
    let mut dynamic = None;
    let list = top.tables("listener", |table| {
        let mut listener = Listener::read(table, anonymous, auth, vouchers, acme_file);
        listener.allow_anonymous |= forced;
        if anonymous.is_none() && !table.has("allow_anonymous") && is_for_nobody(&listener) {
            not_open.push(listener.address.clone());
        }
        let span = table.span_of("address");
        if let Some(problem) = refuse(&listener, &seen, Some(span)) {
            table.note(problem);
        }
        if listener.acl_file.is_some() && listener.rules_file.is_some() && !has_two_kinds_of_rules(auth) {
            let key = if table.has("rules_file") { "rules_file" } else { "acl_file" };
            table.note(two_kinds_of_rules(table.span_of(key)));
        }
        for (key, title, advice) in
            refuse_network(&listener).into_iter().chain(acme.refuse(&listener, acme_file))
        {
            let problem = Problem::at(table.span_of(key), title.to_owned());
            table.note(problem.advice(advice));
        }
        if let Some((key, title, advice)) = refuse_tls(&listener) {
            let span = table.span_of(key);
            table.note(Problem::at(span, title).advice(advice));
        }
        for (key, title, advice) in refuse_vouchers(&listener, vouchers) {
            table.note(Problem::at(table.span_of(key), title.to_owned()).advice(advice));
        }
        if let Some(file) = &listener.dynamic_security_file
            && dynamic.get_or_insert_with(|| file.clone()) != file
        {
            let title = "another listener has another file of dynamic security".to_owned();
            let problem = Problem::at(table.span_of("dynamic_security_file"), title);
            table.note(
                problem.advice("commands have one topic: name the same file for all listeners that have one"),
            );
        }
        seen.push(listener.address.clone());
        listener
    });
    if acme.cannot_answer(&list) {
        let title = "the authority of [acme] cannot ask a listener over QUIC".to_owned();
        let problem = Problem::at(top.span_of("acme"), title);
        top.note(problem.advice("add `http_address` to [acme], or another listener with `tls_acme`"));
    }
    list
}

fn of_flags(
    top: &mut Reader<'_, '_>,
    (anonymous, auth, vouchers): (Option<bool>, &Auth, Vouchers<'_>),
    addresses: &[ListenAddress],
    not_open: &mut Vec<ListenAddress>,
) -> Vec<Listener> {
    // A listener from the flags has no place in the file. A problem points at the global `allow_anonymous`, if
    // present.
    let span = anonymous.is_some().then(|| top.span_of("allow_anonymous"));
    let listener = |(index, address): (usize, &ListenAddress)| {
        let listener = Listener {
            address: address.clone(),
            password_file: auth.password_file.clone(),
            acl_file: auth.acl_file.clone(),
            rules_file: auth.rules_file.clone(),
            dynamic_security_file: auth.dynamic_security_file.clone(),
            jwt: vouchers.jwt.has_keys(),
            http_auth: vouchers.http.url.is_some(),
            ldap: vouchers.ldap.url.is_some(),
            client_certificate_identity: CertificateIdentity::None,
            unix_identity: UnixIdentity::None,
            allow_anonymous: anonymous.unwrap_or_else(|| {
                let has_passwords = auth.password_file.is_some() || auth.dynamic_security_file.is_some();
                address.is_loopback() && !has_passwords && !vouchers.is_any()
            }),
            durability: Durability::Fsync,
            protocol: Protocol::Auto,
            tls_acme: false,
            tls_certificate: Vec::new(),
            tls_key: Vec::new(),
            tls_minimum: TlsVersion::V1_2,
            tls_optional: false,
            tls_client_certificate: ClientCertificate::Off,
            tls_client_ca: Vec::new(),
            tls_client_crl: Vec::new(),
            websocket_path: None,
            websocket_origins: Vec::new(),
            proxy_from: Vec::new(),
            quic_handshakes: 1000,
            quic_buffer_bytes: 256 * 1024,
            quic_streams: 8,
            interface: None,
            ipv6_only: true,
            unix_mode: 0o660,
            unix_owner: None,
            backlog: 4096,
            connection_rate: None,
            connection_rate_per_address: None,
            connections: None,
            protocol_versions: vec![MqttVersion::V3_1, MqttVersion::V3_1_1, MqttVersion::V5_0],
            max_qos: 2,
            retain_available: true,
            wildcard_subscriptions_available: true,
            empty_client_ids: true,
            mount_point: None,
        };
        if anonymous.is_none() && is_for_nobody(&listener) {
            not_open.push(address.clone());
        }
        if let Some(problem) = refuse(&listener, &addresses[..index], span.clone()) {
            top.note(problem);
        }
        listener
    };
    addresses.iter().enumerate().map(listener).collect()
}

fn set_port(top: &mut Reader<'_, '_>, listeners: &mut [Listener], port: u16) {
    match listeners {
        [only] => match only.address.with_port(port) {
            Some(address) => only.address = address,
            None => top.note(
                Problem::in_flags(
                    "--port is for a network, and the address of the listener has no port".to_owned(),
                )
                .advice("name the address with --listen HOST:PORT"),
            ),
        },
        many => {
            let title = format!("--port is for one listener, and there are {}", many.len());
            top.note(Problem::in_flags(title).advice("name every address with --listen HOST:PORT"));
        }
    }
}

fn has_two_kinds_of_rules(auth: &Auth) -> bool {
    auth.acl_file.is_some() && auth.rules_file.is_some()
}

/// The problem of rules in both languages, of which one would have no effect.
fn two_kinds_of_rules(span: Range<usize>) -> Problem {
    Problem::at(span, "there are both `acl_file` and `rules_file`".to_owned())
        .advice("name one of them; \"off\" for a listener leaves out the one of [auth]")
}

/// Whether a listener that other machines can reach has no users, refuses strangers, and could be on loopback instead.
fn is_for_nobody(listener: &Listener) -> bool {
    let address = &listener.address;
    !(listener.allow_anonymous || has_users(listener) || address.is_loopback()) && address.is_inet()
}

/// Whether clients can prove to a listener who they are.
pub(crate) fn has_users(listener: &Listener) -> bool {
    listener.password_file.is_some()
        || listener.dynamic_security_file.is_some()
        || listener.jwt
        || listener.http_auth
        || listener.ldap
        || listener.client_certificate_identity != CertificateIdentity::None
        || listener.unix_identity != UnixIdentity::None
}

/// Returns the problem of a listener, if there is one.
///
/// Two listeners cannot share an address, except with port 0, which is another port each time.
fn refuse(listener: &Listener, earlier: &[ListenAddress], span: Option<Range<usize>>) -> Option<Problem> {
    let address = &listener.address;
    let place = |title: String| match span {
        Some(span) => Problem::at(span, title),
        None => Problem::in_flags(title),
    };
    if earlier.len() == LISTENERS_MAX {
        return Some(place(format!("there are more than {LISTENERS_MAX} listeners")));
    }
    if !address.is_any_port() && earlier.contains(address) {
        return Some(place(format!("there are two listeners on {address}")));
    }
    if address.is_quic() && listener.tls_certificate.is_empty() {
        return Some(place(format!("{address} has no certificate, and QUIC is always encrypted")).advice(
            "name the server's certificate in `tls_certificate`, and its private key in `tls_key`; \
             `pondhawk certs init` makes both",
        ));
    }
    None
}

/// Returns who is to vouch for users and is not there: the key, the problem, and advice.
fn refuse_vouchers(
    listener: &Listener,
    vouchers: Vouchers<'_>,
) -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let Vouchers { jwt, http, ldap } = vouchers;
    let all = [
        (
            listener.jwt && !jwt.has_keys(),
            "jwt",
            "there are no keys to check tokens",
            "add key_file or keys_url to [jwt]",
        ),
        (
            listener.http_auth && http.url.is_none(),
            "http_auth",
            "there is no service to ask",
            "add url to [http_auth]",
        ),
        (listener.ldap && ldap.url.is_none(), "ldap", "there is no directory to ask", "add url to [ldap]"),
    ];
    all.into_iter().filter(|(is_missing, ..)| *is_missing).map(|(_, key, title, advice)| (key, title, advice))
}

/// Returns what does not fit the kind of address: the key, the problem, and advice.
fn refuse_network(listener: &Listener) -> Option<(&'static str, &'static str, &'static str)> {
    let address = &listener.address;
    if address.is_unix() && !listener.proxy_from.is_empty() {
        let title = "a socket of this machine has no network to connect from";
        return Some(("proxy_from", title, "leave `proxy_from` out, or listen on an address"));
    }
    if listener.unix_identity != UnixIdentity::None {
        if !address.may_be_unix() {
            let title = "the system knows the processes at a Unix socket only";
            let advice =
                "leave `unix_identity` out, or listen on a Unix socket such as `unix:/run/pondhawk.sock`";
            return Some(("unix_identity", title, advice));
        }
        if listener.client_certificate_identity != CertificateIdentity::None {
            let title = "the client's certificate says who the user is already";
            let advice = "leave out either `unix_identity` or `client_certificate_identity`";
            return Some(("unix_identity", title, advice));
        }
    }
    if listener.interface.is_some() && !address.is_inet() {
        let title = "the broker chooses the interface of a host and a port only";
        return Some(("interface", title, "leave `interface` out; systemd has `BindToDevice=`"));
    }
    if address.is_quic() {
        return refuse_for_quic(listener);
    }
    refuse_ipv6_only(listener)
}

fn refuse_ipv6_only(listener: &Listener) -> Option<(&'static str, &'static str, &'static str)> {
    if listener.ipv6_only || listener.address.may_be_ipv6() {
        return None;
    }
    let title = "the address is not of IPv6";
    Some(("ipv6_only", title, "listen on `[::]:1883` for both, or leave `ipv6_only` out"))
}

/// Returns what is for TCP only, as [`refuse_network`] does.
fn refuse_for_quic(listener: &Listener) -> Option<(&'static str, &'static str, &'static str)> {
    if listener.protocol == Protocol::WebSocket {
        return Some(("protocol", "there is no WebSocket inside of QUIC", "leave `protocol` out"));
    }
    if listener.websocket_path.is_some() {
        let title = "there is no WebSocket inside of QUIC";
        return Some(("websocket_path", title, "leave `websocket_path` out"));
    }
    if !listener.websocket_origins.is_empty() {
        let title = "there is no WebSocket inside of QUIC";
        return Some(("websocket_origins", title, "leave `websocket_origins` out"));
    }
    if !listener.proxy_from.is_empty() {
        let title = "load balancers send no PROXY header in QUIC";
        return Some(("proxy_from", title, "leave `proxy_from` out, or listen with TCP"));
    }
    if listener.tls_optional {
        return Some(("tls_optional", "QUIC is always encrypted", "leave `tls_optional` out"));
    }
    refuse_ipv6_only(listener)
}

/// Returns what does not fit together in the keys about TLS: the key, the problem, and advice.
fn refuse_tls(listener: &Listener) -> Option<(&'static str, String, &'static str)> {
    let (certificates, keys) = (listener.tls_certificate.len(), listener.tls_key.len());
    if certificates != keys {
        let title = format!("there are {certificates} certificates and {keys} private keys");
        let key = if certificates > keys { "tls_certificate" } else { "tls_key" };
        return Some((
            key,
            title,
            "name one file in `tls_key` for each file in `tls_certificate`, in the same order",
        ));
    }
    let asks = listener.tls_client_certificate != ClientCertificate::Off;
    if !asks && listener.client_certificate_identity != CertificateIdentity::None {
        let title = "clients are not asked for certificates, which would have their names".to_owned();
        let advice = "add `tls_client_certificate = \"required\"`";
        return Some(("client_certificate_identity", title, advice));
    }
    if certificates == 0 {
        let server = "name the server's certificate in `tls_certificate`, and its private key in `tls_key`";
        if asks {
            return Some(("tls_client_certificate", "client certificates need TLS".to_owned(), server));
        }
        if listener.tls_optional {
            return Some(("tls_optional", "there is no TLS on this listener".to_owned(), server));
        }
    }
    if listener.tls_optional && listener.tls_client_certificate == ClientCertificate::Required {
        let title = "clients without TLS could connect without a certificate".to_owned();
        return Some(("tls_optional", title, "leave `tls_optional` out, or use another listener for them"));
    }
    if asks && listener.tls_client_ca.is_empty() {
        let title = "nothing says which client certificates to accept".to_owned();
        return Some((
            "tls_client_certificate",
            title,
            "name the authorities' certificates in `tls_client_ca`",
        ));
    }
    let names_authorities = !listener.tls_client_ca.is_empty() || !listener.tls_client_crl.is_empty();
    if !asks && names_authorities {
        let key = if listener.tls_client_ca.is_empty() { "tls_client_crl" } else { "tls_client_ca" };
        let title = "clients are not asked for certificates".to_owned();
        return Some((key, title, "add `tls_client_certificate = \"required\"` or `\"optional\"`"));
    }
    None
}
