//! Our own rules about topics: the file that `rules_file` names, with roles and the users who have them.

mod mistakes;
mod table;

use std::collections::BTreeMap;

use auth::{
    Holder, IdPattern, Limits, Permit, QueueLimits, Reach, RoleId, Roles, RolesBuilder, RolesError, RuleKind,
    TopicPrefix,
};
use toml::de::DeTable;
use wire::Qos;

use crate::keys::QUEUE_BYTES_MIN;
use crate::nearest::nearest;

use mistakes::Mistakes;
pub use mistakes::RulesProblems;
use table::{Entry, Table};

/// Reads and compiles a file with roles.
///
/// ```
/// let text = "[roles.sensor]\npublish = [\"devices/%u/#\"]\n[users.ann]\nroles = [\"sensor\"]\n";
/// assert!(config::parse_rules(text).is_ok());
/// let problems = config::parse_rules("[roles.sensor]\npublsh = []\n").unwrap_err();
/// let text = "line 2, column 1: there is no key `publsh` in `roles.sensor`; did you mean `publish`?";
/// assert_eq!(problems.to_string(), text);
/// ```
///
/// # Errors
/// All mistakes in the file, each with its line and its column. A file with a mistake gives nobody a role.
pub fn parse_rules(text: &str) -> Result<Roles, RulesProblems> {
    let mut mistakes = Mistakes::new(text);
    let (document, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        errors.iter().for_each(|error| mistakes.note_syntax(error));
        return Err(mistakes.into_problems());
    }
    let (builder, roles) = (RolesBuilder::default(), BTreeMap::new());
    let mut file = File { builder, roles, prefixes: BTreeMap::new(), mistakes: &mut mistakes };
    file.read(document.get_ref());
    let File { builder, prefixes, .. } = file;
    if mistakes.is_empty() {
        builder.build().map_err(|error| {
            let (place, text) = place_of(&error, &prefixes);
            mistakes.note(place, text);
            mistakes.into_problems()
        })
    } else {
        Err(mistakes.into_problems())
    }
}

/// The place of a mistake that shows when the roles are compiled, and its text.
fn place_of(error: &RolesError, prefixes: &BTreeMap<RoleId, (usize, &str)>) -> (usize, String) {
    if let RolesError::Prefixes { roles, .. } = error
        && let [Some((_, first)), Some((place, second))] = roles.map(|role| prefixes.get(&role))
    {
        return (*place, format!("{error}: {first:?} and {second:?}"));
    }
    (0, error.to_string())
}

/// A file that is being read.
struct File<'a, 'm> {
    builder: RolesBuilder,
    /// The roles that the file has, by name.
    roles: BTreeMap<&'a str, RoleId>,
    /// The topic prefixes of roles, and their places: the value, and the name of the role.
    prefixes: BTreeMap<RoleId, (usize, &'a str)>,
    mistakes: &'m mut Mistakes<'a>,
}

/// The limits of the rules of a role that allow.
#[derive(Clone, Copy)]
struct Levels {
    qos_max: Qos,
    retain: bool,
}

const KINDS: [RuleKind; 3] = [RuleKind::Publish, RuleKind::Subscribe, RuleKind::Receive];

impl<'a> File<'a, '_> {
    fn read(&mut self, document: &'a DeTable<'a>) {
        let top = Table::new("", document);
        // The roles come first, because the others name them.
        for entry in top.tables("roles", self.mistakes) {
            let role = self.builder.role(entry.name);
            self.roles.insert(entry.name, role);
            self.role(role, &entry);
        }
        for entry in top.tables("groups", self.mistakes) {
            self.give(&entry, Holder::Group(entry.name));
            for (_, user) in entry.texts("users", "names", self.mistakes) {
                self.check_name(&entry, user);
                self.builder.join(entry.name, user);
            }
            entry.refuse_others(&["roles", "users"], self.mistakes);
        }
        for entry in top.tables("users", self.mistakes) {
            self.check_name(&entry, entry.name);
            self.give(&entry, Holder::User(entry.name));
            entry.refuse_others(&["roles"], self.mistakes);
        }
        for (name, holder) in [("every_user", Holder::EveryUser), ("anonymous", Holder::Anonymous)] {
            if let Some(entry) = top.table(name, self.mistakes) {
                self.give(&entry, holder);
                entry.refuse_others(&["roles"], self.mistakes);
            }
        }
        top.refuse_others(&["roles", "groups", "users", "every_user", "anonymous"], self.mistakes);
    }

    /// An empty name in CONNECT is none.
    fn check_name(&mut self, entry: &Entry<'a>, name: &str) {
        if name.is_empty() {
            let text = "no user has an empty name; clients without a name have the roles in [anonymous]";
            self.mistakes.note(entry.start, text.to_owned());
        }
    }

    fn role(&mut self, role: RoleId, entry: &Entry<'a>) {
        let qos_max = match entry.whole_number("max_qos", self.mistakes) {
            None | Some(2) => Qos::ExactlyOnce,
            Some(1) => Qos::AtLeastOnce,
            Some(0) => Qos::AtMostOnce,
            Some(_) => {
                let text = format!("`{}.max_qos` is none of 0, 1 and 2", entry.full);
                self.mistakes.note(entry.place("max_qos"), text);
                Qos::AtMostOnce
            }
        };
        let levels = Levels { qos_max, retain: entry.switch("retain", self.mistakes).unwrap_or(true) };
        for kind in KINDS {
            self.rules(role, kind, entry, Some(levels));
        }
        if let Some(deny) = entry.table("deny", self.mistakes) {
            for kind in KINDS {
                self.rules(role, kind, &deny, None);
            }
            deny.refuse_others(&["publish", "subscribe", "receive"], self.mistakes);
        }
        self.limits(role, entry);
        let keys = [
            "publish",
            "subscribe",
            "receive",
            "deny",
            "max_qos",
            "retain",
            "client_ids",
            "connections",
            "messages_per_second",
            "bytes_per_second",
            "expiry_max",
            "queue_messages",
            "queue_bytes",
            "topic_prefix",
        ];
        entry.refuse_others(&keys, self.mistakes);
    }

    fn limits(&mut self, role: RoleId, entry: &Entry<'a>) {
        let client_ids = entry.has("client_ids").then(|| {
            let texts = entry.texts("client_ids", "client identifiers", self.mistakes);
            texts.into_iter().map(|(_, text)| IdPattern::new(text)).collect()
        });
        let connections_max = self.at_least_one("connections", entry);
        let messages_per_sec_max = self.at_least_one("messages_per_second", entry);
        let bytes_per_sec_max = entry.size("bytes_per_second", self.mistakes);
        let expiry_secs_max = entry.seconds("expiry_max", self.mistakes);
        let queue = QueueLimits {
            messages_max: self.at_least_one("queue_messages", entry),
            bytes_max: self.queue_bytes(entry),
        };
        let topic_prefix = self.topic_prefix(role, entry);
        let limits = Limits {
            client_ids,
            connections_max,
            messages_per_sec_max,
            bytes_per_sec_max,
            expiry_secs_max,
            queue,
            reach: topic_prefix.map_or(Reach::Whole, Reach::Below),
        };
        self.builder.limit(role, limits);
    }

    fn topic_prefix(&mut self, role: RoleId, entry: &Entry<'a>) -> Option<TopicPrefix> {
        let text = entry.text("topic_prefix", self.mistakes)?;
        let place = entry.place("topic_prefix");
        self.prefixes.insert(role, (place, entry.name));
        let prefix = TopicPrefix::new(text);
        if let Err(why) = &prefix {
            self.mistakes.note(place, format!("`{}.topic_prefix` {why}", entry.full));
        }
        prefix.ok()
    }

    fn at_least_one(&mut self, key: &str, entry: &Entry<'a>) -> Option<u32> {
        let number = entry.whole_number(key, self.mistakes)?;
        let number = u32::try_from(number).ok().filter(|number| *number > 0);
        if number.is_none() {
            self.mistakes.note(entry.place(key), format!("`{}.{key}` is from 1 to {}", entry.full, u32::MAX));
        }
        number
    }

    /// The bound has the minimum of that of the configuration.
    fn queue_bytes(&mut self, entry: &Entry<'a>) -> Option<u64> {
        let bytes = entry.size("queue_bytes", self.mistakes)?;
        if bytes < QUEUE_BYTES_MIN {
            let text = format!("`{}.queue_bytes` is at least 64 KiB", entry.full);
            self.mistakes.note(entry.place("queue_bytes"), text);
        }
        Some(bytes)
    }

    /// Adds the rules of a list. A rule without levels denies.
    fn rules(&mut self, role: RoleId, kind: RuleKind, entry: &Entry<'a>, levels: Option<Levels>) {
        for (place, filter) in entry.texts(kind.name(), "topic filters", self.mistakes) {
            self.rule((role, kind), filter, place, levels, entry);
            // A client that may subscribe to a filter may receive its messages, and one that may not may not. A list of the
            // role about messages takes the place of the first, and adds to the second.
            if kind == RuleKind::Subscribe && (levels.is_none() || !entry.has("receive")) {
                self.rule((role, RuleKind::Receive), filter, place, levels, entry);
            }
        }
    }

    fn rule(
        &mut self,
        (role, kind): (RoleId, RuleKind),
        filter: &str,
        place: usize,
        levels: Option<Levels>,
        entry: &Entry<'a>,
    ) {
        let permit = levels.map(|Levels { qos_max, retain }| match kind {
            RuleKind::Publish => Permit::up_to(qos_max, retain),
            RuleKind::Subscribe => Permit::up_to(qos_max, true),
            RuleKind::Receive => Permit::ALL,
        });
        let line = self.mistakes.line(place);
        if let Err(error) = self.builder.rule(role, kind, filter, permit, line) {
            self.mistakes.note(place, format!("`{}.{}`: {error}", entry.full, kind.name()));
        }
    }

    /// Gives somebody the roles in a list.
    fn give(&mut self, entry: &Entry<'a>, holder: Holder<'_>) {
        for (place, name) in entry.texts("roles", "roles", self.mistakes) {
            if let Some(role) = self.roles.get(name) {
                self.builder.give(holder, *role);
                continue;
            }
            // Each look compares the name with those of all roles.
            let near =
                if self.mistakes.are_shown() { nearest(name, self.roles.keys().copied()) } else { None };
            let hint = match near {
                Some(near) => format!("did you mean {near:?}?"),
                None => "each role has a table [roles.NAME]".to_owned(),
            };
            self.mistakes.note(place, format!("there is no role {name:?}; {hint}"));
        }
    }
}
