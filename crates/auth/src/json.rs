//! JSON in which no object has a member twice: two readers of such an object may see two
//! different tokens, or answers.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// The members of an object in JSON. `None` if the text is no object, or an object in it has a member twice.
#[must_use]
pub fn strict_object(text: &[u8]) -> Option<Map<String, Value>> {
    match serde_json::from_slice::<Strict>(text).ok()?.0 {
        Value::Object(members) => Some(members),
        _ => None,
    }
}

/// A value whose objects have each member once.
struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader).map(Self)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Strict(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some((name, Strict(value))) = members.next_entry::<String, Strict>()? {
            if object.insert(name, value).is_some() {
                return Err(A::Error::custom("a member comes twice"));
            }
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_with_a_member_twice_is_refused_at_any_depth() {
        assert!(strict_object(br#"{"a":1,"b":[true,null,-1,0.5,"x",{"a":2}]}"#).is_some());
        for text in [
            r#"{"alg":"none","alg":"RS256"}"#,
            r#"{"a":{"b":1,"b":1}}"#,
            r#"{"a":[{"b":1,"b":1}]}"#,
            r#"{"a":1,"\u0061":1}"#,
            "[]",
            "{} {}",
            "{\"a\":1e999}",
            "",
        ] {
            assert_eq!(strict_object(text.as_bytes()), None, "{text}");
        }
        assert_eq!(strict_object(b"{\"a\":\"\xFF\"}"), None, "no UTF-8");
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000));
        assert_eq!(strict_object(deep.as_bytes()), None, "too deep");
    }
}
