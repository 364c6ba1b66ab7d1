//! The forms of fields, each with both directions beside each other.

use std::borrow::Cow;
use std::num::NonZeroU32;
use std::sync::Arc;

use base::{ClaimLevels, ClaimRule, Claims, Identifiers, Interest, Message, Parts, Uses};
use protocol::MessageId;
use topic::{TopicFilter, TopicName};
use wire::{PacketId, Qos, SubscriptionIdentifier, Utf8};

use super::bytes::{Reader, put_number, put_run};
use super::error::Fault;

use crate::record::{Granted, Incarnation, Queued, WillFate, WillRecord};

/// The two lowest bits of a flag byte.
const QOS: u8 = 0b11;

fn qos(flags: u8) -> Result<Qos, Fault> {
    Qos::from_level(flags & QOS).ok_or(Fault::Flags(flags))
}

fn defined(flags: u8, all: u8) -> Result<(), Fault> {
    if flags & !all == 0 { Ok(()) } else { Err(Fault::Flags(flags)) }
}

/// Each flag in its place, if it is set.
fn flags<const N: usize>(qos: Qos, others: [(bool, u8); N]) -> u8 {
    others.into_iter().fold(qos.level(), |flags, (is_set, flag)| if is_set { flags | flag } else { flags })
}

/// A text behind its number of bytes, checked by the rules of what it is.
macro_rules! texts {
    ($($(#[$doc:meta])* $name:ident: $check:expr;)*) => {$(
        $(#[$doc])*
        pub(super) mod $name {
            use super::*;

            #[inline]
            pub(in super::super) fn put(text: &str, into: &mut Vec<u8>) {
                put_run(text.as_bytes(), into);
            }

            #[inline]
            pub(in super::super) fn take(from: &mut Reader<'_>) -> Result<Cow<'static, str>, Fault> {
                let check: fn(&str) -> Result<(), Fault> = $check;
                let text = std::str::from_utf8(from.run()?).map_err(|_| Fault::Utf8)?;
                check(text)?;
                Ok(Cow::Owned(text.to_owned()))
            }
        }
    )*};
}

texts! {
    client_id: |text| Utf8::new(text).map(drop).map_err(Fault::Text);
    topic_name: |text| TopicName::new(text).map(drop).map_err(Fault::Topic);
    text: |text| Utf8::new(text).map(drop).map_err(Fault::Text);
    filter: |text| TopicFilter::new(text).map(drop).map_err(Fault::Filter);
    /// Begins with `$share/`.
    shared_filter: |text| {
        let filter = TopicFilter::new(text).map_err(Fault::Filter)?;
        filter.shared().map(drop).ok_or(Fault::NotShared)
    };
}

/// A value that is one number in a record, and back.
macro_rules! numbers {
    ($($name:ident: $type:ty, $to:expr, $from:expr;)*) => {$(
        pub(super) mod $name {
            use super::*;

            #[inline]
            pub(in super::super) fn put(value: &$type, into: &mut Vec<u8>) {
                let to: fn(&$type) -> u64 = $to;
                put_number(to(value), into);
            }

            #[inline]
            pub(in super::super) fn take(from: &mut Reader<'_>) -> Result<$type, Fault> {
                let back: fn(u64) -> Result<$type, Fault> = $from;
                back(from.number()?)
            }
        }
    )*};
}

numbers! {
    incarnation: Incarnation, |incarnation| incarnation.0, |number| Ok(Incarnation(number));
    message_id: MessageId, |message| message.0, |number| Ok(MessageId(number));
    secs: u32, |secs| u64::from(*secs), |number| u32::try_from(number).map_err(|_| Fault::Number);
    unix_ms: u64, |unix_ms| *unix_ms, Ok;
    place: u64, |place| *place, Ok;
    packet_id: PacketId, |id| u64::from(id.value()), |number| {
        let id = u16::try_from(number).map_err(|_| Fault::Number)?;
        PacketId::new(id).ok_or(Fault::PacketId)
    };
    identifier: NonZeroU32, |identifier| u64::from(identifier.get()), |number| {
        let id = u32::try_from(number).ok().and_then(SubscriptionIdentifier::new).ok_or(Fault::Identifier)?;
        NonZeroU32::new(id.value()).ok_or(Fault::Identifier)
    };
    flag: bool, |flag| u64::from(*flag), |number| match number {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Fault::Number),
    };
    fate: WillFate,
        |fate| match fate { WillFate::Dropped => 0, WillFate::Waits => 1, WillFate::Due => 2 },
        |number| match number {
            0 => Ok(WillFate::Dropped),
            1 => Ok(WillFate::Waits),
            2 => Ok(WillFate::Due),
            _ => Err(Fault::Number),
        };
}

/// The options of a SUBSCRIBE (MQTT 5.0, 3.8.3.1) without Retain Handling, which is over when it is granted, and a
/// subscription identifier if it has one.
pub(super) mod interest {
    use super::*;

    const NO_LOCAL: u8 = 0x04;
    const RETAIN_AS_PUBLISHED: u8 = 0x08;
    const HAS_IDENTIFIER: u8 = 0x10;

    pub(in super::super) fn put(interest: &Interest, into: &mut Vec<u8>) {
        let identifier = interest.identifier();
        into.push(flags(
            interest.qos(),
            [
                (interest.no_local(), NO_LOCAL),
                (interest.retain_as_published(), RETAIN_AS_PUBLISHED),
                (identifier.is_some(), HAS_IDENTIFIER),
            ],
        ));
        identifier.iter().for_each(|number| identifier::put(number, into));
    }

    pub(in super::super) fn take(from: &mut Reader<'_>) -> Result<Interest, Fault> {
        let flags = from.byte()?;
        defined(flags, QOS | NO_LOCAL | RETAIN_AS_PUBLISHED | HAS_IDENTIFIER)?;
        let identifier = if flags & HAS_IDENTIFIER != 0 { Some(identifier::take(from)?) } else { None };
        Ok(Interest::new(qos(flags)?)
            .with_no_local(flags & NO_LOCAL != 0)
            .with_retain_as_published(flags & RETAIN_AS_PUBLISHED != 0)
            .with_identifier(identifier))
    }
}

/// As what one queue's message is sent.
pub(super) mod granted {
    use super::*;

    const RETAIN: u8 = 0x04;
    const HAS_IDENTIFIERS: u8 = 0x08;

    #[inline]
    pub(in super::super) fn put(granted: &Granted, into: &mut Vec<u8>) {
        let Granted { qos, retain, ref identifiers } = *granted;
        into.push(flags(qos, [(retain, RETAIN), (!identifiers.is_empty(), HAS_IDENTIFIERS)]));
        if !identifiers.is_empty() {
            put_number(identifiers.len() as u64, into);
            identifiers.iter().for_each(|number| identifier::put(number, into));
        }
    }

    #[inline]
    pub(in super::super) fn take(from: &mut Reader<'_>) -> Result<Cow<'static, Granted>, Fault> {
        take_owned(from).map(Cow::Owned)
    }

    #[inline]
    pub(super) fn take_owned(from: &mut Reader<'_>) -> Result<Granted, Fault> {
        let flags = from.byte()?;
        defined(flags, QOS | RETAIN | HAS_IDENTIFIERS)?;
        let qos = qos(flags)?;
        let identifiers =
            if flags & HAS_IDENTIFIERS != 0 { take_identifiers(from)? } else { Identifiers::new() };
        Ok(Granted { qos, retain: flags & RETAIN != 0, identifiers })
    }

    #[inline]
    pub(super) fn pass(from: &mut Reader<'_>) -> Result<(), Fault> {
        if from.byte()? & HAS_IDENTIFIERS != 0 {
            for _ in 0..from.count(1)? {
                from.number()?;
            }
        }
        Ok(())
    }

    fn take_identifiers(from: &mut Reader<'_>) -> Result<Identifiers, Fault> {
        match from.count(1)? {
            0 => Err(Fault::Identifier),
            count => (0..count).map(|_| identifier::take(from)).collect(),
        }
    }
}

/// The queues of a message, behind their number.
pub(super) mod queues {
    use super::*;

    /// The queue's number and the flags.
    const ENTRY_BYTES_MIN: usize = 2;

    #[inline]
    pub(in super::super) fn put(queues: &[Queued], into: &mut Vec<u8>) {
        put_number(queues.len() as u64, into);
        for Queued { queue, granted } in queues {
            incarnation::put(queue, into);
            granted::put(granted, into);
        }
    }

    #[inline]
    pub(in super::super) fn take(from: &mut Reader<'_>) -> Result<Cow<'static, [Queued]>, Fault> {
        let count = from.count(ENTRY_BYTES_MIN)?;
        take_some(count, from).map(Cow::Owned)
    }

    /// The first, if there is one, and the others.
    #[inline]
    pub(in super::super) fn split(from: &mut Reader<'_>) -> Result<Option<(Queued, Vec<Queued>)>, Fault> {
        match from.count(ENTRY_BYTES_MIN)? {
            0 => Ok(None),
            count => Ok(Some((take_one(from)?, take_some(count - 1, from)?))),
        }
    }

    fn take_some(count: usize, from: &mut Reader<'_>) -> Result<Vec<Queued>, Fault> {
        let mut queues = Vec::with_capacity(count);
        for _ in 0..count {
            queues.push(take_one(from)?);
        }
        Ok(queues)
    }

    #[inline]
    fn take_one(from: &mut Reader<'_>) -> Result<Queued, Fault> {
        let queue = incarnation::take(from)?;
        Ok(Queued { queue, granted: granted::take_owned(from)? })
    }

    /// Whether something is the case for one of the queues.
    #[inline]
    pub(in super::super) fn any(
        from: &mut Reader<'_>,
        mut is_it: impl FnMut(Incarnation) -> bool,
    ) -> Result<bool, Fault> {
        let mut is_any = false;
        for _ in 0..from.count(ENTRY_BYTES_MIN)? {
            let queue = incarnation::take(from)?;
            granted::pass(from)?;
            is_any = is_any || is_it(queue);
        }
        Ok(is_any)
    }
}

/// A message: flags, lengths, what it has of publisher and expiry, and then its bytes in one piece.
pub(super) mod message {
    use super::*;

    const RETAIN: u8 = 0x04;
    const HAS_PUBLISHER: u8 = 0x08;
    const EXPIRES: u8 = 0x10;

    #[inline]
    pub(in super::super) fn put(message: &Message, into: &mut Vec<u8>) {
        let Parts { bytes, topic_bytes, properties_bytes, publisher, qos, retain, expires_unix_ms } =
            message.parts();
        let has = [(publisher.is_some(), HAS_PUBLISHER), (expires_unix_ms.is_some(), EXPIRES)];
        into.push(flags(qos, [(retain, RETAIN), has[0], has[1]]));
        publisher.iter().for_each(|publisher| put_run(publisher.as_bytes(), into));
        expires_unix_ms.iter().for_each(|expires_unix_ms| put_number(*expires_unix_ms, into));
        put_number(u64::from(topic_bytes), into);
        put_number(u64::from(properties_bytes), into);
        put_run(bytes, into);
    }

    #[inline]
    pub(in super::super) fn take(from: &mut Reader<'_>) -> Result<Cow<'static, Arc<Message>>, Fault> {
        let flags = from.byte()?;
        defined(flags, QOS | RETAIN | HAS_PUBLISHER | EXPIRES)?;
        let publisher = if flags & HAS_PUBLISHER != 0 {
            let publisher = from.run()?;
            Some(from.publishers.find(publisher)?)
        } else {
            None
        };
        let expires_unix_ms = if flags & EXPIRES != 0 { Some(from.number()?) } else { None };
        let parts = Parts {
            topic_bytes: from.number_32()?,
            properties_bytes: from.number_32()?,
            bytes: from.run()?,
            publisher: publisher.as_ref(),
            qos: qos(flags)?,
            retain: flags & RETAIN != 0,
            expires_unix_ms,
        };
        Message::from_parts(&parts).map(|message| Cow::Owned(Arc::new(message))).map_err(Fault::Message)
    }

    /// Passes over it: returns what it would take in memory, in bytes, and when it expires.
    #[inline]
    pub(in super::super) fn pass(from: &mut Reader<'_>) -> Result<(usize, Option<u64>), Fault> {
        let flags = from.byte()?;
        if flags & HAS_PUBLISHER != 0 {
            from.run()?;
        }
        let expires_unix_ms = if flags & EXPIRES != 0 { Some(from.number()?) } else { None };
        from.number()?;
        from.number()?;
        Ok((Message::size_bytes_of(from.run()?.len()), expires_unix_ms))
    }
}

/// A text, where there is one.
pub(super) mod optional_text {
    use super::*;

    pub(in super::super) fn put(value: &Option<Cow<'_, str>>, into: &mut Vec<u8>) {
        flag::put(&value.is_some(), into);
        value.iter().for_each(|value| text::put(value, into));
    }

    pub(in super::super) fn take(from: &mut Reader<'_>) -> Result<Option<Cow<'static, str>>, Fault> {
        if flag::take(from)? { text::take(from).map(Some) } else { Ok(None) }
    }
}

/// The rights that a token gives, where there are some.
pub(super) mod claims {
    use super::*;

    const GROUPS: u8 = 1;
    const GROUPS_AND_RULES: u8 = 2;
    const USES: u8 = 0b111;
    const ALLOWS: u8 = 0x08;
    const QOS_SHIFT: u32 = 4;
    const RETAIN: u8 = 0x40;
    /// The length of a name and one byte of it; the same and a flag byte for a rule.
    const GROUP_BYTES_MIN: usize = 2;
    const RULE_BYTES_MIN: usize = 3;

    pub(in super::super) fn put(claims: &Option<Arc<Claims>>, into: &mut Vec<u8>) {
        let Some(claims) = claims else { return into.push(0) };
        into.push(if claims.rules().is_some() { GROUPS_AND_RULES } else { GROUPS });
        put_number(claims.groups().len() as u64, into);
        claims.groups().iter().for_each(|group| put_run(group.as_bytes(), into));
        let Some(rules) = claims.rules() else { return };
        put_number(rules.len() as u64, into);
        for ClaimRule { filter, uses, allows } in rules {
            put_run(filter.as_bytes(), into);
            let levels = allows.map_or(0, |ClaimLevels { qos_max, retain }| {
                ALLOWS | qos_max.level() << QOS_SHIFT | if retain { RETAIN } else { 0 }
            });
            into.push(uses.bits() | levels);
        }
    }

    pub(in super::super) fn take(from: &mut Reader<'_>) -> Result<Option<Arc<Claims>>, Fault> {
        let form = from.byte()?;
        if form == 0 {
            return Ok(None);
        }
        defined(form, GROUPS | GROUPS_AND_RULES)?;
        let groups: Vec<Box<str>> =
            (0..from.count(GROUP_BYTES_MIN)?).map(|_| take_text(from)).collect::<Result<_, _>>()?;
        let rules = match form {
            GROUPS => None,
            GROUPS_AND_RULES => {
                let count = from.count(RULE_BYTES_MIN)?;
                Some((0..count).map(|_| take_rule(from)).collect::<Result<_, _>>()?)
            }
            _ => return Err(Fault::Flags(form)),
        };
        let claims = Claims::new(groups.clone(), rules).filter(|claims| *claims.groups() == *groups);
        claims.map(|claims| Some(Arc::new(claims))).ok_or(Fault::Claims)
    }

    fn take_text(from: &mut Reader<'_>) -> Result<Box<str>, Fault> {
        std::str::from_utf8(from.run()?).map(Box::from).map_err(|_| Fault::Utf8)
    }

    fn take_rule(from: &mut Reader<'_>) -> Result<ClaimRule, Fault> {
        let (filter, bits) = (take_text(from)?, from.byte()?);
        let uses = Uses::from_bits(bits & USES).ok_or(Fault::Flags(bits))?;
        if bits & ALLOWS == 0 {
            defined(bits, USES)?;
            return Ok(ClaimRule { filter, uses, allows: None });
        }
        defined(bits, USES | ALLOWS | QOS << QOS_SHIFT | RETAIN)?;
        let levels = ClaimLevels { qos_max: qos(bits >> QOS_SHIFT)?, retain: bits & RETAIN != 0 };
        Ok(ClaimRule { filter, uses, allows: Some(levels) })
    }
}

/// A will, where there is one.
pub(super) mod optional_will {
    use super::*;

    pub(in super::super) fn put(record: &Option<WillRecord<'_>>, into: &mut Vec<u8>) {
        flag::put(&record.is_some(), into);
        record.iter().for_each(|record| will::put(record, into));
    }

    pub(in super::super) fn take(from: &mut Reader<'_>) -> Result<Option<WillRecord<'static>>, Fault> {
        if flag::take(from)? { will::take(from).map(Some) } else { Ok(None) }
    }
}

/// A will: its number, its delay in seconds and its message.
pub(super) mod will {
    use super::*;

    pub(in super::super) fn put(will: &WillRecord<'_>, into: &mut Vec<u8>) {
        message_id::put(&will.id, into);
        secs::put(&will.delay_secs, into);
        message::put(&will.message, into);
    }

    pub(in super::super) fn take(from: &mut Reader<'_>) -> Result<WillRecord<'static>, Fault> {
        let (id, delay_secs) = (message_id::take(from)?, secs::take(from)?);
        Ok(WillRecord { id, delay_secs, message: message::take(from)? })
    }
}

/// The place from which a cursor goes on.
pub(super) mod position {
    use super::*;

    pub(in super::super) fn put(position: &[u8], into: &mut Vec<u8>) {
        put_run(position, into);
    }

    pub(in super::super) fn take(from: &mut Reader<'_>) -> Result<Cow<'static, [u8]>, Fault> {
        Ok(Cow::Owned(from.run()?.to_vec()))
    }
}
