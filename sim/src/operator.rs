//! Reloads: an operator writes files, valid ones and others, and the thread that reads them has the broker carry out what they
//! say, step by step, in the order of `net::Server` and of the binary.

use std::collections::VecDeque;
use std::sync::Arc;

use turn::{Dismissal, Limits, Note, ToLedger};

use crate::broker::{Order, Process};
use crate::client::Client;
use crate::configuration::{Choices, Configuration, Rules};
use crate::random::Random;
use crate::scenario::Scenario;
use crate::scene::Scene;
use crate::trace::note;

/// Numbers that listeners and their connections have: fewer than in a server, so that they are used again.
pub(crate) const PLACES: u16 = 48;
/// Longest time for which a reload waits for the threads.
const PATIENCE_MS: u64 = 5_000;
/// Out of a thousand steps: the thread that reloads has a turn.
const TURN_PER_MILLE: usize = 150;
/// Out of a thousand files: one cannot be read, or one of its addresses cannot be listened on.
const INVALID_PER_MILLE: usize = 250;

/// The operator, and the thread that carries out reloads.
pub(crate) struct Operator {
    random: Random,
    choices: Choices,
    /// The configuration with which a run begins and ends.
    usual: Configuration,
    /// The last valid file.
    current: Configuration,
    /// The number of the file, for the judge.
    reload: u64,
    /// Out of a thousand turns without anything to do: another reload begins.
    begins_per_mille: usize,
    /// The file in force is the usual one.
    is_usual: bool,
    /// The listeners that are open, by address.
    ports: Vec<Option<Port>>,
    last_number: u16,
    tasks: VecDeque<Task>,
    pub(crate) reloads: usize,
}

/// A listener with its numbers.
#[derive(Debug, Clone)]
struct Port {
    number: u16,
    /// Earlier numbers, of connections that were accepted before a change.
    former: Vec<u16>,
}

/// A step of a reload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Task {
    /// Something that the first shard does, which is waited for.
    Order(Order),
    /// The same, once it was given.
    Obeyed,
    Dismiss {
        number: u16,
        whom: Dismissal,
        shard: usize,
    },
    /// The limit of memory, and the name of the rules.
    Memory,
    Limits {
        shard: usize,
    },
    Ledger,
    /// All threads have the limits, or it is too late.
    Settled {
        until_ms: Option<u64>,
    },
}

impl Operator {
    pub(crate) fn draw(seed: u64, scenario: &mut Scenario, scene: &mut Scene) -> Self {
        // Its own numbers: the rest of a run is left to the same chance as without reloads.
        let mut random = Random::new(seed ^ 0x5EED_0F2E_10AD_5000);
        let choices = Choices::draw(scenario, &mut random);
        let usual = Configuration::of(scenario, &choices, &mut random);
        usual.apply_to(scenario);
        scene.network.build_doors(usual.listeners.len());
        let reload = scene.oracle.configured(usual.terms());
        Self {
            begins_per_mille: *random.pick(&[10, 50, 200]),
            random,
            choices,
            current: usual.clone(),
            reload,
            is_usual: true,
            ports: vec![None; usual.listeners.len()],
            usual,
            last_number: 0,
            tasks: VecDeque::new(),
            reloads: 0,
        }
    }

    /// Clients keep to limits that they are not told.
    pub(crate) fn instruct(&self, clients: &mut [Client]) {
        for client in clients {
            client.payload_bytes_max = self.choices.payload_bytes_untold(client.version());
        }
    }

    /// The configuration for the next process.
    pub(crate) fn current(&self) -> &Configuration {
        &self.current
    }

    /// A process has begun with the last valid file.
    pub(crate) fn started(&mut self, process: &mut Process, scene: &mut Scene) {
        self.tasks.clear();
        self.last_number = 0;
        for address in 0..self.ports.len() {
            self.ports[address] = self.current.listeners[address].map(|rules| {
                let number = u16::try_from(address).expect("there are few addresses");
                process.order(Order::Open { address, number, rules });
                self.last_number = number;
                Port { number, former: Vec::new() }
            });
        }
        process.listen(scene);
    }

    /// Whether a reload is under way.
    pub(crate) fn is_busy(&self) -> bool {
        !self.tasks.is_empty()
    }

    /// A turn when nothing changes any more: a reload goes on. The last one is of the file that the run has begun with. Returns
    /// whether there was anything to do.
    pub(crate) fn go_on(
        &mut self,
        process: &mut Process,
        scenario: &mut Scenario,
        scene: &mut Scene,
    ) -> bool {
        if self.is_busy() {
            return self.step(process, scene);
        }
        let is_other = !self.is_usual;
        if is_other {
            let usual = self.usual.clone();
            self.begin(usual, process, scenario, scene);
            self.is_usual = true;
        }
        is_other
    }

    /// A turn of the thread that reloads, if it is its turn.
    pub(crate) fn turn(&mut self, process: &mut Process, scenario: &mut Scenario, scene: &mut Scene) {
        if !self.random.chance(TURN_PER_MILLE) {
            return;
        }
        if self.is_busy() {
            self.step(process, scene);
        } else if self.random.chance(self.begins_per_mille) {
            let mut next = self.current.clone();
            next.change(&self.choices, &mut self.random);
            match self.random.chance(INVALID_PER_MILLE) {
                true => self.fail(&next, scene),
                false => self.begin(next, process, scenario, scene),
            }
        }
    }

    /// The next step of a reload. Whether there was one that could be made.
    pub(crate) fn step(&mut self, process: &mut Process, scene: &mut Scene) -> bool {
        let Some(task) = self.tasks.pop_front() else { return false };
        if !matches!(task, Task::Obeyed | Task::Settled { .. }) {
            note!(scene.trace, ("reload"), "{task:?}");
        }
        match task {
            Task::Order(order) => {
                process.order(order);
                self.tasks.push_front(Task::Obeyed);
            }
            Task::Obeyed => {
                if process.has_orders() {
                    self.tasks.push_front(task);
                    return false;
                }
            }
            Task::Dismiss { number, whom, shard } => {
                scene.oracle.dismissing(number, whom);
                process.post(shard, Note::Dismiss { listener: number, whom });
            }
            Task::Memory => {
                process.rename_rules(self.current.rules);
                process.budget().set_limit_bytes(self.current.memory_bytes_max);
            }
            Task::Limits { shard } => process.post(shard, Note::Limits(self.limits())),
            Task::Ledger => process.post_to_ledger(ToLedger::Settings {
                settings: Box::new(self.current.ledger.clone()),
                durability: self.current.durability_max(),
                reload: self.reload,
            }),
            Task::Settled { until_ms } => {
                let now_ms = scene.now.monotonic_ms;
                let until_ms = until_ms.unwrap_or(now_ms + PATIENCE_MS);
                if !process.has_reloaded(self.reload) && now_ms < until_ms {
                    self.tasks.push_front(Task::Settled { until_ms: Some(until_ms) });
                    return false;
                }
            }
        }
        true
    }

    /// When it gives up waiting.
    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        match self.tasks.front() {
            Some(Task::Settled { until_ms }) => *until_ms,
            _ => None,
        }
    }

    fn limits(&self) -> Limits {
        Limits {
            settings: Arc::new(self.current.session.clone()),
            output_bytes: self.current.output_bytes,
            outputs_bytes: self.current.outputs_bytes,
            reload: self.reload,
        }
    }

    /// The file is read, and something in it is wrong: nothing changes. If an address cannot be listened on because a listener
    /// has it that is to go, that one is closed first, and opened again when another address fails.
    fn fail(&mut self, next: &Configuration, scene: &mut Scene) {
        note!(scene.trace, ("reload"), "the configuration stays as it was");
        let removed = (0..self.ports.len()).find(|address| next.listeners[*address].is_none());
        let removed = removed.filter(|address| self.current.listeners[*address].is_some());
        if let (Some(address), true) = (removed, self.random.chance(500)) {
            let (Some(rules), Some(port)) = (self.current.listeners[address], &self.ports[address]) else {
                return;
            };
            self.tasks.push_back(Task::Order(Order::Close { address }));
            self.tasks.push_back(Task::Order(Order::Open { address, number: port.number, rules }));
        }
    }

    /// The file is valid: it counts from now on, also for the next process.
    fn begin(
        &mut self,
        mut next: Configuration,
        process: &Process,
        scenario: &mut Scenario,
        scene: &mut Scene,
    ) {
        note!(scene.trace, ("reload"), "begins: {next:?}");
        self.reloads += 1;
        self.is_usual = false;
        // Nothing is drawn for this, so that a seed makes the same run as without it.
        next.rules = self.current.rules + 1;
        next.apply_to(scenario);
        self.reload = scene.oracle.configured(next.terms());
        let before = std::mem::replace(&mut self.current, next);
        let shards = process.shards();
        for address in 0..self.ports.len() {
            if self.current.listeners[address].is_none() {
                self.remove(address, shards);
            }
        }
        self.tasks.push_back(Task::Memory);
        self.tasks.extend((0..shards).map(|shard| Task::Limits { shard }));
        self.tasks.extend([Task::Ledger, Task::Settled { until_ms: None }]);
        for address in 0..self.ports.len() {
            match (before.listeners[address], self.current.listeners[address]) {
                (Some(old), Some(new)) if old != new => self.change(address, (old, new), process, scene),
                (None, Some(rules)) => {
                    let number = self.free_number(process, scene).unwrap_or(PLACES - 1);
                    self.ports[address] = Some(Port { number, former: Vec::new() });
                    self.tasks.push_back(Task::Order(Order::Open { address, number, rules }));
                }
                _ => {}
            }
        }
    }

    fn remove(&mut self, address: usize, shards: usize) {
        let Some(Port { number, mut former }) = self.ports[address].take() else { return };
        self.tasks.push_back(Task::Order(Order::Close { address }));
        former.push(number);
        self.dismiss(&former, Dismissal::Everybody, shards);
    }

    fn change(&mut self, address: usize, (old, new): (Rules, Rules), process: &Process, scene: &mut Scene) {
        let whom = old.dismissal(&new);
        let Some(Port { number, mut former }) = self.ports[address].clone() else { return };
        let next = if whom.is_some() { self.free_number(process, scene) } else { Some(number) };
        let Some(next) = next else {
            // The listener stays as it was.
            self.current.listeners[address] = Some(old);
            return;
        };
        self.tasks.push_back(Task::Order(Order::Change { address, next, rules: new }));
        former.retain(|number| process.connections_of(*number) > 0);
        if next != number {
            former.push(number);
        }
        if let Some(whom) = whom {
            self.dismiss(&former, whom, process.shards());
        }
        self.ports[address] = Some(Port { number: next, former });
    }

    fn dismiss(&mut self, numbers: &[u16], whom: Dismissal, shards: usize) {
        for number in numbers.iter().copied() {
            self.tasks.extend((0..shards).map(|shard| Task::Dismiss { number, whom, shard }));
        }
    }

    /// A number that neither a listener nor a connection has.
    fn free_number(&mut self, process: &Process, scene: &mut Scene) -> Option<u16> {
        let is_of = |port: &Port, number: u16| port.number == number || port.former.contains(&number);
        let is_used = |number: &u16| {
            self.ports.iter().flatten().any(|port| is_of(port, *number))
                || self.tasks.iter().any(|task| task.names(*number))
                || process.connections_of(*number) > 0
        };
        let after = self.last_number + 1;
        let number = (after..PLACES).chain(0..after).find(|number| !is_used(number));
        let number = number?;
        self.last_number = number;
        scene.oracle.numbered(number);
        Some(number)
    }
}

impl Task {
    /// Whether connections with a number are to leave.
    fn names(&self, number: u16) -> bool {
        matches!(self, Self::Dismiss { number: dismissed, .. } if *dismissed == number)
    }
}
