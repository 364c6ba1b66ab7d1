//! Bridges to other brokers, which do not exist yet.

use crate::model::Model;
use crate::output::{Kind, Output};

/// Says that there are no bridges, with the remote address of each.
pub(super) fn translate(model: &Model, output: &mut Output) {
    for bridge in &model.bridges {
        let address = ["address", "addresses"].into_iter().find_map(|name| bridge.block.last(name));
        let remote = address.map_or_else(String::new, |given| format!(" to {}", given.words().join(" ")));
        let text = format!(
            "there are no bridges: nothing is exchanged{remote}, and the lines up to the end of this bridge have no effect"
        );
        output.remark(&bridge.line, Kind::NotYet, text);
        bridge.block.givens.iter().for_each(|given| given.is_settled.set(true));
    }
}
