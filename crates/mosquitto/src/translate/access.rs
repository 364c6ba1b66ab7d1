//! Anonymous clients, password files and access rules.

use crate::model::Given;
use crate::output::{Output, Table};

use super::listeners::Site;
use super::{World, is_of, security, tls};

/// The keys of one listener.
pub(super) fn translate(world: World<'_>, site: &Site<'_>, table: Table, output: &mut Output) {
    let model = world.model;
    if let Some((given, why)) = tls::admits_nobody(&site.listener.block).filter(|_| !model.is_local_only()) {
        return nobody(world, site, table, (given, why), output);
    }
    let of_listener = site.listener.block.last("listener_allow_anonymous");
    let of_listener = of_listener.filter(|_| !model.is_local_only());
    let given = of_listener.or_else(|| security(model, site.listener, "allow_anonymous"));
    let lines: Vec<&Given> = given.into_iter().collect();
    let anonymous = given.map_or(model.is_local_only(), Given::flag);
    output.set(table, "allow_anonymous", anonymous, &lines);
    if let (Some(_), Some(other)) = (of_listener, site.listener.block.last("allow_anonymous")) {
        output.ignore(other, "`listener_allow_anonymous` of this listener counts instead");
    }
    if let Some(given) = model.global.last("retain_available") {
        output.set(table, "retain_available", given.flag(), &[given]);
    }
    if model.is_per_listener {
        for name in ["password_file", "acl_file"] {
            if let Some(given) = site.listener.block.last(name) {
                output.set(table, name, given.text(), &[given]);
            }
        }
    }
    if let Some(given) = security(model, site.listener, "allow_zero_length_clientid") {
        if given.flag() {
            output.ignore(given, "that is the default");
        } else {
            output.set(table, "empty_client_ids", false, &[given]);
        }
    }
}

/// The keys of a listener to which nobody can connect.
fn nobody(
    world: World<'_>,
    site: &Site<'_>,
    table: Table,
    (given, why): (&Given, &str),
    output: &mut Output,
) {
    if world.model.plugins.iter().any(|plugin| plugin.of.is_some() && is_of(plugin.of, site.number)) {
        return output.refuse(given, why);
    }
    output.set(table, "allow_anonymous", false, &[given]);
    output.set(table, "password_file", "off", &[given]);
    output.set(table, "dynamic_security_file", "off", &[given]);
    output.change(given, why);
    let access = [
        "allow_anonymous",
        "listener_allow_anonymous",
        "password_file",
        "acl_file",
        "allow_zero_length_clientid",
    ];
    for given in access.into_iter().filter_map(|name| site.listener.block.last(name)) {
        output.ignore(given, "nobody can connect anyway");
    }
    if let Some(given) = world.model.global.last("allow_zero_length_clientid") {
        output.ignore(given, "nobody can connect to one of the listeners anyway");
    }
    if let Some(given) = world.model.global.last("retain_available") {
        output.set(table, "retain_available", given.flag(), &[given]);
    }
}

/// The keys of all listeners, and lines that no listener uses.
pub(super) fn translate_global(world: World<'_>, sites: &[Site<'_>], output: &mut Output) {
    let model = world.model;
    for name in ["password_file", "acl_file"] {
        if let Some(given) = model.global.last(name) {
            output.set(Table::Auth, name, given.text(), &[given]);
        }
    }
    if let Some(given) = model.global.last("allow_anonymous").filter(|given| !given.is_settled.get()) {
        output.ignore(given, "each listener says it for itself");
    }
    if let Some(given) = model.global.last("check_retain_source") {
        let has_rules = model.global.has("acl_file")
            || sites.iter().any(|site| site.listener.block.has("acl_file"))
            || model.plugins.iter().any(|plugin| sites.iter().any(|site| is_of(plugin.of, site.number)));
        if given.flag() && has_rules {
            let reason = "rights are checked when a message is published, and not again when a retained message is sent";
            output.refuse(given, reason);
        } else {
            output.ignore(given, "there is nothing to check again without access rules");
        }
    }
}
