//! Copies of the journal, made while the broker runs.

use hyper::StatusCode;
use serde_json::{Value, json};

use super::body::Body;
use crate::answer::{Answer, Failure};
use crate::asked::Asked;
use crate::control::{Backup, BackupRefused, BackupState};
use crate::server::Shared;

pub(crate) fn show(shared: &Shared) -> Answer {
    Answer::json(
        &shared.control.last_backup().map_or_else(|| json!({ "state": "none" }), |last| describe(&last)),
    )
}

fn describe(backup: &Backup) -> Value {
    let Backup { name, state, copied_bytes, total_bytes, seconds, text } = backup;
    json!({
        "name": name,
        "state": match state {
            BackupState::Copying => "copying",
            BackupState::Checking => "checking",
            BackupState::Done => "done",
            BackupState::Failed => "failed",
        },
        "copied_bytes": copied_bytes,
        "total_bytes": total_bytes,
        "seconds": seconds,
        "text": text,
    })
}

pub(crate) fn begin(asked: &Asked, shared: &Shared) -> Result<Answer, Failure> {
    let body = Body::of(asked)?;
    let name = body.needed("name")?;
    match shared.control.begin_backup(name) {
        Ok(()) => Ok(show(shared).with_status(StatusCode::ACCEPTED)),
        Err(refused) => Err(refusal(name, refused)),
    }
}

fn refusal(name: &str, refused: BackupRefused) -> Failure {
    match refused {
        BackupRefused::Off => Failure(
            StatusCode::FORBIDDEN,
            "backups need `data_dir`, and `backup_dir` of [admin], which says where they are made".to_owned(),
        ),
        BackupRefused::Name => {
            Failure::bad("name has 1 to 64 letters, digits and -_. and does not begin with a dot or a hyphen")
        }
        BackupRefused::Exists => Failure(StatusCode::CONFLICT, format!("there is a backup {name} already")),
        BackupRefused::Running => Failure(StatusCode::CONFLICT, "a backup is being made".to_owned()),
        BackupRefused::Failed(why) => Failure::unavailable(why),
    }
}
