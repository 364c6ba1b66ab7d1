//! The process: its number in a file, messages to the service manager, and a life in the background.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use nix::sys::stat::Mode;
use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout, setsid};
use sd_notify::NotifyState;

use crate::no_links::Entry;

/// A file with the number of this process, which is removed on drop.
#[derive(Debug)]
pub(crate) struct PidFile(Option<(PathBuf, File)>);

/// Permissions of the file.
const PID_FILE_MODE: u32 = 0o644;

impl PidFile {
    /// Writes the file, if there is to be one. A broker that cannot write it goes on, and logs the reason.
    ///
    /// A broker that gives up the rights of the superuser later, `with_care`, follows no links of other users.
    pub(crate) fn write(path: Option<&Path>, with_care: bool) -> Self {
        let Some(path) = path else { return Self(None) };
        let open = || match with_care {
            true => Ok(Entry::walk(path, None)?.open_file(Mode::from_bits_truncate(PID_FILE_MODE))?.0),
            false => File::options().write(true).create(true).truncate(false).open(path),
        };
        let write = |mut file: File| {
            file.set_len(0)?;
            writeln!(file, "{}", std::process::id())?;
            Ok(file)
        };
        match open().and_then(write) {
            Ok(file) => Self(Some((path.to_owned(), file))),
            Err(error) => {
                tracing::error!(%error, "cannot write the `pid_file` {}", path.display());
                Self(None)
            }
        }
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        let Some((path, file)) = &self.0 else { return };
        // After `user`, the directory may belong to somebody else. Then an empty file says that there is no process.
        if fs::remove_file(path).is_err() {
            let _ = file.set_len(0);
        }
    }
}

/// Tells the service manager that clients can connect. Without a service manager nothing happens.
pub(crate) fn notify_ready() {
    notify(&[NotifyState::Ready]);
    if is_detached() {
        let _ = leave_terminal();
    }
}

/// Tells the service manager that the broker is about to end.
pub(crate) fn notify_stopping() {
    notify(&[NotifyState::Stopping]);
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "cannot tell the service manager");
    }
}

/// Set for the process in the background.
const DETACHED: &str = "PONDHAWK_DETACHED";
/// The variable with the socket of the service manager (sd_notify(3)).
const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";
/// Time between two looks at a process that is starting.
const LOOK: Duration = Duration::from_millis(50);

/// Whether this process is the one in the background.
pub(crate) fn is_detached() -> bool {
    env::var_os(DETACHED).is_some()
}

/// Leaves the session of the terminal. Called at the start of the process in the background.
pub(crate) fn begin_session() {
    // The process is no leader of a group, so that the call succeeds.
    let _ = setsid();
}

/// Closes the streams of the terminal.
fn leave_terminal() -> io::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    dup2_stderr(&null)?;
    Ok(())
}

/// Starts this program again in the background, and waits until clients can connect.
///
/// The exit code is that of the process in the background if it ends before.
///
/// # Errors
/// The process cannot be started.
pub(crate) fn detach() -> io::Result<ExitCode> {
    let directory = env::temp_dir().join(format!("pondhawk-{}-{}", std::process::id(), nonce()?));
    fs::create_dir(&directory)?;
    let outcome = start_and_wait(&directory.join("ready"));
    let _ = fs::remove_dir_all(&directory);
    outcome
}

fn start_and_wait(socket_path: &Path) -> io::Result<ExitCode> {
    let socket = UnixDatagram::bind(socket_path)?;
    // With `user`, the process in the background is another user when it is ready.
    fs::set_permissions(socket_path, fs::Permissions::from_mode(0o777))?;
    socket.set_read_timeout(Some(LOOK))?;
    let words: Vec<OsString> = env::args_os().skip(1).collect();
    let mut command = Command::new(env::current_exe()?);
    command.args(words).env(DETACHED, "1").env(NOTIFY_SOCKET, socket_path).stdin(Stdio::null());
    let mut child = command.spawn()?;
    let mut text = [0; 256];
    loop {
        match socket.recv(&mut text) {
            Ok(length) if text[..length].split(|byte| *byte == b'\n').any(|line| line == b"READY=1") => {
                return Ok(ExitCode::SUCCESS);
            }
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => return Err(error),
        }
        if child.try_wait()?.is_some() {
            return Ok(ExitCode::FAILURE);
        }
    }
}

/// A number that nobody can guess, for the name of a directory.
fn nonce() -> io::Result<u64> {
    use std::io::Read;
    let mut bytes = [0; 8];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}
