//! Topics and filters of an imaginary plant.

use topic::{TopicFilter, TopicFilterBuf, TopicName, TopicNameBuf};

/// SplitMix64: every run draws the same.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % bound
    }

    /// An index into a list of this length.
    pub(crate) fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).expect("less than a usize")
    }

    pub(crate) fn shuffle<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            list.swap(last, self.index(last + 1));
        }
    }
}

/// Devices are numbered through; site, hall and line follow from the number.
pub(crate) struct Plant {
    devices: u64,
}

const MEASURES: [&str; 8] =
    ["temperature", "pressure", "vibration", "power", "flow", "state", "humidity", "speed"];
const CHANNELS: [&str; 4] = ["raw", "mean", "min", "max"];

impl Plant {
    pub(crate) fn with_devices(devices: usize) -> Self {
        Self { devices: devices as u64 }
    }

    pub(crate) fn topic(&self, random: &mut Random) -> TopicNameBuf {
        name(&self.levels(random).join("/"))
    }

    pub(crate) fn filter(&self, random: &mut Random) -> TopicFilterBuf {
        let mut levels = self.levels(random);
        match random.below(10) {
            0..7 => {}
            7..9 => {
                // Mostly around the device's own name, which is the last level or one of the last three.
                for _ in 0..=random.below(2) {
                    let position = random.index(levels.len());
                    if !levels[position].starts_with("device") || random.below(1_000) == 0 {
                        levels[position] = "+".into();
                    }
                }
            }
            _ => {
                let device = levels.iter().position(|level| level.starts_with("device"));
                let kept = if random.below(1_000) == 0 {
                    1
                } else {
                    device.map_or(levels.len(), |device| device + 1)
                };
                levels.truncate(kept);
                levels.push("#".into());
            }
        }
        filter(&levels.join("/"))
    }

    fn levels(&self, random: &mut Random) -> Vec<String> {
        let device = random.below(self.devices);
        let mut levels = vec![format!("site-{}", device % 23)];
        let depth = 3 + random.below(4);
        if depth >= 5 {
            levels.push(format!("hall-{}", device % 7));
        }
        if depth == 6 {
            levels.push(format!("line-{}", device % 31));
        }
        levels.push(format!("device-{device:06}"));
        levels.push(MEASURES[random.index(8)].into());
        if depth >= 4 {
            levels.push(CHANNELS[random.index(4)].into());
        }
        levels
    }
}

pub(crate) fn name(text: &str) -> TopicNameBuf {
    TopicName::new(text).expect("names are made valid").into()
}

pub(crate) fn filter(text: &str) -> TopicFilterBuf {
    TopicFilter::new(text).expect("filters are made valid").into()
}

/// Any mix of `+` and names that matches the topic with these levels, half of them cut off with `#`.
pub(crate) fn mixed_filter(levels: usize, random: &mut Random) -> TopicFilterBuf {
    let depth = if random.below(2) == 0 { levels } else { random.index(levels + 1) };
    let plus_or_name = |level| if random.below(2) == 0 { "+".into() } else { level_name(level) };
    let mut parts: Vec<String> = (0..depth).map(plus_or_name).collect();
    if depth < levels {
        parts.push("#".into());
    }
    filter(&parts.join("/"))
}

pub(crate) fn level_name(level: usize) -> String {
    format!("level-{level}")
}
