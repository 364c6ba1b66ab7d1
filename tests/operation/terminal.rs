//! A terminal with a program in it, and the screen that people would see.

use std::io::{Read as _, Write as _};
use std::num::NonZeroU16;
use std::process::{Child, Command, ExitStatus};
use std::time::Instant;

use pondhawk_tests::DEADLINE;
use pty_process::Size;
use pty_process::blocking::Pty;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::{LocalModes, tcgetattr, tcgetwinsize};
use vt100::{Parser, Screen};

/// A terminal that controls a program, which is killed on drop.
pub(super) struct Terminal {
    pty: Pty,
    screen: Parser,
    program: Child,
    modes: LocalModes,
    /// An escape sequence has come.
    is_controlled: bool,
}

impl Terminal {
    /// Starts a program in a terminal with this number of lines and columns.
    pub(super) fn start(command: Command, (lines, columns): (u16, u16)) -> Self {
        let (pty, end) = pty_process::blocking::open().expect("the system has terminals");
        pty.resize(Size::new(lines, columns)).expect("it has any size");
        let modes = tcgetattr(&pty).expect("it is a terminal").local_modes;
        let program = pty_process::blocking::Command::from(command).spawn(end).expect("it can be run");
        let screen = Parser::new(count(lines), count(columns), 0);
        Self { pty, screen, program, modes, is_controlled: false }
    }

    /// Gives the terminal another size.
    pub(super) fn resize(&mut self, (lines, columns): (u16, u16)) {
        self.screen.set_size(count(lines), count(columns));
        self.pty.resize(Size::new(lines, columns)).expect("it has any size");
    }

    /// Presses the keys of these characters.
    pub(super) fn press(&mut self, keys: &str) {
        self.pty.write_all(keys.as_bytes()).expect("somebody reads them");
    }

    /// Sends a signal to the program.
    pub(super) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.program), signal).expect("the program runs");
    }

    /// The state of the program, as the system calls it: `T` if it is stopped.
    pub(super) fn state(&self) -> Option<String> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.program.id())).ok()?;
        Some(stat.rsplit_once(") ")?.1.split(' ').next()?.to_owned())
    }

    /// The size that the program is told, and all that the system knows about the program.
    fn status(&self) -> String {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.program.id()));
        format!("{:?}\n{}", tcgetwinsize(&self.pty), status.unwrap_or_default())
    }

    /// Waits until the screen is so, and returns its lines.
    pub(super) fn wait_for(&mut self, wish: &str, is_so: impl Fn(&Screen) -> bool) -> Vec<String> {
        let end = Instant::now() + DEADLINE;
        loop {
            if is_so(self.screen.screen()) {
                return self.lines();
            }
            assert!(self.read(end), "the program has ended before {wish}:\n{}", self.lines().join("\n"));
        }
    }

    /// Waits until the screen has a text, and returns its lines.
    pub(super) fn wait_for_text(&mut self, text: &str) -> Vec<String> {
        self.wait_for(text, |screen| screen.contents().contains(text))
    }

    /// Waits for the end of the program. The terminal has to be as it was before.
    pub(super) fn expect_end(&mut self) -> ExitStatus {
        let end = Instant::now() + DEADLINE;
        while self.read(end) {}
        self.expect_as_before();
        self.program.wait().expect("it is our child")
    }

    /// The screen is the former one with a cursor, and keys are shown and arrive in lines.
    pub(super) fn expect_as_before(&self) {
        let screen = self.screen.screen();
        assert!(!screen.alternate_screen() && !screen.hide_cursor(), "{}", screen.contents());
        assert_eq!(tcgetattr(&self.pty).expect("it is a terminal").local_modes, self.modes);
    }

    /// Whether the program has written more than text.
    pub(super) fn is_controlled(&self) -> bool {
        self.is_controlled
    }

    fn lines(&self) -> Vec<String> {
        let (_, columns) = self.screen.screen().size();
        self.screen.screen().rows(0, columns.get()).collect()
    }

    /// Takes in a piece of the output. Returns whether more may come.
    fn read(&mut self, end: Instant) -> bool {
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).expect("it is less than a minute");
        let mut wanted = [PollFd::new(&self.pty, PollFlags::IN)];
        let ready = poll(&mut wanted, Some(&left)).expect("a terminal can be waited for");
        assert_ne!(
            ready,
            0,
            "nothing more before the deadline: {}\n{}",
            self.status(),
            self.lines().join("\n")
        );
        let mut piece = [0; 4_096];
        match self.pty.read(&mut piece) {
            Ok(bytes @ 1..) => {
                self.screen.process(&piece[..bytes]);
                self.is_controlled |= piece[..bytes].contains(&0x1b);
                true
            }
            // On Linux, the end of a terminal without programs is an error.
            Ok(0) | Err(_) => false,
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

fn count(number: u16) -> NonZeroU16 {
    NonZeroU16::new(number).expect("a screen has lines and columns")
}
