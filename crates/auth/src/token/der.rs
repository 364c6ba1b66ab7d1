//! Public keys in PEM: `PUBLIC KEY` (RFC 7468, section 13) and `RSA PUBLIC KEY` (RFC 8017, appendix A.1.1).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::key::Material;

/// Tags of the values that a key in DER has.
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OBJECT: u8 = 0x06;
const SEQUENCE: u8 = 0x30;

/// Object identifiers of kinds of keys and of curves.
const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const ELLIPTIC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const P384: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x22];
const ED25519: &[u8] = &[0x2b, 0x65, 0x70];

/// A block of PEM: its label and its contents.
pub(super) struct Block<'a> {
    pub(super) label: &'a str,
    pub(super) der: Vec<u8>,
}

/// The blocks of a text in PEM. `None` if one of them has no end, or is not base64.
pub(super) fn blocks(text: &str) -> Option<Vec<Block<'_>>> {
    let mut blocks = Vec::new();
    let mut rest = text;
    while let Some((_, begin)) = rest.split_once("-----BEGIN ") {
        let (label, body) = begin.split_once("-----")?;
        let (body, behind) = body.split_once(&*format!("-----END {label}-----"))?;
        let letters: String = body.chars().filter(|letter| !letter.is_ascii_whitespace()).collect();
        blocks.push(Block { label, der: STANDARD.decode(letters).ok()? });
        rest = behind;
    }
    Some(blocks)
}

/// A key out of a block with the label `PUBLIC KEY`. `None` if it is none that signs tokens.
pub(super) fn public_key(der: &[u8]) -> Option<Material> {
    let mut outer = Reader(der).whole(SEQUENCE)?;
    let mut kind = outer.next(SEQUENCE)?;
    // The first byte says how many bits of the last byte are unused: none.
    let key = outer.next(BIT_STRING)?.0.strip_prefix(&[0])?;
    if !outer.0.is_empty() {
        return None;
    }
    match kind.next(OBJECT)?.0 {
        RSA => rsa_key(key),
        ED25519 if kind.0.is_empty() => Material::ed25519(key),
        ELLIPTIC => match kind.next(OBJECT)?.0 {
            P256 => Material::p256(key),
            P384 => Material::p384(key),
            _ => None,
        },
        _ => None,
    }
}

/// A key out of a block with the label `RSA PUBLIC KEY`.
pub(super) fn rsa_key(der: &[u8]) -> Option<Material> {
    let mut numbers = Reader(der).whole(SEQUENCE)?;
    let (modulus, exponent) = (numbers.next(INTEGER)?.0, numbers.next(INTEGER)?.0);
    numbers.0.is_empty().then(|| Material::rsa(modulus, exponent)).flatten()
}

/// The unread part of the contents of a value in DER.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// The contents of the next value, which has this tag.
    fn next(&mut self, tag: u8) -> Option<Self> {
        let (found, rest) = self.0.split_first()?;
        let (first, rest) = rest.split_first()?;
        let (length, rest) = match *first {
            short @ 0..=0x7f => (usize::from(short), rest),
            // Two bytes of length are enough for a key of 16,384 bits.
            long @ 0x81..=0x82 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(long & 0x7f))?;
                (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
            }
            _ => return None,
        };
        let (contents, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        (*found == tag).then_some(Self(contents))
    }

    /// The same for a value with nothing behind it.
    fn whole(mut self, tag: u8) -> Option<Self> {
        let contents = self.next(tag)?;
        self.0.is_empty().then_some(contents)
    }
}
