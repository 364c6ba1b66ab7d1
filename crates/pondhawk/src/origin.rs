//! The lines of Mosquitto's files behind an error that only the start of the broker shows.

use crate::file::Loaded;

/// Returns the text of an error behind the file and the line that it is about, if the configuration is Mosquitto's and has a
/// line with the value that the error names.
pub(crate) fn with_place(loaded: &Loaded, error: &str) -> String {
    let toml = loaded.translated.as_ref().map_or("", |translation| &translation.toml);
    match place(toml, error) {
        Some(place) => format!("error: {place}: {error}"),
        None => format!("error: {error}"),
    }
}

/// Finds the place in the comment behind a key of our file. The error names the key, or the value itself if that is an
/// address or the directory of the journal.
fn place<'a>(toml: &'a str, error: &str) -> Option<&'a str> {
    let places = toml.lines().filter_map(|line| {
        let (setting, origin) = line.rsplit_once(" # ")?;
        let (key, value) = setting.split_once(" = ")?;
        let is_named = ["address", "data_dir"].contains(&key) || error.contains(&format!("`{key}`"));
        let mut values = texts(value);
        let value = values.find(|value| is_named && !value.is_empty() && error.contains(value.as_str()))?;
        // The most important line is the first one. A default has no line.
        let first = origin.split(", ").next().filter(|origin| origin.contains(':'));
        first.map(|first| (value.len(), first))
    });
    // The longest value: an address may be the beginning of another.
    places.max_by_key(|(length, _)| *length).map(|(_, place)| place)
}

/// The texts in a value of our file: one, or a list.
fn texts(value: &str) -> impl Iterator<Item = String> {
    let inner = value.strip_prefix('[').and_then(|value| value.strip_suffix(']')).unwrap_or(value);
    let inner = inner.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(inner);
    inner.split("\", \"").map(|text| text.replace("\\\"", "\"").replace("\\\\", "\\").replace("$${", "${"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOML: &str = "user = \"mosquitto\" # Mosquitto's default\n\
        pid_file = \"\\\"/a\\\"\" # m.conf:20\n\
        [auth]\npassword_file = \"/etc/users\" # conf.d/a.conf:2\n\n\
        [[listener]]\naddress = \"[::]:1883\" # m.conf:1\n\
        [[listener]]\naddress = \"192.0.2.1:8883\" # m.conf:4, m.conf:5\ntls_key = \"k\" # m.conf:7\n\
        [[listener]]\naddress = \"[::]:18830\" # m.conf:9\n\
        tls_client_ca = [\"/a\", \"/b\"] # m.conf:10\n";

    #[test]
    fn an_error_is_about_the_line_of_the_value_that_it_names() {
        let of = |error| place(TOML, error);
        assert_eq!(of("`password_file`: /etc/users: there is no such file"), Some("conf.d/a.conf:2"));
        assert_eq!(of("`tls_key`: k: there is no such file"), Some("m.conf:7"));
        assert_eq!(of("cannot listen on 192.0.2.1:8883: it is in use"), Some("m.conf:4"));
        assert_eq!(of("cannot listen on [::]:18830: it is in use"), Some("m.conf:9"));
        assert_eq!(of("`tls_client_ca`: /b: there is no such file"), Some("m.conf:10"));
        assert_eq!(of("`pid_file`: \"/a\": there is no such file"), Some("m.conf:20"));
        assert_eq!(of("`password_file`: /other: there is no such file"), None);
        assert_eq!(of("`user`: there is no user mosquitto"), None);
        assert_eq!(of("the disk is full"), None);
        assert_eq!(place("", "cannot listen"), None);
    }
}
