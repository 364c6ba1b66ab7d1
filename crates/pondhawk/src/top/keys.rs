//! Keys of the terminal, without waiting for Enter, and signals that end the program.

use std::io::{self, Read as _};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// A key that means something here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    /// `q`, Ctrl-C, the end of the input, or a signal to end.
    Quit,
    /// Space or Enter: look again now.
    Again,
}

impl Key {
    fn of(byte: u8) -> Option<Self> {
        match byte {
            b'q' | b'Q' | 3 | 4 => Some(Self::Quit),
            b' ' | b'\r' | b'\n' => Some(Self::Again),
            _ => None,
        }
    }
}

/// The keys. The terminal is as before when this is dropped.
pub(super) struct Keys {
    pressed: Receiver<Key>,
    before: Option<Termios>,
}

impl Keys {
    /// Begins to read keys.
    ///
    /// # Errors
    /// The signals cannot be had.
    pub(super) fn open() -> io::Result<Self> {
        let (press, pressed) = channel();
        let before = tcgetattr(io::stdin()).ok();
        if let Some(before) = &before {
            let mut changed = before.clone();
            changed.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
            tcsetattr(io::stdin(), OptionalActions::Now, &changed)?;
        }
        // Without a handler, a signal would leave the terminal as it is now.
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        let quit = press.clone();
        thread::spawn(move || {
            for _ in signals.forever() {
                let _ = quit.send(Key::Quit);
            }
        });
        thread::spawn(move || read(&press));
        Ok(Self { pressed, before })
    }

    /// Waits for a key, at most this time.
    pub(super) fn wait(&self, at_most: Duration) -> Option<Key> {
        self.pressed.recv_timeout(at_most).ok()
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // A terminal that is gone needs nothing.
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
    }
}

/// Reads keys until the end of the input, which is not an end: a terminal that is gone sends SIGHUP.
fn read(press: &Sender<Key>) {
    let mut input = io::stdin();
    let mut bytes = [0; 64];
    while let Ok(count @ 1..) = input.read(&mut bytes) {
        for key in bytes[..count].iter().filter_map(|byte| Key::of(*byte)) {
            let _ = press.send(key);
        }
    }
}
