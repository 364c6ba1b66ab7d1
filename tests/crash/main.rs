//! Power cuts and kills: what was acknowledged is there afterwards, and nothing of QoS 2 comes twice.
//!
//! The real broker runs under load with a file layer that traces what is written and synced, and each client notes how
//! long the trace was when something was acknowledged. An image is what the disk may have when its power is cut at any
//! place of the trace. The real broker recovers from each, all clients come back, and what they get is compared with what
//! they had been promised by then. The same with all syncs left out has to lose something: if it does not, this proves
//! nothing.
//!
//! usage: `crash [--images N] [--kills N] [--seed S]`, or `crash --trace FILE --at POSITION --seed S --to DIR`, which
//! writes the image that a failure names.
#![forbid(unsafe_code)]

mod disk;
mod images;
mod interruption;
mod recording;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};
use std::{fs, io};

use pondhawk_tests::Random;
use pondhawk_tests::promises::kill;
use pondhawk_tests::trace::Position;

use crate::disk::{Disk, Syncs};
use crate::recording::Recording;
use crate::report::Report;

const USAGE: &str = "usage: crash [--images N] [--kills N] [--seed S]\n       crash --trace FILE --at POSITION --seed S --to DIR";

/// A run with everything takes some minutes.
const IMAGES: usize = 1_000;
const KILLS: usize = 200;

/// Options of the command line.
#[derive(Debug, Default)]
struct Asked {
    images: Option<usize>,
    kills: Option<usize>,
    seed: Option<u64>,
    trace: Option<PathBuf>,
    at: Option<Position>,
    to: Option<PathBuf>,
}

fn main() -> ExitCode {
    let done = Asked::parse(std::env::args().skip(1)).and_then(|asked| match &asked.trace {
        Some(trace) => asked.write_image(trace).map(|()| true),
        None => Ok(asked.run()),
    });
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("error: {message}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

impl Asked {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        fn number<T: std::str::FromStr>(text: &str) -> Result<Option<T>, String> {
            text.parse().map(Some).map_err(|_| format!("{text} is no number"))
        }
        let mut asked = Self::default();
        while let Some(argument) = arguments.next() {
            let value = arguments.next().ok_or_else(|| format!("{argument} needs a value"))?;
            match argument.as_str() {
                "--images" => asked.images = number(&value)?,
                "--kills" => asked.kills = number(&value)?,
                "--seed" => asked.seed = number(&value)?,
                "--at" => asked.at = number(&value)?,
                "--trace" => asked.trace = Some(value.into()),
                "--to" => asked.to = Some(value.into()),
                _ => return Err(format!("there is no option {argument}")),
            }
        }
        Ok(asked)
    }

    /// Whether all is well.
    fn run(&self) -> bool {
        // Another one each time: what nobody has seen yet is what is looked for.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
        let seed = self.seed.unwrap_or(now);
        println!("seed {seed}");
        let mut report = Report::default();
        images::run(self.images.unwrap_or(IMAGES), seed, &mut report);
        let kills = self.kills.unwrap_or(KILLS);
        if kills > 0 {
            report.killed = Some((kills, kill(kills, seed, |progress| println!("{progress}"))));
        }
        println!("\n{report}");
        report.is_good()
    }

    fn write_image(&self, trace: &PathBuf) -> Result<(), String> {
        let (Some(at), Some(seed), Some(to)) = (self.at, self.seed, &self.to) else {
            return Err("--trace needs --at, --seed and --to".to_owned());
        };
        let write = || -> io::Result<()> {
            let mut disk = Disk::new(Syncs::Kept);
            Recording::play(&fs::read(trace)?, 0..at, &mut disk);
            fs::create_dir_all(to)?;
            disk.write_image(&mut Random::of(seed, 0), to)
        };
        write().map_err(|error| format!("{}: {error}", to.display()))
    }
}
