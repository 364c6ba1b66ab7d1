//! The description of a directive: its scope, the form of its value, and its fate.

/// The owner of a directive's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// The whole broker, wherever the line stands.
    Global,
    /// The whole broker, or the listener above the line with `per_listener_settings true`.
    Security,
    /// The listener above the line, or the default listener.
    Listener,
    /// The bridge above the line.
    Bridge,
    /// The plugin above the line.
    Plugin,
    /// The line begins something, or is about the files themselves.
    Structure,
}

/// The form of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// The next word, which is `true`, `false`, `1` or `0`.
    Flag,
    /// The next word, a whole number within bounds.
    Number(i64, i64),
    /// The rest of the line without the blanks and tabs around it.
    Text,
    /// The rest of the line. It names something secret.
    Secret,
    /// Words, separated by blanks. There is at least one.
    Words,
}

/// The consequence of a second line with the same directive in the same scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    /// The last line wins.
    Last,
    /// A second line is an error.
    Never,
    /// All lines count together.
    Adds,
}

/// The fate of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The translation makes keys of it, perhaps with a remark, or refuses its value.
    Translated,
    /// Nothing is lost without it. The text says why.
    Ignored(&'static str),
    /// The broker does not start. The text says why.
    Refused(&'static str),
    /// A switch: ignored with the first text if it is off, refused with the second text if it is on.
    RefusedIfOn(&'static str, &'static str),
    /// The same, the other way round.
    RefusedIfOff(&'static str, &'static str),
}

/// A directive of Mosquitto 2.0 or 2.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Directive {
    /// The name in the file.
    pub(crate) name: &'static str,
    pub(crate) scope: Scope,
    pub(crate) form: Form,
    pub(crate) again: Again,
    pub(crate) fate: Fate,
    /// Our keys, for the manual. Empty for directives that are ignored or refused.
    pub(crate) keys: &'static str,
}

impl Directive {
    /// Returns the directive with this name. Options of plugins have any ending.
    pub(crate) fn find(name: &str) -> Option<&'static Self> {
        let is_option = |prefix: &str| name.len() > prefix.len() && name.starts_with(prefix);
        let name = match name {
            "auth_plugin_deny_special_chars" => name,
            _ if is_option("auth_opt_") => "auth_opt_*",
            _ if is_option("plugin_opt_") => "plugin_opt_*",
            _ => name,
        };
        crate::table::DIRECTIVES.iter().find(|directive| directive.name == name)
    }

    /// Returns the most similar name, if one is similar.
    pub(crate) fn nearest(name: &str) -> Option<&'static str> {
        let distance =
            |directive: &'static Self| (strsim::osa_distance(name, directive.name), directive.name);
        let (distance, nearest) = crate::table::DIRECTIVES.iter().map(distance).min()?;
        (distance <= name.len() / 3).then_some(nearest)
    }
}
