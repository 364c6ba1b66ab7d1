//! Prints messages to standard output.

use std::io::{self, IsTerminal, Write};

use crate::format::NotJson;
use crate::json::{Json, Style};
use crate::received::{Payload, Received};
use crate::say::{allows_colour, escaped_bytes};
use crate::settings::Output;
use crate::stdout::output;

/// Size from which printed messages are handed over, also while others are ready.
const BATCH_BYTES: usize = 64 << 10;

/// Prints messages in batches. The caller calls [`Printer::flush`] when no further message is ready.
pub(crate) struct Printer {
    output: Output,
    to: Vec<u8>,
    /// Messages go to a terminal. Control characters in them are escaped.
    is_terminal: bool,
    /// Set if messages go to a terminal, which shows JSON on several lines.
    terminal: Option<Terminal>,
}

#[derive(Debug, Clone, Copy)]
struct Terminal {
    in_colour: bool,
}

/// Terminal sequence for bold text.
const TOPIC: &str = "\x1b[1m";
const PLAIN: &str = "\x1b[0m";

impl Printer {
    pub(crate) fn new(output: &Output) -> Self {
        let stdout = io::stdout();
        let is_plain = output.template.is_some() || output.json || output.without_end_of_line;
        let is_terminal = stdout.is_terminal();
        let terminal = Terminal { in_colour: allows_colour() };
        let terminal = (is_terminal && !is_plain).then_some(terminal);
        Self { output: output.clone(), to: Vec::new(), is_terminal, terminal }
    }

    /// Prints a message. A payload that should be JSON and is not is left out and reported.
    pub(crate) fn print(&mut self, message: &Received<'_>) -> io::Result<Result<(), NotJson>> {
        let mut outcome = Ok(());
        if let Some(template) = &self.output.template {
            outcome = template.write(message, self.output.pretty, self.is_terminal, &mut self.to)?;
        } else if self.output.json {
            if let Some(json) = message.json(Payload::Anything) {
                let style = if self.output.pretty { Style::Tabs } else { Style::Exact };
                let mut text = Vec::new();
                json.write(style, &mut text)?;
                self.print_bytes(&text);
            }
        } else if self.output.verbose {
            self.print_topic(message.topic)?;
            let payload = if message.payload.is_empty() { b"(null)" } else { message.payload };
            self.print_payload(payload)?;
        } else if message.payload.is_empty() {
            return Ok(Ok(()));
        } else {
            self.print_payload(message.payload)?;
        }
        if !self.output.without_end_of_line {
            self.to.write_all(b"\n")?;
        }
        Ok(outcome)
    }

    fn print_topic(&mut self, topic: &str) -> io::Result<()> {
        if self.terminal.is_some_and(|terminal| terminal.in_colour) {
            write!(self.to, "{TOPIC}{}{PLAIN} ", wire::Shown(topic))
        } else if self.is_terminal {
            write!(self.to, "{} ", wire::Shown(topic))
        } else {
            write!(self.to, "{topic} ")
        }
    }

    fn print_bytes(&mut self, bytes: &[u8]) {
        if self.is_terminal {
            self.to.extend_from_slice(escaped_bytes(bytes).as_bytes());
        } else {
            self.to.extend_from_slice(bytes);
        }
    }

    fn print_payload(&mut self, payload: &[u8]) -> io::Result<()> {
        let json = self.terminal.and_then(|terminal| {
            Json::parse(payload).filter(Json::is_container).map(|json| (terminal, json))
        });
        match json {
            Some((terminal, json)) => {
                json.escaped().write(Style::Terminal { in_colour: terminal.in_colour }, &mut self.to)
            }
            None => {
                self.print_bytes(payload);
                Ok(())
            }
        }
    }

    /// Hands over a large batch. A caller that prints many messages calls this after each.
    pub(crate) async fn flush_batch(&mut self) -> io::Result<()> {
        if self.to.len() >= BATCH_BYTES { self.flush().await } else { Ok(()) }
    }

    /// Hands over the printed messages, to be written. Waits while standard output is blocked.
    pub(crate) async fn flush(&mut self) -> io::Result<()> {
        if self.to.is_empty() { Ok(()) } else { output().write(&mut self.to).await }
    }

    /// Waits until all messages are written.
    pub(crate) async fn finish(&mut self) -> io::Result<()> {
        self.flush().await?;
        output().finish().await
    }
}
