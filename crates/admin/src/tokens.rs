//! Tokens of operators: who may do what, and how wrong tokens and passwords are limited.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use auth::Origin;
use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

use crate::passwords::Evidence;

/// Minimum length of a token, in bytes.
const TOKEN_BYTES_MIN: usize = 16;
/// Maximum length of a token, in bytes: the work for a wrong one is bounded.
const TOKEN_BYTES_MAX: usize = 512;
/// Maximum length of the name of a token's holder, in bytes.
const NAME_BYTES_MAX: usize = 64;
/// Maximum size of a token file, in bytes.
const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// Wrong tokens from an address in a [`WINDOW`], beyond which its requests with wrong tokens are refused unread.
const WRONG_MAX: u32 = 20;
/// Time for which wrong tokens count.
const WINDOW: Duration = Duration::from_secs(10);
/// Maximum number of addresses whose wrong tokens are counted.
const ADDRESSES_MAX: usize = 1_024;

/// The rights of an operator. Each role has those of the roles before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// May look at everything.
    Viewer,
    /// May publish, clear retained messages, disconnect clients.
    Operator,
    /// May end sessions, discard messages that wait, drain and back up the broker, change its log, reload the configuration.
    Admin,
}

impl Role {
    /// All roles, in the order of their rights.
    pub const ALL: [Self; 3] = [Self::Viewer, Self::Operator, Self::Admin];

    /// Name of the role.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

/// An operator who has proved who it is.
#[derive(Debug, Clone)]
pub(crate) struct Holder {
    pub(crate) role: Role,
    /// The name behind the token in its file, or the place of the token. The name in the certificate, or of the user.
    pub(crate) name: Arc<str>,
    /// The proof of the name, in a word.
    pub(crate) proof: &'static str,
    /// The proof that may begin a session.
    pub(crate) evidence: Option<Arc<Evidence>>,
    /// The session whose token the request has shown.
    pub(crate) session: Option<Key>,
}

/// The words for proofs of names.
pub(crate) const PROOFS: [&str; 4] = [TOKEN, CERTIFICATE, PASSWORD, SIGNED_TOKEN];
/// A token of a file.
pub(crate) const TOKEN: &str = "token";
/// A certificate of the connection.
pub(crate) const CERTIFICATE: &str = "certificate";
/// The password of a user.
pub(crate) const PASSWORD: &str = "password";
/// A token of an issuer.
pub(crate) const SIGNED_TOKEN: &str = "signed token";

/// The hash of a token, in whose place it is kept.
pub(crate) type Key = [u8; 32];

/// The hashes of all tokens. A token itself is not kept.
#[derive(Debug, Default)]
pub struct Tokens(HashMap<Key, Holder>);

impl Tokens {
    /// Adds a token, and the name of its holder. If the token is there already, the role with more rights counts.
    ///
    /// # Errors
    /// The token is too short or too long, or has characters that a header cannot have. The name is too long, or has control
    /// characters.
    pub fn add(&mut self, token: &str, name: &str, role: Role) -> Result<(), &'static str> {
        if !(TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&token.len()) {
            return Err("a token has 16 to 512 characters");
        }
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("a token has no blanks, and ASCII characters only");
        }
        if name.len() > NAME_BYTES_MAX || name.chars().any(wire::is_hidden) {
            return Err("the name behind a token has at most 64 bytes, and no control characters");
        }
        let hash = key(token);
        let is_known = self.0.get(&hash).is_some_and(|known| known.role >= role);
        if !is_known {
            self.0.insert(
                hash,
                Holder { role, name: name.into(), proof: TOKEN, evidence: None, session: None },
            );
        }
        Ok(())
    }

    /// Adds the tokens of a file, one on a line. A name may follow behind a blank. Empty lines and lines that begin with `#` do not count.
    ///
    /// # Errors
    /// The file cannot be read, is too large, has no token, or has a line that is no token.
    pub fn add_file(&mut self, path: &Path, role: Role) -> io::Result<()> {
        let explain = |error: &dyn std::fmt::Display| {
            io::Error::other(format!("{}: {error}", wire::Shown(path.display())))
        };
        if fs::metadata(path).map_err(|error| explain(&error))?.len() > FILE_BYTES_MAX {
            return Err(explain(&"a file with tokens has at most 1 MiB"));
        }
        let text = fs::read_to_string(path).map_err(|error| explain(&error))?;
        let mut count = 0;
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let place = format!("{} token in line {number}", role.word());
            let (token, name) = line.split_once(char::is_whitespace).unwrap_or((line, &place));
            let name = name.trim();
            self.add(token, name, role).map_err(|problem| explain(&format!("line {number}: {problem}")))?;
            count += 1;
        }
        if count == 0 { Err(explain(&"there is no token in the file")) } else { Ok(()) }
    }

    /// The holder of a token. The time that this takes depends on the length of the token only.
    pub(crate) fn holder(&self, token: &str) -> Option<&Holder> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        // The table is looked up by the hash: the time of a comparison tells about the hash, which nobody can choose.
        self.0.get(&key(token))
    }
}

/// The hash of a token.
pub(crate) fn key(token: &str) -> Key {
    Sha256::digest(token.as_bytes()).into()
}

/// A new token of 32 random bytes, in hexadecimal.
///
/// # Errors
/// The system has no random numbers.
pub fn generate() -> io::Result<String> {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(HEXLOWER.encode(&bytes))
}

/// The token in a file of its own that only its user can read. Makes both if the file is not there.
///
/// # Errors
/// The file cannot be read or made, others can read it, or it has no valid token.
pub fn own(path: &Path) -> io::Result<String> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(mut file) => {
            let token = generate()?;
            writeln!(file, "{token}")?;
            Ok(token)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let metadata = fs::symlink_metadata(path)?;
            if !metadata.is_file() || metadata.permissions().mode() & 0o077 != 0 {
                let text = format!("{} can be read by others; remove the file", wire::Shown(path.display()));
                return Err(io::Error::other(text));
            }
            let token = fs::read_to_string(path)?.trim().to_owned();
            // The disk may have been full when it was to be written.
            if token.len() < TOKEN_BYTES_MIN {
                let text = format!(
                    "{} has no token; remove the file, and a new one is made",
                    wire::Shown(path.display())
                );
                return Err(io::Error::other(text));
            }
            Ok(token)
        }
        Err(error) => Err(error),
    }
}

/// Counts wrong tokens by address. Addresses of IPv6 with the same first 64 bits are one.
#[derive(Debug, Default)]
pub(crate) struct Attempts(HashMap<Origin, (Instant, u32)>);

impl Attempts {
    /// Notes a wrong token. Returns how many have come from the address in a while, or `None` if there are too many.
    pub(crate) fn wrong(&mut self, from: IpAddr, now: Instant) -> Option<u32> {
        let from = Origin::from(from);
        if self.0.len() >= ADDRESSES_MAX && !self.0.contains_key(&from) {
            self.0.retain(|_, (begun, _)| now.duration_since(*begun) < WINDOW);
            if self.0.len() >= ADDRESSES_MAX {
                return None;
            }
        }
        let (begun, count) = self.0.entry(from).or_insert((now, 0));
        if now.duration_since(*begun) >= WINDOW {
            (*begun, *count) = (now, 0);
        }
        *count = count.saturating_add(1);
        Some(*count).filter(|count| *count <= WRONG_MAX)
    }

    /// Takes back one that was noted before its check, and is right.
    pub(crate) fn was_right(&mut self, from: IpAddr) {
        if let Some((_, count)) = self.0.get_mut(&Origin::from(from)) {
            *count = count.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn a_token_has_the_highest_of_its_roles() {
        let mut tokens = Tokens::default();
        for (name, role) in [("olga", Role::Operator), ("victor", Role::Viewer)] {
            tokens.add("0123456789abcdef", name, role).expect("it is long enough");
        }
        let found = |token: &str| tokens.holder(token).map(|holder| (holder.role, holder.name.to_string()));
        assert_eq!(found("0123456789abcdef"), Some((Role::Operator, "olga".to_owned())));
        assert_eq!(found("0123456789abcdeF"), None);
        assert_eq!(found(&"x".repeat(1 << 20)), None);
        assert!(tokens.add("short", "x", Role::Viewer).is_err());
        assert!(tokens.add("0123456789 abcdef", "x", Role::Viewer).is_err());
        for name in ["a\u{1b}b", "a\u{202e}b", &"x".repeat(65)] {
            assert!(tokens.add("0123456789abcdef", name, Role::Viewer).is_err(), "{name}");
        }
    }

    #[test]
    fn a_file_has_tokens_with_and_without_names() {
        let path = std::env::temp_dir().join(format!("pondhawk-tokens-{}", std::process::id()));
        fs::write(&path, "# people\n0123456789abcdef  Alice of the night shift \n\nfedcba9876543210\n")
            .expect("it is ours");
        let mut tokens = Tokens::default();
        tokens.add_file(&path, Role::Operator).expect("a file with tokens");
        fs::remove_file(&path).expect("it is ours");
        let name = |token| tokens.holder(token).map(|holder| holder.name.to_string());
        assert_eq!(name("0123456789abcdef").as_deref(), Some("Alice of the night shift"));
        assert_eq!(name("fedcba9876543210").as_deref(), Some("operator token in line 4"));
    }

    #[test]
    fn many_wrong_tokens_from_an_address_are_too_many_for_a_while() {
        let (mut attempts, now) = (Attempts::default(), Instant::now());
        let [one, other] = [1, 2].map(|last| IpAddr::V4(Ipv4Addr::new(127, 0, 0, last)));
        let refused = (0..100).filter(|_| attempts.wrong(one, now).is_none()).count();
        assert_eq!(refused, 80);
        assert_eq!(attempts.wrong(other, now), Some(1));
        assert_eq!(attempts.wrong(one, now + WINDOW), Some(1));
    }

    #[test]
    fn right_passwords_do_not_count() {
        let (mut attempts, now) = (Attempts::default(), Instant::now());
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        for _ in 0..100 {
            assert!(attempts.wrong(address, now).is_some());
            attempts.was_right(address);
        }
        assert_eq!(attempts.wrong(address, now), Some(1));
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let (mut attempts, now) = (Attempts::default(), Instant::now());
        let hosts =
            (0..100).map(|host| IpAddr::V6(std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host)));
        assert_eq!(hosts.filter(|host| attempts.wrong(*host, now).is_none()).count(), 80);
    }

    #[test]
    fn a_generated_token_is_kept_in_a_file_of_its_user() {
        let path = std::env::temp_dir().join(format!("pondhawk-token-{}", std::process::id()));
        let _ = fs::remove_file(&path);
        let token = own(&path).expect("it is made");
        assert_eq!(token.len(), 64);
        assert_eq!(own(&path).expect("it is read"), token);
        assert_eq!(fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("it is ours");
        assert!(own(&path).is_err());
        fs::write(&path, "\n").expect("it is ours");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("it is ours");
        assert!(own(&path).is_err_and(|error| error.to_string().contains("has no token")));
        fs::remove_file(&path).expect("it is ours");
    }
}
