//! The keys of the tables `[http_auth]` and `[ldap]`: servers elsewhere that know users.

use std::path::PathBuf;
use std::time::Duration;

use ldap::{DnTemplate, Filter};

use crate::jwt::{Jwt, Text};
use crate::kind::{Absent, Choice, OrOff, Path, Switch, Time, Words};
use crate::reader::Reader;
use crate::report::Problem;
use crate::schema::keys;
use crate::url::{OfDirectory, OfService, Url, UrlParts};

keys! {
    /// A service of your own that knows users. It is asked over HTTP about each user name that is in no file of the
    /// listener. docs/AUTHENTICATION.md shows the questions and the answers.
    pub struct HttpAuth = "[http_auth]", applies Reload, given() {
        /// The URL to which questions are sent, such as `https://id.example/mqtt`. Redirects are not followed.
        url: Option<String> { kind: OrOff<Url<OfService>>, default: None }
        /// The form of a question, which has the values `username`, `password` and `clientid`. `json`: POST with an object in
        /// JSON. `form`: POST with a form. `query`: GET with a query behind the URL, which servers often write into their logs.
        question: QuestionForm { kind: Choice<QuestionForm>, default: QuestionForm::Json }
        /// The part of the answer that decides. `json`: the body of an answer with status 200, with `"result": "allow"` as in
        /// EMQX, or `"Ok": true` as in mosquitto-go-auth; or status 204. `status`: any status from 200 to 299. `text`: the body
        /// `ok`.
        answer: AnswerForm { kind: Choice<AnswerForm>, default: AnswerForm::Json }
        /// The file with the value of the header `Authorization`, such as `Bearer 8f1c…`, in one line. It is read again after
        /// SIGHUP, and when it has changed.
        authorization_file: Option<PathBuf> { kind: OrOff<Path>, default: None }
        /// The file with the certificates of the authorities that may have signed the server's, in PEM. Without this key they are
        /// those that the system trusts.
        ca_file: Option<PathBuf> { kind: OrOff<Path>, default: None }
        /// Whether passwords may go to another machine without TLS. Everybody on the way can read them, and log in with
        /// them.
        plain_text: bool { kind: Switch, default: false }
        /// The time from a question to the end of its answer. Then the client is refused, and may try again.
        timeout: Duration {
            kind: Time, default: Duration::from_secs(3),
            bounds: Duration::from_millis(100)..=Duration::from_secs(30),
        }
        /// The time for which an answer that lets a client in is good for the same user, password and client identifier. A
        /// removed user can log in for this time. `0s`: each login is a question.
        remember: Duration {
            kind: Time, default: Duration::ZERO, bounds: Duration::ZERO..=Duration::from_secs(86_400)
        }
    }
}

keys! {
    /// A directory that knows users, such as OpenLDAP or Active Directory. It is asked over LDAP about each user name that
    /// neither a file of the listener nor the service of `[http_auth]` knows. docs/AUTHENTICATION.md shows the use.
    pub struct Ldap = "[ldap]", applies Reload, given() {
        /// The URL of the directory, such as `ldaps://ldap.example` or `ldap://127.0.0.1:389`.
        url: Option<String> { kind: OrOff<Url<OfDirectory>>, default: None }
        /// Whether a connection to `ldap://` changes to TLS before anything else (StartTLS).
        start_tls: bool { kind: Switch, default: false }
        /// The name of the user's entry, such as `uid={user},ou=people,dc=example`. `{user}` stands for the user name, with its
        /// special characters escaped. A user who can log in to this entry (bind) can log in here.
        user_dn: Option<String> { kind: Absent<Text>, default: None }
        /// The entry below which the user's entry is searched for. Use it in the place of `user_dn` if the entries of users have no
        /// common form.
        search_base: Option<String> { kind: Absent<Text>, default: None }
        /// The filter that finds the user's entry below `search_base`. A user who has not exactly one entry is unknown.
        search_filter: String { kind: Text, default: SEARCH_FILTER.to_owned() }
        /// The attribute of the entry that has the user's name. However a client spells its name, this is the user's name here.
        user_attribute: String { kind: Text, default: USER_ATTRIBUTE.to_owned() }
        /// The entry as which the broker searches. Without this key it searches without a name.
        search_dn: Option<String> { kind: Absent<Text>, default: None }
        /// The file with the password for `search_dn`, in one line. It is read again after SIGHUP, and when it has changed.
        search_password_file: Option<PathBuf> { kind: OrOff<Path>, default: None }
        /// The file with the certificates of the authorities that may have signed the server's, in PEM. Without this key they are
        /// those that the system trusts.
        ca_file: Option<PathBuf> { kind: OrOff<Path>, default: None }
        /// Whether passwords may go to another machine without TLS. Everybody on the way can read them, and log in with
        /// them.
        plain_text: bool { kind: Switch, default: false }
        /// The time from a question to the end of its answer. Then the client is refused, and may try again.
        timeout: Duration {
            kind: Time, default: Duration::from_secs(3),
            bounds: Duration::from_millis(100)..=Duration::from_secs(30),
        }
        /// The time for which an answer that lets a client in is good for the same user, password and client identifier. A
        /// removed user can log in for this time. `0s`: each login is a question.
        remember: Duration {
            kind: Time, default: Duration::ZERO, bounds: Duration::ZERO..=Duration::from_secs(86_400)
        }
    }
}

/// The tables that name others who vouch for users, besides the files of a listener.
#[derive(Clone, Copy)]
pub(crate) struct Vouchers<'a> {
    pub(crate) jwt: &'a Jwt,
    pub(crate) http: &'a HttpAuth,
    pub(crate) ldap: &'a Ldap,
}

impl Vouchers<'_> {
    /// Whether there is any.
    pub(crate) fn is_any(&self) -> bool {
        self.jwt.has_keys() || self.http.url.is_some() || self.ldap.url.is_some()
    }
}

const SEARCH_FILTER: &str = "(uid={user})";
const USER_ATTRIBUTE: &str = "uid";
const PLAIN_TEXT: &str = "passwords would go to another machine without TLS";

impl HttpAuth {
    /// Reads the table, and refuses settings that have no effect or send passwords to where everybody reads them.
    pub(crate) fn read_whole(table: &mut Reader<'_, '_>) -> Self {
        let read = Self::read(table);
        refuse_without_url(
            table,
            &["question", "answer", "authorization_file", "ca_file", "plain_text", "timeout", "remember"],
        );
        let is_plain = read.url.as_deref().is_some_and(|url| is_elsewhere_and_plain(url, "http"));
        if is_plain && !read.plain_text {
            let problem = Problem::at(table.span_of("url"), PLAIN_TEXT.to_owned());
            table.note(problem.advice("use https://, or say `plain_text = true` in a network of your own"));
        }
        read
    }
}

impl Ldap {
    /// Reads the table, and refuses settings that have no effect or send passwords to where everybody reads them.
    pub(crate) fn read_whole(table: &mut Reader<'_, '_>) -> Self {
        let read = Self::read(table);
        let others = [
            "start_tls",
            "user_dn",
            "search_base",
            "search_filter",
            "user_attribute",
            "search_dn",
            "search_password_file",
            "ca_file",
            "plain_text",
            "timeout",
            "remember",
        ];
        refuse_without_url(table, &others);
        if read.search_base.is_none() && read.url.is_some() {
            table.refuse_without("search_base", &read.of_search());
        }
        let problems = read.url.iter().flat_map(|url| read.problems(url));
        for (key, title, advice) in problems {
            table.note(Problem::at(table.span_of(key), title).advice(advice));
        }
        read
    }

    /// The keys about a search that have another value than by default.
    fn of_search(&self) -> Vec<&'static str> {
        let keys = [
            (self.search_dn.is_some(), "search_dn"),
            (self.search_password_file.is_some(), "search_password_file"),
            (self.search_filter != SEARCH_FILTER, "search_filter"),
            (self.user_attribute != USER_ATTRIBUTE, "user_attribute"),
        ];
        keys.into_iter().filter(|(is_set, _)| *is_set).map(|(_, key)| key).collect()
    }

    /// Settings that do not fit together, each as the key, the problem, and advice.
    fn problems(&self, url: &str) -> impl Iterator<Item = (&'static str, String, &'static str)> {
        let is_plain = is_elsewhere_and_plain(url, "ldap") && !self.start_tls && !self.plain_text;
        let tls = if is_plain {
            let advice =
                "use ldaps:// or `start_tls = true`, or say `plain_text = true` in a network of your own";
            Some(("url", PLAIN_TEXT, advice))
        } else if self.start_tls && url.starts_with("ldaps:") {
            Some((
                "start_tls",
                "ldaps:// has TLS from the beginning",
                "leave `start_tls` out, or use ldap://",
            ))
        } else {
            None
        };
        let searcher = match (&self.search_dn, &self.search_password_file) {
            (Some(_), None) => {
                Some(("search_dn", "there is no password for this entry", "add `search_password_file`"))
            }
            (None, Some(_)) => {
                Some(("search_password_file", "nothing says whose password this is", "add `search_dn`"))
            }
            _ => None,
        };
        let fixed = [tls, searcher].into_iter().flatten();
        fixed.map(|(key, title, advice)| (key, title.to_owned(), advice)).chain(self.problem_of_entry())
    }

    /// The reason why no entry is a user's, if there is one.
    fn problem_of_entry(&self) -> Option<(&'static str, String, &'static str)> {
        match (&self.user_dn, &self.search_base) {
            (None, None) => {
                let title = "nothing says which entry is a user's";
                Some(("url", title.to_owned(), "add `user_dn` or `search_base`"))
            }
            (Some(_), Some(_)) => {
                let title = "there are both `user_dn` and `search_base`";
                Some(("search_base", title.to_owned(), "leave one of them out"))
            }
            (Some(dn), None) => DnTemplate::parse(dn).err().map(|error| {
                ("user_dn", error.to_string(), "write a name such as \"uid={user},ou=people,dc=example\"")
            }),
            (None, Some(_)) => {
                let problem = match Filter::parse(&self.search_filter) {
                    Ok(filter) if filter.has_user() => None,
                    Ok(_) => Some("every user would have the same entry".to_owned()),
                    Err(error) => Some(error.to_string()),
                };
                problem.map(|title| ("search_filter", title, "write a filter such as \"(uid={user})\""))
            }
        }
    }
}

fn refuse_without_url(table: &mut Reader<'_, '_>, keys: &[&str]) {
    table.refuse_without("url", keys);
}

/// Whether a URL with this scheme, which has no TLS, is on another machine.
pub(crate) fn is_elsewhere_and_plain(url: &str, scheme: &str) -> bool {
    UrlParts::of(url).is_ok_and(|parts| parts.scheme == scheme && !parts.is_here())
}

/// The form of a question over HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuestionForm {
    /// POST with an object in JSON.
    Json,
    /// POST with a form.
    Form,
    /// GET with a query.
    Query,
}

impl Words for QuestionForm {
    const WORDS: &'static [(&'static str, Self)] =
        &[("json", Self::Json), ("form", Self::Form), ("query", Self::Query)];
}

/// The part of an answer over HTTP that decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerForm {
    /// An object in JSON.
    Json,
    /// The status decides, whatever the body is.
    Status,
    /// The text `ok`.
    Text,
}

impl Words for AnswerForm {
    const WORDS: &'static [(&'static str, Self)] =
        &[("json", Self::Json), ("status", Self::Status), ("text", Self::Text)];
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
    fn passwords_go_over_tls_or_stay_on_this_machine() {
        for text in [
            "[http_auth]\nurl = \"https://id.example/mqtt\"",
            "[http_auth]\nurl = \"http://127.0.0.1:8080/mqtt?a=b\"",
            "[http_auth]\nurl = \"http://auth:8080/\"\nplain_text = true",
            "[ldap]\nuser_dn = \"uid={user},dc=pond\"\nurl = \"ldaps://ldap.example\"",
            "[ldap]\nuser_dn = \"uid={user},dc=pond\"\nurl = \"ldap://ldap.example\"\nstart_tls = true",
            "[ldap]\nuser_dn = \"uid={user},dc=pond\"\nurl = \"ldap://ldap.example\"\nplain_text = true",
            "[ldap]\nuser_dn = \"uid={user},dc=pond\"\nurl = \"ldap://[::1]:389/\"",
        ] {
            let config = parse(text).unwrap_or_else(|report| panic!("{text}: {report}"));
            let again = parse(&config.to_toml()).expect("the same file");
            assert_eq!((&again.http_auth, &again.ldap), (&config.http_auth, &config.ldap));
            assert!(!config.listeners[0].allow_anonymous, "a listener with users: {text}");
        }
        for text in [
            "[http_auth]\nurl = \"http://id.example/mqtt\"",
            "[ldap]\nuser_dn = \"uid={user},dc=pond\"\nurl = \"ldap://ldap.example\"",
        ] {
            assert!(parse(text).is_err_and(|report| report.contains("without TLS")), "{text}");
        }
    }

    #[test]
    fn settings_that_cannot_hold_are_refused() {
        let ldap = "[ldap]\nurl = \"ldaps://ldap.example\"\n";
        for (text, why) in [
            ("[http_auth]\nanswer = \"status\"".to_owned(), "has no effect without `url`"),
            ("[ldap]\nuser_dn = \"uid={user}\"".to_owned(), "has no effect without `url`"),
            ("[http_auth]\nurl = \"ftp://id.example\"".to_owned(), "begins neither"),
            ("[http_auth]\nurl = \"https://ann:hush@id.example\"".to_owned(), "has a password"),
            (ldap.to_owned(), "which entry is a user's"),
            (format!("{ldap}user_dn = \"uid={{user}}\"\nsearch_base = \"dc=pond\""), "both `user_dn`"),
            (format!("{ldap}user_dn = \"uid=frog,dc=pond\""), "{user}"),
            (format!("{ldap}search_base = \"dc=pond\"\nsearch_filter = \"(uid={{user}}\""), "search_filter"),
            (
                format!("{ldap}user_dn = \"uid={{user}}\"\nuser_attribute = \"mail\""),
                "no effect without `search_base`",
            ),
            (format!("{ldap}search_base = \"dc=pond\"\nsearch_filter = \"(uid=frog)\""), "the same entry"),
            (format!("{ldap}search_base = \"dc=pond\"\nsearch_dn = \"cn=broker\""), "no password"),
            (format!("{ldap}search_base = \"dc=pond\"\nsearch_password_file = \"p\""), "whose password"),
            (format!("{ldap}user_dn = \"uid={{user}}\"\nstart_tls = true"), "from the beginning"),
            ("[ldap]\nurl = \"ldaps://ldap.example/dc=pond\"".to_owned(), "more than a host"),
            ("[[listener]]\naddress = \"127.0.0.1:1\"\nhttp_auth = true".to_owned(), "no service to ask"),
            ("[[listener]]\naddress = \"127.0.0.1:1\"\nldap = true".to_owned(), "no directory to ask"),
        ] {
            let report = parse(&text).expect_err(&text);
            assert!(report.contains(why) && !report.contains("hush"), "{text}: {report}");
        }
    }

    #[test]
    fn a_listener_may_do_without_a_service() {
        let text = "[http_auth]\nurl = \"https://id.example\"\n[[listener]]\naddress = \"0.0.0.0:1883\"\n";
        let config = parse(text).expect("a file");
        assert!(config.not_open.is_empty() && config.listeners[0].http_auth);
        let config = parse(&format!("{text}http_auth = false\n")).expect("a file");
        assert_eq!(
            (config.not_open.len(), config.listeners[0].http_auth),
            (1, false),
            "nobody can log in there"
        );
    }
}
