//! Makes keys of ours of the lines in a [`Model`].

mod access;
mod bridges;
mod limits;
mod listeners;
mod log;
mod plugins;
mod storage;
mod tls;

use crate::directive::{Fate, Scope};
use crate::model::{At, Given, Listener, Model};
use crate::output::{Kind, Output};
use crate::system::System;

/// The command line of the broker, as far as it changes the meaning of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Start {
    /// The port of `-p`, which counts only without any listener in the file.
    pub port: Option<u16>,
    /// Whether `-v` asks for all lines of the log.
    pub is_verbose: bool,
}

/// Everything that a part of the translation looks at.
#[derive(Clone, Copy)]
struct World<'a> {
    model: &'a Model,
    start: &'a Start,
    system: &'a dyn System,
}

/// Translates everything. Afterwards every line is settled, or is a problem.
pub(crate) fn translate(model: &Model, start: &Start, system: &dyn System) -> Output {
    let world = World { model, start, system };
    let mut output = Output::default();
    fates(model, &mut output);
    overridden(model, &mut output);
    let sites = listeners::sites(world, &mut output);
    plugins::translate(world, &sites, &mut output);
    listeners::translate(world, &sites, &mut output);
    access::translate_global(world, &sites, &mut output);
    limits::translate(model, &mut output);
    storage::translate(world, &mut output);
    log::translate(world, &mut output);
    bridges::translate(model, &mut output);
    unsettled(model, &mut output);
    output
}

/// Settles the lines whose fate is the same for every value, or follows from a switch alone.
fn fates(model: &Model, output: &mut Output) {
    for given in model.givens() {
        match (given.directive.fate, given.flag()) {
            (Fate::Translated, _) => {}
            (Fate::Ignored(why), _) => output.ignore(given, why),
            (Fate::RefusedIfOn(why, _), false) | (Fate::RefusedIfOff(why, _), true) => {
                output.ignore(given, why);
            }
            (Fate::Refused(why) | Fate::RefusedIfOn(_, why) | Fate::RefusedIfOff(_, why), _) => {
                output.refuse(given, why);
            }
        }
    }
}

/// Settles the lines behind which the same directive comes again, and counts instead.
fn overridden(model: &Model, output: &mut Output) {
    let listeners = [&model.default_listener].into_iter().chain(&model.listeners);
    let blocks = listeners.map(|listener| &listener.block);
    for block in blocks.chain([&model.global]) {
        for given in &block.givens {
            let last = block.last(given.directive.name);
            let again = given.directive.again;
            if let Some(last) = last.filter(|last| last.place != given.place)
                && again == crate::directive::Again::Last
                && !given.is_settled.get()
            {
                output.remark(given, Kind::Ignored, format!("the line {} counts instead", last.place));
            }
        }
    }
}

/// The line of a security option for the clients of a listener.
fn security<'a>(model: &'a Model, listener: &'a Listener, name: &str) -> Option<&'a Given> {
    let block = if model.is_per_listener { &listener.block } else { &model.global };
    block.last(name)
}

/// Whether a plugin is for this listener.
fn is_of(at: Option<At>, number: Option<usize>) -> bool {
    match at {
        None => true,
        Some(At::Default) => number.is_none(),
        Some(At::Named(of)) => number == Some(of),
    }
}

/// A line that nobody has looked at must not be skipped.
fn unsettled(model: &Model, output: &mut Output) {
    let left = model.givens().filter(|given| !given.is_settled.get());
    for given in left.collect::<Vec<_>>() {
        let scope = match given.directive.scope {
            Scope::Security | Scope::Listener => " for this listener",
            _ => "",
        };
        output.refuse(given, format!("`{}` has no equivalent{scope}", given.name));
    }
}
