//! Owned copies of the fields that packets borrow.

use wire::{
    Binary, Disconnect, DisconnectProperties, DisconnectReason, MessageProperties, Qos, SubscribeProperties,
    SubscriptionIdentifier, SubscriptionOptions, UnsubscribeProperties, UserProperties, Utf8, Will,
};

use topic::{TopicFilter, TopicFilterBuf, TopicNameBuf};

use crate::error::OptionsError;

/// User Properties, in the encoding of [`MessageProperties::write_bytes`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct OwnedUserProperties(Box<[u8]>);

/// The will: the message that the server publishes when the connection ends without DISCONNECT.
#[derive(Debug, Clone)]
pub(crate) struct OwnedWill {
    topic: TopicNameBuf,
    payload: Box<[u8]>,
    qos: Qos,
    retain: bool,
    delay_interval_secs: Option<u32>,
    properties: Box<[u8]>,
}

/// SUBSCRIBE, without its packet identifier.
#[derive(Debug, Clone)]
pub(crate) struct OwnedSubscribe {
    pub(crate) subscriptions: Vec<(TopicFilterBuf, SubscriptionOptions)>,
    pub(crate) identifier: Option<SubscriptionIdentifier>,
    user_properties: OwnedUserProperties,
}

/// UNSUBSCRIBE, without its packet identifier.
#[derive(Debug)]
pub(crate) struct OwnedUnsubscribe {
    pub(crate) filters: Vec<TopicFilterBuf>,
    user_properties: OwnedUserProperties,
}

/// DISCONNECT, as a client sends it.
#[derive(Debug)]
pub(crate) struct OwnedDisconnect {
    pub(crate) reason: DisconnectReason,
    pub(crate) session_expiry_interval_secs: Option<u32>,
    reason_string: Option<Box<str>>,
    user_properties: OwnedUserProperties,
}

fn bytes_of(properties: &MessageProperties<'_>) -> Box<[u8]> {
    let mut bytes = Vec::new();
    // A vector has room for all of them.
    let written = properties.write_bytes(&mut bytes);
    debug_assert!(written.is_ok());
    bytes.into()
}

impl OwnedUserProperties {
    pub(crate) fn new(user_properties: UserProperties<'_>) -> Self {
        Self(bytes_of(&MessageProperties { user_properties, ..MessageProperties::EMPTY }))
    }

    pub(crate) fn get(&self) -> UserProperties<'_> {
        // Valid, because these bytes were written from properties.
        MessageProperties::from_bytes(&self.0).map(|all| all.user_properties).unwrap_or_default()
    }
}

impl OwnedWill {
    pub(crate) fn new(will: &Will<'_>) -> Self {
        Self {
            topic: will.topic.into(),
            payload: will.payload.as_bytes().into(),
            qos: will.qos,
            retain: will.retain,
            delay_interval_secs: will.delay_interval_secs,
            properties: bytes_of(&will.properties),
        }
    }

    pub(crate) fn will(&self) -> Result<Will<'_>, OptionsError> {
        Ok(Will {
            topic: self.topic.name(),
            payload: Binary::new(&self.payload).map_err(|_| OptionsError::Will)?,
            qos: self.qos,
            retain: self.retain,
            delay_interval_secs: self.delay_interval_secs,
            properties: MessageProperties::from_bytes(&self.properties).map_err(|_| OptionsError::Will)?,
        })
    }
}

impl OwnedSubscribe {
    pub(crate) fn new(
        subscriptions: &[(TopicFilter<'_>, SubscriptionOptions)],
        properties: &SubscribeProperties<'_>,
    ) -> Self {
        Self {
            subscriptions: subscriptions
                .iter()
                .map(|(filter, options)| ((*filter).into(), *options))
                .collect(),
            identifier: properties.subscription_identifier,
            user_properties: OwnedUserProperties::new(properties.user_properties),
        }
    }

    pub(crate) fn one(
        filter: &TopicFilterBuf,
        options: SubscriptionOptions,
        identifier: Option<SubscriptionIdentifier>,
    ) -> Self {
        let subscriptions = vec![(filter.clone(), options)];
        Self { subscriptions, identifier, user_properties: OwnedUserProperties::default() }
    }

    /// Removes a filter, and returns whether others are left.
    pub(crate) fn retain_other(&mut self, filter: TopicFilter<'_>) -> bool {
        self.subscriptions.retain(|(own, _)| own.filter() != filter);
        !self.subscriptions.is_empty()
    }

    pub(crate) fn filters(&self) -> impl Iterator<Item = &TopicFilterBuf> {
        self.subscriptions.iter().map(|(filter, _)| filter)
    }

    pub(crate) fn properties(&self) -> SubscribeProperties<'_> {
        SubscribeProperties {
            subscription_identifier: self.identifier,
            user_properties: self.user_properties.get(),
        }
    }
}

impl OwnedUnsubscribe {
    pub(crate) fn new(filters: &[TopicFilter<'_>], properties: &UnsubscribeProperties<'_>) -> Self {
        Self {
            filters: filters.iter().map(|filter| (*filter).into()).collect(),
            user_properties: OwnedUserProperties::new(properties.user_properties),
        }
    }

    pub(crate) fn one(filter: TopicFilterBuf) -> Self {
        Self { filters: vec![filter], user_properties: OwnedUserProperties::default() }
    }

    pub(crate) fn properties(&self) -> UnsubscribeProperties<'_> {
        UnsubscribeProperties { user_properties: self.user_properties.get() }
    }
}

impl OwnedDisconnect {
    pub(crate) fn new(packet: &Disconnect<'_>) -> Self {
        let DisconnectProperties { session_expiry_interval_secs, reason_string, user_properties, .. } =
            packet.properties;
        Self {
            reason: packet.reason,
            session_expiry_interval_secs,
            reason_string: reason_string.map(|text| text.as_str().into()),
            user_properties: OwnedUserProperties::new(user_properties),
        }
    }

    pub(crate) fn details(&self) -> session::Details<'_> {
        session::Details {
            reason_string: self.reason_string.as_deref().and_then(|text| Utf8::new(text).ok()),
            server_reference: None,
            user_properties: self.user_properties.get(),
        }
    }
}
