//! Forwards bytes between clients and their server, and prints each packet on a line.
//!
//! cargo run -p pondhawk-client --example tracer -- 127.0.0.1:1884 localhost:1883

use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::OnceLock;
use std::thread;

use wire::{Decoded, Limits, Packet, Role, Version, decode};

/// One direction of a connection.
struct Way<'c> {
    number: usize,
    sender: Role,
    /// Version in CONNECT, which is read before the server sends anything.
    version: &'c OnceLock<Version>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [here, server] = &arguments[..] else {
        return Err("what is wanted: LISTEN-ADDRESS SERVER-ADDRESS".into());
    };
    let listener = TcpListener::bind(here)?;
    println!("listening on {}", listener.local_addr()?);
    for (number, client) in listener.incoming().flatten().enumerate() {
        let server = TcpStream::connect(server)?;
        thread::spawn(move || trace(number, &client, &server));
    }
    Ok(())
}

fn trace(number: usize, client: &TcpStream, server: &TcpStream) {
    let version = &OnceLock::new();
    thread::scope(|scope| {
        for (from, to, sender) in [(client, server, Role::Client), (server, client, Role::Server)] {
            scope.spawn(move || {
                let ended = Way { number, sender, version }.forward(from, to);
                println!(
                    "{number} {} {}",
                    arrow(sender),
                    ended.map_or_else(|error| error.to_string(), |()| "end".into())
                );
                // Tells the receiver that no more bytes follow.
                let _ = to.shutdown(Shutdown::Write);
            });
        }
    });
}

impl Way<'_> {
    fn forward(&self, mut from: &TcpStream, mut to: &TcpStream) -> io::Result<()> {
        let (mut bytes, mut unread) = ([0; 4096], Vec::new());
        loop {
            let count = from.read(&mut bytes)?;
            if count == 0 {
                return Ok(());
            }
            unread.extend_from_slice(&bytes[..count]);
            self.print(&mut unread);
            to.write_all(&bytes[..count])?;
        }
    }

    /// Prints the complete packets. Invalid bytes are forwarded too, because the server has to judge them.
    fn print(&self, unread: &mut Vec<u8>) {
        let limits = Limits { sender: Some(self.sender), ..Limits::default() };
        loop {
            let (line, len) = match decode(unread, self.version.get().copied(), &limits) {
                Ok(Decoded::Packet { packet, len }) => {
                    if let Packet::Connect(connect) = &packet {
                        let _ = self.version.set(connect.version());
                    }
                    (packet.to_string(), len)
                }
                Ok(Decoded::Need { .. }) => return,
                Err(violation) => (format!("{violation}, in {} bytes", unread.len()), unread.len()),
            };
            println!("{} {} {line}", self.number, arrow(self.sender));
            unread.drain(..len);
        }
    }
}

fn arrow(sender: Role) -> &'static str {
    if sender == Role::Client { "->" } else { "<-" }
}
