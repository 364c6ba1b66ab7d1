//! The coordinator of agents: divides a load among them, and puts their accounts together.

use std::net::{TcpStream, ToSocketAddrs};
use std::thread;
use std::time::{Duration, Instant};

use super::super::results::Agent;
use super::super::workload::Amount;
use super::clock::{Comparison, RoundTrip};
use super::talk::{Ended, Job, Order, PROTOCOL, Report, Share, Talk};
use super::token::{Nonce, Side, Token, nonce};
use crate::campaign::new_run_id;
use crate::error::{Error, Result};
use crate::load::{Outcome, nanos};
use crate::measure::{Concert, CpuTimes, Measured, Target};

/// Time limit for an agent to accept a connection, and for each line of its greeting. It may still end an earlier run.
const GREETING_PATIENCE: Duration = Duration::from_secs(15);

/// Time limit for each step of a run, besides the one of the run itself.
const STEP_PATIENCE: Duration = Duration::from_secs(600);

/// Round trips by which a clock is compared.
const ROUND_TRIPS: usize = 32;

/// Time from the order to start until the start, so that the order is everywhere by then.
const LEAD: Duration = Duration::from_millis(50);

/// The agents of a shoot-out.
#[derive(Debug)]
pub(in super::super) struct Fleet {
    names: Vec<String>,
    token: Token,
}

/// The load of one run.
pub(in super::super) struct Load<'a> {
    pub(in super::super) bench: &'a str,
    pub(in super::super) size: usize,
    pub(in super::super) amount: Amount,
}

/// An agent in a run.
struct Member<'a> {
    name: &'a str,
    talk: Talk,
    nonces: [Nonce; 2],
    threads: usize,
    version: String,
    clock: Option<Comparison>,
}

impl Fleet {
    /// Agents at these addresses, `HOST:PORT` each.
    pub(in super::super) fn new(names: Vec<String>, token: Token) -> Self {
        Self { names, token }
    }

    /// Asks every agent who it is.
    ///
    /// # Errors
    /// If one cannot be reached, has another token, or another version.
    pub(in super::super) fn describe(&self) -> Result<Vec<Agent>> {
        let members = self.connect()?;
        let agent = |member: Member<'_>| Agent {
            address: member.name.to_owned(),
            threads: member.threads,
            version: member.version,
        };
        Ok(members.into_iter().map(agent).collect())
    }

    /// Runs a load. `look` is called now and then; an error of its ends the run, also for the agents.
    ///
    /// # Errors
    /// What `look` returns; [`Error::Server`] if the server fails a run; [`Error::Io`] if an agent fails.
    pub(in super::super) fn measure(
        &self,
        load: &Load<'_>,
        target: &Target,
        look: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Measured> {
        let mut members = self.connect()?;
        let threads = members.iter().map(|member| member.threads).sum();
        let mut job = Job {
            bench: load.bench.to_owned(),
            size: load.size,
            amount: load.amount,
            run: new_run_id(),
            first: 0,
            threads,
            addresses: std::iter::once(target.address).chain(target.further.iter().copied()).collect(),
        };
        target.servers.reset_peak();
        for member in &mut members {
            let proof = self.token.proof(Side::Coordinator, &member.nonces);
            member.send(&Order::Run { proof, job: Box::new(job.clone()) })?;
            job.first += member.threads;
        }
        expect_of_all(&mut members, look, |report| matches!(report, Report::Ready))?;
        let epoch = Instant::now();
        for member in &mut members {
            member.compare(epoch, look)?;
        }
        let start = start(&mut members, epoch)?;
        thread::sleep(start.saturating_duration_since(Instant::now()));
        let before = CpuTimes::of(target);
        expect_of_all(&mut members, look, |report| matches!(report, Report::Done))?;
        let used = CpuTimes::of(target).since(before);
        let peak_bytes = target.servers.peak_bytes();
        let heard = hear(&mut members, look)?;
        Ok(Measured {
            outcome: heard.outcome,
            elapsed: heard.elapsed,
            busiest_share: used.busiest_share(),
            server_cpu: used.of_servers(),
            balancer_cpu: used.of_balancer(),
            peak_bytes,
            connection_bytes: None,
            generator_busy: heard.busy,
            concert: Some(heard.concert),
        })
    }

    fn connect(&self) -> Result<Vec<Member<'_>>> {
        self.names.iter().map(|name| Member::greet(name, &self.token)).collect()
    }
}

impl<'a> Member<'a> {
    /// Connects to an agent, and lets it prove that it has the token.
    fn greet(name: &'a str, token: &Token) -> Result<Self> {
        let connect = || {
            let mut addresses = name.to_socket_addrs()?;
            let address = addresses.next().ok_or(std::io::ErrorKind::NotFound)?;
            Talk::new(TcpStream::connect_timeout(&address, GREETING_PATIENCE)?)
        };
        let mut talk = connect().map_err(Error::io(format!("reach the agent {}", wire::Shown(name))))?;
        let own = nonce()?;
        let failed = |ended| of_agent(name, ended);
        talk.send(&Order::Hello { protocol: PROTOCOL, nonce: own }).map_err(failed)?;
        let report = talk.receive(GREETING_PATIENCE, || Ok(())).map_err(failed)?;
        let Report::Hello { protocol, nonce, proof, threads, version } = report else {
            return Err(failed(Ended::There("does not greet".to_owned())));
        };
        let nonces = [own, nonce];
        let what = match () {
            () if protocol != PROTOCOL => {
                format!("has version {protocol} of the protocol, and not {PROTOCOL}")
            }
            () if !token.is_proof(&proof, Side::Agent, &nonces) => "has another token".to_owned(),
            () if threads == 0 || threads > usize::from(u8::MAX) => format!("has {threads} threads"),
            () => return Ok(Self { name, talk, nonces, threads, version, clock: None }),
        };
        Err(failed(Ended::There(what)))
    }

    fn send(&mut self, order: &Order) -> Result<()> {
        self.talk.send(order).map_err(|ended| of_agent(self.name, ended))
    }

    /// Waits for a report.
    fn expect<T>(
        &mut self,
        look: &mut dyn FnMut() -> Result<()>,
        of: impl FnOnce(Report) -> Option<T>,
    ) -> Result<T> {
        let failed = |ended| of_agent(self.name, ended);
        match self.talk.receive(STEP_PATIENCE, look).map_err(failed)? {
            Report::Failed { why, is_of_server: true } => {
                Err(Error::Server(format!("{} (agent {})", wire::Shown(why), wire::Shown(self.name))))
            }
            Report::Failed { why, is_of_server: false } => Err(failed(Ended::There(why))),
            report => of(report).ok_or_else(|| failed(Ended::There("says something unexpected".to_owned()))),
        }
    }

    /// Compares the clock of the agent with that of `epoch`.
    fn compare(&mut self, epoch: Instant, look: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        let now = || nanos(epoch.elapsed());
        let mut trips = Vec::with_capacity(ROUND_TRIPS);
        for _ in 0..ROUND_TRIPS {
            let sent = now();
            self.send(&Order::Ask)?;
            let of = |report| if let Report::Clock { nanos } = report { Some(nanos) } else { None };
            let agent = self.expect(look, of)?;
            trips.push(RoundTrip { sent, agent, received: now() });
        }
        self.clock = Comparison::of(&trips);
        Ok(())
    }

    fn clock(&self) -> Comparison {
        self.clock.expect("clocks are compared before the start")
    }
}

/// Waits for a report of each agent. An agent that goes away ends the wait for all.
fn expect_of_all(
    members: &mut [Member<'_>],
    look: &mut dyn FnMut() -> Result<()>,
    is_it: fn(&Report) -> bool,
) -> Result<()> {
    for at in 0..members.len() {
        let (asked, later) = members.split_at_mut(at + 1);
        let mut look_at_all = || {
            look()?;
            let gone = later.iter().find(|other| other.talk.has_gone());
            gone.map_or(Ok(()), |gone| Err(of_agent(gone.name, Ended::There("has gone".to_owned()))))
        };
        asked[at].expect(&mut look_at_all, |report| is_it(&report).then_some(()))?;
    }
    Ok(())
}

/// Orders all agents to start at one time, which it returns.
fn start(members: &mut [Member<'_>], epoch: Instant) -> Result<Instant> {
    let uncertainty = members.iter().map(|member| member.clock().uncertainty).max().unwrap_or_default();
    let at = epoch.elapsed() + LEAD + 4 * uncertainty;
    let at_nanos = nanos(at);
    for member in members {
        let order = Order::Start { at_nanos: member.clock().there(at_nanos) };
        member.send(&order)?;
    }
    Ok(epoch + at)
}

/// The accounts of all agents.
struct Heard {
    outcome: Outcome,
    elapsed: Duration,
    busy: f64,
    concert: Concert,
}

/// Lets all agents close their connections, and puts their accounts together.
fn hear(members: &mut [Member<'_>], look: &mut dyn FnMut() -> Result<()>) -> Result<Heard> {
    for member in &mut *members {
        member.send(&Order::Finish)?;
    }
    let mut shares: Vec<(Comparison, Share)> = Vec::new();
    for member in members {
        let of = |report| if let Report::Result(share) = report { Some(*share) } else { None };
        let share = member.expect(look, of)?;
        shares.push((member.clock(), share));
    }
    Ok(put_together(&shares))
}

/// Adds accounts. The time is that from the first start to the last arrival, by our own clock.
fn put_together(shares: &[(Comparison, Share)]) -> Heard {
    let starts = shares.iter().map(|(clock, share)| clock.here(share.started_nanos));
    let ends =
        shares.iter().map(|(clock, share)| clock.here(share.started_nanos) + i128::from(share.elapsed_nanos));
    let (first, last) = (starts.clone().min().unwrap_or_default(), starts.max().unwrap_or_default());
    let duration = |nanos: i128| Duration::from_nanos(u64::try_from(nanos).unwrap_or_default());
    let mut outcome = Outcome::default();
    shares.iter().for_each(|(_, share)| outcome.add(share.outcome()));
    Heard {
        outcome,
        elapsed: duration(ends.max().unwrap_or_default() - first),
        busy: shares.iter().map(|(_, share)| share.busy).fold(0.0, f64::max),
        concert: Concert {
            uncertainty: shares.iter().map(|(clock, _)| clock.uncertainty).max().unwrap_or_default(),
            spread: duration(last - first),
        },
    }
}

/// The failure of an agent, which ends the shoot-out: the other servers would have less load.
fn of_agent(name: &str, ended: Ended) -> Error {
    match ended {
        Ended::There(why) => {
            let why = std::io::Error::other(format!("it {}", wire::Shown(why)));
            Error::io(format!("use the agent {}", wire::Shown(name)))(why)
        }
        Ended::Here(error) => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_run_goes_from_the_first_start_to_the_last_arrival() {
        let clock =
            |ahead: u64| Comparison::of(&[RoundTrip { sent: 0, agent: ahead + 50, received: 100 }]).unwrap();
        let share = |messages, started_nanos, elapsed_nanos| Share {
            messages,
            started_nanos,
            elapsed_nanos,
            busy: 0.5,
            ..Share::default()
        };
        // The first one starts at 1,000 of our clock, and the other one 20 later.
        let heard = put_together(&[(clock(7_000), share(3, 8_000, 500)), (clock(0), share(4, 1_020, 700))]);
        assert_eq!(heard.outcome.messages, 7);
        assert_eq!(heard.elapsed, Duration::from_nanos(720));
        assert_eq!(heard.concert.spread, Duration::from_nanos(20));
        assert_eq!(heard.concert.uncertainty, Duration::from_nanos(50));
    }
}
