//! What the threads tell each other, and how full the ways between them are.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use broker::{Mail, Room, Run};
use index::{ShardId, Subscriber, Target};
use ledger::{Command, Reply};
use wire::{Qos, Version};

/// What an item of mail weighs beside its bytes.
const ITEM_BYTES: usize = 64;

/// What arrives in a shard's inbox.
#[derive(Debug)]
pub(crate) enum Letter {
    /// Another shard's turn.
    Mail { from: ShardId, batch: Batch },
    /// What the ledger answered, and what that weighs.
    Replies { replies: VecDeque<Reply>, bytes: usize },
    /// That shard has read our mail.
    MailRead(ShardId),
    /// The ledger has read our commands.
    CommandsRead,
}

/// What arrives in the ledger's inbox: one shard's turn.
#[derive(Debug)]
pub(crate) struct Commands {
    pub(crate) from: ShardId,
    pub(crate) commands: VecDeque<Command>,
    pub(crate) bytes: usize,
}

/// Where a letter goes.
#[derive(Debug)]
pub(crate) enum Addressed {
    Shard(ShardId, Letter),
    Ledger(Commands),
}

/// Everything that one shard tells another in one turn.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    items: VecDeque<Item>,
    weight_bytes: usize,
}

#[derive(Debug)]
enum Item {
    Forward {
        bytes: Vec<u8>,
        count: u32,
        payload_bytes: u64,
        version: Version,
        qos: Qos,
        targets: Arc<[Target]>,
    },
    Resume(Arc<Subscriber>),
}

impl Batch {
    /// Takes a piece of mail in, and returns what it weighs.
    pub(crate) fn push(&mut self, mail: Mail<'_>) -> usize {
        let (item, bytes) = match mail {
            Mail::Forward(Run { bytes, count, payload_bytes, version, qos }, targets) => {
                let item =
                    Item::Forward { bytes: bytes.to_vec(), count, payload_bytes, version, qos, targets };
                (item, bytes.len())
            }
            Mail::Resume(subscriber) => (Item::Resume(subscriber), 0),
        };
        self.items.push_back(item);
        self.weight_bytes += bytes + ITEM_BYTES;
        bytes + ITEM_BYTES
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Hands each piece of mail to `read`, in the order in which it was written.
    pub(crate) fn drain(self, mut read: impl FnMut(Mail<'_>)) -> usize {
        for item in self.items {
            match item {
                Item::Forward { bytes, count, payload_bytes, version, qos, targets } => {
                    let run = Run { bytes: &bytes, count, payload_bytes, version, qos };
                    read(Mail::Forward(run, targets));
                }
                Item::Resume(subscriber) => read(Mail::Resume(subscriber)),
            }
        }
        self.weight_bytes
    }
}

/// The bounds of ways and outputs, all of them in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// From one shard to another.
    pub(crate) mail: usize,
    /// From one shard to the ledger.
    pub(crate) commands: usize,
    /// From the ledger to one shard.
    pub(crate) answers: usize,
    /// An output with more waiting is over its mark.
    pub(crate) high_water: usize,
    /// All outputs together.
    pub(crate) waiting: usize,
    /// Where everything is full, an output may hold so much all the same.
    pub(crate) allowance: usize,
    /// The socket of a connection.
    pub(crate) socket: usize,
    /// One read.
    pub(crate) read: usize,
}

/// How full the ways are, for everybody.
#[derive(Debug)]
pub(crate) struct Board {
    pub(crate) bounds: Bounds,
    /// By sender, then receiver.
    mail: Vec<Vec<Way>>,
    commands: Vec<Way>,
    answers: Vec<Way>,
    /// What waits to be written to connections, in the whole process.
    pub(crate) waiting_bytes: Cell<usize>,
    /// What a shard did that it must not.
    pub(crate) faults: RefCell<Vec<String>>,
}

/// The bytes that one sender has under way to one inbox, and whether it waits for them to be read.
#[derive(Debug, Default)]
struct Way {
    bytes: Cell<usize>,
    is_waited_for: Cell<bool>,
}

impl Board {
    pub(crate) fn new(shards: usize, bounds: Bounds) -> Rc<Self> {
        let ways = || (0..shards).map(|_| Way::default()).collect::<Vec<_>>();
        Rc::new(Self {
            bounds,
            mail: (0..shards).map(|_| ways()).collect(),
            commands: ways(),
            answers: ways(),
            waiting_bytes: Cell::new(0),
            faults: RefCell::default(),
        })
    }

    pub(crate) fn add_mail(&self, from: usize, to: ShardId, bytes: usize) -> Room {
        self.mail[from][to.number()].add(bytes, self.bounds.mail)
    }

    pub(crate) fn mail_room(&self, from: usize, to: ShardId) -> Room {
        self.mail[from][to.number()].room(self.bounds.mail)
    }

    /// Mail was read: whether its sender waits for that.
    pub(crate) fn mail_read(&self, from: ShardId, to: usize, bytes: usize) -> bool {
        self.mail[from.number()][to].handled(bytes)
    }

    pub(crate) fn add_command(&self, from: usize, bytes: usize) -> Room {
        self.commands[from].add(bytes, self.bounds.commands)
    }

    pub(crate) fn command_room(&self, from: usize) -> Room {
        self.commands[from].room(self.bounds.commands)
    }

    /// Commands were carried out: whether their sender waits for that.
    pub(crate) fn commands_read(&self, from: ShardId, bytes: usize) -> bool {
        self.commands[from.number()].handled(bytes)
    }

    pub(crate) fn add_answers(&self, to: ShardId, bytes: usize) {
        self.answers[to.number()].add(bytes, self.bounds.answers);
    }

    pub(crate) fn answers_read(&self, by: usize, bytes: usize) {
        self.answers[by].handled(bytes);
    }

    /// Whether every shard has read most of what the ledger has answered. The ledger does nothing before.
    pub(crate) fn has_room_for_answers(&self) -> bool {
        self.answers.iter().all(|way| way.bytes.get() <= self.bounds.answers)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.waiting_bytes.get() > self.bounds.waiting
    }

    /// The fullest way to a shard, and the fullest to the ledger.
    pub(crate) fn fullest(&self) -> (usize, usize) {
        let most = |ways: &[Way]| ways.iter().map(|way| way.bytes.get()).max().unwrap_or(0);
        (self.mail.iter().map(|ways| most(ways)).max().unwrap_or(0), most(&self.commands))
    }

    pub(crate) fn fault(&self, what: String) {
        self.faults.borrow_mut().push(what);
    }
}

impl Way {
    fn add(&self, bytes: usize, bound: usize) -> Room {
        self.bytes.set(self.bytes.get() + bytes);
        if self.bytes.get() > bound { Room::Over } else { Room::Open }
    }

    /// Whoever reads `Over` is going to wait.
    fn room(&self, bound: usize) -> Room {
        if self.bytes.get() <= bound {
            return Room::Open;
        }
        self.is_waited_for.set(true);
        Room::Over
    }

    fn handled(&self, bytes: usize) -> bool {
        self.bytes.set(self.bytes.get() - bytes);
        self.is_waited_for.take()
    }
}
