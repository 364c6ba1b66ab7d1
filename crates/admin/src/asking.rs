//! Questions to the threads of the broker, as futures.

use std::time::Duration;

use base::{AskFates, FateList};
use net::{CensusAnswer, CensusList, Operator, ShardAnswer};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use crate::answer::Failure;

/// Maximum time that a request waits for a thread of the broker.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Asks a shard, and waits for its answer.
pub(crate) async fn shard(
    operator: &Operator,
    shard: usize,
    question: broker::Question,
) -> Result<ShardAnswer, Failure> {
    post(operator, shard, question).await
}

/// Asks all shards, and waits for their answers.
///
/// All shards have the question when this returns, even if nobody polls the future that it returns.
pub(crate) fn all_shards<Q: Fn() -> broker::Question>(
    operator: &Operator,
    question: Q,
) -> impl Future<Output = Result<(), Failure>> + use<Q> {
    let shards = 0..operator.shards();
    let answers: Vec<_> = shards.map(|shard| post(operator, shard, question())).collect();
    async move {
        let mut outcome = Ok(());
        for answer in answers {
            outcome = outcome.and(answer.await.map(drop));
        }
        outcome
    }
}

/// Asks a shard now, and returns its answer as a future.
fn post(
    operator: &Operator,
    shard: usize,
    question: broker::Question,
) -> impl Future<Output = Result<ShardAnswer, Failure>> + use<> {
    let (give, take) = oneshot::channel();
    // Whoever has asked may have stopped to wait.
    operator.ask_shard(shard, question, move |answer| drop(give.send(answer)));
    let until = Instant::now() + ANSWER_TIMEOUT;
    async move { await_answer(take, until, || format!("shard {shard}")).await }
}

/// Gives all shards and the ledger an order about the last messages of a client, and returns their answers.
///
/// All threads have the order when this returns, even if nobody polls the future that it returns.
pub(crate) fn everywhere(
    operator: &Operator,
    ask: &AskFates,
) -> impl Future<Output = Result<Vec<FateList>, Failure>> + use<> {
    let shards = 0..operator.shards();
    let shards: Vec<_> =
        shards.map(|shard| post(operator, shard, broker::Question::Fates(ask.clone()))).collect();
    let (give, take) = oneshot::channel();
    operator.ask_ledger(ledger::Question::Fates(ask.clone()), move |answer| drop(give.send(answer)));
    let until = Instant::now() + ANSWER_TIMEOUT;
    async move {
        let mut lists = Vec::new();
        for answer in shards {
            if let broker::Answer::Fates(list) = answer.await?.answer {
                lists.push(list);
            }
        }
        if let ledger::OperatorAnswer::Fates(list) =
            await_answer(take, until, || "the ledger".to_owned()).await?
        {
            lists.push(list);
        }
        Ok(lists)
    }
}

/// Asks all shards about a list of the busiest, and adds their answers up.
pub(crate) async fn census(operator: &Operator, list: CensusList) -> Result<CensusAnswer, Failure> {
    let until = Instant::now() + ANSWER_TIMEOUT;
    let ask = |shard| {
        let (give, take) = oneshot::channel();
        operator.ask_census(shard, list, move |answer| drop(give.send(answer)));
        (shard, take)
    };
    let asked: Vec<_> = (0..operator.shards()).map(ask).collect();
    let mut all = CensusAnswer::default();
    for (shard, take) in asked {
        let CensusAnswer { ranking, covered_ms } =
            await_answer(take, until, || format!("shard {shard}")).await?;
        all.ranking.merge(ranking);
        all.covered_ms = all.covered_ms.max(covered_ms);
    }
    Ok(all)
}

/// Asks the ledger, and waits for its answer.
pub(crate) async fn ledger(
    operator: &Operator,
    question: ledger::Question,
) -> Result<ledger::OperatorAnswer, Failure> {
    let (give, take) = oneshot::channel();
    operator.ask_ledger(question, move |answer| drop(give.send(answer)));
    await_answer(take, Instant::now() + ANSWER_TIMEOUT, || "the ledger".to_owned()).await
}

async fn await_answer<T>(
    take: oneshot::Receiver<T>,
    until: Instant,
    whom: impl Fn() -> String,
) -> Result<T, Failure> {
    match timeout_at(until, take).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(_)) => Err(Failure::unavailable(format!("{} has ended", whom()))),
        Err(_) => Err(Failure::unavailable(format!("{} does not answer within five seconds", whom()))),
    }
}
