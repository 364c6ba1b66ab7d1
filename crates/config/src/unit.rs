//! Numbers with units: parses and prints sizes and durations.

/// Names of units, each with its size in the smallest unit, largest first.
pub(crate) type Units = &'static [(&'static str, u64)];

/// Units of sizes, as numbers of bytes.
pub(crate) const SIZES: Units =
    &[("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// Units of durations, as numbers of milliseconds.
pub(crate) const TIMES: Units =
    &[("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000), ("ms", 1)];

/// Parses a text such as `"1.5 MiB"` to a number of the smallest unit, and drops the remaining fraction.
///
/// The blank is optional. An error is the end of a sentence that begins with the parsed text.
pub(crate) fn parse(text: &str, units: Units) -> Result<u64, String> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(text.len());
    let (number, name) = (text[..end].replace('_', ""), text[end..].trim_start());
    if number.is_empty() {
        return Err("must begin with a number".to_owned());
    }
    let Some((_, scale)) = units.iter().find(|(unit, _)| *unit == name) else {
        return Err(match name {
            "" => "needs a unit".to_owned(),
            _ => format!("has the unit `{name}`, and there are {}", names(units)),
        });
    };
    scaled(&number, *scale)
}

fn scaled(number: &str, scale: u64) -> Result<u64, String> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let bad = || format!("has `{number}` for a number");
    if whole.is_empty() || fraction.contains('.') || number.ends_with('.') {
        return Err(bad());
    }
    let too_large = || "is too large".to_owned();
    let whole: u64 = whole.parse().map_err(|_| too_large())?;
    let fraction = fraction_of(fraction, scale);
    whole.checked_mul(scale).and_then(|value| value.checked_add(fraction)).ok_or_else(too_large)
}

fn fraction_of(digits: &str, scale: u64) -> u64 {
    let digits = &digits[..digits.len().min(18)];
    let numerator: u128 = digits.parse().unwrap_or(0);
    let part = numerator * u128::from(scale) / 10_u128.pow(u32::try_from(digits.len()).unwrap_or(18));
    u64::try_from(part).expect("a fraction of a unit is less than the unit")
}

fn names(units: Units) -> String {
    let names: Vec<&str> = units.iter().rev().map(|(name, _)| *name).collect();
    names.join(", ")
}

/// Prints a number of the smallest unit, in the largest unit that makes a whole number.
pub(crate) fn show(value: u64, units: Units) -> String {
    let fits = |(_, scale): &&(&str, u64)| value.is_multiple_of(*scale) && value >= *scale;
    let (name, scale) = units.iter().find(fits).or(units.last()).expect("there is a smallest unit");
    format!("{} {name}", grouped(value / scale))
}

/// Prints a number with an underscore between groups of three digits, as TOML allows.
pub(crate) fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push('_');
        }
        text.push(digit);
    }
    text
}

/// Returns the text as a TOML basic string.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => quoted.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_units_are_read_in_the_smallest_unit() {
        for (text, bytes) in [
            ("2 MiB", 2 << 20),
            ("2MiB", 2 << 20),
            (" 64  KiB ", 64 << 10),
            ("1.5 GiB", 3 << 29),
            ("0.0001 KiB", 0),
            ("1_000 B", 1_000),
        ] {
            assert_eq!(parse(text, SIZES), Ok(bytes), "{text}");
        }
        for (text, millis) in [("10 s", 10_000), ("1.5 h", 5_400_000), ("250ms", 250), ("1 d", 86_400_000)] {
            assert_eq!(parse(text, TIMES), Ok(millis), "{text}");
        }
    }

    #[test]
    fn values_other_than_a_number_with_a_unit_are_refused() {
        for text in
            ["", "MiB", "-1 MiB", "1", "1 MB", "1 mib", "1. MiB", ".5 MiB", "1.2.3 MiB", "99999999 TiB"]
        {
            assert!(parse(text, SIZES).is_err(), "{text}");
        }
        assert_eq!(parse("5 m", TIMES).unwrap_err(), "has the unit `m`, and there are ms, s, min, h, d");
    }

    #[test]
    fn a_number_is_shown_in_the_largest_unit_that_keeps_it_whole() {
        for (bytes, text) in
            [(0, "0 B"), (1_023, "1_023 B"), (1_024, "1 KiB"), (1_536, "1_536 B"), (3 << 20, "3 MiB")]
        {
            assert_eq!(show(bytes, SIZES), text);
            assert_eq!(parse(text, SIZES), Ok(bytes));
        }
        assert_eq!(show(90_000, TIMES), "90 s");
        assert_eq!(grouped(1_234_567), "1_234_567");
        assert_eq!(grouped(123), "123");
    }

    #[test]
    fn a_quoted_text_escapes_what_toml_does_not_allow() {
        assert_eq!(quoted("a\"b\\c\nd"), "\"a\\\"b\\\\c\\u000Ad\"");
    }
}
