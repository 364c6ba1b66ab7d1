//! The text of the screen, a function of two looks at a broker.

use std::time::Duration;

use serde_json::Value;

use super::Sample;
use crate::operate::on_terminal;

/// Width of the bar of memory.
const BAR: u8 = 30;
/// Columns of the screen from which on there is this bar.
const BAR_COLUMNS_MIN: usize = 76;
/// Share of memory from which on it is short, in percent.
const MEMORY_WARN_PERCENT: f64 = 80.0;
/// Maximum number of shards that are shown: the busiest ones.
const SHARDS_MAX: usize = 16;

/// A line of totals: its title, its figure, and whether it is bytes.
const TOTALS: [(&str, &str, bool); 6] = [
    ("messages received", "publish/messages/received", false),
    ("messages sent", "publish/messages/sent", false),
    ("messages dropped", "publish/messages/dropped", false),
    ("bytes received", "bytes/received", true),
    ("bytes sent", "bytes/sent", true),
    ("connections refused", "refused/connect", false),
];

/// Figures that are warnings when they grow between two looks, or when they are not 0, with advice.
const WARNINGS: [(&str, bool, &str); 8] = [
    ("publish/messages/dropped", true, "messages are dropped: pondhawk ctl counters dropped"),
    ("refused/connect", true, "clients are refused: pondhawk ctl counters refused"),
    ("slow/subscribers", true, "a subscriber reads too slowly: pondhawk ctl clients"),
    ("denied/publish", true, "clients publish to topics that the rules forbid: see the log"),
    ("journal/damaged", false, "damage was found in the journal: pondhawk journal check"),
    ("certificates/expired", false, "a certificate has expired: pondhawk ctl certificates"),
    ("certificates/expire_in_1_day", false, "a certificate expires within a day: pondhawk ctl certificates"),
    ("retained messages/bytes_over_limit", false, "more is retained than limits.retained_bytes allows"),
];

/// Draws the figures into at most this number of lines and columns. The hint is part of the title.
pub(super) fn render(
    now: &Sample,
    before: Option<&Sample>,
    hint: &str,
    (lines, columns): (usize, usize),
) -> Vec<String> {
    let rates = Rates { now, before };
    let mut screen = flow(title(now).iter().chain([&hint.to_owned()]), "  ", columns);
    screen.extend(flow(&counts(now), "   ", columns));
    screen.extend([memory(now, columns), journal(now)]);
    let warnings = warnings(&rates);
    screen.extend(warnings.iter().flat_map(|warning| wrapped(&format!("! {warning}"), columns)));
    if warnings.is_empty() {
        screen.push("no warnings".to_owned());
    }
    screen.push(String::new());
    screen.push(format!("{:22}{:>14}{:>18}", "", "PER SECOND", "TOTAL"));
    for (title, topic, is_bytes) in TOTALS {
        let show = |value: f64| if is_bytes { bytes(value) } else { whole(value) };
        let rate = rates.of(&now.counters, |sample| &sample.counters, topic).map_or("…".to_owned(), show);
        let total = show(number(&now.counters, topic).unwrap_or(0.0));
        screen.push(format!("{title:22}{rate:>14}{total:>18}"));
    }
    screen.push(String::new());
    screen.extend(shards(&rates));
    fitted(&screen, (lines, columns))
}

/// The screen while the broker does not answer: why, for how long, and the time between two requests.
pub(super) fn silence(
    why: &str,
    (age, interval): (Duration, Duration),
    (lines, columns): (usize, usize),
) -> Vec<String> {
    let (ago, every) = (duration(age.as_secs()), duration(interval.as_secs()));
    let paragraphs = [
        why,
        "",
        &format!("The last answer came {ago} ago. The broker is asked again every {every}."),
        "q ends, space asks now",
    ];
    let screen: Vec<String> = paragraphs.iter().flat_map(|text| wrapped(text, columns)).collect();
    fitted(&screen, (lines, columns))
}

/// At most this number of lines and columns. The last line says how many have no room.
fn fitted(screen: &[String], (lines, columns): (usize, usize)) -> Vec<String> {
    let mut fitted: Vec<String> =
        screen.iter().take(lines).map(|line| cut(&on_terminal(line), columns)).collect();
    if screen.len() > lines
        && let Some(last) = fitted.last_mut()
    {
        *last = cut(&format!("… {} more lines", screen.len() - lines + 1), columns);
    }
    fitted
}

/// Parts of a line, on as many lines as they need.
fn flow<'a>(parts: impl IntoIterator<Item = &'a String>, between: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in parts.into_iter().filter(|part| !part.is_empty()) {
        match lines.last_mut() {
            Some(line) if width(line) + width(between) + width(part) <= columns => {
                line.push_str(between);
                line.push_str(part);
            }
            _ => lines.push(part.clone()),
        }
    }
    lines
}

/// A text on as many lines as its words need. An empty one is an empty line.
fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    let lines = flow(&words, " ", columns);
    if lines.is_empty() { vec![String::new()] } else { lines }
}

fn width(text: &str) -> usize {
    text.chars().count()
}

/// Two looks, for the change between them.
struct Rates<'a> {
    now: &'a Sample,
    before: Option<&'a Sample>,
}

impl Rates<'_> {
    /// The growth of a figure in a second. `None` without an earlier look. `of` finds the same object in that one.
    fn of(&self, now: &Value, of: impl Fn(&Sample) -> &Value, name: &str) -> Option<f64> {
        let before = self.before?;
        let seconds = self.now.at.duration_since(before.at).as_secs_f64();
        let grown = number(now, name)? - number(of(before), name)?;
        (seconds > 0.0).then(|| (grown / seconds).max(0.0))
    }
}

fn number(object: &Value, name: &str) -> Option<f64> {
    object[name].as_f64()
}

fn count(sample: &Sample, topic: &str) -> f64 {
    number(&sample.counters, topic).unwrap_or(0.0)
}

fn title(now: &Sample) -> [String; 4] {
    let text = |name: &str| now.status[name].as_str().unwrap_or_default().to_owned();
    let uptime = now.status["uptime_seconds"].as_u64().unwrap_or(0);
    let state = if now.status["ready"] == true { "ready" } else { "NOT READY" };
    [
        format!("pondhawk {}", text("version")),
        format!("up {}", duration(uptime)),
        format!("{} shards", now.status["shards"]),
        state.to_owned(),
    ]
}

fn counts(now: &Sample) -> [String; 4] {
    let of = |topic: &str| whole(count(now, topic));
    let queued_bytes = bytes(count(now, "account/queues/queued_bytes"));
    [
        format!("clients {} connected, {} away", of("clients/connected"), of("clients/disconnected")),
        format!("subscriptions {}", of("subscriptions/count")),
        format!("retained {}", of("retained messages/count")),
        format!("queued {} ({queued_bytes})", of("account/queues/queued")),
    ]
}

fn memory(now: &Sample, columns: usize) -> String {
    let (used, limit) = (count(now, "memory/used"), count(now, "memory/limit"));
    let percent = percent(used, limit);
    let is_used = |place: u8| f64::from(place) * 100.0 < percent * f64::from(BAR);
    let bar: String = (0..BAR).map(|place| if is_used(place) { '#' } else { '.' }).collect();
    let bar = if columns < BAR_COLUMNS_MIN { String::new() } else { format!(" [{bar}]") };
    format!("memory {bar} {percent:.0} %  {} of {}", bytes(used), bytes(limit))
}

fn percent(used: f64, limit: f64) -> f64 {
    if limit > 0.0 { (100.0 * used / limit).min(100.0) } else { 0.0 }
}

fn journal(now: &Sample) -> String {
    match number(&now.counters, "journal/bytes/log") {
        None => "journal off: a restart keeps nothing".to_owned(),
        Some(log) => {
            format!("journal {} on disk, {} needed", bytes(log), bytes(count(now, "journal/bytes/live")))
        }
    }
}

fn warnings(rates: &Rates<'_>) -> Vec<String> {
    let now = rates.now;
    let missing = now.status["missing"].as_array().into_iter().flatten();
    let mut found: Vec<String> = missing.filter_map(Value::as_str).map(str::to_owned).collect();
    let percent = percent(count(now, "memory/used"), count(now, "memory/limit"));
    if percent > MEMORY_WARN_PERCENT {
        found.push(format!(
            "{percent:.0} % of the memory for clients is in use: pondhawk ctl counters memory"
        ));
    }
    for (topic, has_to_grow, text) in WARNINGS {
        let is_there = if has_to_grow {
            rates.of(&now.counters, |sample| &sample.counters, topic).is_some_and(|rate| rate > 0.0)
        } else {
            count(now, topic) > 0.0
        };
        if is_there {
            found.push(text.to_owned());
        }
    }
    found
}

/// The busiest shards, by the messages that they receive and send.
fn shards(rates: &Rates<'_>) -> Vec<String> {
    let null = &Value::Null;
    let rate = |shard: &Value, name: &str| {
        let place = usize::try_from(shard["shard"].as_u64()?).ok()?;
        rates.of(shard, |sample| sample.shards.get(place).unwrap_or(null), name)
    };
    let busy = |shard: &Value| {
        rate(shard, "messages_received").unwrap_or(0.0) + rate(shard, "messages_sent").unwrap_or(0.0)
    };
    let mut all: Vec<&Value> = rates.now.shards.iter().collect();
    all.sort_by(|one, other| busy(other).total_cmp(&busy(one)));
    let head = format!(
        "{:>5}{:>9}{:>13}{:>13}{:>13}{:>13}{:>10}",
        "SHARD", "CLIENTS", "RECEIVED/S", "SENT/S", "BYTES IN/S", "BYTES OUT/S", "WAITING"
    );
    let line = |shard: &&Value| {
        let of = |name: &str| number(shard, name).map_or("–".to_owned(), whole);
        let per_second = |name: &str, show: fn(f64) -> String| rate(shard, name).map_or("…".to_owned(), show);
        format!(
            "{:>5}{:>9}{:>13}{:>13}{:>13}{:>13}{:>10}",
            of("shard"),
            of("clients"),
            per_second("messages_received", whole),
            per_second("messages_sent", whole),
            per_second("bytes_received", bytes),
            per_second("bytes_sent", bytes),
            of("waiting_messages")
        )
    };
    std::iter::once(head).chain(all.iter().take(SHARDS_MAX).map(line)).collect()
}

/// A number without decimals, in groups of three digits.
fn whole(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn bytes(mut value: f64) -> String {
    let mut unit = "B";
    for next in ["KiB", "MiB", "GiB", "TiB"] {
        if value < 1_024.0 {
            break;
        }
        (value, unit) = (value / 1_024.0, next);
    }
    let decimals = usize::from(unit != "B");
    format!("{value:.decimals$} {unit}")
}

fn duration(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min"),
        (0, ..) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

/// A line of at most this number of characters. One that is cut ends with `…`.
fn cut(line: &str, columns: usize) -> String {
    match line.char_indices().nth(columns) {
        None => line.to_owned(),
        Some(_) => line.chars().take(columns.saturating_sub(1)).chain((columns > 0).then_some('…')).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use serde_json::json;

    use super::*;

    fn sample(at: Instant, received: u64, busy: u64) -> Sample {
        let shard = |number: u64, received: u64| {
            json!({
                "shard": number, "clients": 5, "messages_received": received, "messages_sent": 0,
                "bytes_received": 0, "bytes_sent": 0, "waiting_messages": 0,
            })
        };
        Sample {
            at,
            status: json!({ "version": "1\u{1b}[2J", "uptime_seconds": 3_725, "ready": false, "shards": 2, "missing": ["a disk"] }),
            counters: json!({
                "publish/messages/received": received, "memory/used": 900, "memory/limit": 1_000, "clients/connected": 1_234_567,
            }),
            shards: vec![shard(0, 0), shard(1, busy)],
        }
    }

    #[test]
    fn the_screen_has_rates_warnings_and_the_busiest_shard_first() {
        let at = Instant::now();
        let (before, now) = (sample(at, 1_000, 0), sample(at + Duration::from_secs(2), 5_000, 4_000));
        let lines = render(&now, Some(&before), "(q ends)", (100, 200));
        let has = |text: &str| assert!(lines.iter().any(|line| line.contains(text)), "{text} in {lines:#?}");
        has("up 1 h 2 min  2 shards  NOT READY  (q ends)");
        has("clients 1,234,567 connected");
        has("] 90 %");
        has("! a disk");
        has("! 90 % of the memory");
        has("messages received              2,000             5,000");
        let shards = lines.iter().position(|line| line.contains("SHARD")).expect("a table of shards");
        assert!(lines[shards + 1].starts_with("    1"), "{lines:#?}");
        assert!(lines.iter().all(|line| !line.contains('\u{1b}')), "texts of the broker control no terminal");
        let first = render(&now, None, "", (100, 200));
        assert!(first.iter().any(|line| line.contains('…')), "there are no rates yet: {first:#?}");
    }

    #[test]
    fn a_small_terminal_is_not_overrun() {
        let now = sample(Instant::now(), 0, 0);
        for (lines, columns) in [(7, 20), (24, 80), (1, 1), (0, 0)] {
            for screen in [
                render(&now, None, "(q ends)", (lines, columns)),
                silence("no answer", (Duration::ZERO, Duration::ZERO), (lines, columns)),
            ] {
                assert!(
                    screen.len() <= lines && screen.iter().all(|line| width(line) <= columns),
                    "{screen:#?}"
                );
            }
        }
        let small = render(&now, None, "(q ends)", (7, 20));
        let text = small.join("\n");
        assert!(text.contains("\n(q ends)\n") && text.contains("\n… "), "{text}");
    }

    /// The last column of the widest table is the messages that wait.
    #[test]
    fn all_figures_have_room_in_80_columns() {
        let now = sample(Instant::now(), u64::MAX, u64::MAX);
        let lines = render(&now, None, "(q ends)", (24, 80));
        assert!(!lines.iter().any(|line| line.ends_with('…') && width(line) == 80), "{lines:#?}");
        assert!(lines.iter().any(|line| line.ends_with("WAITING")), "{lines:#?}");
        assert_eq!(cut("a table", 4), "a t…");
    }

    #[test]
    fn numbers_have_units_people_read() {
        assert_eq!([0.0, 999.0, 1_000.0, 1_234_567.0].map(whole), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([0.0, 1_023.0, 1_536.0, 1_048_576.0].map(bytes), ["0 B", "1023 B", "1.5 KiB", "1.0 MiB"]);
        assert_eq!([5, 61, 3_725, 90_000].map(duration), ["5 s", "1 min", "1 h 2 min", "1 d 1 h"]);
    }
}
