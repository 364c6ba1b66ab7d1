//! The busiest topics and clients.

use net::{CensusAnswer, CensusList, Ranked};
use serde_json::{Value, json};

use super::{limit, word};
use crate::answer::{Answer, Failure};
use crate::asked::Asked;
use crate::asking;
use crate::server::Shared;

/// Names of all lists.
pub const LISTS: &[&str] = &{
    let mut names = [""; CensusList::ALL.len()];
    let mut place = 0;
    while place < names.len() {
        names[place] = CensusList::ALL[place].name();
        place += 1;
    }
    names
};

pub(crate) async fn list(asked: &Asked, shared: &Shared) -> Result<Answer, Failure> {
    let limit = limit(asked)?;
    let name = word(asked, "list", LISTS)?;
    let named = |list: &CensusList| name == Some(list.name());
    let list = CensusList::ALL.into_iter().find(named).unwrap_or(CensusList::Topics);
    let CensusAnswer { ranking, covered_ms } = asking::census(&shared.operator, list).await?;
    let items: Vec<Value> =
        ranking.first(limit).iter().map(|ranked| describe(list, ranked, covered_ms)).collect();
    Ok(Answer::json(&json!({
        "list": list.name(),
        "seconds": covered_ms.div_ceil(1_000),
        "busiest": items,
        "cursor": null,
    })))
}

/// Rates are `null` in the first second.
fn describe(list: CensusList, ranked: &Ranked, covered_ms: u64) -> Value {
    let Ranked { name, count, bytes, uncertain } = ranked;
    let rate = |amount: &u64| (covered_ms >= 1_000).then(|| amount.saturating_mul(1_000) / covered_ms);
    let mut item = json!({ "name": name, "uncertain": uncertain });
    match list {
        CensusList::Topics | CensusList::Branches | CensusList::Publishers => {
            item["messages"] = json!(count);
            item["messages_per_second"] = json!(rate(count));
            item["bytes"] = json!(bytes);
        }
        CensusList::Receivers => {
            item["bytes"] = json!(count);
            item["bytes_per_second"] = json!(rate(count));
        }
        CensusList::Connects | CensusList::Refusals => item["connections"] = json!(count),
    }
    item
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_list_tells_its_own_amounts() {
        let ranked = Ranked { name: "a".into(), count: 300, bytes: 6_000, uncertain: 2 };
        let messages = describe(CensusList::Topics, &ranked, 90_000);
        let expected =
            json!({ "name": "a", "uncertain": 2, "messages": 300, "messages_per_second": 3, "bytes": 6_000 });
        assert_eq!(messages, expected);
        let sent = describe(CensusList::Receivers, &ranked, 999);
        assert_eq!(sent, json!({ "name": "a", "uncertain": 2, "bytes": 300, "bytes_per_second": null }));
        let refused = describe(CensusList::Refusals, &ranked, 90_000);
        assert_eq!(refused, json!({ "name": "a", "uncertain": 2, "connections": 300 }));
        assert_eq!(LISTS, ["topics", "branches", "publishers", "receivers", "connects", "refusals"]);
    }
}
