//! Prints messages to standard output.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;

use client::Message;

use crate::clock::Moment;
use crate::format::NotJson;
use crate::json::{Json, Style};
use crate::received::{Payload, Received};
use crate::say::{allows_colour, complain, write_escaped};
use crate::settings::{Output, Settings};
use crate::stdout::output;

/// Size from which messages are handed over, also while others are ready.
const BATCH_BYTES: usize = 64 << 10;

/// Size of a message without topic, payload and properties.
const MESSAGE_BYTES: usize = 64;

/// Collects messages to print. The caller calls [`Printer::flush`] when no further message is ready.
///
/// The thread of standard output makes the text of a message while it writes. The text can be much longer than the
/// message, and is never in memory as a whole.
pub(crate) struct Printer {
    layout: Arc<Layout>,
    messages: Vec<(Message, Moment)>,
    bytes: usize,
}

/// The form in which messages are printed.
#[derive(Debug)]
struct Layout {
    output: Output,
    /// Messages go to a terminal. Control characters in them are escaped.
    is_terminal: bool,
    /// Set if messages go to a terminal, which shows JSON on several lines.
    terminal: Option<Terminal>,
    is_quiet: bool,
}

#[derive(Debug, Clone, Copy)]
struct Terminal {
    in_colour: bool,
}

/// Terminal sequence for bold text.
const TOPIC: &str = "\x1b[1m";
const PLAIN: &str = "\x1b[0m";

impl Printer {
    pub(crate) fn new(settings: &Settings) -> Self {
        let output = settings.incoming.output.clone();
        let is_plain = output.template.is_some() || output.json || output.without_end_of_line;
        let is_terminal = io::stdout().is_terminal();
        let terminal = Terminal { in_colour: allows_colour() };
        let terminal = (is_terminal && !is_plain).then_some(terminal);
        let layout = Layout { output, is_terminal, terminal, is_quiet: settings.quiet };
        Self { layout: Arc::new(layout), messages: Vec::new(), bytes: 0 }
    }

    /// Adds a message to what the next flush prints.
    pub(crate) fn print(&mut self, message: &Message) {
        self.bytes += MESSAGE_BYTES + message.topic().as_str().len() + message.payload().len();
        self.messages.push((message.clone(), Moment::now()));
    }

    /// Hands over a large batch. A caller that prints many messages calls this after each.
    pub(crate) async fn flush_batch(&mut self) -> io::Result<()> {
        if self.bytes >= BATCH_BYTES { self.flush().await } else { Ok(()) }
    }

    /// Hands over the messages, to be written. Waits while standard output is blocked.
    pub(crate) async fn flush(&mut self) -> io::Result<()> {
        if self.messages.is_empty() {
            return Ok(());
        }
        let share = output().share(self.bytes).await?;
        let (messages, layout) = (std::mem::take(&mut self.messages), Arc::clone(&self.layout));
        self.bytes = 0;
        output()
            .print(share, move |to| messages.into_iter().try_for_each(|message| layout.print(message, to)))
    }

    /// Waits until all messages are written.
    pub(crate) async fn finish(&mut self) -> io::Result<()> {
        self.flush().await?;
        output().finish().await
    }
}

impl Layout {
    /// Prints a message. A payload that should be JSON and is not is left out and reported.
    fn print(&self, (message, at): (Message, Moment), to: &mut dyn Write) -> io::Result<()> {
        let topic = message.topic();
        let outcome = self.write(&Received::new(&message, topic.as_str(), at), to)?;
        if outcome.is_err() && !self.is_quiet {
            complain(format_args!("Error: Message payload is not valid JSON on topic {topic}."));
        }
        Ok(())
    }

    fn write(&self, message: &Received<'_>, mut to: &mut dyn Write) -> io::Result<Result<(), NotJson>> {
        let mut outcome = Ok(());
        if let Some(template) = &self.output.template {
            outcome = template.write(message, self.output.pretty, self.is_terminal, &mut to)?;
        } else if self.output.json {
            if let Some(json) = message.json(Payload::Anything) {
                let style = if self.output.pretty { Style::Tabs } else { Style::Exact };
                if self.is_terminal {
                    let mut text = Vec::new();
                    json.write(style, &mut text)?;
                    write_escaped(&text, &mut to)?;
                } else {
                    json.write(style, &mut to)?;
                }
            }
        } else if self.output.verbose {
            self.write_topic(message.topic, to)?;
            let payload = if message.payload.is_empty() { b"(null)" } else { message.payload };
            self.write_payload(payload, to)?;
        } else if message.payload.is_empty() {
            return Ok(Ok(()));
        } else {
            self.write_payload(message.payload, to)?;
        }
        if !self.output.without_end_of_line {
            to.write_all(b"\n")?;
        }
        Ok(outcome)
    }

    fn write_topic(&self, topic: &str, to: &mut dyn Write) -> io::Result<()> {
        if self.terminal.is_some_and(|terminal| terminal.in_colour) {
            write!(to, "{TOPIC}{}{PLAIN} ", wire::Shown(topic))
        } else if self.is_terminal {
            write!(to, "{} ", wire::Shown(topic))
        } else {
            write!(to, "{topic} ")
        }
    }

    fn write_payload(&self, payload: &[u8], mut to: &mut dyn Write) -> io::Result<()> {
        let json = self.terminal.and_then(|terminal| {
            Json::parse(payload).filter(Json::is_container).map(|json| (terminal, json))
        });
        match json {
            Some((terminal, json)) => {
                json.escaped().write(Style::Terminal { in_colour: terminal.in_colour }, &mut to)
            }
            None if self.is_terminal => write_escaped(payload, &mut to),
            None => to.write_all(payload),
        }
    }
}
