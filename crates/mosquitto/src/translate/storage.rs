//! Storage that survives a restart.

use crate::model::{Given, Model};
use crate::output::{Output, Table};

use super::{World, plugins};

/// The directory of the journal, below the directory of Mosquitto's database.
const DIRECTORY: &str = "pondhawk";

/// Whether anything survives a restart.
pub(super) fn is_kept(model: &Model) -> bool {
    switch(model).is_some_and(Given::flag) || model.plugins.iter().any(plugins::stores)
}

/// The line that switches storage on or off: the last one of two names.
fn switch(model: &Model) -> Option<&Given> {
    let names = ["persistence", "retained_persistence"];
    model.global.givens.iter().rev().find(|given| names.contains(&given.directive.name))
}

pub(super) fn translate(world: World<'_>, output: &mut Output) {
    let model = world.model;
    let global = &model.global;
    let switch = switch(model);
    let location = global.last("persistence_location");
    let file = global.last("persistence_file");
    let mut lines: Vec<&Given> = switch.into_iter().collect();
    if is_kept(model) {
        lines.extend(location);
        let base = location.map_or("", Given::text);
        let slash = if base.is_empty() || base.ends_with('/') { "" } else { "/" };
        output.set(Table::Top, "data_dir", format!("{base}{slash}{DIRECTORY}"), &lines);
        if let Some(given) = switch {
            let name = file.map_or("mosquitto.db", Given::text);
            let text = format!(
                "a journal keeps everything that is acknowledged; `pondhawk import {base}{slash}{name}` takes over \
                 Mosquitto's database"
            );
            output.change(given, text);
        }
    } else {
        output.set(Table::Top, "data_dir", "off", &lines);
        if let Some(given) = location {
            output.ignore(given, "nothing is stored without `persistence true`");
        }
    }
    if let Some(given) = file {
        output.ignore(given, "the journal is a directory with several files");
    }
    for name in ["persistence", "retained_persistence"] {
        if let Some(given) = global.last(name).filter(|given| !given.is_settled.get()) {
            output.ignore(given, "another line says the same, and counts");
        }
    }
    user(world, output);
    if let Some(given) = global.last("pid_file") {
        output.set(Table::Top, "pid_file", given.text(), &[given]);
    }
}

/// The user whose rights the broker has after its start by the superuser.
fn user(world: World<'_>, output: &mut Output) {
    let given = world.model.global.last("user");
    if let Some(given) = given {
        return output.set(Table::Top, "user", given.text(), &[given]);
    }
    let users = world.system.read(std::path::Path::new("/etc/passwd")).unwrap_or_default();
    let users = String::from_utf8_lossy(&users);
    let has = |name: &&str| users.lines().any(|line| line.split(':').next() == Some(name));
    if let Some(name) = ["mosquitto", "nobody"].into_iter().find(has) {
        output.set(Table::Top, "user", name, &[]);
    }
}
