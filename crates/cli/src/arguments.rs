//! Turns a command line and the file of defaults into settings.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use client::Version;
use wire::Property;

use crate::defaults;
use crate::failure::Failure;
use crate::flags::{self, Argument, Takes};
use crate::presets::apply_presets;
use crate::properties::{self, Command};
use crate::settings::{Settings, Tool};

/// Reads the file of defaults, the environment, the profile and the command line, and checks that the flags fit together.
///
/// # Errors
/// A description of the fault, in the words of Mosquitto's clients.
pub(crate) fn parse(tool: Tool, arguments: &[OsString]) -> Result<Settings, Failure> {
    let mut settings = Settings::new(tool);
    for line in defaults::lines(tool)? {
        apply(&mut settings, &line)?;
    }
    // A first look at the command line finds the profile, whose flags come before those of the command line.
    let mut typed = Settings::new(tool);
    apply(&mut typed, arguments)?;
    if typed.asks.is_none() {
        let default = settings.profile.take();
        apply_presets(&mut settings, typed.profile.or(default).as_deref())?;
    }
    apply(&mut settings, arguments)?;
    if settings.asks.is_none() {
        check(&settings)?;
    }
    complete(&mut settings);
    Ok(settings)
}

/// Applies the flags of one line, in their order.
pub(crate) fn apply(settings: &mut Settings, arguments: &[OsString]) -> Result<(), Failure> {
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let flag = word.to_str().and_then(|name| flags::find(settings.tool, name));
        let flag = flag.ok_or_else(|| unknown(settings.tool, word))?;
        match flag.takes {
            Takes::Nothing(set) => set(settings)?,
            Takes::Text(argument, set) => {
                let value = words.next().ok_or_else(|| missing(argument))?;
                set(settings, text(value, flag.names[0])?)?;
            }
            Takes::Path(argument, set) => {
                set(settings, Path::new(words.next().ok_or_else(|| missing(argument))?))?;
            }
            Takes::Bytes(argument, set) => {
                set(settings, words.next().ok_or_else(|| missing(argument))?.as_encoded_bytes())?;
            }
            Takes::Property => {
                let mut next = || words.next().map(|word| text(word, "-D")).transpose();
                settings.properties.add(&mut next)?;
                settings.session.version = Version::V5;
            }
        }
        if settings.asks.is_some() {
            break;
        }
    }
    Ok(())
}

fn unknown(tool: Tool, word: &OsStr) -> Failure {
    let failure = Failure::usage(format!("Error: Unknown option '{}'.", word.display()));
    match word.to_str().and_then(|word| flags::advice(tool, word)) {
        Some(advice) => failure.advise(advice),
        None => failure,
    }
}

fn missing(argument: Argument) -> Failure {
    Failure::usage(format!("Error: {}.", argument.missing))
}

fn text<'a>(value: &'a OsStr, flag: &str) -> Result<&'a str, Failure> {
    let text = value.to_str().filter(|text| wire::Utf8::new(text).is_ok());
    text.ok_or_else(|| Failure::usage(format!("Error: Malformed UTF-8 in {flag} argument.")))
}

/// Checks that depend on several flags.
fn check(settings: &Settings) -> Result<(), Failure> {
    check_will(settings)?;
    check_keys(settings)?;
    check_session(settings)?;
    settings.properties.check()?;
    let Settings { tool, topics, outgoing, incoming, response_topic, .. } = settings;
    let is_complete = match tool {
        Tool::Publish => !topics.is_empty() && outgoing.source.is_some(),
        Tool::Subscribe => !topics.is_empty(),
        Tool::Request => !topics.is_empty() && outgoing.source.is_some() && response_topic.is_some(),
    };
    if !is_complete {
        return Err(Failure::usage(match tool {
            Tool::Publish => "Error: Both topic and message must be supplied.",
            Tool::Subscribe => "Error: You must specify a topic to subscribe to.",
            Tool::Request => "Error: All of topic, message, and response topic must be supplied.",
        }));
    }
    if incoming.without_retained && incoming.retained_only {
        return Err(Failure::usage("Error: Combining '-R' and '--retained-only' makes no sense."));
    }
    Ok(())
}

fn check_will(settings: &Settings) -> Result<(), Failure> {
    let will = &settings.will;
    if will.topic.is_none() && will.payload.is_some() {
        return Err(Failure::usage("Error: Will payload given, but no will topic given."));
    }
    if will.topic.is_none() && will.retain {
        return Err(Failure::usage("Error: Will retain given, but no will topic given."));
    }
    Ok(())
}

fn check_keys(settings: &Settings) -> Result<(), Failure> {
    let tls = &settings.tls;
    if tls.certificate.is_some() != tls.key.is_some() && tls.key_form.is_none() {
        return Err(Failure::usage(
            "Error: Both certfile and keyfile must be provided if one of them is set.",
        ));
    }
    match tls.key_form.as_deref() {
        None => Ok(()),
        Some(_) if tls.key.is_none() => {
            Err(Failure::usage("Error: If keyform is set, keyfile must be also specified."))
        }
        Some("pem") => Ok(()),
        Some(_) => Err(Failure::new("Error: Problem setting key form, it must be one of 'pem' or 'engine'.")
            .advise("pondhawk reads 'pem' only.")),
    }
}

/// A session that outlives its connection needs a client identifier.
///
/// With an unlimited expiry, a prefix is not enough: the identifier must be the same in the next run.
fn check_session(settings: &Settings) -> Result<(), Failure> {
    let session = &settings.session;
    let needs = "Error: You must provide a client id if you are using";
    let lacks_id = session.client_id.is_none();
    if !session.version.is_5() {
        return match session.clean_start {
            false if lacks_id => Err(Failure::usage(format!("{needs} the -c option."))),
            _ => Ok(()),
        };
    }
    let expiry_secs = session.expiry_secs.or((!session.clean_start).then_some(u32::MAX)).unwrap_or_default();
    if expiry_secs == u32::MAX && lacks_id {
        return Err(Failure::usage(format!("{needs} an infinite session expiry interval.")));
    }
    if !session.clean_start && lacks_id && session.client_id_prefix.is_none() {
        return Err(Failure::usage(format!("{needs} the -c option.")));
    }
    let property = settings.properties.number(Command::Connect, Property::SessionExpiryInterval);
    if expiry_secs > 0 && property.is_some() {
        return Err(properties::duplicate(Command::Connect));
    }
    Ok(())
}

/// Sets the values that follow from other flags.
fn complete(settings: &mut Settings) {
    let session = &mut settings.session;
    if let Some(prefix) = &session.client_id_prefix {
        session.client_id = Some(format!("{prefix}{}", std::process::id()));
    }
    if !session.clean_start && session.expiry_secs.is_none() {
        session.expiry_secs = Some(u32::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(tool: Tool, line: &str) -> Result<Settings, Failure> {
        let mut settings = Settings::new(tool);
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        apply(&mut settings, &words)?;
        check(&settings)?;
        complete(&mut settings);
        Ok(settings)
    }

    fn refused(tool: Tool, line: &str) -> String {
        settings(tool, line).expect_err(line).text
    }

    #[test]
    fn the_last_word_about_a_topic_counts_and_every_filter_does() {
        let publish = settings(Tool::Publish, "-t a -m x -t b").unwrap();
        assert_eq!(publish.topics, ["b"]);
        let subscribe = settings(Tool::Subscribe, "-t a -L mqtt://h/b/# --topic c").unwrap();
        assert_eq!(subscribe.topics, ["a", "b/#", "c"]);
    }

    #[test]
    fn a_session_that_is_kept_needs_a_name() {
        assert!(refused(Tool::Subscribe, "-t a -c").contains("the -c option"));
        assert!(refused(Tool::Subscribe, "-t a -x -1 -V 5").contains("infinite session expiry"));
        let kept = settings(Tool::Subscribe, "-t a -c -i me").unwrap();
        assert_eq!(kept.session.expiry_secs, Some(u32::MAX));
    }

    #[test]
    fn the_value_of_a_flag_may_look_like_a_flag() {
        let publish = settings(Tool::Publish, "-t a -m -t").unwrap();
        assert_eq!(publish.outgoing.source, Some(crate::settings::Source::Bytes(b"-t".to_vec())));
        assert!(refused(Tool::Publish, "-t a -m").contains("no message specified"));
    }

    #[test]
    fn unsupported_flags_are_refused_by_name() {
        for line in [
            "--psk ab",
            "--psk-identity me",
            "--tls-engine e",
            "--tls-engine-kpass-sha1 0",
            "--keyform engine",
            "--tls-version tlsv1.1",
        ] {
            let text = refused(Tool::Subscribe, &format!("-t a {line}"));
            assert!(text.contains(line.split(' ').next().unwrap()) && text.contains("refused"), "{text}");
        }
    }
}
