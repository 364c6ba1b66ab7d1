//! Clients that an operator keeps out, for a time or for good.

use core::net::IpAddr;
use std::collections::BTreeMap;
use std::fmt;

use ipnet::IpNet;
use serde_json::{Value, json};

/// Maximum length of a reason, in bytes.
pub const REASON_BYTES_MAX: usize = 256;

/// The clients that a ban keeps out.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Whom {
    /// The client of this identifier.
    ClientId(Box<str>),
    /// All clients that connect for this user.
    User(Box<str>),
    /// All clients that connect from an address of this network.
    Network(IpNet),
}

/// The terms of a ban.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// The end, in seconds since 1970. `None`: the ban has no end.
    pub until_unix_secs: Option<u64>,
    /// The reason, for operators. At most [`REASON_BYTES_MAX`] bytes.
    pub reason: Box<str>,
}

/// All bans at one time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bans {
    all: BTreeMap<Whom, Terms>,
    /// Lengths of the prefixes of banned networks, each once, of IPv4 and of IPv6.
    prefixes: [Vec<u8>; 2],
}

/// A client that a ban may be about.
#[derive(Debug, Clone, Copy)]
pub struct Suspect<'a> {
    /// The client identifier in CONNECT, or the assigned one.
    pub client_id: &'a str,
    /// User name, as far as it is known.
    pub user: Option<&'a str>,
    /// Address, if the client comes from a network.
    pub address: Option<IpAddr>,
}

impl Whom {
    /// The clients that a kind and a value name: `client_id`, `user` or `address`, of which the last may be a network such as
    /// `192.0.2.0/24`.
    ///
    /// # Errors
    /// The kind is unknown, or the value is empty, too long, or no address.
    pub fn parse(kind: &str, value: &str) -> Result<Self, String> {
        if value.is_empty() || value.len() > usize::from(u16::MAX) {
            return Err("the value is empty or too long".to_owned());
        }
        match kind {
            "client_id" => Ok(Self::ClientId(value.into())),
            "user" => Ok(Self::User(value.into())),
            "address" => {
                let network = value.parse::<IpNet>().ok();
                let network = network.or_else(|| value.parse::<IpAddr>().ok().map(IpNet::from));
                let network =
                    network.ok_or_else(|| format!("{value} is neither an address nor a network"))?;
                Ok(Self::Network(network.trunc()))
            }
            _ => Err(format!("{kind} is none of client_id, user, address")),
        }
    }

    /// The kind, as [`parse`](Self::parse) reads it.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::ClientId(_) => "client_id",
            Self::User(_) => "user",
            Self::Network(_) => "address",
        }
    }

    /// Whether this client is one of them.
    #[must_use]
    pub fn matches(&self, suspect: &Suspect<'_>) -> bool {
        match self {
            Self::ClientId(text) => **text == *suspect.client_id,
            Self::User(text) => suspect.user == Some(text),
            Self::Network(network) => {
                suspect.address.is_some_and(|address| network.contains(&address.to_canonical()))
            }
        }
    }
}

/// The value, as [`Whom::parse`] reads it.
impl fmt::Display for Whom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClientId(text) | Self::User(text) => f.write_str(text),
            Self::Network(network) if network.prefix_len() == network.max_prefix_len() => {
                network.addr().fmt(f)
            }
            Self::Network(network) => network.fmt(f),
        }
    }
}

impl Terms {
    fn hold(&self, unix_secs: u64) -> bool {
        self.until_unix_secs.is_none_or(|until| unix_secs < until)
    }
}

impl Bans {
    /// Number of bans, ended ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there are no bans.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// All bans, in the order of kinds and values.
    pub fn iter(&self) -> impl Iterator<Item = (&Whom, &Terms)> {
        self.all.iter()
    }

    /// Adds a ban, in the place of an earlier one of the same clients.
    pub fn insert(&mut self, whom: Whom, terms: Terms) {
        self.all.insert(whom, terms);
        self.note_prefixes();
    }

    /// Lifts a ban. Returns whether there was one.
    pub fn remove(&mut self, whom: &Whom) -> bool {
        let was_there = self.all.remove(whom).is_some();
        self.note_prefixes();
        was_there
    }

    /// Forgets bans that have ended.
    pub fn forget_ended(&mut self, unix_secs: u64) {
        self.all.retain(|_, terms| terms.hold(unix_secs));
        self.note_prefixes();
    }

    /// The ban that keeps a client out now. Costs a look-up for the identifier, for the user, and for each length of prefix.
    #[must_use]
    pub fn find(&self, suspect: &Suspect<'_>, unix_secs: u64) -> Option<(&Whom, &Terms)> {
        let Suspect { client_id, user, address } = suspect;
        let client_id = [Whom::ClientId((*client_id).into())];
        let user = user.map(|user| Whom::User(user.into()));
        let address = address.map(|address| address.to_canonical());
        let networks = address.into_iter().flat_map(|address| {
            let lengths = self.prefixes[usize::from(address.is_ipv6())].iter();
            lengths.filter_map(move |length| Some(Whom::Network(IpNet::new(address, *length).ok()?.trunc())))
        });
        let mut found = client_id.into_iter().chain(user).chain(networks);
        found.find_map(|whom| self.all.get_key_value(&whom).filter(|(_, terms)| terms.hold(unix_secs)))
    }

    fn note_prefixes(&mut self) {
        self.prefixes = Default::default();
        for whom in self.all.keys() {
            if let Whom::Network(network) = whom {
                let lengths = &mut self.prefixes[usize::from(network.addr().is_ipv6())];
                if !lengths.contains(&network.prefix_len()) {
                    lengths.push(network.prefix_len());
                }
            }
        }
    }

    /// The text of a file with all bans.
    #[must_use]
    pub fn to_json(&self) -> String {
        let describe = |(whom, Terms { until_unix_secs, reason }): (&Whom, &Terms)| json!({ "kind": whom.kind(), "value": whom.to_string(), "until": until_unix_secs, "reason": reason });
        let all: Vec<Value> = self.all.iter().map(describe).collect();
        format!("{:#}\n", json!({ "bans": all }))
    }

    /// The bans in the text of a file.
    ///
    /// # Errors
    /// The text is not such a file. The error names the ban.
    pub fn parse(text: &str) -> Result<Self, String> {
        let tree: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let list = tree["bans"].as_array().ok_or("there is no list `bans`")?;
        let mut bans = Self::default();
        for (place, ban) in list.iter().enumerate() {
            let of_ban = |problem: String| format!("ban {}: {problem}", place + 1);
            let text = |name: &str| ban[name].as_str().ok_or_else(|| of_ban(format!("{name} is no text")));
            let whom = Whom::parse(text("kind")?, text("value")?).map_err(of_ban)?;
            let until_unix_secs = match &ban["until"] {
                Value::Null => None,
                until => {
                    Some(until.as_u64().ok_or_else(|| of_ban("until is no number of seconds".to_owned()))?)
                }
            };
            let reason = ban["reason"].as_str().unwrap_or_default().into();
            bans.all.insert(whom, Terms { until_unix_secs, reason });
        }
        bans.note_prefixes();
        Ok(bans)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(until_unix_secs: Option<u64>) -> Terms {
        Terms { until_unix_secs, reason: "noisy".into() }
    }

    fn bans(all: &[(&str, &str, Option<u64>)]) -> Bans {
        let mut bans = Bans::default();
        for (kind, value, until) in all {
            bans.insert(Whom::parse(kind, value).expect("a ban"), terms(*until));
        }
        bans
    }

    fn suspect(client_id: &'static str, user: Option<&'static str>, address: &str) -> Suspect<'static> {
        Suspect { client_id, user, address: address.parse().ok() }
    }

    #[test]
    fn a_ban_is_about_an_identifier_a_user_or_a_network() {
        let bans = bans(&[
            ("client_id", "frog", None),
            ("user", "ann", None),
            ("address", "192.0.2.7", None),
            ("address", "2001:db8::1/32", None),
        ]);
        for (banned, kind) in [
            (suspect("frog", None, ""), "client_id"),
            (suspect("toad", Some("ann"), "192.0.2.1"), "user"),
            (suspect("toad", Some("bob"), "192.0.2.7"), "address"),
            (suspect("toad", None, "::ffff:192.0.2.7"), "address"),
            (suspect("toad", None, "2001:db8:ffff::9"), "address"),
        ] {
            assert_eq!(bans.find(&banned, 0).map(|(whom, _)| whom.kind()), Some(kind), "{banned:?}");
            assert_eq!(bans.iter().filter(|(whom, _)| whom.matches(&banned)).count(), 1, "{banned:?}");
        }
        for welcome in [
            suspect("Frog", None, "192.0.2.8"),
            suspect("ann", Some("frog"), "2001:db9::1"),
            suspect("", None, "::1"),
        ] {
            assert_eq!(bans.find(&welcome, 0), None, "{welcome:?}");
            assert!(bans.iter().all(|(whom, _)| !whom.matches(&welcome)), "{welcome:?}");
        }
    }

    #[test]
    fn a_ban_ends() {
        let mut bans = bans(&[("client_id", "frog", Some(100)), ("user", "ann", None)]);
        let frog = suspect("frog", None, "");
        assert!(bans.find(&frog, 99).is_some() && bans.find(&frog, 100).is_none());
        bans.forget_ended(100);
        assert_eq!(bans.len(), 1);
        assert!(bans.remove(&Whom::User("ann".into())) && !bans.remove(&Whom::User("ann".into())));
        assert!(bans.is_empty());
    }

    #[test]
    fn bans_survive_their_file() {
        let before = bans(&[
            ("client_id", "é\"\n", Some(7)),
            ("user", "ann", None),
            ("address", "10.0.0.0/8", None),
            ("address", "::1", None),
        ]);
        let after = Bans::parse(&before.to_json()).expect("it is a file");
        assert_eq!(after, before);
        for (text, problem) in [
            ("", "EOF"),
            ("{}", "no list"),
            (r#"{"bans":[{"kind":"user","value":"a"},{"kind":"x","value":"a"}]}"#, "ban 2: x is none of"),
            (r#"{"bans":[{"kind":"address","value":"a"}]}"#, "neither an address"),
            (r#"{"bans":[{"kind":"user","value":"a","until":"x"}]}"#, "ban 1: until"),
        ] {
            let told = Bans::parse(text).expect_err(text);
            assert!(told.contains(problem), "{told}");
        }
    }
}
