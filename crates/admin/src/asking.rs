//! Questions to the threads of the broker, as futures.

use std::time::Duration;

use net::{Operator, ShardAnswer};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::answer::Failure;

/// Maximum time that a request waits for a thread of the broker.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Asks a shard, and waits for its answer.
pub(crate) async fn shard(
    operator: &Operator,
    shard: usize,
    question: broker::Question,
) -> Result<ShardAnswer, Failure> {
    let (give, take) = oneshot::channel();
    // Whoever has asked may have stopped to wait.
    operator.ask_shard(shard, question, move |answer| drop(give.send(answer)));
    await_answer(take, || format!("shard {shard}")).await
}

/// Asks the ledger, and waits for its answer.
pub(crate) async fn ledger(
    operator: &Operator,
    question: ledger::Question,
) -> Result<ledger::OperatorAnswer, Failure> {
    let (give, take) = oneshot::channel();
    operator.ask_ledger(question, move |answer| drop(give.send(answer)));
    await_answer(take, || "the ledger".to_owned()).await
}

async fn await_answer<T>(take: oneshot::Receiver<T>, whom: impl Fn() -> String) -> Result<T, Failure> {
    match timeout(ANSWER_TIMEOUT, take).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(_)) => Err(Failure::unavailable(format!("{} has ended", whom()))),
        Err(_) => Err(Failure::unavailable(format!("{} does not answer within five seconds", whom()))),
    }
}
