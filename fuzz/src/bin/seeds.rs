//! Writes the table of good and bad packets, and one record of each kind, as seeds for the fuzzers, into `corpus/` of this
//! folder.

use std::fs;
use std::path::Path;

use stream::Stream;

/// The records that the journal's tests pin the format with.
const RECORDS: &str = include_str!("../../../crates/journal/src/record/tests/golden.txt");

fn main() -> std::io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut count = 0;
    for target in ["decode", "round_trip"] {
        let folder = corpus.join(target);
        fs::create_dir_all(&folder)?;
        for (number, case) in wire::table::cases().enumerate() {
            for &version in case.versions {
                let version = case.known_version(version);
                let stream = Stream { version, sender: Some(case.sender), bytes: case.bytes };
                let name = version.map_or("first".to_owned(), |version| version.to_string());
                fs::write(folder.join(format!("table-{number}-{name}")), stream.input())?;
                count += 1;
            }
        }
    }
    let folder = corpus.join("records");
    fs::create_dir_all(&folder)?;
    for (number, line) in RECORDS.lines().enumerate() {
        let (name, hex) = line.split_once(' ').expect("NAME HEX");
        fs::write(folder.join(format!("{number}-{name}")), bytes(hex))?;
        count += 1;
    }
    println!("{count} seeds in {}", corpus.display());
    Ok(())
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<_> = hex.chars().map(|digit| digit.to_digit(16).expect("a digit")).collect();
    digits.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1]).expect("two digits")).collect()
}
