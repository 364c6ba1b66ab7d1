//! `pondhawk check FILE`: checks a configuration, and prints it with all defaults, or a file of Mosquitto in our language.

use std::fmt::Write;
use std::io;
use std::path::Path;

use config::{Flags, Machine};

use crate::access::AccessFiles;
use crate::certificates::Certificates;
use crate::file::{self, Failure};
use crate::files_read::FilesRead;
use crate::{origin, variables};

/// Output for a valid file.
pub(crate) struct Checked {
    /// Message for the user: the file is valid, with notices.
    pub(crate) verdict: String,
    /// The complete configuration, again as a file.
    pub(crate) settings: String,
}

/// Checks a configuration file, with the files of users, rules, certificates, keys and revocation lists that it names.
///
/// # Errors
/// One of the files cannot be read or is not valid.
pub(crate) fn check(path: &Path, machine: &Machine) -> Result<Checked, Failure> {
    let flags = Flags { environment: crate::environment(), ..Flags::default() };
    let loaded = file::load(Some(path), &flags, machine, &FilesRead::default())?;
    let explain = |error: io::Error| Failure::Access(origin::with_place(&loaded, &error.to_string()));
    AccessFiles::open(&loaded.config).map_err(explain)?;
    let unread = match Certificates::open(&loaded.config.listeners, &loaded.config.admin) {
        // The broker may run as another user, who can read them.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Some(error),
        opened => opened.map(|_| None).map_err(explain)?,
    };
    let name = wire::Shown(path.display());
    let mut verdict = match &loaded.translated {
        None => format!("{name} is good; with the defaults of this machine it comes to:\n"),
        Some(translation) => {
            let count = translation.remarks.len();
            let remarks = if count == 1 { "remark" } else { "remarks" };
            format!("{name} is a good file of Mosquitto, with {count} {remarks}; in our language it is:\n")
        }
    };
    if let Some(error) = unread {
        let _ = writeln!(
            verdict,
            "note: certificates are not checked, because this user may not read them: {error}"
        );
    }
    for notice in loaded.config.notices(loaded.first_user()) {
        let _ = writeln!(verdict, "note: {notice}");
    }
    for name in variables::unknown(&flags.environment) {
        let _ = writeln!(verdict, "note: the environment variable {name} sets no key");
    }
    let settings = loaded.translated.map_or_else(|| loaded.config.to_toml(), |translation| translation.toml);
    Ok(Checked { verdict, settings })
}
