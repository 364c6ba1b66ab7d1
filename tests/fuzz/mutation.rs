//! Mutations of good packets: fields and bytes that are changed, left out, doubled or moved.

use crate::field::{Field, Fields};
use pondhawk_tests::Random;

const TEXTS: &[&[u8]] =
    &[b"", b"\0", b"\xFF", b"\xED\xA0\x80", b"+", b"#", b"a/+/#/b", b"$share//", b"\xEF\xBB\xBF", b"\r\n"];

/// Changes some fields; the lengths around them fit.
pub(crate) fn change(random: &mut Random, packet: &mut Fields) {
    for _ in 0..=random.below(3) {
        match random.below(8) {
            0 => packet.first ^= 1 << random.below(8),
            1 if !packet.fields.is_empty() => drop(packet.fields.remove(random.below(packet.fields.len()))),
            2 if !packet.fields.is_empty() => {
                let doubled = packet.fields[random.below(packet.fields.len())].clone();
                packet.fields.insert(random.below(packet.fields.len() + 1), doubled);
            }
            3 if packet.fields.len() > 1 => {
                let (one, other) = (random.below(packet.fields.len()), random.below(packet.fields.len()));
                packet.fields.swap(one, other);
            }
            4 => packet.fields.push(Field::Bare(vec![0; random.below(4)])),
            _ if !packet.fields.is_empty() => {
                let changed = random.below(packet.fields.len());
                change_field(random, &mut packet.fields[changed]);
            }
            _ => {}
        }
    }
}

fn change_field(random: &mut Random, field: &mut Field) {
    match field {
        Field::Byte(byte) => *byte = random.byte(),
        Field::Two(number) => *number = random.two(),
        Field::Four(number) => *number = random.of_list(&[0, 1, 255, 1 << 16, u32::MAX - 1, u32::MAX]),
        Field::Varint(number) => *number = random.of_list(&[0, 127, 128, 16_384, (1 << 28) - 1]),
        Field::Text(text) if random.one_in(8) => *text = vec![b'/'; random.of_list(&[128, 1_000, 65_535])],
        // The length says something else.
        Field::Text(text) if random.one_in(4) => {
            let length = random.two().to_be_bytes();
            *field = Field::Bare([&length[..], text].concat());
        }
        Field::Text(text) | Field::Bare(text) => *text = random.of_list(TEXTS).to_vec(),
        Field::Properties(properties) => change_properties(random, properties),
    }
}

fn change_properties(random: &mut Random, properties: &mut Vec<Vec<Field>>) {
    let unknown = vec![Field::Byte(random.byte()), Field::Four(0)];
    if properties.is_empty() || random.one_in(4) {
        return properties.push(unknown);
    }
    let chosen = random.below(properties.len());
    match random.below(4) {
        0 => properties.push(properties[chosen].clone()),
        1 => drop(properties.remove(chosen)),
        // An earlier change may have left nothing of it.
        2 if !properties[chosen].is_empty() => {
            let part = random.below(properties[chosen].len());
            change_field(random, &mut properties[chosen][part]);
        }
        _ => drop(properties[chosen].pop()),
    }
}

/// Changes bytes, whatever they say.
pub(crate) fn damage(random: &mut Random, bytes: &mut Vec<u8>) {
    match random.below(5) {
        0 if !bytes.is_empty() => {
            let at = random.below(bytes.len());
            bytes[at] ^= 1 << random.below(8);
        }
        1 => bytes.truncate(random.below(bytes.len() + 1)),
        2 => {
            let at = random.below(bytes.len() + 1);
            let length = random.below(9);
            let inserted = random.bytes(length);
            bytes.splice(at..at, inserted);
        }
        3 if bytes.len() > 1 => bytes[1] = random.byte(),
        _ => {
            let (from, to) = (random.below(bytes.len() + 1), random.below(bytes.len() + 1));
            bytes.drain(from.min(to)..from.max(to));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_can_be_changed_again_and_again() {
        let mut random = Random::of(7, 0);
        for _ in 0..2_000 {
            let property = vec![Field::Byte(0x26), Field::Text(b"a".to_vec()), Field::Text(b"b".to_vec())];
            let fields = vec![Field::Two(1), Field::Properties(vec![property])];
            let mut packet = Fields { first: 0x30, fields };
            for _ in 0..20 {
                change(&mut random, &mut packet);
            }
        }
    }
}
