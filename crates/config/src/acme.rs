//! The keys of the table `[acme]`: a certificate that an authority gives, and that renews itself.

use std::path::{Path as FilePath, PathBuf};

use toml::de::DeValue;

use crate::address::ListenAddress;
use crate::jwt::Text;
use crate::keys::Listener;
use crate::kind::{Absent, Address, Kind, ListOf, OrOff, Path, Switch};
use crate::reader::Reader;
use crate::report::Problem;
use crate::schema::keys;
use crate::unit;
use crate::url::{OfAuthority, Url};

keys! {
    /// A certificate from an authority that speaks ACME (RFC 8555), such as Let's Encrypt or step-ca. The broker asks for the
    /// certificate, renews it, and keeps it with its keys in `data_dir`. Listeners with `tls_acme = true` have it.
    /// docs/LISTENERS.md shows the use.
    pub struct Acme = "[acme]", applies Reload, given() {
        /// The host names for which the certificate is, at most 100. All of them must lead to this broker.
        domains: Vec<String> { kind: ListOf<Domain>, default: Vec::new() }
        /// Whether you agree to the terms of service of the authority. Without `true`, nothing is asked for.
        terms_of_service_agreed: bool { kind: Switch, default: false }
        /// The addresses for mail from the authority, such as `ops@example.org`. Not every authority sends some.
        contact: Vec<String> { kind: ListOf<Mail>, default: Vec::new() }
        /// The URL of the authority's directory. Without TLS, it is on this machine. Redirects are not followed.
        directory_url: String { kind: Url<OfAuthority>, default: LETS_ENCRYPT.to_owned() }
        /// The file with the certificates of the authorities that may have signed that of the authority's own server, in PEM.
        /// Without this key they are those that the system trusts.
        ca_file: Option<PathBuf> { kind: OrOff<Path>, default: None }
        /// The host and port at which the broker answers the authority's questions over HTTP (HTTP-01), such as `0.0.0.0:80`.
        /// The authority asks at port 80. Off: the listeners with `tls_acme` answer (TLS-ALPN-01), and the authority asks at
        /// port 443.
        http_address: Option<ListenAddress> { kind: OrOff<Address>, default: None, applies: Restart }
        /// The profile of the certificate, such as `shortlived`, if the authority has several.
        profile: Option<String> { kind: Absent<Text>, default: None }
    }
}

const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";

/// Maximum number of names in a certificate. Let's Encrypt has the same.
const DOMAINS_MAX: usize = 100;

/// Maximum length of the name of a directory, in bytes.
const NAME_BYTES_MAX: usize = 120;

impl Acme {
    /// The directory with the account and the certificate of this authority.
    pub fn directory(&self, data_dir: &FilePath) -> PathBuf {
        let url = self.directory_url.split_once("://").map_or(&*self.directory_url, |(_, rest)| rest);
        let is_plain = |letter: &char| letter.is_ascii_alphanumeric() || "-_.".contains(*letter);
        let name = url.trim_end_matches('/').chars().take(NAME_BYTES_MAX);
        let mut name: String = name.map(|letter| Some(letter).filter(is_plain).unwrap_or('-')).collect();
        if name.starts_with('.') || name.is_empty() {
            name.insert(0, '-');
        }
        data_dir.join("acme").join(name)
    }

    /// The file with the certificate and its private key.
    pub fn certificate_file(&self, data_dir: &FilePath) -> PathBuf {
        self.directory(data_dir).join("certificate.pem")
    }

    /// Reads the table, and refuses settings that have no effect, or with which no authority gives a certificate.
    pub(crate) fn read_whole(table: &mut Reader<'_, '_>) -> Self {
        let read = Self::read(table);
        let others = [
            (read.terms_of_service_agreed, "terms_of_service_agreed"),
            (!read.contact.is_empty(), "contact"),
            (read.directory_url != LETS_ENCRYPT, "directory_url"),
            (read.ca_file.is_some(), "ca_file"),
            (read.http_address.is_some(), "http_address"),
            (read.profile.is_some(), "profile"),
        ];
        let others: Vec<&str> =
            others.into_iter().filter(|(is_set, _)| *is_set).map(|(_, key)| key).collect();
        if read.domains.is_empty() {
            table.refuse_without("domains", &others);
        }
        if !read.domains.is_empty() && !read.terms_of_service_agreed {
            let title = "nobody has agreed to the terms of service of the authority".to_owned();
            let problem = Problem::at(table.span_of("terms_of_service_agreed"), title);
            table.note(problem.advice("read them, and say `terms_of_service_agreed = true`"));
        }
        if read.domains.len() > DOMAINS_MAX {
            let title = format!("there are more than {DOMAINS_MAX} names");
            table.note(Problem::at(table.span_of("domains"), title));
        }
        if read.http_address.as_ref().is_some_and(|address| !address.is_inet() || address.is_quic()) {
            let title = "`http_address` of [acme] is no host and port of TCP".to_owned();
            let problem = Problem::at(table.span_of("http_address"), title);
            table.note(problem.advice("use \"0.0.0.0:80\""));
        }
        read
    }

    /// Returns why a listener cannot have the certificate: the key, the problem, and advice.
    pub(crate) fn refuse(
        &self,
        listener: &Listener,
        file: Option<&FilePath>,
    ) -> Option<(&'static str, &'static str, &'static str)> {
        if !listener.tls_acme {
            return None;
        }
        let Some(file) = file else {
            let title = "there is no directory for the certificate and its keys";
            return Some(("tls_acme", title, "name a `data_dir`"));
        };
        if self.domains.is_empty() {
            let title = "there are no host names for a certificate";
            return Some(("tls_acme", title, "add `domains` to [acme]"));
        }
        if !listener.tls_certificate.iter().any(|path| path == file) {
            let title = "the listener has another certificate already";
            return Some(("tls_acme", title, "leave out either `tls_acme` or `tls_certificate`"));
        }
        None
    }

    /// Whether the authority can ask nobody: all listeners with its certificate speak QUIC, and there is no address for HTTP.
    pub(crate) fn cannot_answer(&self, listeners: &[Listener]) -> bool {
        let mut with_it = listeners.iter().filter(|listener| listener.tls_acme).peekable();
        let has_some = with_it.peek().is_some();
        self.http_address.is_none() && has_some && with_it.all(|listener| listener.address.is_quic())
    }
}

/// The name of a host for which there can be a certificate.
pub(crate) struct Domain;

impl Kind for Domain {
    type Value = String;
    type Bound = ();

    fn word() -> String {
        "host name".to_owned()
    }

    fn expected() -> String {
        "the name of a host such as \"broker.example.org\"".to_owned()
    }

    fn read(value: &DeValue<'_>) -> Result<String, String> {
        let name = Text::read(value)?.to_ascii_lowercase();
        if name.starts_with("*.") {
            return Err(
                "has a wildcard, which an authority checks by DNS alone: name each host instead".to_owned()
            );
        }
        if name.parse::<std::net::IpAddr>().is_ok() {
            return Err("is an address: the certificate is for names".to_owned());
        }
        let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let is_label = |label: &str| {
            let has_length = (1..=63).contains(&label.len());
            has_length && label.bytes().all(is_inner) && !label.starts_with('-') && !label.ends_with('-')
        };
        if name.len() > 253 || !name.split('.').all(is_label) {
            return Err("is no name of a host".to_owned());
        }
        Ok(name)
    }

    fn show(value: &String) -> String {
        unit::quoted(value)
    }
}

/// An address for mail.
pub(crate) struct Mail;

impl Kind for Mail {
    type Value = String;
    type Bound = ();

    fn word() -> String {
        "address for mail".to_owned()
    }

    fn expected() -> String {
        "an address for mail such as \"ops@example.org\"".to_owned()
    }

    fn read(value: &DeValue<'_>) -> Result<String, String> {
        let text = Text::read(value)?;
        let text = text.strip_prefix("mailto:").unwrap_or(&text);
        let has_parts = text.split_once('@').is_some_and(|(name, host)| !name.is_empty() && !host.is_empty());
        let is_plain = text.chars().all(|letter| letter.is_ascii_graphic() && !"?,<>\"".contains(letter));
        if has_parts && is_plain { Ok(text.to_owned()) } else { Err("is no address for mail".to_owned()) }
    }

    fn show(value: &String) -> String {
        unit::quoted(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Flags, Machine, Sources};

    fn parse_with(text: &str, flags: &Flags) -> Result<Config, String> {
        let machine = Machine { cores: 1, memory_bytes: 1 << 30, open_files: 1_024, state_dir: "/s".into() };
        Config::parse(&Sources::of("pond.toml", text), flags, &machine).map_err(|report| report.to_string())
    }

    fn parse(text: &str) -> Result<Config, String> {
        parse_with(text, &Flags::default())
    }

    const ACME: &str = "[acme]\ndomains = [\"a.example\", \"B.example\"]\nterms_of_service_agreed = true\n";
    const LISTENER: &str =
        "[[listener]]\naddress = \"0.0.0.0:8883\"\nallow_anonymous = true\ntls_acme = true\n";

    #[test]
    fn a_listener_has_the_certificate_of_the_authority() {
        let config = parse(&format!("{ACME}contact = \"mailto:ops@a.example\"\n{LISTENER}")).expect("a file");
        let file = PathBuf::from("/s/acme/acme-v02.api.letsencrypt.org-directory/certificate.pem");
        assert_eq!(config.listeners[0].tls_certificate, std::slice::from_ref(&file));
        assert_eq!(config.listeners[0].tls_key, [file]);
        assert_eq!(config.acme.domains, ["a.example", "b.example"]);
        assert_eq!(config.acme.contact, ["ops@a.example"]);
        assert_eq!(parse(&config.to_toml()).expect("the same file"), config);
        let quic = LISTENER.replace("0.0.0.0", "quic://0.0.0.0");
        assert!(parse(&format!("{ACME}http_address = \"0.0.0.0:80\"\n{quic}")).is_ok());
        assert!(parse(&format!("{ACME}{LISTENER}{quic}")).is_ok());
    }

    #[test]
    fn settings_that_cannot_hold_are_refused() {
        let agreed = "terms_of_service_agreed = true\n";
        let quic = LISTENER.replace("0.0.0.0", "quic://0.0.0.0");
        for (text, why) in [
            (LISTENER.to_owned(), "no host names"),
            (format!("[acme]\n{agreed}"), "no effect without `domains`"),
            ("[acme]\ndomains = \"a.example\"\n".to_owned(), "terms of service"),
            (format!("{ACME}{LISTENER}tls_certificate = \"a\"\ntls_key = \"a\"\n"), "another certificate"),
            (format!("{ACME}{quic}"), "cannot ask"),
            (format!("{ACME}http_address = \"unix:/run/x\"\n{LISTENER}"), "no host and port of TCP"),
            (format!("data_dir = \"off\"\n{ACME}{LISTENER}"), "no directory"),
            (format!("{ACME}directory_url = \"http://ca.example/\"\n"), "without TLS"),
            (format!("{ACME}directory_url = \"ftp://ca.example/\"\n"), "begins neither"),
            (format!("{ACME}contact = \"ops\"\n"), "no address for mail"),
        ] {
            let report = parse(&text).expect_err(&text);
            assert!(report.contains(why), "{text}: {report}");
        }
        for domain in
            ["*.a.example", "192.0.2.1", "::1", "a..example", "-a.example", "a_b.example", "a b", "a."]
        {
            assert!(parse(&format!("[acme]\ndomains = \"{domain}\"\n{agreed}")).is_err(), "{domain}");
        }
        let many = (0..=DOMAINS_MAX).map(|number| format!("\"{number}.example\"")).collect::<Vec<_>>();
        let list = |names: &[String]| format!("[acme]\ndomains = [{}]\n{agreed}", names.join(", "));
        assert!(parse(&list(&many[1..])).is_ok());
        assert!(parse(&list(&many)).is_err_and(|report| report.contains("more than 100")));
        let in_memory = Flags { in_memory: true, ..Flags::default() };
        let report = parse_with(&format!("{ACME}{LISTENER}"), &in_memory).expect_err("nothing can be kept");
        assert!(report.contains("no directory"), "{report}");
    }

    #[test]
    fn each_authority_has_a_directory_below_the_data() {
        for (url, name) in [
            ("https://ca.example/directory", "ca.example-directory"),
            ("https://ca.example:14000/dir/", "ca.example-14000-dir"),
            ("https://../..", "-..-.."),
            ("https://[::1]:14000/dir", "---1--14000-dir"),
        ] {
            let acme = Acme { directory_url: url.to_owned(), ..parse("").expect("an empty file").acme };
            let directory = acme.directory(FilePath::new("/s"));
            assert_eq!(directory.file_name().and_then(|name| name.to_str()), Some(name), "{url}");
            assert_eq!(directory.parent(), Some(FilePath::new("/s/acme")), "{url}");
        }
    }

    #[test]
    fn a_reload_keeps_the_directory_of_the_data() {
        let text = |dir: &str, more: &str| format!("data_dir = \"{dir}\"\n{ACME}{more}{LISTENER}");
        let mut config = parse(&text("/s", "")).expect("a file");
        let before = config.listeners.clone();
        config.take_over(&parse(&text("/t", "")).expect("a file"));
        assert_eq!(config.listeners, before, "the directory needs a restart");
        let other = parse(&text("/s", "directory_url = \"https://ca.example/\"\n")).expect("a file");
        config.take_over(&other);
        assert_eq!(config, other);
    }
}
