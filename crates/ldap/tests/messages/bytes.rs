//! A second encoder of elements, as simple as possible, for comparisons.

/// An element whose content is less than 16 MiB.
pub(crate) fn element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let length = u32::try_from(content.len()).expect("a short content").to_be_bytes();
    let head: &[u8] = match length {
        [0, 0, 0, low @ 0..0x80] => &[tag, low],
        [0, 0, 0, low] => &[tag, 0x81, low],
        [0, 0, middle, low] => &[tag, 0x82, middle, low],
        [_, high, middle, low] => &[tag, 0x83, high, middle, low],
    };
    [head, &content].concat()
}

/// An element with its length in the long form, in eight bytes.
pub(crate) fn long_element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let length = u64::try_from(content.len()).expect("a length").to_be_bytes();
    [&[tag, 0x88], length.as_slice(), &content].concat()
}

/// A text as `OCTET STRING`.
pub(crate) fn string(text: &str) -> Vec<u8> {
    element(0x04, &[text.as_bytes()])
}

/// A message of a server with the identifier 7.
pub(crate) fn message(parts: &[&[u8]]) -> Vec<u8> {
    element(0x30, &[b"\x02\x01\x07", &parts.concat()])
}

/// The content of `LDAPResult` with a code and a text.
pub(crate) fn outcome(code: u8, diagnostic: &[u8]) -> Vec<u8> {
    [element(0x0a, &[&[code]]), string("dc=pond"), element(0x04, &[diagnostic])].concat()
}

/// An attribute of an entry.
pub(crate) fn attribute(name: &str, values: &[&[u8]]) -> Vec<u8> {
    let values: Vec<_> = values.iter().map(|value| element(0x04, &[value])).collect();
    element(0x30, &[&string(name), &element(0x31, &[&values.concat()])])
}
