//! The users and rules of every process: half of the clients prove a name, and everything is allowed.

use std::sync::Arc;

use auth::{Access, Guard, PasswordHash, Permissions, Realms, Scheme, Users};
use base::Realm;

/// The name and the password of clients that have a user.
pub(crate) const USER: &str = "frog";
pub(crate) const PASSWORD: &[u8] = b"croak";

/// The rules name the user's topics and those of others in different ways, so that both walks are made.
const RULES: &str = "topic readwrite #\nuser frog\ntopic write nothing\npattern readwrite #\n";

/// The names of rules that listeners may have in runs with reloads. All of them allow everything.
pub(crate) const NAMES: [&str; 3] = ["rules 0", "rules 1", "rules 2"];

/// Users and rules for shards and ledger. In runs with reloads, clients have the rules of this number, and nobody has the
/// others: sessions that a former process has recorded with those rules find them again.
pub(crate) fn guard(rules: Option<usize>) -> Guard {
    let access = access();
    let Some(rules) = rules else { return Guard::new(Realms::new(vec![("".into(), access)])) };
    let names = (0..NAMES.len()).map(|number| NAMES[(rules + number) % NAMES.len()]);
    Guard::new(Realms::new(names.map(|name| (name.into(), Arc::clone(&access))).collect()))
}

/// A reload gives the rules of the clients another name. Their realm keeps its number.
pub(crate) fn rename(guard: &Guard, rules: usize) {
    let (access, before) = (access(), guard.current());
    let name = |number: usize| match number {
        0 => NAMES[rules % NAMES.len()],
        _ => before
            .name(Realm(u16::try_from(number).expect("few")))
            .expect("there are as many realms as names"),
    };
    let realms = (0..NAMES.len()).map(|number| (name(number).into(), Arc::clone(&access))).collect();
    guard.replace(Realms::new(realms));
}

fn access() -> Arc<Access> {
    let mut users = Users::default();
    let hash = PasswordHash::new(Scheme::Sha512, PASSWORD, b"twelve bytes").expect("a hash");
    users.add(USER, hash).expect("a user");
    let rules = Permissions::of_mosquitto(RULES).expect("rules");
    Arc::new(Access::new(Some(users), Some(rules)))
}
