//! Flags about publishing and subscribing.

use std::time::Duration;

use super::{Flag, PUB, PUB_RR, RR, SUB, SUB_RR, Takes, argument, number, qos};
use crate::failure::Failure;
use crate::settings::{Settings, Source, Tool};

pub(super) const PUBLISH: &[Flag] = &[
    Flag { names: &["-t", "--topic"], tools: PUB_RR, takes: TOPIC, help: "Topic, without + and #" },
    Flag {
        names: &["-m", "--message"],
        tools: PUB_RR,
        takes: Takes::Bytes(
            argument("MESSAGE", "-m argument given but no message specified"),
            |settings, bytes| settings.set_source(Source::Bytes(bytes.to_vec())),
        ),
        help: "Payload of the message",
    },
    Flag {
        names: &["-f", "--file"],
        tools: PUB_RR,
        takes: Takes::Path(argument("FILE", "-f argument given but no file specified"), |settings, path| {
            let is_input = path.as_os_str() == "-";
            settings.set_source(if is_input { Source::Input } else { Source::File(path.into()) })
        }),
        help: "Payload from this file; - is standard input",
    },
    Flag {
        names: &["-n", "--null-message"],
        tools: PUB_RR,
        takes: Takes::Nothing(|settings| settings.set_source(Source::Bytes(Vec::new()))),
        help: "Empty payload; with -r it removes the retained message",
    },
    Flag {
        names: &["-s", "--stdin-file"],
        tools: PUB_RR,
        takes: Takes::Nothing(|settings| settings.set_source(Source::Input)),
        help: "Payload from standard input, all of it",
    },
    Flag {
        names: &["-l", "--stdin-line"],
        tools: PUB,
        takes: Takes::Nothing(|settings| settings.set_source(Source::Lines)),
        help: "Each line of standard input is a message",
    },
    Flag { names: &["-q", "--qos"], tools: PUB_RR, takes: QOS, help: "QoS: 0, 1 or 2 [0]" },
    Flag {
        names: &["-r", "--retain"],
        tools: PUB,
        takes: Takes::Nothing(|settings| {
            settings.outgoing.retain = true;
            Ok(())
        }),
        help: "The broker retains the message for later subscribers",
    },
    Flag {
        names: &["--repeat"],
        tools: PUB,
        takes: Takes::Text(
            argument("COUNT", "--repeat argument given but no count specified"),
            |settings, text| {
                let bad = || Failure::usage("Error: --repeat argument must be >0.");
                settings.outgoing.repeat = number(text, bad)?;
                if settings.outgoing.repeat == 0 { Err(bad()) } else { Ok(()) }
            },
        ),
        help: "Number of times to send the message [1]",
    },
    Flag {
        names: &["--repeat-delay"],
        tools: PUB,
        takes: Takes::Text(
            argument("SECONDS", "--repeat-delay argument given but no time specified"),
            |settings, text| {
                let bad = || Failure::usage("Error: --repeat-delay argument must be >=0.0.");
                let secs: f64 = number(text, bad)?;
                settings.outgoing.repeat_delay = Duration::try_from_secs_f64(secs).map_err(|_| bad())?;
                Ok(())
            },
        ),
        help: "Pause between them; 0.5 is half a second [0]",
    },
    Flag {
        names: &["-e"],
        tools: RR,
        takes: Takes::Text(
            argument("TOPIC", "-e argument given but no response topic specified"),
            |settings, text| {
                topic::TopicName::new(text).map_err(|_| {
                    let question = "does it contain '+' or '#'?";
                    Failure::usage(format!("Error: Invalid response topic '{text}', {question}"))
                })?;
                settings.response_topic = Some(text.to_owned());
                Ok(())
            },
        ),
        help: "Topic for the answer",
    },
];

pub(super) const SUBSCRIBE: &[Flag] = &[
    Flag {
        names: &["-t", "--topic"],
        tools: SUB,
        takes: TOPIC,
        help: "Topic or filter: + is any level, # at the end is any number of levels.\nMay be given several times",
    },
    Flag {
        names: &["-q", "--qos"],
        tools: SUB,
        takes: QOS,
        help: "Maximum QoS of received messages: 0, 1 or 2 [0]",
    },
    Flag {
        names: &["-U", "--unsubscribe"],
        tools: SUB,
        takes: Takes::Text(
            argument("FILTER", "-U argument given but no unsubscribe topic specified"),
            |settings, text| {
                let filter = filter(text, "unsubscribe")?;
                settings.incoming.unsubscribed.push(filter);
                Ok(())
            },
        ),
        help: "Remove this subscription of a lasting session (-c)",
    },
    Flag {
        names: &["--retain-as-published"],
        tools: SUB_RR,
        takes: Takes::Nothing(|settings| {
            settings.incoming.retain_as_published = true;
            Ok(())
        }),
        help: "Receive the publisher's RETAIN flag (Retain As Published); MQTT 5",
    },
    Flag {
        names: &["--remove-retained"],
        tools: SUB,
        takes: Takes::Nothing(|settings| {
            settings.incoming.remove_retained = true;
            Ok(())
        }),
        help: "Remove each received retained message from the broker",
    },
];

const TOPIC: Takes = Takes::Text(argument("TOPIC", "-t argument given but no topic specified"), add_topic);

const QOS: Takes =
    Takes::Text(argument("QOS", "-q argument given but no QoS specified"), |settings, text| {
        settings.qos = qos(text, || format!("Error: Invalid QoS given: {text}"))?;
        Ok(())
    });

/// Adds a filter for `sub`. For the other tools, replaces the topic.
pub(crate) fn add_topic(settings: &mut Settings, text: &str) -> Result<(), Failure> {
    if settings.tool == Tool::Subscribe {
        settings.topics.push(filter(text, "subscription")?);
        return Ok(());
    }
    topic::TopicName::new(text).map_err(|_| {
        Failure::usage(format!("Error: Invalid publish topic '{text}', does it contain '+' or '#'?"))
    })?;
    settings.topics = vec![text.to_owned()];
    Ok(())
}

/// Checks a filter. `purpose` is part of the error text.
pub(super) fn filter(text: &str, purpose: &str) -> Result<String, Failure> {
    match topic::TopicFilter::new(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err(Failure::usage(format!(
            "Error: Invalid {purpose} topic '{text}', are all '+' and '#' wildcards correct?"
        ))),
    }
}
