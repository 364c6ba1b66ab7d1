//! Flags about output, the end of a program, and help.

use std::time::Duration;

use super::{ALL, Flag, SUB, SUB_RR, Takes, argument, messages, number};
use crate::failure::Failure;
use crate::format::Template;
use crate::settings::Asks;

pub(super) const PRINT: &[Flag] = &[
    Flag {
        names: &["-v", "--verbose"],
        tools: SUB_RR,
        takes: Takes::Nothing(|settings| {
            settings.incoming.output.verbose = true;
            Ok(())
        }),
        help: "Print the topic before each message",
    },
    Flag {
        names: &["-F"],
        tools: SUB_RR,
        takes: Takes::Bytes(
            argument("FORMAT", "-F argument given but no format specified"),
            |settings, bytes| {
                settings.incoming.output.template = Some(Template::parse(bytes)?);
                Ok(())
            },
        ),
        help: "Format of each message: %t topic, %p payload, %x in\n\
               hexadecimal, %l its length, %q QoS, %r retained, %m packet identifier,\n\
               %I %U time, @X output of strftime for %X, %j %J JSON; MQTT 5: %C content\n\
               type, %R response topic, %D correlation data, %P user properties,\n\
               %E expiry, %F payload format, %A topic alias, %S subscription identifier",
    },
    Flag {
        names: &["--json"],
        tools: SUB_RR,
        takes: Takes::Nothing(|settings| {
            settings.incoming.output.json = true;
            Ok(())
        }),
        help: "Print one line of JSON for each message; a JSON payload stays as it is",
    },
    Flag {
        names: &["--pretty"],
        tools: SUB_RR,
        takes: Takes::Nothing(|settings| {
            settings.incoming.output.pretty = true;
            Ok(())
        }),
        help: "Print the JSON of %j, %J and --json on several lines",
    },
    Flag {
        names: &["-N"],
        tools: SUB_RR,
        takes: Takes::Nothing(|settings| {
            settings.incoming.output.without_end_of_line = true;
            Ok(())
        }),
        help: "Print no end of line after each message",
    },
    Flag {
        names: &["-R"],
        tools: SUB_RR,
        takes: Takes::Nothing(|settings| {
            settings.incoming.without_retained = true;
            Ok(())
        }),
        help: "Ignore retained messages",
    },
    Flag {
        names: &["--retained-only"],
        tools: SUB,
        takes: Takes::Nothing(|settings| {
            settings.incoming.retained_only = true;
            Ok(())
        }),
        help: "Print retained messages only, and end with the first other message",
    },
    Flag {
        names: &["-T", "--filter-out"],
        tools: SUB,
        takes: Takes::Text(
            argument("FILTER", "-T argument given but no topic filter specified"),
            |settings, text| {
                let filter = messages::filter(text, "filter")?;
                settings.incoming.filtered_out.push(filter);
                Ok(())
            },
        ),
        help: "Ignore messages with matching topics. May be given several times",
    },
    Flag {
        names: &["--random-filter"],
        tools: SUB,
        takes: Takes::Text(
            argument("PERCENT", "--random-filter argument given but no chance specified"),
            |settings, text| {
                let bad = || Failure::usage("Error: --random-filter chance must be between 0.1-100.0");
                let percent: f64 = number(text, bad)?;
                if !(0.1..=100.0).contains(&percent) {
                    return Err(bad());
                }
                settings.incoming.chance = Some(percent / 100.0);
                Ok(())
            },
        ),
        help: "Print this percentage of the messages, at random",
    },
    Flag {
        names: &["--stats"],
        tools: SUB,
        takes: Takes::Nothing(|settings| {
            settings.incoming.stats = true;
            Ok(())
        }),
        help: "Print the number of messages and bytes each second, on standard error",
    },
];

pub(super) const END: &[Flag] = &[
    Flag {
        names: &["-C"],
        tools: SUB,
        takes: Takes::Text(
            argument("COUNT", "-C argument given but no count specified"),
            |settings, text| {
                let bad = || Failure::usage(format!("Error: Invalid message count \"{text}\"."));
                let count: u32 = number(text, bad)?;
                if count == 0 {
                    return Err(bad());
                }
                settings.incoming.count = Some(u64::from(count));
                Ok(())
            },
        ),
        help: "End after this number of messages",
    },
    Flag {
        names: &["-W"],
        tools: SUB_RR,
        takes: Takes::Text(
            argument("SECONDS", "-W argument given but no timeout specified"),
            |settings, text| {
                let bad = || Failure::usage(format!("Error: Invalid timeout \"{text}\"."));
                let secs: u32 = number(text, bad)?;
                if secs == 0 {
                    return Err(bad());
                }
                settings.incoming.timeout = Some(Duration::from_secs(u64::from(secs)));
                Ok(())
            },
        ),
        help: "End after this time, with exit code 27",
    },
    Flag {
        names: &["-E"],
        tools: SUB,
        takes: Takes::Nothing(|settings| {
            settings.incoming.ends_when_subscribed = true;
            Ok(())
        }),
        help: "End when the broker has the subscriptions; with -c it keeps them",
    },
];

pub(super) const HELP: &[Flag] = &[
    Flag {
        names: &["-d", "--debug"],
        tools: ALL,
        takes: Takes::Nothing(|settings| {
            settings.debug = true;
            Ok(())
        }),
        help: "Print every sent and received packet",
    },
    Flag {
        names: &["--quiet"],
        tools: ALL,
        takes: Takes::Nothing(|settings| {
            settings.quiet = true;
            Ok(())
        }),
        help: "Print only errors of the command line",
    },
    Flag {
        names: &["--help"],
        tools: ALL,
        takes: Takes::Nothing(|settings| {
            settings.asks = Some(Asks::Help);
            Ok(())
        }),
        help: "Print this help",
    },
    Flag {
        names: &["--version"],
        tools: ALL,
        takes: Takes::Nothing(|settings| {
            settings.asks = Some(Asks::Version);
            Ok(())
        }),
        help: "Print the version",
    },
];
