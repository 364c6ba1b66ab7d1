//! Plugins: Mosquitto's own, by the names of their files. No other can be loaded.

use crate::model::{Given, Plugin};
use crate::output::{Kind, Output, Table};

use super::World;
use super::listeners::{self, Site};

pub(super) fn translate(world: World<'_>, sites: &[Site<'_>], output: &mut Output) {
    for plugin in &world.model.plugins {
        let name = name_of(&plugin.line);
        match name.as_str() {
            "mosquitto_password_file" => file(plugin, "password_file", world, sites, output),
            "mosquitto_acl_file" => file(plugin, "acl_file", world, sites, output),
            "mosquitto_persist_sqlite" => sqlite(plugin, output),
            "mosquitto_dynamic_security" => dynamic_security(plugin, sites, output),
            _ => {
                let reason = "plugins of Mosquitto cannot be loaded; Pondhawk has `password_file` and `acl_file`, and in its own language \
                     `[http_auth]` and `[ldap]`";
                refuse(plugin, reason, output);
            }
        }
    }
}

/// The name of a plugin's file, without directory and ending.
fn name_of(line: &Given) -> String {
    let words = line.words();
    let path = match line.directive.name {
        "plugin_load" => words.get(1).copied().unwrap_or_default(),
        _ => line.text(),
    };
    let name = path.rsplit(['/', '\\']).next().unwrap_or_default();
    name.split('.').next().unwrap_or_default().to_owned()
}

fn refuse(plugin: &Plugin, reason: &str, output: &mut Output) {
    output.refuse(&plugin.line, reason);
    // One explanation is enough.
    plugin.options.givens.iter().for_each(|given| given.is_settled.set(true));
}

/// Sets a key for the clients of a plugin: for all, or for those of its listener.
fn set(plugin: &Plugin, key: &'static str, option: &Given, sites: &[Site<'_>], output: &mut Output) {
    let tables = plugin.of.map_or_else(|| vec![Table::Auth], |of| listeners::tables(sites, of));
    for table in tables {
        output.set(table, key, option.text(), &[&plugin.line, option]);
    }
}

/// The last line of an option.
fn option<'a>(plugin: &'a Plugin, name: &str) -> Option<&'a Given> {
    let names = [format!("plugin_opt_{name}"), format!("auth_opt_{name}")];
    plugin.options.givens.iter().rev().find(|given| names.contains(&given.name))
}

/// A plugin that is loaded once, and used by listeners with `plugin_use`.
fn is_shared(plugin: &Plugin) -> bool {
    plugin.line.directive.name == "plugin_load"
}

/// The plugins that do the same as a directive.
fn file(plugin: &Plugin, key: &'static str, world: World<'_>, sites: &[Site<'_>], output: &mut Output) {
    if is_shared(plugin) {
        let reason = format!("write `{key} FILE` for each listener instead of the plugin");
        return refuse(plugin, &reason, output);
    }
    let Some(option) = option(plugin, key) else {
        return refuse(plugin, &format!("the plugin has no `plugin_opt_{key}`"), output);
    };
    let block = match plugin.of {
        None => &world.model.global,
        Some(of) => &world.model.listener(of).block,
    };
    if let Some(directive) = block.last(key) {
        let reason = format!("the clients of this plugin have a `{key}` already: {}", directive.place);
        return refuse(plugin, &reason, output);
    }
    set(plugin, key, option, sites, output);
    others(plugin, output);
}

/// Dynamic security of all listeners, or of one.
fn dynamic_security(plugin: &Plugin, sites: &[Site<'_>], output: &mut Output) {
    if is_shared(plugin) {
        let reason = "use `plugin` for all listeners, or for each with `per_listener_settings true`";
        return refuse(plugin, reason, output);
    }
    let Some(file) = option(plugin, "config_file") else {
        return refuse(plugin, "the plugin has no `plugin_opt_config_file`", output);
    };
    set(plugin, "dynamic_security_file", file, sites, output);
    if let Some(given) = option(plugin, "password_init_file") {
        output.ignore(given, "the broker does not make the first file; `mosquitto_ctrl dynsec init` does");
    }
    others(plugin, output);
}

/// Refuses the options that are left.
fn others(plugin: &Plugin, output: &mut Output) {
    for given in plugin.options.givens.iter().filter(|given| !given.is_settled.get()) {
        output.refuse(given, "the plugin has no such option");
    }
}

/// The journal takes the place of the database.
fn sqlite(plugin: &Plugin, output: &mut Output) {
    output.remark(&plugin.line, Kind::Changed, crate::table::SQLITE);
    for given in &plugin.options.givens {
        output.ignore(given, crate::table::SQLITE);
    }
}

/// Whether a plugin stores state on disk.
pub(super) fn stores(plugin: &Plugin) -> bool {
    name_of(&plugin.line) == "mosquitto_persist_sqlite"
}
