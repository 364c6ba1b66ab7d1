//! Output for people. A closed pipe is ignored.

use std::fmt::{Display, Write as _};
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use wire::Shown;

use crate::failure::Failure;

/// Prints text to standard output.
pub(crate) fn show(text: impl Display) {
    let mut to = io::stdout().lock();
    let _ = to.write_all(escaped(&text.to_string()).as_bytes()).and_then(|()| to.flush());
}

/// Maximum number of texts that wait for standard error.
const TEXTS_WAITING_MAX: usize = 64;

/// Time for which the program waits until a text is written. After the first text that takes longer, it waits no more.
const PATIENCE: Duration = Duration::from_secs(1);

/// A text for standard error, and the channel that is closed when it is written.
type Complaint = (String, mpsc::Sender<()>);

/// Prints lines to standard error.
///
/// A thread writes them. A reader that has stopped reading must not keep the program: further lines are then dropped.
pub(crate) fn complain(lines: impl Display) {
    static COMPLAINTS: OnceLock<mpsc::SyncSender<Complaint>> = OnceLock::new();
    static IS_BLOCKED: AtomicBool = AtomicBool::new(false);
    let complaints = COMPLAINTS.get_or_init(|| {
        let (complaints, waiting) = mpsc::sync_channel::<Complaint>(TEXTS_WAITING_MAX);
        thread::spawn(move || {
            for (text, _is_written) in waiting {
                let _ = io::stderr().lock().write_all(text.as_bytes());
            }
        });
        complaints
    });
    let (is_written, written) = mpsc::channel();
    let text = format!("{}\n", escaped(&lines.to_string()));
    if complaints.try_send((text, is_written)).is_ok() {
        let patience = if IS_BLOCKED.load(Ordering::Relaxed) { Duration::ZERO } else { PATIENCE };
        let is_late = written.recv_timeout(patience) == Err(mpsc::RecvTimeoutError::Timeout);
        IS_BLOCKED.store(is_late, Ordering::Relaxed);
    }
}

/// Prints a failure of a command without Mosquitto's flags, in the style of all other commands.
pub(crate) fn complain_of(failure: &Failure) {
    let text = failure.text.strip_prefix("Error: ").unwrap_or(&failure.text).trim_end_matches('.');
    let mut letters = text.chars();
    // The first word is an ordinary word.
    let first = letters.next().map(|first| first.to_lowercase().to_string()).unwrap_or_default();
    let hint = failure.advice.as_ref().map(|advice| format!("\nhint: {advice}")).unwrap_or_default();
    complain(format_args!("error: {first}{}{hint}", letters.as_str()));
}

/// Escapes control characters, except for line ends and tabs.
///
/// Texts of other programs that belong on one line are escaped where they are put into a text. This is the last line of
/// defence for the terminal.
pub(crate) fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for piece in text.split_inclusive(['\n', '\t']) {
        let plain = piece.strip_suffix(['\n', '\t']).unwrap_or(piece);
        // Writing to a string cannot fail.
        let _ = write!(shown, "{}{}", Shown(plain), &piece[plain.len()..]);
    }
    shown
}

/// Prints bytes that may be text, with escapes for control characters. Bytes that are not UTF-8 become `\xff`.
pub(crate) fn write_escaped(bytes: &[u8], to: &mut impl Write) -> io::Result<()> {
    for chunk in bytes.utf8_chunks() {
        for piece in chunk.valid().split_inclusive(['\n', '\t']) {
            let plain = piece.strip_suffix(['\n', '\t']).unwrap_or(piece);
            write!(to, "{}{}", Shown(plain), &piece[plain.len()..])?;
        }
        chunk.invalid().iter().try_for_each(|byte| write!(to, "\\x{byte:02x}"))?;
    }
    Ok(())
}

/// Whether a terminal may get colours: `NO_COLOR` (<https://no-color.org>) and `TERM=dumb` forbid them.
pub(crate) fn allows_colour() -> bool {
    let is = |name: &str, test: fn(&std::ffi::OsStr) -> bool| {
        std::env::var_os(name).is_some_and(|value| test(&value))
    };
    !is("NO_COLOR", |value| !value.is_empty()) && !is("TERM", |value| value == "dumb")
}

#[test]
fn nothing_but_lines_and_tabs_moves_the_cursor() {
    assert_eq!(escaped("a\tb\nc\r\u{1b}[2J\u{9b}m"), "a\tb\nc\\r\\u{1b}[2J\\u{9b}m");
    let mut shown = Vec::new();
    write_escaped(b"\x1b]0;x\x07\xff\xc3\xa9", &mut shown).unwrap();
    assert_eq!(String::from_utf8(shown).unwrap(), "\\u{1b}]0;x\\u{7}\\xffé");
}
