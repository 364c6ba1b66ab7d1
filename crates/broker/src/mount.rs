//! The mount point of a listener: its clients use short names for the topics below it, and know no others. The topic prefix
//! of a role is one too, behind that of the listener.

use base::{Charge, ConnectionId};
use topic::{TopicFilter, TopicName};
use wire::{Answer, ConnectRefusal, Decoded, Limits, Packet, ReasonCode, Version, Violation, Will, decode};

use crate::effects::Outside;
use crate::encode::Source;
use crate::read::Step;
use crate::{Effects, Shard};

/// The beginning of all topics that a client uses: a topic name that ends with `/`, such as `house/`. The clients of a
/// listener share its mount point. A client whose roles have a topic prefix has one of its own.
#[derive(Debug)]
pub struct Mount {
    text: Box<str>,
    /// Memory of a mount point that belongs to one client.
    _charge: Option<Charge>,
}

impl PartialEq for Mount {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Mount {}

/// Maximum length of a listener's mount point in bytes. Each name that a client sends becomes longer by this.
const MOUNT_BYTES_MAX: usize = 256;
/// Maximum Remaining Length of a packet (section 1.5.5).
const REMAINING_MAX: usize = 268_435_455;
/// A buffer for packets with whole names is kept up to this size.
const WHOLE_BYTES_KEPT: usize = 64 * 1024;

impl Mount {
    /// Makes a mount point. `None` if the text is no topic name of at most 256 bytes that ends with `/`, or begins with `$`.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let is_prefix = text.ends_with('/') && !text.starts_with('$') && text.len() <= MOUNT_BYTES_MAX;
        (is_prefix && TopicName::new(text).is_ok()).then(|| Self { text: text.into(), _charge: None })
    }

    /// The mount point of one client, behind that of its listener, if there is one.
    pub(crate) fn of_client(listener: Option<&Self>, prefix: &str, charge: Charge) -> Self {
        let text = [listener.map_or("", |listener| &listener.text), prefix].concat();
        Self { text: text.into(), _charge: Some(charge) }
    }

    /// The whole name of a topic. `None` if it is too long.
    fn name<'w>(&self, name: TopicName<'_>, whole: &'w mut String) -> Option<TopicName<'w>> {
        whole.clear();
        whole.push_str(&self.text);
        whole.push_str(name.as_str());
        TopicName::new(whole).ok()
    }

    /// The beginning of all topics.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The whole filter. `None` if it is too long.
    pub(crate) fn filter<'w>(
        &self,
        filter: TopicFilter<'_>,
        whole: &'w mut String,
    ) -> Option<TopicFilter<'w>> {
        let own = filter.shared().map_or(filter, |shared| shared.filter).as_str();
        let (share, _) = filter.as_str().split_at(filter.as_str().len() - own.len());
        whole.clear();
        [share, &self.text, own].into_iter().for_each(|part| whole.push_str(part));
        TopicFilter::new(whole).ok()
    }

    /// The length of the beginning of a topic that clients are not told, in bytes. A topic elsewhere keeps its name: a
    /// session may have subscribed to it on another listener.
    pub(crate) fn cut(&self, topic: &[u8]) -> u16 {
        let is_below = topic.len() > self.text.len() && topic.starts_with(self.text.as_bytes());
        if is_below { u16::try_from(self.text.len()).unwrap_or_default() } else { 0 }
    }

    /// The same for the messages of a source, which have one topic.
    pub(crate) fn cut_of(&self, source: Source<'_>) -> u16 {
        match source {
            Source::Message { message, .. } => self.cut(message.topic().as_str().as_bytes()),
            Source::Run(run) => self.cut(name_in(run.bytes).unwrap_or_default()),
        }
    }

    /// Writes a PUBLISH that has a name with the whole name instead. Returns whether that fits.
    fn write(&self, packet: &[u8], into: &mut Vec<u8>) -> bool {
        let Some(name) = name_in(packet) else { return false };
        let header_len = header_len(packet);
        let remaining = packet.len() - header_len + self.text.len();
        let Ok(name_len) = u16::try_from(name.len() + self.text.len()) else { return false };
        if remaining > REMAINING_MAX {
            return false;
        }
        into.clear();
        into.push(packet[0]);
        let mut rest = remaining;
        while rest >= 0x80 {
            into.push(u8::try_from(rest & 0x7f).expect("seven bits") | 0x80);
            rest >>= 7;
        }
        into.push(u8::try_from(rest).expect("seven bits"));
        into.extend_from_slice(&name_len.to_be_bytes());
        into.extend_from_slice(self.text.as_bytes());
        into.extend_from_slice(&packet[header_len + 2..]);
        true
    }
}

/// The name without the beginning that a client is not told.
pub(crate) fn shortened(name: TopicName<'_>, cut: u16) -> TopicName<'_> {
    if cut == 0 {
        return name;
    }
    let short = name.as_str().get(usize::from(cut)..).and_then(|short| TopicName::new(short).ok());
    short.unwrap_or(name)
}

/// The length of a fixed header that was decoded before.
fn header_len(packet: &[u8]) -> usize {
    let continued = packet.iter().skip(1).take_while(|byte| **byte >= 0x80).count();
    2 + continued
}

/// The name in a PUBLISH that was decoded before; empty where an alias stands for it.
fn name_in(packet: &[u8]) -> Option<&[u8]> {
    let (len, rest) = packet.get(header_len(packet)..)?.split_first_chunk::<2>()?;
    rest.get(..usize::from(u16::from_be_bytes(*len)))
}

impl Shard {
    /// Takes in a packet of a client behind a mount point: with whole names. Filters get theirs one by one, in
    /// `take_subscriptions`: a packet may have very many. A will gets the prefix of a role later, when the user is known.
    pub(crate) fn step_mounted(
        &mut self,
        id: ConnectionId,
        packet: &Packet<'_>,
        bytes: &[u8],
        to: &mut Outside<'_, impl Effects>,
    ) -> Step {
        let Some(client) = self.clients.get(id) else { return Step::Ended };
        let Some(mount) = client.mount.clone() else { return self.handle(id, packet, bytes, to) };
        // Known from CONNECT on, which comes first.
        let version = client.session.version().unwrap_or(Version::V3_1_1);
        match packet {
            Packet::Connect(connect) => {
                let (mut connect, mut whole) = (*connect, String::new());
                if let Some(will) = connect.will {
                    let Some(topic) = mount.name(will.topic, &mut whole) else {
                        self.violated(id, &too_long_in_connect(connect.version()), to);
                        return Step::Ended;
                    };
                    connect.will = Some(Will { topic, ..will });
                }
                self.handle(id, &Packet::Connect(connect), bytes, to)
            }
            Packet::Publish(publish) if publish.topic.name().is_some() => {
                let mut whole = std::mem::take(&mut self.whole);
                let step = if mount.write(bytes, &mut whole) {
                    self.handle_whole(id, &whole, version, to)
                } else {
                    self.violated(id, &too_long(version), to);
                    Step::Ended
                };
                if whole.capacity() <= WHOLE_BYTES_KEPT {
                    self.whole = whole;
                }
                // The packet that was handled is longer than the one that was read.
                if matches!(step, Step::Consumed(_)) { Step::Consumed(bytes.len()) } else { step }
            }
            _ => self.handle(id, packet, bytes, to),
        }
    }

    /// Takes in a packet that was written anew.
    fn handle_whole(
        &mut self,
        id: ConnectionId,
        bytes: &[u8],
        version: Version,
        to: &mut Outside<'_, impl Effects>,
    ) -> Step {
        match decode(bytes, Some(version), &Limits::default()) {
            Ok(Decoded::Packet { packet, .. }) => self.handle(id, &packet, bytes, to),
            Ok(Decoded::Need { .. }) => unreachable!("a whole packet was written"),
            Err(violation) => {
                self.violated(id, &violation, to);
                Step::Ended
            }
        }
    }
}

/// The text about a name that is too long where a mount point or a topic prefix stands before it.
pub(crate) const TOO_LONG: &str = "a topic that is too long below the mount point and the topic prefix";
const STATEMENT: &str = "MQTT-4.7.3-3";

fn too_long(version: Version) -> Violation {
    Violation::after_connect(version, ReasonCode::TopicNameInvalid, [STATEMENT; 2], TOO_LONG)
}

/// The same for a will. Before MQTT 5 no return code fits, and nothing is said.
fn too_long_in_connect(version: Version) -> Violation {
    let refusal = ConnectRefusal::TopicNameInvalid;
    let answer = if version.is_5() { Answer::ConnAck(version, refusal) } else { Answer::Nothing };
    Violation { reason: refusal.into(), statement: STATEMENT, text: TOO_LONG, answer }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount() -> Mount {
        Mount::new("house/").expect("a mount point")
    }

    #[test]
    fn a_mount_point_is_the_beginning_of_topics() {
        for text in
            ["", "house", "$SYS/", "$share/g/", "a/+/", "#/", "a\0/", &format!("{}/", "a".repeat(256))]
        {
            assert_eq!(Mount::new(text), None, "{text}");
        }
        for text in ["/", "house/", "a/b/", &format!("{}/", "a".repeat(255))] {
            assert!(Mount::new(text).is_some(), "{text}");
        }
    }

    #[test]
    fn a_client_has_a_prefix_behind_the_mount_point_of_its_listener() {
        let budget = std::sync::Arc::new(base::Budget::default());
        let charge = || budget.charge(base::Purpose::Connections, 7);
        let own = Mount::of_client(Some(&mount()), "ann/", charge());
        assert_eq!((own.as_str(), budget.held_bytes(base::Purpose::Connections)), ("house/ann/", 7));
        assert_eq!(own, Mount::new("house/ann/").expect("a mount point"));
        assert_eq!(Mount::of_client(None, "ann/", charge()).as_str(), "ann/");
    }

    #[test]
    fn filters_get_the_mount_point_behind_their_share() {
        let mut whole = String::new();
        for (own, expected) in [
            ("#", "house/#"),
            ("+/door", "house/+/door"),
            ("/", "house//"),
            ("$SYS/#", "house/$SYS/#"),
            ("$share", "house/$share"),
            ("$share/cooks/door", "$share/cooks/house/door"),
            ("$share/cooks/#", "$share/cooks/house/#"),
        ] {
            let filter =
                mount().filter(TopicFilter::new(own).expect("a filter"), &mut whole).map(TopicFilter::as_str);
            assert_eq!(filter, Some(expected));
        }
        let long = "a".repeat(65_535);
        assert_eq!(mount().filter(TopicFilter::new(&long).expect("a filter"), &mut whole), None);
    }

    #[test]
    fn topics_elsewhere_keep_their_names() {
        for (topic, short) in [
            ("house/door", "door"),
            ("house//", "/"),
            ("house/", "house/"),
            ("house", "house"),
            ("houses/a", "houses/a"),
        ] {
            let name = TopicName::new(topic).expect("a name");
            assert_eq!(shortened(name, mount().cut(topic.as_bytes())).as_str(), short);
        }
    }

    #[test]
    fn a_publish_is_written_with_its_whole_name() {
        let mut whole = Vec::new();
        assert!(mount().write(b"\x33\x0B\0\x04door\0\x07\0hi", &mut whole));
        assert_eq!(whole, b"\x33\x11\0\x0Ahouse/door\0\x07\0hi");
        // The length becomes longer than one byte.
        let payload = [b'x'; 119];
        assert!(mount().write(&[&b"\x30\x7F\0\x06window"[..], &payload].concat(), &mut whole));
        assert_eq!(whole, [&b"\x30\x85\x01\0\x0Chouse/window"[..], &payload].concat());
        assert_eq!(name_in(&whole), Some(&b"house/window"[..]));
        let long = "a".repeat(65_530);
        let packet = [&b"\x30\xFC\xFF\x03\xFF\xFA"[..], long.as_bytes()].concat();
        assert!(!mount().write(&packet, &mut whole), "65,536 bytes are too long");
    }
}
