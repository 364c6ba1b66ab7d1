//! The files of an authority below `data_dir`: the account, and the certificate with its key. Only the user of the broker may
//! read them.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use data_encoding::BASE64;
use instant_acme::AccountCredentials;
use rustls::client::verify_server_name;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::ParsedCertificate;
use serde::{Deserialize, Serialize};

use super::schedule::Validity;
use crate::stack;
use crate::users::replace_private;

/// Maximum number of certificates in a chain.
const CHAIN_MAX: usize = 10;
/// Maximum difference of clocks, in seconds. A certificate may begin this much later than now.
const CLOCK_SECS: i64 = 3_600;
/// Number of characters in a line of PEM.
const LINE_CHARACTERS: usize = 64;

/// A certificate that the broker has.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) certificate: CertificateDer<'static>,
    pub(super) validity: Validity,
}

impl Held {
    /// Reads the certificate in a file. `None` without a usable one.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn read(file: &Path) -> io::Result<Option<Self>> {
        let chain = stack::certificates("acme", file);
        if stack::is_to_come(&chain) {
            return Ok(None);
        }
        let chain = chain?;
        // A file whose key is damaged, or another's, is as good as none.
        let Ok(key) = stack::private_key("tls_key", file) else { return Ok(None) };
        if stack::is_foreign(&layers::Identity { chain: chain.clone(), key }) {
            return Ok(None);
        }
        Ok(chain.into_iter().next().and_then(|certificate| Self::new(certificate).ok()))
    }

    fn new(certificate: CertificateDer<'static>) -> Result<Self, String> {
        let (_, parsed) = x509_parser::parse_x509_certificate(&certificate)
            .map_err(|error| format!("its certificate cannot be read: {error}"))?;
        let validity = Validity {
            from_unix_secs: parsed.validity().not_before.timestamp(),
            until_unix_secs: parsed.validity().not_after.timestamp(),
        };
        Ok(Self { certificate, validity })
    }

    /// Whether the certificate is for all of these names.
    pub(super) fn is_for(&self, domains: &[String]) -> bool {
        let Ok(parsed) = ParsedCertificate::try_from(&self.certificate) else { return false };
        let has = |name: ServerName<'_>| verify_server_name(&parsed, &name).is_ok();
        domains.iter().all(|domain| ServerName::try_from(&**domain).is_ok_and(has))
    }
}

/// A certificate that an authority has sent, as it is written to the file.
#[derive(Debug)]
pub(super) struct Issued {
    pub(super) held: Held,
    pem: String,
}

impl Issued {
    /// Checks a chain in PEM, which the authority has sent for this key and these names.
    ///
    /// # Errors
    /// The chain cannot be used. The text says why, and goes on behind the name of the authority.
    pub(super) fn new(
        chain: &str,
        key: &rcgen::KeyPair,
        domains: &[String],
        now_unix_secs: i64,
    ) -> Result<Self, String> {
        let chain = CertificateDer::pem_slice_iter(chain.as_bytes()).take(CHAIN_MAX + 1);
        let chain = chain.collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|error| format!("its chain of certificates is not in PEM: {error}"))?;
        let [first, ..] = &chain[..] else { return Err("its chain has no certificate".to_owned()) };
        if chain.len() > CHAIN_MAX {
            return Err(format!("its chain has more than {CHAIN_MAX} certificates"));
        }
        let held = Held::new(first.clone().into_owned())?;
        let own = PrivateKeyDer::try_from(key.serialize_der()).map_err(str::to_owned)?;
        if stack::is_foreign(&layers::Identity { chain: vec![held.certificate.clone()], key: own }) {
            return Err("its certificate is for another key".to_owned());
        }
        if !held.is_for(domains) {
            return Err("its certificate is for other names".to_owned());
        }
        if held.validity.from_unix_secs > now_unix_secs + CLOCK_SECS {
            return Err("its certificate is not valid yet; is the clock of this machine right?".to_owned());
        }
        if held.validity.until_unix_secs <= now_unix_secs {
            return Err("its certificate has expired already".to_owned());
        }
        let pem = chain.iter().fold(key.serialize_pem(), |pem, certificate| pem + &in_pem(certificate));
        Ok(Self { held, pem })
    }

    /// Puts the certificate and its key in the place of the earlier ones, in one step.
    ///
    /// # Errors
    /// As the file system says.
    pub(super) fn store(&self, file: &Path) -> Result<(), String> {
        make_directory_of(file)?;
        replace_private(file, &self.pem)
    }
}

fn in_pem(certificate: &CertificateDer<'_>) -> String {
    let text = BASE64.encode(certificate);
    let mut pem = "-----BEGIN CERTIFICATE-----\n".to_owned();
    for line in text.as_bytes().chunks(LINE_CHARACTERS) {
        pem.extend(line.iter().copied().map(char::from));
        pem.push('\n');
    }
    pem + "-----END CERTIFICATE-----\n"
}

fn make_directory_of(file: &Path) -> Result<(), String> {
    let directory = file.parent().unwrap_or(file);
    let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.map_err(|error| format!("{}: {error}", wire::Shown(directory.display())))
}

/// The account of the broker at an authority.
#[derive(Serialize, Deserialize)]
pub(super) struct Account {
    /// The addresses for mail that the authority knows.
    pub(super) contact: Vec<String>,
    /// The key, the URL of the account, and that of the directory.
    pub(super) credentials: AccountCredentials,
}

impl Account {
    fn file(directory: &Path) -> PathBuf {
        directory.join("account.json")
    }

    /// Reads the account at the authority with this directory. `None` if there is none, or the file is damaged: another account
    /// is as good.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn read(directory: &Path, url: &str) -> Result<Option<Self>, String> {
        let file = Self::file(directory);
        let text = match stack::contents(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("{}: {error}", wire::Shown(file.display()))),
        };
        let is_of_url = |account: &serde_json::Value| account["credentials"]["directory"] == url;
        let read = serde_json::from_slice(&text).ok().filter(is_of_url);
        let account = read.and_then(|account| serde_json::from_value(account).ok());
        if account.is_none() {
            tracing::warn!(file = %file.display(), "the account of ACME cannot be used, and another one is made");
        }
        Ok(account)
    }

    /// Writes the account. Returns the file.
    ///
    /// # Errors
    /// As the file system says.
    pub(super) fn store(&self, directory: &Path) -> Result<PathBuf, String> {
        let file = Self::file(directory);
        make_directory_of(&file)?;
        let text = serde_json::to_string(self).map_err(|error| error.to_string())?;
        replace_private(&file, &text)?;
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

    use super::*;

    fn domains(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    /// A chain for these names and this key.
    fn chain(names: &[&str], key: &KeyPair, year: i32) -> String {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority =
            CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("one");
        let mut params = CertificateParams::new(domains(names)).expect("names");
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        params.signed_by(key, &authority).expect("a certificate").pem() + &authority.pem()
    }

    #[test]
    fn a_chain_is_for_our_key_and_our_names() {
        let (key, other) = (KeyPair::generate().expect("a key"), KeyPair::generate().expect("a key"));
        let names = domains(&["a.example", "b.example"]);
        let now = rcgen::date_time_ymd(2030, 1, 1).unix_timestamp();
        let good = chain(&["b.example", "a.example", "c.example"], &key, 2040);
        let issued = Issued::new(&good, &key, &names, now).expect("it can be used");
        assert_eq!(issued.held.validity.until_unix_secs, rcgen::date_time_ymd(2040, 1, 1).unix_timestamp());
        let many = good.repeat(CHAIN_MAX / 2 + 1);
        let early = Issued::new(&good, &key, &names, rcgen::date_time_ymd(1974, 12, 31).unix_timestamp());
        assert!(early.expect_err("it begins in 1975").contains("not valid yet"));
        for (bad, why) in [
            (chain(&["a.example"], &key, 2040), "other names"),
            (chain(&["a.example", "b.example"], &other, 2040), "another key"),
            (chain(&["a.example", "b.example"], &key, 2029), "expired"),
            (String::new(), "no certificate"),
            ("<html>".to_owned(), "no certificate"),
            (in_pem(&b"x"[..].into()), "cannot be read"),
            ("-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n".to_owned(), "not in PEM"),
            (many, "more than 10"),
        ] {
            let refused = Issued::new(&bad, &key, &names, now).expect_err(why);
            assert!(refused.contains(why), "{why}: {refused}");
        }
    }

    #[test]
    fn a_stored_certificate_can_be_read_again() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = std::env::temp_dir().join(format!("pondhawk-acme-{}", std::process::id()));
        let file = directory.join("a/certificate.pem");
        let key = KeyPair::generate().expect("a key");
        let names = domains(&["a.example"]);
        assert!(Held::read(&file).expect("it is not there").is_none());
        let sent = chain(&["a.example"], &key, 2040);
        let now = rcgen::date_time_ymd(2030, 1, 1).unix_timestamp();
        let issued = Issued::new(&format!("junk\n{sent}"), &key, &names, now).expect("it can be used");
        issued.store(&file).expect("it is ours");
        let text = std::fs::read_to_string(&file).expect("it is there");
        let held = Held::read(&file).expect("it is there").expect("a certificate");
        let mode = |path: &Path| std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
        let modes = (mode(&file), mode(&directory.join("a")));
        let other_key = KeyPair::generate().expect("a key").serialize_pem();
        let bad =
            ["damaged".to_owned(), sent.clone(), other_key + &sent, sent.clone() + "-----BEGIN PRIVATE"];
        let damaged = bad.map(|text| {
            std::fs::write(&file, text).expect("it is ours");
            Held::read(&file).expect("it is there")
        });
        std::fs::remove_dir_all(&directory).expect("it is ours");
        assert_eq!(modes, (0o600, 0o700));
        assert!(text.starts_with("-----BEGIN PRIVATE KEY-----") && !text.contains("junk"));
        assert_eq!(text.replace(['\r'], "").matches("BEGIN CERTIFICATE").count(), 2);
        assert!(held.is_for(&names) && !held.is_for(&domains(&["a.example", "b.example"])));
        assert_eq!(held.validity, issued.held.validity);
        assert!(damaged.iter().all(Option::is_none), "{damaged:?}");
    }
}
