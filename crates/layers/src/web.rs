//! The top layer: MQTT, or MQTT over WebSocket, as the first byte says.

use std::io::{self, IoSlice};
use std::mem;
use std::sync::Arc;

use stream::{Received, Stream};

use crate::Rejected;
use crate::layered::{Protocol, Stack};
use crate::prefixed::Prefixed;
use crate::websocket::WebSocket;

/// A stream whose first byte chooses what is spoken on it.
#[derive(Debug)]
pub(crate) enum Web<S> {
    /// The first bytes, which do not yet say what is spoken.
    Fresh(S, Arc<Stack>, Vec<u8>),
    Mqtt(Prefixed<S>),
    WebSocket(WebSocket<Prefixed<S>>),
    /// In the middle of a change; never seen from outside.
    Changing,
}

impl<S: Stream> Web<S> {
    /// The stream below this layer.
    pub(crate) fn below(&mut self) -> &mut S {
        match self {
            Self::Fresh(below, ..) => below,
            Self::Mqtt(prefixed) => prefixed.below(),
            Self::WebSocket(websocket) => websocket.below().below(),
            Self::Changing => unreachable!("a change ends before the call returns"),
        }
    }

    fn as_stream(&self) -> &dyn Stream {
        match self {
            Self::Fresh(below, ..) => below,
            Self::Mqtt(prefixed) => prefixed,
            Self::WebSocket(websocket) => websocket,
            Self::Changing => unreachable!("a change ends before the call returns"),
        }
    }

    /// Decides by the first bytes.
    fn choose(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        let Self::Fresh(below, stack, first) = mem::replace(self, Self::Changing) else {
            unreachable!("only a fresh stream chooses")
        };
        let http = Http::of(&first);
        if http == Http::Perhaps {
            *self = Self::Fresh(below, stack, first);
            return Err(io::ErrorKind::Interrupted.into());
        }
        let refused = match (http == Http::Yes, stack.protocol) {
            (true, Protocol::Mqtt) => "an HTTP request, and this listener speaks MQTT only",
            (false, Protocol::WebSocket) => "no HTTP request, and this listener speaks WebSocket only",
            (true, Protocol::Auto | Protocol::WebSocket) => {
                let below = Prefixed::new(first, below);
                *self = Self::WebSocket(WebSocket::new(below, Arc::clone(&stack.websocket)));
                return self.read(buffer);
            }
            (false, Protocol::Auto | Protocol::Mqtt) => {
                *self = Self::Mqtt(Prefixed::new(first, below));
                return self.read(buffer);
            }
        };
        *self = Self::Mqtt(Prefixed::new(Vec::new(), below));
        Err(Rejected::Protocol(refused).into())
    }
}

/// The methods of RFC 9110 section 9.1 and RFC 5789, as a request begins with them.
const METHODS: [&[u8]; 9] =
    [b"GET ", b"HEAD ", b"POST ", b"PUT ", b"DELETE ", b"CONNECT ", b"OPTIONS ", b"TRACE ", b"PATCH "];

/// Whether bytes begin a request of HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Http {
    Yes,
    No,
    /// More bytes say it.
    Perhaps,
}

impl Http {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        if METHODS.iter().any(|method| bytes.starts_with(method)) {
            Self::Yes
        } else if METHODS.iter().any(|method| method.starts_with(bytes)) {
            Self::Perhaps
        } else {
            Self::No
        }
    }
}

impl<S: Stream> Stream for Web<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        match self {
            Self::Mqtt(below) => below.read(buffer),
            Self::WebSocket(websocket) => websocket.read(buffer),
            Self::Fresh(below, _, first) => {
                let received = below.read(buffer)?;
                if received.bytes == 0 {
                    return Ok(received);
                }
                first.extend_from_slice(&buffer[..received.bytes]);
                self.choose(buffer)
            }
            Self::Changing => unreachable!("a change ends before the call returns"),
        }
    }

    fn has_arrived(&mut self) -> bool {
        match self {
            Self::WebSocket(websocket) => websocket.has_arrived(),
            _ => self.below().has_arrived(),
        }
    }

    fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::WebSocket(websocket) => websocket.write(pieces),
            _ => self.below().write(pieces),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::WebSocket(websocket) => websocket.flush(),
            _ => self.below().flush(),
        }
    }

    fn wants_write(&self) -> bool {
        self.as_stream().wants_write()
    }

    fn held_bytes(&self) -> usize {
        self.as_stream().held_bytes()
    }

    fn shut_down_write(&mut self) {
        match self {
            Self::WebSocket(websocket) => websocket.shut_down_write(),
            _ => self.below().shut_down_write(),
        }
    }
}
