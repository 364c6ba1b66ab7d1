//! The content of the files: each line with its value, in the scope to which the line belongs.

use std::cell::Cell;

use crate::directive::{Directive, Form};
use crate::line::Place;
use crate::value::Value;

/// A line whose value has the right form.
#[derive(Debug, Clone)]
pub(crate) struct Given {
    pub(crate) directive: &'static Directive,
    /// The name in the file, which differs from the directive's for options of plugins.
    pub(crate) name: String,
    pub(crate) value: Value,
    pub(crate) place: Place,
    /// The line for messages, without secrets.
    pub(crate) shown: String,
    /// Whether the translation has used the line, or has said something about it.
    pub(crate) is_settled: Cell<bool>,
}

impl Given {
    pub(crate) fn new(
        directive: &'static Directive,
        name: &str,
        value: Value,
        place: Place,
        text: &str,
    ) -> Self {
        let shown = match directive.form {
            Form::Secret => format!("{name} …"),
            _ => text.to_owned(),
        };
        Self { directive, name: name.to_owned(), value, place, shown, is_settled: Cell::new(false) }
    }

    /// The value of a switch.
    pub(crate) fn flag(&self) -> bool {
        matches!(self.value, Value::Flag(true))
    }

    /// The value of a number; 0 for other forms.
    pub(crate) fn number(&self) -> i64 {
        if let Value::Number(number) = self.value { number } else { 0 }
    }

    /// The value of a text, or the first of some words.
    pub(crate) fn text(&self) -> &str {
        match &self.value {
            Value::Text(text) => text,
            Value::Words(words) => words.first().map_or("", String::as_str),
            Value::Flag(_) | Value::Number(_) => "",
        }
    }

    /// The value as words.
    pub(crate) fn words(&self) -> Vec<&str> {
        match &self.value {
            Value::Words(words) => words.iter().map(String::as_str).collect(),
            _ => vec![self.text()],
        }
    }
}

/// The lines of one scope, in their order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Block {
    pub(crate) givens: Vec<Given>,
}

impl Block {
    /// Returns the last line of a directive, which is the one that counts.
    pub(crate) fn last(&self, name: &str) -> Option<&Given> {
        debug_assert!(Directive::find(name).is_some(), "there is no directive {name}");
        self.givens.iter().rev().find(|given| given.directive.name == name)
    }

    /// Returns all lines of a directive.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Given> {
        self.givens.iter().filter(move |given| given.directive.name == name)
    }

    /// Whether a switch is on.
    pub(crate) fn is_on(&self, name: &str) -> bool {
        self.last(name).is_some_and(Given::flag)
    }

    /// Whether the directive is there.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.last(name).is_some()
    }
}

/// A listener, and everything that belongs to it.
#[derive(Debug, Clone)]
pub(crate) struct Listener {
    /// The line that begins it. `None` for the default listener.
    pub(crate) line: Option<Given>,
    pub(crate) block: Block,
}

/// The owner of an option: one of the listeners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum At {
    Default,
    Named(usize),
}

/// A bridge, and everything that belongs to it.
#[derive(Debug, Clone)]
pub(crate) struct Bridge {
    pub(crate) line: Given,
    pub(crate) block: Block,
}

/// A plugin with its options.
#[derive(Debug, Clone)]
pub(crate) struct Plugin {
    pub(crate) line: Given,
    /// The listener whose clients the plugin is for. `None` for all.
    pub(crate) of: Option<At>,
    pub(crate) options: Block,
}

/// The content of all files.
#[derive(Debug, Clone)]
pub(crate) struct Model {
    /// Whether security options belong to listeners.
    pub(crate) is_per_listener: bool,
    pub(crate) global: Block,
    pub(crate) default_listener: Listener,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) bridges: Vec<Bridge>,
    pub(crate) plugins: Vec<Plugin>,
}

impl Model {
    pub(crate) fn new() -> Self {
        Self {
            is_per_listener: false,
            global: Block::default(),
            default_listener: Listener { line: None, block: Block::default() },
            listeners: Vec::new(),
            bridges: Vec::new(),
            plugins: Vec::new(),
        }
    }

    pub(crate) fn listener(&self, at: At) -> &Listener {
        match at {
            At::Default => &self.default_listener,
            At::Named(number) => &self.listeners[number],
        }
    }

    pub(crate) fn listener_mut(&mut self, at: At) -> &mut Listener {
        match at {
            At::Default => &mut self.default_listener,
            At::Named(number) => &mut self.listeners[number],
        }
    }

    /// Whether there is no `listener`, `port` or `bind_address`: only this machine can connect.
    pub(crate) fn is_local_only(&self) -> bool {
        let default = &self.default_listener.block;
        self.listeners.is_empty() && !default.has("port") && !default.has("bind_address")
    }

    /// Every line of every scope.
    pub(crate) fn givens(&self) -> impl Iterator<Item = &Given> {
        let listeners = [&self.default_listener].into_iter().chain(&self.listeners);
        let listeners = listeners.flat_map(|listener| listener.line.iter().chain(&listener.block.givens));
        let bridges =
            self.bridges.iter().flat_map(|bridge| [&bridge.line].into_iter().chain(&bridge.block.givens));
        let plugins =
            self.plugins.iter().flat_map(|plugin| [&plugin.line].into_iter().chain(&plugin.options.givens));
        self.global.givens.iter().chain(listeners).chain(bridges).chain(plugins)
    }
}
