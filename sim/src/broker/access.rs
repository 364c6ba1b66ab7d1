//! The users and rules of every process: half of the clients prove a name, and everything is allowed.

use std::sync::Arc;

use auth::{Access, Guard, PasswordHash, Permissions, Realms, Scheme, Users};

/// The name and the password of clients that have a user.
pub(crate) const USER: &str = "frog";
pub(crate) const PASSWORD: &[u8] = b"croak";

/// The rules name the user's topics and those of others in different ways, so that both walks are made.
const RULES: &str = "topic readwrite #\nuser frog\ntopic write nothing\npattern readwrite #\n";

/// Users and rules for shards and ledger.
pub(crate) fn guard() -> Arc<Guard> {
    let mut users = Users::default();
    let hash = PasswordHash::new(Scheme::Sha512, PASSWORD, b"twelve bytes").expect("a hash");
    users.add(USER, hash).expect("a user");
    let rules = Permissions::of_mosquitto(RULES).expect("rules");
    let access = Arc::new(Access::new(Some(users), Some(rules)));
    Arc::new(Guard::new(Realms::new(vec![("".into(), access)])))
}
