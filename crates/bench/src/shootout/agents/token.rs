//! The secret that a coordinator and its agents share, and the proofs that both have it.

use std::path::Path;
use std::{fmt, fs};

use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};

use crate::error::{Error, Result};

/// A shorter secret could be guessed.
const LEN_MIN: usize = 16;

/// Maximum length of the file, in bytes.
const LEN_MAX: usize = 4_096;

/// A random number that nobody has used before.
pub(super) type Nonce = [u8; 16];

/// A shared secret. It never leaves this process.
pub(in super::super) struct Token(hmac::Key);

/// The side that proves that it has the secret.
#[derive(Debug, Clone, Copy)]
pub(super) enum Side {
    Agent,
    Coordinator,
}

impl Token {
    /// Reads the secret from a file, without white space at its ends.
    ///
    /// # Errors
    /// If the file cannot be read, or its text has less than 16 or more than 4,096 bytes.
    pub(in super::super) fn read(file: &Path) -> Result<Self> {
        let name = wire::Shown(file.display()).to_string();
        let text = fs::read_to_string(file).map_err(Error::io(format!("read {name}")))?;
        let text = text.trim();
        if !(LEN_MIN..=LEN_MAX).contains(&text.len()) {
            return Err(Error::Arguments(format!("{name}: a token has {LEN_MIN} to {LEN_MAX} bytes")));
        }
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, text.as_bytes())))
    }

    /// The proof of one side for the random numbers of both.
    pub(super) fn proof(&self, side: Side, nonces: &[Nonce; 2]) -> Vec<u8> {
        hmac::sign(&self.0, &said(side, nonces)).as_ref().to_vec()
    }

    /// Whether the proof of the other side is right. It takes the same time wherever it is wrong.
    pub(super) fn is_proof(&self, proof: &[u8], side: Side, nonces: &[Nonce; 2]) -> bool {
        hmac::verify(&self.0, &said(side, nonces), proof).is_ok()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// A random number.
///
/// # Errors
/// If the system has none.
pub(super) fn nonce() -> Result<Nonce> {
    let mut nonce = Nonce::default();
    let filled = SystemRandom::new().fill(&mut nonce);
    let refused = |_| Error::io("get random numbers")(std::io::ErrorKind::Other.into());
    filled.map(|()| nonce).map_err(refused)
}

fn said(side: Side, nonces: &[Nonce; 2]) -> Vec<u8> {
    let side: &[u8] = match side {
        Side::Agent => b"pondhawk agent",
        Side::Coordinator => b"pondhawk coordinator",
    };
    [side, &nonces[0], &nonces[1]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(text: &str) -> Result<Token> {
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let file = std::env::temp_dir().join(format!("pondhawk-token-{}-{number}", std::process::id()));
        fs::write(&file, text).unwrap();
        let token = Token::read(&file);
        fs::remove_file(file).unwrap();
        token
    }

    #[test]
    fn a_proof_is_for_one_side_one_secret_and_two_numbers() {
        let own = token("a frog in a pond\n").unwrap();
        let nonces = [nonce().unwrap(), nonce().unwrap()];
        let proof = own.proof(Side::Agent, &nonces);
        assert!(own.is_proof(&proof, Side::Agent, &nonces));
        assert!(!own.is_proof(&proof, Side::Coordinator, &nonces));
        assert!(!own.is_proof(&proof, Side::Agent, &[nonces[1], nonces[0]]));
        assert!(!token("a toad in a pond").unwrap().is_proof(&proof, Side::Agent, &nonces));
        assert!(!own.is_proof(&[], Side::Agent, &nonces));
    }

    #[test]
    fn a_short_token_is_refused_and_none_is_shown() {
        assert!(token("frog").unwrap_err().to_string().contains("16 to 4096"));
        assert_eq!(format!("{:?}", token("a frog in a pond").unwrap()), "Token");
    }
}
