use core::fmt;

use crate::header::PacketType;
use crate::property::properties;
use crate::reason::AuthReason;
use crate::repeated::UserProperties;
use crate::rule::{self, Fault};
use crate::string::{Binary, Utf8};
use crate::version::Role;
use crate::walk::{ControlPacket, Layout, Walk};

/// AUTH: one step of an enhanced authentication (section 3.15). MQTT 5 only: other versions refuse the packet.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Auth<'a> {
    /// The step: continue, begin again, or success.
    pub reason: AuthReason,
    /// The properties, with authentication method and data.
    pub properties: AuthProperties<'a>,
}

properties! {
    /// The properties of AUTH (section 3.15.2.2).
    pub struct AuthProperties<'a> {
        /// The method, which is the same in all packets of an exchange \[MQTT-4.12.0-5\].
        AuthenticationMethod => authentication_method: Option<Utf8<'a>>,
        /// The data of this step, whose format the method defines. Requires a method.
        AuthenticationData => authentication_data: Option<Binary<'a>>,
        /// A text that helps people to find the cause.
        ReasonString => reason_string: Option<Utf8<'a>>,
        /// Pairs of name and value, in order. The application defines their meaning.
        UserProperty => user_properties: UserProperties<'a>,
    }
}

impl<'a> ControlPacket<'a> for Auth<'a> {
    const TYPE: PacketType = PacketType::Auth;
}

impl<'a> Layout<'a> for Auth<'a> {
    fn layout<W: Walk<'a, Self>>(walk: &mut W) -> Result<W::Built, Fault> {
        walk.check(walk.version().is_5(), &rule::UNKNOWN_TYPE)?;
        let is_bare = walk.unread_bytes() == Some(0);
        let omit = |packet: &Self| packet.reason == AuthReason::Success && packet.properties.is_empty();
        let reason = walk.tail(&rule::AUTH_REASON, omit, |packet| packet.reason)?;
        // Unlike DISCONNECT, AUTH has a property length whenever it has a reason.
        walk.check(is_bare || walk.unread_bytes() != Some(0), &rule::TRUNCATED)?;
        let properties = walk.tail_properties(omit, |packet| &packet.properties)?;
        let has_method = properties.authentication_method.is_some();
        walk.check(has_method || properties.authentication_data.is_none(), &rule::DATA_WITHOUT_METHOD)?;
        let sender = walk.sender();
        let from_client = sender == Some(Role::Client);
        walk.check(!from_client || reason != AuthReason::Success, &rule::AUTH_REASON_OF_SERVER)?;
        let from_server = sender == Some(Role::Server);
        walk.check(!from_server || reason != AuthReason::ReAuthenticate, &rule::AUTH_REASON_OF_CLIENT)?;
        Ok(walk.build(|| Self { reason, properties }))
    }
}

impl fmt::Display for Auth<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AUTH {}{}", self.reason, self.properties)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EncodeError, Version};

    #[test]
    fn there_is_no_auth_before_5() {
        for version in [Version::V3_1, Version::V3_1_1] {
            assert!(matches!(Auth::default().encoded_len(version), Err(EncodeError::Forbidden(_))));
        }
        assert_eq!(Auth::default().encoded_len(Version::V5), Ok(2));
    }

    #[test]
    fn data_is_never_without_a_method() {
        let authentication_data = Binary::new(b"x").ok();
        let properties = AuthProperties { authentication_data, ..AuthProperties::EMPTY };
        let packet = Auth { reason: AuthReason::ContinueAuthentication, properties };
        assert!(matches!(packet.encoded_len(Version::V5), Err(EncodeError::Forbidden(_))));
    }
}
