//! Claims of a token that give rights: groups of the file of roles, and rules about topics.

use std::sync::Arc;

use base::{ClaimLevels, ClaimRule, Claims, Uses};
use serde_json::{Map, Value};
use wire::Qos;

use super::{TokenProblem, TokenRules};

/// Reads the claims that give rights. `None` if no claim is one that gives rights, or if only groups are asked for, and there
/// are none.
///
/// A token without the claim of rules has no rules: it allows nothing by itself, as one with an empty list does.
pub(super) fn read(
    claims: &Map<String, Value>,
    rules: &TokenRules,
) -> Result<Option<Arc<Claims>>, TokenProblem> {
    let groups_claim = rules.groups_claim.as_ref().and_then(|name| claims.get(name));
    let groups = groups_claim.map(groups).transpose()?;
    let acl = match &rules.rules_claim {
        None => None,
        Some(name) => Some(claims.get(name).map_or(Ok(Vec::new()), acl)?),
    };
    let groups = groups.unwrap_or_default();
    if groups.is_empty() && acl.is_none() {
        return Ok(None);
    }
    // The groups have been looked at, so that a fault is one of the rules.
    let read = Claims::new(groups, acl).ok_or(TokenProblem::Rules)?;
    Ok(Some(Arc::new(read)))
}

/// Names of groups: a list, or a text with blanks between them, as `scope` of RFC 8693 has it.
fn groups(claim: &Value) -> Result<Vec<Box<str>>, TokenProblem> {
    let names: Option<Vec<&str>> = match claim {
        Value::String(text) => Some(text.split_ascii_whitespace().collect()),
        Value::Array(names) => names.iter().map(Value::as_str).collect(),
        _ => None,
    };
    let names = names.ok_or(TokenProblem::Groups)?;
    let is_name = |name: &&str| !name.is_empty() && !name.contains(char::is_control);
    if names.len() > Claims::GROUPS_MAX || !names.iter().all(is_name) {
        return Err(TokenProblem::Groups);
    }
    let names: Vec<Box<str>> = names.into_iter().map(Box::from).collect();
    let are_names = names.is_empty() || Claims::new(names.clone(), None).is_some();
    are_names.then_some(names).ok_or(TokenProblem::Groups)
}

/// Rules about topics, in the form of a role, or in that of EMQX.
fn acl(claim: &Value) -> Result<Vec<ClaimRule>, TokenProblem> {
    let object = claim.as_object().ok_or(TokenProblem::Rules)?;
    let is_of_emqx = |name: &String| matches!(&**name, "pub" | "sub" | "all");
    if !object.is_empty() && object.keys().all(is_of_emqx) { of_emqx(object) } else { of_role(object) }
}

fn of_role(object: &Map<String, Value>) -> Result<Vec<ClaimRule>, TokenProblem> {
    const KEYS: [&str; 6] = ["publish", "subscribe", "receive", "deny", "max_qos", "retain"];
    refuse_others(object, &KEYS)?;
    let qos_max = match object.get("max_qos") {
        None => Qos::ExactlyOnce,
        Some(level) => {
            let level = level.as_u64().and_then(|level| u8::try_from(level).ok());
            level.and_then(Qos::from_level).ok_or(TokenProblem::Rules)?
        }
    };
    let retain = match object.get("retain") {
        None => true,
        Some(retain) => retain.as_bool().ok_or(TokenProblem::Rules)?,
    };
    let allows = Some(ClaimLevels { qos_max, retain });
    let mut rules = Vec::new();
    // A list about messages takes the place of the list about subscriptions.
    let subscribe =
        if object.contains_key("receive") { Uses::SUBSCRIBE } else { Uses::SUBSCRIBE.and(Uses::RECEIVE) };
    for (key, uses) in [("publish", Uses::PUBLISH), ("subscribe", subscribe), ("receive", Uses::RECEIVE)] {
        add(object, key, (uses, allows), &mut rules)?;
    }
    let Some(deny) = object.get("deny") else { return Ok(rules) };
    let deny = deny.as_object().ok_or(TokenProblem::Rules)?;
    refuse_others(deny, &KEYS[..3])?;
    let subscribe = Uses::SUBSCRIBE.and(Uses::RECEIVE);
    for (key, uses) in [("publish", Uses::PUBLISH), ("subscribe", subscribe), ("receive", Uses::RECEIVE)] {
        add(deny, key, (uses, None), &mut rules)?;
    }
    Ok(rules)
}

/// The form of EMQX, whose lists all allow.
fn of_emqx(object: &Map<String, Value>) -> Result<Vec<ClaimRule>, TokenProblem> {
    let allows = Some(ClaimLevels { qos_max: Qos::ExactlyOnce, retain: true });
    let subscribe = Uses::SUBSCRIBE.and(Uses::RECEIVE);
    let mut rules = Vec::new();
    for (key, uses) in [("pub", Uses::PUBLISH), ("sub", subscribe), ("all", subscribe.and(Uses::PUBLISH))] {
        add(object, key, (uses, allows), &mut rules)?;
    }
    for rule in &mut rules {
        let filter = rule.filter.replace("${username}", "%u").replace("${clientid}", "%c");
        // Another name, or a filter that only means itself.
        if filter.contains("${") || filter.starts_with("eq ") {
            return Err(TokenProblem::Rules);
        }
        rule.filter = filter.into();
    }
    Ok(rules)
}

fn refuse_others(object: &Map<String, Value>, keys: &[&str]) -> Result<(), TokenProblem> {
    let is_known = |name: &String| keys.contains(&&**name);
    object.keys().all(is_known).then_some(()).ok_or(TokenProblem::Rules)
}

/// Adds a rule for each filter of a list.
fn add(
    object: &Map<String, Value>,
    key: &str,
    (uses, allows): (Uses, Option<ClaimLevels>),
    rules: &mut Vec<ClaimRule>,
) -> Result<(), TokenProblem> {
    let Some(list) = object.get(key) else { return Ok(()) };
    let list = list.as_array().ok_or(TokenProblem::Rules)?;
    for filter in list {
        let filter = filter.as_str().ok_or(TokenProblem::Rules)?.into();
        rules.push(ClaimRule { filter, uses, allows });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rights(claims: &Value) -> Result<Option<Arc<Claims>>, TokenProblem> {
        let (groups_claim, rules_claim) = (Some("groups".to_owned()), Some("acl".to_owned()));
        let rules = TokenRules { groups_claim, rules_claim, ..TokenRules::default() };
        read(claims.as_object().expect("an object"), &rules)
    }

    fn groups(value: &Value) -> Result<Vec<String>, TokenProblem> {
        let claims = rights(&json!({ "groups": value }))?;
        let names = claims.iter().flat_map(|claims| claims.groups());
        Ok(names.map(|name| name.to_string()).collect())
    }

    /// The filter of a rule, its uses, and the highest QoS and RETAIN that it allows.
    type Seen = (String, u8, Option<(u8, bool)>);

    fn rules(value: &Value) -> Result<Vec<Seen>, TokenProblem> {
        let claims = rights(&json!({ "acl": value }))?;
        let rules = claims.iter().flat_map(|claims| claims.rules().expect("there are rules"));
        let levels = |levels: ClaimLevels| (levels.qos_max.level(), levels.retain);
        Ok(rules.map(|rule| (rule.filter.to_string(), rule.uses.bits(), rule.allows.map(levels))).collect())
    }

    #[test]
    fn groups_are_a_list_or_a_text() {
        let both = Ok(vec!["a".to_owned(), "b c".to_owned()]);
        assert_eq!(groups(&json!(["b c", "a", "b c"])), both);
        assert_eq!(groups(&json!(" b a  b ")), Ok(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(groups(&json!([])), Ok(vec![]));
        assert_eq!(groups(&json!(" ")), Ok(vec![]));
        let groups_only = TokenRules { groups_claim: Some("groups".to_owned()), ..TokenRules::default() };
        for claims in [json!({"groups": []}), json!({"groups": " "}), json!({"acl": {"publish": ["a"]}})] {
            assert_eq!(read(claims.as_object().expect("an object"), &groups_only), Ok(None), "{claims}");
        }
        let many = |count: usize| groups(&json!(vec!["a"; count]));
        assert!(many(Claims::GROUPS_MAX).is_ok());
        assert_eq!(
            many(Claims::GROUPS_MAX + 1),
            Err(TokenProblem::Groups),
            "names that come twice count too"
        );
        for value in [json!(null), json!(1), json!({"a": 1}), json!(["a", 1]), json!([""]), json!(["a\nb"])] {
            assert_eq!(groups(&value), Err(TokenProblem::Groups), "{value}");
        }
        let without = TokenRules::default();
        let claims = json!({"groups": 1, "acl": 1});
        assert_eq!(read(claims.as_object().expect("an object"), &without), Ok(None), "nobody asks for them");
    }

    #[test]
    fn a_token_without_the_claim_of_rules_has_an_empty_list() {
        for claims in [json!({}), json!({"scope": "a"}), json!({"groups": []}), json!({"groups": ["a"]})] {
            let read = rights(&claims).expect("well-formed").expect("rights");
            assert_eq!(read.rules(), Some(&[][..]), "{claims}");
        }
    }

    #[test]
    fn rules_have_the_form_of_a_role_or_that_of_emqx() {
        let rule = |filter: &str, uses, levels| (filter.to_owned(), uses, levels);
        let all = Some((2, true));
        let role =
            json!({"publish": ["p"], "subscribe": ["s/#"], "deny": {"publish": ["x"], "subscribe": ["y"]}});
        let expected = [rule("p", 1, all), rule("s/#", 6, all), rule("x", 1, None), rule("y", 6, None)];
        assert_eq!(rules(&role), Ok(expected.to_vec()));
        let role = json!({"subscribe": ["s"], "receive": ["r"], "deny": {"receive": ["n"]}, "max_qos": 1, "retain": false});
        let few = Some((1, false));
        assert_eq!(rules(&role), Ok(vec![rule("s", 2, few), rule("r", 4, few), rule("n", 4, None)]));
        let emqx = json!({"pub": ["p/${username}"], "sub": ["s/%c"], "all": ["a/${clientid}/#"]});
        assert_eq!(
            rules(&emqx),
            Ok(vec![rule("p/%u", 1, all), rule("s/%c", 6, all), rule("a/%c/#", 7, all)])
        );
        assert_eq!(rules(&json!({})), Ok(Vec::new()), "it allows nothing");
    }

    #[test]
    fn malformed_rules_are_refused() {
        let many = vec!["a"; Claims::RULES_MAX + 1];
        for value in [
            json!(null),
            json!([]),
            json!("publish"),
            json!({"publish": "a"}),
            json!({"publish": [1]}),
            json!({"publish": [""]}),
            json!({"publish": ["a/#/b"]}),
            json!({"subscribe": ["$share/g/a"]}),
            json!({"publish": many}),
            json!({"publish": ["x".repeat(Claims::BYTES_MAX + 1)]}),
            json!({"pub": ["a"], "subscribe": ["a"]}),
            json!({"pub": ["${cert_common_name}"]}),
            json!({"sub": ["eq a/#"]}),
            json!({"deny": []}),
            json!({"deny": {"max_qos": 1}}),
            json!({"client_ids": ["a"]}),
            json!({"max_qos": 3}),
            json!({"max_qos": -1}),
            json!({"max_qos": "1"}),
            json!({"retain": 1}),
        ] {
            assert_eq!(rules(&value), Err(TokenProblem::Rules), "{value:.100}");
        }
    }
}
