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
        let before = mapped_kib();
        give_back_code();
        assert_eq!(own_code().unwrap_or_default(), code);
        assert!(code.is_empty() || mapped_kib() < before);
    }

    /// The part of files in memory that is mapped, in KiB.
    fn mapped_kib() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("RssFile:"));
        line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse().ok()).unwrap_or_default()
    }
}
