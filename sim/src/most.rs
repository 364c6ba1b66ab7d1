//! The most bytes that may wait in a mailbox or in an output, by the rules of the broker.

use crate::scenario::Scenario;

/// Header and properties of a packet, beside its topic and payload.
const HEAD_BYTES: usize = 200;
/// Weight of a small packet in the mail, as a multiple of its length. A PUBACK of four bytes weighs more as a command.
const MAIL_WEIGHT: usize = 12;
const COMMAND_WEIGHT: usize = size_of::<protocol::Command>() / 4;
/// A command weighs at least one part in 512 of the bound, and a turn takes 8,192 steps.
const COMMANDS: usize = 18;
/// Commands that nobody holds up, while the ledger does not run: connections that come and go, and what becomes of the messages
/// in their windows.
const OTHER_COMMANDS_BYTES: usize = 100_000;
/// Answers that a client has not taken while its output is full; then it is not read (`UNTAKEN_ANSWER_BYTES_MAX`).
const UNTAKEN_BYTES: usize = 16 << 10;
/// A step of a cursor over retained messages ends with the message that reaches this.
const STEP_BYTES: usize = 64 << 10;

/// The bounds of one scenario, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Most {
    /// From one shard to another.
    mail: usize,
    /// From one shard to the ledger.
    commands: usize,
    /// In the output of one connection.
    output: usize,
}

impl Most {
    pub(crate) fn of(scenario: &Scenario) -> Self {
        let bounds = scenario.bounds;
        let packet = packet_bytes(scenario);
        // A sender is read once before it is held, behind a packet that was not complete.
        let read = packet + if packet > bounds.carry { bounds.read_on } else { bounds.read };
        let reads = scenario.clients.len() * read;
        Self {
            mail: bounds.mail + MAIL_WEIGHT * reads,
            commands: COMMANDS * bounds.commands + COMMAND_WEIGHT * reads + OTHER_COMMANDS_BYTES,
            output: by_ways(scenario, packet, reads).min(by_itself(scenario, packet, read)),
        }
    }

    /// The larger bounds of both: after a reload, what exceeds a lowered bound stays.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            mail: self.mail.max(other.mail),
            commands: self.commands.max(other.commands),
            output: self.output.max(other.output),
        }
    }

    /// # Errors
    /// More waits than may.
    pub(crate) fn check(&self, (mail, commands, output): (usize, usize, usize)) -> Result<(), String> {
        let fullest = [
            ("mail to a shard", mail, self.mail),
            ("commands to the ledger", commands, self.commands),
            ("an output", output, self.output),
        ];
        match fullest.into_iter().find(|(_, bytes, most)| bytes > most) {
            Some((what, bytes, most)) => {
                Err(format!("{what} takes {bytes} bytes, {} more than it may", bytes - most))
            }
            None => Ok(()),
        }
    }
}

fn packet_bytes(scenario: &Scenario) -> usize {
    let topic = scenario.topics.iter().map(|topic| topic.name.len()).max().unwrap_or_default();
    topic + scenario.payload_bytes_max + HEAD_BYTES
}

/// When an output goes over its mark, its publishers are held. Until then, messages of QoS 0 for it may be on each of these
/// ways. Messages of QoS 1 and 2 wait elsewhere.
fn by_ways(scenario: &Scenario, packet: usize, reads: usize) -> usize {
    let bounds = scenario.bounds;
    let through_ledger = bounds.commands * scenario.shards + bounds.answers;
    // One copy for its own subscriptions, and one for each group of which it is a member.
    let copies = 1 + scenario.filters.iter().filter(|filter| filter.is_shared).count();
    // A member at QoS 0 gets a mark's worth out of the queues of groups, and the message that reaches it.
    let ledger = &scenario.ledger;
    let worth = ledger.brake_bytes.min(ledger.brake_messages * packet) + packet;
    let retained = STEP_BYTES.min(scenario.topics.len() * packet) + packet;
    bounds.output
        + bounds.mail * (scenario.shards - 1)
        + copies * (through_ledger + reads)
        + worth
        + retained
        + UNTAKEN_BYTES
}

/// An output refuses messages of QoS 0 before all others: the last one, or the last packets of one read, may be beyond that,
/// and the answers to one read.
fn by_itself(scenario: &Scenario, packet: usize, read: usize) -> usize {
    let bounds = scenario.bounds;
    bounds.output_most().saturating_add(packet + 2 * read + UNTAKEN_BYTES)
}
