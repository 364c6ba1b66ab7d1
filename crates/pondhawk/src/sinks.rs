//! The places to which lines of the log go.

use std::env;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use config::LogTarget;

use crate::privileges::Successor;

/// The socket of the system's log (syslog(3)).
const SYSLOG: &str = "/dev/log";
/// The facility `daemon` in the priority of a line (RFC 3164 section 4.1.1).
const FACILITY: u8 = 3 << 3;
/// Permissions of a new file.
const MODE: u32 = 0o640;

/// All places. A place that fails loses its lines, and does not stop the others.
pub(crate) struct Sinks {
    list: Vec<Sink>,
    next: Reopen,
}

/// Asks for other places before the next line, or for the same ones, whose files are opened again.
#[derive(Clone, Default)]
pub(crate) struct Reopen {
    is_asked: Arc<AtomicBool>,
    targets: Arc<Mutex<Vec<LogTarget>>>,
}

enum Sink {
    Stderr,
    Stdout,
    File(PathBuf, File),
    Syslog(Option<UnixDatagram>),
}

impl Reopen {
    /// Opens these places before the next line.
    pub(crate) fn ask(&self, targets: &[LogTarget]) {
        *self.targets.lock().unwrap_or_else(PoisonError::into_inner) = targets.to_vec();
        self.is_asked.store(true, Relaxed);
    }
}

impl Sinks {
    /// Opens all places. The texts are about files that cannot be opened, whose lines go to standard error.
    ///
    /// The superuser opens files for its successor, and follows no links of others.
    pub(crate) fn open(targets: &[LogTarget], successor: Option<&Successor>) -> (Self, Vec<String>) {
        let mut failures = Vec::new();
        let mut list: Vec<Sink> = Vec::new();
        for target in targets {
            let sink = match target {
                LogTarget::Stderr => Sink::Stderr,
                LogTarget::Stdout => Sink::Stdout,
                LogTarget::Syslog => Sink::Syslog(connect().ok()),
                LogTarget::Off => continue,
                LogTarget::File(path) => match open(path, successor) {
                    Ok(file) => Sink::File(path.clone(), file),
                    Err(error) => {
                        failures
                            .push(format!("cannot open the log {}: {error}", wire::Shown(path.display())));
                        Sink::Stderr
                    }
                },
            };
            let is_second =
                matches!(sink, Sink::Stderr) && list.iter().any(|other| matches!(other, Sink::Stderr));
            if !is_second {
                list.push(sink);
            }
        }
        (Self { list, next: Reopen::default() }, failures)
    }

    /// Opens the places that were asked for. A file that cannot be opened any more goes on if it was open.
    fn open_again(&mut self) {
        let targets = self.next.targets.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut earlier = std::mem::take(&mut self.list);
        for target in &targets {
            let (Self { list, .. }, failures) = Self::open(std::slice::from_ref(target), None);
            let of_file = |sink: &Sink| matches!((sink, target), (Sink::File(path, _), LogTarget::File(of)) if path == of);
            let open = earlier.iter().position(of_file).filter(|_| !failures.is_empty());
            match open {
                Some(place) => self.list.push(earlier.swap_remove(place)),
                None => self.list.extend(list),
            }
        }
    }

    /// The handle with which files are opened again.
    pub(crate) fn reopen(&self) -> Reopen {
        self.next.clone()
    }

    /// Whether standard error is the only place.
    pub(crate) fn is_stderr_alone(&self) -> bool {
        matches!(self.list[..], [Sink::Stderr])
    }
}

impl Write for Sinks {
    /// Writes one line to all places.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.next.is_asked.swap(false, Relaxed) {
            self.open_again();
        }
        for sink in &mut self.list {
            // Nobody could be told.
            let _ = sink.write(line);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sink {
    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        match self {
            Self::Stderr => io::stderr().write_all(line),
            Self::Stdout => {
                let mut stream = io::stdout();
                stream.write_all(line)?;
                stream.flush()
            }
            Self::File(_, file) => file.write_all(line),
            Self::Syslog(socket) => {
                let message = syslog_message(line);
                if socket.as_ref().is_none_or(|socket| socket.send(&message).is_err()) {
                    // The system's log was started again.
                    let again = connect()?;
                    again.send(&message)?;
                    *socket = Some(again);
                }
                Ok(())
            }
        }
    }
}

fn open(path: &Path, successor: Option<&Successor>) -> io::Result<File> {
    if let Some(successor) = successor {
        return successor.open_log(path, MODE);
    }
    OpenOptions::new().append(true).create(true).mode(MODE).open(path)
}

fn connect() -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    // A log that stands still must not stop the others.
    socket.set_nonblocking(true)?;
    socket.connect(env::var_os("PONDHAWK_SYSLOG").unwrap_or_else(|| SYSLOG.into()))?;
    Ok(socket)
}

/// A line with priority and name in front. The level stands at the beginning of the line, behind the time.
fn syslog_message(line: &[u8]) -> Vec<u8> {
    let begin = &line[..line.len().min(64)];
    let has = |word: &[u8]| begin.windows(word.len()).any(|part| part == word);
    let severity = [(&b"ERROR"[..], 3), (b"WARN", 4), (b"DEBUG", 7), (b"TRACE", 7)]
        .into_iter()
        .find_map(|(word, severity)| has(word).then_some(severity))
        .unwrap_or(6);
    let mut message = format!("<{}>pondhawk[{}]: ", FACILITY | severity, std::process::id()).into_bytes();
    message.extend(line.strip_suffix(b"\n").unwrap_or(line));
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_for_the_system_has_its_priority() {
        let text = |line: &str| String::from_utf8(syslog_message(line.as_bytes())).unwrap();
        assert!(text("2026-01-01T00:00:00Z ERROR no\n").starts_with("<27>pondhawk["));
        assert!(text("2026-01-01T00:00:00Z  WARN no\n").starts_with("<28>pondhawk["));
        assert!(text("2026-01-01T00:00:00Z  INFO no\n").ends_with("]: 2026-01-01T00:00:00Z  INFO no"));
    }
}
