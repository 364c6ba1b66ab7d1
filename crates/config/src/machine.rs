//! The resources of the machine, from which defaults follow.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The resources that the process may use. Parsing gets them as a parameter, so that tests have the same result on
/// every machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Number of cores that this process may use. CPU affinity and control-group quotas count.
    pub cores: u16,
    /// Memory in bytes: of the machine, or of the control group if its limit is lower.
    pub memory_bytes: u64,
    /// Maximum number of files that the process may have open.
    pub open_files: u64,
    /// Default directory for the broker's state.
    pub state_dir: PathBuf,
}

/// Assumed memory in bytes if the system does not report any.
const MEMORY_UNKNOWN: u64 = 2 << 30;

impl Machine {
    /// Asks the system for its resources, and raises the open-file limit of the process as far as allowed.
    ///
    /// Each connection uses one file. The usual soft limit of 1,024 exists for programs that use `select`.
    pub fn detect() -> Self {
        Self {
            state_dir: state_dir(),
            cores: thread::available_parallelism()
                .map_or(1, |cores| cores.get().try_into().unwrap_or(u16::MAX)),
            memory_bytes: memory_bytes(),
            open_files: raise_open_files(),
        }
    }
}

/// Returns the directory for state: the first one from the service manager, or else one in the user's home (XDG
/// base directories). Without both, the result is `/var/lib/pondhawk`.
fn state_dir() -> PathBuf {
    let of = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let given = env::var("STATE_DIRECTORY").ok();
    let given =
        given.and_then(|all| all.split(':').next().filter(|first| !first.is_empty()).map(PathBuf::from));
    given
        .or_else(|| of("XDG_STATE_HOME").map(|state| state.join("pondhawk")))
        .or_else(|| of("HOME").map(|home| home.join(".local/state/pondhawk")))
        .unwrap_or_else(|| PathBuf::from("/var/lib/pondhawk"))
}

/// Sets the soft limit to the hard limit, and returns the resulting soft limit.
fn raise_open_files() -> u64 {
    let before = getrlimit(Resource::Nofile);
    // A refusal leaves the soft limit as it is, and macOS refuses an unlimited one. The second call returns the
    // result.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: before.maximum, maximum: before.maximum });
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

fn memory_bytes() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total_of_meminfo(&text));
    let group = fs::read_to_string("/proc/self/cgroup").ok().and_then(|text| group_limit(&text));
    machine.into_iter().chain(group).min().unwrap_or(MEMORY_UNKNOWN)
}

/// Parses `MemTotal:       24681234 kB`, and returns the size in bytes.
fn total_of_meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Returns the lowest memory limit of the process's control group and its ancestors.
fn group_limit(own_groups: &str) -> Option<u64> {
    let limit_of = |file: PathBuf| fs::read_to_string(file).ok()?.trim().parse::<u64>().ok();
    let (root, path, file) = memory_group(own_groups)?;
    let with_parents = Path::new(path).ancestors().map(|group| group.strip_prefix("/").unwrap_or(group));
    with_parents.filter_map(|group| limit_of(Path::new(root).join(group).join(file))).min()
}

/// Finds the control group that limits memory in `/proc/self/cgroup`. Returns the mount point, the path of the
/// group, and the name of the file with the limit.
fn memory_group(own_groups: &str) -> Option<(&'static str, &str, &'static str)> {
    let lines = own_groups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        Some((fields.next()?, fields.next()?))
    });
    let mut unified = None;
    for (controllers, path) in lines {
        if controllers.split(',').any(|controller| controller == "memory") {
            return Some(("/sys/fs/cgroup/memory", path, "memory.limit_in_bytes"));
        }
        if controllers.is_empty() {
            unified = Some(("/sys/fs/cgroup", path, "memory.max"));
        }
    }
    unified
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_never_empty() {
        let machine = Machine::detect();
        assert!(machine.cores >= 1 && machine.memory_bytes > 0 && machine.open_files > 0, "{machine:?}");
    }

    #[test]
    fn memory_is_read_from_meminfo() {
        assert_eq!(total_of_meminfo("MemTotal:       2048 kB\nMemFree: 1 kB\n"), Some(2 << 20));
        assert_eq!(total_of_meminfo("MemFree: 1 kB\n"), None);
    }

    #[test]
    fn the_group_that_bounds_memory_is_found_in_both_versions() {
        assert_eq!(memory_group("0::/user/a\n"), Some(("/sys/fs/cgroup", "/user/a", "memory.max")));
        assert_eq!(
            memory_group("5:cpu:/\n4:memory,hugetlb:/docker/x\n0::/\n"),
            Some(("/sys/fs/cgroup/memory", "/docker/x", "memory.limit_in_bytes"))
        );
        assert_eq!(memory_group(""), None);
    }
}
