//! Databases as Mosquitto writes them on other kinds of machines.

/// The traits of a machine that a database shows.
#[derive(Clone, Copy)]
pub(crate) struct Layout {
    pub(crate) name: &'static str,
    /// Numbers of 64 bits begin with their highest byte.
    is_big_endian: bool,
    /// A structure ends at a multiple of four bytes, and not of eight.
    is_packed: bool,
}

pub(crate) const I386: Layout = Layout { name: "i386", is_big_endian: false, is_packed: true };
pub(crate) const MIPS: Layout = Layout { name: "mips", is_big_endian: true, is_packed: false };
pub(crate) const M68K: Layout = Layout { name: "m68k", is_big_endian: true, is_packed: true };

const HEADER_BYTES: usize = 23;

impl Layout {
    /// Converts a database of a little-endian machine of 64 bits.
    pub(crate) fn converted(self, file: &[u8]) -> Vec<u8> {
        let mut converted = file[..HEADER_BYTES].to_vec();
        let mut rest = &file[HEADER_BYTES..];
        while !rest.is_empty() {
            let (kind, length) = (rest[3], u32::from_be_bytes([rest[4], rest[5], rest[6], rest[7]]));
            let (chunk, others) = rest.split_at(8 + length as usize);
            rest = others;
            let body = self.body(kind, &chunk[8..]);
            converted.extend(&chunk[..4]);
            converted.extend(u32::try_from(body.len()).expect("a short chunk").to_be_bytes());
            converted.extend(body);
        }
        converted
    }

    fn body(self, kind: u8, body: &[u8]) -> Vec<u8> {
        let mut body = body.to_vec();
        let numbers = match kind {
            2 => 2,
            5 => 0,
            _ => 1,
        };
        if self.is_big_endian {
            body[..8 * numbers].chunks_mut(8).for_each(<[u8]>::reverse);
        }
        if self.is_packed {
            match kind {
                1 => body.truncate(12),
                6 => drop(body.drain(20..24)),
                _ => {}
            }
        }
        body
    }
}
