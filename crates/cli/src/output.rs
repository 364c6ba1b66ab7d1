//! Prints messages to standard output.

use std::io::{self, BufWriter, IsTerminal, Stdout, Write};

use crate::format::NotJson;
use crate::json::{Json, Style};
use crate::received::{Payload, Received};
use crate::settings::Output;

/// Prints messages in batches. The caller calls [`Printer::flush`] when no further message is ready.
pub(crate) struct Printer {
    output: Output,
    to: BufWriter<Stdout>,
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
        let wants_none = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let terminal = Terminal { in_colour: !wants_none };
        let terminal = (stdout.is_terminal() && !is_plain).then_some(terminal);
        Self { output: output.clone(), to: BufWriter::new(stdout), terminal }
    }

    /// Prints a message. A payload that should be JSON and is not is left out and reported.
    pub(crate) fn print(&mut self, message: &Received<'_>) -> io::Result<Result<(), NotJson>> {
        let mut outcome = Ok(());
        if let Some(template) = &self.output.template {
            outcome = template.write(message, self.output.pretty, &mut self.to)?;
        } else if self.output.json {
            if let Some(json) = message.json(Payload::Anything) {
                json.write(if self.output.pretty { Style::Tabs } else { Style::Exact }, &mut self.to)?;
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
            write!(self.to, "{TOPIC}{topic}{PLAIN} ")
        } else {
            write!(self.to, "{topic} ")
        }
    }

    fn print_payload(&mut self, payload: &[u8]) -> io::Result<()> {
        let json = self.terminal.and_then(|terminal| {
            Json::parse(payload).filter(Json::is_container).map(|json| (terminal, json))
        });
        match json {
            Some((terminal, json)) => {
                json.write(Style::Terminal { in_colour: terminal.in_colour }, &mut self.to)
            }
            None => self.to.write_all(payload),
        }
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}
