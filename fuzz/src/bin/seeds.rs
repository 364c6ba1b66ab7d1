//! Writes the table of good and bad packets as seeds for the fuzzers, into `corpus/` of this folder.

use std::fs;
use std::path::Path;

use stream::Stream;

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
    println!("{count} seeds in {}", corpus.display());
    Ok(())
}
