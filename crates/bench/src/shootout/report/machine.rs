//! The machine and the time of a shoot-out.

use jiff::Timestamp;

use super::super::results::Results;

/// Time and machine in two sentences.
pub(super) fn machine(results: &Results) -> String {
    let machine = &results.machine;
    let of = |what: &str, cpus: &Option<String>| {
        cpus.as_ref().map_or(String::new(), |cpus| format!(", {what} on processor {cpus}"))
    };
    format!(
        "Started on {} UTC, {:.0} minutes in all. {} processors ({}), {} of memory, Linux {}, data on {}{}{}; \
         generator: pondhawk {}.{}",
        date(machine.started),
        (results.seconds / 60.0).ceil(),
        machine.processors,
        machine.processor,
        crate::figure::bytes(machine.memory_bytes as f64),
        machine.kernel,
        machine.file_system,
        of("servers", &machine.server_cpus),
        of("generator", &machine.generator_cpus),
        machine.generator,
        results
            .interruption
            .as_ref()
            .map_or(String::new(), |why| format!(" It did not run to its end: {why}."))
    )
}

/// Date and time in UTC of these seconds since 1970, as `2026-11-29 06:22`.
fn date(seconds: u64) -> String {
    let start = i64::try_from(seconds).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    start.map_or_else(|| format!("second {seconds}"), |start| start.strftime("%Y-%m-%d %H:%M").to_string())
}

#[cfg(test)]
mod tests {
    use super::super::super::fixture::results;
    use super::*;

    #[test]
    fn the_start_is_a_date_in_utc() {
        // The dates are those of `date --utc --date @…`.
        let dates = [
            (0, "1970-01-01 00:00"),
            (951_782_399, "2000-02-28 23:59"),
            (951_868_799, "2000-02-29 23:59"),
            (1_709_251_199, "2024-02-29 23:59"),
            (1_767_225_599, "2025-12-31 23:59"),
            (1_795_915_698, "2026-11-29 01:28"),
            (4_107_542_400, "2100-03-01 00:00"),
        ];
        for (seconds, text) in dates {
            assert_eq!(date(seconds), text);
        }
        let text = machine(&results());
        assert!(text.starts_with("Started on 1970-01-01 00:00 UTC, 1 minutes"), "{text}");
    }
}
