//! A row of the table: a comparison, and the parts that are not compared.

use crate::recorder::Conversation;

/// A comparison of two programs.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    pub(crate) tool: &'static str,
    pub(crate) arguments: &'static str,
    pub(crate) server: Server,
    /// Whether the program gets the broker's address. Otherwise the row names it itself, or fails before it
    /// connects.
    pub(crate) is_told: bool,
    /// Commands of Mosquitto's programs that run first.
    pub(crate) before: &'static [&'static str],
    /// Text for standard input.
    pub(crate) input: &'static str,
    /// Content of the file of defaults.
    pub(crate) defaults: &'static str,
    /// Number of messages that the program publishes below `$T`. The messages are compared too.
    pub(crate) heard: usize,
    pub(crate) error: Standard,
    /// Whether exit codes 1 and 8 count as equal.
    pub(crate) lacks_tls: bool,
    pub(crate) normal: Normal,
    pub(crate) said: Said,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Server {
    Pondhawk,
    /// Mosquitto, for features that Pondhawk does not have.
    Mosquitto,
    /// The port of Mosquitto that requires a password.
    Private,
    /// The port of Mosquitto with an access list.
    Guarded,
}

/// Comparison of standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standard {
    /// The first lines must be equal.
    Same,
    /// Our program says more, for this reason. Either both programs write something, or neither does.
    Ours(&'static str),
}

/// Comparison of the packets to the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Said {
    /// All packets, in order.
    InOrder,
    /// All packets except acknowledgements and DISCONNECT, for this reason.
    Asked(&'static str),
    /// All requests, with the topic in place of each topic alias, for this reason.
    Unaliased(&'static str),
    /// All packets without the client identifier, for this reason.
    Unnamed(&'static str),
}

impl Said {
    pub(crate) fn of(self, conversations: &[Conversation]) -> Vec<String> {
        let lines = |conversation: &Conversation| {
            [std::slice::from_ref(&conversation.way), &conversation.packets].concat()
        };
        let lines = conversations.iter().flat_map(lines);
        let lines = lines.map(|line| without_default(&without_process_id(&line)));
        match self {
            Self::InOrder => lines.collect(),
            Self::Asked(_) => {
                let is_asked =
                    |line: &String| !["Pub", "Disconnect("].iter().any(|begin| line.starts_with(begin));
                lines.filter(|line| is_asked(line) || line.starts_with("Publish(")).collect()
            }
            Self::Unaliased(_) => {
                let mut name = String::new();
                lines.map(|line| without_alias(&line, &mut name)).collect()
            }
            Self::Unnamed(_) => lines.map(|line| without_name(&line)).collect(),
        }
    }
}

/// Returns the text before `begin`, the text between `begin` and `end`, and the text after `end`.
fn around<'a>(line: &'a str, begin: &str, end: &str) -> Option<(&'a str, &'a str, &'a str)> {
    let (before, rest) = line.split_once(begin)?;
    let (between, behind) = rest.split_once(end)?;
    Some((before, between, behind))
}

/// Removes digits at the end of a client identifier, which may be a process id.
fn without_process_id(line: &str) -> String {
    let Some((before, name, behind)) = around(line, "client_id: \"", "\"") else { return line.to_owned() };
    let name = name.trim_end_matches(|character: char| character.is_ascii_digit());
    format!("{before}client_id: \"{name}\"{behind}")
}

/// Removes the Maximum Packet Size that our programs have by default, and Mosquitto's programs do not.
fn without_default(line: &str) -> String {
    line.replace(" maximum_packet_bytes: Some(16777216),", "")
}

fn without_name(line: &str) -> String {
    around(line, "client_id: \"", "\"")
        .map_or(line.to_owned(), |(before, _, behind)| format!("{before}{behind}"))
}

/// Replaces a topic alias by its topic name. `name` is the name of the last alias.
fn without_alias(line: &str, name: &mut String) -> String {
    if let Some((before, with_alias, behind)) = around(line, "NameWithAlias(", ")") {
        *name = with_alias.split(", ").next().unwrap_or_default().to_owned();
        return format!("{before}Name({name}{behind}");
    }
    match around(line, "Alias(TopicAlias(", "))") {
        Some((before, _, behind)) => format!("{before}Name({name}){behind}"),
        None => line.to_owned(),
    }
}

#[test]
fn only_what_is_excepted_is_left_out() {
    let packets = [
        "Connect { client_id: \"me7\", b }",
        "Publish(NameWithAlias(\"a\", TopicAlias(1)), x)",
        "Publish(Alias(TopicAlias(1)), y)",
        "PubAck(1)",
        "Disconnect(0)",
    ];
    let packets = packets.map(str::to_owned).to_vec();
    let said = [Conversation { way: "from here".to_owned(), packets }];
    let lines = |said_as: Said| said_as.of(&said).join("|");
    let rest = "Publish(NameWithAlias(\"a\", TopicAlias(1)), x)|Publish(Alias(TopicAlias(1)), y)";
    assert_eq!(lines(Said::Asked("")), format!("from here|Connect {{ client_id: \"me\", b }}|{rest}"));
    assert_eq!(
        lines(Said::Unnamed("")),
        format!("from here|Connect {{ , b }}|{rest}|PubAck(1)|Disconnect(0)")
    );
    let unaliased = "Publish(Name(\"a\"), x)|Publish(Name(\"a\"), y)|PubAck(1)|Disconnect(0)";
    assert_eq!(
        lines(Said::Unaliased("")),
        format!("from here|Connect {{ client_id: \"me\", b }}|{unaliased}")
    );
}

/// The part of the output that depends on the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Normal {
    Nothing,
    /// The time in JSON.
    Json,
    /// All digits in the output.
    Digits,
}

impl Normal {
    pub(crate) fn of(self, output: &str) -> String {
        // mosquitto_pub prints its help if arguments are missing. Our program says where to find help.
        if output.starts_with("mosquitto_pub is a") {
            return String::new();
        }
        match self {
            Self::Nothing => output.to_owned(),
            Self::Digits => output.replace(|character: char| character.is_ascii_digit(), "9"),
            Self::Json => {
                let mut rest = output;
                let mut normal = String::new();
                while let Some((before, behind)) = rest.split_once("\"tst\":") {
                    normal.push_str(before);
                    rest =
                        behind.trim_start().get(2 + "2026-11-22T10:37:31.316078Z+0000".len()..).unwrap_or("");
                }
                normal + rest
            }
        }
    }
}

const GOODBYE: &str = "mosquitto_rr closes the connection without a word";
pub(crate) const WHERE: &str = "the layer that failed is named, and why";
const ROW: Row = Row {
    tool: "",
    arguments: "",
    server: Server::Pondhawk,
    is_told: true,
    before: &[],
    input: "",
    defaults: "",
    heard: 0,
    error: Standard::Same,
    lacks_tls: false,
    normal: Normal::Nothing,
    said: Said::InOrder,
};

/// A row that publishes. `heard` messages arrive.
pub(crate) const fn publish(heard: usize, arguments: &'static str) -> Row {
    Row { tool: "pub", arguments, heard, ..ROW }
}

/// A row that publishes standard input.
pub(crate) const fn publish_input(heard: usize, arguments: &'static str, input: &'static str) -> Row {
    Row { tool: "pub", arguments, heard, input, ..ROW }
}

/// A row that subscribes after these programs have run.
pub(crate) const fn subscribe(before: &'static [&'static str], arguments: &'static str) -> Row {
    Row { tool: "sub", arguments, before, ..ROW }
}

/// A row that sends a request.
pub(crate) const fn request(arguments: &'static str) -> Row {
    asking(GOODBYE, Row { tool: "rr", arguments, ..ROW })
}

/// A row whose arguments are refused.
pub(crate) const fn refused(tool: &'static str, arguments: &'static str) -> Row {
    untold(Row { tool, arguments, ..ROW })
}

/// Changes a row so that its own arguments name the broker.
pub(crate) const fn untold(row: Row) -> Row {
    Row { is_told: false, ..row }
}

/// Changes a row so that it uses the port of Mosquitto that requires a password.
pub(crate) const fn in_private(row: Row) -> Row {
    Row { server: Server::Private, ..row }
}

/// Changes a row so that it uses the port of Mosquitto with an access list.
pub(crate) const fn guarded(row: Row) -> Row {
    Row { server: Server::Guarded, ..row }
}

/// Changes a row so that it uses Mosquitto.
pub(crate) const fn with_mosquitto(row: Row) -> Row {
    Row { server: Server::Mosquitto, ..row }
}

/// Changes a row so that our program may write more to standard error, for this reason.
pub(crate) const fn better(why: &'static str, row: Row) -> Row {
    Row { error: Standard::Ours(why), ..row }
}

/// Changes a row so that acknowledgements and DISCONNECT are not compared, for this reason.
pub(crate) const fn asking(why: &'static str, row: Row) -> Row {
    Row { said: Said::Asked(why), ..row }
}

/// Changes a row so that topic aliases are compared by their topics.
pub(crate) const fn unaliased(row: Row) -> Row {
    Row { said: Said::Unaliased("the client library gives aliases by itself, where that saves bytes"), ..row }
}

/// Changes a row that gets no TLS connection: our program exits with 8, and Mosquitto's program with 8 or 1.
pub(crate) const fn without_tls(row: Row) -> Row {
    better(WHERE, Row { lacks_tls: true, ..row })
}

pub(crate) const fn in_json(row: Row) -> Row {
    Row { normal: Normal::Json, ..row }
}

pub(crate) const fn without_digits(row: Row) -> Row {
    Row { normal: Normal::Digits, ..row }
}
