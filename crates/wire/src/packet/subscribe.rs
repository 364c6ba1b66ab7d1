use core::fmt;

use topic::{FilterError, TopicFilter};

use crate::header::PacketType;
use crate::number::{PacketId, SubscriptionIdentifier};
use crate::property::properties;
use crate::read::Reader;
use crate::repeated::{OneOrMore, UserProperties, short_text};
use crate::rule::{self, Fault};
use crate::sink::Sink;
use crate::string::{Utf8, put_counted};
use crate::trace::{Flag, Text};
use crate::version::{Qos, Version};
use crate::walk::{ControlPacket, Field, Layout, Walk};

/// SUBSCRIBE: a client subscribes to topics (section 3.8).
///
/// Before MQTT 5 the QoS is the only option of a subscription. Other options are refused there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Subscribe<'a> {
    /// The identifier that SUBACK repeats.
    pub packet_id: PacketId,
    /// The properties of all these subscriptions; MQTT 5 only.
    pub properties: SubscribeProperties<'a>,
    /// The requested subscriptions, at least one.
    pub subscriptions: OneOrMore<'a, Subscription<'a>>,
}

properties! {
    /// The properties of SUBSCRIBE (section 3.8.2.1).
    pub struct SubscribeProperties<'a> {
        /// An identifier that the server adds to every message that it sends for these subscriptions.
        SubscriptionIdentifier => subscription_identifier: Option<SubscriptionIdentifier>,
        /// Pairs of name and value, in order. The application defines their meaning.
        UserProperty => user_properties: UserProperties<'a>,
    }
}

/// One filter, and the options for messages that match it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Subscription<'a> {
    filter: RequestedFilter<'a>,
    options: SubscriptionOptions,
}

/// A filter in SUBSCRIBE or UNSUBSCRIBE.
///
/// `Err` occurs only in received packets, and only before MQTT 5, which introduced shared subscriptions. The server
/// then answers this filter with the failure code, and accepts the rest of the packet.
pub type RequestedFilter<'a> = Result<TopicFilter<'a>, MalformedShare<'a>>;

/// A text that begins with `$share/`, but is no valid shared filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MalformedShare<'a>(Utf8<'a>);

/// Subscription Options (section 3.8.3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SubscriptionOptions {
    /// The highest QoS with which messages are delivered.
    pub qos: Qos,
    /// Whether messages that the client itself publishes are excluded. Not for shared subscriptions
    /// \[MQTT-3.8.3-4\].
    pub no_local: bool,
    /// Whether messages keep the RETAIN flag of the publisher. Otherwise RETAIN is 0.
    pub retain_as_published: bool,
    /// The retained messages that the server sends at once.
    pub retain_handling: RetainHandling,
}

/// The retained messages that the server sends when a client subscribes (section 3.8.3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RetainHandling {
    /// All retained messages that match.
    #[default]
    Send = 0,
    /// All retained messages that match, if the subscription is new.
    SendIfNew = 1,
    /// The server sends no retained messages.
    DoNotSend = 2,
}

/// Error of No Local on a shared subscription \[MQTT-3.8.3-4\].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoLocalOnShared;

impl<'a> Subscription<'a> {
    /// Makes a subscription of a filter and its options.
    ///
    /// # Errors
    /// If the options have No Local and the filter is shared.
    pub fn new(filter: TopicFilter<'a>, options: SubscriptionOptions) -> Result<Self, NoLocalOnShared> {
        if options.no_local && filter.shared().is_some() {
            return Err(NoLocalOnShared);
        }
        Ok(Self { filter: Ok(filter), options })
    }

    /// Makes a subscription of a filter and a QoS. All other options are 0.
    pub fn with_qos(filter: TopicFilter<'a>, qos: Qos) -> Self {
        Self { filter: Ok(filter), options: SubscriptionOptions { qos, ..Default::default() } }
    }

    /// The filter of the subscription.
    pub const fn filter(&self) -> RequestedFilter<'a> {
        self.filter
    }

    /// The options of the subscription.
    pub const fn options(&self) -> SubscriptionOptions {
        self.options
    }
}

impl<'a> MalformedShare<'a> {
    /// The whole text, `$share/` included.
    pub const fn as_str(self) -> &'a str {
        self.0.as_str()
    }
}

impl<'a> ControlPacket<'a> for Subscribe<'a> {
    const TYPE: PacketType = PacketType::Subscribe;
}

impl<'a> Layout<'a> for Subscribe<'a> {
    fn layout<W: Walk<'a, Self>>(walk: &mut W) -> Result<W::Built, Fault> {
        let packet_id = walk.field(|packet| packet.packet_id)?;
        let properties = walk.properties(|packet| &packet.properties)?;
        let subscriptions = walk.list(&rule::NO_SUBSCRIPTION, |packet| Some(packet.subscriptions))?;
        Ok(walk.build(|| Self { packet_id, properties, subscriptions }))
    }
}

impl<'a> Field<'a> for RequestedFilter<'a> {
    fn read(from: &mut Reader<'a>) -> Result<Self, Fault> {
        let text = from.text()?;
        match TopicFilter::new(text) {
            Ok(filter) => Ok(Ok(filter)),
            Err(FilterError::MalformedShare) if !from.version.is_5() => {
                let text = Utf8::new(text).map_err(|_| &rule::TOPIC_NUL)?;
                Ok(Err(MalformedShare(text)))
            }
            Err(error) => Err(fault(error)),
        }
    }

    fn write<S: Sink + ?Sized>(&self, version: Version, sink: &mut S) -> Result<(), Fault> {
        let text = match *self {
            Ok(filter) => filter.as_str(),
            Err(share) if !version.is_5() => share.as_str(),
            Err(_) => return Err(&rule::MALFORMED_SHARE),
        };
        put_counted(text.as_bytes(), sink);
        Ok(())
    }

    #[inline]
    fn check(from: &mut Reader<'a>) -> Result<(), Fault> {
        match behind_plain_filter(from.rest) {
            Some(behind) => {
                from.rest = behind;
                Ok(())
            }
            None => Self::read(from).map(drop),
        }
    }
}

/// Returns the bytes behind a filter of at most 127 bytes, if the filter is plain: ASCII without U+0000 and wildcards,
/// and not shared. A packet may have a hundred thousand filters, and most are plain.
#[inline]
fn behind_plain_filter(bytes: &[u8]) -> Option<&[u8]> {
    let (text, behind) = short_text(bytes)?;
    let is_special = |byte: &u8| matches!(byte, 0 | b'+' | b'#' | 128..);
    let begins_plain = text.first().is_some_and(|first| *first != b'$');
    // All bytes are looked at, several at a time.
    let is_plain = text.iter().fold(begins_plain, |is_plain, byte| is_plain & !is_special(byte));
    is_plain.then_some(behind)
}

fn fault(error: FilterError) -> Fault {
    match error {
        FilterError::Empty => &rule::FILTER_EMPTY,
        FilterError::Nul | FilterError::TooLong => &rule::TOPIC_NUL,
        FilterError::MultiLevelWildcard => &rule::MULTI_LEVEL_WILDCARD,
        FilterError::SingleLevelWildcard => &rule::SINGLE_LEVEL_WILDCARD,
        FilterError::MalformedShare => &rule::MALFORMED_SHARE,
    }
}

impl<'a> Field<'a> for Subscription<'a> {
    fn read(from: &mut Reader<'a>) -> Result<Self, Fault> {
        let filter = RequestedFilter::read(from)?;
        let options = SubscriptionOptions::read(from)?;
        if options.no_local && filter.is_ok_and(|filter| filter.shared().is_some()) {
            return Err(&rule::NO_LOCAL_ON_SHARED);
        }
        Ok(Self { filter, options })
    }

    fn write<S: Sink + ?Sized>(&self, version: Version, sink: &mut S) -> Result<(), Fault> {
        self.filter.write(version, sink)?;
        self.options.write(version, sink)
    }

    #[inline]
    fn check(from: &mut Reader<'a>) -> Result<(), Fault> {
        let Some(behind) = behind_plain_filter(from.rest) else { return Self::read(from).map(drop) };
        from.rest = behind;
        // No Local is forbidden on a shared filter only.
        SubscriptionOptions::read(from).map(drop)
    }
}

impl<'a> Field<'a> for SubscriptionOptions {
    fn read(from: &mut Reader<'a>) -> Result<Self, Fault> {
        let bits = from.u8()?;
        let reserved = if from.version.is_5() { 0b1100_0000 } else { 0b1111_1100 };
        if bits & reserved != 0 {
            return Err(&rule::SUBSCRIPTION_RESERVED_BITS);
        }
        let qos = Qos::from_level(bits & 0b11).ok_or(&rule::SUBSCRIPTION_QOS_3)?;
        let retain_handling = match bits >> 4 {
            0 => RetainHandling::Send,
            1 => RetainHandling::SendIfNew,
            2 => RetainHandling::DoNotSend,
            _ => return Err(&rule::RETAIN_HANDLING_3),
        };
        Ok(Self {
            qos,
            no_local: bits & 0b100 != 0,
            retain_as_published: bits & 0b1000 != 0,
            retain_handling,
        })
    }

    fn write<S: Sink + ?Sized>(&self, version: Version, sink: &mut S) -> Result<(), Fault> {
        let Self { qos, no_local, retain_as_published, retain_handling } = *self;
        let bits = qos.level()
            | u8::from(no_local) << 2
            | u8::from(retain_as_published) << 3
            | (retain_handling as u8) << 4;
        if bits > 2 && !version.is_5() {
            return Err(&rule::SUBSCRIPTION_RESERVED_BITS);
        }
        sink.put_byte(bits);
        Ok(())
    }
}

/// Writes the packet as in `SUBSCRIBE id=1 "a/b" q1, "c/#" q0 no-local`.
impl fmt::Display for Subscribe<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SUBSCRIBE id={}{} {}", self.packet_id, self.properties, self.subscriptions)
    }
}

impl fmt::Display for Subscription<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SubscriptionOptions { qos, no_local, retain_as_published, retain_handling } = self.options;
        write!(f, "{} {qos}{}", Requested(self.filter), Flag(no_local, "no-local"))?;
        write!(f, "{}", Flag(retain_as_published, "retain-as-published"))?;
        match retain_handling {
            RetainHandling::Send => Ok(()),
            handling => write!(f, " retain-handling={}", handling as u8),
        }
    }
}

/// A filter in the format of a trace.
pub(super) struct Requested<'a>(pub(super) RequestedFilter<'a>);

impl fmt::Display for Requested<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Text(self.0.map_or_else(MalformedShare::as_str, TopicFilter::as_str)).fmt(f)
    }
}

impl fmt::Display for NoLocalOnShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("No Local is not for shared subscriptions [MQTT-3.8.3-4]")
    }
}

impl core::error::Error for NoLocalOnShared {}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use topic::filter;

    use super::*;
    use crate::{Decoded, Limits, Packet, decode};

    /// [MQTT-3.8.3-4]
    #[test]
    fn no_local_on_a_shared_filter_cannot_be_built() {
        let options = SubscriptionOptions { no_local: true, ..Default::default() };
        assert_eq!(Subscription::new(filter!("$share/g/t"), options), Err(NoLocalOnShared));
        assert!(Subscription::new(filter!("t"), options).is_ok());
    }

    #[test]
    fn options_that_3_x_does_not_have_are_refused_there() {
        let options = SubscriptionOptions { no_local: true, ..Default::default() };
        let subscription = Subscription::new(filter!("t"), options).unwrap();
        let packet = Subscribe {
            packet_id: PacketId::MIN,
            properties: SubscribeProperties::EMPTY,
            subscriptions: OneOrMore::one(&subscription),
        };
        assert!(matches!(packet.encoded_len(Version::V3_1_1), Err(crate::EncodeError::Forbidden(_))));
        assert_eq!(packet.encoded_len(Version::V5), Ok(9));
    }

    /// Filters of packets are checked without being taken apart, where they are plain.
    #[test]
    fn a_filter_is_checked_as_it_is_read() {
        let long = [b'l'; 200];
        let texts: [&[u8]; 20] = [
            b"",
            b"a",
            b"a/b",
            b"/",
            b"+",
            b"#",
            b"a/#",
            b"a#",
            b"#/a",
            b"a+/b",
            b"+a",
            b"a\0",
            b"\x7f",
            b"a/\xc3\xa4",
            b"a\xff",
            b"$SYS/#",
            b"$share/g/a",
            b"$share/g",
            b"$share//a",
            &long,
        ];
        for version in [Version::V3_1_1, Version::V5] {
            for (text, options) in
                texts.iter().flat_map(|text| [0, 1, 4, 5, 3, 0x30, 0x80].map(|o| (text, o)))
            {
                let len = u16::try_from(text.len()).unwrap();
                let bytes = [&len.to_be_bytes()[..], text, &[options], b"behind"].concat();
                for len in 0..=bytes.len() {
                    let [mut read, mut checked] = [(); 2].map(|()| Reader::new(&bytes[..len], version));
                    let result = RequestedFilter::read(&mut read).map(drop);
                    assert_eq!(RequestedFilter::check(&mut checked), result, "{text:?}");
                    assert_eq!(checked.rest, read.rest, "{text:?}");
                    let [mut read, mut checked] = [(); 2].map(|()| Reader::new(&bytes[..len], version));
                    let result = Subscription::read(&mut read).map(drop);
                    assert_eq!(Subscription::check(&mut checked), result, "{text:?} {options:#x}");
                    assert!(result.is_err() || checked.rest == read.rest, "{text:?} {options:#x}");
                }
            }
        }
    }

    #[test]
    fn a_malformed_shared_filter_stays_in_3_x() {
        let bytes = b"\x82\x0D\0\x01\0\x08$share/g\x01";
        let decoded = decode(bytes, Some(Version::V3_1_1), &Limits::default());
        let Ok(Decoded::Packet { packet: Packet::Subscribe(packet), .. }) = decoded else {
            panic!("{decoded:?}")
        };
        let filters: Vec<_> = packet.subscriptions.iter().map(|subscription| subscription.filter()).collect();
        assert_eq!(filters[0].map_err(MalformedShare::as_str), Err("$share/g"));
        assert!(packet.encoded_len(Version::V5).is_err());
    }
}
