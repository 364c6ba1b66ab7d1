//! The body of a request: a JSON object with named fields.

use serde_json::{Map, Value};

use crate::answer::Failure;
use crate::asked::Asked;

/// The fields of a body.
pub(crate) struct Body(Map<String, Value>);

impl Body {
    /// Reads the body of a request.
    pub(crate) fn of(asked: &Asked) -> Result<Self, Failure> {
        Self::parse(&asked.body)
    }

    /// Reads the bytes of a body.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Failure> {
        match serde_json::from_slice(bytes).map_err(|error| Failure::bad(error.to_string()))? {
            Value::Object(fields) => Ok(Self(fields)),
            _ => Err(Failure::bad("the body is to be an object")),
        }
    }

    /// A field. One that is missing is `null`.
    pub(crate) fn field(&self, name: &str) -> &Value {
        self.0.get(name).unwrap_or(&Value::Null)
    }

    /// A field that is a text, if it is there.
    pub(crate) fn text(&self, name: &str) -> Result<Option<&str>, Failure> {
        match self.field(name) {
            Value::String(text) => Ok(Some(text)),
            Value::Null => Ok(None),
            _ => Err(Failure::bad(format!("{name} is to be a text"))),
        }
    }

    /// A field that is a text, and must be there.
    pub(crate) fn needed(&self, name: &str) -> Result<&str, Failure> {
        self.text(name)?.ok_or_else(|| Failure::bad(format!("{name} is missing")))
    }

    /// A field that is `true` or `false`. One that is missing is `false`.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, Failure> {
        match self.field(name) {
            Value::Bool(flag) => Ok(*flag),
            Value::Null => Ok(false),
            _ => Err(Failure::bad(format!("{name} is true or false"))),
        }
    }
}
