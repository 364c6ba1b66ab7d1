//! TLS of a listener.

use std::ffi::OsStr;
use std::path::Path;

use crate::model::{Block, Given};
use crate::output::{Output, Table, Toml};

use super::World;
use super::listeners::Site;

/// Cipher suites of TLS 1.2 that Pondhawk has, under OpenSSL's names.
const SUITES: [&str; 6] = [
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-CHACHA20-POLY1305",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-RSA-CHACHA20-POLY1305",
];

/// Cipher suites of TLS 1.3 that Pondhawk has.
const SUITES_13: [&str; 3] =
    ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"];

/// Options that have no effect in Mosquitto without a certificate.
const NEED_TLS: [&str; 11] = [
    "cafile",
    "capath",
    "ciphers",
    "ciphers_tls1.3",
    "crlfile",
    "require_certificate",
    "tls_keyform",
    "tls_version",
    "use_identity_as_username",
    "use_subject_as_username",
    "certfile",
];

pub(super) fn translate(world: World<'_>, site: &Site<'_>, table: Table, output: &mut Output) {
    let block = &site.listener.block;
    let (certificate, key) = match (block.last("certfile"), block.last("keyfile")) {
        (Some(certificate), Some(key)) => (certificate, key),
        (Some(certificate), None) => {
            return output.refuse(certificate, "`certfile` needs a `keyfile` for the same listener");
        }
        (None, Some(key)) => return output.refuse(key, "`keyfile` needs a `certfile` for the same listener"),
        (None, None) => return without(block, output),
    };
    output.set(table, "tls_certificate", certificate.text(), &[certificate]);
    output.set(table, "tls_key", key.text(), &[key]);
    version(block, table, output);
    clients(world, block, table, output);
    identity(block, table, output);
    suites(block, "ciphers", &SUITES, output);
    suites(block, "ciphers_tls1.3", &SUITES_13, output);
    if let Some(given) = block.last("tls_keyform") {
        match given.text() {
            "engine" => output.refuse(given, "Pondhawk has no engines of OpenSSL; name a file in `keyfile`"),
            _ => output.ignore(given, "keys are in PEM"),
        }
    }
}

/// The line because of which nobody can connect to a listener with TLS, and the reason. Mosquitto starts with such lines.
pub(super) fn admits_nobody(block: &Block) -> Option<(&Given, &'static str)> {
    let on = |name| block.last(name).filter(|given| given.flag());
    let identity = on("use_identity_as_username").or_else(|| on("use_subject_as_username"));
    let has_files = ["cafile", "capath"].into_iter().any(|name| block.has(name));
    match (on("require_certificate"), identity) {
        _ if !block.has("certfile") || !block.has("keyfile") => None,
        (Some(required), _) if !has_files => {
            Some((required, "nobody can connect: `cafile` or `capath` must say which certificates to accept"))
        }
        (None, Some(identity)) => Some((
            identity,
            "nobody can connect, as in Mosquitto: clients show a certificate only with `require_certificate true`",
        )),
        _ => None,
    }
}

/// Settles the options of TLS of a listener without a certificate.
fn without(block: &Block, output: &mut Output) {
    for given in block.givens.iter().filter(|given| NEED_TLS.contains(&given.directive.name)) {
        let name = given.directive.name;
        let is_off = ["require_certificate", "use_identity_as_username", "use_subject_as_username"]
            .contains(&name)
            && !given.flag();
        match name {
            _ if given.is_settled.get() => {}
            _ if is_off => output.ignore(given, "that is the default"),
            "cafile" | "capath" => {
                output
                    .refuse(given, format!("`{name}` needs `certfile` and `keyfile` for the same listener"));
            }
            "crlfile" | "require_certificate" | "use_identity_as_username" | "use_subject_as_username" => {
                let why = "has no effect without TLS: name a `certfile` and a `keyfile`, or delete the line";
                output.refuse(given, format!("`{name}` {why}"));
            }
            _ => output.ignore(given, "there is no TLS on this listener"),
        }
    }
}

fn version(block: &Block, table: Table, output: &mut Output) {
    let Some(given) = block.last("tls_version") else { return };
    match given.text() {
        "tlsv1.3" => output.set(table, "tls_minimum", "1.3", &[given]),
        "tlsv1.2" => output.set(table, "tls_minimum", "1.2", &[given]),
        "tlsv1.1" | "tlsv1" => {
            output.set(table, "tls_minimum", "1.2", &[given]);
            output.change(given, "TLS before 1.2 is not spoken: clients need 1.2 at least");
        }
        _ => output.refuse(given, "`tls_version` is `tlsv1.2` or `tlsv1.3`"),
    }
}

/// Translates the options about certificates of clients.
fn clients(world: World<'_>, block: &Block, table: Table, output: &mut Output) {
    let files: Vec<&Given> = ["cafile", "capath"].into_iter().filter_map(|name| block.last(name)).collect();
    let Some(required) = block.last("require_certificate").filter(|given| given.flag()) else {
        if let Some(given) = block.last("require_certificate") {
            output.ignore(given, "clients are not asked for certificates by default");
        }
        for given in files.into_iter().chain(block.last("crlfile")) {
            let why = "it is about certificates of clients, which `require_certificate` does not ask for; the server's \
                       chain belongs into `certfile`";
            output.ignore(given, why);
        }
        return;
    };
    if files.is_empty() {
        // Nobody is admitted.
        block.last("crlfile").iter().for_each(|given| output.ignore(given, "nobody can connect anyway"));
        return;
    }
    let mut authorities = Vec::new();
    for given in &files {
        match given.directive.name {
            "cafile" => authorities.push(given.text().to_owned()),
            _ => match of_directory(world, given.text()) {
                Ok(found) => authorities.extend(found),
                Err(reason) => output.refuse(given, reason),
            },
        }
    }
    output.set(table, "tls_client_certificate", "required", &[required]);
    output.set(table, "tls_client_ca", Toml::List(authorities), &files);
    if let Some(given) = block.last("capath") {
        let why = "these are the files that the directory has now under names of `openssl rehash`; the hashes are not compared";
        output.change(given, why);
    }
    if let Some(given) = block.last("crlfile") {
        output.set(table, "tls_client_crl", given.text(), &[given]);
    }
}

/// The files of a directory with certificates, without a second name for one of them. OpenSSL finds those alone whose name
/// is a hash and a number.
fn of_directory(world: World<'_>, directory: &str) -> Result<Vec<String>, String> {
    let explain = |error| format!("cannot read the directory {directory}: {error}");
    let mut names = world.system.list(Path::new(directory)).map_err(explain)?;
    names.sort();
    let mut contents = Vec::new();
    let mut files = Vec::new();
    for name in names.into_iter().filter(|name| is_hash_and_number(name)) {
        let path = Path::new(directory).join(name);
        let Ok(content) = world.system.read(&path) else { continue };
        let is_certificate = content.windows(27).any(|part| part == b"-----BEGIN CERTIFICATE-----");
        if is_certificate && !contents.contains(&content) {
            contents.push(content);
            files.push(path.display().to_string());
        }
    }
    if files.is_empty() {
        let hint = "under a name that `openssl rehash` makes, and Mosquitto looks for no other";
        Err(format!("the directory {directory} has no certificate in PEM {hint}"))
    } else {
        Ok(files)
    }
}

/// Whether a name is that of a certificate in a directory of OpenSSL, such as `9d66eef0.0`.
fn is_hash_and_number(name: &OsStr) -> bool {
    let parts = name.to_str().and_then(|name| name.split_once('.'));
    parts.is_some_and(|(hash, number)| {
        hash.len() == 8
            && hash.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
            && !number.is_empty()
            && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

fn identity(block: &Block, table: Table, output: &mut Output) {
    let names = [("use_subject_as_username", "subject"), ("use_identity_as_username", "cn")];
    let is_required = block.is_on("require_certificate");
    let has_files = block.has("cafile") || block.has("capath");
    let mut is_set = false;
    for (name, value) in names {
        let Some(given) = block.last(name) else { continue };
        if !given.flag() {
            output.ignore(given, "that is the default");
        } else if !is_required || !has_files {
            // Nobody is admitted.
            output.ignore(given, "nobody can connect anyway");
        } else if is_set {
            output.ignore(given, "the identity of a certificate counts as a whole already");
        } else {
            output.set(table, "client_certificate_identity", value, &[given]);
            is_set = true;
        }
    }
}

/// A list of names must have a suite of ours. Expressions such as `HIGH:!aNULL` mean sets that have.
fn suites(block: &Block, name: &str, ours: &[&str], output: &mut Output) {
    let Some(given) = block.last(name) else { return };
    let names: Vec<&str> = given.text().split([':', ',', ' ']).filter(|name| !name.is_empty()).collect();
    let is_name = |name: &&str| name.contains("SHA") || name.contains("POLY1305");
    if names.iter().all(is_name) && !names.iter().any(|name| ours.contains(name)) {
        let reason = format!("none of these cipher suites is supported; there are {}", ours.join(", "));
        return output.refuse(given, reason);
    }
    output.ignore(
        given,
        "the cipher suites are always the strong ones of TLS 1.2 and 1.3, and cannot be chosen",
    );
}
