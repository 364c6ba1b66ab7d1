//! The code behind each route.

mod access;
mod backup;
mod bans;
mod body;
pub(crate) mod busiest;
pub(crate) mod clients;
mod counts;
pub(crate) mod drain;
mod explain;
mod groups;
mod items;
pub(crate) mod log;
mod moves;
pub(crate) mod outcomes;
mod payload;
mod publish;
mod queues;
mod reload;
mod retained;
mod session;
mod status;
mod subscribers;
pub(crate) mod trace;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;

use crate::answer::{Answer, Failure};
use crate::asked::Asked;
use crate::page;
use crate::routes::{self, Action};
use crate::server::Shared;

pub(crate) use drain::Drains;
pub use log::LOG_LEVELS;
pub(crate) use outcomes::Recordings;
pub(crate) use trace::Traces;

/// Items of an answer if the request does not say how many.
const LIMIT: usize = 100;
/// Maximum number of items that a request may ask for.
pub(crate) const LIMIT_MAX: usize = 1_000;
/// Maximum number of questions to the threads of the broker for one request: an answer with few items has a cursor.
const QUESTIONS_MAX: usize = 64;

/// Carries out a request that has the right to its route.
pub(crate) async fn carry_out(asked: &Asked, shared: &Arc<Shared>) -> Result<Answer, Failure> {
    match asked.route.action {
        Action::Page => Ok(page::page(&asked.host, &shared.control.in_force().listeners)),
        Action::Script => Ok(page::script()),
        Action::View => page::view(&asked.values[0]),
        Action::Style => Ok(page::style()),
        Action::Healthy => Ok(Answer::text("ok\n")),
        Action::Ready => Ok(status::ready(shared).await),
        Action::Metrics => Ok(status::metrics(shared).await),
        Action::OpenApi => Ok(Answer::json(&routes::open_api(shared.version))),
        Action::Status => Ok(status::status(asked, shared).await),
        Action::Counters => Ok(status::counters(shared).await),
        Action::Shards => Ok(status::shards(shared)),
        Action::Busiest => busiest::list(asked, shared).await,
        Action::Clients => clients::list(asked, shared).await,
        Action::Client => clients::one(asked, shared).await,
        Action::Subscriptions => clients::subscriptions(asked, shared).await,
        Action::Disconnect => clients::disconnect(asked, shared).await,
        Action::EndSession => clients::end_session(asked, shared).await,
        Action::Queue => queues::of_one_client(asked, shared).await,
        Action::DiscardQueue => queues::discard_of_client(asked, shared).await,
        Action::MoveQueue => moves::from_client(asked, shared).await,
        Action::Recordings => outcomes::list(asked, shared),
        Action::Outcomes => outcomes::show(asked, shared).await,
        Action::RecordOutcomes => outcomes::begin(asked, shared).await,
        Action::ForgetOutcomes => outcomes::end(asked, shared).await,
        Action::Subscribers => subscribers::list(asked, shared).await,
        Action::Groups => groups::list(asked, shared).await,
        Action::Group => groups::one(asked, shared).await,
        Action::Members => groups::members(asked, shared).await,
        Action::GroupQueue => queues::of_one_group(asked, shared).await,
        Action::DiscardGroupQueue => queues::discard_of_group(asked, shared).await,
        Action::MoveGroupQueue => moves::from_group(asked, shared).await,
        Action::Explain => explain::answer(asked, shared).await,
        Action::Retained => retained::list(asked, shared).await,
        Action::RetainedMessage => retained::one(asked, shared).await,
        Action::ClearRetained => retained::clear(asked, shared).await,
        Action::ClearMatching => retained::clear_matching(asked, shared).await,
        Action::Topics => retained::topics(asked, shared).await,
        Action::Publish => publish::publish(asked, shared).await,
        Action::Bans => Ok(bans::list(shared)),
        Action::Ban => bans::add(asked, shared),
        Action::LiftBan => bans::lift(asked, shared),
        Action::ShowDrain => Ok(drain::show(shared)),
        Action::Drain => drain::begin(asked, shared).await,
        Action::EndDrain => drain::end(shared).await,
        Action::ShowTrace => trace::show(asked, shared),
        Action::TraceFile => trace::file(asked, shared),
        Action::Trace => trace::begin(asked, shared).await,
        Action::EndTrace => trace::end(asked, shared),
        Action::Certificates => Ok(status::certificates(shared)),
        Action::Listeners => Ok(counts::listeners(shared)),
        Action::Users => counts::users(asked, shared),
        Action::Configuration => {
            Ok(Answer::json(&json!({ "toml": shared.control.in_force().configuration })))
        }
        Action::ShowBackup => Ok(backup::show(shared)),
        Action::Backup => backup::begin(asked, shared),
        Action::Log => log::lines(asked, shared).await,
        Action::Audit => log::changes(asked, shared),
        Action::LogLevel => Ok(log::level(shared)),
        Action::SetLogLevel => log::set_level(asked, shared),
        Action::Access(action) => access::carry_out(action, asked, shared).await,
        Action::LogIn => session::begin(asked, shared),
        Action::LogOut => session::end(asked, shared),
        Action::ShowReload => Ok(reload::last(shared)),
        Action::Reload => Ok(reload::begin(shared)),
    }
}

/// The number of items that a request asks for.
fn limit(asked: &Asked) -> Result<usize, Failure> {
    let Some(text) = asked.parameter("limit") else { return Ok(LIMIT) };
    let limit = text.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit));
    limit.ok_or_else(|| Failure::bad(format!("limit is a number from 1 to {LIMIT_MAX}")))
}

/// A cursor that the API has not given out.
fn bad_cursor() -> Failure {
    Failure::bad("the cursor is not of an earlier answer")
}

fn unix_secs() -> u64 {
    unix_ms() / 1_000
}

/// The time, in milliseconds since 1970.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A parameter that is `true` or `false`.
fn switch(asked: &Asked, name: &str) -> Result<Option<bool>, Failure> {
    match asked.parameter(name) {
        None => Ok(None),
        Some("true") => Ok(Some(true)),
        Some("false") => Ok(Some(false)),
        Some(_) => Err(Failure::bad(format!("{name} is true or false"))),
    }
}

/// A parameter that is one of these words.
fn word<'a>(asked: &'a Asked, name: &str, words: &[&str]) -> Result<Option<&'a str>, Failure> {
    match asked.parameter(name) {
        Some(word) if !words.contains(&word) => {
            Err(Failure::bad(format!("{name} is one of: {}", words.join(", "))))
        }
        word => Ok(word),
    }
}
