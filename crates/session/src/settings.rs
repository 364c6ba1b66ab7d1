//! What a server offers and how much it takes.

use wire::Qos;

/// The capabilities and bounds of a server role, the same for all its sessions.
#[derive(Debug, Clone)]
pub struct Settings {
    /// A packet may have so many bytes, fixed header included; announced as Maximum Packet Size.
    pub packet_bytes_max: u32,
    /// The same for CONNECT, before anybody has shown who they are.
    pub connect_packet_bytes_max: u32,
    /// A topic or filter may have so many levels.
    pub topic_levels_max: usize,
    /// A client identifier may have so many bytes.
    pub client_id_bytes_max: usize,
    /// A will's topic, properties and payload together may have so many bytes.
    pub will_bytes_max: usize,
    /// So many subscriptions may one client have.
    pub subscriptions_max: usize,
    /// The highest QoS that is served.
    pub qos_max: Qos,
    /// Aliases a client may use towards us, per connection; 0 is none.
    pub topic_alias_max: u16,
    /// A longer Keep Alive than this, or none, is replaced by it; 0 leaves it to the client.
    pub keep_alive_secs_max: u16,
    /// A connection that has not sent its whole CONNECT by then is closed.
    pub connect_timeout_ms: u64,
}
