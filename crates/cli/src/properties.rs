//! `-D`: properties of MQTT 5 for a packet.

use client::{MessageProperties, SubscribeProperties, UnsubscribeProperties, UserProperty, Utf8};
use topic::TopicName;
use wire::{Binary, PayloadFormat, Property, ResponseTopic, SubscriptionIdentifier};

use crate::failure::Failure;

/// Packets for which properties can be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command {
    Connect,
    Publish,
    Subscribe,
    Unsubscribe,
    Disconnect,
    Will,
}

/// Packets with properties that the user cannot set.
const OTHERS: &[&str] = &["connack", "puback", "pubrec", "pubrel", "pubcomp", "suback", "unsuback", "auth"];

impl Command {
    const ALL: &'static [(&'static str, Self)] = &[
        ("connect", Self::Connect),
        ("publish", Self::Publish),
        ("subscribe", Self::Subscribe),
        ("unsubscribe", Self::Unsubscribe),
        ("disconnect", Self::Disconnect),
        ("will", Self::Will),
    ];

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, command)| *command == self).map_or("", |(name, _)| name)
    }

    /// Properties that the user may set in this packet (sections 3.1.2.11, 3.3.2.3, 3.8.2.1, 3.10.2.1, 3.14.2.2,
    /// 3.1.3.2).
    fn properties(self) -> &'static [Property] {
        use Property as P;
        match self {
            Self::Connect => &[
                P::AuthenticationData,
                P::AuthenticationMethod,
                P::MaximumPacketSize,
                P::ReceiveMaximum,
                P::RequestProblemInformation,
                P::RequestResponseInformation,
                P::SessionExpiryInterval,
                P::TopicAliasMaximum,
                P::UserProperty,
            ],
            Self::Publish => &[
                P::ContentType,
                P::CorrelationData,
                P::MessageExpiryInterval,
                P::PayloadFormatIndicator,
                P::ResponseTopic,
                P::TopicAlias,
                P::UserProperty,
            ],
            Self::Subscribe => &[P::SubscriptionIdentifier, P::UserProperty],
            Self::Unsubscribe => &[P::UserProperty],
            Self::Disconnect => &[P::ReasonString, P::SessionExpiryInterval, P::UserProperty],
            Self::Will => &[
                P::ContentType,
                P::CorrelationData,
                P::MessageExpiryInterval,
                P::PayloadFormatIndicator,
                P::ResponseTopic,
                P::UserProperty,
                P::WillDelayInterval,
            ],
        }
    }
}

/// Value of a property, by its kind.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Value {
    Number(u32),
    Text(String),
    Pair(String, String),
}

/// Bounds of a numeric property; `None` for other kinds.
fn bounds(property: Property) -> Option<std::ops::RangeInclusive<u32>> {
    use Property as P;
    Some(match property {
        P::PayloadFormatIndicator | P::RequestProblemInformation | P::RequestResponseInformation => 0..=1,
        P::ReceiveMaximum | P::TopicAlias => 1..=65_535,
        P::TopicAliasMaximum => 0..=65_535,
        P::SubscriptionIdentifier => 1..=268_435_455,
        P::MaximumPacketSize => 1..=u32::MAX,
        P::MessageExpiryInterval | P::SessionExpiryInterval | P::WillDelayInterval => 0..=u32::MAX,
        _ => return None,
    })
}

/// All properties from the command line, in their order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Properties(Vec<(Command, Property, Value)>);

type Next<'n, 'a> = &'n mut dyn FnMut() -> Result<Option<&'a str>, Failure>;

/// Failure for a repeated property that may occur only once.
pub(crate) fn duplicate(command: Command) -> Failure {
    let name = command.name().to_uppercase();
    Failure::usage(format!("Error in {name} properties: Duplicate property in property list"))
}

impl Properties {
    /// Parses one property from the words after `-D`.
    pub(crate) fn add(&mut self, next: Next<'_, '_>) -> Result<(), Failure> {
        let mut word = || {
            let few = "Error: --property argument given but not enough arguments specified.";
            next()?.ok_or_else(|| Failure::usage(few))
        };
        let (command_name, property_name, first) = (word()?.to_lowercase(), word()?, word()?);
        let command = Command::ALL.iter().find(|(name, _)| *name == command_name);
        if command.is_none() && !OTHERS.contains(&command_name.as_str()) {
            let names: Vec<_> = Command::ALL.iter().map(|(name, _)| *name).collect();
            let bad = Failure::usage("Error: Invalid command given in --property argument.");
            return Err(bad.advise(format!("The commands are {}.", names.join(", "))));
        }
        let named = Property::ALL.iter().find(|property| property.as_str() == property_name);
        let advised = |failure: Failure| match command {
            Some((name, command)) => {
                let names: Vec<_> = command.properties().iter().map(|property| property.as_str()).collect();
                failure.advise(format!("The properties of {name} are {}.", names.join(", ")))
            }
            None => failure.advise(format!("No property of {command_name} can be set.")),
        };
        let property = *named.ok_or_else(|| {
            advised(Failure::usage("Error: Invalid property name given in --property argument."))
        })?;
        let Some(&(_, command)) = command.filter(|(_, command)| command.properties().contains(&property))
        else {
            let text = "property not supported for";
            return Err(advised(Failure::usage(format!(
                "Error: {property_name} {text} {command_name} in --property argument."
            ))));
        };
        let value = match bounds(property) {
            Some(bounds) => Value::Number(number(first, &bounds, property_name)?),
            None if property == Property::UserProperty => Value::Pair(first.to_owned(), word()?.to_owned()),
            None => Value::Text(text(property, first)?),
        };
        self.0.push((command, property, value));
        Ok(())
    }

    /// Checks that only user properties are repeated.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let mut seen = Vec::new();
        for (command, property, _) in &self.0 {
            if *property == Property::UserProperty {
                continue;
            }
            if seen.contains(&(command, property)) {
                return Err(duplicate(*command));
            }
            seen.push((command, property));
        }
        Ok(())
    }

    pub(crate) fn number(&self, command: Command, property: Property) -> Option<u32> {
        self.find(command, property).and_then(|value| match value {
            Value::Number(number) => Some(*number),
            _ => None,
        })
    }

    pub(crate) fn text(&self, command: Command, property: Property) -> Option<&str> {
        self.find(command, property).and_then(|value| match value {
            Value::Text(text) => Some(text.as_str()),
            _ => None,
        })
    }

    fn find(&self, command: Command, property: Property) -> Option<&Value> {
        let mut found = self.0.iter().filter(|(of, is, _)| (*of, *is) == (command, property));
        found.next().map(|(_, _, value)| value)
    }

    /// User properties of a packet.
    pub(crate) fn pairs(&self, command: Command) -> Vec<UserProperty<'_>> {
        let of_command = self.0.iter().filter(|(of, ..)| *of == command);
        let pairs = of_command.filter_map(|(_, _, value)| match value {
            Value::Pair(name, value) => Some(UserProperty { name: utf8(name), value: utf8(value) }),
            _ => None,
        });
        pairs.collect()
    }

    /// Properties of a message or a will. `pairs` are its user properties.
    pub(crate) fn message<'a>(
        &'a self,
        command: Command,
        pairs: &'a [UserProperty<'a>],
    ) -> MessageProperties<'a> {
        let number = |property| self.number(command, property);
        let text = |property| self.text(command, property);
        let format = |number| if number == 0 { PayloadFormat::Unspecified } else { PayloadFormat::Utf8 };
        MessageProperties {
            payload_format: number(Property::PayloadFormatIndicator).map(format),
            message_expiry_interval_secs: number(Property::MessageExpiryInterval),
            content_type: text(Property::ContentType).map(utf8),
            response_topic: text(Property::ResponseTopic)
                .and_then(|topic| TopicName::new(topic).ok())
                .map(ResponseTopic),
            correlation_data: text(Property::CorrelationData)
                .and_then(|data| Binary::new(data.as_bytes()).ok()),
            user_properties: pairs.into(),
        }
    }

    pub(crate) fn subscribe<'a>(&self, pairs: &'a [UserProperty<'a>]) -> SubscribeProperties<'a> {
        let identifier = self.number(Command::Subscribe, Property::SubscriptionIdentifier);
        SubscribeProperties {
            subscription_identifier: identifier.and_then(SubscriptionIdentifier::new),
            user_properties: pairs.into(),
        }
    }
}

pub(crate) fn unsubscribe<'a>(pairs: &'a [UserProperty<'a>]) -> UnsubscribeProperties<'a> {
    UnsubscribeProperties { user_properties: pairs.into() }
}

fn number(text: &str, bounds: &std::ops::RangeInclusive<u32>, name: &str) -> Result<u32, Failure> {
    let number = text.parse().ok().filter(|number| bounds.contains(number));
    number.ok_or_else(|| {
        let bad = Failure::usage(format!("Error: Property value ({text}) out of range for property {name}."));
        bad.advise(format!("The value is a number from {} to {}.", bounds.start(), bounds.end()))
    })
}

/// Checks that the text of a response topic is a topic name.
fn text(property: Property, text: &str) -> Result<String, Failure> {
    if property == Property::ResponseTopic && TopicName::new(text).is_err() {
        return Err(Failure::usage(format!(
            "Error: Invalid response topic '{text}', does it contain '+' or '#'?"
        )));
    }
    Ok(text.to_owned())
}

/// Converts text that was checked when the command line was parsed.
fn utf8(text: &str) -> Utf8<'_> {
    Utf8::new(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(properties: &mut Properties, line: &str) -> Result<(), Failure> {
        let mut words = line.split(' ');
        properties.add(&mut || Ok(words.next()))
    }

    #[test]
    fn a_property_goes_with_its_packet_only() {
        let mut properties = Properties::default();
        add(&mut properties, "PUBLISH content-type text").unwrap();
        add(&mut properties, "publish user-property a b").unwrap();
        add(&mut properties, "will content-type other").unwrap();
        let pairs = properties.pairs(Command::Publish);
        let message = properties.message(Command::Publish, &pairs);
        assert_eq!(message.content_type, Some(utf8("text")));
        assert_eq!(message.user_properties.iter().count(), 1);
        assert!(properties.check().is_ok());
        add(&mut properties, "publish content-type text").unwrap();
        assert!(properties.check().is_err(), "only user properties may be there twice");
    }

    #[test]
    fn invalid_properties_are_refused() {
        for line in [
            "publish content-type",
            "publish user-property a",
            "publish will-delay-interval 5",
            "auth authentication-method x",
            "frobnicate content-type x",
            "publish frobnicate x",
            "publish topic-alias 0",
            "publish payload-format-indicator 2",
            "publish response-topic a/+",
            "connect receive-maximum many",
        ] {
            assert!(add(&mut Properties::default(), line).is_err(), "{line}");
        }
    }
}
