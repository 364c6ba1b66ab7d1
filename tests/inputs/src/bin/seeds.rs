//! Writes the inputs with which the fuzzers begin into `fuzz/corpus`: the table of good and bad packets, one record of each
//! kind, connections with each layer, and the inputs that earlier searches have kept.
//!
//! `seeds keep TARGET FOLDER` keeps the inputs in this folder, which a search of this target has found.

use std::fs;
use std::io;
use std::path::Path;

use inputs::web::{REQUEST, frame};
use inputs::{Input, Stream};
use wire::{Role, Version};

/// The records that the journal's tests pin the format with.
const RECORDS: &str = include_str!("../../../../crates/record/src/tests/golden.txt");

/// Maximum total of the inputs that are kept of a target, in bytes. The shortest ones are kept.
const KEPT_BYTES_MAX: usize = 48 << 10;

fn main() -> io::Result<()> {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [] => write(&fuzz),
        [keep, target, folder] if keep == "keep" => {
            keep_inputs(&fuzz.join("kept").join(format!("{target}.txt")), Path::new(folder))
        }
        _ => Err(io::Error::other("usage: seeds [keep TARGET FOLDER]")),
    }
}

/// Writes the inputs with which all targets begin.
fn write(fuzz: &Path) -> io::Result<()> {
    let corpus = fuzz.join("corpus");
    let mut count = kept(&fuzz.join("kept"), &corpus)?;
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
    let folder = corpus.join("client");
    fs::create_dir_all(&folder)?;
    for (number, case) in wire::table::cases().enumerate().filter(|(_, case)| case.sender == Role::Server) {
        for &version in case.versions {
            let how = Version::ALL.iter().position(|known| *known == version).expect("a known version");
            let how = u8::try_from(how).expect("a short list");
            fs::write(folder.join(format!("table-{number}-{version}")), [&[how, 0xff], case.bytes].concat())?;
            count += 1;
        }
    }
    let folder = corpus.join("records");
    fs::create_dir_all(&folder)?;
    for (number, line) in RECORDS.lines().enumerate() {
        let (name, hex) = line.split_once(' ').expect("NAME HEX");
        fs::write(folder.join(format!("{number}-{name}")), bytes(hex).expect("the table is right"))?;
        count += 1;
    }
    count += layers(&corpus)?;
    println!("{count} seeds in {}", corpus.display());
    Ok(())
}

/// Keeps the shortest inputs in a folder: one in each line, in hexadecimal digits.
fn keep_inputs(kept: &Path, folder: &Path) -> io::Result<()> {
    let mut inputs: Vec<Vec<u8>> =
        fs::read_dir(folder)?.map(|file| fs::read(file?.path())).collect::<Result<_, _>>()?;
    inputs.sort_by(|one, other| one.len().cmp(&other.len()).then_with(|| one.cmp(other)));
    let (mut total, found) = (0, inputs.len());
    inputs.retain(|input| {
        total += input.len();
        !input.is_empty() && total <= KEPT_BYTES_MAX
    });
    let mut text = String::new();
    for input in &inputs {
        text.extend(input.iter().map(|byte| format!("{byte:02x}")));
        text.push('\n');
    }
    fs::create_dir_all(kept.parent().expect("a file lies in a folder"))?;
    println!("{} inputs in {}; {} are too long", inputs.len(), kept.display(), found - inputs.len());
    fs::write(kept, text)
}

/// The inputs that earlier searches have kept, for all targets. Returns how many.
fn kept(kept: &Path, corpus: &Path) -> io::Result<usize> {
    let mut count = 0;
    for file in fs::read_dir(kept)? {
        let path = file?.path();
        if path.extension().is_none_or(|extension| extension != "txt") {
            continue;
        }
        let folder = corpus.join(path.file_stem().expect("a file has a name"));
        fs::create_dir_all(&folder)?;
        for (number, line) in fs::read_to_string(&path)?.lines().enumerate() {
            let input = bytes(line).ok_or_else(|| {
                io::Error::other(format!("{}:{}: no hexadecimal digits", path.display(), number + 1))
            })?;
            fs::write(folder.join(format!("kept-{number}")), input)?;
            count += 1;
        }
    }
    Ok(count)
}

/// Connections with each layer. Returns how many.
fn layers(corpus: &Path) -> io::Result<usize> {
    const CONNECT: &[u8] = b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01c";
    let long_field = format!("GET / HTTP/1.1\r\nHost: a\r\nA: {}\r\n\r\n", "a".repeat(9_000));
    let frames = [
        frame(0x02, &CONNECT[..3]),
        frame(0x89, b"ping"),
        frame(0x80, &CONNECT[3..]),
        frame(0x89, &[7; 125]),
        frame(0x82, &[0; 300]),
        frame(0x88, b"\x03\xe8bye"),
    ];
    let frames = frames.concat();
    let line = b"PROXY TCP4 192.0.2.1 192.0.2.2 12345 1883\r\n";
    let address = [192, 0, 2, 1, 192, 0, 2, 2, 0x30, 0x39, 0x07, 0x5b];
    let header = [&b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x10"[..], &address, b"\x02\0\x01a"].concat();
    let hello = b"\x16\x03\x01\x00\x31\x01\x00\x00\x2d\x03\x03";
    let upgraded = [REQUEST, &frames].concat();
    let rows: [(&str, u8, &[u8]); 17] = [
        ("websocket", 0, &frames),
        ("websocket", 0, &frame(0x81, b"text")),
        ("websocket", 1, REQUEST),
        ("websocket", 1, long_field.as_bytes()),
        ("proxy", 0, &[line, CONNECT].concat()),
        ("proxy", 0, &[&header[..], CONNECT].concat()),
        ("proxy", 1, &[9; 40]),
        ("proxy", 2, &[9; 40]),
        ("proxy", 3, &[9; 18]),
        ("layers", 0, CONNECT),
        ("layers", 0, &upgraded),
        ("layers", 0x10, &[line, &upgraded[..]].concat()),
        ("layers", 0x30, &[&header, &hello[..]].concat()),
        ("layers", 0x20, hello),
        ("layers", 0x60, CONNECT),
        ("layers", 0x80, CONNECT),
        ("layers", 0x80, &upgraded),
    ];
    let mut count = 0;
    for (number, (target, choice, bytes)) in rows.iter().enumerate() {
        let folder = corpus.join(target);
        fs::create_dir_all(&folder)?;
        for piece_bytes in [1, 7, 100] {
            fs::write(
                folder.join(format!("{number}-{piece_bytes}")),
                Input::make(*choice, piece_bytes, bytes),
            )?;
            count += 1;
        }
    }
    Ok(count)
}

/// The bytes of an even number of hexadecimal digits.
fn bytes(hex: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> =
        hex.chars().map(|digit| u8::try_from(digit.to_digit(16)?).ok()).collect::<Option<_>>()?;
    let (pairs, rest) = digits.as_chunks();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| high * 16 + low).collect())
}
