//! The decision who makes a request, and whether its sender has the right to the route.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use hyper::{HeaderMap, StatusCode};

use crate::answer::{Answer, Failure};
use crate::audit;
use crate::counters::Refusal;
use crate::gate::{self, Shown};
use crate::passwords::{self, Evidence, Judged};
use crate::routes::Route;
use crate::server::{Peer, Shared};
use crate::tokens::{Attempts, CERTIFICATE, Holder, PASSWORD, Role, SIGNED_TOKEN};

/// The reason why a request may not be made.
pub(crate) enum Inadmissible {
    /// Its sender has proved who it is, and has a role with too few rights.
    Role(Holder, Role),
    /// Its sender has proved who it is, and has no role.
    Unnamed(Arc<str>),
    /// Its token or password is wrong or missing.
    Token,
    /// The same, and too many wrong ones have come from its address.
    Guessing,
    /// Its password was not checked.
    Busy(&'static str),
    /// The certificates of the server have changed since the handshake, or that of the client has expired.
    Outdated,
}

impl Inadmissible {
    /// The answer. A change that somebody who is known may not make has a record.
    pub(crate) fn answer(
        self,
        route: &'static Route,
        values: &[String],
        from: SocketAddr,
        shared: &Arc<Shared>,
    ) -> Answer {
        let (refusal, status, text) = match &self {
            Self::Role(holder, needed) => {
                let text =
                    format!("the role {} has not this right, {} has", holder.role.word(), needed.word());
                (Refusal::Role, StatusCode::FORBIDDEN, text)
            }
            Self::Unnamed(name) => {
                let text = format!("the user {name} has no role: `users` of [admin] does not name it");
                (Refusal::Role, StatusCode::FORBIDDEN, text)
            }
            Self::Token => {
                let text = "a token is needed: Authorization: Bearer TOKEN; or a user name with its password";
                let text = text.to_owned();
                (Refusal::Token, StatusCode::UNAUTHORIZED, text)
            }
            Self::Guessing => {
                let text = "too many wrong tokens or passwords have come from this address".to_owned();
                (Refusal::Guessing, StatusCode::TOO_MANY_REQUESTS, text)
            }
            Self::Busy(why) => (Refusal::Busy, StatusCode::SERVICE_UNAVAILABLE, (*why).to_owned()),
            Self::Outdated => {
                let text = "the certificates have changed, or yours has expired: connect again".to_owned();
                (Refusal::Outdated, StatusCode::MISDIRECTED_REQUEST, text)
            }
        };
        shared.counters.refused(refusal);
        let answer = Answer::from(Failure(status, text));
        let Self::Role(holder, _) = self else { return answer.closing() };
        if route.method != "GET" {
            // Beyond so many in a while, the counter is enough.
            if shared.note_refused(from.ip()).is_some() {
                audit::note_refusal(route, values, &holder, from);
            }
        }
        answer
    }
}

/// The sender of a request, who must have the right to the route.
pub(crate) async fn admit(
    headers: &HeaderMap,
    route: &Route,
    peer: &Peer,
    shared: &Shared,
) -> Result<Option<Holder>, Inadmissible> {
    let shown = gate::shown(headers);
    let holder = match &shown {
        Shown::Nothing => certified(peer, shared)?,
        Shown::Token(token) => shared.tokens.holder(token).cloned().or_else(|| of_session(token, shared)),
        Shown::Password(..) | Shown::Other => None,
    };
    let holder = match (holder, &shown, route.role) {
        // Nobody computes for a route that everybody may ask for.
        (Some(holder), ..) => Some(holder),
        (None, _, None) => None,
        (None, Shown::Password(user, password), _) => {
            Some(judged((Some(user), password), PASSWORD, peer, shared).await?)
        }
        (None, Shown::Token(token), _) if passwords::may_be_token(token, shared) => {
            Some(judged((None, token.as_bytes()), SIGNED_TOKEN, peer, shared).await?)
        }
        _ => None,
    };
    if holder.is_some() {
        peer.visitor.is_known();
    }
    let Some(needed) = route.role else { return Ok(holder) };
    match holder {
        Some(holder) if holder.role >= needed => Ok(Some(holder)),
        Some(holder) => Err(Inadmissible::Role(holder, needed)),
        // Nobody guesses with a request that shows nothing: it must not lock others of the address out.
        None if shown.is_nothing() => Err(Inadmissible::Token),
        None => {
            let is_left = count_wrong(peer, shared);
            tell_wrong(peer, shared);
            Err(if is_left { Inadmissible::Token } else { Inadmissible::Guessing })
        }
    }
}

/// The operator with a password, or with a token of an issuer, which are checked elsewhere.
///
/// A password counts as wrong until it is found right: others of the same address that are checked meanwhile are bounded too.
async fn judged(
    login: (Option<&str>, &[u8]),
    proof: &'static str,
    peer: &Peer,
    shared: &Shared,
) -> Result<Holder, Inadmissible> {
    if !count_wrong(peer, shared) {
        return Err(Inadmissible::Guessing);
    }
    let evidence = match passwords::judge(login, peer.from.ip(), shared).await {
        Judged::Right(evidence) => evidence,
        Judged::Busy(why) => {
            lock(&shared.attempts).was_right(peer.from.ip());
            return Err(Inadmissible::Busy(why));
        }
        Judged::Guessing => return Err(Inadmissible::Guessing),
        Judged::Wrong => {
            tell_wrong(peer, shared);
            return Err(Inadmissible::Token);
        }
    };
    lock(&shared.attempts).was_right(peer.from.ip());
    let evidence = Arc::new(evidence);
    user(&evidence, proof, shared).ok_or_else(|| Inadmissible::Unnamed(evidence.user().into()))
}

/// The operator who has proved to be a user. `None` if the configuration does not name the user.
fn user(evidence: &Arc<Evidence>, proof: &'static str, shared: &Shared) -> Option<Holder> {
    let role = *shared.control.in_force().operators.users.get(evidence.user())?;
    let (name, evidence) = (evidence.user().into(), Some(Arc::clone(evidence)));
    Some(Holder { role, name, proof, evidence, session: None })
}

/// The operator who has begun the session with a token. Nobody guesses such a token.
fn of_session(token: &str, shared: &Shared) -> Option<Holder> {
    let found = shared.sessions.find(token, Instant::now())?;
    if !found.evidence.is_good(shared) {
        shared.sessions.end(&found.key);
        return None;
    }
    let holder = user(&found.evidence, found.proof, shared)?;
    Some(Holder { session: Some(found.key), ..holder })
}

/// Counts a request with a wrong token or password, or none. Returns false if there were too many from its address.
fn count_wrong(peer: &Peer, shared: &Shared) -> bool {
    lock(&shared.attempts).wrong(peer.from.ip(), Instant::now()).is_some()
}

/// Writes one line for each address and while: a guesser does not fill the log. Requests without a token do not count.
fn tell_wrong(peer: &Peer, shared: &Shared) {
    if lock(&shared.guesses).wrong(peer.from.ip(), Instant::now()) == Some(1) {
        tracing::warn!(from = %peer.from, "a request to the admin server has a wrong token or password");
    }
}

fn lock(attempts: &Mutex<Attempts>) -> MutexGuard<'_, Attempts> {
    attempts.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The operator whom the certificate of a connection names, if there is one.
fn certified(peer: &Peer, shared: &Shared) -> Result<Option<Holder>, Inadmissible> {
    let (Some(proof), Some(secure)) = (&peer.proof, &shared.secure) else { return Ok(None) };
    let name = proof.name(secure).map_err(|_| Inadmissible::Outdated)?;
    let in_force = shared.control.in_force();
    let holder = |name: &Arc<str>| {
        let role = *in_force.operators.certificates.get(&**name)?;
        Some(Holder { role, name: Arc::clone(name), proof: CERTIFICATE, evidence: None, session: None })
    };
    Ok(name.and_then(holder))
}
