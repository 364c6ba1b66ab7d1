//! Processor time of programs and threads, in user and system mode together.

use std::fs;
use std::io;
use std::process::{Child, ExitStatus};
use std::thread;
use std::time::Duration;

/// The unit of times in `/proc`: Linux counts a hundred in a second on all processors of today.
const TICK: Duration = Duration::from_millis(10);
/// Pauses until a program is looked at again: the first one, and the longest one.
const PAUSE: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// Waits for the end of a program. Returns its exit status, and the processor time of the program and of its children.
///
/// Children count if their parents have waited for them. Systems without Linux's `/proc` report no time.
///
/// # Errors
/// If the program cannot be waited for.
pub(crate) fn wait(program: &mut Child) -> io::Result<(ExitStatus, Duration)> {
    // A program that has ended stays in `/proc` until it is waited for: only then its times are known and still there.
    let path = format!("/proc/{}/stat", program.id());
    let mut pause = PAUSE;
    let spent = loop {
        let Some(stat) = Stat::parse(&fs::read_to_string(&path).unwrap_or_default()) else {
            break Duration::ZERO;
        };
        if stat.has_ended {
            break stat.own + stat.of_children;
        }
        thread::sleep(pause);
        pause = PAUSE_MAX.min(pause * 2);
    };
    Ok((program.wait()?, spent))
}

/// Processor time of the calling thread.
pub(crate) fn of_thread() -> Duration {
    let stat = Stat::parse(&fs::read_to_string("/proc/thread-self/stat").unwrap_or_default());
    stat.map_or(Duration::ZERO, |stat| stat.own)
}

/// A line of `/proc/PID/stat`.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    has_ended: bool,
    own: Duration,
    /// Time of the children that were waited for.
    of_children: Duration,
}

impl Stat {
    fn parse(line: &str) -> Option<Self> {
        // The name of the program is in parentheses, and may contain some. The state follows, as field 3.
        let (_, fields) = line.rsplit_once(')')?;
        let mut fields = fields.split_whitespace();
        let has_ended = fields.next()? == "Z";
        // Fields 14 to 17: the program's own time in user and system mode, and that of its children.
        let mut ticks = fields.skip(10).map_while(|ticks| ticks.parse::<u32>().ok());
        let mut both = || Some(TICK * ticks.next()?.checked_add(ticks.next()?)?);
        Some(Self { has_ended, own: both()?, of_children: both()? })
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn times_follow_a_name_that_looks_like_them() {
        let line = "7 (a (b) Z 9) S 1 7 7 0 -1 4194304 10 20 30 40 1000 200 30 4 20 0 1 0 50";
        let [own, of_children] = [12_000, 340].map(Duration::from_millis);
        assert_eq!(Stat::parse(line), Some(Stat { has_ended: false, own, of_children }));
        assert!(Stat::parse(&line.replace(") S", ") Z")).unwrap().has_ended);
        assert_eq!(Stat::parse(""), None);
        assert_eq!(Stat::parse("7 (a) Z 1 7 7 0 -1 4194304 10 20 30 40 1000 200"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_grandchild_is_part_of_a_program() {
        // The shell inside counts for longer than a tick.
        let count = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        let mut program =
            Command::new("sh").args(["-c", &format!("sh -c '{count}'; exit 3")]).spawn().unwrap();
        let (status, spent) = wait(&mut program).unwrap();
        assert_eq!(status.code(), Some(3));
        assert!(spent > Duration::ZERO);
    }
}
