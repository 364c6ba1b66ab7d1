//! The local time, in the formats of C.

use jiff::Zoned;

/// A point in time, with its time zone.
#[derive(Debug, Clone)]
pub(crate) struct Moment(Zoned);

impl Moment {
    pub(crate) fn now() -> Self {
        Self(Zoned::now())
    }

    /// Applies one conversion of `strftime`, in the C locale. An unknown conversion is returned unchanged.
    pub(crate) fn convert(&self, conversion: char) -> String {
        let format = match conversion {
            'c' => "%a %b %e %H:%M:%S %Y",
            'x' | 'D' => "%m/%d/%y",
            'X' | 'T' => "%H:%M:%S",
            'r' => "%I:%M:%S %p",
            '+' | 'f' | 'v' | 'E' | 'O' | 'Q' | 'q' | 'N' | 'L' | 'i' | 'J' | 'K' | 'o' => "",
            known if known.is_ascii_alphabetic() || known == '%' => return self.format(&format!("%{known}")),
            _ => "",
        };
        if format.is_empty() { format!("%{conversion}") } else { self.format(format) }
    }

    fn format(&self, format: &str) -> String {
        jiff::fmt::strtime::format(format, &self.0).unwrap_or_else(|_| format.to_owned())
    }

    /// The time in ISO 8601, such as `2016-08-10T09:47:38+0100`.
    pub(crate) fn iso_8601(&self) -> String {
        self.format("%Y-%m-%dT%H:%M:%S%z")
    }

    /// The time in the JSON format of Mosquitto's clients, such as `2020-05-06T22:12:00.000000Z+0100`.
    pub(crate) fn json(&self) -> String {
        let micros = self.nanoseconds() / 1_000;
        format!("{}.{micros:06}Z{}", self.format("%Y-%m-%dT%H:%M:%S"), self.format("%z"))
    }

    /// Seconds since 1970, such as `1470818943.786368637`.
    pub(crate) fn unix(&self) -> String {
        format!("{}.{:09}", self.0.timestamp().as_second(), self.nanoseconds())
    }

    pub(crate) fn nanoseconds(&self) -> i32 {
        self.0.subsec_nanosecond()
    }
}

#[test]
fn a_moment_is_printed_as_c_prints_it() {
    let moment = Moment("2026-11-02T09:05:07.000123456+01:00[+01:00]".parse().unwrap());
    let printed: String = "aAbBcCdDeFgGhHIjklmMnpPrRsStTuUVwWxXyYzZ%EOvf+q"
        .chars()
        .map(|conversion| format!("{}|", moment.convert(conversion)))
        .collect();
    let expected = "Mon|Monday|Nov|November|Mon Nov  2 09:05:07 2026|20|02|11/02/26| 2|2026-11-02|26|2026|Nov|09|09|306\
        | 9| 9|11|05|\n|AM|am|09:05:07 AM|09:05|1793606707|07|\t|09:05:07|1|44|45|1|44|11/02/26|09:05:07|26|2026|+0100\
        |+01|%|%E|%O|%v|%f|%+|%q|";
    assert_eq!(printed, expected);
    assert_eq!(moment.json(), "2026-11-02T09:05:07.000123Z+0100");
    assert_eq!(moment.iso_8601(), "2026-11-02T09:05:07+0100");
    assert_eq!(moment.unix(), "1793606707.000123456");
}
