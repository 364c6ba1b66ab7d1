use crate::number::PayloadFormat;
use crate::property::{Property, PropertySet, properties, read_block};
use crate::read::Reader;
use crate::repeated::UserProperties;
use crate::rule::Violation;
use crate::sink::{Counter, EncodeError, Sink};
use crate::string::{Binary, ResponseTopic, Utf8};
use crate::version::Version;

properties! {
    /// The properties of an application message, which stay with the message from publisher to subscriber (section
    /// 3.3.2.3).
    ///
    /// A PUBLISH has a topic alias and subscription identifiers in addition. A will has a delay in addition.
    pub struct MessageProperties<'a> {
        /// Whether the payload is text. A server forwards the value unaltered \[MQTT-3.3.2-4\].
        PayloadFormatIndicator => payload_format: Option<PayloadFormat>,
        /// Seconds until the message expires; `None`: never. A server subtracts its waiting time when it forwards
        /// the message \[MQTT-3.3.2-6\].
        MessageExpiryInterval => message_expiry_interval_secs: Option<u32>,
        /// Description of the content of the payload, in words that the applications agree on.
        ContentType => content_type: Option<Utf8<'a>>,
        /// The topic for a response to this message.
        ResponseTopic => response_topic: Option<ResponseTopic<'a>>,
        /// Data by which the requester recognises the request that a response belongs to.
        CorrelationData => correlation_data: Option<Binary<'a>>,
        /// Pairs of name and value, whose order is kept \[MQTT-3.3.2-18\]. The application defines their meaning.
        UserProperty => user_properties: UserProperties<'a>,
    }
}

impl<'a> MessageProperties<'a> {
    /// Writes the properties in the format of packets, without the length before them.
    ///
    /// This form is for storage: [`from_bytes`](Self::from_bytes) reads it.
    ///
    /// # Errors
    /// [`EncodeError::Full`]; then nothing has been written.
    pub fn write_bytes<S: Sink + ?Sized>(&self, sink: &mut S) -> Result<usize, EncodeError> {
        let forbidden = |fault| EncodeError::forbidden(fault, Version::V5);
        let mut counter = Counter::default();
        self.put(&mut counter).map_err(forbidden)?;
        sink.reserve(counter.len).map_err(|_| EncodeError::Full { len: counter.len })?;
        self.put(sink).map_err(forbidden)?;
        Ok(counter.len)
    }

    /// Reads properties that [`write_bytes`](Self::write_bytes) has written, and borrows from `bytes`.
    ///
    /// ```
    /// # use pondhawk_wire::{MessageProperties, Utf8};
    /// let properties = MessageProperties { content_type: Some(Utf8::new("text/plain")?), ..Default::default() };
    /// let mut stored = Vec::new();
    /// properties.write_bytes(&mut stored)?;
    /// assert_eq!(MessageProperties::from_bytes(&stored)?, properties);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the bytes are not valid properties of a message.
    pub fn from_bytes(bytes: &'a [u8]) -> Result<Self, Violation> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        read_block(bytes)
            .map(|((), (), properties)| properties)
            .map_err(|fault| Violation::of(fault, Version::V5))
    }

    /// Like [`from_bytes`](Self::from_bytes), but trusts that [`write_bytes`](Self::write_bytes) has written
    /// `bytes`.
    ///
    /// The User Properties are then at the end. This method does not read them, so that the cost does not depend on
    /// their number.
    ///
    /// # Errors
    /// If the bytes before the User Properties are not valid properties of a message. Bytes from another source may
    /// be accepted without an error.
    pub fn from_written_bytes(bytes: &'a [u8]) -> Result<Self, Violation> {
        let mut from = Reader::new(bytes, Version::V5);
        while let Some((&id, behind)) = from.rest.split_first()
            && let Some(property) = Property::from_id(id)
            && property != Property::UserProperty
        {
            from.rest = behind;
            property.skip(&mut from).map_err(|fault| Violation::of(fault, Version::V5))?;
        }
        let others = bytes.split_at(bytes.len() - from.rest.len()).0;
        Ok(Self { user_properties: UserProperties::of_block(from.rest), ..Self::from_bytes(others)? })
    }

    /// Whether the User Properties are at the end, as [`write_bytes`](Self::write_bytes) writes them.
    pub fn is_as_written(&self) -> bool {
        self.user_properties.is_at_end()
    }
}
