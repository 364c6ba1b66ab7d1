//! Filters that nearly match a topic, and the mistake that people probably made.

use topic::{TopicFilter, TopicName};

/// The difference between a filter and a topic that it does not match. `None` if they are not alike.
///
/// The cost is a constant number of passes over both texts.
pub(crate) fn difference(filter: &str, topic: TopicName<'_>) -> Option<String> {
    let name = topic.as_str();
    let plain = match filter.strip_prefix("$share/") {
        Some(shared) => shared.split_once('/')?.1,
        None => filter,
    };
    let fits = |filter: &str, name: &str| {
        let (filter, name) = (TopicFilter::new(filter), TopicName::new(name));
        filter.is_ok_and(|filter| name.is_ok_and(|name| filter.matches(name)))
    };
    if name.starts_with('$') && plain.starts_with(['+', '#']) && fits(plain, &name.replacen('$', "x", 1)) {
        return Some("a wildcard at the beginning matches no topic that begins with $".to_owned());
    }
    if fits(&plain.to_lowercase(), &name.to_lowercase()) {
        return Some("capital and small letters differ".to_owned());
    }
    let without_blanks = |text: &str| text.split_whitespace().collect::<String>();
    if fits(&without_blanks(plain), &without_blanks(name)) {
        return Some("there is a blank in one of them".to_owned());
    }
    if let Some(difference) = slashes(plain, name, &fits) {
        return Some(difference.to_owned());
    }
    if plain.contains('*') && (fits(&plain.replace('*', "+"), name) || fits(&plain.replace('*', "#"), name)) {
        return Some("* is no wildcard: + stands for one level, and # for all that follow".to_owned());
    }
    if fits(&plain.replace(['.', '\\'], "/"), &name.replace(['.', '\\'], "/")) {
        return Some("levels are separated by / and nothing else".to_owned());
    }
    if let Some(difference) = names_of_groups(filter, plain, name, &fits) {
        return Some(difference);
    }
    beginnings(plain, name, &fits).or_else(|| levels(plain, name, &fits))
}

/// Shared subscriptions without a name of the group, or in the words of another broker.
fn names_of_groups(
    filter: &str,
    plain: &str,
    name: &str,
    fits: &impl Fn(&str, &str) -> bool,
) -> Option<String> {
    let whole = filter.strip_prefix("$share/").filter(|whole| fits(whole, name));
    if let Some((group, _)) = whole.and_then(|whole| whole.split_once('/')) {
        return Some(format!("{group} is the name of the group here, and {plain} the filter"));
    }
    let queue = plain.strip_prefix("$queue/").filter(|queue| fits(queue, name))?;
    Some(format!("$queue has no meaning here: $share/GROUP/{queue} shares a subscription"))
}

/// A first level that only one of both has, such as the mount point of a listener.
fn beginnings(plain: &str, name: &str, fits: &impl Fn(&str, &str) -> bool) -> Option<String> {
    let of = |text: &str| text.split_once('/').map(|(first, rest)| (first.to_owned(), rest.to_owned()));
    let begins_with_name = |filter: &str| !filter.starts_with(['+', '#']);
    if let Some((first, rest)) = of(plain)
        && begins_with_name(plain)
        && begins_with_name(&rest)
        && fits(&rest, name)
    {
        return Some(format!("the filter begins with {first}/, and the topic does not"));
    }
    let (first, rest) = of(name)?;
    (begins_with_name(plain) && fits(plain, &rest))
        .then(|| format!("the topic begins with {first}/, and the filter does not"))
}

fn slashes(plain: &str, name: &str, fits: &impl Fn(&str, &str) -> bool) -> Option<&'static str> {
    match (plain.strip_prefix('/'), name.strip_prefix('/')) {
        (Some(plain), None) if fits(plain, name) => {
            return Some("the filter begins with a slash, which is a level of its own");
        }
        (None, Some(name)) if fits(plain, name) => {
            return Some("the topic begins with a slash, which is a level of its own");
        }
        _ => {}
    }
    match (plain.strip_suffix('/'), name.strip_suffix('/')) {
        (Some(plain), None) if fits(plain, name) => {
            Some("the filter ends with a slash, which is a level of its own")
        }
        (None, Some(name)) if fits(plain, name) => {
            Some("the topic ends with a slash, which is a level of its own")
        }
        _ => None,
    }
}

fn levels(plain: &str, name: &str, fits: &impl Fn(&str, &str) -> bool) -> Option<String> {
    let (wanted, given) = (plain.split('/').count(), name.split('/').count());
    if let Some((shorter, _)) = name.rsplit_once('/')
        && fits(plain, shorter)
    {
        return Some(format!(
            "the topic has {given} levels, and the filter {wanted}: {plain}/# matches both"
        ));
    }
    if let Some((shorter, _)) = plain.rsplit_once('/')
        && fits(shorter, name)
    {
        return Some(format!("the topic has {given} levels, and the filter {wanted}"));
    }
    if wanted != given || given < 2 {
        return None;
    }
    let pairs = (1..).zip(plain.split('/').zip(name.split('/')));
    let mut other = pairs.filter(|(_, (wanted, given))| !["+", "#"].contains(wanted) && wanted != given);
    let (level, (wanted, given)) = other.next()?;
    // A topic of two levels with another name in one of them is another topic.
    let is_alike = wanted.starts_with(given) || given.starts_with(wanted);
    let is_only_one = other.next().is_none();
    (is_only_one && is_alike)
        .then(|| format!("level {level} is {given} in the topic, and {wanted} in the filter"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_that_people_make_are_named() {
        for (filter, name, part) in [
            ("Pond/+", "pond/frog", "capital"),
            ("/pond/+", "pond/frog", "the filter begins with a slash"),
            ("pond/+", "/pond/frog", "the topic begins with a slash"),
            ("pond/frog/", "pond/frog", "the filter ends with a slash"),
            ("pond/frog", "pond/frog/", "the topic ends with a slash"),
            ("#", "$SYS/broker", "begins with $"),
            ("+/broker", "$SYS/broker", "begins with $"),
            ("pond/ frog", "pond/frog", "blank"),
            ("pond/frog", "pond/frog ", "blank"),
            ("pond/*", "pond/frog", "no wildcard"),
            ("pond.frog", "pond/frog", "separated by /"),
            ("pond/+", "pond/frog/leg", "pond/+/# matches both"),
            ("pond/+/leg", "pond/frog", "the topic has 2 levels, and the filter 3"),
            ("pond/frogs/+", "pond/frog/leg", "level 2 is frog"),
            ("$share/g/Pond/+", "pond/frog", "capital"),
            ("$share/pond/frog", "pond/frog", "pond is the name of the group"),
            ("$share/pond/+/leg", "pond/frog/leg", "and +/leg the filter"),
            ("$queue/pond/+", "pond/frog", "$share/GROUP/pond/+"),
            ("house/pond/+", "pond/frog", "the filter begins with house/"),
            ("pond/#", "house/pond/frog", "the topic begins with house/"),
            ("$share/g/pond/+", "house/pond/frog", "the topic begins with house/"),
            ("pond\\frog", "pond/frog", "separated by /"),
            ("pond/frog/*", "pond/frog/leg/toe", "# for all that follow"),
        ] {
            let topic = TopicName::new(name).expect("a name");
            let found = difference(filter, topic).unwrap_or_default();
            assert!(found.contains(part), "{filter} {name}: {found}");
        }
    }

    #[test]
    fn filters_of_something_else_are_not_named() {
        for (filter, name) in [
            ("lake/#", "pond/frog"),
            ("lake/+", "pond"),
            ("$share/g/lake", "pond"),
            ("+/leg", "pond/frog/leg"),
            ("pond/toad", "pond/frog"),
            ("a", "b"),
            ("a/b/c/d", "a"),
        ] {
            assert_eq!(difference(filter, TopicName::new(name).expect("a name")), None, "{filter} {name}");
        }
    }
}
