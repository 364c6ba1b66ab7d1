//! Any bytes of a directory are messages or an error, in any two pieces. Any text is a filter, the name of an entry, or an
//! error, and any user name fits both.
#![no_main]

use ldap::{Answer, DnTemplate, Filter, MESSAGE_BYTES_MAX, Malformed, Message, Search, decode, search};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    match input {
        [form, cut, bytes @ ..] if form % 2 == 0 => answers(bytes, (*cut).into()),
        [_, bytes @ ..] => texts(bytes),
        [] => {}
    }
});

fn answers(bytes: &[u8], cut: usize) {
    let whole = received(&[bytes]);
    let (first, second) = bytes.split_at(cut.min(bytes.len()));
    assert_eq!(received(&[first, second]), whole);
    let (first, second) = bytes.split_at(bytes.len().saturating_sub(cut));
    assert_eq!(received(&[first, second]), whole);
    for message in whole.0 {
        read(&message);
    }
}

/// The messages of a connection, and its error. The pieces arrive one after another.
fn received(pieces: &[&[u8]]) -> (Vec<Message>, Option<Malformed>) {
    let mut buffer = Vec::new();
    let mut messages = Vec::new();
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            match decode(&buffer) {
                Ok(Some((message, length))) => {
                    assert!(length <= buffer.len());
                    messages.push(message);
                    buffer.drain(..length);
                }
                Ok(None) => break,
                Err(error) => return (messages, Some(error)),
            }
        }
        assert!(buffer.len() < MESSAGE_BYTES_MAX, "a full buffer has a message or an error");
    }
    (messages, None)
}

fn read(message: &Message) {
    assert!(message.id >= 0);
    match &message.answer {
        Answer::Bound(outcome) | Answer::Extended(outcome) | Answer::Done(outcome) => {
            assert!(!outcome.to_string().contains(char::is_control));
        }
        Answer::Entry(entry) => {
            let values = entry.attributes().flat_map(|attribute| attribute.values()).map(<[u8]>::len);
            assert!(values.sum::<usize>() < MESSAGE_BYTES_MAX);
            if let Some(first) = entry.attributes().next() {
                assert!(entry.values(first.name).count() >= first.values().count());
            }
        }
        Answer::Reference | Answer::Other => {}
    }
}

fn texts(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    let fixed = Filter::parse("(|(uid={user})(mail=*{user}@*{user}))").expect("a filter");
    encode(&fixed, text);
    match Filter::parse(text) {
        Ok(filter) => encode(&filter, text),
        Err(error) => assert!(text.is_char_boundary(error.at), "{error}"),
    }
    let fixed = DnTemplate::parse("uid={user},dc=pond").expect("a name");
    assert!(!fixed.fill(text).contains(char::is_control));
    match DnTemplate::parse(text) {
        Ok(name) => assert!(name.fill(text).len() > text.len() / 2),
        Err(error) => assert!(text.is_char_boundary(error.at), "{error}"),
    }
}

fn encode(filter: &Filter, user: &str) {
    let request =
        search(1, &Search { base: "dc=pond", filter, user, attribute: user, entries_max: 2, secs_max: 5 });
    assert_eq!(request.first(), Some(&0x30));
}
