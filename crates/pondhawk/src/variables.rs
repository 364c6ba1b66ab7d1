//! Environment variables with names of ours: those that set keys, and those that set nothing.

use std::collections::BTreeSet;

use config::Environment;

/// Beginning of the names of variables that set keys.
const PREFIX: &str = "PONDHAWK_";
/// Variables of the process and of tests, which set no key. A star stands for any rest.
const OTHERS: [&str; 5] =
    ["PONDHAWK_SYSLOG", "PONDHAWK_DETACHED", "PONDHAWK_BUILT", "PONDHAWK_TOOLS", "PONDHAWK_TEST_*"];

/// Names of all variables that set keys. Keys of listeners have none.
fn of_keys() -> BTreeSet<String> {
    let tables = config::tables().into_iter().filter(|table| !table.header.starts_with("[["));
    let names = tables.flat_map(|table| {
        let table_name = table.header.trim_matches(['[', ']']).to_owned();
        let name = move |key: &str| match table_name.as_str() {
            "" => format!("{PREFIX}{key}"),
            table => format!("{PREFIX}{table}_{key}"),
        };
        table.keys.iter().map(|key| name(key.name)).collect::<Vec<_>>()
    });
    names.map(|name| name.replace('.', "_").to_ascii_uppercase()).collect()
}

/// The variables that set keys.
pub(crate) fn setting_keys(environment: &Environment) -> Vec<String> {
    let keys = of_keys();
    environment.keys().filter(|name| keys.contains(*name)).cloned().collect()
}

/// The variables with names of ours that mean nothing to this program.
pub(crate) fn unknown(environment: &Environment) -> Vec<String> {
    let keys = of_keys();
    let is_other = |name: &str| {
        cli::variables().chain(OTHERS).any(|other| match other.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == other,
        })
    };
    // Kubernetes makes variables for a service called `pondhawk`, and for others whose names begin so.
    let is_of_kubernetes = |name: &str| name.contains("_SERVICE_") || name.contains("_PORT_");
    let ours = environment.keys().filter(|name| name.starts_with(PREFIX));
    ours.filter(|name| !keys.contains(*name) && !is_other(name) && !is_of_kubernetes(name)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_of_keys_of_others_or_unknown() {
        let names = [
            "PONDHAWK_AUTH_ACL_FILE",
            "PONDHAWK_AUTH_ACLFILE",
            "PONDHAWK_SHARDS",
            "PONDHAWK_HOST",
            "PONDHAWK_TEST_ALONE",
            "PONDHAWK_SERVICE_HOST",
            "PONDHAWK_PORT_1883_TCP",
            "PONDHAWK_LISTENER_ALLOW_ANONYMOUS",
            "PATH",
        ];
        let environment = names.iter().map(|name| ((*name).to_owned(), String::new())).collect();
        assert_eq!(setting_keys(&environment), ["PONDHAWK_AUTH_ACL_FILE", "PONDHAWK_SHARDS"]);
        assert_eq!(unknown(&environment), ["PONDHAWK_AUTH_ACLFILE", "PONDHAWK_LISTENER_ALLOW_ANONYMOUS"]);
    }
}
