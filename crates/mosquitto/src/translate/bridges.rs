//! Bridges to other brokers, which do not exist yet. Mistakes in their lines are errors, as in Mosquitto.

use crate::model::{Bridge, Given, Model};
use crate::output::{Kind, Output};

/// Says that there are no bridges, with the remote address of each.
pub(super) fn translate(model: &Model, output: &mut Output) {
    let mut names = Vec::new();
    for bridge in &model.bridges {
        let address = address(bridge);
        let remote = address.map_or_else(String::new, |given| format!(" to {}", given.words().join(" ")));
        let text = format!(
            "there are no bridges: nothing is exchanged{remote}, and the lines up to the end of this bridge have no effect"
        );
        output.remark(&bridge.line, Kind::NotYet, text);
        bridge.block.givens.iter().for_each(|given| given.is_settled.set(true));
        check(bridge, output);
        if let Some(given) = bridge.block.last("local_clientid") {
            if names.contains(&given.text()) {
                output.refuse(given, "another bridge has the same `local_clientid`");
            }
            names.push(given.text());
        }
    }
}

fn address(bridge: &Bridge) -> Option<&Given> {
    ["address", "addresses"].into_iter().find_map(|name| bridge.block.last(name))
}

fn check(bridge: &Bridge, output: &mut Output) {
    let values: [(&str, &[&str]); 3] = [
        ("start_type", &["automatic", "lazy", "once"]),
        ("bridge_protocol_version", &["mqttv31", "mqttv311", "mqttv50"]),
        ("bridge_reload_type", &["lazy", "immediate"]),
    ];
    for (name, values) in values {
        if let Some(given) = bridge.block.last(name).filter(|given| !values.contains(&given.text())) {
            output.refuse(given, format!("`{name}` is one of {}", values.join(", ")));
        }
    }
    for (old, new) in
        [("clientid", "remote_clientid"), ("username", "remote_username"), ("password", "remote_password")]
    {
        if let (Some(given), true) = (bridge.block.last(old), bridge.block.has(new)) {
            output.refuse(given, format!("`{old}` is the old name of `{new}`, which this bridge has too"));
        }
    }
    let has_port =
        |word: &&str| word.rsplit_once(':').is_none_or(|(_, port)| matches!(port.parse(), Ok(1..=u16::MAX)));
    if let Some(given) = address(bridge) {
        let words = given.words();
        let mut remotes = words.iter().take_while(|word| !word.starts_with('#'));
        if let Some(word) = remotes.find(|word| !has_port(word)) {
            output.refuse(given, format!("`{word}` has no port from 1 to 65535 behind its colon"));
        }
    }
    for given in bridge.block.all("topic") {
        if let Some(reason) = of_topic(&given.words()) {
            output.refuse(given, reason);
        }
    }
}

/// The mistake in `PATTERN [DIRECTION [QOS [LOCAL [REMOTE]]]]`, if there is one. A comment may follow the direction.
fn of_topic(words: &[&str]) -> Option<String> {
    // A pattern in quotes has blanks in it, in Mosquitto 2.1.
    if words.first().is_some_and(|pattern| pattern.starts_with('"') && *pattern != "\"\"") {
        return None;
    }
    let direction = words.get(1)?.to_ascii_lowercase();
    if !["out", "in", "both"].contains(&direction.as_str()) {
        return Some(format!("a bridge passes messages `out`, `in` or `both`, and not `{direction}`"));
    }
    let mut rest = words[2..].iter().take_while(|word| !word.starts_with('#'));
    let qos = rest.next()?;
    if qos.parse::<u64>().is_ok_and(|qos| qos > 2) {
        return Some(format!("a QoS is from 0 to 2, and not {qos}"));
    }
    let prefix = rest.take(2).find(|prefix| prefix.contains(['#', '+']))?;
    Some(format!("a prefix of topics has no wildcards: `{prefix}`"))
}
