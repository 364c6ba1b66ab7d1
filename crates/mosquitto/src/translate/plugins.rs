//! Plugins: Mosquitto's own, by the names of their files. No other can be loaded.

use crate::model::{Given, Plugin};
use crate::output::{Kind, Output, Table};

use super::World;
use super::listeners::Site;

pub(super) fn translate(world: World<'_>, sites: &[Site<'_>], output: &mut Output) {
    for plugin in &world.model.plugins {
        let name = name_of(&plugin.line);
        match name.as_str() {
            "mosquitto_password_file" => file(plugin, "password_file", sites, output),
            "mosquitto_acl_file" => file(plugin, "acl_file", sites, output),
            "mosquitto_persist_sqlite" => sqlite(plugin, output),
            "mosquitto_dynamic_security" => dynamic_security(plugin, output),
            _ => {
                let reason =
                    "plugins of Mosquitto cannot be loaded; Pondhawk has `password_file` and `acl_file`";
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

/// The plugins that do the same as a directive.
fn file(plugin: &Plugin, key: &'static str, sites: &[Site<'_>], output: &mut Output) {
    if plugin.of.is_some() || plugin.line.directive.name == "plugin_load" {
        let reason = format!("write `{key} FILE` for this listener instead of the plugin");
        return refuse(plugin, &reason, output);
    }
    let is_file =
        |given: &&Given| given.name == format!("plugin_opt_{key}") || given.name == format!("auth_opt_{key}");
    let Some(option) = plugin.options.givens.iter().rev().find(is_file) else {
        return refuse(plugin, &format!("the plugin has no `plugin_opt_{key}`"), output);
    };
    debug_assert!(!sites.is_empty());
    output.set(Table::Auth, key, option.text(), &[&plugin.line, option]);
    for given in plugin.options.givens.iter().filter(|given| !given.is_settled.get()) {
        output.refuse(given, "the plugin has no such option");
    }
}

/// Dynamic security of all listeners.
fn dynamic_security(plugin: &Plugin, output: &mut Output) {
    if plugin.of.is_some() || plugin.line.directive.name == "plugin_load" {
        let reason = "for this listener alone, use TOML with `dynamic_security_file` in its `[[listener]]`";
        return refuse(plugin, reason, output);
    }
    let has_name = |given: &Given, option: &str| {
        [format!("plugin_opt_{option}"), format!("auth_opt_{option}")].contains(&given.name)
    };
    let givens = &plugin.options.givens;
    let Some(file) = givens.iter().rev().find(|given| has_name(given, "config_file")) else {
        return refuse(plugin, "the plugin has no `plugin_opt_config_file`", output);
    };
    output.set(Table::Auth, "dynamic_security_file", file.text(), &[&plugin.line, file]);
    for given in givens.iter().filter(|given| has_name(given, "password_init_file")) {
        output.ignore(given, "the broker does not make the first file; `mosquitto_ctrl dynsec init` does");
    }
    for given in givens.iter().filter(|given| !given.is_settled.get()) {
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
