//! Placeholder.
mod disk;
use pondhawk_tests::promises::kill;
fn main() {
    let kills = std::env::args().nth(1).unwrap().parse().unwrap();
    let k = kill(kills, 7, |t| println!("{t}"));
    println!("{k:#?}");
}
