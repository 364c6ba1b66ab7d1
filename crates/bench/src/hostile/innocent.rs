//! Innocent clients: each repeats one small thing on schedule, and measures how long it takes.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::packets::{self, Credentials, Opening, Options};
use super::peer::Peer;
use crate::load::{latencies, nanos};

/// The root of the topics of innocent clients. Attackers may subscribe to it.
pub(super) const TOPICS: &str = "innocent";

/// The root of the topics of large messages.
const LARGE_TOPICS: &str = "innocent-large";

/// Payload of a large message, in bytes: it takes the server several reads.
const LARGE_BYTES: usize = 256 << 10;

/// Time between two attempts of a client that has lost its connection.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Repeated operation of one innocent client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Habit {
    /// Publishes at QoS 0 to a topic to which it subscribes, and waits for its message.
    Flow,
    /// The same at QoS 1; it waits for PUBACK as well.
    Acknowledged,
    /// The same at QoS 1 with messages of 256 KiB.
    Large,
    /// Publishes a retained message at QoS 1, and waits for PUBACK: the server has to store it.
    Stored,
    /// Connects, subscribes to a filter of nine levels, and disconnects.
    Caller,
}

impl Habit {
    pub(super) const ALL: [Self; 5] =
        [Self::Flow, Self::Acknowledged, Self::Large, Self::Stored, Self::Caller];

    /// A name for tables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Flow => "QoS 0",
            Self::Acknowledged => "QoS 1",
            Self::Large => "large",
            Self::Stored => "retained",
            Self::Caller => "CONNECT",
        }
    }

    /// Time between two repetitions.
    pub(super) fn interval(self) -> Duration {
        match self {
            Self::Flow | Self::Acknowledged => Duration::from_millis(5),
            Self::Stored => Duration::from_millis(10),
            Self::Caller | Self::Large => Duration::from_millis(20),
        }
    }

    /// The payload of a message with this number. It ends with the number.
    fn payload(self, number: u64) -> Vec<u8> {
        let len = if self == Self::Large { LARGE_BYTES } else { size_of::<u64>() };
        let mut payload = vec![b'p'; len - size_of::<u64>()];
        payload.extend(number.to_be_bytes());
        payload
    }

    /// Attackers that subscribe to [`TOPICS`] do not get large messages: how long a broker waits for a subscriber that
    /// does not keep up depends on the bytes that wait for it.
    fn topic(self) -> String {
        let root = if self == Self::Large { LARGE_TOPICS } else { TOPICS };
        format!("{root}/{}", self.name().replace(' ', "-"))
    }

    fn client_id(self) -> String {
        format!("innocent-{}", self.name().replace(' ', "-"))
    }
}

/// The user name and the password of the innocent clients.
#[derive(Debug, Clone)]
pub(super) struct Login {
    pub(super) user: String,
    pub(super) password: String,
}

impl Login {
    fn credentials(&self) -> Credentials<'_> {
        Credentials { user: &self.user, password: &self.password }
    }
}

/// Figures of one habit in one phase.
#[derive(Debug, Clone)]
pub(super) struct Account {
    pub(super) habit: Habit,
    /// When the phase began.
    began: Instant,
    /// Duration of the phase; zero while it lasts.
    elapsed: Duration,
    /// Number of successful repetitions.
    pub(super) done: u64,
    /// Attempts that were refused, or whose connection ended.
    pub(super) refused: u64,
    /// From when a repetition was due to its end, in nanoseconds. A repetition that had not ended with the phase counts as
    /// long as it had taken by then.
    pub(super) latency: Histogram<u64>,
    /// When the repetition was due that is under way.
    due: Option<Instant>,
}

/// The innocent clients of one run, each on a thread of its own. They end when this is dropped.
#[derive(Debug)]
pub(super) struct Innocents {
    accounts: Vec<Arc<Mutex<Account>>>,
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Innocents {
    /// Starts one client of each habit.
    pub(super) fn start(address: SocketAddr, login: Option<&Login>) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let (mut accounts, mut threads) = (Vec::new(), Vec::new());
        for habit in Habit::ALL {
            let account = Arc::new(Mutex::new(Account::new(habit)));
            let client = Client {
                habit,
                address,
                login: login.cloned(),
                account: Arc::clone(&account),
                is_over: Arc::clone(&is_over),
            };
            accounts.push(account);
            threads.push(thread::spawn(move || client.run()));
        }
        Self { accounts, is_over, threads }
    }

    /// The accounts since the last call.
    pub(super) fn take(&self) -> Vec<Account> {
        self.accounts
            .iter()
            .map(|account| {
                let mut account = lock(account);
                let next = Account { due: account.due, ..Account::new(account.habit) };
                let mut past = std::mem::replace(&mut *account, next);
                if let Some(due) = past.due {
                    past.latency.saturating_record(nanos(due.elapsed()));
                }
                Account { elapsed: past.began.elapsed(), ..past }
            })
            .collect()
    }
}

impl Drop for Innocents {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A client that has panicked has said so.
            let _ = thread.join();
        }
    }
}

impl Account {
    fn new(habit: Habit) -> Self {
        Self {
            habit,
            began: Instant::now(),
            elapsed: Duration::ZERO,
            done: 0,
            refused: 0,
            latency: latencies(),
            due: None,
        }
    }

    /// An account for tests: repetitions that took so long each, within a second.
    #[cfg(test)]
    pub(super) fn of(habit: Habit, done: u64, took: Duration) -> Self {
        let mut account = Self { done, elapsed: Duration::from_secs(1), ..Self::new(habit) };
        account.latency.record_n(nanos(took), done).expect("a latency within bounds");
        account
    }

    /// The part of what was due in that time that succeeded.
    pub(super) fn share(&self) -> f64 {
        let due = self.elapsed.as_secs_f64() / self.habit.interval().as_secs_f64();
        (self.done as f64 / due.max(1.0)).min(1.0)
    }

    pub(super) fn p99(&self) -> Duration {
        Duration::from_nanos(self.latency.value_at_quantile(0.99))
    }
}

fn lock(account: &Mutex<Account>) -> MutexGuard<'_, Account> {
    account.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One client on its thread.
struct Client {
    habit: Habit,
    address: SocketAddr,
    login: Option<Login>,
    account: Arc<Mutex<Account>>,
    is_over: Arc<AtomicBool>,
}

impl Client {
    fn run(&self) {
        let mut peer = None;
        let mut number = 0_u64;
        let mut due = Instant::now();
        while !self.is_over.load(Ordering::Relaxed) {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            lock(&self.account).due = Some(due);
            while !self.is_over.load(Ordering::Relaxed) {
                let result = self.repeat(&mut peer, number);
                let mut account = lock(&self.account);
                if result.is_ok() {
                    account.done += 1;
                    account.due = None;
                    account.latency.saturating_record(nanos(due.elapsed()));
                    break;
                }
                account.refused += 1;
                drop(account);
                // A refusal leaves the connection open; it costs nothing to begin again.
                peer = None;
                thread::sleep(RETRY_INTERVAL);
            }
            number += 1;
            due += self.habit.interval();
        }
    }

    fn repeat(&self, peer: &mut Option<Peer>, number: u64) -> io::Result<()> {
        if self.habit == Habit::Caller {
            return self.call();
        }
        let peer = match peer {
            Some(peer) => peer,
            None => peer.insert(self.arrive()?),
        };
        let (topic, payload) = (self.habit.topic(), self.habit.payload(number));
        let packet_id = u16::try_from(number % 60_000).expect("less than 60,000") + 1;
        let retain = self.habit == Habit::Stored;
        let qos = u8::from(self.habit != Habit::Flow);
        peer.send(&packets::publish(
            &topic,
            &payload,
            Options { qos, retain, packet_id, ..Options::default() },
        ))?;
        let mut awaits_message = !retain;
        let mut awaits_answer = qos > 0;
        while awaits_message || awaits_answer {
            let packet = peer.next_packet()?;
            match packet[0] >> 4 {
                packets::PUBLISH => {
                    if let Some(id) = packets::packet_id_of(&packet) {
                        peer.send(&packets::puback(id))?;
                    }
                    awaits_message &= !packet.ends_with(&payload);
                }
                packets::PUBACK => {
                    packets::published(&packet)?;
                    awaits_answer = false;
                }
                _ => return Err(io::Error::other("the server has sent something else")),
            }
        }
        Ok(())
    }

    fn connect(&self) -> Vec<u8> {
        let credentials = self.login.as_ref().map(Login::credentials);
        packets::connect(&self.habit.client_id(), Opening { credentials, ..Opening::default() })
    }

    /// Connects, and subscribes to what it publishes itself.
    fn arrive(&self) -> io::Result<Peer> {
        let mut peer = Peer::connect(self.address, &self.connect())?;
        if self.habit != Habit::Stored {
            let qos = u8::from(self.habit != Habit::Flow);
            peer.send(&packets::subscribe(1, [self.habit.topic()], qos))?;
            packets::subscribed(&peer.wait_for(packets::SUBACK)?)?;
        }
        Ok(peer)
    }

    fn call(&self) -> io::Result<()> {
        let mut peer = Peer::connect(self.address, &self.connect())?;
        peer.send(&packets::subscribe(1, ["+/calls/from/time/to/time/to/+/you"], 0))?;
        packets::subscribed(&peer.wait_for(packets::SUBACK)?)?;
        peer.send(&packets::DISCONNECT)
    }
}
