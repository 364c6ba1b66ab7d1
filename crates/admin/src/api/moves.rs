//! Messages that wait for one lasting session or group, moved to another.

use hyper::StatusCode;
use ledger::{MessageId, Move, Moved, MovedPiece, OperatorAnswer, QueueOwner, Stopped};
use serde_json::{Value, json};

use super::QUESTIONS_MAX;
use super::body::Body;
use super::queues::{Patience, READING_PAUSES_MAX, check_filter, missing, of_client, of_group, position};
use crate::answer::{Answer, Failure};
use crate::asked::Asked;
use crate::asking;
use crate::server::Shared;

pub(crate) async fn from_client(asked: &Asked, shared: &Shared) -> Result<Answer, Failure> {
    move_messages(of_client(asked), asked, shared).await
}

pub(crate) async fn from_group(asked: &Asked, shared: &Shared) -> Result<Answer, Failure> {
    move_messages(of_group(asked), asked, shared).await
}

/// The effect of a request so far.
#[derive(Default)]
struct Done {
    moved: usize,
    unreadable: usize,
    denied: usize,
    /// The messages between which the rest begins and ends.
    rest: Option<(MessageId, MessageId)>,
}

async fn move_messages(from: QueueOwner, asked: &Asked, shared: &Shared) -> Result<Answer, Failure> {
    let body = Body::of(asked)?;
    let (into, filter) = (target(&body)?, filter(&body)?);
    let rest = body.text("cursor")?.map(position).transpose()?;
    let (mut after, mut until) = rest.unzip();
    let (mut done, mut patience) = (Done::default(), Patience(READING_PAUSES_MAX));
    for _ in 0..QUESTIONS_MAX {
        let order = Move { from: from.clone(), into: into.clone(), filter: filter.clone(), after, until };
        let piece = match carry_out(order, &mut patience, shared).await? {
            Moved::Some(piece) => piece,
            Moved::Nothing => return Ok(Answer::json(&done.describe())),
            Moved::NoSource => return Err(missing(&from)),
            Moved::NoTarget => return Err(no_target(&into)),
            Moved::SameQueue => return Err(Failure::bad("the messages wait there already")),
        };
        done.add(&piece);
        (after, until) = (piece.next, Some(piece.until));
        if let Some(stopped) = piece.stopped {
            return Ok(done.stopped(stopped, &into));
        }
        if after.is_none() {
            break;
        }
    }
    Ok(Answer::json(&done.describe()))
}

/// Moves messages of one window, after those on disk have been read.
async fn carry_out(order: Move, patience: &mut Patience, shared: &Shared) -> Result<Moved, Failure> {
    loop {
        let question = ledger::Question::Move(Box::new(order.clone()));
        let OperatorAnswer::Move(moved) = asking::ledger(&shared.operator, question).await? else {
            unreachable!("it answers its question")
        };
        let is_reading = |piece: &MovedPiece| piece.stopped == Some(Stopped::Reading);
        let has_come = !matches!(&moved, Moved::Some(piece) if is_reading(piece));
        if has_come || !patience.pause().await {
            return Ok(moved);
        }
    }
}

/// The queue that a body names.
fn target(body: &Body) -> Result<QueueOwner, Failure> {
    match (body.text("to_client")?, body.text("to_group")?) {
        (Some(client_id), None) => Ok(QueueOwner::Client(client_id.into())),
        (None, Some(filter)) => Ok(QueueOwner::Group(filter.into())),
        _ => Err(Failure::bad("name the new receiver with `to_client`, or with `to_group`")),
    }
}

/// The filter of the messages. `None` for all.
fn filter(body: &Body) -> Result<Option<Box<str>>, Failure> {
    match (body.text("filter")?, body.flag("all")?) {
        (Some(filter), false) => {
            check_filter(filter)?;
            Ok(Some(filter.into()))
        }
        (None, true) => Ok(None),
        _ => Err(Failure::bad("name the messages with `filter`, or move all with `\"all\": true`")),
    }
}

fn no_target(into: &QueueOwner) -> Failure {
    match into {
        QueueOwner::Client(_) => missing(into),
        QueueOwner::Group(filter) => {
            Failure::not_found(format!("there is no group {filter} with a member whose session lasts"))
        }
    }
}

impl Done {
    fn add(&mut self, piece: &MovedPiece) {
        let MovedPiece { messages, unreadable, denied, next, until, stopped } = *piece;
        self.moved += messages;
        self.unreadable += unreadable;
        self.denied += denied;
        // Numbers of messages begin with 1. An order that has stopped may go on at the beginning.
        let next = next.or_else(|| stopped.map(|_| MessageId(0)));
        self.rest = next.map(|next| (next, until));
    }

    fn describe(&self) -> Value {
        let cursor = self.rest.map(|(MessageId(after), MessageId(until))| format!("{after}-{until}"));
        let mut done = json!({ "moved": self.moved, "cursor": cursor });
        for (name, count) in [("unreadable", self.unreadable), ("denied", self.denied)] {
            if count > 0 {
                done[name] = json!(count);
            }
        }
        done
    }

    /// Something stands in the way of the rest. The answer has the cursor all the same, so that a client can go on later.
    fn stopped(&self, why: Stopped, into: &QueueOwner) -> Answer {
        let (status, why) = match why {
            Stopped::Full => {
                let (QueueOwner::Client(name) | QueueOwner::Group(name)) = into;
                (StatusCode::CONFLICT, format!("the queue of {name} was full"))
            }
            Stopped::Reading => {
                (StatusCode::SERVICE_UNAVAILABLE, "messages on disk could not be read".to_owned())
            }
            Stopped::Memory => (StatusCode::SERVICE_UNAVAILABLE, "memory was short".to_owned()),
            Stopped::NotRecorded => {
                (StatusCode::SERVICE_UNAVAILABLE, "the move could not be stored".to_owned())
            }
        };
        let text = format!("{} messages were moved, and then {why}", self.moved);
        let mut done = self.describe();
        done["error"] = json!({ "status": status.as_u16(), "message": text });
        Answer::json(&done).with_status(status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(text: &str) -> Body {
        Body::parse(text.as_bytes()).expect("an object")
    }

    #[test]
    fn a_body_names_one_receiver_and_the_messages() {
        let newt = QueueOwner::Client("newt".into());
        assert_eq!(target(&body(r#"{"to_client": "newt"}"#)).expect("a receiver"), newt);
        assert_eq!(filter(&body(r#"{"filter": "a/#"}"#)).expect("a filter"), Some("a/#".into()));
        assert_eq!(filter(&body(r#"{"all": true}"#)).expect("all"), None);
        for wrong in ["{}", r#"{"to_client": "a", "to_group": "b"}"#, r#"{"to_client": 7}"#] {
            assert!(target(&body(wrong)).is_err(), "{wrong}");
        }
        for wrong in ["{}", r#"{"filter": "a", "all": true}"#, r#"{"filter": "a/#/b"}"#, r#"{"all": false}"#]
        {
            assert!(filter(&body(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_order_that_stops_at_its_first_message_has_a_cursor() {
        let mut done = Done::default();
        let until = MessageId(70);
        let stopped = Some(Stopped::Full);
        done.add(&MovedPiece { messages: 0, unreadable: 0, denied: 1, next: None, until, stopped });
        assert_eq!(done.describe(), json!({ "moved": 0, "cursor": "0-70", "denied": 1 }));
        let answer = done.stopped(Stopped::Full, &QueueOwner::Client("newt".into()));
        assert_eq!(answer.status, StatusCode::CONFLICT);
        assert!(answer.body_text().contains("0 messages were moved, and then the queue of newt was full"));
    }
}
