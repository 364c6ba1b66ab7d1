use core::fmt;
use core::num::{NonZeroU16, NonZeroU32};

use topic::TopicName;

use crate::header::PacketType;
use crate::packet::MessageProperties;
use crate::property::properties;
use crate::read::Reader;
use crate::repeated::UserProperties;
use crate::rule::{self, Fault};
use crate::sink::Sink;
use crate::string::{Binary, Utf8};
use crate::trace::{Bytes, Flag, Text};
use crate::version::{Qos, Version};
use crate::walk::{ControlPacket, Field, Flags, Layout, Walk};

/// CONNECT: the first packet of a connection (section 3.1).
///
/// ```
/// use pondhawk_wire::{Connect, Utf8, Version};
///
/// let mut connect = Connect::new(Version::V5, Utf8::new("sensor-7")?);
/// connect.keep_alive_secs = 60;
/// connect.set_credentials(Some(Utf8::new("ann")?), None)?;
///
/// let mut bytes = Vec::new();
/// connect.encode(Version::V5, &mut bytes)?;
/// assert_eq!(connect.to_string(), r#"CONNECT 5.0 "sensor-7" clean-start keep-alive=60 user-name="ann""#);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The packet is encoded in its own version. Before MQTT 5 there are no properties, and they are not written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Connect<'a> {
    version: Version,
    /// Client identifier, which names the session. The server assigns an identifier if the string is empty.
    pub client_id: Utf8<'a>,
    /// Clean Start, called Clean Session before MQTT 5: whether the client begins without a stored session.
    pub clean_start: bool,
    /// Keep alive: maximum seconds between two packets of the client. 0 means no limit.
    pub keep_alive_secs: u16,
    /// The message that the server publishes when the client is gone.
    pub will: Option<Will<'a>>,
    /// The settings of the client; MQTT 5 only.
    pub properties: ConnectProperties<'a>,
    user_name: Option<Utf8<'a>>,
    password: Option<Binary<'a>>,
}

/// The message that a server publishes when the client is gone (section 3.1.2.5).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Will<'a> {
    /// The topic of the message.
    pub topic: TopicName<'a>,
    /// The payload of the message.
    pub payload: Binary<'a>,
    /// The QoS with which the message is published.
    pub qos: Qos,
    /// Whether the server retains the message.
    pub retain: bool,
    /// Seconds between the end of the connection and the message; `None` means 0. MQTT 5 only.
    pub delay_interval_secs: Option<u32>,
    /// The properties of the message; MQTT 5 only.
    pub properties: MessageProperties<'a>,
}

properties! {
    /// The properties of CONNECT (section 3.1.2.11).
    pub struct ConnectProperties<'a> {
        /// Seconds for which the session outlives the connection; absent: 0. 4,294,967,295 means for ever.
        SessionExpiryInterval => session_expiry_interval_secs: Option<u32>,
        /// Maximum number of QoS 1 and 2 messages that the client accepts without having acknowledged them; absent:
        /// 65,535.
        ReceiveMaximum => receive_maximum: Option<NonZeroU16>,
        /// Maximum length of packets that the client accepts, in bytes; absent: no limit beside the protocol's.
        MaximumPacketSize => maximum_packet_bytes: Option<NonZeroU32>,
        /// The highest topic alias that the client accepts; absent: 0, no alias.
        TopicAliasMaximum => topic_alias_maximum: Option<u16>,
        /// Whether CONNACK may have response information; absent: no.
        RequestResponseInformation => request_response_information: Option<bool>,
        /// Whether packets other than PUBLISH, CONNACK and DISCONNECT may have reason string and user properties;
        /// absent: yes.
        RequestProblemInformation => request_problem_information: Option<bool>,
        /// The method of an enhanced authentication.
        AuthenticationMethod => authentication_method: Option<Utf8<'a>>,
        /// The data of the first step, whose format the method defines. Requires a method.
        AuthenticationData => authentication_data: Option<Binary<'a>>,
        /// Pairs of name and value, in order. The application defines their meaning.
        UserProperty => user_properties: UserProperties<'a>,
    }
}

properties! {
    /// The property that belongs to a will, but not to its message.
    struct WillDelay {
        WillDelayInterval => delay_interval_secs: Option<u32>,
    }
}

/// Error of a password without a user name, before MQTT 5 \[3.1.1: MQTT-3.1.2-22\].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PasswordWithoutUserName;

impl<'a> Connect<'a> {
    /// Makes a CONNECT with clean start, and without keep alive, will, credentials and properties.
    pub const fn new(version: Version, client_id: Utf8<'a>) -> Self {
        Self {
            version,
            client_id,
            clean_start: true,
            keep_alive_secs: 0,
            will: None,
            properties: ConnectProperties::EMPTY,
            user_name: None,
            password: None,
        }
    }

    /// The version of the connection.
    pub const fn version(&self) -> Version {
        self.version
    }

    /// The user name, if the client has one.
    pub const fn user_name(&self) -> Option<Utf8<'a>> {
        self.user_name
    }

    /// The password, if the client has one. [`Display`](fmt::Display) prints only its length.
    pub const fn password(&self) -> Option<Binary<'a>> {
        self.password
    }

    /// Sets user name and password.
    ///
    /// # Errors
    /// If there is a password without a user name, before MQTT 5.
    pub fn set_credentials(
        &mut self,
        user_name: Option<Utf8<'a>>,
        password: Option<Binary<'a>>,
    ) -> Result<(), PasswordWithoutUserName> {
        if password.is_some() && user_name.is_none() && !self.version.is_5() {
            return Err(PasswordWithoutUserName);
        }
        (self.user_name, self.password) = (user_name, password);
        Ok(())
    }

    fn connect_flags(&self) -> ConnectFlags {
        ConnectFlags {
            clean_start: self.clean_start,
            will: self.will.as_ref().map(Will::flags),
            user_name: self.user_name.is_some(),
            password: self.password.is_some(),
        }
    }
}

impl<'a> ControlPacket<'a> for Connect<'a> {
    const TYPE: PacketType = PacketType::Connect;
}

impl<'a> Layout<'a> for Connect<'a> {
    fn layout<W: Walk<'a, Self>>(walk: &mut W) -> Result<W::Built, Fault> {
        let Protocol(version) = walk.field(|packet| Protocol(packet.version))?;
        walk.set_version(version)?;
        let flags = walk.field(Connect::connect_flags)?;
        let needs_user_name = flags.password && !version.is_5();
        walk.check(flags.user_name || !needs_user_name, &rule::PASSWORD_WITHOUT_USER_NAME)?;
        let keep_alive_secs = walk.field(|packet| packet.keep_alive_secs)?;
        let properties = walk.properties(|packet| &packet.properties)?;
        let has_method = properties.authentication_method.is_some();
        walk.check(has_method || properties.authentication_data.is_none(), &rule::DATA_WITHOUT_METHOD)?;
        let client_id = walk.field(|packet| packet.client_id)?;
        let will = walk.part(flags.will, |packet| packet.will)?;
        // MQTT 3.1 allows a client to announce credentials and omit them, for compatibility with still older
        // clients.
        let may_end = version == Version::V3_1;
        let is_there = flags.user_name && !(may_end && walk.unread_bytes() == Some(0));
        let user_name = walk.announced(is_there, &rule::USER_NAME_MISSING, |packet| packet.user_name)?;
        let is_there = flags.password && !(may_end && walk.unread_bytes() == Some(0));
        let password = walk.announced(is_there, &rule::PASSWORD_MISSING, |packet| packet.password)?;
        let is_all = matches!(walk.unread_bytes(), None | Some(0));
        walk.check(is_all || flags.user_name, &rule::USER_NAME_UNANNOUNCED)?;
        walk.check(is_all || flags.password, &rule::PASSWORD_UNANNOUNCED)?;
        let clean_start = flags.clean_start;
        Ok(walk.build(|| Self {
            version,
            client_id,
            clean_start,
            keep_alive_secs,
            will,
            properties,
            user_name,
            password,
        }))
    }
}

impl Will<'_> {
    fn flags(&self) -> WillFlags {
        WillFlags { qos: self.qos, retain: self.retain }
    }
}

impl<'a> Layout<'a> for Will<'a> {
    fn layout<W: Walk<'a, Self>>(walk: &mut W) -> Result<W::Built, Fault> {
        let WillFlags { qos, retain } = walk.flags(Will::flags)?;
        walk.check(walk.unread_bytes() != Some(0), &rule::WILL_MISSING)?;
        let (WillDelay { delay_interval_secs }, (), properties) = walk.property_sets(|will| {
            let delay_interval_secs = will.delay_interval_secs;
            (WillDelay { delay_interval_secs }, &(), &will.properties)
        })?;
        walk.check(walk.unread_bytes() != Some(0), &rule::WILL_MISSING)?;
        let topic = walk.field(|will| will.topic)?;
        walk.check(walk.unread_bytes() != Some(0), &rule::WILL_MISSING)?;
        let payload = walk.field(|will| will.payload)?;
        Ok(walk.build(|| Self { topic, payload, qos, retain, delay_interval_secs, properties }))
    }
}

/// Protocol name and level (sections 3.1.2.1 and 3.1.2.2).
struct Protocol(Version);

impl<'a> Field<'a> for Protocol {
    #[inline]
    fn read(from: &mut Reader<'a>) -> Result<Self, Fault> {
        match (from.counted()?, from.u8()?) {
            (b"MQIsdp", 3) => Ok(Self(Version::V3_1)),
            (b"MQTT", 4) => Ok(Self(Version::V3_1_1)),
            (b"MQTT", 5) => Ok(Self(Version::V5)),
            // The high bit marks a bridge, by a convention of 3.x. This crate supports no such level.
            (b"MQIsdp", _) | (b"MQTT", 0..=3 | 0x83 | 0x84) => Err(&rule::UNSUPPORTED_LEVEL_3),
            (b"MQTT", _) => Err(&rule::UNSUPPORTED_LEVEL),
            _ => Err(&rule::PROTOCOL_NAME),
        }
    }

    fn write<S: Sink + ?Sized>(&self, version: Version, sink: &mut S) -> Result<(), Fault> {
        let Self(spoken) = *self;
        Binary::new(spoken.protocol_name().as_bytes()).unwrap_or_default().write(version, sink)?;
        sink.put_byte(spoken.protocol_level());
        Ok(())
    }
}

/// The flags in CONNECT (section 3.1.2.3).
struct ConnectFlags {
    clean_start: bool,
    will: Option<WillFlags>,
    user_name: bool,
    password: bool,
}

#[derive(Clone, Copy)]
struct WillFlags {
    qos: Qos,
    retain: bool,
}

impl Flags for WillFlags {
    fn from_bits(bits: u8) -> Result<Self, Fault> {
        let qos = Qos::from_level(bits >> 3 & 0b11).ok_or(&rule::WILL_QOS_3)?;
        Ok(Self { qos, retain: bits & WILL_RETAIN != 0 })
    }

    fn bits(&self) -> u8 {
        WILL | self.qos.level() << 3 | if self.retain { WILL_RETAIN } else { 0 }
    }
}

const RESERVED: u8 = 1;
const CLEAN_START: u8 = 1 << 1;
const WILL: u8 = 1 << 2;
const WILL_QOS: u8 = 0b11 << 3;
const WILL_RETAIN: u8 = 1 << 5;
const PASSWORD: u8 = 1 << 6;
const USER_NAME: u8 = 1 << 7;

impl<'a> Field<'a> for ConnectFlags {
    #[inline]
    fn read(from: &mut Reader<'a>) -> Result<Self, Fault> {
        let bits = from.u8()?;
        if bits & RESERVED != 0 && from.version != Version::V3_1 {
            return Err(&rule::CONNECT_RESERVED_FLAG);
        }
        let flags = WillFlags::from_bits(bits)?;
        let has_will = bits & WILL != 0;
        if !has_will && bits & WILL_QOS != 0 {
            return Err(&rule::WILL_QOS_WITHOUT_WILL);
        }
        if !has_will && flags.retain {
            return Err(&rule::WILL_RETAIN_WITHOUT_WILL);
        }
        Ok(Self {
            clean_start: bits & CLEAN_START != 0,
            will: has_will.then_some(flags),
            user_name: bits & USER_NAME != 0,
            password: bits & PASSWORD != 0,
        })
    }

    fn write<S: Sink + ?Sized>(&self, _: Version, sink: &mut S) -> Result<(), Fault> {
        let set = |flag: bool, bit: u8| if flag { bit } else { 0 };
        sink.put_byte(
            set(self.clean_start, CLEAN_START)
                | self.will.map_or(0, |flags| flags.bits())
                | set(self.user_name, USER_NAME)
                | set(self.password, PASSWORD),
        );
        Ok(())
    }
}

impl fmt::Display for Connect<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CONNECT {} {}{}", self.version, self.client_id, Flag(self.clean_start, "clean-start"))?;
        write!(f, " keep-alive={}", self.keep_alive_secs)?;
        if let Some(user_name) = self.user_name {
            write!(f, " user-name={user_name}")?;
        }
        if let Some(password) = self.password {
            write!(f, " password={password:#}")?;
        }
        self.properties.fmt(f)?;
        if let Some(will) = self.will {
            write!(f, " {will}")?;
        }
        Ok(())
    }
}

/// Writes the will as in `will={q1 retain "a/b" 3 B "bye"}`.
impl fmt::Display for Will<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { topic, payload, qos, retain, delay_interval_secs, properties } = *self;
        let delay = WillDelay { delay_interval_secs };
        write!(f, "will={{{qos}{} {}", Flag(retain, "retain"), Text(topic.as_str()))?;
        write!(f, "{delay}{properties} {}}}", Bytes(payload.as_bytes()))
    }
}

impl fmt::Display for PasswordWithoutUserName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("before MQTT 5, a password needs a user name [MQTT-3.1.2-22]")
    }
}

impl core::error::Error for PasswordWithoutUserName {}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::vec::Vec;

    use super::*;
    use crate::{Answer, ConnectRefusal, Limits, decode};

    /// [3.1.1 MQTT-3.1.2-22]
    #[test]
    fn a_password_without_a_user_name_cannot_be_built_before_5() {
        let password = Binary::new(b"secret").ok();
        for version in Version::ALL {
            let mut connect = Connect::new(version, Utf8::EMPTY);
            let set = connect.set_credentials(None, password);
            assert_eq!(set.is_ok(), version.is_5());
            assert_eq!(connect.password().is_some(), version.is_5());
        }
    }

    #[test]
    fn a_password_is_not_printed() {
        let mut connect = Connect::new(Version::V5, Utf8::EMPTY);
        connect.set_credentials(None, Binary::new(b"secret").ok()).unwrap();
        assert!(!format!("{connect} {connect:?}").contains("secret"));
    }

    #[test]
    fn connect_is_written_in_its_own_version() {
        let mut bytes = Vec::new();
        Connect::new(Version::V3_1, Utf8::EMPTY).encode(Version::V5, &mut bytes).unwrap();
        assert_eq!(bytes, b"\x10\x0E\0\x06MQIsdp\x03\x02\0\0\0\0");
    }

    #[test]
    fn a_refusal_is_answered_in_the_version_that_was_read() {
        let answer = |bytes: &[u8]| decode(bytes, None, &Limits::default()).unwrap_err().answer;
        let wrong_flags = ConnectRefusal::MalformedPacket;
        assert_eq!(
            answer(b"\x10\x0C\0\x04MQTT\x05\x01\0\0\0\0\0"),
            Answer::ConnAck(Version::V5, wrong_flags)
        );
        assert_eq!(answer(b"\x10\x0C\0\x04MQTT\x04\x01\0\0\0\0\0"), Answer::Nothing);
        let level = ConnectRefusal::UnsupportedProtocolVersion;
        assert_eq!(answer(b"\x10\x07\0\x04MQTT\x06"), Answer::ConnAck(Version::V5, level));
        assert_eq!(answer(b"\x10\x07\0\x04MQTT\x03"), Answer::ConnAck(Version::V3_1_1, level));
        assert_eq!(answer(b"\x10\x07\0\x04mqtt\x05"), Answer::Nothing);
    }
}
