//! An agent: a generator that runs its part of a load when a coordinator asks for it.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use super::super::workload::{Part, Workload};
use super::talk::{Ended, Job, Order, PROTOCOL, Report, Share, Talk};
use super::token::{Side, Token, nonce};
use crate::args::AgentArgs;
use crate::error::{Error, Result};
use crate::host;
use crate::layers::Trust;
use crate::load::nanos;
use crate::measure::{Conductor, Generator, Target};
use crate::server::target;

/// Time limit for each line of a coordinator that has not proved that it has the token.
const GREETING_PATIENCE: Duration = Duration::from_secs(5);

/// Time limit for the other agents: to be ready, and to come to their end.
const OTHERS_PATIENCE: Duration = Duration::from_secs(600);

/// Latest start after the order for it.
const START_MAX: Duration = Duration::from_secs(60);

/// A generator that works for others, one coordinator at a time.
struct Agent {
    token: Token,
    generator: Generator,
    /// The beginning of its clock.
    epoch: Instant,
}

/// The coordinator decides when the threads start and end.
struct Remote<'a> {
    talk: &'a mut Talk,
    epoch: Instant,
    started: Instant,
}

/// Works for coordinators until the process is ended.
///
/// # Errors
/// If the token cannot be read, or nobody can connect.
pub(in super::super) fn serve(args: &AgentArgs) -> Result<ExitCode> {
    let generator =
        Generator { workers: args.threads.into(), cpus: args.pin.clone(), version: wire::Version::V3_1_1 };
    let agent = Agent { token: Token::read(&args.token_file)?, generator, epoch: Instant::now() };
    let listener = TcpListener::bind(args.listen).map_err(Error::io(format!("listen on {}", args.listen)))?;
    let address = listener.local_addr().map_err(Error::io("find the own address"))?;
    println!("listening on {address}");
    loop {
        match listener.accept() {
            // One at a time: a load that shares the machine with another one measures nothing.
            Ok((stream, coordinator)) => match agent.talk(stream, coordinator) {
                Ok(messages) => println!("{coordinator}: {messages} messages"),
                Err(Ended::There(why)) => println!("{coordinator}: {}", wire::Shown(why)),
                Err(Ended::Here(error)) => println!("{coordinator}: {}", wire::Shown(error)),
            },
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => return Err(Error::io("accept a connection")(error)),
        }
    }
}

impl Agent {
    /// Runs the load of one coordinator. Returns the number of messages that have arrived.
    fn talk(&self, stream: TcpStream, coordinator: SocketAddr) -> std::result::Result<u64, Ended> {
        let mut talk = Talk::new(stream).map_err(Error::io("prepare a connection")).map_err(Ended::Here)?;
        let job = self.greet(&mut talk)?;
        match self.run(&job, &mut talk, coordinator) {
            Ok(share) => {
                let messages = share.messages;
                talk.send(&Report::Result(Box::new(share)))?;
                Ok(messages)
            }
            Err(error) => {
                let is_of_server = matches!(error, Error::Server(_));
                talk.send(&Report::Failed { why: error.to_string(), is_of_server })?;
                Err(Ended::Here(error))
            }
        }
    }

    /// Lets the coordinator prove that it has the token. Returns its job.
    fn greet(&self, talk: &mut Talk) -> std::result::Result<Job, Ended> {
        let Order::Hello { protocol, nonce: theirs } = talk.receive(GREETING_PATIENCE, || Ok(()))? else {
            return Err(Ended::There("does not greet".to_owned()));
        };
        let own = nonce().map_err(Ended::Here)?;
        let nonces = [theirs, own];
        talk.send(&Report::Hello {
            protocol: PROTOCOL,
            nonce: own,
            proof: self.token.proof(Side::Agent, &nonces),
            threads: self.generator.workers,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        })?;
        if protocol != PROTOCOL {
            return Err(Ended::There(format!(
                "has version {protocol} of the protocol, and this agent {PROTOCOL}"
            )));
        }
        match talk.receive(GREETING_PATIENCE, || Ok(()))? {
            Order::Run { proof, job } if self.token.is_proof(&proof, Side::Coordinator, &nonces) => Ok(*job),
            _ => Err(Ended::There("does not have the token".to_owned())),
        }
    }

    fn run(&self, job: &Job, talk: &mut Talk, coordinator: SocketAddr) -> Result<Share> {
        let workload = Workload::of_words(&job.bench)?;
        workload.check_divisible()?;
        host::raise_descriptor_limit(workload.connections_max())?;
        let words = workload.words(job.size, job.amount)?;
        println!("{coordinator}: runs {} {words}", wire::Shown(&job.bench));
        let mut remote = Remote { talk, epoch: self.epoch, started: self.epoch };
        let part =
            Part { run: job.run, first: job.first, count: self.generator.workers, threads: job.threads };
        let measured = workload.run_part(
            (job.size, job.amount),
            part,
            &self.generator,
            &server(job, &workload)?,
            &mut remote,
        )?;
        let started = remote.started - self.epoch;
        Ok(Share {
            started_nanos: nanos(started),
            elapsed_nanos: nanos(measured.elapsed),
            busy: measured.generator_busy,
            ..Share::new(&measured.outcome)
        })
    }
}

/// The server of a job, with its replicas.
fn server(job: &Job, workload: &Workload) -> Result<Target> {
    let Some((address, further)) = job.addresses.split_first() else {
        return Err(Error::Arguments("the job has no server".to_owned()));
    };
    let first = target(*address, workload.over, &Trust::default(), None)?;
    Ok(Target { further: further.to_vec(), ..first })
}

impl Remote<'_> {
    fn order(&mut self) -> Result<Order> {
        self.talk.receive(OTHERS_PATIENCE, || Ok(())).map_err(of_coordinator)
    }

    fn report(&mut self, report: &Report) -> Result<()> {
        self.talk.send(report).map_err(of_coordinator)
    }
}

impl Conductor for Remote<'_> {
    fn look(&mut self, _arrived: u64, _expected: u64) -> Result<()> {
        if self.talk.has_gone() { Err(of_coordinator(Ended::There("has gone".to_owned()))) } else { Ok(()) }
    }

    /// Answers questions about the clock, and waits until the common start.
    fn wait_for_start(&mut self) -> Result<()> {
        self.report(&Report::Ready)?;
        loop {
            match self.order()? {
                Order::Ask => self.report(&Report::Clock { nanos: nanos(self.epoch.elapsed()) })?,
                Order::Start { at_nanos } => {
                    let wait = Duration::from_nanos(at_nanos).saturating_sub(self.epoch.elapsed());
                    if wait > START_MAX {
                        return Err(of_coordinator(Ended::There(format!("wants to start in {wait:?}"))));
                    }
                    thread::sleep(wait);
                    self.started = Instant::now();
                    return Ok(());
                }
                _ => return Err(of_coordinator(Ended::There("says something unexpected".to_owned()))),
            }
        }
    }

    fn wait_for_others(&mut self) -> Result<()> {
        self.report(&Report::Done)?;
        match self.order()? {
            Order::Finish => Ok(()),
            _ => Err(of_coordinator(Ended::There("says something unexpected".to_owned()))),
        }
    }
}

fn of_coordinator(ended: Ended) -> Error {
    match ended {
        Ended::There(why) => Error::Arguments(format!("the coordinator {why}")),
        Ended::Here(error) => error,
    }
}
