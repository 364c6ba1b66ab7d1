//! Password files as text: lines of users, in the form of Mosquitto.

use std::fmt;

use crate::PasswordHash;

/// White space that Mosquitto cuts off names and hashes.
pub(crate) const BLANKS: [char; 6] = [' ', '\t', '\n', '\x0B', '\x0C', '\r'];

/// The name and the hash of a user in a line, if the line has a user: `name:hash`. Colons before the name are skipped. A second
/// colon ends the hash.
pub(crate) fn entry(line: &str) -> Option<(&str, &str)> {
    if line.starts_with('#') {
        return None;
    }
    let (name, rest) = line.trim_start_matches(':').split_once(':')?;
    let field = rest.trim_start_matches(':').split(':').next().unwrap_or_default();
    Some((name.trim_matches(BLANKS), field.trim_matches(BLANKS)))
}

/// A password file that is being changed. Comments and the order of lines stay.
///
/// ```
/// use auth::{PasswordFile, PasswordHash, Scheme};
///
/// let mut file = PasswordFile::parse("# Staff\nann:$6$…\n");
/// let hash = PasswordHash::new(Scheme::MOSQUITTO, b"secret", b"twelve bytes").unwrap();
/// file.set("bob", &hash).unwrap();
/// assert!(file.remove("ann"));
/// assert!(file.to_string().starts_with("# Staff\nbob:$7$101$"));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PasswordFile {
    lines: Vec<String>,
}

impl PasswordFile {
    /// The lines of a file.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        Self { lines: text.lines().map(str::to_owned).collect() }
    }

    /// Gives a user a password, in the place of the earlier one or behind all other lines.
    ///
    /// # Errors
    /// No line can have this name.
    pub fn set(&mut self, name: &str, hash: &PasswordHash) -> Result<(), NameError> {
        check_name(name)?;
        let line = format!("{name}:{hash}");
        let place = self.place(name);
        match place.and_then(|place| self.lines.get_mut(place)) {
            Some(earlier) => *earlier = line,
            None => self.lines.push(line),
        }
        Ok(())
    }

    /// Removes a user. Returns whether the user was there.
    pub fn remove(&mut self, name: &str) -> bool {
        let place = self.place(name);
        place.map(|place| self.lines.remove(place)).is_some()
    }

    /// Replaces each password in plain text by the hash that `hash` makes of it. Returns the number of passwords.
    ///
    /// # Errors
    /// The first error of `hash`. The file is then as it was.
    pub fn hash_plain<E>(
        &mut self,
        mut hash: impl FnMut(&[u8]) -> Result<PasswordHash, E>,
    ) -> Result<usize, E> {
        let mut hashed = self.lines.clone();
        let mut count = 0;
        for line in &mut hashed {
            let Some((name, field)) = entry(line) else { continue };
            if !name.is_empty() && !field.is_empty() && !field.starts_with('$') {
                *line = format!("{name}:{}", hash(field.as_bytes())?);
                count += 1;
            }
        }
        self.lines = hashed;
        Ok(count)
    }

    fn place(&self, name: &str) -> Option<usize> {
        self.lines.iter().position(|line| entry(line).is_some_and(|(found, _)| found == name))
    }
}

fn check_name(name: &str) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Empty);
    }
    if name.contains(':') {
        return Err(NameError::Colon);
    }
    let is_cut = name.starts_with(BLANKS) || name.ends_with(BLANKS);
    if is_cut || name.starts_with('#') || name.contains(['\0', '\n', '\r']) {
        return Err(NameError::Unwritable);
    }
    Ok(())
}

impl fmt::Display for PasswordFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// The reason why no line of a password file can have a user name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameError {
    /// The name is empty.
    Empty,
    /// A colon ends the name in a file.
    Colon,
    /// The name begins with `#`, begins or ends with a blank, or has a control character.
    Unwritable,
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "a user name is not empty",
            Self::Colon => "a user name in a password file has no colon",
            Self::Unwritable => {
                "a user name in a password file does not begin with `#` or a blank, does not end with a blank, and is one line"
            }
        })
    }
}

impl std::error::Error for NameError {}
