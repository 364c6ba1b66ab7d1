//! Listeners: addresses, protocols and limits.

use std::net::IpAddr;

use crate::model::{At, Given, Listener};
use crate::output::{Output, Table};

use super::{World, access, is_of, tls};

/// A listener that is opened, at one or more addresses.
pub(super) struct Site<'a> {
    /// The number among the `listener` lines. `None` for the default listener.
    pub(super) number: Option<usize>,
    pub(super) listener: &'a Listener,
    /// The lines that say where it listens.
    lines: Vec<&'a Given>,
    /// The values of our key `address`, and whether one is for IPv4 too.
    addresses: Vec<(String, bool)>,
}

const PORT: u16 = 1883;

/// Options that make the default listener open its port, if there are other listeners.
const OPENS: [&str; 20] = [
    "bind_interface",
    "cafile",
    "capath",
    "certfile",
    "keyfile",
    "crlfile",
    "dhparamfile",
    "ciphers",
    "ciphers_tls1.3",
    "tls_engine",
    "tls_engine_kpass_sha1",
    "psk_hint",
    "require_certificate",
    "use_identity_as_username",
    "use_subject_as_username",
    "use_username_as_clientid",
    "port",
    "bind_address",
    "socket_domain",
    "password_file",
];

/// Options that restrict somebody. They must not be lost without a listener.
const RESTRICTS: [&str; 9] = [
    "acl_file",
    "allow_zero_length_clientid",
    "crlfile",
    "max_qos",
    "maximum_qos",
    "password_file",
    "require_certificate",
    "use_identity_as_username",
    "use_subject_as_username",
];

/// Decides which listeners there are, and says so of lines that belong to none.
pub(super) fn sites<'a>(world: World<'a>, output: &mut Output) -> Vec<Site<'a>> {
    let model = world.model;
    if model.is_local_only() {
        lost(world, output);
        return vec![local(world)];
    }
    let mut sites = Vec::new();
    if opens_default(world) {
        sites.push(default(world, output));
    } else {
        lost(world, output);
    }
    for (number, listener) in model.listeners.iter().enumerate() {
        let line = listener.line.as_ref().expect("a named listener has a line");
        sites.push(named(world, number, listener, line));
    }
    sites
}

/// Whether the default listener opens its port beside the named ones.
fn opens_default(world: World<'_>) -> bool {
    let block = &world.model.default_listener.block;
    let opens = |given: &Given| match given.directive.name {
        "max_connections" => given.number() >= 0,
        "max_qos" | "maximum_qos" => given.number() < 2,
        "protocol" => given.text() != "mqtt",
        "allow_zero_length_clientid" => !given.flag(),
        "tls_keyform" => given.text() == "engine",
        name => OPENS.contains(&name),
    };
    let has_plugin = world.model.plugins.iter().any(|plugin| plugin.of == Some(At::Default));
    block.givens.iter().any(opens) || has_plugin
}

/// Says of the options of the default listener that they belong to no listener.
fn lost(world: World<'_>, output: &mut Output) {
    let model = world.model;
    for given in model.default_listener.block.givens.iter().filter(|given| !given.is_settled.get()) {
        let name = given.directive.name;
        let restricts = match name {
            "max_qos" | "maximum_qos" => given.number() < 2,
            "allow_zero_length_clientid" => !given.flag(),
            "require_certificate" | "use_identity_as_username" | "use_subject_as_username" => given.flag(),
            // It counts for the listeners on loopback too.
            "allow_anonymous" if model.is_local_only() => continue,
            _ => RESTRICTS.contains(&name),
        };
        let why = if model.is_local_only() {
            "there is no `listener`, so that only this machine can connect, and options of a listener have no effect"
        } else {
            "it stands above the first `listener`, and belongs to none; Mosquitto 2.0 forgets it, and 2.1 refuses it"
        };
        if restricts {
            let reason = format!("{why}; add or move a `listener` line, so that the restriction is not lost");
            output.refuse(given, reason);
        } else {
            output.ignore(given, why);
        }
    }
}

/// The two listeners on loopback. Mosquitto goes on without the one of IPv6.
fn local(world: World<'_>) -> Site<'_> {
    let port = world.start.port.unwrap_or(PORT);
    let mut addresses = vec![(format!("127.0.0.1:{port}"), false)];
    // Port 0 would be another port for each.
    if world.system.has_ipv6() && port != 0 {
        addresses.push((format!("[::1]:{port}"), false));
    }
    Site { number: None, listener: &world.model.default_listener, lines: Vec::new(), addresses }
}

fn default<'a>(world: World<'a>, output: &mut Output) -> Site<'a> {
    let listener = &world.model.default_listener;
    let block = &listener.block;
    let port = block.last("port").map_or(i64::from(PORT), Given::number);
    let host = block.last("bind_address");
    let addresses = addresses(world, &port.to_string(), host.map(Given::text), listener);
    let lines: Vec<&Given> = block.last("port").into_iter().chain(host).collect();
    if lines.is_empty()
        && let Some(given) = block.givens.first()
    {
        output.change(
            given,
            "it stands above the first `listener`, and opens port 1883 as well, as in Mosquitto",
        );
    }
    Site { number: None, listener, lines, addresses }
}

fn named<'a>(world: World<'a>, number: usize, listener: &'a Listener, line: &'a Given) -> Site<'a> {
    let words = line.words();
    let host = words.get(1).copied().filter(|word| !word.starts_with('#'));
    let port = words.first().copied().unwrap_or_default();
    let addresses = match (port.parse::<u16>(), host) {
        (Ok(0), Some(path)) => vec![(format!("unix:{path}"), false)],
        // Without zeros in front.
        (Ok(port), host) => addresses(world, &port.to_string(), host, listener),
        (Err(_), _) => Vec::new(),
    };
    Site { number: Some(number), listener, lines: vec![line], addresses }
}

/// The addresses of a port: at a host, or at all addresses of the machine.
fn addresses(world: World<'_>, port: &str, host: Option<&str>, listener: &Listener) -> Vec<(String, bool)> {
    let domain = listener.block.last("socket_domain").map_or("", Given::text);
    // The system takes an asterisk for no host.
    let Some(host) = host.filter(|host| *host != "*") else {
        let any6 = format!("[::]:{port}");
        return match domain {
            "ipv4" => vec![(format!("0.0.0.0:{port}"), false)],
            "ipv6" => vec![(any6, false)],
            _ if world.system.has_ipv6() => vec![(any6, true)],
            _ => vec![(format!("0.0.0.0:{port}"), false)],
        };
    };
    let fits = |ip: &IpAddr| match domain {
        "ipv4" => ip.is_ipv4(),
        "ipv6" => ip.is_ipv6(),
        _ => ip.is_ipv4() || world.system.has_ipv6(),
    };
    if let Ok(ip) = host.parse::<IpAddr>() {
        return vec![(address(ip, port), false)];
    }
    let mut found: Vec<String> = Vec::new();
    for ip in world.system.addresses(host).into_iter().filter(fits) {
        let address = address(ip, port);
        if !found.contains(&address) {
            found.push(address);
        }
    }
    if found.is_empty() {
        found.push(format!("{host}:{port}"));
    }
    found.into_iter().map(|address| (address, false)).collect()
}

fn address(ip: IpAddr, port: &str) -> String {
    match ip {
        IpAddr::V4(ip) => format!("{ip}:{port}"),
        IpAddr::V6(ip) => format!("[{ip}]:{port}"),
    }
}

/// The tables of a listener: one for each of its addresses.
pub(super) fn tables(sites: &[Site<'_>], of: At) -> Vec<Table> {
    let numbers = sites.iter().flat_map(|site| site.addresses.iter().map(|_| site.number)).enumerate();
    numbers.filter(|(_, number)| is_of(Some(of), *number)).map(|(table, _)| Table::Listener(table)).collect()
}

/// Writes a `[[listener]]` for each address of each site.
pub(super) fn translate(world: World<'_>, sites: &[Site<'_>], output: &mut Output) {
    let mut number = 0;
    for site in sites {
        if site.addresses.len() > 1
            && let Some(limit) =
                site.listener.block.last("max_connections").filter(|limit| limit.number() > 0)
        {
            output.change(limit, "the limit is for each address of this listener");
        }
        for (address, is_dual) in &site.addresses {
            let table = Table::Listener(number);
            let mut lines = site.lines.clone();
            lines.extend(site.listener.block.last("socket_domain"));
            output.set(table, "address", address.as_str(), &lines);
            if *is_dual {
                output.set(table, "ipv6_only", false, &[]);
            }
            check_domain(site, output);
            access::translate(world, site, table, output);
            if world.model.is_local_only() {
                output.set(table, "protocol", "mqtt", &[]);
            } else {
                protocol(site, table, output);
                tls::translate(world, site, table, output);
                terms(site, table, output);
            }
            number += 1;
        }
    }
    if let Some(port) = world.start.port.filter(|_| !world.model.is_local_only()) {
        let place = world.model.listeners.first().and_then(|listener| listener.line.as_ref());
        if let Some(line) = place.or_else(|| world.model.default_listener.block.last("port")) {
            output
                .change(line, format!("`-p {port}` has no effect, because there are listeners in the file"));
        }
    }
}

fn check_domain(site: &Site<'_>, output: &mut Output) {
    if let Some(domain) = site.listener.block.last("socket_domain")
        && !["ipv4", "ipv6"].contains(&domain.text())
    {
        output.refuse(domain, "`socket_domain` is `ipv4` or `ipv6`");
    }
}

fn protocol(site: &Site<'_>, table: Table, output: &mut Output) {
    let block = &site.listener.block;
    match block.last("protocol") {
        None => output.set(table, "protocol", "mqtt", &[]),
        Some(given) => match given.text() {
            "mqtt" => output.set(table, "protocol", "mqtt", &[given]),
            "websockets" => output.set(table, "protocol", "websocket", &[given]),
            "http_api" => {
                output.refuse(given, "Pondhawk has no HTTP interface on a listener; delete this listener");
            }
            _ => output.refuse(given, "`protocol` is `mqtt` or `websockets`"),
        },
    }
    let origins: Vec<&Given> = block.all("websockets_origin").collect();
    if !origins.is_empty() {
        let texts = origins.iter().map(|given| given.text().to_owned()).collect();
        output.set(table, "websocket_origins", crate::output::Toml::List(texts), &origins);
        for given in origins {
            output.change(given, "clients that send no origin are accepted, because they are no web pages");
        }
    }
    if let Some(given) = block.last("enable_proxy_protocol") {
        let all = vec!["0.0.0.0/0".to_owned(), "::/0".to_owned()];
        output.set(table, "proxy_from", crate::output::Toml::List(all), &[given]);
        let text = "both versions of the protocol are accepted, from every address; name your load balancers instead";
        output.change(given, text);
    }
}

/// Limits and rules of the listener's clients.
fn terms(site: &Site<'_>, table: Table, output: &mut Output) {
    let block = &site.listener.block;
    if let Some(given) = block.last("bind_interface") {
        output.set(table, "interface", given.text(), &[given]);
    }
    match block.last("max_connections") {
        Some(given) if given.number() > 0 => {
            let number = u64::try_from(given.number()).unwrap_or_default();
            output.set(table, "connections", number, &[given]);
        }
        Some(given) => output.ignore(given, "there is no limit for one listener by default"),
        None => {}
    }
    for name in ["max_qos", "maximum_qos"] {
        if let Some(given) = block.last(name) {
            let number = u64::try_from(given.number()).unwrap_or_default();
            output.set(table, "max_qos", number, &[given]);
        }
    }
    if let Some(given) = block.last("mount_point") {
        if given.text().ends_with('/') {
            output.set(table, "mount_point", given.text(), &[given]);
        } else {
            let reason =
                "a mount point of Pondhawk ends with a slash; without one, topics would have other names";
            output.refuse(given, reason);
        }
    }
    versions(site, table, output);
}

fn versions(site: &Site<'_>, table: Table, output: &mut Output) {
    let Some(given) = site.listener.block.last("accept_protocol_versions") else { return };
    let words = given.text().split([',', ' ', '\t']).filter(|word| !word.is_empty());
    let version = |word| match word {
        "3" => Some("3.1".to_owned()),
        "4" => Some("3.1.1".to_owned()),
        "5" => Some("5.0".to_owned()),
        _ => None,
    };
    match words.map(version).collect::<Option<Vec<String>>>() {
        Some(versions) if !versions.is_empty() => {
            output.set(table, "protocol_versions", crate::output::Toml::List(versions), &[given]);
        }
        _ => output.refuse(given, "the versions are 3, 4 and 5, with commas between them"),
    }
}
