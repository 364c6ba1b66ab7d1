//! Dynamic security: commands of administrators are carried out one after the other, and the file is replaced.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use auth::{
    ANSWER_BYTES_MAX, COMMANDS_MAX, Controlled, DynamicSecurity, Guard, PasswordHash, SALT_BYTES, Scheme,
};
use net::{ControlAnswer, Order, Orders, Server};
use protocol::Instruments;

use crate::users::replace_private;

/// Maximum length of the file, in bytes. A command that would make it longer is refused.
const FILE_BYTES_MAX: usize = 64 << 20;
/// Maximum number of messages with commands that are carried out together, and for which the file is written once. Other
/// events of the main thread, such as a signal to stop, have their turn behind them.
const ORDERS_TOGETHER: usize = 64;
/// No further message is carried out together with others that have this many commands.
const COMMANDS_TOGETHER: usize = COMMANDS_MAX;
/// Maximum number of refused commands of a message that have a line each in the log. The others have one line together.
const REFUSALS_TOLD: usize = 100;
/// No further message is carried out together with others whose answers have this many bytes.
const ANSWERS_BYTES_TOGETHER: usize = ANSWER_BYTES_MAX;

/// The file of dynamic security, and the commands that wait.
pub(crate) struct Controls {
    file: PathBuf,
    orders: Arc<Orders>,
    guard: Arc<Guard>,
    figures: Arc<Figures>,
}

/// Values below `$SYS/broker/dynamic_security/`.
#[derive(Debug, Default)]
struct Figures {
    carried_out: AtomicU64,
    refused: AtomicU64,
    written: AtomicU64,
    failed: AtomicU64,
}

impl Instruments for Figures {
    fn read(&self, say: &mut dyn FnMut(&str, String)) {
        let mut tell = |topic: &str, value: &AtomicU64| {
            say(&format!("dynamic_security/{topic}"), value.load(Relaxed).to_string());
        };
        tell("commands", &self.carried_out);
        tell("refused", &self.refused);
        tell("written", &self.written);
        tell("write_failed", &self.failed);
    }
}

impl Controls {
    pub(crate) fn new(file: PathBuf, orders: Arc<Orders>, guard: Arc<Guard>) -> Self {
        Self { file, orders, guard, figures: Arc::default() }
    }

    /// The values for `$SYS`.
    pub(crate) fn instruments(&self) -> Arc<dyn Instruments> {
        Arc::clone(&self.figures) as Arc<dyn Instruments>
    }

    /// Carries out some of the commands that wait, and publishes the answers. Returns whether users or rules have changed.
    pub(crate) fn run(&self, server: &Server) -> bool {
        let realms = self.guard.current();
        let Some(before) = realms.dynamic_security() else { return false };
        let mut after = DynamicSecurity::clone(before);
        let (mut orders, mut outcomes) = (Vec::new(), Vec::<Controlled>::new());
        let (mut bytes, mut commands) = (0, 0);
        while orders.len() < ORDERS_TOGETHER
            && bytes < ANSWERS_BYTES_TOGETHER
            && commands < COMMANDS_TOGETHER
            && let Some(order) = self.orders.take(1).pop()
        {
            let outcome = control(&mut after, &order);
            bytes += outcome.answer.len();
            commands += outcome.commands.len();
            orders.push(order);
            outcomes.push(outcome);
        }
        let mut has_changed = outcomes.iter().any(|outcome| outcome.is_changed);
        if has_changed {
            match self.write(&after) {
                Ok(()) => server.replace_realms(realms.with_dynamic_security(&Arc::new(after))),
                Err(problem) => {
                    tracing::error!(%problem, "dynamic security stays as it was, because its file cannot be written");
                    outcomes = orders.iter().map(|order| refuse(before, order, &problem)).collect();
                    has_changed = false;
                }
            }
        }
        for (order, outcome) in orders.into_iter().zip(outcomes) {
            self.tell(&order, &outcome);
            server.answer(order, ControlAnswer { payload: outcome.answer.into_bytes().into() });
        }
        has_changed
    }

    fn write(&self, new: &DynamicSecurity) -> Result<(), String> {
        let text = new.to_json();
        let written = if text.len() > FILE_BYTES_MAX {
            Err(format!("the file would be longer than {FILE_BYTES_MAX} bytes"))
        } else {
            replace_private(&self.file, &text)
        };
        let count = if written.is_ok() { &self.figures.written } else { &self.figures.failed };
        count.fetch_add(1, Relaxed);
        written
    }

    fn tell(&self, order: &Order, outcome: &Controlled) {
        let (client_id, user) = (&*order.request.client_id, order.request.user.as_deref());
        let mut refused = 0_usize;
        for (command, refusal) in &outcome.commands {
            match refusal {
                None => {
                    self.figures.carried_out.fetch_add(1, Relaxed);
                    tracing::info!(?command, ?client_id, ?user, "a command of dynamic security");
                }
                Some(why) => {
                    self.figures.refused.fetch_add(1, Relaxed);
                    refused += 1;
                    if refused <= REFUSALS_TOLD {
                        tracing::info!(
                            ?command,
                            ?client_id,
                            ?user,
                            why,
                            "a command of dynamic security is refused"
                        );
                    }
                }
            }
        }
        let untold = refused.saturating_sub(REFUSALS_TOLD);
        if untold > 0 {
            tracing::info!(untold, ?client_id, ?user, "more commands of dynamic security are refused");
        }
    }
}

/// Carries out the commands in a message. New passwords get the hash that Mosquitto writes.
fn control(state: &mut DynamicSecurity, order: &Order) -> Controlled {
    let mut hash = |password: &[u8]| {
        let mut salt = [0; SALT_BYTES];
        // Without the kernel's randomness there is no salt, and the command is refused.
        getrandom::fill(&mut salt).map_err(|_| auth::HashError::Length)?;
        PasswordHash::new(Scheme::MOSQUITTO, password, &salt)
    };
    state.control(&order.request.payload, &mut hash)
}

/// The outcome of commands that cannot be carried out, because nothing can be stored. Questions are answered.
fn refuse(state: &DynamicSecurity, order: &Order, why: &str) -> Controlled {
    let outcome = control(&mut state.clone(), order);
    if outcome.is_changed { DynamicSecurity::refuse_control(&order.request.payload, why) } else { outcome }
}
