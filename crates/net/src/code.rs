//! Code that only the start of the process needs.
//!
//! The kernel maps code in pieces of 64 KiB around each page that is used. After the start, most of what is mapped is code that ran
//! once, such as the parser of the configuration, and its neighbours. Pages that are used again are mapped again. They are
//! usually still in the memory of the kernel, and are read from disk only if it was short.

/// Gives back all mapped pages of this program's code. Pages that are used again cost a minor fault each.
pub fn give_back_code() {
    for (begin, end) in own_code().unwrap_or_default() {
        unmap(begin, end);
    }
}

/// The address ranges of code in this program, without those of its libraries.
fn own_code() -> Option<Vec<(usize, usize)>> {
    let program = std::fs::read_link("/proc/self/exe").ok()?;
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    Some(code_in(&maps, program.to_str()?))
}

/// The ranges in `maps` of the file `program` that are executable and cannot be written.
fn code_in(maps: &str, program: &str) -> Vec<(usize, usize)> {
    let range = |line: &str| {
        let mut fields = line.split_whitespace();
        let (range, rights, path) = (fields.next()?, fields.next()?, fields.nth(3)?);
        let (begin, end) = range.split_once('-')?;
        let address = |text| usize::from_str_radix(text, 16).ok();
        (rights == "r-xp" && path == program).then_some((address(begin)?, address(end)?))
    };
    maps.lines().filter_map(range).collect()
}

#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "madvise(2) has no safe interface")]
fn unmap(begin: usize, end: usize) {
    let address = std::ptr::with_exposed_provenance_mut(begin);
    // SAFETY: the range is a private mapping of the program's file that is executable. Nothing in this process writes
    // there, so that each page has the contents of the file; breakpoints of a debugger are lost. A page that was given back is
    // mapped from the file when it is used. The file cannot be
    // written while the program runs (ETXTBSY).
    unsafe { libc::madvise(address, end - begin, libc::MADV_DONTNEED) };
}

/// Other systems have no list of mappings to choose from.
#[cfg(not(target_os = "linux"))]
fn unmap(_begin: usize, _end: usize) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_of_the_program_is_given_back() {
        let maps = "\
            1000-2000 r--p 00000000 fd:00 7 /usr/bin/pondhawk\n\
            2000-5000 r-xp 00001000 fd:00 7 /usr/bin/pondhawk\n\
            5000-6000 rw-p 00004000 fd:00 7 /usr/bin/pondhawk\n\
            7000-8000 r-xp 00000000 fd:00 9 /usr/lib/libc.so.6\n\
            9000-a000 rw-p 00000000 00:00 0 [heap]\n\
            b000-c000 r-xp 00000000 00:00 0 [vdso]\n";
        assert_eq!(code_in(maps, "/usr/bin/pondhawk"), [(0x2000, 0x5000)]);
    }

    #[test]
    fn the_program_goes_on_without_its_mapped_code() {
        let code = own_code().unwrap_or_default();
        assert_eq!(code.is_empty(), !cfg!(target_os = "linux"));
        let has_fewer_pages_after_it = || {
            let before = mapped_kib();
            give_back_code();
            mapped_kib() < before
        };
        // Tests beside this one run code of the same program, which is mapped again at once.
        assert!(code.is_empty() || (0..TRIES_MAX).any(|_| has_fewer_pages_after_it()));
        assert_eq!(own_code().unwrap_or_default(), code);
    }

    const TRIES_MAX: usize = 1_000;

    /// The part of this program's code that is mapped, in KiB. Counted page by page: `VmRSS` and its parts are estimates.
    fn mapped_kib() -> u64 {
        let program = std::fs::read_link("/proc/self/exe").unwrap_or_default();
        let pages = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
        let mut is_code = false;
        let mut sum = 0;
        for line in pages.lines() {
            if let Some(kib) = line.strip_prefix("Rss:").filter(|_| is_code) {
                sum += kib.trim().strip_suffix("kB").and_then(|kib| kib.trim().parse().ok()).unwrap_or(0);
            } else if line.contains('-') {
                is_code = program.to_str().is_some_and(|program| !code_in(line, program).is_empty());
            }
        }
        sum
    }
}
