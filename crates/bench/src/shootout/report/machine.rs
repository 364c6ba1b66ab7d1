//! The machine and the time of a shoot-out.

use jiff::Timestamp;

use super::super::quantity::milliseconds;
use super::super::results::{Concert, Results};

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
        agents(results)
            + &results
                .interruption
                .as_ref()
                .map_or(String::new(), |why| format!(" It did not run to its end: {why}."))
    )
}

/// The agents, how well their clocks were known, and how far apart they started; empty without agents.
fn agents(results: &Results) -> String {
    let agents = &results.machine.agents;
    if agents.is_empty() {
        return String::new();
    }
    let names = agents.iter().map(|agent| {
        let several = if agent.threads == 1 { "" } else { "s" };
        format!("{} ({} thread{several}, pondhawk {})", agent.address, agent.threads, agent.version)
    });
    let names = names.collect::<Vec<_>>().join(", ");
    let workloads = results.all_workloads().map(|(workload, _)| workload);
    let runs = workloads.flat_map(|workload| &workload.cells).flat_map(|cell| &cell.runs);
    let concerts: Vec<Concert> = runs.filter_map(|run| run.concert).collect();
    let most = |of: fn(&Concert) -> f64| milliseconds(concerts.iter().map(of).fold(0.0, f64::max));
    format!(
        " The load came from agents: {names}. They started each run together: their clocks were known to ± {}, and \
         the last one started at most {} after the first one. Request and reply, and each message with a latency, \
         are of clients of one agent: no latency is the difference of two clocks.",
        most(|concert| concert.uncertainty_ms),
        most(|concert| concert.spread_ms),
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
    use super::super::super::results::Agent;
    use super::*;

    #[test]
    fn agents_are_named_with_the_uncertainty_of_their_clocks() {
        let mut results = results();
        assert!(!machine(&results).contains("agents"));
        let agent = |address: &str| Agent { address: address.into(), threads: 1, version: "1".into() };
        results.machine.agents = ["a:1", "b:2"].map(agent).to_vec();
        let concerts = [(0.25, 0.5), (0.125, 2.0)];
        for (run, (uncertainty_ms, spread_ms)) in results.workloads[0].cells[0].runs.iter_mut().zip(concerts)
        {
            run.concert = Some(Concert { uncertainty_ms, spread_ms });
        }
        let text = machine(&results);
        for part in ["a:1 (1 thread, pondhawk 1), b:2", "± 250 µs", "at most 2.00 ms after"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

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
