//! Attacks on a server, and what they cost innocent clients.
//!
//! In each round, each attack meets each server once, freshly started:
//!
//! ```text
//! innocents alone ── attackers prepare ── attack ── attackers are cut ── until all is as before
//!     "before"          "under attack"                                     "recovered after"
//! ```
//!
//! The first attack does nothing: its row shows how much the figures differ on this machine without any attack. The
//! attackers run at the lowest priority. Otherwise the latency of innocent clients on the same processor would contain
//! the time in which the attackers prepare their packets.
//!
//! Attackers that only connect and are refused strike twice: first a decoy on the processors of the server, then the
//! server. The first strike shows the part of the harm that the machine and the generator do, whatever the server is.
//!
//! `attack` has the attacks, `innocent` the clients that are measured, `packets` the bytes, `verdict` the rules.

mod attack;
mod innocent;
mod packets;
mod peer;
mod verdict;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use crate::args::HostileArgs;
use crate::error::{Error, Result};
use crate::host;
use crate::interrupt::Interrupt;
use crate::layers::{Over, Trust};
use crate::process::Process;
use crate::server::Contender;
use crate::table::{Section, Table};

use self::attack::{ATTACKS, Arena, Attack, Conduct};
use self::innocent::{Innocents, Login};
use self::verdict::{Finding, Held, Look, Round, Rules};

/// Descriptors that attackers may need.
const DESCRIPTORS: u64 = 4_096;
/// Divisor of all numbers in the short form of an attack.
const SHORT_DIVISOR: usize = 20;
/// Times that the short form tries an attack until the rules are kept: it measures for less than a second, and what else
/// the machine does in that second is chance.
const SHORT_TRIES: usize = 3;
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
        tries: if args.short { SHORT_TRIES } else { 1 },
        rounds: args.comparison.repeat,
        rules: if args.short { Rules::SHORT } else { Rules::LONG },
        cpus: args.comparison.server_cpu.clone(),
        decoy: Contender::decoy(own_words),
        login: args.user.map(|user| Login { user, password: args.password.unwrap_or_default() }),
    };
    if let Some(cpus) = &args.comparison.pin {
        cpus.confine_this_thread()?;
    }
    let contenders = args.comparison.contenders(own_words);
    if contenders.iter().any(|contender| contender.over != Over::Tcp) {
        return Err(Error::Arguments("attacks come over TCP alone: leave --over out".to_owned()));
    }
    let mut sections = Vec::new();
    let mut faults = Vec::new();
    for attack in attacks {
        eprintln!("{}: {}", attack.name, attack.what);
        let mut rows = Vec::new();
        for (place, (contender, finding)) in
            contenders.iter().zip(plan.meet_all(attack, &contenders, &interrupt)?).enumerate()
        {
            let broken = finding.broken_rules(plan.rules);
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

/// Settings for each attack.
struct Plan {
    /// Time that innocent clients are measured, before the attack and during it.
    duration: Duration,
    divisor: usize,
    tries: usize,
    rounds: u32,
    rules: Rules,
    cpus: Option<host::CpuList>,
    /// Takes the place of the server in attacks that suit it.
    decoy: Contender,
    /// The login of the innocent clients; without one they are anonymous.
    login: Option<Login>,
}

impl Plan {
    fn title(&self) -> String {
        let size = if self.divisor == 1 { "" } else { ", in short" };
        format!(
            "hostile: MQTT 5.0, innocent clients for {} s before and under attack{size}",
            self.duration.as_secs_f64()
        )
    }

    /// Lets an attack meet each server in each round. Returns a finding for each server.
    fn meet_all(
        &self,
        attack: &Attack,
        contenders: &[Contender],
        interrupt: &Interrupt,
    ) -> Result<Vec<Finding>> {
        let mut findings: Vec<Option<Finding>> = contenders.iter().map(|_| None).collect();
        for _ in 0..self.rounds {
            for (contender, finding) in contenders.iter().zip(&mut findings) {
                let next = self.try_attack(attack, contender, interrupt)?;
                *finding = Some(match finding.take() {
                    Some(before) => before.and(next),
                    None => next,
                });
            }
        }
        Ok(findings.into_iter().flatten().collect())
    }

    /// Carries out an attack, again if it breaks a rule and may be tried again. Returns the last finding.
    fn try_attack(&self, attack: &Attack, contender: &Contender, interrupt: &Interrupt) -> Result<Finding> {
        let mut tries = 0;
        loop {
            let finding = match self.meet(attack, contender, interrupt) {
                Ok(round) => Finding::Measured(vec![round]),
                Err(Error::Server(what)) => Finding::Failed(what),
                Err(error) => return Err(error),
            };
            tries += 1;
            if tries >= self.tries || finding.broken_rules(self.rules).is_empty() {
                return Ok(finding);
            }
        }
    }

    fn meet(&self, attack: &Attack, contender: &Contender, interrupt: &Interrupt) -> Result<Round> {
        let server = contender.start(self.cpus.as_ref(), &Trust::default(), interrupt)?;
        let (address, process) = (server.target.address, server.target.servers.first());
        let innocents = Innocents::start(address, self.login.as_ref());
        // Connections are made, and caches are warm.
        self.wait(self.duration / 4, interrupt)?;
        innocents.take();
        self.wait(self.duration, interrupt)?;
        let (alone, held_before) = (innocents.take(), held(process));
        if let Some(process) = process {
            process.reset_peak();
        }
        let beside_decoy = if attack.suits_decoy {
            let decoy = self.decoy.start(self.cpus.as_ref(), &Trust::default(), interrupt)?;
            innocents.take();
            let (conduct, _attackers) = self.attack(attack, decoy.target.address, interrupt);
            interrupt.check()?;
            if let Some(why) = conduct.fault() {
                return Err(Error::Server(format!("on the decoy, {why}")));
            }
            Some(innocents.take())
        } else {
            None
        };
        let (conduct, arena) = self.attack(attack, address, interrupt);
        let under_attack = innocents.take();
        let peak_bytes = process.and_then(Process::peak_bytes);
        drop(arena);
        interrupt.check()?;
        let (after, recovery) = wait_until_recovered(&innocents, process, held_before, interrupt)?;
        Ok(Round { alone, beside_decoy, under_attack, conduct, held_before, peak_bytes, after, recovery })
    }

    /// Prepares and carries out an attack, for as long as innocent clients are measured. The attackers stay connected as long
    /// as the arena lives.
    fn attack(&self, attack: &Attack, address: SocketAddr, interrupt: &Interrupt) -> (Conduct, Arena) {
        let mut arena =
            Arena::new(address, self.divisor, self.login.as_ref().map(|login| login.user.as_str()));
        let conduct = thread::scope(|scope| {
            let attackers = scope.spawn(|| {
                host::yield_to_others();
                if let Err(error) = attack.prepare(&mut arena) {
                    return Conduct { unprepared: Some(error.to_string()), ..Conduct::default() };
                }
                let until = Instant::now() + self.duration;
                attack.carry_out(&mut arena, || Instant::now() >= until || interrupt.check().is_err())
            });
            attackers.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        (conduct, arena)
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

/// Waits until all is about as before, or the time for that is over. Returns what was seen last, and after how long.
fn wait_until_recovered(
    innocents: &Innocents,
    process: Option<Process>,
    before: Held,
    interrupt: &Interrupt,
) -> Result<(Look, Duration)> {
    let began = Instant::now();
    innocents.take();
    loop {
        thread::sleep(LOOK_INTERVAL);
        interrupt.check()?;
        let look = Look { accounts: innocents.take(), held: held(process) };
        let elapsed = began.elapsed();
        if look.differences(before).is_empty() || elapsed > verdict::RECOVERY_MAX {
            return Ok((look, elapsed));
        }
    }
}

fn held(process: Option<Process>) -> Held {
    Held {
        memory_bytes: process.and_then(Process::resident_bytes),
        disk_bytes: process.map(Process::open_file_bytes),
    }
}
