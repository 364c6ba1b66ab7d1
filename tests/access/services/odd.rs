//! Directories that do not answer as they should.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;

use super::{Version, login, start};

/// The way of a directory: its name, the bytes that it sends, and the bytes that it then sends again and again, if it does.
type Way = (&'static str, &'static [u8], Option<&'static [u8]>);

const WAYS: [Way; 9] = [
    ("is silent", b"", None),
    ("says something else", b"HTTP/1.1 200 OK\r\n\r\n", None),
    ("sends the beginning of an answer", b"\x30\x0c\x02\x01\x01\x61", None),
    ("sends a byte from time to time", b"\x30\x82\x7f\xff", Some(b"\x04")),
    ("announces 4 GiB", b"\x30\x84\xff\xff\xff\xff\x02\x01\x01", Some(b"\x30\x80\x30\x80")),
    ("nests without an end", b"\x30\x82\x7f\xf0\x02\x01\x01\x61\x82\x7f\xe8", Some(b"\x30\x82\x7f\xe0")),
    ("refers to others without an end", b"", Some(b"\x30\x09\x02\x01\x01\x73\x04\x04\x02ab")),
    ("answers other questions", b"", Some(b"\x30\x0c\x02\x01\x63\x61\x07\x0a\x01\x00\x04\x00\x04\x00")),
    ("is busy", b"\x30\x0c\x02\x01\x01\x61\x07\x0a\x01\x33\x04\x00\x04\x00", None),
];

/// A directory that sends this to everybody, whatever the question is. Returns its URL.
fn directory(sends: &'static [u8], again: Option<&'static [u8]>) -> String {
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("ldap://{}", server.local_addr().expect("an address"));
    thread::spawn(move || {
        for client in server.incoming() {
            let client = client.expect("a client");
            thread::spawn(move || serve(client, sends, again));
        }
    });
    url
}

fn serve(mut client: TcpStream, sends: &[u8], again: Option<&[u8]>) {
    let mut question = [0; 1_024];
    if client.read(&mut question).is_err() || client.write_all(sends).is_err() {
        return;
    }
    match again {
        // The broker ends the connection.
        None => while client.read(&mut question).is_ok_and(|length| length > 0) {},
        Some(again) => while client.write_all(again).is_ok() {},
    }
}

#[test]
fn a_directory_that_does_not_answer_as_it_should_lets_nobody_in() {
    let searched = "search_base = \"dc=pond\"";
    for (way, sends, again) in WAYS {
        for keys in [super::NAMED, searched, &format!("start_tls = true\n{searched}")] {
            let url = directory(sends, again);
            let broker = start(&format!("[ldap]\nurl = {url:?}\ntimeout = \"500ms\"\n{keys}"));
            assert_eq!(
                login(&broker, Version::V5, ("frog", "croak")),
                0x88,
                "a directory that {way}, {keys}"
            );
            broker.wait_for_log("does not answer as it should");
            assert!(broker.log_lines("croak").is_empty(), "passwords stay out of the log");
            assert!(broker.stop().success());
        }
    }
}

#[test]
fn a_refusal_in_odd_letters_is_a_refusal() {
    // The code is that of a wrong password, and the text is not UTF-8.
    let url = directory(b"\x30\x0e\x02\x01\x01\x61\x09\x0a\x01\x31\x04\x00\x04\x02\xff\xfe", None);
    let broker = start(&format!("[ldap]\nurl = {url:?}\n{}", super::NAMED));
    assert_eq!(login(&broker, Version::V5, ("frog", "croak")), 0x86);
}
