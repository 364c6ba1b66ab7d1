//! `pondhawk serve`: runs the broker.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use auth::Guard;
use config::Config;
use mosquitto::Kind;
use net::{Ended, Options, Orders, Server};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

use crate::admin::MainThread;
use crate::control::Controls;
use crate::file::Loaded;
use crate::log_line::Copies;
use crate::logging::Logging;
use crate::passed::Passed;
use crate::privileges::Successor;
use crate::process::PidFile;
use crate::recent::Recent;
use crate::reload::{Cause, Reload, named};
use crate::running::Running;
use crate::upkeep::Backups;
use crate::watchdog::Watchdog;
use crate::{FileLayer, admin, banner, certificates, limits, logging, otlp, process, store, variables};

/// Runs the broker until SIGTERM or SIGINT, then disconnects its clients and returns.
///
/// # Errors
/// An address cannot be listened on, the system refuses a thread, or a thread fails.
pub(crate) fn serve(loaded: &Loaded, reload: Reload, file_layer: FileLayer) -> io::Result<()> {
    let config = &loaded.config;
    // Before any thread runs.
    let passed = Passed::from_environment();
    if process::is_detached() {
        process::begin_session();
    }
    let successor = Successor::of(config)?;
    // Lives until the function returns, on every path: dropping it writes the waiting lines.
    let (log, otlp, recent) = start_log(config, successor.as_ref())?;
    // Before the server's threads start: from here on, a signal ends the broker in order.
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2])?;
    let (mut running, listeners, bound) = Running::open(loaded, passed)?;
    let bans_file = admin::bans_file(config);
    let admin = admin::Prepared::open(config, running.certificates.of_admin())?;
    let _pid_file = PidFile::write(config.pid_file.as_deref(), successor.is_some());
    if let Some(successor) = &successor {
        become_user(successor, config)?;
    }
    let store = store::open(config, file_layer)?;
    running.access.use_secret(config.data_dir.as_deref())?;
    let (ended, events) = mpsc::channel();
    let mut options = limits::options(config);
    options.guard = Arc::new(Guard::new(running.access.current()));
    options.guard.replace_bans(crate::admin::read_bans(config)?);
    options.instruments.extend(running.instruments().into_iter().chain([reload.instruments()]));
    options.instruments.extend(otlp.iter().map(otlp::Prepared::instruments));
    options.spans = otlp.as_ref().and_then(otlp::Prepared::spans);
    let file = running.access.dynamic_security().cloned();
    let controls = file.map(|file| controls(file, &mut options, &ended));
    let server = Server::start(listeners, &options, store, &ended)?;
    running.begin_acme()?;
    eprint!("{}", banner::text(config, &bound, loaded.first_user()));
    let wishes = Wishes { is_asked: Arc::default(), events: ended.clone() };
    let main_thread = MainThread {
        in_force: running.in_force(),
        wishes: wishes.clone(),
        log_level: log.level(),
        recent,
        certificates: running.certificates.in_use(),
        outcomes: reload.outcomes().clone(),
        backups: Backups::new(config.data_dir.clone(), config.admin.backup_dir.clone()),
        orders: options.orders.clone(),
        bans: bans_file,
    };
    let admin =
        admin.map(|admin| admin.start(config, server.operator(), Box::new(main_thread))).transpose()?;
    admin.iter().flat_map(|(_, lines)| lines).for_each(|line| eprintln!("{line}"));
    tell_remarks(loaded);
    // Dropped at the end of the function, so that the last lines are sent.
    let _otlp = otlp.map(|otlp| otlp.start(server.operator(), running.in_force())).transpose()?;
    let watchdog = Watchdog::start(server.operator())?;
    process::notify_ready();
    net::give_back_code();
    forward(signals, ended, wishes.clone());
    let mut from_files = FromFiles { running, reload, log: &log, wishes, looks: Looks::default() };
    let event = wait(&events, &mut from_files, controls.as_ref(), &server);
    // Before the threads that they ask.
    drop((admin, watchdog));
    end(event, server)
}

/// Ends the server after the event that has ended the wait.
fn end(event: Option<Ended>, server: Server) -> io::Result<()> {
    match event {
        Some(Ended { thread }) if thread == SIGNAL => {
            tracing::info!("stopping");
            process::notify_stopping();
            server.shut_down()
        }
        Some(Ended { thread }) => {
            let failure = server.shut_down();
            Err(io::Error::other(format!("{thread} has stopped unexpectedly: {failure:?}")))
        }
        None => server.shut_down(),
    }
}

/// Starts the log, which also has lines for a collector and for operators.
fn start_log(
    config: &Config,
    successor: Option<&Successor>,
) -> io::Result<(Logging, Option<otlp::Prepared>, Recent)> {
    let (otlp, lines) = otlp::Prepared::new(&config.otlp)?.unzip();
    let recent = Recent::new(config.admin.recent_log_bytes as usize);
    let kept = config.admin.address.as_ref().map(|_| recent.clone());
    Ok((logging::start(&config.log, successor, Copies::new(lines.flatten(), kept)), otlp, recent))
}

/// Gives up the rights of the superuser, after a last use of them for the data directory. Names the files that cannot be read
/// again from then on.
fn become_user(successor: &Successor, config: &Config) -> io::Result<()> {
    if let Some(path) = &config.data_dir {
        let explain = |error: io::Error| {
            io::Error::new(error.kind(), format!("cannot make {}: {error}", wire::Shown(path.display())))
        };
        successor.make_data_dir(path).map_err(explain)?;
    }
    successor.take_over()?;
    for path in &named(config) {
        // A certificate of ACME may come later.
        if let Err(error) = File::open(path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::error!(
                %error,
                "{} cannot be read by the `user` of this broker: changes of it, such as a user who is removed, have no \
                 effect before a restart",
                wire::Shown(path.display())
            );
        }
    }
    Ok(())
}

/// Logs the lines of Mosquitto's files whose meaning is not exactly kept, and environment variables without a meaning.
fn tell_remarks(loaded: &Loaded) {
    for name in variables::unknown(&crate::environment()) {
        tracing::warn!("the environment variable {name} sets no key");
    }
    for remark in loaded.translated.iter().flat_map(|translation| &translation.remarks) {
        match remark.kind {
            Kind::Changed | Kind::NotYet => tracing::warn!("{remark}"),
            Kind::Ignored => tracing::info!("{remark}"),
        }
    }
}

/// Name of the event that reports a signal to stop.
const SIGNAL: &str = "signal";
/// Name of the event that reports SIGHUP.
const HANG_UP: &str = "hang-up";

/// Name of the event that reports commands of administrators.
const CONTROL: &str = "control";

/// The way to ask the main thread for a reload, or for the end. Of many requests for a reload one waits: its reload reads the
/// newest file.
#[derive(Clone)]
pub(crate) struct Wishes {
    is_asked: Arc<AtomicBool>,
    events: mpsc::Sender<Ended>,
}

impl Wishes {
    /// Asks for a reload, if none is asked for.
    pub(crate) fn reload(&self) {
        if !self.is_asked.swap(true, Ordering::SeqCst) {
            // A main thread that has ended reads nothing again.
            drop(self.events.send(Ended { thread: HANG_UP.to_owned() }));
        }
    }

    /// Asks for the end, as SIGTERM does.
    pub(crate) fn stop(&self) {
        // A main thread that has ended needs no wish.
        drop(self.events.send(Ended { thread: SIGNAL.to_owned() }));
    }

    /// Begins a reload. A request that comes from here on may mean a newer file.
    fn begin(&self) {
        self.is_asked.store(false, Ordering::SeqCst);
    }
}

/// Makes a place for commands of administrators, which the main thread carries out.
fn controls(file: PathBuf, options: &mut Options, ended: &mpsc::Sender<Ended>) -> Controls {
    let ended = ended.clone();
    // Nobody listens any more after the end.
    let wake = move || drop(ended.send(Ended { thread: CONTROL.to_owned() }));
    let orders = Arc::new(Orders::new(wake));
    options.orders = Some(Arc::clone(&orders));
    let controls = Controls::new(file, orders, Arc::clone(&options.guard));
    options.instruments.push(controls.instruments());
    controls
}

/// The parts of the broker that come from files, and the times of the next looks at these files.
struct FromFiles<'a> {
    running: Running,
    reload: Reload,
    log: &'a Logging,
    wishes: Wishes,
    looks: Looks,
}

/// The times of the next looks. `None` if there is nothing to look at.
#[derive(Default)]
struct Looks {
    /// At files that the configuration names, and at sockets.
    named: Option<Instant>,
    /// At the files of the configuration.
    configuration: Option<Instant>,
}

/// The time of the next look. An interval that has become shorter counts at once.
fn next(planned: Option<Instant>, now: Instant, interval: Option<Duration>) -> Option<Instant> {
    let at = now + interval?;
    Some(planned.map_or(at, |planned| planned.min(at)))
}

impl FromFiles<'_> {
    /// Looks at files if it is time. Returns the time until the next look.
    fn look(&mut self, server: &Server) -> Option<Duration> {
        let now = Instant::now();
        if self.looks.named.take_if(|at| *at <= now).is_some() {
            self.look_at_named(server);
        }
        if self.looks.configuration.take_if(|at| *at <= now).is_some() && self.reload.look() {
            self.reload.run(Cause::Changed, &mut self.running, server, self.log);
        }
        let named = Some(certificates::INTERVAL).filter(|_| !self.running.is_still());
        self.looks.named = next(self.looks.named, now, named);
        let configuration = self.reload.interval(&self.running.config);
        self.looks.configuration = next(self.looks.configuration, now, configuration);
        let first = self.looks.named.into_iter().chain(self.looks.configuration).min()?;
        Some(first.saturating_duration_since(now))
    }

    fn look_at_named(&mut self, server: &Server) {
        self.running.certificates.look();
        if let Some(realms) = self.running.access.look() {
            server.replace_realms(realms);
            self.running.access.tell_in_use();
        }
        self.running.forget_sockets(server);
    }

    /// Reads the configuration, because somebody has asked for it.
    fn reload(&mut self, server: &Server) {
        self.reload.outcomes().begin(|| self.wishes.begin());
        self.reload.run(Cause::Asked, &mut self.running, server, self.log);
    }
}

/// Waits for an event that ends the broker. Meanwhile the configuration, certificates, users and rules are read again, and
/// commands are carried out.
fn wait(
    events: &mpsc::Receiver<Ended>,
    from_files: &mut FromFiles<'_>,
    controls: Option<&Controls>,
    server: &Server,
) -> Option<Ended> {
    loop {
        let event = match from_files.look(server) {
            None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(time) => events.recv_timeout(time),
        };
        match event {
            Ok(Ended { thread }) if thread == HANG_UP => from_files.reload(server),
            Ok(Ended { thread }) if thread == CONTROL => {
                if controls.is_some_and(|controls| controls.run(server)) {
                    from_files.running.access.use_dynamic_security(&server.realms());
                }
            }
            Ok(ended) => return Some(ended),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return None,
        }
    }
}

/// Passes signals on to the main thread.
fn forward(mut signals: Signals, to: mpsc::Sender<Ended>, wishes: Wishes) {
    thread::spawn(move || {
        let mut is_stopping = false;
        for signal in signals.forever() {
            match signal {
                SIGHUP => wishes.reload(),
                // Scripts for Mosquitto send them. Without a handler they would end the process.
                SIGUSR1 => tracing::info!("SIGUSR1 has no effect: nothing waits to be saved"),
                SIGUSR2 => tracing::info!("SIGUSR2 has no effect: subscriptions are not printed"),
                // A second signal ends the process at once, without disconnecting clients.
                _ if is_stopping => std::process::exit(1),
                _ => {
                    is_stopping = true;
                    drop(to.send(Ended { thread: SIGNAL.to_owned() }));
                }
            }
        }
    });
}
