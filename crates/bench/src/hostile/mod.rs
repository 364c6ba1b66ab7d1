//! Attacks on a server, and what they cost innocent clients.
//!
//! Each attack meets each server once, freshly started:
//!
//! ```text
//! innocents alone ── attackers prepare ── attack ── attackers are cut ── until all is as before
//!     "before"          "under attack"                                     "recovered after"
//! ```
//!
//! `attack` has the attacks, `innocent` the clients that are measured, `packets` the bytes, `verdict` the rules.

mod attack;
mod innocent;
mod packets;
mod peer;
mod verdict;

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use crate::args::HostileArgs;
use crate::error::{Error, Result};
use crate::host;
use crate::interrupt::Interrupt;
use crate::process::Process;
use crate::server::Contender;
use crate::table::{Section, Table};

use self::attack::{ATTACKS, Arena, Attack};
use self::innocent::{Account, Innocents};
use self::verdict::{Finding, Held};

/// Descriptors that attackers may need.
const DESCRIPTORS: u64 = 4_096;
/// The short form of an attack is so many times smaller.
const SHORT_DIVISOR: usize = 20;
/// Time between two looks at whether a server is as it was.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// Attacks each server in turn, and prints what that cost its innocent clients.
///
/// Returns success if the first server keeps all the rules of [`verdict`].
///
/// # Errors
/// If there is no such attack, or a server cannot be started.
pub(crate) fn run(args: HostileArgs, own_words: &[&str]) -> Result<ExitCode> {
    let attacks = chosen(&args.attacks)?;
    host::raise_descriptor_limit(DESCRIPTORS)?;
    let interrupt = Interrupt::on_signals()?;
    let plan = Plan {
        duration: args.duration,
        divisor: if args.short { SHORT_DIVISOR } else { 1 },
        cpus: args.comparison.server_cpu.clone(),
    };
    if let Some(cpus) = &args.comparison.pin {
        cpus.confine_this_thread()?;
    }
    let contenders = args.comparison.contenders(own_words);
    let mut sections = Vec::new();
    let mut faults = Vec::new();
    for attack in attacks {
        eprintln!("{}: {}", attack.name, attack.what);
        let mut rows = Vec::new();
        for (place, contender) in contenders.iter().enumerate() {
            let finding = match plan.meet(attack, contender, &interrupt) {
                Ok(finding) => finding,
                Err(Error::Server(what)) => Finding::failed(what),
                Err(error) => return Err(error),
            };
            let broken = finding.broken_rules(!args.short);
            if place == 0 {
                faults.extend(broken.iter().map(|rule| format!("{}: {rule}", attack.name)));
            }
            rows.push(finding.row(&contender.name, &broken));
        }
        sections.push(Section { title: attack.name.to_owned(), rows });
    }
    interrupt.take_effect()?;
    let headings = verdict::HEADINGS.iter().map(|heading| (*heading).to_owned()).collect();
    let notes = faults.iter().map(|fault| format!("FAILED: {}: {fault}", contenders[0].name)).collect();
    print!("{}", Table { title: plan.title(), headings, sections, notes });
    Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The attacks with these names, or all.
fn chosen(names: &[String]) -> Result<Vec<&'static Attack>> {
    if let Some(unknown) = names.iter().find(|name| ATTACKS.iter().all(|attack| attack.name != **name)) {
        let known: Vec<&str> = ATTACKS.iter().map(|attack| attack.name).collect();
        return Err(Error::Arguments(format!(
            "there is no attack `{unknown}`; there are: {}",
            known.join(", ")
        )));
    }
    let is_chosen = |attack: &&Attack| names.is_empty() || names.iter().any(|name| name == attack.name);
    Ok(ATTACKS.iter().filter(is_chosen).collect())
}

/// How each attack is run.
struct Plan {
    /// Time that innocent clients are measured, before the attack and during it.
    duration: Duration,
    divisor: usize,
    cpus: Option<host::CpuList>,
}

impl Plan {
    fn title(&self) -> String {
        let size = if self.divisor == 1 { "" } else { ", in short" };
        format!(
            "hostile: MQTT 5.0, innocent clients for {} s before and under attack{size}",
            self.duration.as_secs_f64()
        )
    }

    fn meet(&self, attack: &Attack, contender: &Contender, interrupt: &Interrupt) -> Result<Finding> {
        let server = contender.start(self.cpus.as_ref(), interrupt)?;
        let (address, process) = (server.target.address, server.target.process);
        let innocents = Innocents::start(address);
        // Connections are made, and caches are warm.
        self.wait(self.duration / 4, interrupt)?;
        innocents.take();
        self.wait(self.duration, interrupt)?;
        let (alone, held_before) = (innocents.take(), held(process));
        if let Some(process) = process {
            process.reset_peak();
        }
        let mut arena = Arena::new(address, self.divisor);
        // A server that defends itself so early is attacked with what there is.
        let _ = attack.prepare(&mut arena);
        interrupt.check()?;
        let until = Instant::now() + self.duration;
        attack.run(&mut arena, || Instant::now() >= until || interrupt.check().is_err());
        let under_attack = innocents.take();
        let peak_bytes = process.and_then(Process::peak_bytes);
        drop(arena);
        interrupt.check()?;
        let (recovered_after, held_after) =
            wait_until_recovered(&innocents, process, held_before, interrupt)?;
        Ok(Finding {
            failure: None,
            alone,
            under_attack,
            held_before,
            peak_bytes,
            held_after,
            recovered_after,
        })
    }

    fn wait(&self, duration: Duration, interrupt: &Interrupt) -> Result<()> {
        let until = Instant::now() + duration;
        while Instant::now() < until {
            interrupt.check()?;
            thread::sleep(LOOK_INTERVAL.min(until.saturating_duration_since(Instant::now())));
        }
        Ok(())
    }
}

/// Waits until nobody is refused any more and the server holds about what it held before; `None` if that takes too long.
fn wait_until_recovered(
    innocents: &Innocents,
    process: Option<Process>,
    before: Held,
    interrupt: &Interrupt,
) -> Result<(Option<Duration>, Held)> {
    let began = Instant::now();
    innocents.take();
    loop {
        thread::sleep(LOOK_INTERVAL);
        interrupt.check()?;
        let is_served = |account: &Account| account.refused == 0 && account.done > 0;
        let are_served = innocents.take().iter().all(is_served);
        let now = held(process);
        if are_served && now.is_about(before) {
            return Ok((Some(began.elapsed()), now));
        }
        if began.elapsed() > verdict::RECOVERY_MAX {
            return Ok((None, now));
        }
    }
}

fn held(process: Option<Process>) -> Held {
    Held {
        memory_bytes: process.and_then(Process::resident_bytes),
        disk_bytes: process.map(Process::open_file_bytes),
    }
}
