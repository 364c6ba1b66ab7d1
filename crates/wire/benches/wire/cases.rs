//! The packets that all codecs create, write and read.

use serde::Serialize;

/// Values for the fields of all packets.
#[derive(Debug, Serialize)]
pub(crate) struct Values {
    pub(crate) client_id: &'static str,
    pub(crate) user_name: &'static str,
    pub(crate) password: &'static str,
    pub(crate) topic: &'static str,
    pub(crate) filters: [&'static str; 3],
    pub(crate) content_type: &'static str,
    pub(crate) response_topic: &'static str,
    pub(crate) correlation_data: &'static str,
    pub(crate) user_property: [&'static str; 2],
    pub(crate) authentication_method: &'static str,
    pub(crate) authentication_data: &'static str,
    pub(crate) keep_alive_secs: u16,
    pub(crate) session_expiry_secs: u32,
    pub(crate) receive_maximum: u16,
    pub(crate) maximum_packet_bytes: u32,
    pub(crate) topic_alias_maximum: u16,
    pub(crate) message_expiry_secs: u32,
    pub(crate) packet_id: u16,
    pub(crate) subscription_id: u32,
}

pub(crate) const VALUES: Values = Values {
    client_id: "sensor-7f3a9c52e1b04d68",
    user_name: "plant-north",
    password: "correct horse battery staple",
    topic: "plant/north/line-4/temperature",
    filters: ["plant/north/+/temperature", "plant/north/line-4/#", "plant/south/line-1/commands"],
    content_type: "application/json",
    response_topic: "plant/north/answers/7f3a",
    correlation_data: "7f3a9c52e1b04d68",
    user_property: ["traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-01"],
    authentication_method: "SCRAM-SHA-256",
    authentication_data: "n,,n=plant-north,r=fyko+d2lbbFgONRv9qkxdawL",
    keep_alive_secs: 60,
    session_expiry_secs: 86_400,
    receive_maximum: 100,
    maximum_packet_bytes: 1_048_576,
    topic_alias_maximum: 16,
    message_expiry_secs: 3_600,
    packet_id: 4_711,
    subscription_id: 300,
};

/// One packet for the codecs to create, write and read.
#[derive(Debug, Serialize)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) packet: Kind,
    /// The protocol level: 4 or 5.
    pub(crate) version: u8,
    pub(crate) qos: u8,
    pub(crate) payload_bytes: usize,
    pub(crate) properties: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Kind {
    Connect,
    Publish,
    Subscribe,
    Auth,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Connect => "CONNECT",
            Self::Publish => "PUBLISH",
            Self::Subscribe => "SUBSCRIBE",
            Self::Auth => "AUTH",
        }
    }
}

/// All cases, in the order of the table.
pub(crate) fn all() -> Vec<Case> {
    let forms = [(4, false), (5, false), (5, true)];
    let plain = |packet| forms.map(|(version, properties)| Case::plain(packet, version, properties));
    let mut cases = Vec::from(plain(Kind::Connect));
    for (version, properties) in forms {
        for qos in [0, 1] {
            for payload_bytes in [16, 1024] {
                cases.push(Case::publish(version, qos, payload_bytes, properties));
            }
        }
    }
    cases.extend(plain(Kind::Subscribe));
    cases.push(Case { name: "AUTH 5.0".into(), ..Case::plain(Kind::Auth, 5, true) });
    cases
}

impl Case {
    /// A packet without QoS and payload.
    fn plain(packet: Kind, version: u8, properties: bool) -> Self {
        let name = format!("{} {}{}", packet.name(), version_name(version), with(properties));
        Self { name, packet, version, qos: 0, payload_bytes: 0, properties }
    }

    fn publish(version: u8, qos: u8, payload_bytes: usize, properties: bool) -> Self {
        let version_name = version_name(version);
        let name = format!("PUBLISH {version_name} QoS {qos}, {payload_bytes} B{}", with(properties));
        Self { name, packet: Kind::Publish, version, qos, payload_bytes, properties }
    }
}

fn version_name(level: u8) -> &'static str {
    if level == 5 { "5.0" } else { "3.1.1" }
}

fn with(properties: bool) -> &'static str {
    if properties { ", properties" } else { "" }
}
