//! Passwords of operators, and tokens of an issuer, which are judged as those of MQTT clients are.

use std::net::IpAddr;
use std::time::Duration;

use auth::{Access, Admission, Bearer, Checked, Identity, Login, Unchecked};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::api::unix_ms;
use crate::server::Shared;

/// The client identifier of an operator, who has none. A user of dynamic security who is bound to one does not log in here.
const CLIENT_ID: &str = "";
/// Maximum time that a request waits for the check of its password.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);

/// The outcome of a check.
pub(crate) enum Judged {
    /// The user is who it says.
    Right(Evidence),
    Wrong,
    /// Too many wrong passwords have come from the address, for this user or for all.
    Guessing,
    /// The check was not made.
    Busy(&'static str),
}

/// The proof of a name, which may be good for longer than a request.
#[derive(Debug)]
pub(crate) enum Evidence {
    /// The user knew the password with a hash.
    Password(Identity),
    /// Somebody else vouches for the user.
    Bearer(Box<Bearer>),
}

impl Evidence {
    /// The name of the user.
    pub(crate) fn user(&self) -> &str {
        match self {
            Self::Password(identity) => identity.name(),
            Self::Bearer(bearer) => &bearer.user,
        }
    }

    /// Whether the user is there still, with the same password or voucher, and may log in.
    fn holds(&self, access: &Access) -> bool {
        let is_known = match self {
            Self::Password(identity) => access.confirms(identity, CLIENT_ID),
            Self::Bearer(bearer) => {
                access.vouches(&bearer.user, bearer.key)
                    && access.permits_client_id(&bearer.user, CLIENT_ID)
                    && bearer.until_unix_secs.is_none_or(|until| unix_ms() / 1_000 < until)
            }
        };
        is_known && !access.is_disabled(self.user())
    }

    /// Whether the user may still log in with this proof, by the users and keys in force.
    pub(crate) fn is_good(&self, shared: &Shared) -> bool {
        of_operators(shared, |access| self.holds(access)) == Some(true)
    }
}

/// Whether a token may be one of an issuer.
pub(crate) fn may_be_token(token: &str, shared: &Shared) -> bool {
    let has_issuer = of_operators(shared, |access| access.tokens().is_some());
    has_issuer == Some(true) && auth::Tokens::look_like(token.as_bytes())
}

/// Has a password checked on the threads that check those of clients, or a token without a user name.
pub(crate) async fn judge((user, password): (Option<&str>, &[u8]), from: IpAddr, shared: &Shared) -> Judged {
    let login = Login { user, password: Some(password), client_id: CLIENT_ID, may_be_anonymous: false };
    let admission = of_operators(shared, |access| access.admit(&login));
    // Nobody is an operator without a proof.
    let Some(Admission::Verify(identity, check)) = admission else { return Judged::Wrong };
    let (give, take) = oneshot::channel();
    // A request whose connection is closed drops the wish, and is not checked.
    let _wish = shared.operator.verify(from, check, move |checked| drop(give.send(checked)));
    let checked = match timeout(CHECK_TIMEOUT, take).await {
        Ok(Ok(checked)) => checked,
        Ok(Err(_)) => return Judged::Busy("the broker ends"),
        Err(_) => return Judged::Busy("nobody has checked the password in time"),
    };
    let evidence = match checked {
        Checked::Right => Evidence::Password(identity),
        Checked::Bearer(bearer) => Evidence::Bearer(bearer),
        Checked::Not(Unchecked::Guessing) => return Judged::Guessing,
        Checked::Not(Unchecked::Busy) => return Judged::Busy("too many passwords wait to be checked"),
        Checked::Not(Unchecked::Unreachable) => {
            return Judged::Busy("the server that may know the user does not answer");
        }
        Checked::Wrong | Checked::BadToken(_) | Checked::Nameless => return Judged::Wrong,
    };
    // Users may have changed meanwhile.
    if evidence.is_good(shared) { Judged::Right(evidence) } else { Judged::Wrong }
}

/// Asks the users of operators as they are now. `None` if there are none.
fn of_operators<T>(shared: &Shared, ask: impl FnOnce(&Access) -> T) -> Option<T> {
    let realm = shared.control.in_force().operators.realm?;
    shared.operator.guard().current().access(realm).map(ask)
}
