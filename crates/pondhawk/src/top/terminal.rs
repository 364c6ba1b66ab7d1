//! The terminal, as `pondhawk top` needs it, and as it was before.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// Lines of a terminal that does not tell its size, and its columns.
const SIZE: (usize, usize) = (24, 80);
/// Another screen of the terminal, without a cursor.
const BEGIN: &str = "\x1b[?1049h\x1b[?25l";
/// The cursor, and the former screen.
const END: &str = "\x1b[?25h\x1b[?1049l";

/// Another screen of the terminal, whose keys arrive one by one. The terminal is as before when this is dropped.
pub(super) struct Terminal {
    /// The modes of the input. `None` if it is no terminal.
    before: Option<Termios>,
    /// Standard output without a buffer, which would divide a drawing at its last line.
    out: File,
}

impl Terminal {
    /// Changes to the other screen.
    ///
    /// # Errors
    /// The terminal is gone.
    pub(super) fn begin() -> io::Result<Self> {
        let out = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let mut terminal = Self { before: tcgetattr(io::stdin()).ok(), out };
        if let Some(before) = &terminal.before {
            let mut changed = before.clone();
            changed.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
            tcsetattr(io::stdin(), OptionalActions::Now, &changed)?;
        }
        terminal.out.write_all(BEGIN.as_bytes())?;
        Ok(terminal)
    }

    /// Lines and columns of the screen.
    pub(super) fn size(&self) -> (usize, usize) {
        let known = tcgetwinsize(&self.out).ok().filter(|size| size.ws_row > 0 && size.ws_col > 0);
        known.map_or(SIZE, |size| (usize::from(size.ws_row), usize::from(size.ws_col)))
    }

    /// Draws a whole screen with one write, so that nothing flickers.
    ///
    /// # Errors
    /// The terminal is gone.
    pub(super) fn draw(&mut self, lines: &[String]) -> io::Result<()> {
        let mut text = String::from("\x1b[H");
        for (number, line) in lines.iter().enumerate() {
            // Behind the last line, the terminal would scroll.
            text.push_str(if number > 0 { "\r\n" } else { "" });
            // Before the text: behind a full line, it would erase the last character.
            text.push_str("\x1b[K");
            text.push_str(line);
        }
        if lines.len() < self.size().0 {
            text.push_str("\r\n\x1b[J");
        }
        self.out.write_all(text.as_bytes())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = self.out.write_all(END.as_bytes());
        if let Some(before) = &self.before {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
    }
}
