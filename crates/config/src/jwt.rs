//! The keys of the table `[jwt]`: tokens in the place of passwords.

use std::path::PathBuf;
use std::time::Duration;

use auth::Algorithm;
use toml::de::DeValue;

use crate::kind::{Absent, Kind, ListOf, OrOff, Path, Switch, Time};
use crate::reader::Reader;
use crate::report::Problem;
use crate::schema::keys;
use crate::unit;
use crate::url::{OfKeys, Url};

keys! {
    /// Tokens in the place of passwords: signed JSON (JWT), which an identity provider gives to its clients. With a file or a URL
    /// of keys, a password that has the form of a token is checked as one. docs/AUTHENTICATION.md shows the use.
    pub struct Jwt = "[jwt]", applies Reload, given() {
        /// The file with the keys of the issuer: public keys in PEM, a JWKS, or a secret of at least 32 bytes in one line. It is
        /// read again after SIGHUP, and when it has changed.
        key_file: Option<PathBuf> { kind: OrOff<Path>, default: None }
        /// The URL of the issuer's JWKS, such as `https://id.example/.well-known/jwks.json`. Without TLS, it is on this machine.
        /// Redirects are not followed, and an answer has at most 1 MiB. Keys in `key_file` count too.
        keys_url: Option<String> { kind: OrOff<Url<OfKeys>>, default: None }
        /// How often the keys behind `keys_url` are fetched again. A token with an unknown key is a reason to fetch them earlier,
        /// but not more often than every five seconds.
        refresh_interval: Duration {
            kind: Time, default: Duration::from_secs(300),
            bounds: Duration::from_secs(5)..=Duration::from_secs(86_400),
        }
        /// The algorithms that a token may be signed with: `RS256`, `RS384`, `RS512`, `PS256`, `PS384`, `PS512`, `ES256`, `ES384`,
        /// `EdDSA`, `HS256`, `HS384` and `HS512`. Without this key, all of them. A key is for one kind of algorithms in any case:
        /// a public key is never the secret of `HS256`.
        algorithms: Vec<Algorithm> { kind: ListOf<AlgorithmName>, default: Vec::new() }
        /// The issuer that a token must name (`iss`). Without this key it may name any.
        issuer: Option<String> { kind: Absent<Text>, default: None }
        /// The names of this broker, of which a token must have one (`aud`). Without this key a token must have none: it is for
        /// somebody else.
        audience: Vec<String> { kind: ListOf<Text>, default: Vec::new() }
        /// The claim that is the user name. It is a text at the top level of the token.
        user_claim: String { kind: Text, default: "sub".to_owned() }
        /// The claim with names of groups: a list of texts, or one text with blanks between the names. The roles of these groups in
        /// the listener's `rules_file` count for the client together with its own. A token with more than 32 names is refused.
        groups_claim: Option<String> { kind: Absent<Text>, default: None }
        /// The claim with rules about topics: an object with the keys `publish`, `subscribe`, `receive`, `deny`, `max_qos` and
        /// `retain` of a role, or with the lists `pub`, `sub` and `all` of EMQX. The rules count for the client together with those
        /// in files, and alone if there are none. A token with something else in this claim, or with more than 64 filters, is
        /// refused.
        rules_claim: Option<String> { kind: Absent<Text>, default: None }
        /// The difference that is tolerated between the clocks of issuer and broker.
        leeway: Duration {
            kind: Time, default: Duration::from_secs(10),
            bounds: Duration::ZERO..=Duration::from_secs(600),
        }
        /// Whether a token must expire (`exp`). The connection of a client ends when its token expires.
        require_expiry: bool { kind: Switch, default: true }
    }
}

impl Jwt {
    /// Whether tokens can be checked.
    pub fn has_keys(&self) -> bool {
        self.key_file.is_some() || self.keys_url.is_some()
    }

    /// Reads the table, and refuses rules about tokens that nothing can check: they would seem to hold.
    pub(crate) fn read_whole(table: &mut Reader<'_, '_>) -> Self {
        let read = Self::read(table);
        let says_none = table.has("key_file") || table.has("keys_url");
        let rules = [
            "issuer",
            "audience",
            "algorithms",
            "user_claim",
            "groups_claim",
            "rules_claim",
            "leeway",
            "require_expiry",
        ];
        if let Some(rule) = rules.into_iter().find(|rule| table.has(rule))
            && !says_none
        {
            let problem = Problem::at(table.span_of(rule), "there are no keys to check tokens".to_owned());
            table.note(problem.advice("add key_file or keys_url to [jwt]"));
        }
        read
    }
}

/// The name of an algorithm.
pub(crate) struct AlgorithmName;

impl Kind for AlgorithmName {
    type Value = Algorithm;
    type Bound = ();

    fn word() -> String {
        "name of an algorithm".to_owned()
    }

    fn expected() -> String {
        "the name of an algorithm such as \"ES256\"".to_owned()
    }

    fn read(value: &DeValue<'_>) -> Result<Algorithm, String> {
        let name = Text::read(value)?;
        Algorithm::named(&name).ok_or_else(|| format!("cannot be `{name}`"))
    }

    fn show(value: &Algorithm) -> String {
        unit::quoted(&value.to_string())
    }
}

/// A text that is not empty, in one line.
pub(crate) struct Text;

impl Kind for Text {
    type Value = String;
    type Bound = ();

    fn word() -> String {
        "text".to_owned()
    }

    fn expected() -> String {
        "a text in one line".to_owned()
    }

    fn read(value: &DeValue<'_>) -> Result<String, String> {
        match value.as_str() {
            Some("") => Err("cannot be empty".to_owned()),
            Some(text) if text.contains(char::is_control) => {
                Err("has several lines, or characters that nobody can see".to_owned())
            }
            Some(text) => Ok(text.to_owned()),
            None => Err("is no text".to_owned()),
        }
    }

    fn show(value: &String) -> String {
        unit::quoted(value)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Config, Flags, Machine, Sources};

    fn parse(text: &str) -> Result<Config, String> {
        let machine = Machine { cores: 1, memory_bytes: 1 << 30, open_files: 1_024, state_dir: "/s".into() };
        Config::parse(&Sources::of("pond.toml", text), &Flags::default(), &machine)
            .map_err(|report| report.to_string())
    }

    #[test]
    fn keys_come_over_tls_or_from_this_machine() {
        for url in [
            "https://id.example/keys",
            "https://id.example",
            "https://[2001:db8::1]:8443/a?b=c",
            "http://127.0.0.1:8080/keys",
            "http://localhost/keys",
            "http://[::1]:1/",
        ] {
            let config = parse(&format!("[jwt]\nkeys_url = \"{url}\"")).expect(url);
            assert_eq!(config.jwt.keys_url.as_deref(), Some(url));
            assert!(
                config.listeners[0].jwt && parse(&config.to_toml()).is_ok_and(|same| same.jwt == config.jwt)
            );
        }
        for url in [
            "http://id.example/keys",
            "http://127.0.0.1.example/keys",
            "http://localhost.example/",
            "http://[2001:db8::1]/",
            "https://",
            "https:///keys",
            "https://id.example/#keys",
            "https://id.example/k eys",
            "ftp://id.example/keys",
            "file:///etc/keys",
            "id.example/keys",
            "",
        ] {
            assert!(parse(&format!("[jwt]\nkeys_url = \"{url}\"")).is_err(), "{url}");
        }
        let report = parse("[jwt]\nkeys_url = \"https://ann:hush@id.example/keys\"").expect_err("a password");
        assert!(report.contains("password") && !report.contains("hush"), "{report}");
    }

    #[test]
    fn rules_without_keys_are_refused() {
        for rule in [
            "groups_claim = \"a\"",
            "rules_claim = \"a\"",
            "issuer = \"a\"",
            "audience = \"a\"",
            "algorithms = \"ES256\"",
            "require_expiry = false",
        ] {
            let report = parse(&format!("[jwt]\n{rule}")).expect_err(rule);
            assert!(report.contains("no keys"), "{report}");
            assert!(parse(&format!("[jwt]\nkey_file = \"off\"\n{rule}")).is_ok());
        }
        let report = parse("[[listener]]\naddress = \"127.0.0.1:1\"\njwt = true").expect_err("no keys");
        assert!(report.contains("no keys"), "{report}");
        for name in ["none", "HS1", "rs256"] {
            assert!(parse(&format!("[jwt]\nkey_file = \"k\"\nalgorithms = \"{name}\"")).is_err(), "{name}");
        }
    }

    #[test]
    fn tokens_are_a_proof_of_who_a_client_is() {
        let text = "[jwt]\nkey_file = \"k\"\n[[listener]]\naddress = \"0.0.0.0:1883\"\n";
        let config = parse(text).expect("a file");
        assert!(config.not_open.is_empty() && !config.listeners[0].allow_anonymous);
        let config = parse(&format!("{text}jwt = false\n")).expect("a file");
        assert_eq!((config.not_open.len(), config.listeners[0].jwt), (1, false), "nobody can log in there");
        let config = parse("[jwt]\nkey_file = \"k\"\n").expect("a file");
        assert!(config.listeners[0].jwt && !config.listeners[0].allow_anonymous);
    }
}
