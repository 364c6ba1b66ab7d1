//! The claims of a token (RFC 7519, section 4).

use serde_json::{Map, Value};

use super::{TokenProblem, TokenRules};

/// The last second of the year 9999. A time behind it is most likely in milliseconds.
const LAST_SECOND: u64 = 253_402_300_799;

/// Checks the claims of a token whose signature is right. Returns the user name, and the time until which the token is good,
/// with the leeway.
pub(super) fn check<'a>(
    claims: &'a Map<String, Value>,
    rules: &TokenRules,
    unix_secs: u64,
) -> Result<(&'a str, Option<u64>), TokenProblem> {
    let until = match time(claims, "exp")? {
        None if rules.requires_expiry => return Err(TokenProblem::NoExpiry),
        None => None,
        Some(expiry) => Some(expiry.saturating_add(rules.leeway_secs)),
    };
    if until.is_some_and(|until| until <= unix_secs) {
        return Err(TokenProblem::Expired);
    }
    if time(claims, "nbf")?.is_some_and(|from| from > unix_secs.saturating_add(rules.leeway_secs)) {
        return Err(TokenProblem::NotYet);
    }
    if let Some(issuer) = &rules.issuer
        && claims.get("iss").and_then(Value::as_str) != Some(issuer)
    {
        return Err(TokenProblem::Issuer);
    }
    if !is_for(claims.get("aud"), &rules.audiences) {
        return Err(TokenProblem::Audience);
    }
    let user = claims.get(&rules.user_claim).and_then(Value::as_str).ok_or(TokenProblem::User)?;
    if user.is_empty() || user.contains(char::is_control) {
        return Err(TokenProblem::User);
    }
    Ok((user, until))
}

/// A time in seconds since 1970, if there is one. A fraction is cut off.
fn time(claims: &Map<String, Value>, name: &str) -> Result<Option<u64>, TokenProblem> {
    let Some(value) = claims.get(name) else { return Ok(None) };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
    let whole = |number: f64| number as u64;
    let fraction = || value.as_f64().filter(|number| (0.0..1e15).contains(number)).map(whole);
    let secs = value.as_u64().or_else(fraction).filter(|secs| *secs <= LAST_SECOND);
    secs.map(Some).ok_or(TokenProblem::Time)
}

/// Whether a token is for one of these audiences. A token that names audiences is not for a broker without one (RFC 7519,
/// section 4.1.3).
fn is_for(named: Option<&Value>, audiences: &[String]) -> bool {
    let is_ours = |name: &Value| name.as_str().is_some_and(|name| audiences.iter().any(|own| own == name));
    match named {
        None => audiences.is_empty(),
        Some(Value::Array(names)) => names.iter().any(is_ours),
        Some(name) => is_ours(name),
    }
}
