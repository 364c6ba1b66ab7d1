//! Any bytes of a WebSocket client, in any cut: the same messages, the same end, and the same answers; frames of the broker
//! are whole and carry what it writes.
#![no_main]

use std::sync::Arc;

use inputs::web::REQUEST;
use inputs::{Cut, Input};
use layers::{Protocol, Stack};
use libfuzzer_sys::fuzz_target;
use support::course::run;
use support::link::Link;
use support::web::essence;

fuzz_target!(|input: &[u8]| {
    let Some(input) = Input::of(input) else { return };
    let begin = if input.choice % 2 == 0 { REQUEST } else { b"" };
    let bytes = [begin, input.bytes].concat();
    let outcome = |cut: &Cut<'_>| {
        let link = Link::default();
        cut.send(&bytes, |piece| link.send(piece));
        link.end();
        essence(run(Arc::new(Stack { protocol: Protocol::WebSocket, ..Stack::default() }), &link, cut))
    };
    assert_eq!(outcome(&input.cut), outcome(&Cut::NONE));
});
