//! The task that owns a connection, and decides what happens next.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use session::client::TimedOut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep, sleep_until, timeout, timeout_at};

use crate::back_off::BackOff;
use crate::command::{Command, End, Unwanted};
use crate::counters::Counters;
use crate::engine::{Connecting, Engine};
use crate::error::{ConnectError, Ended};
use crate::message::Accepted;
use crate::options::Options;
use crate::outlet::Room;
use crate::routes::Number;
use crate::store::{Keeper, Restored};

/// Maximum number of commands that run before their packets are written. A larger batch would keep the server waiting.
const COMMANDS_PER_TURN: usize = 64;

/// While at least this many bytes wait for the socket, no command is accepted.
const OUTPUT_BYTES_MAX: usize = 256 << 10;

/// Number of received bytes after which other tasks of the runtime have a turn.
///
/// A server that floods the client with small packets could otherwise keep the runtime's thread, also from the timers of
/// the application.
const BYTES_PER_TURN: usize = 64 << 10;

/// Time limit for the last bytes to leave. After [`disconnect`](crate::Client::disconnect), the rest of
/// [`Options::flush_timeout`] applies if it is longer.
const FAREWELL: Duration = Duration::from_secs(1);

/// State of the task that owns a connection:
///
/// ```text
///             CONNACK                disconnect, last handle dropped          all acknowledged, or time-out
/// Connecting ─────────► Open ────────────────────────────────────────► Closing ─────────────► gone
///     │  ▲                │                                               │                    ▲
///     │  └─ Reconnecting ◄┴─ a fault, where a connector is there: while closing, if there is ──┤
///     │                      something to deliver                                              │
///     └───────────────────────────── a fault, of either side ──────────────────────────────────┘
/// ```
pub(crate) struct Driver {
    engine: Engine,
    asked: Asked,
    accepted: mpsc::UnboundedReceiver<Accepted>,
    /// `None` without a session store.
    keeper: Option<Keeper>,
    /// Reason for the end, which handles read when their answer does not arrive.
    ended: Arc<OnceLock<Ended>>,
}

/// Requests from the handles.
pub(crate) struct Asked {
    pub(crate) commands: mpsc::Receiver<Command>,
    pub(crate) ends: mpsc::Receiver<End>,
    pub(crate) unwanted: mpsc::UnboundedReceiver<Number>,
    pub(crate) unwanted_sender: Unwanted,
}

/// The two directions of a connection.
struct Link<S> {
    reader: ReadHalf<S>,
    writer: WriteHalf<S>,
    /// Written bytes may still be in the buffer of a lower layer.
    needs_flush: bool,
    /// Fires when something is due, or earlier.
    ///
    /// The deadline moves with every packet. Setting the timer each time would cost more than an occasional early
    /// wake-up.
    timer: Pin<Box<Sleep>>,
}

/// Event that ends a wait of the driver.
enum Turn {
    Read(io::Result<usize>),
    Written(io::Result<usize>),
    Commands(Vec<Command>),
    /// Request to end the connection; `None` if the last handle was dropped.
    End(Option<End>),
    Accepted(Accepted),
    /// A subscription that nobody wants any more.
    Unwanted(Number),
    Room,
    Timeout,
}

impl Driver {
    /// Makes a driver whose first output is CONNECT. The outcome of CONNECT goes to `connected`.
    pub(crate) fn new(
        options: Options,
        asked: Asked,
        connected: Connecting,
        (ended, counters): (Arc<OnceLock<Ended>>, Arc<Counters>),
        restored: Option<Restored>,
    ) -> Result<Self, ConnectError> {
        let (acknowledge, accepted) = mpsc::unbounded_channel();
        let senders = (acknowledge, asked.unwanted_sender.clone());
        let (keeper, stored) = restored.map(|Restored { keeper, stored }| (keeper, stored)).unzip();
        let engine = Engine::new(options, connected, senders, counters, stored.flatten())?;
        Ok(Self { engine, asked, accepted, keeper, ended })
    }

    /// Drives one connection to its end.
    pub(crate) async fn run(mut self, stream: impl AsyncRead + AsyncWrite + Send) {
        let ended = self.serve(stream).await;
        self.finish(&ended);
    }

    /// Drives one connection after another, until the application or a refusal ends the client.
    pub(crate) async fn run_again<S, C, F>(mut self, mut stream: S, mut connector: C, back_off: BackOff)
    where
        S: AsyncRead + AsyncWrite + Send,
        C: FnMut() -> F,
        F: Future<Output = io::Result<S>>,
    {
        let ended = loop {
            let ended = self.serve(stream).await;
            if !self.engine.may_reconnect(&ended) {
                break ended;
            }
            self.engine.suspend(&ended);
            if let Err(ended) = self.keep().await {
                break ended;
            }
            if self.engine.is_done() {
                break ended;
            }
            match self.reconnect(&mut connector, back_off).await {
                Ok(new) => stream = new,
                Err(ended) => break ended,
            }
        };
        self.finish(&ended);
    }

    /// Tries to connect until there is a stream, and puts CONNECT into the output.
    async fn reconnect<S, C, F>(&mut self, connector: &mut C, back_off: BackOff) -> Result<S, Ended>
    where
        C: FnMut() -> F,
        F: Future<Output = io::Result<S>>,
    {
        loop {
            let delay = back_off.delay(self.engine.count_attempt());
            self.pause(delay).await?;
            let limit = self.engine.connect_timeout();
            let why = match self.meanwhile(timeout(limit, connector())).await? {
                Ok(Ok(stream)) => {
                    self.engine.connect()?;
                    return Ok(stream);
                }
                Ok(Err(error)) => Ended::from(error),
                Err(_) => Ended::TimedOut(TimedOut::Connect),
            };
            self.engine.tried_in_vain(why);
        }
    }

    /// Waits before an attempt to connect, but at most until the application asks for the end.
    ///
    /// The time limit of the end may be shorter than the delay, and messages remain to be delivered.
    async fn pause(&mut self, delay: Duration) -> Result<(), Ended> {
        let (due, was_closing) = (Instant::now() + delay, self.engine.is_closing());
        while self.engine.is_closing() == was_closing {
            tokio::select! {
                () = sleep_until(due) => break,
                done = self.do_without() => {
                    done?;
                    self.keep().await?;
                }
            }
        }
        Ok(())
    }

    async fn meanwhile<T>(&mut self, attempt: impl Future<Output = T>) -> Result<T, Ended> {
        let mut attempt = std::pin::pin!(attempt);
        loop {
            tokio::select! {
                outcome = &mut attempt => return Ok(outcome),
                done = self.do_without() => {
                    done?;
                    self.keep().await?;
                }
            }
        }
    }

    /// Waits for an operation that needs no connection, and carries it out.
    ///
    /// Dropping the future during the wait is safe: nothing has happened yet.
    async fn do_without(&mut self) -> Result<(), Ended> {
        let Self { engine, asked: Asked { commands, ends, unwanted, .. }, .. } = self;
        let (full, due, mut taken) = (engine.full_streams(), engine.closing_due(), Vec::new());
        let turn = tokio::select! {
            () = room(&full), if !full.is_empty() => Turn::Room,
            _ = commands.recv_many(&mut taken, COMMANDS_PER_TURN), if !engine.has_all() => Turn::Commands(taken),
            end = ends.recv(), if !engine.is_closing() => Turn::End(end),
            Some(number) = unwanted.recv() => Turn::Unwanted(number),
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => Turn::Timeout,
        };
        engine.begin_turn();
        match turn {
            Turn::Commands(commands) => engine.handle_commands(commands),
            Turn::End(end) => self.close(end),
            Turn::Timeout => Err(Ended::ByUs),
            Turn::Unwanted(number) => {
                engine.forget(number);
                Ok(())
            }
            _ => {
                engine.flush_streams();
                Ok(())
            }
        }
    }

    /// Accepts no more commands. Commands in the queue are still carried out.
    fn close(&mut self, end: Option<End>) -> Result<(), Ended> {
        self.asked.commands.close();
        self.engine.close(end)
    }

    async fn serve<S: AsyncRead + AsyncWrite + Send>(&mut self, stream: S) -> Ended {
        let (reader, writer) = tokio::io::split(stream);
        let timer = Box::pin(sleep_until(Instant::now()));
        let mut link = Link { reader, writer, needs_flush: false, timer };
        let mut bytes_of_turn = 0;
        let ended = loop {
            if bytes_of_turn >= BYTES_PER_TURN {
                bytes_of_turn = 0;
                tokio::task::yield_now().await;
            }
            if let Err(ended) = self.keep().await {
                break ended;
            }
            let turn = self.next(&mut link).await;
            if let Turn::Read(Ok(count)) = turn {
                bytes_of_turn += count;
            }
            let is_unheard = matches!(turn, Turn::Written(Err(_)));
            match self.take(turn, &mut link.needs_flush) {
                Ok(()) => {}
                Err(ended) if is_unheard => break self.hear_last(&mut link.reader).await.unwrap_or(ended),
                Err(ended) => break ended,
            }
        };
        // The last turn may have written packets too.
        let ended = self.keep().await.err().unwrap_or(ended);
        let due = self.engine.farewell_due(&ended, FAREWELL);
        let farewell = timeout_at(due, self.say_farewell(&mut link.writer)).await;
        let farewell = farewell.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        match (ended, farewell) {
            (Ended::ByUs, Err(error)) => Ended::from(error),
            (ended, _) => ended,
        }
    }

    /// Stores what has changed in the session, before the packets that belong to it leave.
    ///
    /// If this fails, nothing more is sent, and each later call fails too.
    async fn keep(&mut self) -> Result<(), Ended> {
        if let Some(keeper) = &mut self.keeper
            && let Err(error) = keeper.keep(&self.engine.session).await
        {
            self.engine.discard_output();
            return Err(Ended::Store(error));
        }
        for reply in self.engine.stored.drain(..) {
            // The caller may have dropped its future.
            let _ = reply.send(());
        }
        Ok(())
    }

    /// Stores the reason for the end, and drops the engine. Every caller without an answer then reads `ended`.
    fn finish(mut self, ended: &Ended) {
        // Nothing else sets this cell.
        let _ = self.ended.set(ended.clone());
        self.asked.commands.close();
        let left = std::iter::from_fn(|| self.asked.commands.try_recv().ok());
        let unsent = left.filter(|command| matches!(command, Command::Publish { .. })).count();
        self.engine.finish(ended, unsent);
    }

    /// Waits for the next event. Each branch is cancel-safe: a branch that is not chosen has done nothing.
    async fn next<S: AsyncRead + AsyncWrite>(&mut self, link: &mut Link<S>) -> Turn {
        let Self { engine, asked: Asked { commands, ends, unwanted, .. }, accepted, .. } = self;
        let Link { reader, writer, needs_flush, timer } = link;
        let (may_read, due, full) = (engine.may_read(), engine.poll_timeout(), engine.full_streams());
        let is_closing = engine.is_closing();
        let may_command = engine.may_command() && engine.output_bytes() < OUTPUT_BYTES_MAX;
        if let Some(due) = due.filter(|due| timer.is_elapsed() || *due < timer.deadline()) {
            timer.as_mut().reset(due);
        }
        let mut taken = Vec::new();
        let (input, output) = engine.buffers();
        tokio::select! {
            read = reader.read_buf(input), if may_read => Turn::Read(read),
            written = write(writer, output), if !output.is_empty() || *needs_flush => Turn::Written(written),
            _ = commands.recv_many(&mut taken, COMMANDS_PER_TURN), if may_command => Turn::Commands(taken),
            end = ends.recv(), if !is_closing => Turn::End(end),
            Some(accepted) = accepted.recv() => Turn::Accepted(accepted),
            Some(number) = unwanted.recv() => Turn::Unwanted(number),
            () = room(&full), if !full.is_empty() => Turn::Room,
            () = timer, if due.is_some() => Turn::Timeout,
        }
    }

    fn take(&mut self, turn: Turn, needs_flush: &mut bool) -> Result<(), Ended> {
        self.engine.begin_turn();
        match turn {
            Turn::Read(Ok(0)) => Err(Ended::Closed),
            // TLS reports a stream that ended without `close_notify`. This is harmless: the end of a stream without
            // DISCONNECT counts as a lost connection in any case.
            Turn::Read(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => Err(Ended::Closed),
            Turn::Read(read) => {
                read?;
                self.engine.handle_input()
            }
            Turn::Written(written) => {
                let count = written?;
                *needs_flush = count > 0;
                self.engine.handle_written(count)
            }
            Turn::Commands(commands) => {
                self.acknowledge_accepted();
                self.forget_unwanted();
                self.engine.handle_commands(commands)
            }
            Turn::End(end) => {
                // Messages that were accepted before the end are acknowledged before DISCONNECT.
                self.acknowledge_accepted();
                self.forget_unwanted();
                self.close(end)
            }
            Turn::Accepted(accepted) => {
                self.engine.handle_accepted(&accepted);
                self.acknowledge_accepted();
                Ok(())
            }
            Turn::Unwanted(number) => {
                self.engine.forget(number);
                Ok(())
            }
            Turn::Room => self.engine.handle_input(),
            Turn::Timeout => self.engine.handle_timeout(),
        }
    }

    fn acknowledge_accepted(&mut self) {
        while let Ok(accepted) = self.accepted.try_recv() {
            self.engine.handle_accepted(&accepted);
        }
    }

    fn forget_unwanted(&mut self) {
        while let Ok(number) = self.asked.unwanted.try_recv() {
            self.engine.forget(number);
        }
    }

    /// Reads the server's last packets after a write has failed.
    ///
    /// The server may have sent DISCONNECT before it stopped reading. Its reason is then the reason for the end.
    async fn hear_last<R: AsyncRead + Unpin>(&mut self, reader: &mut R) -> Option<Ended> {
        let heard = async {
            // Nobody will read the answers.
            while let () = self.engine.discard_output()
                && self.engine.may_read()
            {
                let (input, _) = self.engine.buffers();
                let said = match reader.read_buf(input).await {
                    Ok(0) => return None,
                    Ok(_) => self.engine.handle_input().err(),
                    // An inner error comes from TLS, such as an alert, and explains the end.
                    Err(error) => return error.get_ref().is_some().then(|| error.into()),
                };
                if said.is_some() {
                    return said;
                }
            }
            None
        };
        timeout(FAREWELL, heard).await.ok().flatten()
    }

    /// Writes the remaining bytes, of which DISCONNECT is the last packet, and ends the stream.
    async fn say_farewell<W: AsyncWrite + Unpin>(&mut self, writer: &mut W) -> io::Result<()> {
        let (_, output) = self.engine.buffers();
        writer.write_all(output).await?;
        writer.flush().await?;
        writer.shutdown().await
    }
}

/// Writes as many bytes as the socket accepts. With an empty output, flushes the lower layers and returns 0.
async fn write<W: AsyncWrite + Unpin>(writer: &mut W, output: &[u8]) -> io::Result<usize> {
    if output.is_empty() {
        return writer.flush().await.map(|()| 0);
    }
    match writer.write(output).await? {
        0 => Err(io::ErrorKind::WriteZero.into()),
        count => Ok(count),
    }
}

/// Waits until one of these streams has room or is closed by its reader.
async fn room(full: &[Room]) {
    poll_fn(|task| {
        let has_room = full.iter().any(|full| full.poll(task).is_ready());
        if has_room { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
