//! The process: its number in a file, messages to the service manager, and a life in the background.

use std::env;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

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
                tracing::error!(%error, "cannot write the `pid_file` {}", wire::Shown(path.display()));
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
        // The first process may be gone.
        let _ = tell_first_process();
        let _ = leave_terminal();
    }
}

/// Tells the service manager that the broker is about to end.
pub(crate) fn notify_stopping() {
    notify(&[NotifyState::Stopping]);
}

pub(crate) fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "cannot tell the service manager");
    }
}

/// Set for the process in the background.
const DETACHED: &str = "PONDHAWK_DETACHED";
/// The variable with the socket of the service manager (sd_notify(3)).
const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";

/// Whether this process is the one in the background.
pub(crate) fn is_detached() -> bool {
    env::var_os(DETACHED).is_some()
}

/// Leaves the session of the terminal. Called at the start of the process in the background.
pub(crate) fn begin_session() {
    // The process is no leader of a group, so that the call succeeds.
    let _ = setsid();
}

/// Tells the process that has started this one in the background, over the pipe at standard input.
fn tell_first_process() -> io::Result<()> {
    File::from(io::stdin().as_fd().try_clone_to_owned()?).write_all(b"1")
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
/// The two processes share a pipe, which is the standard input of the second: nobody else can say that it is ready.
///
/// # Errors
/// The process cannot be started.
pub(crate) fn detach() -> io::Result<ExitCode> {
    let (mut reader, writer) = io::pipe()?;
    let mut command = Command::new(env::current_exe()?);
    command.args(env::args_os().skip(1)).env(DETACHED, "1").env_remove(NOTIFY_SOCKET).stdin(writer);
    let child = command.spawn()?;
    // The command holds a writing end too. The pipe must end when the process in the background ends.
    drop(command);
    let is_ready = reader.read(&mut [0])? == 1;
    drop(child);
    Ok(if is_ready { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
