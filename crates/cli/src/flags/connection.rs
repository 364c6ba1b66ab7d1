//! Flags about the server, the session and the will.

use client::Version;

use super::{ALL, Flag, Takes, argument, number, qos};
use crate::failure::Failure;
use crate::url;

pub(super) const WHERE: &[Flag] = &[
    Flag {
        names: &["-h", "--host"],
        tools: ALL,
        takes: Takes::Text(argument("HOST", "-h argument given but no host specified"), |settings, text| {
            settings.server.host = Some(text.to_owned());
            Ok(())
        }),
        help: "Host name or address of the broker [localhost]",
    },
    Flag {
        names: &["-p", "--port"],
        tools: ALL,
        takes: Takes::Text(argument("PORT", "-p argument given but no port specified"), |settings, text| {
            let bad = || url::invalid_port(text);
            let port: u16 = number(text, bad)?;
            if port == 0 {
                return Err(bad());
            }
            settings.server.port = Some(port);
            Ok(())
        }),
        help: "Port of the broker [1883; 8883 with encryption; 14567 with QUIC]",
    },
    Flag {
        names: &["-L", "--url"],
        tools: ALL,
        takes: Takes::Text(argument("URL", "-L argument given but no URL specified"), |settings, text| {
            url::apply(settings, text)
        }),
        help: "Host, port, user and topic: mqtt[s]://[USER[:PASSWORD]@]HOST[:PORT]/TOPIC",
    },
    Flag {
        names: &["--unix"],
        tools: ALL,
        takes: Takes::Path(
            argument("PATH", "--unix argument given but no socket path specified"),
            |settings, path| {
                settings.server.unix = Some(path.into());
                Ok(())
            },
        ),
        help: "Connect to this Unix socket instead of a host",
    },
    Flag {
        names: &["--quic"],
        tools: ALL,
        takes: Takes::Nothing(|settings| {
            settings.server.has_quic = true;
            Ok(())
        }),
        help: "Speak QUIC, which is encrypted, instead of TCP",
    },
    Flag {
        names: &["--profile"],
        tools: ALL,
        takes: Takes::Text(
            argument("NAME", "--profile argument given but no name specified"),
            |settings, text| {
                settings.profile = Some(text.to_owned());
                Ok(())
            },
        ),
        help: "Use the flags in ~/.config/pondhawk/profiles/NAME, one on each line",
    },
    Flag {
        names: &["-A"],
        tools: ALL,
        takes: Takes::Text(
            argument("ADDRESS", "-A argument given but no address specified"),
            |settings, text| {
                settings.server.bind = Some(text.to_owned());
                Ok(())
            },
        ),
        help: "Connect from this local address",
    },
    Flag {
        names: &["--proxy"],
        tools: ALL,
        takes: Takes::Text(
            argument("URL", "--proxy argument given but no proxy url specified"),
            |settings, text| {
                settings.server.proxy = Some(url::Proxy::parse(text)?);
                Ok(())
            },
        ),
        help: "Connect through a SOCKS5 proxy: socks5h://[USER[:PASSWORD]@]HOST[:PORT]",
    },
    Flag {
        names: &["--nodelay"],
        tools: ALL,
        // No effect: the client library always sets TCP_NODELAY.
        takes: Takes::Nothing(|_| Ok(())),
        help: "Send small packets at once (always on)",
    },
];

pub(super) const WHO: &[Flag] = &[
    Flag {
        names: &["-i", "--id"],
        tools: ALL,
        takes: Takes::Text(argument("ID", "-i argument given but no id specified"), |settings, text| {
            if settings.session.client_id_prefix.is_some() {
                return Err(both_names());
            }
            settings.session.client_id = Some(text.to_owned());
            Ok(())
        }),
        help: "Client identifier [assigned by the broker]",
    },
    Flag {
        names: &["-I", "--id-prefix"],
        tools: ALL,
        takes: Takes::Text(
            argument("PREFIX", "-I argument given but no id prefix specified"),
            |settings, text| {
                if settings.session.client_id.is_some() {
                    return Err(both_names());
                }
                settings.session.client_id_prefix = Some(text.to_owned());
                Ok(())
            },
        ),
        help: "Client identifier: this prefix, followed by the process id",
    },
    Flag {
        names: &["-u", "--username"],
        tools: ALL,
        takes: Takes::Text(
            argument("NAME", "-u argument given but no username specified"),
            |settings, text| {
                settings.session.user_name = Some(text.to_owned());
                Ok(())
            },
        ),
        help: "User name for the broker",
    },
    Flag {
        names: &["-P", "--pw"],
        tools: ALL,
        takes: Takes::Bytes(
            argument("PASSWORD", "-P argument given but no password specified"),
            |settings, bytes| {
                settings.session.password = Some(bytes.to_vec());
                Ok(())
            },
        ),
        help: "Password. Other users of this machine can see it while the program runs:\nPONDHAWK_PASSWORD and the file of defaults are safer",
    },
    Flag {
        names: &["-V", "--protocol-version"],
        tools: ALL,
        takes: Takes::Text(
            argument("VERSION", "--protocol-version argument given but no version specified"),
            |settings, text| {
                settings.session.version = match text {
                    "mqttv31" | "31" => Version::V3_1,
                    "mqttv311" | "311" => Version::V3_1_1,
                    "mqttv5" | "5" => Version::V5,
                    _ => {
                        let bad = Failure::usage("Error: Invalid protocol version argument given.");
                        return Err(bad.advise("The versions are 31, 311 and 5."));
                    }
                };
                Ok(())
            },
        ),
        help: "Version of MQTT: 5, 311 or 31 [311; rr: 5]",
    },
    Flag {
        names: &["-c", "--disable-clean-session"],
        tools: ALL,
        takes: Takes::Nothing(|settings| {
            settings.session.clean_start = false;
            Ok(())
        }),
        help: "Keep the session: the broker stores subscriptions, and messages that\narrive without a connection. Needs -i",
    },
    Flag {
        names: &["-x"],
        tools: ALL,
        takes: Takes::Text(
            argument("SECONDS", "-x argument given but no session expiry interval specified"),
            |settings, text| {
                settings.session.expiry_secs = Some(expiry_secs(text)?);
                Ok(())
            },
        ),
        help: "Keep the session for this time, -1 for ever; MQTT 5 [with -c: -1]",
    },
    Flag {
        names: &["-k", "--keepalive"],
        tools: ALL,
        takes: Takes::Text(
            argument("SECONDS", "-k argument given but no keepalive specified"),
            |settings, text| {
                let bounds = "it must be between 5 and 65535 inclusive";
                let bad = || Failure::usage(format!("Error: Invalid keepalive given, {bounds}."));
                let secs: u16 = number(text, bad)?;
                if secs < 5 {
                    return Err(bad());
                }
                settings.session.keep_alive_secs = secs;
                Ok(())
            },
        ),
        help: "Maximum time without a packet to the broker [60]",
    },
    Flag {
        names: &["-M"],
        tools: ALL,
        takes: Takes::Text(
            argument("COUNT", "-M argument given but max_inflight not specified"),
            |settings, text| {
                let bad = || Failure::usage("Error: Maximum inflight messages must be greater than 0.");
                let count: u16 = number(text, bad)?;
                if count == 0 {
                    return Err(bad());
                }
                settings.session.inflight_max = count;
                Ok(())
            },
        ),
        help: "Maximum number of messages of QoS 1 and 2 without acknowledgement [20]",
    },
    Flag {
        names: &["-D", "--property"],
        tools: ALL,
        takes: Takes::Property,
        help: "A property for one kind of packet: connect, publish, subscribe, unsubscribe,\n\
               disconnect or will. Makes the connection MQTT 5:\n\
               -D publish content-type text/plain\n\
               -D connect user-property NAME VALUE",
    },
];

fn both_names() -> Failure {
    Failure::usage("Error: -i and -I argument cannot be used together.")
}

/// Parses a Session Expiry Interval in seconds. -1 and ∞ stand for a session without expiry.
fn expiry_secs(text: &str) -> Result<u32, Failure> {
    if text == "∞" {
        return Ok(u32::MAX);
    }
    let number: i64 = number(text, || Failure::usage("Error: session-expiry-interval not a number."))?;
    let out_of_range = |_| Failure::usage("Error: session-expiry-interval out of range.");
    if number == -1 { Ok(u32::MAX) } else { u32::try_from(number).map_err(out_of_range) }
}

pub(super) const WILL: &[Flag] = &[
    Flag {
        names: &["--will-topic"],
        tools: ALL,
        takes: Takes::Text(
            argument("TOPIC", "--will-topic argument given but no will topic specified"),
            |settings, text| {
                topic::TopicName::new(text).map_err(|_| {
                    let question = "does it contain '+' or '#'?";
                    Failure::usage(format!("Error: Invalid will topic '{text}', {question}"))
                })?;
                settings.will.topic = Some(text.to_owned());
                Ok(())
            },
        ),
        help: "Topic of the will",
    },
    Flag {
        names: &["--will-payload"],
        tools: ALL,
        takes: Takes::Bytes(
            argument("MESSAGE", "--will-payload argument given but no will payload specified"),
            |settings, bytes| {
                settings.will.payload = Some(bytes.to_vec());
                Ok(())
            },
        ),
        help: "Payload of the will [empty]",
    },
    Flag {
        names: &["--will-qos"],
        tools: ALL,
        takes: Takes::Text(
            argument("QOS", "--will-qos argument given but no will QoS specified"),
            |settings, text| {
                settings.will.qos = qos(text, || format!("Error: Invalid will QoS {text}."))?;
                Ok(())
            },
        ),
        help: "QoS of the will [0]",
    },
    Flag {
        names: &["--will-retain"],
        tools: ALL,
        takes: Takes::Nothing(|settings| {
            settings.will.retain = true;
            Ok(())
        }),
        help: "The broker retains the will",
    },
];
