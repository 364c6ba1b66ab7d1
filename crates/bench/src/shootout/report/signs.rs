//! The colour, the mark and the dashes of each server, with which charts tell servers apart.

use plotters::style::RGBColor;

use super::super::quantity::RELAY;
use super::super::results::Results;

/// Colours that colour-blind readers tell apart: those of Okabe and Ito without yellow, and five darker ones.
const COLOURS: [RGBColor; 12] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(0, 0, 0),
    RGBColor(119, 68, 255),
    RGBColor(153, 34, 85),
    RGBColor(110, 60, 0),
    RGBColor(0, 85, 68),
    RGBColor(51, 34, 136),
];

/// The colour of the relay, which no broker has.
const GREY: RGBColor = RGBColor(119, 119, 119);

const MARKS: [Mark; 4] = [Mark::Disc, Mark::Triangle, Mark::Cross, Mark::Square];

/// Length of dashes and gaps in pixels; `None` is a line without gaps.
const DASHES: [Option<(i32, i32)>; 3] = [None, Some((8, 4)), Some((3, 3))];

/// The shape of the points of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    Disc,
    Triangle,
    Cross,
    Square,
    /// Only the relay has it.
    Ring,
}

/// The look of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sign {
    pub(super) colour: RGBColor,
    pub(super) mark: Mark,
    pub(super) dash: Option<(i32, i32)>,
}

impl Sign {
    /// The look of a server. Twelve brokers differ in their colours, and in their marks and dashes too.
    pub(super) fn of(results: &Results, name: &str) -> Self {
        if name == RELAY {
            return Self { colour: GREY, mark: Mark::Ring, dash: None };
        }
        let mut brokers = results.servers.iter().filter(|server| server.name != RELAY);
        let place = brokers.position(|server| server.name == name).unwrap_or_default();
        Self {
            colour: COLOURS[place % COLOURS.len()],
            mark: MARKS[place % MARKS.len()],
            dash: DASHES[place / MARKS.len() % DASHES.len()],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::fixture::results;
    use super::super::super::results::Server;
    use super::*;

    /// Distance in the RGB cube below which two colours count as equal; white and black are 441 apart.
    const DISTANCE_MIN: f64 = 20.0;

    /// Light as readers without the cones for red or for green see it (Viénot, Brettel and Mollon, 1999).
    const READERS: [[[f64; 3]; 3]; 3] = [
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        [[0.112_38, 0.887_62, 0.0], [0.112_38, 0.887_62, 0.0], [0.004_01, -0.004_01, 1.0]],
        [[0.292_75, 0.707_25, 0.0], [0.292_75, 0.707_25, 0.0], [-0.022_34, 0.022_34, 1.0]],
    ];

    /// The colour as a reader sees it.
    fn seen(colour: RGBColor, reader: [[f64; 3]; 3]) -> [f64; 3] {
        let light = [colour.0, colour.1, colour.2].map(|part| (f64::from(part) / 255.0).powf(2.2));
        let sum = |row: [f64; 3]| row.iter().zip(light).map(|(share, light)| share * light).sum::<f64>();
        reader.map(|row| sum(row).clamp(0.0, 1.0).powf(1.0 / 2.2) * 255.0)
    }

    fn signs() -> Vec<Sign> {
        let mut results = results();
        let server = results.servers[0].clone();
        let name = |place: usize| if place == 1 { RELAY.to_owned() } else { format!("server {place}") };
        results.servers = (0..13).map(|place| Server { name: name(place), ..server.clone() }).collect();
        results.servers.iter().map(|server| Sign::of(&results, &server.name)).collect()
    }

    #[test]
    fn twelve_brokers_and_the_relay_differ_in_marks_and_dashes() {
        let signs = signs();
        for (place, one) in signs.iter().enumerate() {
            for other in &signs[..place] {
                assert!((one.mark, one.dash) != (other.mark, other.dash), "{one:?} {other:?}");
            }
        }
        assert_eq!(signs[1], Sign { colour: GREY, mark: Mark::Ring, dash: None });
    }

    #[test]
    fn twelve_brokers_and_the_relay_differ_in_their_colours_for_colour_blind_readers() {
        let signs = signs();
        for reader in READERS {
            for (place, one) in signs.iter().enumerate() {
                for other in &signs[..place] {
                    let [one, other] = [one.colour, other.colour].map(|colour| seen(colour, reader));
                    let squares: f64 = one.iter().zip(other).map(|(one, other)| (one - other).powi(2)).sum();
                    assert!(squares.sqrt() > DISTANCE_MIN, "{one:?} {other:?}");
                }
            }
        }
    }
}
