//! The kinds of values that keys can have: how each kind is written in the file, read, limited and shown.

use std::fmt::Display;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use toml::de::DeValue;

use crate::address::ListenAddress;
use crate::keys::Owner;
use crate::log::LogTarget;
use crate::shared_key::SharedKey;
use crate::unit;

/// A kind of value.
pub(crate) trait Kind {
    /// Type of the value in the program.
    type Value;
    /// Type of the bounds of the value.
    type Bound;

    /// The kind in one or two words, for the manual.
    fn word() -> String;
    /// Description of a valid value in the file, with examples, as the end of "expected …".
    fn expected() -> String;
    /// Reads a value. An error is the end of a sentence that begins with the name of the key.
    fn read(value: &DeValue<'_>) -> Result<Self::Value, String>;
    /// Returns the value as it is written in the file.
    fn show(value: &Self::Value) -> String;
    /// Whether the value is within the bounds.
    fn is_within(_value: &Self::Value, _bounds: &RangeInclusive<Self::Bound>) -> bool {
        true
    }
    /// Returns a bound as text for the user.
    fn show_bound(_bound: &Self::Bound) -> String {
        String::new()
    }
}

const TOO_LARGE: &str = "is too large";

/// An integer type that stores a size or a count.
pub(crate) trait Whole: Copy + PartialOrd + Display {
    fn from_u64(value: u64) -> Option<Self>;
    fn to_u64(self) -> u64;
}

macro_rules! whole {
    ($($integer:ty),*) => {$(
        impl Whole for $integer {
            fn from_u64(value: u64) -> Option<Self> {
                value.try_into().ok()
            }
            fn to_u64(self) -> u64 {
                self.try_into().expect("no integer of ours is wider than 64 bits")
            }
        }
    )*};
}
whole!(u8, u16, u32, u64, usize);

/// A number of bytes: `"2 MiB"`, `"256 KiB"`, `4096`.
pub(crate) struct Size<N>(PhantomData<N>);

impl<N: Whole> Kind for Size<N> {
    type Value = N;
    type Bound = N;

    fn word() -> String {
        "size".to_owned()
    }

    fn expected() -> String {
        "a size such as \"2 MiB\" or \"64 KiB\", or a whole number of bytes".to_owned()
    }

    fn read(value: &DeValue<'_>) -> Result<N, String> {
        let bytes = match value {
            DeValue::String(text) => unit::parse(text, unit::SIZES)?,
            other => whole_number(other)?,
        };
        N::from_u64(bytes).ok_or_else(|| TOO_LARGE.to_owned())
    }

    fn show(value: &N) -> String {
        match value.to_u64() {
            bytes if bytes < 1024 => bytes.to_string(),
            bytes => format!("\"{}\"", unit::show(bytes, unit::SIZES)),
        }
    }

    fn is_within(value: &N, bounds: &RangeInclusive<N>) -> bool {
        bounds.contains(value)
    }

    fn show_bound(bound: &N) -> String {
        unit::show(bound.to_u64(), unit::SIZES)
    }
}

/// A number of things: `10`, `100_000`.
pub(crate) struct Count<N>(PhantomData<N>);

impl<N: Whole> Kind for Count<N> {
    type Value = N;
    type Bound = N;

    fn word() -> String {
        "count".to_owned()
    }

    fn expected() -> String {
        "a whole number".to_owned()
    }

    fn read(value: &DeValue<'_>) -> Result<N, String> {
        N::from_u64(whole_number(value)?).ok_or_else(|| TOO_LARGE.to_owned())
    }

    fn show(value: &N) -> String {
        unit::grouped(value.to_u64())
    }

    fn is_within(value: &N, bounds: &RangeInclusive<N>) -> bool {
        bounds.contains(value)
    }

    fn show_bound(bound: &N) -> String {
        unit::grouped(bound.to_u64())
    }
}

/// A duration, which always has a unit: `"10 s"`, `"1.5 h"`, `"250 ms"`.
pub(crate) struct Time;

impl Kind for Time {
    type Value = Duration;
    type Bound = Duration;

    fn word() -> String {
        "duration".to_owned()
    }

    fn expected() -> String {
        "a duration with its unit, such as \"10 s\", \"250 ms\" or \"1.5 h\"".to_owned()
    }

    fn read(value: &DeValue<'_>) -> Result<Duration, String> {
        match value {
            DeValue::String(text) => unit::parse(text, unit::TIMES).map(Duration::from_millis),
            DeValue::Integer(_) => Err("needs a unit".to_owned()),
            other => Err(not_a(other)),
        }
    }

    fn show(value: &Duration) -> String {
        format!("\"{}\"", Self::show_bound(value))
    }

    fn is_within(value: &Duration, bounds: &RangeInclusive<Duration>) -> bool {
        bounds.contains(value)
    }

    fn show_bound(bound: &Duration) -> String {
        unit::show(u64::try_from(bound.as_millis()).unwrap_or(u64::MAX), unit::TIMES)
    }
}

/// A value of another kind that `"off"` can switch off.
pub(crate) struct OrOff<K>(PhantomData<K>);

impl<K: Kind> Kind for OrOff<K> {
    type Value = Option<K::Value>;
    type Bound = K::Bound;

    fn word() -> String {
        format!("{} or `\"off\"`", K::word())
    }

    fn expected() -> String {
        format!("{}, or \"off\"", K::expected())
    }

    fn read(value: &DeValue<'_>) -> Result<Self::Value, String> {
        match value {
            DeValue::String(text) if text == "off" => Ok(None),
            other => K::read(other).map(Some),
        }
    }

    fn show(value: &Self::Value) -> String {
        value.as_ref().map_or_else(|| "\"off\"".to_owned(), K::show)
    }

    fn is_within(value: &Self::Value, bounds: &RangeInclusive<K::Bound>) -> bool {
        value.as_ref().is_none_or(|value| K::is_within(value, bounds))
    }

    fn show_bound(bound: &K::Bound) -> String {
        K::show_bound(bound)
    }
}

/// A value of another kind whose key is optional, and which has no default.
pub(crate) struct Absent<K>(PhantomData<K>);

impl<K: Kind> Kind for Absent<K> {
    type Value = Option<K::Value>;
    type Bound = K::Bound;

    fn word() -> String {
        K::word()
    }

    fn expected() -> String {
        K::expected()
    }

    fn read(value: &DeValue<'_>) -> Result<Self::Value, String> {
        K::read(value).map(Some)
    }

    fn show(value: &Self::Value) -> String {
        value.as_ref().map_or_else(String::new, K::show)
    }

    fn is_within(value: &Self::Value, bounds: &RangeInclusive<K::Bound>) -> bool {
        value.as_ref().is_none_or(|value| K::is_within(value, bounds))
    }

    fn show_bound(bound: &K::Bound) -> String {
        K::show_bound(bound)
    }
}

/// A boolean: `true` or `false`.
pub(crate) struct Switch;

impl Kind for Switch {
    type Value = bool;
    type Bound = ();

    fn word() -> String {
        Self::expected()
    }

    fn expected() -> String {
        "true or false".to_owned()
    }

    fn read(value: &DeValue<'_>) -> Result<bool, String> {
        value.as_bool().ok_or_else(|| not_a(value))
    }

    fn show(value: &bool) -> String {
        value.to_string()
    }
}

/// A path in the file system, not empty.
pub(crate) struct Path;

impl Kind for Path {
    type Value = PathBuf;
    type Bound = ();

    fn word() -> String {
        "path".to_owned()
    }

    fn expected() -> String {
        "a path such as \"/var/lib/pondhawk\"".to_owned()
    }

    fn read(value: &DeValue<'_>) -> Result<PathBuf, String> {
        match value.as_str() {
            Some("") => Err("cannot be empty".to_owned()),
            // Whoever has put a key itself here must not read it in every message about the path.
            Some(path) if path.contains("-----BEGIN") => {
                Err("is the content of a file, and not its path".to_owned())
            }
            Some(path) if path.contains(char::is_control) => {
                Err("is no path, because it has several lines, or characters that nobody can see".to_owned())
            }
            Some(path) => Ok(PathBuf::from(path)),
            None => Err(not_a(value)),
        }
    }

    fn show(value: &PathBuf) -> String {
        unit::quoted(&value.to_string_lossy())
    }
}

/// The path of a file, or of several files in one directory by a name with wildcards.
pub(crate) struct Pattern;

impl Kind for Pattern {
    type Value = String;
    type Bound = ();

    fn word() -> String {
        "path, also with `*` and `?`".to_owned()
    }

    fn expected() -> String {
        "a path such as \"conf.d/*.toml\"".to_owned()
    }

    fn read(value: &DeValue<'_>) -> Result<String, String> {
        let path = Path::read(value)?;
        let directory = path.parent().map(|parent| parent.to_string_lossy().into_owned());
        if directory.is_some_and(|directory| directory.contains(['*', '?'])) {
            return Err("has wildcards in a directory: they are for the name of the file".to_owned());
        }
        if path.file_name().is_none() {
            return Err("has no name of a file".to_owned());
        }
        Ok(path.to_string_lossy().into_owned())
    }

    fn show(value: &String) -> String {
        unit::quoted(value)
    }
}

/// A list of values of another kind, or one such value. Empty if the key is absent.
pub(crate) struct ListOf<K>(PhantomData<K>);

impl<K: Kind> Kind for ListOf<K> {
    type Value = Vec<K::Value>;
    type Bound = K::Bound;

    fn word() -> String {
        format!("{}, or a list of them", K::word())
    }

    fn expected() -> String {
        format!("{}, or a list of them", K::expected())
    }

    fn read(value: &DeValue<'_>) -> Result<Self::Value, String> {
        match value {
            DeValue::Array(values) if values.is_empty() => Err("is an empty list".to_owned()),
            DeValue::Array(values) => values.iter().map(|value| K::read(value.get_ref())).collect(),
            value => K::read(value).map(|value| vec![value]),
        }
    }

    fn show(value: &Self::Value) -> String {
        match value.as_slice() {
            [] => String::new(),
            [only] => K::show(only),
            many => format!("[{}]", many.iter().map(K::show).collect::<Vec<_>>().join(", ")),
        }
    }

    fn is_within(value: &Self::Value, bounds: &RangeInclusive<K::Bound>) -> bool {
        value.iter().all(|value| K::is_within(value, bounds))
    }

    fn show_bound(bound: &K::Bound) -> String {
        K::show_bound(bound)
    }
}

/// A place to which lines of the log go.
pub(crate) struct Target;

impl Kind for Target {
    type Value = LogTarget;
    type Bound = ();

    fn word() -> String {
        "`\"stderr\"`, `\"stdout\"`, `\"syslog\"`, `\"off\"` or a path".to_owned()
    }

    fn expected() -> String {
        "\"stderr\", \"stdout\", \"syslog\", \"off\", or a file with a slash such as \"/var/log/pondhawk.log\""
            .to_owned()
    }

    fn read(value: &DeValue<'_>) -> Result<LogTarget, String> {
        match value.as_str().ok_or_else(|| not_a(value))? {
            "stderr" => Ok(LogTarget::Stderr),
            "stdout" => Ok(LogTarget::Stdout),
            "syslog" => Ok(LogTarget::Syslog),
            "off" => Ok(LogTarget::Off),
            path if path.contains('/') => Ok(LogTarget::File(PathBuf::from(path))),
            other => Err(format!("cannot be `{other}`")),
        }
    }

    fn show(value: &LogTarget) -> String {
        match value {
            LogTarget::Stderr => unit::quoted("stderr"),
            LogTarget::Stdout => unit::quoted("stdout"),
            LogTarget::Syslog => unit::quoted("syslog"),
            LogTarget::Off => unit::quoted("off"),
            LogTarget::File(path) => Path::show(path),
        }
    }
}

/// The name of a user of the system.
pub(crate) struct UserName;

impl Kind for UserName {
    type Value = String;
    type Bound = ();

    fn word() -> String {
        "user of the system".to_owned()
    }

    fn expected() -> String {
        "the name of a user of the system such as \"pondhawk\"".to_owned()
    }

    fn read(value: &DeValue<'_>) -> Result<String, String> {
        match value.as_str() {
            Some(name) if !name.is_empty() && !name.contains([':', '\0', '\n']) => Ok(name.to_owned()),
            Some(_) => Err("is no name of a user".to_owned()),
            None => Err(not_a(value)),
        }
    }

    fn show(value: &String) -> String {
        unit::quoted(value)
    }
}

/// The path of a URL, such as `/mqtt`.
pub(crate) struct UrlPath;

impl Kind for UrlPath {
    type Value = String;
    type Bound = ();

    fn word() -> String {
        "path of a URL".to_owned()
    }

    fn expected() -> String {
        "the path of a URL such as \"/mqtt\"".to_owned()
    }

    fn read(value: &DeValue<'_>) -> Result<String, String> {
        let text = value.as_str().ok_or_else(|| not_a(value))?;
        if !text.starts_with('/') {
            return Err("does not begin with a slash".to_owned());
        }
        if text.contains(['?', '#']) || !text.chars().all(|character| character.is_ascii_graphic()) {
            return Err("is no path of a URL".to_owned());
        }
        Ok(text.to_owned())
    }

    fn show(value: &String) -> String {
        unit::quoted(value)
    }
}

/// The name of a host, as a request of HTTP has it, without a port.
pub(crate) struct HostName;

impl Kind for HostName {
    type Value = String;
    type Bound = ();

    fn word() -> String {
        "host name".to_owned()
    }

    fn expected() -> String {
        "the name of a host without a port, such as \"pond.example\"".to_owned()
    }

    fn read(value: &DeValue<'_>) -> Result<String, String> {
        let text = value.as_str().ok_or_else(|| not_a(value))?;
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-._[]:".contains(&byte);
        let has_port = !text.ends_with(']') && text.contains(':');
        if text.is_empty() || has_port || !text.bytes().all(is_part) {
            return Err("is no name of a host".to_owned());
        }
        Ok(text.to_ascii_lowercase())
    }

    fn show(value: &String) -> String {
        unit::quoted(value)
    }
}

/// The name of a network interface, such as `eth0`.
pub(crate) struct Interface;

/// Maximum length of the name of an interface on Linux, in bytes (`IFNAMSIZ`, with the byte that ends it).
const INTERFACE_BYTES_MAX: usize = 15;

impl Kind for Interface {
    type Value = String;
    type Bound = ();

    fn word() -> String {
        "network interface".to_owned()
    }

    fn expected() -> String {
        "the name of a network interface such as \"eth0\"".to_owned()
    }

    fn read(value: &DeValue<'_>) -> Result<String, String> {
        let text = value.as_str().ok_or_else(|| not_a(value))?;
        let is_name = (1..=INTERFACE_BYTES_MAX).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/');
        if is_name { Ok(text.to_owned()) } else { Err("is no name of a network interface".to_owned()) }
    }

    fn show(value: &String) -> String {
        unit::quoted(value)
    }
}

/// The beginning of topics, with `/` at its end, such as `house/`.
pub(crate) struct MountPoint;

/// Maximum length of the beginning of topics, in bytes.
const MOUNT_POINT_BYTES_MAX: usize = 256;

impl Kind for MountPoint {
    type Value = String;
    type Bound = ();

    fn word() -> String {
        "beginning of topics".to_owned()
    }

    fn expected() -> String {
        "the beginning of topics such as \"house/\"".to_owned()
    }

    fn read(value: &DeValue<'_>) -> Result<String, String> {
        let text = value.as_str().ok_or_else(|| not_a(value))?;
        if !text.ends_with('/') {
            return Err("does not end with a slash".to_owned());
        }
        if text.starts_with('$') || text.contains(['+', '#', '\0']) || text.len() > MOUNT_POINT_BYTES_MAX {
            return Err("begins with `$`, or has wildcards, or more than 256 bytes".to_owned());
        }
        Ok(text.to_owned())
    }

    fn show(value: &String) -> String {
        unit::quoted(value)
    }
}

/// The permissions of a file, in octal digits such as `0660`.
pub(crate) struct Mode;

impl Kind for Mode {
    type Value = u32;
    type Bound = ();

    fn word() -> String {
        "octal digits".to_owned()
    }

    fn expected() -> String {
        "permissions in octal digits such as \"0660\"".to_owned()
    }

    fn read(value: &DeValue<'_>) -> Result<u32, String> {
        let text = value.as_str().ok_or_else(|| not_a(value))?;
        let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777 && !text.starts_with('+'));
        mode.ok_or_else(|| "is not a mode from 0000 to 0777".to_owned())
    }

    fn show(value: &u32) -> String {
        unit::quoted(&format!("{value:04o}"))
    }
}

/// User and group ids of the owner of a file, such as `1000:1000`. Either may be left out.
pub(crate) struct OwnerIds;

impl Kind for OwnerIds {
    type Value = Owner;
    type Bound = ();

    fn word() -> String {
        "user and group id".to_owned()
    }

    fn expected() -> String {
        "numbers of a user and a group such as \"1000:1000\", \"1000\" or \":1000\"".to_owned()
    }

    fn read(value: &DeValue<'_>) -> Result<Owner, String> {
        let text = value.as_str().ok_or_else(|| not_a(value))?;
        let (user, group) = text.split_once(':').unwrap_or((text, ""));
        let id = |text: &str| {
            if text.is_empty() {
                return Ok(None);
            }
            // The largest number means nobody to the system: the owner would stay as it is.
            let id = text.parse().ok().filter(|id| *id < u32::MAX && !text.starts_with('+'));
            id.map(Some).ok_or_else(|| "has something else than user and group ids".to_owned())
        };
        match (id(user)?, id(group)?) {
            (None, None) => Err("names nobody".to_owned()),
            (user, group) => Ok(Owner { user, group }),
        }
    }

    fn show(value: &Owner) -> String {
        let text = |id: Option<u32>| id.map_or_else(String::new, |id| id.to_string());
        unit::quoted(&format!("{}:{}", text(value.user), text(value.group)))
    }
}

/// The origin of a web page (RFC 6454 section 6.2), such as `https://app.example`.
pub(crate) struct Origin;

impl Kind for Origin {
    type Value = String;
    type Bound = ();

    fn word() -> String {
        "origin".to_owned()
    }

    fn expected() -> String {
        "the origin of a web page such as \"https://app.example\" or \"http://localhost:8080\"".to_owned()
    }

    fn read(value: &DeValue<'_>) -> Result<String, String> {
        let text = value.as_str().ok_or_else(|| not_a(value))?;
        let host = text.split_once("://").map(|(_, host)| host).filter(|host| !host.is_empty());
        match host {
            Some(host)
                if !host.contains(['/', '@'])
                    && host.chars().all(|character| character.is_ascii_graphic()) =>
            {
                Ok(text.to_owned())
            }
            _ => {
                Err("is no origin: it has a scheme and a host, and perhaps a port, and nothing else"
                    .to_owned())
            }
        }
    }

    fn show(value: &String) -> String {
        unit::quoted(value)
    }
}

/// A network of addresses, such as `10.0.0.0/8`.
pub(crate) struct Network;

impl Kind for Network {
    type Value = IpNet;
    type Bound = ();

    fn word() -> String {
        "network".to_owned()
    }

    fn expected() -> String {
        "an address or a network such as \"10.0.0.1\" or \"fd00::/8\"".to_owned()
    }

    fn read(value: &DeValue<'_>) -> Result<IpNet, String> {
        let text = value.as_str().ok_or_else(|| not_a(value))?;
        let network = text.parse::<IpNet>().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
        network.map(|network| network.trunc()).ok_or_else(|| "is no network".to_owned())
    }

    fn show(value: &IpNet) -> String {
        unit::quoted(&value.to_string())
    }
}

/// The address of a listener.
pub(crate) struct Address;

impl Kind for Address {
    type Value = ListenAddress;
    type Bound = ();

    fn word() -> String {
        "host and port".to_owned()
    }

    fn expected() -> String {
        "a host and a port such as \"127.0.0.1:1883\" or \"quic://127.0.0.1:14567\", or \"unix:/PATH\""
            .to_owned()
    }

    fn read(value: &DeValue<'_>) -> Result<ListenAddress, String> {
        let text = value.as_str().ok_or_else(|| not_a(value))?;
        text.parse().map_err(|error: crate::AddressError| format!("is no address: {error}"))
    }

    fn show(value: &ListenAddress) -> String {
        unit::quoted(&value.to_string())
    }
}

/// The key of messages whose order a shared subscription preserves.
pub(crate) struct KeyOf;

impl Kind for KeyOf {
    type Value = SharedKey;
    type Bound = ();

    fn word() -> String {
        "`\"publisher\"` or `\"property:NAME\"`".to_owned()
    }

    fn expected() -> String {
        "\"publisher\" or \"property:NAME\"".to_owned()
    }

    fn read(value: &DeValue<'_>) -> Result<SharedKey, String> {
        value.as_str().ok_or_else(|| not_a(value))?.parse()
    }

    fn show(value: &SharedKey) -> String {
        unit::quoted(&value.to_string())
    }
}

/// A word from a fixed list.
pub(crate) struct Choice<E>(PhantomData<E>);

/// An enum whose variants have names in the file.
pub(crate) trait Words: Copy + PartialEq + 'static {
    /// Every variant with its name, in the order of the manual.
    const WORDS: &'static [(&'static str, Self)];
}

impl<E: Words> Kind for Choice<E> {
    type Value = E;
    type Bound = ();

    fn word() -> String {
        Self::expected()
    }

    fn expected() -> String {
        let words: Vec<String> = E::WORDS.iter().map(|(word, _)| format!("\"{word}\"")).collect();
        match words.split_last() {
            Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
            _ => words.concat(),
        }
    }

    fn read(value: &DeValue<'_>) -> Result<E, String> {
        let text = value.as_str().ok_or_else(|| not_a(value))?;
        let known = E::WORDS.iter().find(|(word, _)| *word == text);
        known.map(|(_, variant)| *variant).ok_or_else(|| format!("cannot be `{text}`"))
    }

    fn show(value: &E) -> String {
        let (word, _) =
            E::WORDS.iter().find(|(_, variant)| variant == value).expect("every variant has a word");
        unit::quoted(word)
    }
}

pub(crate) fn whole_number(value: &DeValue<'_>) -> Result<u64, String> {
    let integer = value.as_integer().ok_or_else(|| not_a(value))?;
    if integer.as_str().starts_with('-') {
        return Err("cannot be negative".to_owned());
    }
    u64::from_str_radix(integer.as_str().trim_start_matches('+'), integer.radix())
        .map_err(|_| TOO_LARGE.to_owned())
}

pub(crate) fn not_a(value: &DeValue<'_>) -> String {
    match value.type_str() {
        kind @ ("integer" | "array") => format!("cannot be an {kind}"),
        kind => format!("cannot be a {kind}"),
    }
}
