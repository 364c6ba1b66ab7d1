//! SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): the server's side of an exchange.
//!
//! ```text
//! client ── n,,n=ann,r=NONCE ───────────────────► Exchange::begin
//!        ◄── r=NONCE+OURS,s=SALT,i=ROUNDS ───────
//!        ── c=biws,r=NONCE+OURS,p=PROOF ────────► Exchange::finish ─► ScramCheck
//!        ◄── v=SIGNATURE ────────────────────────
//! ```
//!
//! A client proves that it knows the password, and the password never travels. The server proves that it knows the hash.
//! The hash of a password file is enough: that of `$7$` is what RFC 5802 calls the salted password of SCRAM-SHA-512.
//!
//! With the methods SCRAM-SHA-256-PLUS and SCRAM-SHA-512-PLUS, `c=` has the channel binding of the connection behind the first field
//! of the client's first message, which is `p=tls-exporter` then. A client whose connection ends at somebody else, who passes
//! everything on, has another binding, and fails.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::{digest, hmac};
use subtle::ConstantTimeEq;

use crate::schemes::Kind;
use crate::{PasswordHash, Scheme};

/// Maximum length of a message of the client, in bytes.
pub const SCRAM_BYTES_MAX: usize = 1_024;
/// Longest name and longest nonce of a client, in bytes.
const FIELD_BYTES_MAX: usize = 256;

/// A hash function that an exchange may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mechanism {
    /// SCRAM-SHA-256.
    Sha256,
    /// SCRAM-SHA-512.
    Sha512,
}

/// The channel binding of an exchange. The only type is `tls-exporter` (RFC 9266).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel {
    /// The connection has no binding.
    Plain,
    /// The connection has a binding, and the method of the client does not use it.
    Unbound,
    /// The method of the client uses this binding of the connection.
    Bound([u8; 32]),
}

/// The first field of a client that uses the binding.
const BOUND: &str = "p=tls-exporter";

/// The part of a password hash that an exchange needs.
#[derive(Clone)]
pub struct Credential {
    salt: Box<[u8]>,
    rounds: u32,
    keys: Keys,
}

/// The two keys that the server has of a password.
#[derive(Clone)]
struct Keys {
    /// The hash of the client's key.
    stored: Box<[u8]>,
    server: Box<[u8]>,
}

/// An exchange whose first step was made.
pub struct Exchange {
    mechanism: Mechanism,
    user: Box<str>,
    /// The part of the client's first message about channel binding, and the binding behind it.
    channel: Box<[u8]>,
    /// The nonce of the client, and ours behind it.
    nonce: Box<str>,
    /// The first messages of both sides, as they are signed.
    signed: String,
    keys: Keys,
}

/// A proof of a client, and what it has to be.
pub struct ScramCheck {
    mechanism: Mechanism,
    stored: Box<[u8]>,
    signed: Box<str>,
    proof: Box<[u8]>,
    user: u64,
}

/// The reason why an exchange cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScramProblem {
    /// The message is not one that RFC 5802 allows here, or is too long.
    Malformed,
    /// The client asks for an extension, or acts for another user.
    Unsupported,
    /// The client thinks that there is no channel binding here, and there is: somebody may have changed the list of methods.
    Downgrade,
    /// The client asks for channel binding that the method or the connection does not have, or for none although the method has it.
    NoBinding,
    /// The client asks for another type of channel binding.
    BindingType,
    /// The client has the binding of another connection.
    OtherBinding,
    /// The nonce is not that of the exchange.
    Nonce,
}

impl Mechanism {
    /// The names of all mechanisms: those with the longer hash first, and of each hash the one with channel binding first.
    pub const NAMES: [&'static str; 4] =
        ["SCRAM-SHA-512-PLUS", "SCRAM-SHA-512", "SCRAM-SHA-256-PLUS", "SCRAM-SHA-256"];

    /// The mechanism of this name, and whether it uses channel binding.
    #[must_use]
    pub fn named(name: &str) -> Option<(Self, bool)> {
        let bare = name.strip_suffix("-PLUS");
        let mechanism = match bare.unwrap_or(name) {
            "SCRAM-SHA-512" => Self::Sha512,
            "SCRAM-SHA-256" => Self::Sha256,
            _ => return None,
        };
        Some((mechanism, bare.is_some()))
    }

    /// The rounds of a hash of this scheme, if an exchange can use the hash.
    pub(crate) fn rounds(self, scheme: Scheme) -> Option<u32> {
        match (self, scheme) {
            (Self::Sha512, Scheme::Pbkdf2 { rounds }) | (Self::Sha256, Scheme::ScramSha256 { rounds }) => {
                Some(rounds)
            }
            _ => None,
        }
    }

    fn hash(self, bytes: &[u8]) -> digest::Digest {
        digest::digest(if self == Self::Sha256 { &digest::SHA256 } else { &digest::SHA512 }, bytes)
    }

    fn sign(self, key: &[u8], bytes: &[u8]) -> hmac::Tag {
        let algorithm = if self == Self::Sha256 { hmac::HMAC_SHA256 } else { hmac::HMAC_SHA512 };
        hmac::sign(&hmac::Key::new(algorithm, key), bytes)
    }

    /// A number that follows from a name, and that nobody outside can tell.
    pub(crate) fn number(self, secret: &Secret, name: &str) -> u64 {
        let tag = self.sign(&secret.0, format!("scheme of {name}").as_bytes());
        tag.as_ref().first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
    }

    /// Length of a hash, in bytes.
    fn bytes(self) -> usize {
        if self == Self::Sha256 { 32 } else { 64 }
    }

    /// The keys that follow from a salted password, the client's one hashed.
    pub(crate) fn keys(self, salted: &[u8]) -> (digest::Digest, hmac::Tag) {
        (self.hash(self.sign(salted, b"Client Key").as_ref()), self.sign(salted, b"Server Key"))
    }
}

impl Credential {
    /// The credential of a user, if the hash of the password is one that the mechanism can use.
    #[must_use]
    pub fn of(mechanism: Mechanism, hash: &PasswordHash) -> Option<Self> {
        let (salt, bytes) = hash.parts();
        let rounds = mechanism.rounds(hash.scheme())?;
        let keys = match mechanism {
            // The hash is the salted password.
            Mechanism::Sha512 => {
                let (stored, server) = mechanism.keys(bytes);
                Keys { stored: stored.as_ref().into(), server: server.as_ref().into() }
            }
            // The hash is both keys.
            Mechanism::Sha256 => {
                let (stored, server) = bytes.split_at_checked(mechanism.bytes())?;
                Keys { stored: stored.into(), server: server.into() }
            }
        };
        Some(Self { salt: salt.into(), rounds, keys })
    }

    /// The same, as it is told, with keys that no password has.
    pub(crate) fn without_password(self) -> Self {
        let nothing = vec![0; self.keys.stored.len()].into_boxed_slice();
        Self { keys: Keys { stored: nothing.clone(), server: nothing }, ..self }
    }

    /// A credential that no password has. The salt of a name is always the same, as for a user.
    #[must_use]
    pub(crate) fn decoy(mechanism: Mechanism, name: &str, like: Option<Kind>, secret: &Secret) -> Self {
        let salt = mechanism.sign(&secret.0, name.as_bytes());
        let salt_bytes = like.map_or(crate::SALT_BYTES, |kind| kind.salt_bytes);
        let salt = salt.as_ref().iter().copied().cycle().take(salt_bytes).collect();
        let rounds = like.and_then(|kind| mechanism.rounds(kind.scheme)).unwrap_or(Scheme::SCRAM_ROUNDS);
        let nothing: Box<[u8]> = vec![0; mechanism.bytes()].into();
        Self { salt, rounds, keys: Keys { stored: nothing.clone(), server: nothing } }
    }
}

impl Exchange {
    /// Handles the first message of a client. `find` gives the credential of a user. Returns the exchange, and the answer.
    ///
    /// # Errors
    /// The message is not a first message, or asks for something that there is not.
    pub fn begin(
        method: (Mechanism, Channel),
        message: &[u8],
        nonce: u128,
        find: impl FnOnce(&str) -> Credential,
    ) -> Result<(Self, String), ScramProblem> {
        Self::begin_with(method, message, &format!("{nonce:032x}"), find)
    }

    fn begin_with(
        (mechanism, channel): (Mechanism, Channel),
        message: &[u8],
        our_nonce: &str,
        find: impl FnOnce(&str) -> Credential,
    ) -> Result<(Self, String), ScramProblem> {
        let message = text(message)?;
        let mut parts = message.splitn(3, ',');
        let (binding, acts_for, bare) =
            (parts.next().unwrap_or_default(), parts.next(), parts.next().ok_or(ScramProblem::Malformed)?);
        if acts_for != Some("") {
            return Err(ScramProblem::Unsupported);
        }
        let mut begun = format!("{binding},,").into_bytes();
        begun.extend_from_slice(channel.of(binding)?);
        let mut fields = bare.split(',');
        let user = match fields.next() {
            Some(field) if field.starts_with("m=") => return Err(ScramProblem::Unsupported),
            field => name(value(field, "n=")?)?,
        };
        let nonce = value(fields.next(), "r=")?;
        let is_printable = |byte: u8| (0x21..=0x7e).contains(&byte);
        let is_nonce = !nonce.is_empty() && nonce.len() <= FIELD_BYTES_MAX && nonce.bytes().all(is_printable);
        // Further fields are extensions, and may be passed over.
        if !is_nonce || !fields.all(is_field) {
            return Err(ScramProblem::Malformed);
        }
        let Credential { salt, rounds, keys } = find(&user);
        let nonce = format!("{nonce}{our_nonce}").into_boxed_str();
        let answer = format!("r={nonce},s={},i={rounds}", STANDARD.encode(&salt));
        let channel = begun.into_boxed_slice();
        let signed = format!("{bare},{answer}");
        Ok((Self { mechanism, user, channel, nonce, signed, keys }, answer))
    }

    /// The name of the user.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Handles the second message of the client. Returns the check of its proof, and the answer if the proof is right.
    ///
    /// # Errors
    /// The message is not the second message of this exchange.
    pub fn finish(self, message: &[u8]) -> Result<(ScramCheck, String), ScramProblem> {
        let Self { mechanism, user, channel, nonce, mut signed, keys } = self;
        let message = text(message)?;
        let (unproved, proof) = message.rsplit_once(",p=").ok_or(ScramProblem::Malformed)?;
        let mut fields = unproved.split(',');
        let said = STANDARD.decode(value(fields.next(), "c=")?).map_err(|_| ScramProblem::Malformed)?;
        if said != *channel {
            return Err(ScramProblem::OtherBinding);
        }
        if value(fields.next(), "r=")? != &*nonce {
            return Err(ScramProblem::Nonce);
        }
        for field in fields {
            // An extension that must be understood, in whatever place (RFC 5802, section 5.1).
            if field.starts_with("m=") {
                return Err(ScramProblem::Unsupported);
            }
            // The proof comes last, and once.
            if !is_field(field) || field.starts_with("p=") {
                return Err(ScramProblem::Malformed);
            }
        }
        let proof = STANDARD.decode(proof).map_err(|_| ScramProblem::Malformed)?;
        if proof.len() != mechanism.bytes() {
            return Err(ScramProblem::Malformed);
        }
        signed.push(',');
        signed.push_str(unproved);
        let answer = mechanism.sign(&keys.server, signed.as_bytes());
        let check = ScramCheck {
            mechanism,
            stored: keys.stored,
            signed: signed.into(),
            proof: proof.into(),
            user: crate::users::number(&user),
        };
        Ok((check, format!("v={}", STANDARD.encode(answer.as_ref()))))
    }

    /// Memory of the exchange, in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        let Self { user, channel, nonce, signed, keys, .. } = self;
        let texts = user.len() + channel.len() + nonce.len() + signed.capacity();
        size_of::<Self>() + texts + keys.stored.len() + keys.server.len()
    }
}

impl Channel {
    /// The data that follows the first field of a client's first message (RFC 5802, section 6).
    fn of(&self, field: &str) -> Result<&[u8], ScramProblem> {
        match (self, field) {
            (Self::Bound(binding), BOUND) => Ok(binding),
            (Self::Bound(_), _) if field.starts_with("p=") => Err(ScramProblem::BindingType),
            (Self::Bound(_), "n" | "y") => Err(ScramProblem::NoBinding),
            // The client thinks that there is no channel binding here.
            (Self::Unbound, "y") => Err(ScramProblem::Downgrade),
            // The client does not have channel binding, or thinks rightly that there is none.
            (Self::Unbound, "n") | (Self::Plain, "n" | "y") => Ok(&[]),
            (Self::Unbound | Self::Plain, _) if field.starts_with("p=") => Err(ScramProblem::NoBinding),
            _ => Err(ScramProblem::Malformed),
        }
    }
}

impl ScramCheck {
    /// Whether the client knows the password.
    #[must_use]
    pub fn run(&self) -> bool {
        let signature = self.mechanism.sign(&self.stored, self.signed.as_bytes());
        let key: Vec<u8> =
            self.proof.iter().zip(signature.as_ref()).map(|(proof, signature)| proof ^ signature).collect();
        self.mechanism.hash(&key).as_ref().ct_eq(&self.stored).into()
    }

    /// A number that stands for the user name, as that of a password.
    #[must_use]
    pub fn user(&self) -> u64 {
        self.user
    }

    /// Memory of the check, in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        size_of::<Self>() + self.stored.len() + self.signed.len() + self.proof.len()
    }
}

fn text(message: &[u8]) -> Result<&str, ScramProblem> {
    let text = str::from_utf8(message).ok().filter(|text| text.len() <= SCRAM_BYTES_MAX);
    text.filter(|text| !text.contains('\0')).ok_or(ScramProblem::Malformed)
}

/// The value of a field that begins like this.
fn value<'a>(field: Option<&'a str>, begin: &str) -> Result<&'a str, ScramProblem> {
    field.and_then(|field| field.strip_prefix(begin)).ok_or(ScramProblem::Malformed)
}

/// Whether a text is a field: a letter, `=`, and a value.
fn is_field(text: &str) -> bool {
    matches!(text.as_bytes(), [letter, b'=', _, ..] if letter.is_ascii_alphabetic())
}

/// A user name, in which `=2C` stands for a comma and `=3D` for an equals sign.
fn name(field: &str) -> Result<Box<str>, ScramProblem> {
    let mut pieces = field.split('=');
    let mut name = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (sign, rest) = match (piece.strip_prefix("2C"), piece.strip_prefix("3D")) {
            (Some(rest), _) => (',', rest),
            (_, Some(rest)) => ('=', rest),
            _ => return Err(ScramProblem::Malformed),
        };
        name.push(sign);
        name.push_str(rest);
    }
    let is_name = !name.is_empty() && name.len() <= FIELD_BYTES_MAX;
    is_name.then(|| name.into()).ok_or(ScramProblem::Malformed)
}

impl ScramProblem {
    /// The problem in words, for the log.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Malformed => "its authentication data is no message of SCRAM",
            Self::Unsupported => "it asks for an extension of SCRAM, or acts for another user",
            Self::Downgrade => {
                "it does not know that there is channel binding here: its list of methods may be forged"
            }
            Self::NoBinding => "its method has no channel binding and its data does, or the other way round",
            Self::BindingType => "it asks for a type of channel binding that there is not",
            Self::OtherBinding => "its channel binding is that of another connection",
            Self::Nonce => "its nonce is not that of the exchange",
        }
    }
}

/// Keys and proofs stay out of logs.
impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange").field("mechanism", &self.mechanism).finish_non_exhaustive()
    }
}

impl fmt::Debug for ScramCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScramCheck").field("mechanism", &self.mechanism).finish_non_exhaustive()
    }
}

/// Random bytes from which salts of names that are no users follow. Nobody outside the broker knows them, and nothing about a
/// password follows from them. A broker keeps them: a salt that changes tells that the name is no user's.
#[derive(Clone, Copy, Default)]
pub struct Secret([u8; Secret::BYTES]);

impl Secret {
    /// Length of the secret, in bytes.
    pub const BYTES: usize = 32;

    /// The secret of these bytes, which have to be random.
    #[must_use]
    pub const fn new(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }
}

/// The bytes stay out of logs.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7677, section 3.
    const FIRST: &[u8] = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
    const OUR_NONCE: &str = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
    const ANSWER: &str =
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
    const SECOND: &str = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                          p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
    const LAST: &str = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";

    const PLAIN: (Mechanism, Channel) = (Mechanism::Sha256, Channel::Plain);

    fn pencil(name: &str) -> Credential {
        assert_eq!(name, "user");
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").expect("the salt of the example");
        let hash =
            PasswordHash::new(Scheme::ScramSha256 { rounds: 4_096 }, b"pencil", &salt).expect("a hash");
        Credential::of(Mechanism::Sha256, &hash).expect("a hash for this mechanism")
    }

    fn begin() -> Exchange {
        let (exchange, answer) = Exchange::begin_with(PLAIN, FIRST, OUR_NONCE, pencil).expect("the example");
        assert_eq!(answer, ANSWER);
        exchange
    }

    #[test]
    fn the_example_of_the_standard_succeeds() {
        let (check, answer) = begin().finish(SECOND.as_bytes()).expect("the example");
        assert!(check.run());
        assert_eq!(answer, LAST);
    }

    #[test]
    fn another_proof_and_another_nonce_do_not() {
        let (check, _) = begin().finish(SECOND.replace("p=dH", "p=dI").as_bytes()).expect("a message");
        assert!(!check.run());
        for (from, to, problem) in [
            ("k0,", "k1,", ScramProblem::Nonce),
            ("biws", "eSws", ScramProblem::OtherBinding),
            ("biws", "bi", ScramProblem::Malformed),
            ("p=dHzb", "p=", ScramProblem::Malformed),
            (",p=", ",q=", ScramProblem::Malformed),
            ("k0,", "k0,1=a,", ScramProblem::Malformed),
            ("k0,", "k0,m=a,", ScramProblem::Unsupported),
            ("k0,", "k0,x=a,m=a,", ScramProblem::Unsupported),
            ("k0,", "k0,p=abc,", ScramProblem::Malformed),
        ] {
            let message = SECOND.replace(from, to);
            assert_eq!(begin().finish(message.as_bytes()).map(|_| ()).err(), Some(problem), "{message}");
        }
        let with_extension = SECOND.replace("k0,", "k0,x=a,");
        assert!(!begin().finish(with_extension.as_bytes()).expect("it may have one").0.run(), "it is signed");
    }

    /// Made with Python: `hashlib.pbkdf2_hmac`, `hmac.digest` and `base64` on the example of RFC 7677, where the client's first message
    /// begins with `p=tls-exporter,,` and the binding is the bytes from 0 to 31. The same for SHA-512.
    const BOUND_EXCHANGES: [(Mechanism, &str, &str); 2] = [
        (
            Mechanism::Sha256,
            "c=cD10bHMtZXhwb3J0ZXIsLAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=QC6CS20quADQRb3mT99YUH+n3VJxUvzuK0K0E1Vrs2M=",
            "v=2GiAgapEppLVlUXbxUDksL3VgYHzuqiK5tR4mhJGgvs=",
        ),
        (
            Mechanism::Sha512,
            "c=cD10bHMtZXhwb3J0ZXIsLAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=jVaGV/PIJ7hgkpxV9a1jdpzyYkHQH9gW6fn3DbAL2oEA+5w4CCSJjoq8G37bn2FsGaVEMsk4kiHRqMUoN/aiiA==",
            "v=bTvxua5nsJsvSd2bk+1WbSe84MBgjkACQPOqiN7MhTBLYxVX2QUqwET2NLcZEv2CfexR6NbAMluKltOEs5vLYw==",
        ),
    ];

    fn binding() -> [u8; 32] {
        std::array::from_fn(|place| u8::try_from(place).expect("small"))
    }

    /// The password of the example, for either mechanism.
    fn pencil_for(mechanism: Mechanism) -> Credential {
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").expect("the salt of the example");
        let scheme = match mechanism {
            Mechanism::Sha256 => Scheme::ScramSha256 { rounds: 4_096 },
            Mechanism::Sha512 => Scheme::Pbkdf2 { rounds: 4_096 },
        };
        let hash = PasswordHash::new(scheme, b"pencil", &salt).expect("a hash");
        Credential::of(mechanism, &hash).expect("a hash for this mechanism")
    }

    #[test]
    fn a_binding_is_a_part_of_the_proof() {
        let first = b"p=tls-exporter,,n=user,r=rOprNGfwEbeRWgbNEkqO";
        for (mechanism, second, last) in BOUND_EXCHANGES {
            let begin = |binding| {
                let method = (mechanism, Channel::Bound(binding));
                let begun = Exchange::begin_with(method, first, OUR_NONCE, |_| pencil_for(mechanism));
                begun.expect("the example").0
            };
            let (check, answer) = begin(binding()).finish(second.as_bytes()).expect("the example");
            assert!(check.run() && answer == last, "{mechanism:?}");
            let other = begin([7; 32]).finish(second.as_bytes()).map(|_| ()).err();
            assert_eq!(other, Some(ScramProblem::OtherBinding), "another connection");
            let (head, proof) = second.split_once(",p=").expect("a proof");
            let forged = STANDARD.encode([b"p=tls-exporter,,", &[7; 32][..]].concat());
            let (_, nonce) = head.split_once(",r=").expect("a nonce");
            let forged = format!("c={forged},r={nonce},p={proof}");
            let (check, _) = begin([7; 32]).finish(forged.as_bytes()).expect("it says the right binding");
            assert!(!check.run(), "the proof is of another one");
            let none = second.replace(&head[2..head.find(',').expect("a field")], "biws");
            let none = begin(binding()).finish(none.as_bytes()).map(|_| ()).err();
            assert_eq!(none, Some(ScramProblem::OtherBinding), "without binding");
        }
    }

    #[test]
    fn a_binding_is_used_where_the_method_has_it() {
        use ScramProblem as P;
        let bound = Channel::Bound(binding());
        for (channel, field, expected) in [
            (bound, "p=tls-exporter", None),
            (bound, "p=tls-unique", Some(P::BindingType)),
            (bound, "p=tls-server-end-point", Some(P::BindingType)),
            (bound, "p=tls-exporter2", Some(P::BindingType)),
            (bound, "p=", Some(P::BindingType)),
            (bound, "n", Some(P::NoBinding)),
            (bound, "y", Some(P::NoBinding)),
            (bound, "p", Some(P::Malformed)),
            (Channel::Unbound, "n", None),
            (Channel::Unbound, "y", Some(P::Downgrade)),
            (Channel::Unbound, "p=tls-exporter", Some(P::NoBinding)),
            (Channel::Plain, "n", None),
            (Channel::Plain, "y", None),
            (Channel::Plain, "p=tls-exporter", Some(P::NoBinding)),
            (Channel::Plain, "x", Some(P::Malformed)),
        ] {
            let message = format!("{field},,n=user,r=abc");
            let begun = Exchange::begin((Mechanism::Sha256, channel), message.as_bytes(), 1, pencil);
            assert_eq!(begun.map(|_| ()).err(), expected, "{channel:?} {field}");
        }
    }

    #[test]
    fn a_first_message_that_is_none_is_refused() {
        let long = format!("n,,n=user,r={}", "a".repeat(SCRAM_BYTES_MAX));
        for (message, problem) in [
            ("", ScramProblem::Malformed),
            ("n,,", ScramProblem::Malformed),
            ("n,,n=user", ScramProblem::Malformed),
            ("n,,n=user,r=", ScramProblem::Malformed),
            ("n,,n=,r=abc", ScramProblem::Malformed),
            ("n,,n=a=b,r=abc", ScramProblem::Malformed),
            ("n,,n=user,r=a\u{e9}", ScramProblem::Malformed),
            ("n,,n=us\0er,r=abc", ScramProblem::Malformed),
            ("n,,n=user,r=abc,", ScramProblem::Malformed),
            ("x,,n=user,r=abc", ScramProblem::Malformed),
            ("p=tls-exporter,,n=user,r=abc", ScramProblem::NoBinding),
            ("n,a=other,n=user,r=abc", ScramProblem::Unsupported),
            ("n,,m=must,n=user,r=abc", ScramProblem::Unsupported),
            (&long, ScramProblem::Malformed),
        ] {
            let nobody = |_: &str| -> Credential { panic!("{message}") };
            let refused = Exchange::begin((Mechanism::Sha512, Channel::Plain), message.as_bytes(), 1, nobody);
            assert_eq!(refused.map(|_| ()).err(), Some(problem), "{message}");
        }
        let not_text = Exchange::begin((Mechanism::Sha512, Channel::Plain), b"n,,n=\xff,r=abc", 1, pencil);
        assert_eq!(not_text.map(|_| ()).err(), Some(ScramProblem::Malformed));
    }

    #[test]
    fn a_name_may_have_commas_and_equals_signs() {
        let like_the_one = |wanted: &'static str| {
            move |name: &str| {
                assert_eq!(name, wanted);
                Credential::decoy(Mechanism::Sha512, name, None, &Secret::default())
            }
        };
        let begin = |message: &str, wanted| {
            let method = (Mechanism::Sha512, Channel::Plain);
            Exchange::begin(method, message.as_bytes(), 1, like_the_one(wanted)).is_ok()
        };
        assert!(begin("y,,n=a=2Cb=3Dc,r=abc,x=extension", "a,b=c"));
    }

    #[test]
    fn a_decoy_is_always_the_same_and_matches_nothing() {
        let salt = |name: &str, secret: u8| {
            let like = Kind { scheme: Scheme::MOSQUITTO, salt_bytes: 16 };
            Credential::decoy(Mechanism::Sha512, name, Some(like), &Secret([secret; Secret::BYTES])).salt
        };
        assert_eq!(salt("ann", 1), salt("ann", 1));
        assert_eq!(salt("ann", 1).len(), 16);
        assert_ne!(salt("ann", 1), salt("bob", 1));
        assert_ne!(salt("ann", 1), salt("ann", 2));
        let decoy = |name: &str| Credential::decoy(Mechanism::Sha256, name, None, &Secret::default());
        let (exchange, answer) = Exchange::begin_with(PLAIN, FIRST, OUR_NONCE, decoy).expect("a message");
        assert!(answer.ends_with("i=600000"), "{answer}");
        assert!(!exchange.finish(SECOND.as_bytes()).expect("a message").0.run());
    }

    /// The hash of Mosquitto's `$7$` is the salted password.
    #[test]
    fn a_hash_of_mosquitto_serves_sha_512_alone() {
        let hash = PasswordHash::new(Scheme::MOSQUITTO, b"pencil", b"twelve bytes").expect("a hash");
        assert!(Credential::of(Mechanism::Sha512, &hash).is_some());
        assert!(Credential::of(Mechanism::Sha256, &hash).is_none());
        let hash = PasswordHash::new(Scheme::DEFAULT, b"pencil", b"twelve bytes").expect("a hash");
        assert!(Credential::of(Mechanism::Sha512, &hash).is_none());
    }
}
