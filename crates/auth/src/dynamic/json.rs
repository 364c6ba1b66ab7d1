//! Values of JSON as Mosquitto looks them up: names of fields count without regard to case.

use serde_json::{Map, Value};

/// A field that has another type than it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WrongType;

/// A field of an object, without regard to the case of its name.
pub(super) fn field<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    let fields = object.as_object()?;
    let exact = fields.get(name);
    exact
        .or_else(|| fields.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value))
}

/// A text, if there is one.
pub(super) fn text<'a>(object: &'a Value, name: &str) -> Result<Option<&'a str>, WrongType> {
    let Some(value) = field(object, name) else { return Ok(None) };
    value.as_str().map(Some).ok_or(WrongType)
}

/// A whole number; `default` if there is none. A fraction is cut off.
pub(super) fn number(object: &Value, name: &str, default: i32) -> i32 {
    #[allow(clippy::cast_possible_truncation, reason = "a number out of range becomes the nearest one")]
    let whole = |number: f64| number as i32;
    field(object, name).and_then(Value::as_f64).map_or(default, whole)
}

/// A truth value, if there is one.
pub(super) fn flag(object: &Value, name: &str) -> Option<bool> {
    field(object, name)?.as_bool()
}

/// The items of a list; `None` if there is no list of this name.
pub(super) fn list<'a>(object: &'a Value, name: &str) -> Option<&'a [Value]> {
    field(object, name)?.as_array().map(Vec::as_slice)
}

/// An object of these fields, without those that have no value.
pub(super) fn object<const N: usize>(fields: [(&str, Option<Value>); N]) -> Value {
    let present = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(present.collect::<Map<String, Value>>())
}
