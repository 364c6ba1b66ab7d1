//! Commands of administrators, and their answers.

use serde_json::{Value, json};

use super::json::{field, flag, list, number, object, text};
use super::{DynamicSecurity, NO_PRIORITY, Ranked, insert};
use crate::{HashError, PasswordHash};

/// Makes the hash of a new password.
pub type NewPassword<'a> = dyn FnMut(&[u8]) -> Result<PasswordHash, HashError> + 'a;

/// The outcome of a message with commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Controlled {
    /// The message with the answers, in JSON.
    pub answer: String,
    /// Whether something has changed, so that the file is to be written.
    pub is_changed: bool,
    /// The commands that were carried out or refused, each with the reason why it was refused.
    pub commands: Vec<(String, Option<String>)>,
}

/// The outcome of one command.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The command has changed something.
    Done,
    /// Nothing has changed, and this is the answer.
    Data(Value),
}

/// The reason why a command is refused, in the words of Mosquitto where it has some.
pub(super) type Refusal = &'static str;
pub(super) type Answered = Result<Outcome, Refusal>;

/// The answers to questions in one message may have this many bytes together. The last of them may go beyond that. Further
/// questions are refused.
pub const ANSWER_BYTES_MAX: usize = 8 << 20;

/// Maximum number of commands in a message. Further ones are not carried out, and have one answer together.
pub const COMMANDS_MAX: usize = 10_000;

const TOO_MANY: Refusal =
    "Too many commands in one message: this one and those behind it are not carried out";
pub(super) const INTERNAL: Refusal = "Internal error";
const TOO_LONG: Refusal =
    "The answers are too long: ask for parts with count and offset, in several messages";
const NO_COMMAND: &str = "Unknown command";

impl DynamicSecurity {
    /// Carries out the commands in a message, each on its own: a command that is refused changes nothing, and the next one is
    /// carried out.
    pub fn control(&mut self, payload: &[u8], hash: &mut NewPassword<'_>) -> Controlled {
        let mut answers = Answers::default();
        match serde_json::from_slice::<Value>(payload) {
            Err(_) => answers.refuse(NO_COMMAND, "Payload not valid JSON", None),
            Ok(tree) => match list(&tree, "commands") {
                None => answers.refuse(NO_COMMAND, "Invalid/missing commands", None),
                Some(commands) => self.run_all(commands, hash, &mut answers),
            },
        }
        self.compile();
        answers.end()
    }

    /// Answers a question: one of the commands that begin with `get` or `list`, with its other fields.
    ///
    /// # Errors
    /// There is no such question, or what it asks for. The text is that of Mosquitto.
    pub fn answer(&self, command: &str, fields: &Value) -> Result<Value, &'static str> {
        let answered = match command {
            "getClient" => self.tell_client(fields),
            "listClients" => self.list_clients(fields),
            "getGroup" => self.tell_group(fields),
            "listGroups" => self.list_groups(fields),
            "getRole" => self.tell_role(fields),
            "listRoles" => self.list_roles(fields),
            _ => Err(NO_COMMAND),
        };
        match answered? {
            Outcome::Data(data) => Ok(data),
            Outcome::Done => Err(NO_COMMAND),
        }
    }

    /// Refuses all commands of a message for this reason.
    #[must_use]
    pub fn refuse_control(payload: &[u8], reason: &str) -> Controlled {
        let mut answers = Answers::default();
        let tree = serde_json::from_slice::<Value>(payload).unwrap_or_default();
        for command in list(&tree, "commands").unwrap_or_default().iter().take(COMMANDS_MAX) {
            let name = text(command, "command").ok().flatten().unwrap_or(NO_COMMAND);
            let correlation = text(command, "correlationData").ok().flatten();
            answers.refuse(name, reason, correlation);
        }
        answers.end()
    }

    fn run_all(&mut self, commands: &[Value], hash: &mut NewPassword<'_>, answers: &mut Answers) {
        for (number, command) in commands.iter().enumerate() {
            if number == COMMANDS_MAX {
                return answers.refuse(NO_COMMAND, TOO_MANY, None);
            }
            if !command.is_object() {
                answers.refuse(NO_COMMAND, "Command not an object", None);
                continue;
            }
            let Ok(Some(name)) = text(command, "command") else {
                answers.refuse(NO_COMMAND, "Missing command", None);
                continue;
            };
            let Ok(correlation) = text(command, "correlationData") else {
                // Mosquitto leaves the other commands out too.
                return answers.refuse(name, "Invalid correlationData data type.", None);
            };
            let known = COMMANDS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
            match known {
                Some((name, _)) if answers.data_bytes > ANSWER_BYTES_MAX && is_question(name) => {
                    answers.refuse(name, TOO_LONG, correlation);
                }
                None => answers.refuse(name, NO_COMMAND, correlation),
                Some((name, run)) => match run(self, command, hash) {
                    Ok(Outcome::Done) => answers.done(name, correlation),
                    Ok(Outcome::Data(data)) => answers.tell(name, data, correlation),
                    Err(reason) => answers.refuse(name, reason, correlation),
                },
            }
        }
    }

    fn set_default_access(&mut self, command: &Value) -> Answered {
        for action in list(command, "acls").ok_or("Missing/invalid actions array")? {
            let (Ok(Some(kind)), Some(is_allowed)) = (text(action, "acltype"), flag(action, "allow")) else {
                continue;
            };
            let defaults = &mut self.defaults;
            let all = [
                ("publishClientSend", &mut defaults.send),
                ("publishClientReceive", &mut defaults.receive),
                ("subscribe", &mut defaults.subscribe),
                ("unsubscribe", &mut defaults.unsubscribe),
            ];
            for (_, access) in all.into_iter().filter(|(name, _)| name.eq_ignore_ascii_case(kind)) {
                *access = is_allowed;
            }
        }
        Ok(Outcome::Done)
    }

    fn default_access(&self) -> Answered {
        let defaults = self.defaults;
        Ok(Outcome::Data(json!({ "acls": [
            { "acltype": "publishClientSend", "allow": defaults.send },
            { "acltype": "publishClientReceive", "allow": defaults.receive },
            { "acltype": "subscribe", "allow": defaults.subscribe },
            { "acltype": "unsubscribe", "allow": defaults.unsubscribe },
        ] })))
    }

    /// The roles that a command names; `None` if it has no such list.
    pub(super) fn roles_of(&self, command: &Value) -> Result<Option<Vec<Ranked>>, Refusal> {
        const INVALID: Refusal = "'roles' not an array or missing/invalid rolename";
        let Some(roles) = field(command, "roles") else { return Ok(None) };
        let mut ranked = Vec::new();
        for role in roles.as_array().ok_or(INVALID)? {
            let name = text(role, "rolename").ok().flatten().ok_or(INVALID)?;
            if !self.roles.contains_key(name) {
                return Err("Role not found");
            }
            insert(&mut ranked, name, number(role, "priority", NO_PRIORITY));
        }
        Ok(Some(ranked))
    }
}

type Run = fn(&mut DynamicSecurity, &Value, &mut NewPassword<'_>) -> Answered;

/// All commands of Mosquitto 2.0.
const COMMANDS: [(&str, Run); 32] = [
    ("setDefaultACLAccess", |all, command, _| all.set_default_access(command)),
    ("getDefaultACLAccess", |all, _, _| all.default_access()),
    ("createClient", |all, command, hash| all.create_client(command, hash)),
    ("deleteClient", |all, command, _| all.delete_client(command)),
    ("getClient", |all, command, _| all.tell_client(command)),
    ("listClients", |all, command, _| all.list_clients(command)),
    ("modifyClient", |all, command, hash| all.modify_client(command, hash)),
    ("setClientPassword", |all, command, hash| all.set_client_password(command, hash)),
    ("setClientId", |all, command, _| all.set_client_id(command)),
    ("addClientRole", |all, command, _| all.add_client_role(command)),
    ("removeClientRole", |all, command, _| all.remove_client_role(command)),
    ("enableClient", |all, command, _| all.enable_client(command, true)),
    ("disableClient", |all, command, _| all.enable_client(command, false)),
    ("addGroupClient", |all, command, _| all.add_group_client(command)),
    ("createGroup", |all, command, _| all.create_group(command)),
    ("deleteGroup", |all, command, _| all.delete_group(command)),
    ("getGroup", |all, command, _| all.tell_group(command)),
    ("listGroups", |all, command, _| all.list_groups(command)),
    ("modifyGroup", |all, command, _| all.modify_group(command)),
    ("removeGroupClient", |all, command, _| all.remove_group_client(command)),
    ("addGroupRole", |all, command, _| all.add_group_role(command)),
    ("removeGroupRole", |all, command, _| all.remove_group_role(command)),
    ("setAnonymousGroup", |all, command, _| all.set_anonymous_group(command)),
    ("getAnonymousGroup", |all, _, _| all.tell_anonymous_group()),
    ("createRole", |all, command, _| all.create_role(command)),
    ("getRole", |all, command, _| all.tell_role(command)),
    ("listRoles", |all, command, _| all.list_roles(command)),
    ("modifyRole", |all, command, _| all.modify_role(command)),
    ("deleteRole", |all, command, _| all.delete_role(command)),
    ("addRoleACL", |all, command, _| all.add_role_acl(command)),
    ("removeRoleACL", |all, command, _| all.remove_role_acl(command)),
    // Mosquitto 2.1. The broker has no other plugins of which an administrator could ask.
    ("getDetails", |all, _, _| {
        Ok(Outcome::Data(
            json!({ "clientCount": all.clients.len(), "groupCount": all.groups.len(), "roleCount": all.roles.len() }),
        ))
    }),
];

fn is_question(command: &str) -> bool {
    command.starts_with("get") || command.starts_with("list")
}

/// Answers in the order of their commands.
#[derive(Default)]
struct Answers {
    responses: Vec<Value>,
    /// Bytes of the answers to questions.
    data_bytes: usize,
    commands: Vec<(String, Option<String>)>,
    is_changed: bool,
}

impl Answers {
    fn refuse(&mut self, command: &str, reason: &str, correlation: Option<&str>) {
        self.push(command, [("error", Some(reason.into()))], correlation);
        self.commands.push((command.to_owned(), Some(reason.to_owned())));
    }

    fn done(&mut self, command: &str, correlation: Option<&str>) {
        self.push(command, [], correlation);
        self.commands.push((command.to_owned(), None));
        self.is_changed = true;
    }

    fn tell(&mut self, command: &str, data: Value, correlation: Option<&str>) {
        self.data_bytes += length(&data);
        self.push(command, [("data", Some(data))], correlation);
        self.commands.push((command.to_owned(), None));
    }

    fn push<const N: usize>(
        &mut self,
        command: &str,
        fields: [(&str, Option<Value>); N],
        correlation: Option<&str>,
    ) {
        let mut response = object(fields);
        if let Some(response) = response.as_object_mut() {
            response.insert("command".to_owned(), command.into());
            response.extend(correlation.map(|data| ("correlationData".to_owned(), data.into())));
        }
        self.responses.push(response);
    }

    fn end(self) -> Controlled {
        let answer = json!({ "responses": self.responses }).to_string();
        Controlled { answer, is_changed: self.is_changed, commands: self.commands }
    }
}

/// The length of a value as text, in bytes.
fn length(value: &Value) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    serde_json::to_writer(&mut count, value).map_or(usize::MAX, |()| count.0)
}

/// A name that a command has to have. It has no control characters, and no characters that Unicode reserves.
pub(super) fn required<'a>(
    command: &'a Value,
    field: &str,
    (missing, invalid): (Refusal, Refusal),
) -> Result<&'a str, Refusal> {
    let name = text(command, field).ok().flatten().ok_or(missing)?;
    if is_plain(name) { Ok(name) } else { Err(invalid) }
}

/// Whether a text has no control characters and no characters that Unicode reserves.
pub(super) fn is_plain(text: &str) -> bool {
    let is_reserved = |char: char| {
        let code = u32::from(char);
        char.is_control() || (0xFDD0..=0xFDEF).contains(&code) || code & 0xFFFE == 0xFFFE
    };
    !text.contains(is_reserved) && text.len() <= usize::from(u16::MAX)
}

/// A text that a command may have; `missing` if it is something else.
pub(super) fn optional<'a>(
    command: &'a Value,
    field: &str,
    missing: Refusal,
) -> Result<Option<&'a str>, Refusal> {
    text(command, field).map_err(|_| missing)
}

/// The part of a list that a command asks for. A count of 0 is one, as in Mosquitto.
pub(super) fn part<'a, T>(
    all: impl Iterator<Item = T> + 'a,
    command: &Value,
) -> (bool, impl Iterator<Item = T> + 'a) {
    let is_verbose = flag(command, "verbose").unwrap_or(false);
    let count = usize::try_from(number(command, "count", -1)).map_or(usize::MAX, |count| count.max(1));
    let offset = usize::try_from(number(command, "offset", 0)).unwrap_or(0);
    (is_verbose, all.skip(offset).take(count))
}
