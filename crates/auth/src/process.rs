//! Users of this machine: the login name of the user of a process, as the system knows it.
//!
//! The crate makes no system calls. A caller implements [`LoginNames`], and runs a [`ProcessCheck`] on a thread that may wait.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;

use crate::{Bearer, Checked, Unchecked, Voucher};

/// The list of users of this machine.
pub trait LoginNames: fmt::Debug + Send + Sync {
    /// The login name of the user with this number; `None` if no user has it. The call may wait: the system may ask a directory.
    ///
    /// # Errors
    /// The system cannot tell now.
    fn of(&self, uid: u32) -> Result<Option<String>, NoLoginNames>;
}

/// The system cannot tell the name of a user now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoLoginNames;

/// A user of this machine whose login name is to be found.
#[derive(Debug, Clone)]
pub struct ProcessCheck {
    names: Arc<dyn LoginNames>,
    uid: u32,
}

/// Stands for the system as the one who [vouches](Bearer::key) for the users of its processes.
pub(crate) const KEY: NonZeroU64 = NonZeroU64::new(u64::from_be_bytes(*b"of unix:")).expect("not 0");

impl ProcessCheck {
    pub(crate) fn new(names: &Arc<dyn LoginNames>, uid: u32) -> Self {
        Self { names: Arc::clone(names), uid }
    }

    /// Finds the login name. Waits for the system.
    #[must_use]
    pub fn run(&self) -> Checked {
        let is_name = |name: &String| !name.is_empty() && !name.contains(char::is_control);
        match self.names.of(self.uid) {
            Ok(name) => name.filter(is_name).map_or(Checked::Nameless, |name| {
                let (user, voucher) = (name.into(), Voucher::Process);
                Checked::Bearer(Box::new(Bearer {
                    user,
                    voucher,
                    key: KEY,
                    until_unix_secs: None,
                    claims: None,
                }))
            }),
            Err(NoLoginNames) => Checked::Not(Unchecked::Unreachable),
        }
    }

    /// A number that stands for the user.
    #[must_use]
    pub fn number(&self) -> u64 {
        u64::from(self.uid)
    }

    /// Memory of the check, in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        size_of::<Self>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One answer for each user.
    #[derive(Debug)]
    struct Always(Result<Option<&'static str>, NoLoginNames>);

    impl LoginNames for Always {
        fn of(&self, _: u32) -> Result<Option<String>, NoLoginNames> {
            self.0.map(|name| name.map(str::to_owned))
        }
    }

    fn run(answer: Result<Option<&'static str>, NoLoginNames>) -> Checked {
        let names: Arc<dyn LoginNames> = Arc::new(Always(answer));
        ProcessCheck::new(&names, 1_000).run()
    }

    #[test]
    fn a_user_without_a_usable_name_proves_nothing() {
        assert!(matches!(run(Ok(Some("frog"))), Checked::Bearer(bearer)
            if &*bearer.user == "frog" && bearer.voucher == Voucher::Process && bearer.until_unix_secs.is_none()));
        for name in [None, Some(""), Some("fr\0og"), Some("fr\nog")] {
            assert_eq!(run(Ok(name)), Checked::Nameless, "{name:?}");
        }
        assert_eq!(run(Err(NoLoginNames)), Checked::Not(Unchecked::Unreachable));
    }
}
