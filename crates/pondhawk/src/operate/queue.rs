//! Orders about the messages of a queue, piece by piece.

use std::io;

use serde_json::{Value, json};

use super::client::{Server, encode};
use super::{print, repeat, table};

/// Fields of an answer that count messages.
const COUNTS: [&str; 3] = ["moved", "unreadable", "denied"];

/// Discards messages of a queue, piece by piece. Returns their number.
pub(super) fn discard(server: &Server, path: &str, filter: Option<&str>) -> io::Result<u64> {
    let which = filter.map_or_else(|| "all=true".to_owned(), |filter| format!("filter={}", encode(filter)));
    repeat(server, &format!("{path}?{which}"), "discarded")
}

/// Moves messages of a queue, and prints their number. While there are more pieces, it prints the progress as errors are
/// printed.
///
/// # Errors
/// The server refuses the order, or has stopped in the middle. The error names the number of messages that were moved.
pub(super) fn move_messages(server: &Server, path: &str, mut order: Value, is_json: bool) -> io::Result<()> {
    let mut done = json!({ "moved": 0 });
    loop {
        let (value, refused) = server.answer("POST", path, Some(&order))?;
        for name in COUNTS {
            if let Some(count) = value[name].as_u64() {
                done[name] = json!(done[name].as_u64().unwrap_or(0) + count);
            }
        }
        if let Some(why) = refused {
            let earlier = done["moved"].as_u64().unwrap_or(0) - value["moved"].as_u64().unwrap_or(0);
            let before = if earlier > 0 {
                format!("{earlier} messages were moved by earlier requests; ")
            } else {
                String::new()
            };
            return Err(io::Error::other(before + &why));
        }
        match value["cursor"].as_str() {
            Some(next) => order["cursor"] = json!(next),
            None => break,
        }
        eprintln!("{} messages were moved", done["moved"]);
    }
    if is_json { print(&format!("{done}\n")) } else { print(&table::fields(&done)) }
}
