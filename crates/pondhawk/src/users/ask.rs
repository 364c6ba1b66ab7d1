//! Asks for a password on the terminal, without showing it.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

/// Asks for a new password, twice on a terminal. Otherwise the password is the first line of standard input.
///
/// # Errors
/// The two are different, or nothing can be read.
pub(crate) fn new_password() -> Result<Vec<u8>, String> {
    let first = ask("Password: ")?;
    if io::stdin().is_terminal() && ask("Again: ")? != first {
        return Err("the two passwords are different".to_owned());
    }
    Ok(first.into_bytes())
}

/// Asks for a password that is known already.
///
/// # Errors
/// Nothing can be read.
pub(crate) fn password() -> Result<String, String> {
    ask("Password: ")
}

fn ask(prompt: &str) -> Result<String, String> {
    let stdin = io::stdin();
    let silence = stdin.is_terminal().then(|| Silence::begin(prompt)).transpose();
    let _silence =
        silence.map_err(|error| format!("the terminal cannot be told to hide a password: {error}"))?;
    let mut line = String::new();
    stdin.lock().read_line(&mut line).map_err(|error| format!("no password: {error}"))?;
    Ok(line.trim_end_matches(['\n', '\r']).to_owned())
}

/// A terminal that does not show what is typed, until it is dropped.
struct Silence(Termios);

impl Silence {
    fn begin(prompt: &str) -> io::Result<Self> {
        eprint!("{prompt}");
        io::stderr().flush()?;
        let before = tcgetattr(io::stdin())?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Flush, &silent)?;
        Ok(Self(before))
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        // The terminal may be gone.
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.0);
        eprintln!();
    }
}
