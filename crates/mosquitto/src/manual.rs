//! The table of all directives in the manual.

use std::fmt::Write;

use crate::directive::{Directive, Fate, Scope};
use crate::table::DIRECTIVES;

/// Returns a table in Markdown with each directive and its fate.
#[must_use]
pub fn markdown() -> String {
    let mut table = String::from("| directive | in Pondhawk |\n|---|---|\n");
    for directive in DIRECTIVES {
        let _ = writeln!(table, "| `{}` | {} |", directive.name, fate(directive));
    }
    table
}

fn fate(directive: &Directive) -> String {
    if directive.scope == Scope::Bridge || directive.name == "connection" {
        return "not yet: there are no bridges".to_owned();
    }
    match directive.fate {
        Fate::Translated if directive.keys.is_empty() => other(directive.name).to_owned(),
        Fate::Translated => directive.keys.to_owned(),
        Fate::Ignored(why) => format!("ignored: {why}"),
        Fate::Refused(why) => format!("refused: {why}"),
        Fate::RefusedIfOn(_, why) => format!("refused if on: {why}"),
        Fate::RefusedIfOff(_, why) => format!("refused if off: {why}"),
    }
}

/// Directives without keys whose fate depends on their value.
fn other(name: &str) -> &'static str {
    match name {
        "check_retain_source" => "refused if on, where there are access rules",
        "plugin" | "auth_plugin" | "global_plugin" => {
            "refused, except Mosquitto's own plugins for password files, access rules, dynamic security and SQLite; \
             for users over HTTP or LDAP there are `[http_auth]` and `[ldap]`"
        }
        "plugin_load" => {
            "refused, except the SQLite plugin: use `plugin`, or the directives that do the same"
        }
        "plugin_use" => {
            "refused: use `plugin` with `per_listener_settings true`, or the directives of the listener"
        }
        "plugin_opt_*" | "auth_opt_*" => "as the plugin",
        "ciphers" | "ciphers_tls1.3" => "ignored, unless none of the named cipher suites is supported",
        "tls_keyform" => "`pem` is the only kind; `engine` is refused",
        "max_inflight_bytes" => "ignored: messages under way are limited by their number, and by all memory",
        "queue_qos0_messages" => "changed if on: messages of QoS 0 are not queued for absent clients",
        "persistence_file" => "ignored: the journal is a directory",
        "connection_messages" => "changed if off: connects and disconnects stay in the log",
        _ => "read as in Mosquitto",
    }
}
