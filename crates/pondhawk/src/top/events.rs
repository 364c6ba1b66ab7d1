//! The events of `pondhawk top`: keys of the terminal without waiting for Enter, signals, and the figures of a broker.

use std::io::{self, ErrorKind, Read as _};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP, SIGWINCH};
use signal_hook::iterator::Signals;

/// An event for the screen. `S` is what a look at the broker returns.
pub(super) enum Event<S> {
    /// `q`, Ctrl-C, Ctrl-D, or a signal to end.
    Quit,
    /// Space or Enter: look again now.
    Again,
    /// Ctrl-Z: give the terminal back for a while.
    Suspend,
    /// The screen has another size, or perhaps another content.
    Redraw,
    /// A look has ended.
    Looked(S),
}

/// The source of all events.
pub(super) struct Events<S> {
    arrived: Receiver<Event<S>>,
    wishes: Sender<()>,
    /// A look has begun, and has not ended.
    is_looking: bool,
}

impl<S: Send + 'static> Events<S> {
    /// Begins to read keys. `look` runs on a thread of its own: a broker that does not answer holds up no key.
    ///
    /// # Errors
    /// The signals cannot be had.
    pub(super) fn open(look: impl Fn() -> S + Send + 'static) -> io::Result<Self> {
        let (tell, arrived) = channel();
        let (wishes, wished) = channel::<()>();
        // Without a handler, a signal would leave the terminal as it is now.
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGCONT, SIGWINCH])?;
        let of_signals = tell.clone();
        thread::spawn(move || {
            for signal in signals.forever() {
                let _ = of_signals.send(of_signal(signal));
            }
        });
        let of_keys = tell.clone();
        thread::spawn(move || read_keys(&of_keys));
        thread::spawn(move || {
            for () in wished {
                let _ = tell.send(Event::Looked(look()));
            }
        });
        Ok(Self { arrived, wishes, is_looking: false })
    }

    /// Begins a look, unless one is under way.
    pub(super) fn look(&mut self) {
        if !std::mem::replace(&mut self.is_looking, true) {
            let _ = self.wishes.send(());
        }
    }

    /// Waits for an event, at most this time.
    pub(super) fn wait(&mut self, at_most: Duration) -> Option<Event<S>> {
        let event = self.arrived.recv_timeout(at_most).ok();
        self.is_looking &= !matches!(event, Some(Event::Looked(_)));
        event
    }
}

fn of_signal<S>(signal: i32) -> Event<S> {
    match signal {
        SIGTSTP => Event::Suspend,
        SIGCONT | SIGWINCH => Event::Redraw,
        _ => Event::Quit,
    }
}

fn of_key<S>(byte: u8) -> Option<Event<S>> {
    match byte {
        b'q' | b'Q' | 3 | 4 => Some(Event::Quit),
        b' ' | b'\r' | b'\n' => Some(Event::Again),
        _ => None,
    }
}

/// Reads keys until the end of the input, which is not an end: a terminal that is gone sends SIGHUP.
fn read_keys<S>(tell: &Sender<Event<S>>) {
    let mut input = io::stdin();
    let mut bytes = [0; 64];
    loop {
        match input.read(&mut bytes) {
            Ok(count @ 1..) => {
                for event in bytes[..count].iter().filter_map(|byte| of_key(*byte)) {
                    let _ = tell.send(event);
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => return,
        }
    }
}
