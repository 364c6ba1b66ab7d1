//! Figures as people read them: three digits and a unit.

use std::time::Duration;

/// Mean and spread of one quantity over the rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sample {
    pub(crate) mean: f64,
    /// Of a sample (n - 1); none of a single value.
    pub(crate) standard_deviation: Option<f64>,
}

impl Sample {
    /// `None` of no values.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let standard_deviation = (values.len() > 1).then(|| (squares / (count - 1.0)).sqrt());
        (!values.is_empty()).then_some(Self { mean, standard_deviation })
    }

    /// Mean ± standard deviation.
    pub(crate) fn to_text(self, text: impl Fn(f64) -> String) -> String {
        let spread =
            self.standard_deviation.map_or(String::new(), |deviation| format!(" ± {}", text(deviation)));
        format!("{}{spread}", text(self.mean))
    }
}

/// Three digits, in thousands or millions from there on.
pub(crate) fn quantity(value: f64) -> String {
    scaled(value, &[(1e6, " M"), (1e3, " k")])
}

/// Three digits, binary units.
pub(crate) fn bytes(value: f64) -> String {
    // Whole bytes as far as what a connection costs: that is what they are compared for.
    if value < 10_240.0 {
        return format!("{value:.0} B");
    }
    scaled(value, &[(1_073_741_824.0, " GiB"), (1_048_576.0, " MiB"), (1_024.0, " KiB")])
}

/// Three digits, in the largest unit that the time fills.
pub(crate) fn duration(value: Duration) -> String {
    let micros = value.as_secs_f64() * 1e6;
    scaled(micros, &[(1e6, " s"), (1e3, " ms"), (0.0, " µs")])
}

/// Per cent of 1.
pub(crate) fn share(value: f64) -> String {
    format!("{:.0} %", value * 100.0)
}

/// The middle one, or the mean of both in the middle; NaN of none.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values[..] {
        [] => f64::NAN,
        _ if values.len().is_multiple_of(2) => f64::midpoint(values[middle - 1], values[middle]),
        _ => values[middle],
    }
}

/// In the first unit that the value fills, or none.
fn scaled(value: f64, units: &[(f64, &str)]) -> String {
    let rounded = value * 1.0005;
    let unit = units.iter().find(|(size, _)| rounded.abs() >= *size);
    let (size, name) = unit.copied().unwrap_or((1.0, ""));
    format!("{}{name}", three_digits(value / if size > 0.0 { size } else { 1.0 }))
}

fn three_digits(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        ..0.0995 => format!("{value:.4}"),
        ..0.9995 => format!("{value:.3}"),
        ..9.995 => format!("{value:.2}"),
        ..99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_three_digits() {
        let values = [0.0, 0.0078, 0.0651, 0.4, 4.914, 12.34, 999.6, 1_000.0, 184_300.0, 34_120_000.0];
        let texts = ["0", "0.0078", "0.0651", "0.400", "4.91", "12.3", "1.00 k", "1.00 k", "184 k", "34.1 M"];
        assert_eq!(values.map(quantity), texts);
    }

    #[test]
    fn bytes_are_exact_where_connections_are_compared() {
        assert_eq!(
            [0.0, 740.4, 8_068.0, 20_480.0, 1_572_864.0].map(bytes),
            ["0 B", "740 B", "8068 B", "20.0 KiB", "1.50 MiB"]
        );
    }

    #[test]
    fn durations_take_the_unit_they_fill() {
        let texts =
            [500, 12_300, 2_040_000, 3_500_000_000].map(|nanos| duration(Duration::from_nanos(nanos)));
        assert_eq!(texts, ["0.500 µs", "12.3 µs", "2.04 ms", "3.50 s"]);
    }

    #[test]
    fn the_deviation_is_that_of_a_sample() {
        let sample = Sample::of(&[1.0, 3.0]).unwrap();
        assert_eq!(sample.to_text(quantity), "2.00 ± 1.41");
        assert_eq!(Sample::of(&[5.0]).unwrap().standard_deviation, None);
        assert_eq!(Sample::of(&[]), None);
    }
}
