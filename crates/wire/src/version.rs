use core::fmt;

/// Version of MQTT on a connection, which CONNECT determines (section 3.1.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// MQTT 3.1: protocol name `MQIsdp`, level 3.
    V3_1,
    /// MQTT 3.1.1: protocol name `MQTT`, level 4.
    V3_1_1,
    /// MQTT 5.0: protocol name `MQTT`, level 5.
    V5,
}

impl Version {
    /// All versions, oldest first.
    pub const ALL: [Self; 3] = [Self::V3_1, Self::V3_1_1, Self::V5];

    /// The protocol name in CONNECT.
    pub const fn protocol_name(self) -> &'static str {
        match self {
            Self::V3_1 => "MQIsdp",
            Self::V3_1_1 | Self::V5 => "MQTT",
        }
    }

    /// The protocol level in CONNECT.
    pub const fn protocol_level(self) -> u8 {
        match self {
            Self::V3_1 => 3,
            Self::V3_1_1 => 4,
            Self::V5 => 5,
        }
    }

    /// Whether the version is MQTT 5, with properties in packets and reason codes in acknowledgements.
    pub const fn is_5(self) -> bool {
        matches!(self, Self::V5)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::V3_1 => "3.1",
            Self::V3_1_1 => "3.1.1",
            Self::V5 => "5.0",
        })
    }
}

/// Quality of service: the delivery guarantee of a message (section 4.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Qos {
    /// QoS 0: no acknowledgement.
    #[default]
    AtMostOnce = 0,
    /// QoS 1: acknowledged, and possibly delivered more than once.
    AtLeastOnce = 1,
    /// QoS 2: acknowledged in two steps, and delivered once.
    ExactlyOnce = 2,
}

impl Qos {
    /// All three values, lowest first.
    pub const ALL: [Self; 3] = [Self::AtMostOnce, Self::AtLeastOnce, Self::ExactlyOnce];

    /// Returns the QoS with this number; `None` over 2.
    pub const fn from_level(level: u8) -> Option<Self> {
        match level {
            0 => Some(Self::AtMostOnce),
            1 => Some(Self::AtLeastOnce),
            2 => Some(Self::ExactlyOnce),
            _ => None,
        }
    }

    /// The number of the QoS: 0, 1 or 2.
    pub const fn level(self) -> u8 {
        self as u8
    }
}

/// Writes the QoS as in `q1`.
impl fmt::Display for Qos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "q{}", self.level())
    }
}

/// The end of a connection that sends a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// The end that opened the connection and sends CONNECT.
    Client,
    /// The end that answers with CONNACK.
    Server,
}
