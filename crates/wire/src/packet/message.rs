use crate::number::PayloadFormat;
use crate::property::{Property, PropertySet, properties, read_block};
use crate::read::Reader;
use crate::repeated::UserProperties;
use crate::rule::Violation;
use crate::sink::{Counter, EncodeError, Sink};
use crate::string::{Binary, ResponseTopic, Utf8};
use crate::version::Version;

properties! {
    /// The properties that belong to an application message, and go with it from publisher to subscriber
    /// (section 3.3.2.3): those of a PUBLISH without topic alias and subscription identifiers, and those of a
    /// will without its delay.
    pub struct MessageProperties<'a> {
        /// Whether the payload is text. Forwarded unaltered \[MQTT-3.3.2-4\].
        PayloadFormatIndicator => payload_format: Option<PayloadFormat>,
        /// Seconds for which the message may wait; forwarded less the time it did \[MQTT-3.3.2-6\]. `None`:
        /// it does not expire.
        MessageExpiryInterval => message_expiry_interval_secs: Option<u32>,
        /// What kind of content the payload is, in words that the applications know.
        ContentType => content_type: Option<Utf8<'a>>,
        /// Where an answer is to be published.
        ResponseTopic => response_topic: Option<ResponseTopic<'a>>,
        /// Which request an answer belongs to.
        CorrelationData => correlation_data: Option<Binary<'a>>,
        /// Anything else, in an order that is kept \[MQTT-3.3.2-18\].
        UserProperty => user_properties: UserProperties<'a>,
    }
}

impl<'a> MessageProperties<'a> {
    /// Writes the properties as they stand in a packet, without the length before them: a form to be stored,
    /// from which [`from_bytes`](Self::from_bytes) makes them again.
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

    /// Borrows the properties from what [`write_bytes`](Self::write_bytes) has written.
    ///
    /// ```
    /// # use wire::{MessageProperties, Utf8};
    /// let properties = MessageProperties { content_type: Some(Utf8::new("text/plain")?), ..Default::default() };
    /// let mut stored = Vec::new();
    /// properties.write_bytes(&mut stored)?;
    /// assert_eq!(MessageProperties::from_bytes(&stored)?, properties);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the bytes are something else.
    pub fn from_bytes(bytes: &'a [u8]) -> Result<Self, Violation> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        read_block(bytes)
            .map(|((), (), properties)| properties)
            .map_err(|fault| Violation::of(fault, Version::V5))
    }

    /// The same for bytes that [`write_bytes`](Self::write_bytes) is known to have written. User Properties stand behind all
    /// others then: they are not looked at, so that this costs the same however many there are.
    ///
    /// # Errors
    /// If the bytes before the User Properties are something else.
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

    /// Whether the User Properties stand where [`write_bytes`](Self::write_bytes) writes them.
    pub fn is_as_written(&self) -> bool {
        self.user_properties.is_at_end()
    }
}
