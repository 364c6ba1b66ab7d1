//! The properties of a message as Mosquitto's SQLite plugin stores them: a list of JSON objects.
//!
//! ```text
//! [{"identifier":"content-type","value":"fish"}, {"identifier":"user-property","name":"a","value":"b"}]
//! ```

use data_encoding::HEXLOWER_PERMISSIVE;
use serde_json::Value;

/// The properties of a PUBLISH or of a will in the encoding of MQTT 5.0, without their length. Properties of other packets are
/// left out, as Mosquitto does.
///
/// # Errors
/// The text is no such list.
pub(super) fn encode(text: &str) -> Result<Vec<u8>, String> {
    let list: Vec<Value> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    for property in &list {
        encode_one(property, &mut bytes).ok_or_else(|| format!("{property} is no property of a message"))?;
    }
    Ok(bytes)
}

fn encode_one(property: &Value, bytes: &mut Vec<u8>) -> Option<()> {
    let value = &property["value"];
    let number = || u32::try_from(value.as_i64()?).ok();
    match property["identifier"].as_str()? {
        "payload-format-indicator" => bytes.extend([0x01, u8::try_from(number()?).ok()?]),
        "message-expiry-interval" => {
            bytes.push(0x02);
            bytes.extend(number()?.to_be_bytes());
        }
        "content-type" => put(0x03, value.as_str()?.as_bytes(), bytes)?,
        "response-topic" => put(0x08, value.as_str()?.as_bytes(), bytes)?,
        "correlation-data" => {
            let data = HEXLOWER_PERMISSIVE.decode(value.as_str()?.as_bytes()).ok()?;
            put(0x09, &data, bytes)?;
        }
        "user-property" => {
            put(0x26, property["name"].as_str()?.as_bytes(), bytes)?;
            put_text(value.as_str()?.as_bytes(), bytes)?;
        }
        _ => {}
    }
    Some(())
}

fn put(identifier: u8, text: &[u8], bytes: &mut Vec<u8>) -> Option<()> {
    bytes.push(identifier);
    put_text(text, bytes)
}

fn put_text(text: &[u8], bytes: &mut Vec<u8>) -> Option<()> {
    bytes.extend(u16::try_from(text.len()).ok()?.to_be_bytes());
    bytes.extend(text);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::MessageProperties;

    #[test]
    fn each_property_of_a_message_arrives() {
        let text = r#"[{"identifier":"payload-format-indicator","value":1},
            {"identifier":"content-type","value":"fish"}, {"identifier":"response-topic","value":"pond"},
            {"identifier":"correlation-data","value":"00fF"}, {"identifier":"topic-alias","value":3},
            {"identifier":"user-property","name":"a","value":"b"}]"#;
        let bytes = encode(text).expect("a list");
        let properties = MessageProperties::from_bytes(&bytes).expect("they are those of a message");
        assert_eq!(properties.payload_format, Some(wire::PayloadFormat::Utf8));
        assert_eq!(properties.content_type.map(|text| text.as_str().to_owned()).as_deref(), Some("fish"));
        assert_eq!(
            properties.response_topic.map(|topic| topic.0.as_str().to_owned()).as_deref(),
            Some("pond")
        );
        assert_eq!(properties.correlation_data.map(|data| data.as_bytes().to_vec()), Some(vec![0, 255]));
        assert_eq!(properties.user_properties.iter().count(), 1);
    }

    #[test]
    fn invalid_lists_of_properties_are_refused() {
        for text in [
            "",
            "{}",
            "[1]",
            r#"[{"identifier":"content-type"}]"#,
            r#"[{"identifier":"content-type","value":1}]"#,
            r#"[{"identifier":"correlation-data","value":"0"}]"#,
            r#"[{"identifier":"correlation-data","value":"+f"}]"#,
            r#"[{"identifier":"payload-format-indicator","value":256}]"#,
            r#"[{"identifier":"user-property","value":"b"}]"#,
        ] {
            assert!(encode(text).is_err(), "{text}");
        }
        assert_eq!(encode("[]"), Ok(Vec::new()));
    }
}
