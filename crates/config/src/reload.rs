//! A configuration that takes the place of another one while the broker runs.

use crate::Origin;
use std::path::PathBuf;

use crate::keys::{Global, Listener};
use crate::load::Config;
use crate::schema::Applies;

/// A key whose value differs between two configurations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The key with its table, such as `limits.packet_bytes` or `listener[127.0.0.1:1883].max_qos`.
    pub key: String,
    /// The new value, as the file would say it. Empty if there is none.
    pub value: String,
    /// The moment from which the new value counts.
    pub applies: Applies,
}

/// The differences between two configurations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Keys with other values, in the order of the manual.
    pub keys: Vec<Change>,
    /// For each listener of the new configuration: the place of the same listener in the former one.
    pub former: Vec<Option<usize>>,
    /// The places of the listeners that are gone, in the former configuration.
    pub removed: Vec<usize>,
}

/// The origins of the values in force after a reload: those of the new configuration, but for keys that need a restart.
///
/// `listeners` are the listeners in force after the reload. Changes name them by their addresses, and origins by their places.
pub fn origins_after(
    former: &[(String, Origin)],
    new: &[(String, Origin)],
    changes: &Changes,
    listeners: &[Listener],
) -> Vec<(String, Origin)> {
    let mut origins = new.to_vec();
    for change in changes.keys.iter().filter(|change| change.applies == Applies::Restart) {
        let place = listeners.iter().enumerate().find_map(|(place, listener)| {
            let key = change.key.strip_prefix(&format!("listener[{}].", listener.address))?;
            Some((format!("listener[{place}].{key}"), format!("listener[{}].{key}", changes.former[place]?)))
        });
        let (key, before) = place.unwrap_or_else(|| (change.key.clone(), change.key.clone()));
        origins.retain(|(known, _)| *known != key);
        let kept = former.iter().filter(|(known, _)| *known == before);
        origins.extend(kept.map(|(_, origin)| (key.clone(), origin.clone())));
    }
    origins
}

impl Config {
    /// Takes over all values of a newer configuration that may change while the broker runs, and returns the differences.
    ///
    /// A value that needs a restart stays as it is. A listener is the same in both configurations if it has the same
    /// address. Of several with one address, which is possible with port 0, the first is the first.
    pub fn take_over(&mut self, new: &Self) -> Changes {
        let mut changes = Changes::default();
        let (mut global, keys) = (self.global(), &mut changes.keys);
        global.take_over(&new.global(), "", keys);
        let Global { allow_anonymous, shards, data_dir, user, pid_file, watch_interval, include: _ } = global;
        (self.shards, self.data_dir, self.user, self.pid_file) = (shards, data_dir, user, pid_file);
        (self.allow_anonymous, self.watch_interval) = (allow_anonymous, watch_interval);
        self.auth.take_over(&new.auth, "auth.", keys);
        self.jwt.take_over(&new.jwt, "jwt.", keys);
        self.http_auth.take_over(&new.http_auth, "http_auth.", keys);
        self.ldap.take_over(&new.ldap, "ldap.", keys);
        self.acme.take_over(&new.acme, "acme.", keys);
        let listeners = self.with_own_certificates(new);
        self.take_over_listeners(&listeners, &mut changes);
        self.loopback_by_default = new.loopback_by_default;
        self.not_open.clone_from(&new.not_open);
        let keys = &mut changes.keys;
        self.take_over_limits(new, keys);
        self.sessions.take_over(&new.sessions, "sessions.", keys);
        self.shared.take_over(&new.shared, "shared.", keys);
        self.journal.take_over(&new.journal, "journal.", keys);
        self.log.take_over(&new.log, "log.", keys);
        self.sys.take_over(&new.sys, "sys.", keys);
        self.take_over_admin(new, keys);
        self.otlp.take_over(&new.otlp, "otlp.", keys);
        changes
    }

    /// The listeners of a newer configuration. The files of `[acme]` are in the directory of the data, which needs a restart.
    fn with_own_certificates(&self, new: &Self) -> Vec<Listener> {
        let file = |data_dir: &Option<PathBuf>| Some(new.acme.certificate_file(data_dir.as_deref()?));
        let (own, theirs) = (file(&self.data_dir), file(&new.data_dir));
        let mut listeners = new.listeners.clone();
        if let (Some(own), Some(theirs)) = (own, theirs) {
            let of_acme = listeners.iter_mut().filter(|listener| listener.tls_acme);
            let paths =
                of_acme.flat_map(|listener| listener.tls_certificate.iter_mut().chain(&mut listener.tls_key));
            paths.filter(|path| **path == theirs).for_each(|path| path.clone_from(&own));
        }
        listeners
    }

    fn take_over_listeners(&mut self, new: &[Listener], changes: &mut Changes) {
        let mut is_taken = vec![false; self.listeners.len()];
        let mut listeners = Vec::new();
        for listener in new {
            let mut places = (0..self.listeners.len()).filter(|place| !is_taken[*place]);
            let place = places.find(|place| self.listeners[*place].address == listener.address);
            changes.former.push(place);
            let name = format!("listener[{}]", listener.address);
            let Some(place) = place else {
                changes.keys.push(of_listener(name, "added"));
                listeners.push(listener.clone());
                continue;
            };
            is_taken[place] = true;
            let mut same = self.listeners[place].clone();
            same.take_over(listener, &format!("{name}."), &mut changes.keys);
            listeners.push(same);
        }
        for (place, listener) in self.listeners.iter().enumerate().filter(|(place, _)| !is_taken[*place]) {
            changes.keys.push(of_listener(format!("listener[{}]", listener.address), "removed"));
            changes.removed.push(place);
        }
        self.listeners = listeners;
    }

    /// Passwords wait with the keys about TLS for a restart, if they would cross a network in plain text until then.
    fn take_over_admin(&mut self, new: &Self, keys: &mut Vec<Change>) {
        let (before, from) = (self.admin.users.clone(), keys.len());
        self.admin.take_over(&new.admin, "admin.", keys);
        if self.admin.has_open_passwords() {
            self.admin.users = before;
            keys[from..]
                .iter_mut()
                .filter(|change| change.key == "admin.users")
                .for_each(|change| change.applies = Applies::Restart);
        }
    }

    /// A packet has to fit into a segment of the journal, and segments stay as they are.
    fn take_over_limits(&mut self, new: &Self, keys: &mut Vec<Change>) {
        let (before, bytes_max) = (self.limits.packet_bytes, self.journal.segment_bytes_min / 4);
        let from = keys.len();
        self.limits.take_over(&new.limits, "limits.", keys);
        if self.limits.packet_bytes > bytes_max.max(before) {
            self.limits.packet_bytes = before;
            keys[from..]
                .iter_mut()
                .filter(|change| change.key == "limits.packet_bytes")
                .for_each(|change| change.applies = Applies::Restart);
        }
    }
}

fn of_listener(key: String, value: &str) -> Change {
    Change { key, value: value.to_owned(), applies: Applies::Reload }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Flags, Machine, Sources};

    fn parse(text: &str) -> Config {
        let machine = Machine { cores: 1, memory_bytes: 1 << 30, open_files: 1_024, state_dir: "/s".into() };
        Config::parse(&Sources::of("pond.toml", text), &Flags::default(), &machine).unwrap()
    }

    /// The second listener becomes the first one, and keeps its backlog with the line that has set it.
    #[test]
    fn a_key_that_waits_for_a_restart_keeps_its_origin() {
        let machine = Machine { cores: 1, memory_bytes: 1 << 30, open_files: 1_024, state_dir: "/s".into() };
        let parse = |text: &str| {
            let parsed =
                Config::parse_with_origins(&Sources::of("pond.toml", text), &Flags::default(), &machine);
            parsed.unwrap_or_else(|report| panic!("{}", report.render(false)))
        };
        let listener =
            |port: u16, rest: &str| format!("[[listener]]\naddress = \"127.0.0.1:{port}\"\n{rest}");
        let (mut config, former) =
            parse(&format!("[sys]\ninterval = \"5 s\"\n{}{}", listener(1, ""), listener(2, "backlog = 7\n")));
        let (new, origins) =
            parse(&(listener(2, "backlog = 8\nmax_qos = 1\n") + &listener(1, "backlog = 9\n")));
        let changes = config.take_over(&new);
        let origins = origins_after(&former, &origins, &changes, &config.listeners);
        let shown = config.to_toml_with_origins(&origins);
        for line in ["interval = \"5 s\" # line 2\n", "backlog = 7 # line 7\n", "max_qos = 1 # line 4\n"] {
            assert!(shown.contains(line), "{line}{shown}");
        }
        let second = shown.rsplit("[[listener]]").next().expect("a listener");
        assert!(
            second.lines().any(|line| line.starts_with("backlog = ") && line.ends_with(" # default")),
            "{second}"
        );
    }

    #[test]
    fn each_key_is_taken_over_or_needs_a_restart_as_its_row_says() {
        let mut config = parse(
            "shards = 1\n[limits]\nconnections = 5\n[log]\nlevel = \"warn\"\n[sys]\ninterval = \"5 s\"\n",
        );
        let new = parse(
            "shards = 2\n[limits]\nconnections = 6\n[log]\nlevel = \"info\"\n[sys]\ninterval = \"6 s\"\n",
        );
        let changes = config.take_over(&new);
        let keys: Vec<_> = changes.keys.iter().map(|change| (change.key.as_str(), change.applies)).collect();
        let expected = [
            ("shards", Applies::Restart),
            ("limits.connections", Applies::Reload),
            ("log.level", Applies::Reload),
            ("sys.interval", Applies::Restart),
        ];
        assert_eq!(keys, expected);
        assert_eq!((config.shards, config.limits.connections), (1, 6));
        assert_eq!(config.log.level, new.log.level);
        assert_ne!(config.sys, new.sys);
        assert_eq!(config.take_over(&config.clone()).keys, []);
    }

    #[test]
    fn listeners_are_the_same_by_their_addresses() {
        let listener =
            |port: u16, rest: &str| format!("[[listener]]\naddress = \"127.0.0.1:{port}\"\n{rest}");
        let mut config = parse(
            &(listener(1, "")
                + &listener(2, "backlog = 5\n")
                + &listener(0, "")
                + &listener(0, "max_qos = 1\n")),
        );
        let new = parse(
            &(listener(2, "max_qos = 0\nbacklog = 6\n")
                + &listener(3, "")
                + &listener(0, "")
                + &listener(0, "max_qos = 1\n")),
        );
        let changes = config.take_over(&new);
        assert_eq!(changes.former, [Some(1), None, Some(2), Some(3)]);
        assert_eq!(changes.removed, [0]);
        let keys: Vec<_> =
            changes.keys.iter().map(|change| (change.key.as_str(), change.value.as_str())).collect();
        let expected = [
            ("listener[127.0.0.1:2].backlog", "6"),
            ("listener[127.0.0.1:2].max_qos", "0"),
            ("listener[127.0.0.1:3]", "added"),
            ("listener[127.0.0.1:1]", "removed"),
        ];
        assert_eq!(keys, expected);
        assert_eq!((config.listeners[0].backlog, config.listeners[0].max_qos), (5, 0));
    }

    #[test]
    fn passwords_of_operators_wait_for_tls() {
        let text = |admin: &str| {
            format!(
                "[auth]\npassword_file = \"p\"\n[admin]\naddress = \"0.0.0.0:9883\"\nadmin_token_file = \"t\"\n{admin}"
            )
        };
        const USERS: &str = "users = { anna = \"admin\" }\n";
        let with_tls = format!("tls_certificate = \"a\"\ntls_key = \"b\"\n{USERS}");
        let mut config = parse(&text(""));
        let changes = config.take_over(&parse(&text(&with_tls)));
        assert_eq!(config.admin.users.len(), 0);
        assert_eq!(changes.keys.len(), 3);
        assert!(changes.keys.iter().all(|change| change.applies == Applies::Restart), "{changes:?}");
        let mut config = parse(&text(&with_tls.replace(USERS, "")));
        let changes = config.take_over(&parse(&text(&with_tls)));
        let keys: Vec<_> = changes.keys.iter().map(|change| (&*change.key, change.applies)).collect();
        assert_eq!(keys, [("admin.users", Applies::Reload)]);
        assert_eq!(config.admin.users.len(), 1);
    }

    #[test]
    fn a_packet_that_fits_into_no_segment_needs_a_restart() {
        let mut config = parse("[limits]\npacket_bytes = \"2 MiB\"\n");
        let changes = config.take_over(&parse("[limits]\npacket_bytes = \"16 MiB\"\n"));
        assert_eq!(config.limits.packet_bytes, 2 << 20);
        assert!(changes.keys.iter().all(|change| change.applies == Applies::Restart), "{changes:?}");
        assert_eq!(config.take_over(&parse("[limits]\npacket_bytes = \"1 MiB\"\n")).keys.len(), 1);
        assert_eq!(config.limits.packet_bytes, 1 << 20);
    }
}
