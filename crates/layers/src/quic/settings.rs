//! Limits and rules of QUIC, as a configuration of quinn-proto.

use std::sync::Arc;
use std::time::Duration;

use quinn_proto::crypto::rustls::QuicServerConfig;
use quinn_proto::{
    EndpointConfig, IdleTimeout, ServerConfig, TransportConfig, ValidationTokenConfig, VarInt,
};

/// Name of MQTT inside of QUIC (RFC 7301). QUIC asks for one, unlike TLS.
const ALPN: &[u8] = b"mqtt";
/// The only version: RFC 9000.
const VERSION_1: u32 = 1;
/// A peer of which nothing comes is given up after this time. TCP does so after about as long.
const IDLE: Duration = Duration::from_secs(15 * 60);
/// After this time without a packet the peer is asked for a sign of life: an idle client of MQTT stays.
const PING: Duration = Duration::from_secs(5 * 60);
/// Bytes of datagrams that are kept for one connection that waits to be accepted, and for all of them.
const WAITING_BYTES: u64 = 4 * 1024;
const ALL_WAITING_BYTES: u64 = 256 * 1024;

/// The limits of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuicLimits {
    /// Maximum number of connections at a time whose handshake is not complete. From a quarter of them on, a client has to
    /// prove its address first (Retry).
    pub handshakes_max: usize,
    /// Maximum bytes that were received and not read, of each stream, and that were sent and not acknowledged, of all streams.
    pub buffer_bytes: u32,
    /// Maximum number of streams that a client has open at a time, at least 1. All of them carry packets of one session.
    pub streams_max: u32,
}

impl Default for QuicLimits {
    fn default() -> Self {
        Self { handshakes_max: 1_000, buffer_bytes: 256 * 1024, streams_max: 8 }
    }
}

impl QuicLimits {
    fn transport(self) -> TransportConfig {
        let window = VarInt::from_u32(self.buffer_bytes);
        let mut transport = TransportConfig::default();
        transport
            .max_concurrent_bidi_streams(VarInt::from_u32(self.streams_max))
            .max_concurrent_uni_streams(VarInt::from_u32(0))
            .datagram_receive_buffer_size(None)
            .stream_receive_window(window)
            .receive_window(window)
            .send_window(self.buffer_bytes.into())
            .max_idle_timeout(IdleTimeout::try_from(IDLE).ok())
            .keep_alive_interval(Some(PING))
            .allow_spin(false);
        transport
    }

    /// The rules for new connections under this configuration of TLS. `None` if it has no cipher suite that QUIC begins with.
    pub(super) fn server(self, tls: &rustls::ServerConfig) -> Option<ServerConfig> {
        let mut server = ServerConfig::with_crypto(crypto(tls)?);
        let mut tokens = ValidationTokenConfig::default();
        tokens.sent(0);
        server
            .transport_config(Arc::new(self.transport()))
            .validation_token_config(tokens)
            .max_incoming(self.handshakes_max)
            .incoming_buffer_size(WAITING_BYTES)
            .incoming_buffer_size_total(ALL_WAITING_BYTES);
        Some(server)
    }
}

/// TLS inside of QUIC: the certificates and rules of the listener, for MQTT alone and without early data.
pub(super) fn crypto(tls: &rustls::ServerConfig) -> Option<Arc<QuicServerConfig>> {
    let mut tls = tls.clone();
    tls.alpn_protocols = vec![ALPN.to_vec()];
    tls.max_early_data_size = 0;
    QuicServerConfig::try_from(tls).ok().map(Arc::new)
}

pub(super) fn endpoint() -> Arc<EndpointConfig> {
    let mut endpoint = EndpointConfig::default();
    endpoint.supported_versions(vec![VERSION_1]);
    Arc::new(endpoint)
}
