//! `pondhawk replay`: plays the clients of a recording against a broker, and compares the answers.
//!
//! A recording is the pcap file of `tap --record`. It contains the beginning of each connection, the bytes of both
//! directions with their times, and the end of each direction. Captures of tcpdump in the clear have the same content. The
//! file is read once, from its beginning to its end. These modules follow each other:
//!
//! ```text
//! pcap ─► stream ─► script ─► player ─► wires ─► broker
//!                     │          │                 │
//!                     └──────► judge ◄─────────────┘      judge ─► report
//! ```
//!
//! **Causes and effects.** A tap records each packet before it forwards the packet. A packet that the server sent before a
//! client's packet in the recording can therefore not depend on it. Before the player sends a packet, it waits until all
//! packets have arrived that the recorded server had sent before, on any connection. The order of cause and effect is thus
//! that of the recording, at any speed. A packet that does not arrive in time is a difference, and the replay goes on.
//! A message of QoS 0 has no answer. Before a client connects, subscribes, unsubscribes or leaves, the player therefore
//! sends PINGREQ on the connections that have published at QoS 0, and waits for the answers.
//!
//! **Identifiers.** The packet identifiers of the server's messages may differ from the recorded ones. The judge finds the
//! counterpart of each message, and the player acknowledges with the identifier of the counterpart. Messages of shared
//! subscriptions may arrive at any member of the group; they are acknowledged at once.
//!
//! **Resumed sessions.** When a connection ends within an exchange of QoS 1 or 2, the recorded server and the server of the
//! replay may have read different packets of the client, and may send different ones again. The acknowledgements of the
//! recording are therefore goals, which `exchange` pursues in the replay: a client answers each packet up to the stage that
//! the recorded client has reached. No exchange stays open because its answer came too early in the recording.
//!
//! **Comparison.** Every packet that the recorded server sent has to arrive once: answers on the same connection, messages
//! in the same session, messages of shared subscriptions at any member. Messages of one publisher to one topic with one QoS
//! keep their order. `packet` lists the fields that are compared.
//!
//! **Races.** A server may process packets of different connections in any order. `past` decides which messages are in doubt
//! because of this; they are counted and are no difference.
//!
//! **Memory** does not grow with the length of the recording, except for about 500 bytes for each connection and each client
//! identifier, and up to 200 kB for each lasting session. `UNMATCHED_MAX` in `judge` bounds the packets without a counterpart, `PUBLICATIONS` in `past` the remembered
//! publications, and `PACKET_BYTES_MAX` in `packet` the size of a packet.

mod book;
mod exchange;
mod judge;
mod packet;
mod past;
mod pcap;
mod player;
mod report;
mod script;
mod session;
mod stream;
mod wires;

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use client::Endpoint;
use wire::Shown;

use crate::end::{Signal, signal};
use crate::failure::Failure;
use crate::place::Place;
use crate::progress::Progress;
use crate::say::{complain_of, show};
use pcap::{Pcap, PcapError};
use player::{PlayError, Player, Speed};
use report::Report;
use script::{Act, Said, Script};
use stream::Streams;

/// Exit code if there are differences.
const DIFFERENT: u8 = 1;
/// Exit code if nothing could be compared.
const NOTHING_FOUND_OUT: u8 = 2;

/// Size of the buffer for the recording.
const BUFFER_BYTES: usize = 1 << 20;

/// Maximum of `--patience`.
const DAY_SECS: u64 = 24 * 3_600;

/// Plays the clients of a recording against a broker, and compares its answers with the recorded ones.
///
/// The recording is a file of `tap --record`. Each client keeps its client identifier, user name and password. The broker
/// should have the same configuration and the same stored state as the recorded one had at the beginning. The exit code is 0
/// without differences, 1 with differences, and 2 if nothing could be compared. Ctrl-C prints the results so far, with exit
/// code 130.
#[derive(Debug, Clone, Args)]
pub struct ReplayArgs {
    /// The recording, a pcap file.
    file: PathBuf,

    #[command(flatten)]
    place: Place,

    /// Speed: 1 is that of the recording, 10 is ten times faster, and max makes no pauses.
    #[arg(long, value_name = "N|max", default_value = "1", value_parser = speed)]
    speed: Speed,

    /// Time limit for a packet that the recorded server sent, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=DAY_SECS))]
    patience: u64,

    /// Maximum number of differences to print. All are counted.
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    lines: usize,

    /// Play a file whose last record is incomplete, up to there.
    #[arg(long)]
    incomplete: bool,

    /// Print the report as one JSON object.
    #[arg(long)]
    json: bool,
}

/// Parses `--speed`.
fn speed(text: &str) -> Result<Speed, String> {
    if text == "max" {
        return Ok(Speed::Max);
    }
    let times: f64 = text.parse().map_err(|_| "it must be a number such as 1 or 2.5, or max".to_owned())?;
    // Ten million times slower or faster than the recording still leaves times that can be computed.
    let is_usable = (1e-7..=1e7).contains(&times);
    if is_usable { Ok(Speed::Times(times)) } else { Err("it must be greater than 0".to_owned()) }
}

/// Plays a recording, and prints the report.
pub fn run(arguments: &ReplayArgs) -> ExitCode {
    let played = arguments.place.endpoint().and_then(|to| play(arguments, to));
    let (report, signal) = match played {
        Ok(played) => played,
        Err(failure) => {
            complain_of(&failure);
            return ExitCode::from(NOTHING_FOUND_OUT);
        }
    };
    show(if arguments.json { report.json() } else { report.text() });
    match signal {
        Some(signal) => ExitCode::from(signal.code()),
        None if report.differences() > 0 => ExitCode::from(DIFFERENT),
        None if report.is_empty() => ExitCode::from(NOTHING_FOUND_OUT),
        None => ExitCode::SUCCESS,
    }
}

fn play(arguments: &ReplayArgs, to: Endpoint) -> Result<(Report, Option<Signal>), Failure> {
    let ReplayArgs { file: path, speed, patience, lines, incomplete, .. } = arguments;
    let failed =
        |why: &dyn std::fmt::Display| Failure::new(format!("Error: {}: {why}.", Shown(path.display())));
    let is_cut_off = match check(path) {
        Ok(()) => false,
        Err(NotPlayable::Pcap(PcapError::CutOff(_))) if *incomplete => true,
        Err(error) => return Err(advise(failed(&error.text()), &error)),
    };
    let (mut script, total) = open(path).map_err(|error| failed(&error))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(format!("Error: {error}")))?;
    let played = runtime.block_on(async {
        let mut player = Player::new(to, *speed, Duration::from_secs(*patience), Report::new(*lines));
        let (mut bar, mut shown) = (Progress::new(total, "bytes"), 0);
        let progress = |bytes: u64| {
            bar.advance(bytes - shown);
            shown = bytes;
        };
        let outcome = tokio::select! {
            outcome = player.play(&mut script, progress) => Ok(outcome),
            signal = signal() => Err(signal),
        };
        let (cut, signal) = match outcome {
            Ok(Ok(())) => (None, None),
            Ok(Err(PlayError::Pcap(PcapError::CutOff(_)))) if is_cut_off => {
                (Some("the file is cut off".to_owned()), None)
            }
            Ok(Err(PlayError::Pcap(error))) => return Err(failed(&error)),
            Ok(Err(PlayError::NoConnection(error))) => {
                return Err(Failure::new(format!("Error: no connection to the broker: {error}.")));
            }
            Err(signal) => (Some("the replay was interrupted".to_owned()), Some(signal)),
        };
        Ok((player.finish(cut), signal))
    });
    // Does not wait for a pending name lookup, which blocks a thread.
    runtime.shutdown_background();
    played
}

/// The reason why a file is not played at all.
enum NotPlayable {
    Pcap(PcapError),
    /// No client in the file connects with MQTT.
    NoMqtt,
}

impl NotPlayable {
    fn text(&self) -> String {
        match self {
            Self::Pcap(error) => error.to_string(),
            Self::NoMqtt => "no client in this file connects with MQTT, or all are encrypted".to_owned(),
        }
    }
}

fn advise(failure: Failure, error: &NotPlayable) -> Failure {
    match error {
        NotPlayable::Pcap(PcapError::CutOff(_)) => failure.advise("--incomplete plays its complete records."),
        NotPlayable::Pcap(PcapError::Pcapng) => failure.advise("Convert it: editcap -F pcap FILE NEW_FILE."),
        NotPlayable::Pcap(PcapError::NoCapture) => failure.advise("Record with: pondhawk tap --record FILE."),
        NotPlayable::NoMqtt => failure.advise("A tap in front of an encrypted listener needs --tls."),
        NotPlayable::Pcap(_) => failure,
    }
}

/// Reads the whole file once, so that a file that cannot be played is refused before a client connects.
fn check(path: &Path) -> Result<(), NotPlayable> {
    let (mut script, _) = open(path).map_err(NotPlayable::Pcap)?;
    while let Some(step) = script.next().map_err(NotPlayable::Pcap)? {
        if matches!(step.act, Act::Send(_, Said::Connect(_))) {
            return script.skim().map_err(NotPlayable::Pcap);
        }
    }
    Err(NotPlayable::NoMqtt)
}

/// Opens a recording. Also returns its size in bytes.
fn open(path: &Path) -> Result<(Script<impl Read + use<>>, u64), PcapError> {
    let file = File::open(path).map_err(PcapError::Io)?;
    let metadata = file.metadata().map_err(PcapError::Io)?;
    if !metadata.is_file() {
        // The file is read twice.
        let error = std::io::Error::new(std::io::ErrorKind::InvalidInput, "this is no regular file");
        return Err(PcapError::Io(error));
    }
    let pcap = Pcap::begin(BufReader::with_capacity(BUFFER_BYTES, file))?;
    Ok((Script::new(Streams::new(pcap)), metadata.len()))
}

#[test]
fn a_speed_is_a_positive_number_or_the_maximum() {
    assert_eq!(speed("max"), Ok(Speed::Max));
    assert_eq!(speed("2.5"), Ok(Speed::Times(2.5)));
    for wrong in ["", "0", "-1", "fast", "inf", "NaN"] {
        assert!(speed(wrong).is_err(), "{wrong}");
    }
}
