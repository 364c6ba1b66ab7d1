//! The task that owns a connection: what happens next, and in which order.

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
use crate::command::{Command, End};
use crate::engine::{Connecting, Engine};
use crate::error::{ConnectError, Ended};
use crate::message::Accepted;
use crate::options::Options;
use crate::outlet::Room;

/// So many commands are carried out before what they write is sent: few enough that the server is not kept waiting.
const COMMANDS_PER_TURN: usize = 64;

/// So many bytes are read at a time, where that many are there.
const READ_BYTES: usize = 16 << 10;

/// While so many bytes wait for the socket, no command is taken.
const OUTPUT_BYTES_MAX: usize = 256 << 10;

/// So long is waited for the last bytes to leave; longer, where the application has given more time to its end.
const FAREWELL: Duration = Duration::from_secs(1);

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
    /// The handles look here when an answer fails to come.
    ended: Arc<OnceLock<Ended>>,
}

/// What the handles ask for.
pub(crate) struct Asked {
    pub(crate) commands: mpsc::Receiver<Command>,
    pub(crate) ends: mpsc::Receiver<End>,
}

/// A connection's two ways.
struct Link<S> {
    reader: ReadHalf<S>,
    writer: WriteHalf<S>,
    /// What was written is still in the buffer of a layer below.
    needs_flush: bool,
    /// Goes off when something is due, or before: that moves on with every packet, and to set a timer costs more than
    /// to look now and then.
    timer: Pin<Box<Sleep>>,
}

/// What has happened.
enum Turn {
    Read(io::Result<usize>),
    Written(io::Result<usize>),
    Commands(Vec<Command>),
    /// Without one there is no handle any more.
    End(Option<End>),
    Accepted(Accepted),
    Room,
    Timeout,
}

impl Driver {
    /// A driver that has CONNECT to send, and tells `connected` how that ends.
    pub(crate) fn new(
        options: Options,
        asked: Asked,
        connected: Connecting,
        ended: Arc<OnceLock<Ended>>,
    ) -> Result<Self, ConnectError> {
        let (acknowledge, accepted) = mpsc::unbounded_channel();
        let engine = Engine::new(options, connected, acknowledge)?;
        Ok(Self { engine, asked, accepted, ended })
    }

    /// Drives one connection to its end.
    pub(crate) async fn run(mut self, stream: impl AsyncRead + AsyncWrite + Send) {
        let ended = self.serve(stream).await;
        self.finish(&ended);
    }

    /// Drives one connection after the other, until the application or a refusal ends it.
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

    /// Tries until there is a stream, with CONNECT to be written to it.
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

    /// Waits before an attempt, but not when the application asks for the end while it does: there may be less time than
    /// that for what is to be delivered.
    async fn pause(&mut self, delay: Duration) -> Result<(), Ended> {
        let (due, was_closing) = (Instant::now() + delay, self.engine.is_closing());
        while self.engine.is_closing() == was_closing {
            tokio::select! {
                () = sleep_until(due) => break,
                done = self.do_without() => done?,
            }
        }
        Ok(())
    }

    async fn meanwhile<T>(&mut self, attempt: impl Future<Output = T>) -> Result<T, Ended> {
        let mut attempt = std::pin::pin!(attempt);
        loop {
            tokio::select! {
                outcome = &mut attempt => return Ok(outcome),
                done = self.do_without() => done?,
            }
        }
    }

    /// Waits for something that can be done without a connection, and does it. If the future is dropped, nothing has
    /// happened.
    async fn do_without(&mut self) -> Result<(), Ended> {
        let Self { engine, asked: Asked { commands, ends }, .. } = self;
        let (full, due, mut taken) = (engine.full_streams(), engine.closing_due(), Vec::new());
        let turn = tokio::select! {
            () = room(&full), if !full.is_empty() => Turn::Room,
            _ = commands.recv_many(&mut taken, COMMANDS_PER_TURN), if !engine.has_all() => Turn::Commands(taken),
            end = ends.recv(), if !engine.is_closing() => Turn::End(end),
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => Turn::Timeout,
        };
        engine.begin_turn();
        match turn {
            Turn::Commands(commands) => engine.handle_commands(commands),
            Turn::End(end) => self.close(end),
            Turn::Timeout => Err(Ended::ByUs),
            _ => {
                engine.flush_streams();
                Ok(())
            }
        }
    }

    /// Nothing is taken any more but what is in the queue.
    fn close(&mut self, end: Option<End>) -> Result<(), Ended> {
        self.asked.commands.close();
        self.engine.close(end)
    }

    async fn serve<S: AsyncRead + AsyncWrite + Send>(&mut self, stream: S) -> Ended {
        let (reader, writer) = tokio::io::split(stream);
        let timer = Box::pin(sleep_until(Instant::now()));
        let mut link = Link { reader, writer, needs_flush: false, timer };
        let ended = loop {
            let turn = self.next(&mut link).await;
            let is_unheard = matches!(turn, Turn::Written(Err(_)));
            match self.take(turn, &mut link.needs_flush) {
                Ok(()) => {}
                Err(ended) if is_unheard => break self.hear_last(&mut link.reader).await.unwrap_or(ended),
                Err(ended) => break ended,
            }
        };
        let due = self.engine.farewell_due(&ended, FAREWELL);
        let farewell = timeout_at(due, self.say_farewell(&mut link.writer)).await;
        let farewell = farewell.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        match (ended, farewell) {
            (Ended::ByUs, Err(error)) => Ended::from(error),
            (ended, _) => ended,
        }
    }

    /// What waits for an answer hears of the end when the engine is dropped, and looks into `ended`.
    fn finish(mut self, ended: &Ended) {
        // Nobody else sets it.
        let _ = self.ended.set(ended.clone());
        self.asked.commands.close();
        let left = std::iter::from_fn(|| self.asked.commands.try_recv().ok());
        let unsent = left.filter(|command| matches!(command, Command::Publish { .. })).count();
        self.engine.finish(ended, unsent);
    }

    /// Waits for what happens next. A branch that is not taken has done nothing.
    async fn next<S: AsyncRead + AsyncWrite>(&mut self, link: &mut Link<S>) -> Turn {
        let Self { engine, asked: Asked { commands, ends }, accepted, .. } = self;
        let Link { reader, writer, needs_flush, timer } = link;
        let (may_read, due, full) = (engine.may_read(), engine.poll_timeout(), engine.full_streams());
        let is_closing = engine.is_closing();
        let may_command = engine.may_command() && engine.output_bytes() < OUTPUT_BYTES_MAX;
        if let Some(due) = due.filter(|due| timer.is_elapsed() || *due < timer.deadline()) {
            timer.as_mut().reset(due);
        }
        let mut taken = Vec::new();
        let (input, output) = engine.buffers();
        input.reserve(READ_BYTES);
        tokio::select! {
            read = reader.read_buf(input), if may_read => Turn::Read(read),
            written = write(writer, output), if !output.is_empty() || *needs_flush => Turn::Written(written),
            _ = commands.recv_many(&mut taken, COMMANDS_PER_TURN), if may_command => Turn::Commands(taken),
            end = ends.recv(), if !is_closing => Turn::End(end),
            Some(accepted) = accepted.recv() => Turn::Accepted(accepted),
            () = room(&full), if !full.is_empty() => Turn::Room,
            () = timer, if due.is_some() => Turn::Timeout,
        }
    }

    fn take(&mut self, turn: Turn, needs_flush: &mut bool) -> Result<(), Ended> {
        self.engine.begin_turn();
        match turn {
            Turn::Read(Ok(0)) => Err(Ended::Closed),
            // TLS that was closed without a word of its own. MQTT has its own: nothing can be cut off unseen.
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
                self.engine.handle_commands(commands)
            }
            Turn::End(end) => {
                // What was accepted before the end is acknowledged before it.
                self.acknowledge_accepted();
                self.close(end)
            }
            Turn::Accepted(accepted) => {
                self.engine.handle_accepted(&accepted);
                self.acknowledge_accepted();
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

    /// A server that takes nothing more may have said why before: that is why the connection is over.
    async fn hear_last<R: AsyncRead + Unpin>(&mut self, reader: &mut R) -> Option<Ended> {
        let heard = async {
            while self.engine.may_read() {
                let (input, _) = self.engine.buffers();
                input.reserve(READ_BYTES);
                let said = match reader.read_buf(input).await {
                    Ok(0) => return None,
                    Ok(_) => self.engine.handle_input().err(),
                    // TLS has words of its own.
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

    /// What is still to be written, DISCONNECT as the last, and the end of the stream.
    async fn say_farewell<W: AsyncWrite + Unpin>(&mut self, writer: &mut W) -> io::Result<()> {
        let (_, output) = self.engine.buffers();
        writer.write_all(output).await?;
        writer.flush().await?;
        writer.shutdown().await
    }
}

/// Writes what there is; if there is nothing, what a layer below has kept, and then it is 0.
async fn write<W: AsyncWrite + Unpin>(writer: &mut W, output: &[u8]) -> io::Result<usize> {
    if output.is_empty() {
        return writer.flush().await.map(|()| 0);
    }
    match writer.write(output).await? {
        0 => Err(io::ErrorKind::WriteZero.into()),
        count => Ok(count),
    }
}

/// Until one of the streams that were full is not, or nobody reads it any more.
async fn room(full: &[Room]) {
    poll_fn(|task| {
        let has_room = full.iter().any(|full| full.poll(task).is_ready());
        if has_room { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
