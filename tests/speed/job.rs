//! A process with one library and one thing to do, and what it takes to do it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, thread};

use nix::sys::resource::{UsageWho, getrusage};
use pondhawk_tests::{Broker, Options};

use crate::{ours, rumqttc};

pub(crate) const TOPIC: &str = "flood";
pub(crate) const PAYLOAD_BYTES: usize = 100;

/// Number of messages of QoS 1 without acknowledgement, in either direction: Receive Maximum of the broker and of each
/// client.
pub(crate) const WINDOW: u16 = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Library {
    Ours,
    Rumqttc,
    Paho,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Publish,
    Receive,
}

/// Role of a child.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Job {
    pub(crate) library: Library,
    pub(crate) role: Role,
    pub(crate) port: u16,
    pub(crate) qos: u8,
    pub(crate) messages: usize,
}

/// Duration of a round.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measured {
    pub(crate) messages: usize,
    pub(crate) publish_cpu: Duration,
    pub(crate) receive_cpu: Duration,
    pub(crate) took: Duration,
}

impl Library {
    pub(crate) const ALL: [Self; 3] = [Self::Ours, Self::Rumqttc, Self::Paho];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ours => "pondhawk-client",
            Self::Rumqttc => "rumqttc",
            Self::Paho => "paho.golang",
        }
    }
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::Receive => "receive",
        }
    }
}

impl Job {
    /// As [`command`](Self::command) writes them.
    pub(crate) fn of_arguments(arguments: &[String]) -> Option<Self> {
        let [library, role, port, qos, messages] = arguments else { return None };
        Some(Self {
            library: Library::ALL.into_iter().find(|known| known.name() == library)?,
            role: [Role::Publish, Role::Receive].into_iter().find(|known| known.name() == role)?,
            port: port.parse().ok()?,
            qos: qos.parse().ok()?,
            messages: messages.parse().ok()?,
        })
    }

    pub(crate) fn carry_out(self) -> Result<(), String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        match (self.library, self.role) {
            (Library::Ours, Role::Publish) => runtime.block_on(ours::publish(self)),
            (Library::Ours, Role::Receive) => runtime.block_on(ours::receive(self)),
            (Library::Rumqttc, Role::Publish) => runtime.block_on(rumqttc::publish(self)),
            (Library::Rumqttc, Role::Receive) => runtime.block_on(rumqttc::receive(self)),
            (Library::Paho, _) => return Err("paho.golang has a program of its own".to_owned()),
        }
        .map_err(|error| error.to_string())
    }

    fn command(self) -> Result<Command, String> {
        let mut words = clients_cpu();
        if self.library == Library::Paho {
            let flood = pondhawk_tests::flood().into_os_string().into_string();
            words.push(flood.map_err(|_| "the tools lie in a folder that is no text")?);
        } else {
            let own = env::current_exe().map_err(|error| error.to_string())?;
            words.push(own.to_string_lossy().into_owned());
            words.extend(["child".to_owned(), self.library.name().to_owned()]);
        }
        words.push(self.role.name().to_owned());
        words.extend([self.port.to_string(), self.qos.to_string(), self.messages.to_string()]);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdout(Stdio::piped());
        Ok(command)
    }

    fn start(self) -> Result<Child, String> {
        self.command()?.spawn().map_err(|error| format!("{self:?}: {error}"))
    }
}

/// Line that a receiver prints when everything that is published will reach it.
pub(crate) const READY: &str = "ready";

/// A round: a new broker, a process that receives and one that publishes.
pub(crate) fn measure(library: Library, qos: u8, messages: usize) -> Result<Measured, String> {
    let settings = format!("[sessions]\nreceive_maximum = {WINDOW}\n");
    let broker = Broker::start(&Options { settings, ..Options::default() });
    confine(&broker)?;
    let job = |role| Job { library, role, port: broker.address().port(), qos, messages };
    let mut receiver = job(Role::Receive).start()?;
    if first_line(&mut receiver).as_deref() != Some(READY) {
        return Err(format!("{} does not subscribe", library.name()));
    }
    let began = Instant::now();
    let publisher = job(Role::Publish).start()?;
    // Usage of a child is counted when it is waited for.
    let publish_cpu = cpu_of(publisher)?;
    let receive_cpu = cpu_of(receiver)?;
    Ok(Measured { messages, publish_cpu, receive_cpu, took: began.elapsed() })
}

/// The first line that a child prints.
pub(crate) fn first_line(child: &mut Child) -> Option<String> {
    BufReader::new(child.stdout.take()?).lines().next()?.ok()
}

/// User and system time of a child, which is waited for.
fn cpu_of(mut child: Child) -> Result<Duration, String> {
    let before = cpu_of_children()?;
    let status = child.wait().map_err(|error| error.to_string())?;
    if !status.success() {
        return Err(format!("a client failed: {status}"));
    }
    Ok(cpu_of_children()?.saturating_sub(before))
}

fn cpu_of_children() -> Result<Duration, String> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).map_err(|error| error.to_string())?;
    let seconds = [usage.user_time(), usage.system_time()].map(|time| {
        let micros = time.tv_sec() * 1_000_000 + time.tv_usec();
        Duration::from_micros(u64::try_from(micros).unwrap_or_default())
    });
    Ok(seconds.iter().sum())
}

/// With two processors, the broker has the first and the clients the second.
fn is_pinned() -> bool {
    let has_taskset = Path::new("/usr/bin/taskset").exists();
    has_taskset && thread::available_parallelism().is_ok_and(|count| count.get() > 1)
}

fn clients_cpu() -> Vec<String> {
    if is_pinned() { ["taskset", "-c", "1"].map(str::to_owned).to_vec() } else { Vec::new() }
}

fn confine(broker: &Broker) -> Result<(), String> {
    if !is_pinned() {
        return Ok(());
    }
    let mut taskset = Command::new("taskset");
    taskset.args(["-a", "-p", "-c", "0", &broker.process_id().to_string()]).stdout(Stdio::null());
    let status = taskset.status().map_err(|error| format!("taskset: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("taskset: {status}")) }
}
