//! The secret from which SCRAM salts of names that are no users follow.
//!
//! The secret lies in the data directory: a salt that changes with each restart would tell that its name is no user's. A broker
//! without a data directory has one for its life.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use auth::Secret;

use crate::users::replace_private;

/// Name of the file in the data directory.
const FILE: &str = "login-secret";

/// A new secret.
///
/// # Errors
/// The system has no random numbers.
pub(crate) fn generate() -> io::Result<Secret> {
    random().map(Secret::new)
}

/// The secret of a data directory. Makes one if there is none, or one that others may know.
///
/// # Errors
/// The file cannot be written, or the system has no random numbers.
pub(crate) fn of(directory: &Path) -> io::Result<Secret> {
    let path = directory.join(FILE);
    if let Some(bytes) = read(&path) {
        return Ok(Secret::new(bytes));
    }
    if path.symlink_metadata().is_ok() {
        tracing::warn!(
            "{} is replaced: it is no file of 64 hexadecimal digits that only its owner may read. Names that are no user's get \
             other salts",
            path.display()
        );
    }
    let bytes = random()?;
    let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    replace_private(&path, &format!("{text}\n")).map_err(io::Error::other)?;
    Ok(Secret::new(bytes))
}

fn random() -> io::Result<[u8; Secret::BYTES]> {
    let mut bytes = [0; Secret::BYTES];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes)
}

/// The bytes of a regular file that only its owner may read.
fn read(path: &Path) -> Option<[u8; Secret::BYTES]> {
    let metadata = fs::symlink_metadata(path).ok()?;
    if !metadata.is_file() || metadata.mode() & 0o077 != 0 || metadata.len() > 4_096 {
        return None;
    }
    let text = fs::read_to_string(path).ok()?;
    let digits = text.trim_end();
    if digits.len() != 2 * Secret::BYTES || !digits.is_ascii() {
        return None;
    }
    let mut bytes = [0; Secret::BYTES];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_secret_stays_and_one_that_others_may_know_is_replaced() {
        let directory = std::env::temp_dir().join(format!("pondhawk-secret-{}", std::process::id()));
        fs::create_dir(&directory).expect("a temporary directory");
        let path = directory.join(FILE);
        let text = || {
            of(&directory).expect("a secret");
            assert_eq!(fs::metadata(&path).expect("it is there").mode() & 0o777, 0o600);
            fs::read_to_string(&path).expect("text")
        };
        let first = text();
        assert_eq!(text(), first);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("it is ours");
        let second = text();
        assert_ne!(second, first);
        // A disk that was full.
        fs::write(&path, &second[..10]).expect("it is ours");
        assert_eq!(text().trim_end().len(), 2 * Secret::BYTES);
        fs::remove_dir_all(&directory).expect("it is ours");
    }
}
