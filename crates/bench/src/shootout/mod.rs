//! `pondhawk shootout`: an honest, repeatable comparison of MQTT brokers.
//!
//! ```text
//! description (TOML) ─► peers, workloads ─► course: rounds of runs ─► results ─► report: HTML, Markdown, JSON
//! ```
//!
//! - `description` reads the file, `peer` starts servers, and `workload` is one test.
//! - `course` has the rounds, `memory` looks at servers meanwhile, and `claims` kills servers that claim durability.
//! - `results` are the figures, `quantity` has their units, and `statistics` says how far apart figures have to be.
//! - `agents` divide a load among generators on several machines.
//! - `balancing` has load balancers in front of replicas of a server.
//! - `findings` and `faults` put figures into words.
//! - `report` makes the pages. `agreement` compares two runs.

mod agents;
mod agreement;
mod balancing;
mod claims;
mod course;
mod description;
mod faults;
mod findings;
#[cfg(test)]
mod fixture;
mod memory;
mod peer;
mod quantity;
mod report;
mod results;
mod statistics;
mod workload;

use std::net::IpAddr;
#[cfg(test)]
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{env, fs};

use crate::args::{ShootoutArgs, ShootoutCommand};
use crate::error::{Error, Result};
use crate::host::{self, CpuList};
use crate::interrupt::Interrupt;
use crate::layers::{Over, Trust, TrustArgs};
use crate::measure::Generator;
use crate::scratch::file_system_of;

use self::agents::{Fleet, Token};
use self::agreement::Agreement;
use self::balancing::Plan;
use self::description::{BuiltIn, Description};
use self::peer::{Peer, Places};
use self::results::{Claim, Layered, Machine, Results, Server};
use self::workload::{Source, Workload};

/// A run that has not ended after this many times its planned duration has failed.
const PATIENCE_FACTOR: f64 = 20.0;

/// And not before this time.
const PATIENCE_MIN: Duration = Duration::from_secs(60);

/// What all runs have in common.
struct Setting {
    rounds_min: u32,
    rounds_max: u32,
    precision: f64,
    seconds: f64,
    warm_up_seconds: f64,
    run_patience: Duration,
    /// Folders of servers are made in it.
    folder: PathBuf,
    /// The certificate of servers whose connections have TLS.
    trust: Trust,
    server_cpus: Option<CpuList>,
    balancer_cpus: Option<CpuList>,
    generator: Generator,
    /// Generators on other machines, instead of this one.
    agents: Option<Fleet>,
    /// The address of servers.
    address: IpAddr,
    interrupt: Interrupt,
}

/// Compares servers, or makes the report again from figures.
///
/// Returns success if there is a report, whatever it says about servers.
///
/// # Errors
/// If the description is wrong, nothing can be compared, the machine refuses something, or there is an interrupt.
pub(crate) fn run(args: &ShootoutArgs) -> Result<ExitCode> {
    if let Some(ShootoutCommand::Agent(agent)) = &args.command {
        return agents::serve(agent);
    }
    if let Some(file) = &args.report_of {
        return write(&read(file)?, &args.output);
    }
    if let [first, second] = args.compare.as_slice() {
        let agreement = Agreement::of(&read(first)?, &read(second)?);
        print!("{}", agreement.in_words());
        let is_agreed = agreement.contradictions.is_empty() && agreement.count() > 0;
        return Ok(if is_agreed { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let description = match &args.file {
        Some(file) => Description::read(file)?,
        None if args.quick => Description::built_in(BuiltIn::Quick)?,
        None if args.balancers => Description::built_in(BuiltIn::Balancers)?,
        None => Description::built_in(BuiltIn::Full)?,
    };
    let places = Places::find()?;
    let balancers = Plan::of(&description, args, &places)?;
    let entries = description.chosen_servers(&args.servers)?;
    let peers: Vec<Peer> = entries.into_iter().map(|entry| Peer::new(entry, places.clone())).collect();
    if args.list {
        list(&peers, &description);
        balancers.iter().for_each(Plan::list);
        return Ok(ExitCode::SUCCESS);
    }
    let workloads: Vec<Workload> = description
        .chosen_workloads(&args.workloads)?
        .into_iter()
        .map(Workload::new)
        .collect::<Result<_>>()?;
    if !args.agents.is_empty() {
        workloads.iter().try_for_each(Workload::check_divisible)?;
    }
    let behind = balancers.as_ref().map_or(0, Plan::connections_max);
    let connections = workloads.iter().map(Workload::connections_max).max().unwrap_or(0);
    host::raise_descriptor_limit(connections.max(behind))?;
    fs::create_dir_all(&args.output)
        .map_err(Error::io(format!("make {}", wire::Shown(args.output.display()))))?;
    let setting = setting(args, &description, &workloads)?;
    let plans = Plans { peers, workloads: &workloads, balancers: balancers.as_ref() };
    let results = compare(&setting, &description, plans)?;
    let written = write(&results, &args.output);
    // All servers have ended by now.
    setting.interrupt.take_effect()?;
    written
}

/// Reads the figures of a run.
fn read(file: &Path) -> Result<Results> {
    let text =
        fs::read_to_string(file).map_err(Error::io(format!("read {}", wire::Shown(file.display()))))?;
    let wrong = |error| Error::Arguments(format!("{}: {error}", wire::Shown(file.display())));
    serde_json::from_str(&text).map_err(wrong)
}

fn setting(args: &ShootoutArgs, description: &Description, workloads: &[Workload]) -> Result<Setting> {
    let cpus = |own: &Option<CpuList>, text: &Option<String>| match (own, text) {
        (Some(cpus), _) => Ok(Some(cpus.clone())),
        (None, Some(text)) => text.parse().map(Some).map_err(Error::Arguments),
        (None, None) => Ok(None),
    };
    let rounds_max = args.rounds.unwrap_or(description.rounds_max);
    let seconds = args.seconds.map_or(description.seconds, |seconds| seconds.as_secs_f64());
    let patience = Duration::from_secs_f64(seconds * PATIENCE_FACTOR).max(PATIENCE_MIN);
    let generator_cpus = cpus(&args.pin, &description.generator_cpus)?;
    let server_cpus = cpus(&args.server_cpu, &description.server_cpus)?;
    let of_balancers = description.balancing.as_ref().and_then(|balancing| balancing.cpus.clone());
    let folder = args.output.canonicalize();
    let folder = folder.map_err(Error::io(format!("find {}", wire::Shown(args.output.display()))))?;
    let has_tls = workloads.iter().any(|workload| workload.over.has_tls());
    Ok(Setting {
        trust: Trust::new(&TrustArgs::default(), has_tls, has_tls)?,
        rounds_min: description.rounds_min.min(rounds_max),
        rounds_max,
        precision: description.precision,
        seconds,
        warm_up_seconds: description.warm_up_seconds.min(seconds),
        run_patience: patience,
        folder,
        balancer_cpus: cpus(&None, &of_balancers)?.or_else(|| server_cpus.clone()),
        server_cpus,
        generator: Generator {
            workers: generator_cpus.as_ref().map_or(1, CpuList::count),
            cpus: generator_cpus,
            version: wire::Version::V3_1_1,
        },
        agents: fleet(args)?,
        address: args.address,
        interrupt: Interrupt::on_signals()?,
    })
}

/// The agents of the arguments.
fn fleet(args: &ShootoutArgs) -> Result<Option<Fleet>> {
    let Some(file) = args.token_file.as_ref().filter(|_| !args.agents.is_empty()) else { return Ok(None) };
    Ok(Some(Fleet::new(args.agents.clone(), Token::read(file)?)))
}

impl Setting {
    /// The place from which loads come.
    fn source(&self) -> Source<'_> {
        self.agents.as_ref().map_or(Source::Here(&self.generator), Source::Agents)
    }
}

/// Everything that is measured.
struct Plans<'a> {
    peers: Vec<Peer>,
    workloads: &'a [Workload],
    balancers: Option<&'a Plan>,
}

fn compare(setting: &Setting, description: &Description, plans: Plans<'_>) -> Result<Results> {
    let started = Instant::now();
    let Plans { peers, workloads, balancers } = plans;
    let servers: Vec<Server> = peers.iter().map(|peer| server(peer, workloads)).collect();
    for server in &servers {
        eprintln!("{}: {}", server.name, server.absence.as_deref().unwrap_or(&server.version));
    }
    let peers: Vec<Peer> = peers.into_iter().filter(|peer| peer.absence().is_none()).collect();
    if peers.is_empty() && balancers.is_none() {
        return Err(Error::Arguments("none of the servers is installed".to_owned()));
    }
    let mut results = Results {
        title: description.title.clone(),
        command: command_line(),
        machine: machine(setting)?,
        seconds: 0.0,
        interruption: None,
        servers,
        workloads: Vec::new(),
        claims: Vec::new(),
        balancing: None,
    };
    // A night is not lost if the machine goes away in its last hour.
    let keep = |so_far: &Results| {
        let so_far = Results {
            seconds: started.elapsed().as_secs_f64(),
            interruption: Some("the shoot-out was under way".to_owned()),
            ..so_far.clone()
        };
        save(&so_far, &setting.folder)
    };
    let mut measured = Vec::new();
    let base = results.clone();
    let ended = course::run(setting, &peers, workloads, &mut measured, |workloads| {
        keep(&Results { workloads: workloads.to_vec(), ..base.clone() })
    });
    results.workloads = measured;
    let ended = ended.and_then(|()| {
        if description.check_claims {
            results.claims = check_claims(setting, &peers)?;
        }
        balancers.map_or(Ok(()), |plan| plan.run(setting, &mut results, keep))
    });
    results.seconds = started.elapsed().as_secs_f64();
    results.interruption = ended.err().map(|error| error.to_string());
    Ok(results)
}

/// Kills each server that claims durability, and counts.
fn check_claims(setting: &Setting, peers: &[Peer]) -> Result<Vec<Claim>> {
    let mut claims = Vec::new();
    for peer in peers.iter().filter(|peer| peer.entry.durable.is_some()) {
        eprintln!("killed while it acknowledges: {}", peer.name());
        claims.extend(claims::check(peer, setting)?);
    }
    Ok(claims)
}

/// A server with its settings for these workloads.
fn server(peer: &Peer, workloads: &[Workload]) -> Server {
    let absence = peer.absence();
    let version = if absence.is_none() { peer.version() } else { String::new() };
    let entry = &peer.entry;
    let is_used = |over: Over| workloads.iter().any(|workload| workload.over == over);
    let used = entry.layers.iter().filter(|(over, _)| is_used(**over));
    let untried = "the recipe follows the documentation of the broker, and nobody has run it yet".to_owned();
    Server {
        name: entry.name.clone(),
        language: entry.language.clone(),
        version,
        command: entry.command.clone(),
        files: entry.files.clone().into_iter().collect(),
        fairness: entry.fairness.clone(),
        notes: if entry.tried { entry.notes.clone() } else { [&entry.notes[..], &[untried]].concat() },
        layers: used.map(|(over, layered)| Layered::new(*over, layered, &entry.command)).collect(),
        absence,
    }
}

fn machine(setting: &Setting) -> Result<Machine> {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let of = |text: &str, field: &str| {
        let line = text.lines().find(|line| line.starts_with(field)).unwrap_or_default();
        line.split_once(':').map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
    };
    let memory = of(&text("/proc/meminfo"), "MemTotal");
    let kibibytes: u64 = memory.trim_end_matches(" kB").parse().unwrap_or_default();
    Ok(Machine {
        started: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        processor: of(&text("/proc/cpuinfo"), "model name"),
        processors: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        memory_bytes: kibibytes * 1024,
        kernel: text("/proc/sys/kernel/osrelease").trim().to_owned(),
        server_cpus: setting.server_cpus.as_ref().map(ToString::to_string),
        generator_cpus: setting.generator.cpus.as_ref().map(ToString::to_string),
        generator: env!("CARGO_PKG_VERSION").to_owned(),
        file_system: file_system_of(&setting.folder),
        agents: setting.agents.as_ref().map(Fleet::describe).transpose()?.unwrap_or_default(),
    })
}

/// The command as somebody types it, without the path of the program.
fn command_line() -> String {
    let mut words = env::args();
    let program = words.next().unwrap_or_default();
    let program = Path::new(&program).file_name().map(|name| name.to_string_lossy().into_owned());
    program.into_iter().chain(words).collect::<Vec<_>>().join(" ")
}

fn list(peers: &[Peer], description: &Description) {
    println!("{}", description.title);
    if !peers.is_empty() {
        println!("\nServers:");
    }
    for peer in peers {
        let state = peer.absence().unwrap_or_else(|| peer.version());
        println!("  {:<12} {:<11} {state}", peer.name(), peer.entry.language);
    }
    if !description.workloads.is_empty() {
        println!("\nWorkloads:");
    }
    for workload in &description.workloads {
        println!(
            "  {:<16} {}\n  {:<16} pondhawk bench {}",
            workload.name, workload.title, "", workload.bench
        );
    }
}

/// Writes the figures, through a file beside them: there is never half of them.
fn save(results: &Results, folder: &Path) -> Result<()> {
    let json =
        serde_json::to_string_pretty(results).expect("every key is a text, and every value can be written");
    let (path, beside) = (folder.join("results.json"), folder.join("results.json.new"));
    let written = fs::write(&beside, json).and_then(|()| fs::rename(&beside, &path));
    written.map_err(Error::io(format!("write {}", wire::Shown(path.display()))))
}

fn write(results: &Results, folder: &Path) -> Result<ExitCode> {
    fs::create_dir_all(folder)
        .map_err(Error::io(format!("make the directory {}", wire::Shown(folder.display()))))?;
    save(results, folder)?;
    let markdown = report::markdown(results);
    for (name, text) in [("report.md", markdown.clone()), ("report.html", report::html(results)?)] {
        let path = folder.join(name);
        fs::write(&path, text).map_err(Error::io(format!("write {}", wire::Shown(path.display()))))?;
    }
    println!("{markdown}\nThe report is {}.", wire::Shown(folder.join("report.html").display()));
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
impl Setting {
    /// One short round, in the folder for temporary files.
    fn of_tests() -> Self {
        Self {
            rounds_min: 1,
            rounds_max: 1,
            precision: 1.0,
            seconds: 0.1,
            warm_up_seconds: 0.1,
            run_patience: PATIENCE_MIN,
            folder: env::temp_dir(),
            trust: Trust::default(),
            server_cpus: None,
            balancer_cpus: None,
            generator: Generator { workers: 1, cpus: None, version: wire::Version::V3_1_1 },
            agents: None,
            address: Ipv4Addr::LOCALHOST.into(),
            interrupt: Interrupt::default(),
        }
    }
}
