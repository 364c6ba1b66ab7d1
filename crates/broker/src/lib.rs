//! One shard's brain: its connections and their sessions, live routing between them, limits.
//!
//! A [`Shard`] has no socket, no thread and no clock. Whoever owns those tells it what happened (a connection
//! was accepted, bytes were read, mail arrived) and carries out what it asks for through [`Effects`]. A turn
//! ends with [`Shard::end_turn`], which writes the turn's subscriptions to the index and answers them.

#![forbid(unsafe_code)]

mod answers;
mod ask;
mod beginnings;
mod client;
mod connect;
mod control;
mod counters;
mod counts;
mod deliver;
mod dismissal;
mod drain;
mod effects;
mod encode;
mod ending;
mod fates;
mod filters;
mod flow;
mod kinds;
mod login;
mod mount;
mod pace;
mod parties;
mod pressure;
mod publish;
mod read;
mod relief;
mod requests;
mod retained;
mod rights;
mod shard;
mod spans;
mod subscribe;
mod sys;
mod wheel;

pub use ask::{
    Answer, ClientFacts, ClientLimits, FILTERS_PER_ANSWER, PLACES_PER_ANSWER, Question, Subscription,
    SubscriptionFacts,
};
pub use control::{ControlAnswer, ControlBusy, ControlRequest};
pub use counters::{Counter, Counters, Totals};
pub use counts::{Comparison, Counted, Counts};
pub use dismissal::Dismissal;
pub use drain::Drain;
pub use effects::{Effects, Flush, Mail, Notice, Room, Run};
pub use login::{Entry, Naming};
pub use mount::Mount;
pub use parties::{CountedUser, Parties, Party, USERS_MAX};
pub use session::Settings;
pub use shard::{Admission, Cause, Peers, Shard};
pub use sys::Facts;
